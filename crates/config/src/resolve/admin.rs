//! The administrator's listener.

use std::collections::HashSet;

use model::Address;
use model::snapshot::{Admin, AdminRole, AdminToken};

use super::Resolver;
use crate::file;
use crate::read::Access;

/// Permissions of the Unix socket when none are given.
const MODE: u32 = 0o600;

impl Resolver<'_> {
    pub(super) fn admin(&mut self, admin: &file::Admin) -> Option<Admin> {
        let bind = self.bind_anywhere("admin/bind", &admin.bind)?;
        self.take_bind("admin/bind", (&bind, false), "the administrator's page".to_owned());
        if let Address::Ip(address) = bind
            && !address.ip().to_canonical().is_loopback()
            && !admin.allow_remote
            && admin.tokens.is_empty()
        {
            let message = format!(
                "`{}` can be reached from outside, and the administrator's API asks for no credentials: whoever reaches \
                 it can read the configuration",
                admin.bind
            );
            let port = address.port();
            let mend = format!("bind `127.0.0.1:{port}`, add `tokens`, or accept this with `allow_remote: true`");
            self.report("admin/bind", message, Some(mend));
        }
        let mode = self.admin_mode(admin.mode.as_deref(), &bind);
        let tokens = self.admin_tokens(&admin.tokens);
        let state = admin.state.as_ref().map(|path| self.beside(path));
        if let Some(folder) = &state
            && self.access == Access::Disk
            && !folder.is_dir()
        {
            let message = format!("the folder `{}` does not exist", folder.display());
            self.report("admin/state", message, Some("make it, or name another place".to_owned()));
        }
        // A name without a file has no permissions: whoever is on the machine reaches it.
        let is_guarded = bind
            .ip()
            .map_or(!bind.to_string().starts_with("unix:@"), |address| address.ip().to_canonical().is_loopback());
        let changes_allowed = is_guarded || !tokens.is_empty();
        Some(Admin { bind, mode, tokens, state, changes_allowed })
    }

    fn admin_mode(&mut self, written: Option<&str>, bind: &Address) -> u32 {
        let Some(text) = written else { return MODE };
        if bind.ip().is_some() {
            let span = self.key_span("admin", "mode");
            self.sink.push(span, "`mode` is for Unix sockets", Some("leave it out".to_owned()));
        }
        let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777 && text.len() <= 4);
        if mode.is_none() {
            let mend = "write it in quotes and in octal, such as `\"0660\"`".to_owned();
            self.report("admin/mode", format!("`{text}` is no permission of a file"), Some(mend));
        }
        mode.unwrap_or(MODE)
    }

    fn admin_tokens(&mut self, written: &[file::AdminToken]) -> Vec<AdminToken> {
        let mut names = HashSet::new();
        let mut tokens = Vec::new();
        for (index, token) in written.iter().enumerate() {
            let at = format!("admin/tokens/{index}");
            if !names.insert(token.name.as_str()) {
                let mend = Some("give one of them another name".to_owned());
                self.report(&format!("{at}/name"), format!("there is a token `{}` already", token.name), mend);
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
            let role = match token.role {
                file::AdminRole::Read => AdminRole::Read,
                file::AdminRole::Admin => AdminRole::Admin,
            };
            if let Some(other) = tokens.iter().find(|other: &&AdminToken| other.secret.0 == secret.0) {
                let span = self.tree.locate(&format!("{at}/token"));
                let message = format!("it is the same as that of `{}`: who comes with it could be either", other.name);
                self.sink.push(span, message, Some("give each its own".to_owned()));
            }
            tokens.push(AdminToken { name: token.name.as_str().into(), role, secret });
        }
        tokens
    }
}
