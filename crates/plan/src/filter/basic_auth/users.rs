//! Names and their hashes, as `htpasswd` writes them.

use std::collections::HashMap;

use super::hash::Hash;
use crate::filter::settings::FileText;

/// Users of one list.
const USERS_MAX: usize = 1_000_000;

/// See the module.
#[derive(Default)]
pub(super) struct Users {
    by_name: HashMap<Box<[u8]>, Hash>,
    /// What is verified for names that nobody has, so that they take as long: the slowest of all.
    stand_in: Option<Hash>,
}

impl Users {
    /// Adds a user.
    ///
    /// # Errors
    /// The name or the hash is none, or the name is there already. The hash is not told.
    pub(super) fn add(&mut self, name: &str, hash: &str) -> Result<(), String> {
        if name.is_empty() || name.contains(':') || name.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
            return Err("a name has at least one character, no colon and no control characters".to_owned());
        }
        let hash = Hash::parse(hash)?;
        if self.stand_in.as_ref().is_none_or(|slowest| hash.effort() > slowest.effort()) {
            self.stand_in = Some(hash.clone());
        }
        if self.by_name.len() >= USERS_MAX {
            return Err(format!("there are more than {USERS_MAX} users"));
        }
        match self.by_name.insert(name.as_bytes().into(), hash) {
            None => Ok(()),
            Some(_) => Err(format!("the user `{name}` stands here twice")),
        }
    }

    /// Adds those of a file.
    ///
    /// # Errors
    /// The first line that is wrong, by its number.
    pub(super) fn read(&mut self, file: &FileText) -> Result<(), String> {
        for (number, line) in file.text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, hash) = line.split_once(':').unwrap_or((line, ""));
            self.add(name, hash).map_err(|message| format!("`{}`, line {}: {message}", file.name, number + 1))?;
        }
        Ok(())
    }

    /// Whether the password is that of the user. It takes as long when there is no such user.
    pub(super) fn verify(&self, name: &[u8], password: &[u8]) -> bool {
        let found = self.by_name.get(name);
        let Some(hash) = found.or(self.stand_in.as_ref()) else { return false };
        hash.verify(password) & found.is_some()
    }
}
