//! Where the endpoints of a cluster stand among each other: who comes first, who is near.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

/// Of one endpoint. Nothing special by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// 0 comes first, at most [`crate::limits::PRIORITY_MAX`].
    pub priority: u32,
    /// Gets work only while no endpoint that is none may.
    pub is_backup: bool,
    /// The zone that it is in.
    pub zone: Option<String>,
    /// What else is known of it.
    pub labels: BTreeMap<String, String>,
}

/// A [`Placement`] that takes a pointer while there is nothing special about it: there may be very many endpoints.
#[derive(Clone, Debug, Default)]
pub struct Placed(Option<Box<Placement>>);

static NOTHING_SPECIAL: Placement = Placement { priority: 0, is_backup: false, zone: None, labels: BTreeMap::new() };

impl From<Placement> for Placed {
    fn from(placement: Placement) -> Self {
        Self((placement != NOTHING_SPECIAL).then(|| Box::new(placement)))
    }
}

impl Deref for Placed {
    type Target = Placement;

    fn deref(&self) -> &Placement {
        self.0.as_deref().unwrap_or(&NOTHING_SPECIAL)
    }
}

impl DerefMut for Placed {
    fn deref_mut(&mut self) -> &mut Placement {
        self.0.get_or_insert_default()
    }
}

impl PartialEq for Placed {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

/// Of a whole cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    /// How much more than its share an endpoint is taken to bear, in percent of it; 100 or more. A priority of which more than
    /// 100 / this is up gets all the work.
    pub overprovisioning: u32,
    /// Endpoints in this zone, that of the instance itself, come before others of the same priority.
    pub own_zone: Option<String>,
    /// Use only a part of many endpoints.
    pub aperture: Option<Aperture>,
}

/// Which part of many endpoints this instance of the program uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aperture {
    /// Its number, from 0; below `instances`.
    pub instance: u32,
    /// How many instances there are; at least 1.
    pub instances: u32,
    /// Endpoints that each uses at least; at least 1.
    pub endpoints_min: u32,
}

impl Default for Spread {
    fn default() -> Self {
        Self { overprovisioning: crate::limits::OVERPROVISIONING, own_zone: None, aperture: None }
    }
}

/// Which endpoints of its cluster a route goes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubsetRule {
    /// At least one; an endpoint must have them all.
    pub labels: BTreeMap<String, LabelValue>,
    /// Who takes over while no such endpoint may get work.
    pub otherwise: Otherwise,
}

/// The value that a label must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LabelValue {
    /// This one.
    Written(String),
    /// That of a header field of the request, by its name in lower case. A request without it wants no endpoint.
    Header(String),
}

/// Who takes over for a subset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Otherwise {
    /// The request is rejected.
    Nobody,
    /// All endpoints of the cluster.
    Anybody,
    /// Those with these labels.
    Labels(BTreeMap<String, String>),
}
