//! `address_list`.

use model::address::listed_networks;
use model::{Cidr, Issue, RequestHead};
use schemars::JsonSchema;
use serde::Deserialize;

use super::settings::{FileText, Settings};
use super::{Compiling, FilterEntry, Flow, RequestStep, Steps, Turn};
use crate::addresses::{AddressTable, Entry};

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<AddressList>("address_list", DOC);

const DOC: &str = r#"Allows or rejects clients by address.

`allow` and `deny` list addresses and networks (IPv4 and IPv6), `allow_files` and `deny_files` files of them: one on each line;
`#` or `;` starts a comment. **The most specific network that contains the address decides**, wherever it is written: with
`allow: [10.0.0.0/8]` and `deny: [10.1.0.0/16]`, 10.1.2.3 is rejected; the order does not matter. A network that is both allowed and
denied is denied. Addresses in no list are allowed, unless anything is allowed: then they are denied. `others` sets it explicitly.

The address is that of the client as trusted proxies report it, `{client_ip}` (see `forwarding.trusted` of the listener, and
`proxy_protocol`). Rejected clients get 403, or no response with `close: true`: then the connection, or the stream of HTTP/2
and HTTP/3, is closed, and the fault is `closed_by_filter`. The files are checked every second and read again when they change;
a file with a mistake changes nothing and is reported in the log. Millions of networks cost no more than a few. A listener has an
`address_list`, too, which applies before anything is read.

```yaml
filters:
  - address_list: { allow: [10.0.0.0/8, "2001:db8::/32"], deny: [10.66.0.0/16] }
```
"#;

/// Who is let in.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AddressList {
    /// Allowed addresses and networks.
    #[serde(default)]
    allow: Vec<String>,
    /// Rejected addresses and networks.
    #[serde(default)]
    deny: Vec<String>,
    /// Files of allowed networks.
    #[serde(default)]
    allow_files: Vec<FileText>,
    /// Files of rejected networks.
    #[serde(default)]
    deny_files: Vec<FileText>,
    /// Action for addresses in no list. By default `deny` if anything is allowed, else `allow`.
    others: Option<Others>,
    /// Status of the response to rejected clients; 403 by default.
    #[schemars(range(min = 400, max = 599))]
    status: Option<u16>,
    /// Close the connection instead of answering.
    #[serde(default)]
    close: bool,
}

/// What becomes of clients in no list.
#[derive(Clone, Copy, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Others {
    /// They are let in.
    Allow,
    /// They stay out.
    Deny,
}

impl Settings for AddressList {
    fn compile(self, _: &mut Compiling<'_>) -> Result<Steps, Issue> {
        let allows = !self.allow.is_empty() || !self.allow_files.is_empty();
        let denies = !self.deny.is_empty() || !self.deny_files.is_empty();
        if !allows && !denies {
            let issue = Issue::at("", "no list is given, so the filter would have no effect");
            return Err(issue.suggest("add `allow`, `deny`, `allow_files` or `deny_files`"));
        }
        if self.close && self.status.is_some() {
            return Err(Issue::at("status", "`status` has no effect with `close`: no response is sent"));
        }
        let status = self.status.unwrap_or(403);
        if !(400..600).contains(&status) {
            return Err(Issue::at("status", format!("{status} is not between 400 and 599")));
        }
        let mut entries = Vec::new();
        listed(&mut entries, ("allow", &self.allow), true)?;
        listed(&mut entries, ("deny", &self.deny), false)?;
        filed(&mut entries, ("allow_files", &self.allow_files), true)?;
        filed(&mut entries, ("deny_files", &self.deny_files), false)?;
        let others = self.others.map_or(!allows, |others| others == Others::Allow);
        let table = AddressTable::new(entries, others);
        Ok(Steps::of_request(AddressListStep { table, status: (!self.close).then_some(status) }))
    }
}

fn listed(entries: &mut Vec<Entry>, (key, list): (&str, &[String]), is_allowed: bool) -> Result<(), Issue> {
    for (place, text) in list.iter().enumerate() {
        let network: Cidr = text.parse().map_err(|message: String| Issue::at(format!("{key}/{place}"), message))?;
        entries.push(Entry { network, is_allowed });
    }
    Ok(())
}

fn filed(entries: &mut Vec<Entry>, (key, files): (&str, &[FileText]), is_allowed: bool) -> Result<(), Issue> {
    for (place, file) in files.iter().enumerate() {
        for network in listed_networks(&file.text) {
            let wrong = |message: String| Issue::at(format!("{key}/{place}"), format!("`{}`, {message}", file.name));
            entries.push(Entry { network: network.map_err(wrong)?, is_allowed });
        }
    }
    Ok(())
}

struct AddressListStep {
    table: AddressTable,
    /// Of the answer; `None`: there is none.
    status: Option<u16>,
}

impl RequestStep for AddressListStep {
    fn apply(&self, _: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        if self.table.allows(turn.facts.client) {
            return Flow::Continue;
        }
        match self.status {
            Some(status) => Flow::refuse(status, "your address is not allowed"),
            None => Flow::Close,
        }
    }
}

#[cfg(test)]
mod tests;
