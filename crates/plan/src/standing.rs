//! Which endpoints of a cluster get work, everything that is known of them taken together.
//!
//! ```text
//!                 weight 0                                     → out
//!                 its checks say down                          → unwell
//!   endpoint ─────ejected, and no more of them than may be     → ejected
//!                 otherwise                                    → fit
//!
//!   members of the view: the fit ones; without any, those that are ejected but well
//! ```
//!
//! [`Roll::call`] is the only place that decides it: the views of balancers, the bound on ejections, metrics and the status
//! all ask there.

use model::snapshot::Cluster;

use crate::cluster::EndpointPlan;

/// Where one endpoint stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It gets work.
    Fit,
    /// It is left out for what exchanges told of it.
    Ejected,
    /// Its checks say that it is not well.
    Unwell,
    /// It is to get no work: it has weight 0.
    Out,
}

impl Standing {
    /// As the admin API writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fit => "fit",
            Self::Ejected => "ejected",
            Self::Unwell => "down",
            Self::Out => "out",
        }
    }
}

/// Where all endpoints of a cluster stand at a moment.
#[derive(Clone, Debug)]
pub struct Roll {
    /// In the order of the endpoints.
    standings: Box<[Standing]>,
    /// Those ejected beyond the bound, which count as fit: the oldest ejections.
    surplus: Vec<usize>,
    /// Endpoints that are ejected.
    pub ejected: usize,
    /// Endpoints that may be ejected at once.
    pub ejected_max: usize,
    /// Endpoints that get work.
    fit: usize,
}

impl Roll {
    /// Looks at every endpoint.
    pub(crate) fn call(cluster: &Cluster, endpoints: &[EndpointPlan]) -> Self {
        let mut standings: Box<[Standing]> = endpoints.iter().map(|endpoint| alone(cluster, endpoint)).collect();
        let eligible = standings.iter().filter(|standing| **standing != Standing::Out).count();
        let mut roll = Self { standings: Box::default(), surplus: Vec::new(), ejected: 0, ejected_max: 0, fit: 0 };
        if let Some(rules) = &cluster.fitness.passive {
            roll.ejected_max = eligible * usize::from(rules.ejected_percent_max.min(100)) / 100;
            roll.eject(&mut standings, endpoints);
        }
        roll.fit = standings.iter().filter(|standing| **standing == Standing::Fit).count();
        roll.standings = standings;
        roll
    }

    /// Marks those that are ejected, the latest first, as many as may be.
    fn eject(&mut self, standings: &mut [Standing], endpoints: &[EndpointPlan]) {
        let number =
            |(index, endpoint): (usize, &EndpointPlan)| Some((endpoint.state.passive_if_any()?.ejected(), index));
        let mut ejected: Vec<(u64, usize)> =
            endpoints.iter().enumerate().filter_map(number).filter(|(number, _)| *number > 0).collect();
        ejected.sort_unstable_by(|a, b| b.cmp(a));
        // One that is out or unwell is not left out for its ejection, but it was ejected: it counts.
        ejected.retain(|&(_, index)| standings[index] != Standing::Out);
        self.surplus =
            ejected.split_off(ejected.len().min(self.ejected_max)).into_iter().map(|(_, index)| index).collect();
        self.ejected = ejected.len();
        for (_, index) in ejected {
            if standings[index] == Standing::Fit {
                standings[index] = Standing::Ejected;
            }
        }
    }

    /// Whether one more may be ejected: this one, which is not yet, and it is not the last that could work.
    pub(crate) fn may_eject(&self, index: usize) -> bool {
        let is_fit = self.standings.get(index) == Some(&Standing::Fit) && !self.is_surplus(index);
        is_fit && self.ejected < self.ejected_max && self.fit > 1
    }

    /// Whether its ejection goes beyond the bound and is to end.
    pub(crate) fn is_surplus(&self, index: usize) -> bool {
        self.surplus.contains(&index)
    }

    /// Where an endpoint stands by itself, whatever the others do.
    pub fn standing(&self, index: usize) -> Standing {
        self.standings.get(index).copied().unwrap_or(Standing::Out)
    }

    /// Whether it is to get work. Without anyone fit, those that are only ejected do: to leave out the last one that could
    /// work is never better.
    pub(crate) fn gets_work(&self, index: usize) -> bool {
        match self.standing(index) {
            Standing::Fit => true,
            Standing::Ejected => self.fit == 0,
            Standing::Unwell | Standing::Out => false,
        }
    }
}

/// Where an endpoint stands but for ejection.
fn alone(cluster: &Cluster, endpoint: &EndpointPlan) -> Standing {
    if endpoint.endpoint.weight == 0 {
        Standing::Out
    } else if cluster.health_check.is_some() && !endpoint.state.is_up() {
        Standing::Unwell
    } else {
        Standing::Fit
    }
}
