//! Where the keys of a filter are from.

use std::sync::Arc;
use std::time::Duration;

use model::Issue;
use model::provider::{Origin, Place, split_url};
use model::snapshot::{Pem, UpstreamTls};
use schemars::JsonSchema;
use serde::Deserialize;

use super::called::CalledKeys;
use crate::filter::Compiling;
use crate::filter::settings::{DurationText, FileText};
use crate::hash;
use crate::jose::{Algorithm, Algorithms, KeyPlace, KeySet, KeySource, Trust};

/// From fetch to fetch, at least.
const INTERVAL_MIN: Duration = Duration::from_secs(1);

/// How keys are fetched.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::filter) struct KeysFetch {
    /// From fetch to fetch; 5m by default, at least 1s.
    #[serde(default = "five_minutes")]
    interval: DurationText,
    /// How long a fetch may take; 5s by default.
    #[serde(default = "five_seconds")]
    timeout: DurationText,
    /// Certificates of the authorities that verify the host of the URL, in PEM; by default those of the system.
    ca_file: Option<FileText>,
}

fn five_minutes() -> DurationText {
    DurationText(Duration::from_secs(300))
}

fn five_seconds() -> DurationText {
    DurationText(Duration::from_secs(5))
}

impl Default for KeysFetch {
    fn default() -> Self {
        Self { interval: five_minutes(), timeout: five_seconds(), ca_file: None }
    }
}

impl KeysFetch {
    /// Returns interval and time-out for keys that a cluster has.
    ///
    /// # Errors
    /// The interval is too short, or there are authorities.
    pub(super) fn for_cluster(&self) -> Result<(Duration, Duration), Issue> {
        self.check_interval()?;
        if self.ca_file.is_some() {
            let issue = Issue::at("keys_fetch/ca_file", "`ca_file` needs `keys_url`");
            return Err(issue.suggest("leave it out: the cluster has its own `tls`"));
        }
        Ok((self.interval.0, self.timeout.0))
    }

    fn check_interval(&self) -> Result<(), Issue> {
        if self.interval.0 < INTERVAL_MIN {
            return Err(Issue::at("keys_fetch/interval", "the interval is below 1s"));
        }
        Ok(())
    }
}

/// The keys of a filter.
pub(in crate::filter) enum TokenKeys {
    /// From a file.
    Fixed(Arc<KeySet>),
    /// From a URL.
    Fetched(Arc<KeySource>),
    /// Through a cluster.
    Called(Arc<CalledKeys>),
}

impl TokenKeys {
    /// Compiles the settings `keys_file`, `keys_url` and `keys_fetch`.
    ///
    /// # Errors
    /// There are no keys, or two sources of them; the file holds no key, or the URL is none.
    pub(in crate::filter) fn compile(
        file: Option<FileText>,
        url: Option<String>,
        fetch: KeysFetch,
        compiling: &mut Compiling<'_>,
    ) -> Result<Self, Issue> {
        match (file, url) {
            (None, None) => {
                let issue = Issue::at("", "there are no keys, so every token would be refused");
                Err(issue.suggest("add `keys_file` or `keys_url`"))
            }
            (Some(_), Some(_)) => {
                Err(Issue::at("keys_url", "there is already a `keys_file`").suggest("leave one of them out"))
            }
            (Some(file), None) => {
                let parsed = KeySet::parse(&file.text, Trust::File);
                let (keys, _) = parsed.map_err(|why| Issue::at("keys_file", format!("`{}`: {why}", file.name)))?;
                Ok(Self::Fixed(Arc::new(keys)))
            }
            (None, Some(url)) => Self::fetched(&url, fetch, compiling),
        }
    }

    fn fetched(url: &str, fetch: KeysFetch, compiling: &mut Compiling<'_>) -> Result<Self, Issue> {
        fetched(("keys_url", url), None, fetch, compiling).map(Self::Fetched)
    }

    /// Checks that some key from a file verifies an allowed algorithm.
    ///
    /// # Errors
    /// None does, so that every token would be refused.
    pub(in crate::filter) fn check(&self, allowed: Algorithms) -> Result<(), Issue> {
        let Self::Fixed(keys) = self else { return Ok(()) };
        let has_use = |algorithm: &Algorithm| {
            allowed.contains(*algorithm) && keys.keys().iter().any(|key| key.allows(*algorithm))
        };
        if Algorithm::ALL.iter().any(has_use) {
            return Ok(());
        }
        let issue = Issue::at("algorithms", "no key in `keys_file` verifies any of these algorithms");
        Err(issue.suggest("leave `algorithms` out to allow those of the keys"))
    }

    /// Returns the keys with their version, if they are known.
    pub(in crate::filter) fn keys(&self) -> Option<(Arc<KeySet>, u64)> {
        match self {
            Self::Fixed(keys) => Some((Arc::clone(keys), 0)),
            Self::Fetched(source) => source.keys(),
            Self::Called(called) => called.keys(),
        }
    }

    /// Returns the version of the keys.
    pub(in crate::filter) fn version(&self) -> u64 {
        match self {
            Self::Fixed(_) => 0,
            Self::Fetched(source) => source.version(),
            Self::Called(called) => called.version(),
        }
    }

    /// Says that a key is unknown. Returns whether other keys may come in a moment.
    pub(in crate::filter) fn is_awaited(&self) -> bool {
        match self {
            Self::Fixed(_) | Self::Called(_) => false,
            Self::Fetched(source) => source.is_awaited(),
        }
    }
}

/// Returns the source of the keys of an issuer, which are found by its discovery document (OpenID Connect Discovery section 4.1).
///
/// # Errors
/// The issuer is not a URL.
pub(in crate::filter) fn discovered(
    issuer: &str,
    fetch: KeysFetch,
    compiling: &mut Compiling<'_>,
) -> Result<Arc<KeySource>, Issue> {
    let url = format!("{}/.well-known/openid-configuration", issuer.strip_suffix('/').unwrap_or(issuer));
    fetched(("issuer", &url), Some(issuer), fetch, compiling)
}

/// `url` comes with the key that names it.
fn fetched(
    (key, url): (&str, &str),
    issuer: Option<&str>,
    fetch: KeysFetch,
    compiling: &mut Compiling<'_>,
) -> Result<Arc<KeySource>, Issue> {
    let Some((is_secure, host, port, path)) = split_url(url) else {
        let issue = Issue::at(key, format!("`{}` is not a URL", issuer.unwrap_or(url)));
        let example = if issuer.is_some() { "" } else { "/.well-known/jwks.json" };
        return Err(issue.suggest(format!("write one such as `https://login.example.com{example}`")));
    };
    fetch.check_interval()?;
    if !is_secure && fetch.ca_file.is_some() {
        return Err(Issue::at("keys_fetch/ca_file", "`ca_file` needs a URL with `https`"));
    }
    // A change of any of these begins with a fetch; the authorities stand there by their hash.
    let authorities = fetch.ca_file.as_ref().map(|file| hash::of_bytes(file.text.as_bytes()));
    let kept_by = format!("keys {url} {issuer:?} {:?} {:?} {authorities:?}", fetch.interval.0, fetch.timeout.0);
    let authorities = fetch.ca_file.map(|file| Pem { path: file.name.into(), bytes: Arc::from(file.text.as_bytes()) });
    let tls = UpstreamTls { server_name: None, verify: true, authorities, certificate: None };
    let origin = Origin {
        place: Place::Host(host.trim_matches(['[', ']']).to_owned(), port.unwrap_or(if is_secure { 443 } else { 80 })),
        host: port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")),
        tls: is_secure.then_some(tls),
        timeout: fetch.timeout.0,
        fields: Vec::new(),
    };
    let (path, interval, issuer) = (path.to_owned(), fetch.interval.0, issuer.map(str::to_owned));
    let source = compiling.kept(&kept_by, || KeySource::new(KeyPlace { origin, path, interval, issuer }));
    for (event, count) in source.counts() {
        compiling.show_count(event, count);
    }
    Ok(source)
}
