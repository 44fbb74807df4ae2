//! The administrator's listener.

use std::collections::HashSet;

use model::Address;
use model::snapshot::{Admin, AdminIdentity, AdminRole, AdminToken, CertificateName, TlsTermination};

use super::Resolver;
use crate::file;
use crate::read::Access;

/// Permissions of the Unix socket when none are given.
const MODE: u32 = 0o600;

impl Resolver<'_> {
    pub(super) fn admin(&mut self, admin: &file::Admin) -> Option<Admin> {
        let bind = self.bind_anywhere("admin/bind", &admin.bind.0)?;
        self.take_bind("admin/bind", (&bind, false), "the administrator's page".to_owned());
        self.check_who_reaches(admin, &bind);
        self.warn_of_clear_tokens(admin, &bind);
        let mode = self.admin_mode(admin.mode.as_deref(), &bind);
        let tls = admin.tls.as_ref().map(|tls| self.admin_tls(tls, &bind));
        let tokens = self.admin_tokens(&admin.tokens);
        let identities = self.admin_identities(admin);
        let state = admin.state.as_ref().map(|path| self.beside(path));
        if let Some(folder) = &state
            && self.access == Access::Disk
            && !folder.is_dir()
        {
            let message = format!("the folder `{}` does not exist", folder.display());
            self.report_absent("admin/state", message, Some("create it, or choose another folder".to_owned()));
        }
        // A name without a file has no permissions: anyone who is on the machine reaches it.
        let is_guarded = bind
            .ip()
            .map_or(!bind.to_string().starts_with("unix:@"), |address| address.ip().to_canonical().is_loopback());
        let changes_allowed = is_guarded || !tokens.is_empty() || !identities.is_empty();
        let tls = match tls {
            Some(None) if !self.loader.is_offline => return None,
            tls => tls.flatten(),
        };
        let admin = Admin { bind, mode, tls, tokens, identities, state, changes_allowed };
        if admin.bind.ip().is_none() && changes_allowed && !admin.asks_for_credentials() && !admin.is_for_some_only() {
            let message = "every user of this machine may open the socket, and change the configuration there";
            self.warn("admin/mode", message, Some("write `\"0660\"`, or add `tokens`".to_owned()));
        }
        Some(admin)
    }

    /// Requires credentials for an address that can be reached from outside.
    fn check_who_reaches(&mut self, admin: &file::Admin, bind: &Address) {
        if let Address::Ip(address) = bind
            && !address.ip().to_canonical().is_loopback()
            && !admin.allow_remote
            && admin.tokens.is_empty()
            && admin.identities.is_empty()
        {
            let message = format!(
                "`{}` can be reached from outside, and the admin API requires no credentials: everyone who reaches it can read the configuration",
                admin.bind.0
            );
            let port = address.port();
            let mend = format!(
                "bind `127.0.0.1:{port}`, add `tokens`, or `tls` with `identities`, or accept this with `allow_remote: true`"
            );
            self.report("admin/bind", message, Some(mend));
        }
    }

    /// Warns of tokens that are sent unencrypted: anyone on the path can read and use them.
    fn warn_of_clear_tokens(&mut self, admin: &file::Admin, bind: &Address) {
        let Address::Ip(address) = bind else { return };
        let is_clear = !self.has("admin", "tls") && !address.ip().to_canonical().is_loopback();
        if is_clear && !admin.tokens.is_empty() && !admin.tokens_in_clear {
            let message =
                format!("tokens are sent unencrypted to `{}`, which can be reached from outside", admin.bind.0);
            let mend = format!(
                "add `tls`, bind `127.0.0.1:{}`, or accept this with `tokens_in_clear: true` where something else encrypts them",
                address.port()
            );
            self.warn_at_key("admin", "tokens", message, Some(mend));
        }
    }

    fn admin_mode(&mut self, written: Option<&str>, bind: &Address) -> u32 {
        let Some(text) = written else { return MODE };
        if bind.ip().is_some() {
            let span = self.key_span("admin", "mode");
            self.sink.push(span, "`mode` applies to Unix sockets only", Some("leave it out".to_owned()));
        }
        let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777 && text.len() <= 4);
        if mode.is_none() {
            let mend = "write it in quotes and in octal, such as `\"0660\"`".to_owned();
            self.report("admin/mode", format!("`{text}` is not a file mode"), Some(mend));
        }
        mode.unwrap_or(MODE)
    }

    fn admin_tls(&mut self, written: &file::Tls, bind: &Address) -> Option<TlsTermination> {
        if bind.ip().is_none() {
            let span = self.key_span("admin", "tls");
            let mend = "leave it out: a Unix socket is protected by its file permissions".to_owned();
            self.sink.push(span, "`tls` applies to network addresses only", Some(mend));
        }
        if written.certificates.len() > 1 {
            let mend = "leave the others out; one certificate may have many names".to_owned();
            self.report("admin/tls/certificates/1", "the admin listener uses one certificate", Some(mend));
        }
        if written.client.mode != file::ClientAuthMode::Off && written.client.identity_header.is_some() {
            let span = self.key_span("admin/tls/client", "identity_header");
            let message = "`identity_header` has no effect here: nothing is forwarded";
            self.sink.push(span, message, Some("leave it out".to_owned()));
        }
        self.termination("admin/tls", written)
    }

    fn admin_tokens(&mut self, written: &[file::AdminToken]) -> Vec<AdminToken> {
        let mut names = HashSet::new();
        let mut tokens = Vec::new();
        for (index, token) in written.iter().enumerate() {
            let at = format!("admin/tokens/{index}");
            if !names.insert(token.name.as_str()) {
                let mend = Some("give one of them another name".to_owned());
                self.report(&format!("{at}/name"), format!("there is already a token `{}`", token.name), mend);
            }
            let Some(secret) = self.secret(&format!("{at}/token"), &token.token) else { continue };
            // RFC 6750 section 2.1: anything else cannot be sent.
            let can_be_sent = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(byte);
            if !secret.0.iter().all(can_be_sent) {
                let span = self.tree.locate(&format!("{at}/token"));
                let mend = "`openssl rand -hex 32` makes a good one".to_owned();
                let message = "a token has letters, digits and `-._~+/=` only";
                self.sink.push(span, message, Some(mend));
            }
            if let Some(other) = tokens.iter().find(|other: &&AdminToken| other.secret.0 == secret.0) {
                let span = self.tree.locate(&format!("{at}/token"));
                let message = format!("it is the same as that of `{}`: a client with it could be either", other.name);
                self.sink.push(span, message, Some("give each its own".to_owned()));
            }
            tokens.push(AdminToken { name: token.name.as_str().into(), role: token.role.into(), secret });
        }
        tokens
    }

    fn admin_identities(&mut self, admin: &file::Admin) -> Vec<AdminIdentity> {
        self.check_who_is_asked(admin);
        let mut names = HashSet::new();
        let mut identities: Vec<AdminIdentity> = Vec::new();
        for (index, written) in admin.identities.iter().enumerate() {
            let at = format!("admin/identities/{index}");
            if !names.insert(written.name.as_str()) {
                let mend = Some("give one of them another name".to_owned());
                self.report(&format!("{at}/name"), format!("there is already an identity `{}`", written.name), mend);
            }
            let (key, certificate) = match (&written.common_name, &written.alternative_name) {
                (Some(name), _) => ("common_name", CertificateName::Subject(name.clone())),
                (None, Some(name)) => ("alternative_name", CertificateName::Alternative(name.clone())),
                // The schema has told it.
                (None, None) => continue,
            };
            if let Some(other) = identities.iter().find(|other| other.certificate == certificate) {
                let message = format!("it is the same as that of `{}`: a client with it could be either", other.name);
                self.report(&format!("{at}/{key}"), message, Some("give each its own".to_owned()));
            }
            identities.push(AdminIdentity {
                name: written.name.as_str().into(),
                role: written.role.into(),
                certificate,
            });
        }
        identities
    }

    /// Certificates are asked for where someone is known by his, and the other way round.
    fn check_who_is_asked(&mut self, admin: &file::Admin) {
        let Some(tls) = &admin.tls else {
            // What is wrong with one that was written has been told.
            if !admin.identities.is_empty() && !self.has("admin", "tls") {
                let span = self.key_span("admin", "identities");
                let message = "`identities` has no effect without `tls`: no client presents a certificate";
                let mend = "add `tls` with `client: { mode: required, authorities: FILE }`".to_owned();
                self.sink.push(span, message, Some(mend));
            }
            return;
        };
        let is_asked = tls.client.mode != file::ClientAuthMode::Off;
        if !is_asked && !admin.identities.is_empty() {
            let span = self.key_span("admin", "identities");
            let message = "`identities` has no effect unless client certificates are requested";
            let mend = "add `client: { mode: required, authorities: FILE }` to `tls`".to_owned();
            self.sink.push(span, message, Some(mend));
        }
        // One that is written wrong names someone all the same.
        let tree = self.tree.get("admin");
        let names = |key: &str| tree.and_then(|admin| admin.get(key)).is_some_and(|list| !list.items().is_empty());
        if is_asked && !names("identities") && !names("tokens") {
            let span = self.key_span("admin/tls", "client");
            let message = "client certificates are requested, but `identities` grants no one access";
            let mend = "add `identities: [{ name: NAME, role: admin, common_name: NAME }]`, or `tokens`".to_owned();
            self.sink.push(span, message, Some(mend));
        }
    }
}

impl From<file::AdminRole> for AdminRole {
    fn from(role: file::AdminRole) -> Self {
        match role {
            file::AdminRole::Read => Self::Read,
            file::AdminRole::Admin => Self::Admin,
        }
    }
}
