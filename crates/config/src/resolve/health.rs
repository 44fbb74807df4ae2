//! What decides whether endpoints are fit for work.

use model::fitness::{AdminState, AgentCheck, FailureRate, Fitness, LatencyOutliers, PassiveHealth, SuccessRate};

use super::Resolver;
use crate::file;
use crate::units::show_duration;

impl Resolver<'_> {
    /// Resolves all health settings but active checks.
    pub(super) fn fitness(&mut self, at: &str, written: &file::Cluster) -> Fitness {
        let passive = written.passive_health.as_ref();
        Fitness {
            passive: passive.map(|passive| self.passive_health(&format!("{at}/passive_health"), passive)),
            panic_percent: written.panic_threshold.0,
            slow_start: written.slow_start.map(|time| time.0),
            agent: self.agent_check(&format!("{at}/agent_check"), written),
        }
    }

    fn agent_check(&mut self, at: &str, written: &file::Cluster) -> Option<AgentCheck> {
        let own_port = |endpoint: &file::Endpoint| match endpoint {
            file::Endpoint::Address(_) => None,
            file::Endpoint::Settings(settings) => settings.agent_port,
        };
        let has_own = written.endpoints.are_given()
            || written.endpoints.written().iter().any(|endpoint| own_port(endpoint).is_some());
        let agent = written.agent_check.as_ref()?;
        if agent.port.is_none() && !has_own {
            let mend = "give it a `port`, or endpoints an `agent_port`".to_owned();
            self.report(at, "no endpoint has an agent", Some(mend));
        }
        Some(AgentCheck {
            port: agent.port,
            interval: agent.interval.0,
            timeout: agent.timeout.0,
            send: agent.send.clone(),
        })
    }

    fn passive_health(&mut self, at: &str, written: &file::PassiveHealth) -> PassiveHealth {
        let (shortest, longest) = (written.ejection_time.0, written.ejection_time_max.0);
        if longest < shortest {
            let path = format!("{at}/ejection_time_max");
            let shown = (show_duration(longest), show_duration(shortest));
            let message = format!("the longest ejection, {}, is shorter than the first, {}", shown.0, shown.1);
            self.report(&path, message, Some(format!("write {} or more", shown.1)));
        }
        let looks = written.consecutive_failures > 0
            || written.consecutive_5xx.is_some()
            || written.failure_rate.is_some()
            || written.success_rate.is_some()
            || written.latency.is_some();
        if !looks || written.ejected_max.0 == 0 {
            let message = "this never ejects an endpoint";
            self.report(at, message, Some("leave `passive_health` out to switch it off".to_owned()));
        }
        PassiveHealth {
            consecutive_failures: Some(written.consecutive_failures).filter(|limit| *limit > 0),
            consecutive_5xx: written.consecutive_5xx,
            failure_rate: written
                .failure_rate
                .as_ref()
                .map(|rate| FailureRate { percent_max: rate.max.0, requests_min: rate.requests_min }),
            success_rate: written.success_rate.as_ref().map(success_rate),
            latency: written.latency.as_ref().map(latency),
            interval: written.interval.0,
            ejection_time: shortest,
            ejection_time_max: longest,
            ejected_percent_max: written.ejected_max.0,
        }
    }
}

impl From<file::EndpointState> for AdminState {
    fn from(written: file::EndpointState) -> Self {
        match written {
            file::EndpointState::Auto => Self::Auto,
            file::EndpointState::Up => Self::Up,
            file::EndpointState::Down => Self::Down,
            file::EndpointState::Drain => Self::Drain,
            file::EndpointState::Maintenance => Self::Maintenance,
        }
    }
}

fn success_rate(written: &file::SuccessRate) -> SuccessRate {
    SuccessRate {
        deviations: written.deviations,
        enough_percent: written.enough.0,
        requests_min: written.requests_min,
        endpoints_min: written.endpoints_min,
    }
}

fn latency(written: &file::LatencyOutliers) -> LatencyOutliers {
    LatencyOutliers {
        factor: written.factor,
        enough: written.enough.0,
        requests_min: written.requests_min,
        endpoints_min: written.endpoints_min,
    }
}
