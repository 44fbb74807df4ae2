//! From the settings of `oidc` to its steps.

use std::sync::Arc;
use std::time::Duration;

use model::Issue;
use model::provider::split_url;

use super::login::own_path;
use super::provider::Provider;
use super::refreshes::Refreshes;
use super::seal::Sealer;
use super::session::{Cookies, Lifetimes};
use super::step::{CookieStep, NAMES};
use super::userinfo::UserInfo;
use super::{Counters, Endpoints, Oidc, OidcStep, PathSettings, SessionSettings};
use crate::filter::form_call::FormEndpoint;
use crate::filter::guarded::Guarded;
use crate::filter::jwt::keys::{KeysFetch, TokenKeys, discovered};
use crate::filter::passing::Passing;
use crate::filter::settings::Settings;
use crate::filter::token_cache::Cache;
use crate::filter::token_endpoint::{joined_scopes, more_parameters, twice};
use crate::filter::{Compiling, Steps};
use crate::jose::{Metadata, Rules, is_endpoint};

/// Parameters of the login that the filter decides.
const OWN_PARAMETERS: [&str; 9] = [
    "response_type",
    "response_mode",
    "client_id",
    "redirect_uri",
    "scope",
    "state",
    "nonce",
    "code_challenge",
    "code_challenge_method",
];

impl Settings for Oidc {
    fn compile(self, compiling: &mut Compiling<'_>) -> Result<Steps, Issue> {
        let issuer = self.issuer;
        if !is_endpoint(&issuer, false) || issuer.contains(['?', '#']) {
            let issue = Issue::at("issuer", format!("`{issuer}` is not a URL"));
            return Err(issue.suggest("write the issuer as the provider does, such as `https://login.example.com`"));
        }
        let cluster = compiling.cluster(&self.cluster, "cluster");
        let (keys, fixed) = keys(&issuer, self.endpoints, self.keys_fetch, compiling)?;
        let needs_userinfo = self.userinfo.is_some();
        if needs_userinfo && fixed.as_ref().is_some_and(|fixed| fixed.userinfo_url.is_none()) {
            let issue = Issue::at("endpoints", "`userinfo` needs the URL of the userinfo endpoint");
            return Err(issue.suggest("add `userinfo_url`"));
        }
        let timeout = self.timeout.0;
        let userinfo =
            self.userinfo.map(|settings| UserInfo::compile(settings, cluster, timeout, compiling)).transpose()?;
        let (authorization, form) = self.client.credentials()?;
        let path = ("endpoints/token_url", "/".to_owned());
        let passing = Passing::compile(self.claims, self.claim_headers, self.user_claim)?;
        let mut guarded: Vec<Guarded> = passing.names().cloned().map(Guarded::Name).collect();
        if self.pass_access_token {
            guarded.push(Guarded::Name(NAMES.authorization.clone()));
        }
        let paths = self.paths.checked()?;
        let parameters = more_parameters(self.parameters, &OWN_PARAMETERS)?;
        let refreshes_sessions = self.session.refresh;
        let cookies = self.session.cookies((&issuer, &self.client.id), &paths, compiling)?;
        let rules = Rules {
            issuers: Box::new([issuer.clone()]),
            audiences: Box::new([self.client.id.clone()]),
            leeway: self.leeway.0.as_secs(),
            needs_expiry: true,
            age_max: None,
        };
        let provider = Provider {
            keys,
            fixed,
            tokens: FormEndpoint::compile(cluster, path, None, authorization, timeout)?,
            client_id: self.client.id,
            form,
            scopes: scopes(self.scopes)?,
            parameters,
        };
        let refreshes = compiling.kept("refreshes", Refreshes::default);
        let left = compiling.note();
        let cookie_step = CookieStep { refreshes: Arc::clone(&refreshes), left };
        let step = OidcStep {
            issuer,
            provider,
            userinfo,
            rules,
            passing,
            cookies,
            refreshes,
            left,
            paths,
            without_session: self.without_session,
            timeout: timeout * (1 + u32::from(needs_userinfo)) + Duration::from_secs(1),
            refreshes_sessions,
            passes_access_token: self.pass_access_token,
            waited: compiling.note(),
            counters: counters(compiling),
        };
        Ok(Steps { guarded, response: Some(Box::new(cookie_step)), ..Steps::of_request(step) })
    }
}

fn counters(compiling: &mut Compiling<'_>) -> Counters {
    Counters {
        redirected: compiling.counter("redirected"),
        logged_in: compiling.counter("logged_in"),
        refreshed: compiling.counter("refreshed"),
        logged_out: compiling.counter("logged_out"),
        refused: compiling.counter("refused"),
        forbidden: compiling.counter("forbidden"),
        unavailable: compiling.counter("unavailable"),
        claims_left_out: compiling.counter("claims_left_out"),
    }
}

fn keys(
    issuer: &str,
    endpoints: Option<Endpoints>,
    fetch: KeysFetch,
    compiling: &mut Compiling<'_>,
) -> Result<(TokenKeys, Option<Arc<Metadata>>), Issue> {
    let Some(endpoints) = endpoints else {
        return Ok((TokenKeys::Fetched(discovered(issuer, fetch, compiling)?), None));
    };
    let check = |key: &str, url: &str| {
        if is_endpoint(url, false) {
            return Ok(());
        }
        let issue = Issue::at(format!("endpoints/{key}"), format!("`{url}` is not a URL"));
        Err(issue.suggest("write one such as `https://login.example.com/oauth2/authorize`"))
    };
    check("authorization_url", &endpoints.authorization_url)?;
    check("token_url", &endpoints.token_url)?;
    endpoints.userinfo_url.iter().try_for_each(|url| check("userinfo_url", url))?;
    endpoints.end_session_url.iter().try_for_each(|url| check("end_session_url", url))?;
    let keys_url = endpoints.keys_url.clone().unwrap_or_default();
    let keys = TokenKeys::compile(endpoints.keys_file, endpoints.keys_url, fetch, compiling);
    let keys =
        keys.map_err(|issue| if issue.path.starts_with("keys_fetch") { issue } else { issue.below("endpoints") })?;
    let metadata = Metadata {
        authorization_url: endpoints.authorization_url,
        token_url: endpoints.token_url,
        keys_url,
        end_session_url: endpoints.end_session_url,
        userinfo_url: endpoints.userinfo_url,
    };
    Ok((keys, Some(Arc::new(metadata))))
}

fn scopes(written: Option<Vec<String>>) -> Result<String, Issue> {
    let Some(list) = written else { return Ok("openid profile email".to_owned()) };
    let joined = joined_scopes(&list)?;
    if !list.iter().any(|scope| scope == "openid") {
        return Err(Issue::at("scopes", "`openid` is missing").suggest("add it: without it there is no ID token"));
    }
    Ok(joined)
}

impl PathSettings {
    fn checked(self) -> Result<Self, Issue> {
        for (key, path) in [("callback", &self.callback), ("logout", &self.logout)] {
            if own_path(path.clone().into_bytes()).is_none() || path.contains('?') {
                let issue = Issue::at(format!("paths/{key}"), format!("`{path}` is not a path"));
                return Err(issue.suggest(format!("write one such as `/oauth2/{key}`")));
            }
        }
        if self.callback == self.logout {
            return Err(Issue::at("paths/logout", "it is the path of the callback too"));
        }
        if let Some(to) = &self.after_logout
            && own_path(to.clone().into_bytes()).is_none()
            && !is_endpoint(to, false)
        {
            return Err(Issue::at("paths/after_logout", format!("`{to}` is neither a path nor a URL")));
        }
        if let Some(url) = &self.public_url {
            let is_bare = split_url(url).is_some_and(|(.., path)| path == "/") && !url.ends_with('/');
            if !is_bare || !is_endpoint(url, false) {
                let issue = Issue::at("paths/public_url", format!("`{url}` is not a scheme with a host"));
                return Err(issue.suggest("write one such as `https://shop.example.com`, without a path"));
            }
        }
        Ok(self)
    }
}

impl SessionSettings {
    fn cookies(
        self,
        (issuer, client): (&str, &str),
        paths: &PathSettings,
        compiling: &mut Compiling<'_>,
    ) -> Result<Cookies, Issue> {
        if !model::fields::is_token(self.cookie.as_bytes()) || self.cookie.starts_with("__") {
            let issue = Issue::at("session/cookie", format!("`{}` is not the name of a cookie", self.cookie));
            return Err(issue.suggest("write one without a prefix, such as `shop_session`"));
        }
        let sealer = match (&self.keys_file, &self.keys) {
            (Some(file), None) => {
                Sealer::read(&file.name, &file.text).map_err(|why| Issue::at("session/keys_file", why))?
            }
            (None, Some(text)) => Sealer::read("keys", text).map_err(|why| Issue::at("session/keys", why))?,
            (Some(_), Some(_)) => return Err(twice("session/keys", "keys_file")),
            (None, None) => {
                let issue = Issue::at("session", "there are no keys to seal cookies with");
                return Err(issue.suggest("add `keys_file`, or `keys: \"${SESSION_KEYS}\"`"));
            }
        };
        // A draw must not come twice, so its count stays from plan to plan.
        let drawn = compiling.kept("drawn", Default::default);
        let lifetimes = Lifetimes { idle: self.idle_timeout.0.as_secs(), absolute: self.lifetime.0.as_secs() };
        if lifetimes.idle == 0 || lifetimes.absolute == 0 {
            return Err(Issue::at("session", "sessions last at least one second"));
        }
        Ok(Cookies {
            sealer: Arc::new(sealer.counting(drawn)),
            name: self.cookie,
            purpose: format!("{issuer} {client}"),
            lifetimes,
            cache: Cache::default(),
            is_public_secure: paths.public_url.as_ref().map(|url| url.starts_with("https://")),
        })
    }
}
