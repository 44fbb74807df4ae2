//! How an endpoint is chosen.

use std::collections::BTreeMap;

use model::fields::is_token;
use model::placement::{Aperture, LabelValue, Otherwise, Placement, Spread, SubsetRule};
use model::snapshot::{Balance, Hash, HashAlgorithm, HashKey};

use super::Resolver;
use crate::file;
use crate::tree::{Kind, Node};

impl Resolver<'_> {
    pub(super) fn balance(&mut self, at: &str, written: &file::Balance) -> Balance {
        let settings = match written {
            file::Balance::Name(name) => return (name.0.make)(),
            file::Balance::Settings(settings) => settings,
        };
        match settings {
            file::BalanceSettings { hash: Some(hash), .. } => Balance::Hash(self.hash(&format!("{at}/hash"), hash)),
            file::BalanceSettings { least_time: Some(times), .. } => {
                Balance::LeastTime { half_life: times.half_life.0 }
            }
            file::BalanceSettings { peak_ewma: Some(times), .. } => Balance::PeakEwma { half_life: times.half_life.0 },
            _ => Balance::RoundRobin,
        }
    }

    pub(super) fn spread(&mut self, at: &str, written: &file::Cluster) -> Spread {
        if written.prefer_own_zone && self.own_zone.is_none() {
            let mend = "write `zone: NAME` at the top of the file, or set EQUIPOISE_ZONE".to_owned();
            self.report(&format!("{at}/prefer_own_zone"), "the zone of this instance is unknown", Some(mend));
        }
        let own_zone = self.own_zone.clone().filter(|_| written.prefer_own_zone);
        let aperture = written.aperture.as_ref().map(|aperture| self.aperture(&format!("{at}/aperture"), aperture));
        let is_hash = match &written.balance {
            file::Balance::Name(name) => matches!((name.0.make)(), Balance::Hash(_)),
            file::Balance::Settings(settings) => settings.hash.is_some(),
        };
        if is_hash && aperture.is_some() {
            let message = "with an aperture, instances send equal keys to different endpoints";
            self.report(&format!("{at}/aperture"), message, Some("remove `hash` or `aperture`".to_owned()));
        }
        Spread { overprovisioning: written.overprovisioning.0, own_zone, aperture }
    }

    fn aperture(&mut self, at: &str, written: &file::Aperture) -> Aperture {
        let file::Aperture { instance, instances, endpoints_min } = *written;
        if instance >= instances {
            let message = format!("there is no instance {instance} of {instances}: they are counted from 0");
            self.report(&format!("{at}/instance"), message, None);
        }
        Aperture { instance, instances, endpoints_min }
    }

    pub(super) fn subset(&mut self, at: &str, route: &file::Route) -> Option<SubsetRule> {
        let written = route.subset.as_ref()?;
        if route.cluster.is_none() && route.clusters.is_none() {
            let mend = Some("leave it out, or name a cluster".to_owned());
            self.report(at, "`subset` has no effect for a route that forwards to no cluster", mend);
            return None;
        }
        if written.labels.is_empty() {
            self.report(&format!("{at}/labels"), "`labels` is empty", Some("name at least one".to_owned()));
        }
        let mut labels = BTreeMap::new();
        for (name, value) in &written.labels {
            let value = match value {
                file::LabelValue::Written(text) => LabelValue::Written(text.clone()),
                file::LabelValue::Field(field) => {
                    self.token(&format!("{at}/labels/{name}/header"), &field.header, "header field");
                    LabelValue::Header(field.header.to_ascii_lowercase())
                }
            };
            labels.insert(name.clone(), value);
        }
        for cluster in route.clusters() {
            self.labels_exist(&format!("{at}/labels"), cluster, &labels);
        }
        let otherwise = match &written.otherwise {
            file::Otherwise::Word(file::OtherwiseWord::Refuse) => Otherwise::Nobody,
            file::Otherwise::Word(file::OtherwiseWord::Any) => Otherwise::Anybody,
            file::Otherwise::Labels(labels) => Otherwise::Labels(labels.clone()),
        };
        Some(SubsetRule { labels, otherwise })
    }

    /// A label that no endpoint of the cluster has is a slip of the pen.
    fn labels_exist(&mut self, at: &str, cluster: &str, labels: &BTreeMap<String, LabelValue>) {
        let tree = self.tree;
        let Some(endpoints) = tree.get("clusters").and_then(|clusters| clusters.get(cluster)?.get("endpoints")) else {
            return;
        };
        // Some that have it may come.
        if matches!(endpoints.kind, Kind::Map(_)) || endpoints.items().is_empty() {
            return;
        }
        for (name, value) in labels {
            let mut known = endpoints
                .items()
                .iter()
                .filter_map(|endpoint| endpoint.get("labels")?.get(name))
                .filter_map(Node::text);
            let (found, message) = match value {
                LabelValue::Written(text) => (
                    known.any(|value| value == text),
                    format!("no endpoint of cluster `{cluster}` has `{name}: {text}`"),
                ),
                LabelValue::Header(_) => {
                    (known.next().is_some(), format!("no endpoint of cluster `{cluster}` has a label `{name}`"))
                }
            };
            if !found {
                self.report(&format!("{at}/{name}"), message, None);
            }
        }
    }

    fn hash(&mut self, at: &str, written: &file::Hash) -> Hash {
        Hash {
            on: self.hash_keys(&format!("{at}/on"), &written.on),
            algorithm: match written.algorithm {
                file::HashAlgorithm::Ketama => HashAlgorithm::Ketama,
                file::HashAlgorithm::Maglev => HashAlgorithm::Maglev,
                file::HashAlgorithm::Rendezvous => HashAlgorithm::Rendezvous,
            },
            load_max: written.load_max.map(|margin| margin.0),
        }
    }

    pub(super) fn hash_keys(&mut self, at: &str, written: &file::OneOrMany<file::HashKey>) -> Vec<HashKey> {
        let mut keys = Vec::new();
        for (index, key) in written.as_slice().iter().enumerate() {
            keys.extend(self.hash_key(&written.path(at, index), key));
        }
        keys
    }

    fn hash_key(&mut self, at: &str, written: &file::HashKey) -> Option<HashKey> {
        match written {
            file::HashKey::Part(file::HashPart::Source) => Some(HashKey::Source),
            file::HashKey::Part(file::HashPart::Path) => Some(HashKey::Path),
            file::HashKey::Part(file::HashPart::Uri) => Some(HashKey::Uri),
            file::HashKey::Field(file::HashField { header: Some(name), .. }) => {
                self.token(&format!("{at}/header"), name, "header field");
                Some(HashKey::Header(name.to_ascii_lowercase()))
            }
            file::HashKey::Field(file::HashField { cookie: Some(name), .. }) => {
                self.token(&format!("{at}/cookie"), name, "cookie");
                Some(HashKey::Cookie(name.clone()))
            }
            file::HashKey::Field(file::HashField { query, .. }) => query.clone().map(HashKey::Query),
        }
    }

    fn token(&mut self, at: &str, name: &str, what: &str) {
        if !is_token(name.as_bytes()) {
            self.report(at, format!("`{name}` is not the name of a {what}"), None);
        }
    }
}

/// Where an endpoint stands among the others.
pub(super) fn placement(written: &file::Endpoint) -> Placement {
    match written {
        file::Endpoint::Address(_) => Placement::default(),
        file::Endpoint::Settings(settings) => placement_of(settings),
    }
}

/// The same of settings.
pub(crate) fn placement_of(settings: &file::EndpointSettings) -> Placement {
    Placement {
        priority: settings.priority,
        is_backup: settings.backup,
        zone: settings.zone.clone(),
        labels: settings.labels.clone(),
    }
}
