//! Who is let in at a listener, by address.

use model::address::listed_networks;
use model::{AddressList, Cidr};

use super::Resolver;
use crate::file;
use crate::tree::Kind;

const LISTS: [&str; 4] = ["allow", "deny", "allow_files", "deny_files"];

impl Resolver<'_> {
    /// Returns the list of the listener called `name`.
    pub(super) fn address_list(&mut self, name: &str, written: &file::AddressList) -> AddressList {
        let at = format!("listeners/{name}/address_list");
        let node = self.tree.get("listeners").and_then(|all| all.get(name)?.get("address_list"));
        // One that is no list has been reported.
        let holds = |key: &&str| {
            let list = node.and_then(|node| node.get(key));
            list.is_some_and(|list| !matches!(&list.kind, Kind::List(items) if items.is_empty()))
        };
        if !LISTS.iter().any(holds) {
            let mend = "add `allow`, `deny`, `allow_files` or `deny_files`".to_owned();
            self.report(&at, "no list is given, so the filter would have no effect", Some(mend));
        }
        let allows = !written.allow.is_empty() || !written.allow_files.is_empty();
        AddressList {
            allowed: self.networks(&at, ("allow", &written.allow), &written.allow_files),
            denied: self.networks(&at, ("deny", &written.deny), &written.deny_files),
            lets_others_in: written.others.map_or(!allows, |others| others == file::Others::Allow),
        }
    }

    /// Networks that stand in the configuration, and in files. Of each file the first mistake is reported.
    fn networks(&mut self, at: &str, (key, texts): (&str, &[String]), files: &[String]) -> Vec<Cidr> {
        let mut networks: Vec<Cidr> = self.parsed(&format!("{at}/{key}"), texts, false);
        for (index, name) in files.iter().enumerate() {
            let path = format!("{at}/{key}_files/{index}");
            let Some(text) = self.text_file(&path, name) else { continue };
            match listed_networks(&text).collect::<Result<Vec<_>, _>>() {
                Ok(listed) => networks.extend(listed),
                Err(message) => {
                    let span = self.tree.locate(&path);
                    self.sink.push(span, format!("`{name}`, {message}"), None);
                }
            }
        }
        networks
    }
}
