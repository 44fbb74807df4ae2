//! Names and their hashes, as `htpasswd` writes them.

use std::collections::{BTreeMap, HashMap};

use super::hash::{Cost, Hash};
use crate::filter::settings::FileText;

/// Users of one list.
const USERS_MAX: usize = 1_000_000;
/// Different costs of the hashes of one list. A wrong password takes the time of all of them.
const COSTS_MAX: usize = 16;

/// See the module.
#[derive(Default)]
pub(super) struct Users {
    by_name: HashMap<Box<[u8]>, Hash>,
    /// One hash of each cost, verified in place of a user's own.
    stand_ins: BTreeMap<Cost, Hash>,
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
        if !self.stand_ins.contains_key(&hash.cost()) {
            if self.stand_ins.len() >= COSTS_MAX {
                return Err(format!(
                    "the hashes of this list have more than {COSTS_MAX} different costs, and a wrong password takes the time of all \
                     of them; make them with the same method, cost and length of salt"
                ));
            }
            self.stand_ins.insert(hash.cost(), hash.clone());
        }
        if self.by_name.len() >= USERS_MAX {
            return Err(format!("there are more than {USERS_MAX} users"));
        }
        match self.by_name.insert(name.as_bytes().into(), hash) {
            None => Ok(()),
            Some(_) => Err(format!("the user `{name}` is listed twice")),
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

    /// Returns whether the password is that of the user. A wrong one takes the same work whether or not there is such a user, and whatever
    /// the cost of the user's hash: one hash of each cost in the list.
    pub(super) fn verify(&self, name: &[u8], password: &[u8]) -> bool {
        self.verify_by(name, |hash| hash.verify(password))
    }

    /// Returns the same, where `verify` says of a hash whether it is that of the password.
    fn verify_by(&self, name: &[u8], mut verify: impl FnMut(&Hash) -> bool) -> bool {
        let found = self.by_name.get(name);
        if found.is_some_and(&mut verify) {
            return true;
        }
        let own = found.map(Hash::cost);
        for (_, stand_in) in self.stand_ins.iter().filter(|(cost, _)| Some(**cost) != own) {
            // What comes of it does not matter: it may well be the password of another.
            verify(stand_in);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const APR1: &str = "$apr1$ozAnnRQ8$nRw8p2UQymJFqVKCCtq5l1";
    const SHA: &str = "$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA";
    const SHA_SHORT_SALT: &str = "$5$x$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA";
    const BCRYPT: &str = "$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a";
    const BCRYPT_DEAR: &str = "$2y$12$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a";

    fn users(hashes: &[&str]) -> Users {
        let mut users = Users::default();
        for (place, hash) in hashes.iter().enumerate() {
            users.add(&format!("user{place}"), hash).unwrap();
        }
        users
    }

    /// Returns the costs of the hashes that are computed for a name whose password is wrong, in order of cost.
    fn work(users: &Users, name: &str) -> Vec<Cost> {
        let mut costs = Vec::new();
        let is_in = users.verify_by(name.as_bytes(), |hash| {
            costs.push(hash.cost());
            false
        });
        assert!(!is_in);
        costs.sort();
        costs
    }

    #[test]
    fn a_wrong_password_takes_the_same_work_for_every_name_in_the_list_and_for_any_other() {
        for hashes in [
            &[SHA][..],
            &[SHA, SHA, APR1],
            &[BCRYPT, BCRYPT_DEAR],
            &[BCRYPT_DEAR, BCRYPT],
            &[APR1, SHA, SHA_SHORT_SALT, BCRYPT, BCRYPT_DEAR, SHA],
        ] {
            let users = users(hashes);
            let unknown = work(&users, "nobody");
            assert!(!unknown.is_empty());
            for place in 0..hashes.len() {
                assert_eq!(work(&users, &format!("user{place}")), unknown, "{hashes:?}, {place}");
            }
        }
        assert!(work(&Users::default(), "nobody").is_empty());
    }

    #[test]
    fn a_right_password_takes_the_users_own_hash_alone_and_that_of_another_lets_nobody_in() {
        let users = users(&[BCRYPT_DEAR, SHA]);
        let mut costs = Vec::new();
        assert!(users.verify_by(b"user1", |hash| {
            costs.push(hash.cost());
            true
        }));
        assert_eq!(costs, [Hash::parse(SHA).unwrap().cost()]);
        assert!(!users.verify_by(b"nobody", |_| true));
        let dear = Hash::parse(BCRYPT_DEAR).unwrap().cost();
        assert!(!users.verify_by(b"user1", |hash| hash.cost() == dear));
    }

    #[test]
    fn a_list_of_too_many_different_costs_is_refused() {
        let mut users = Users::default();
        let sha = |rounds: usize| SHA.replace("$5$", &format!("$5$rounds={rounds}$"));
        for place in 0..COSTS_MAX {
            users.add(&format!("user{place}"), &sha(1_000 + place)).unwrap();
        }
        users.add("another", &sha(1_000)).unwrap();
        let told = "the hashes of this list have more than 16 different costs, and a wrong password takes the time of all of them; \
                    make them with the same method, cost and length of salt";
        assert_eq!(users.add("late", &sha(9_000)), Err(told.to_owned()));
    }
}
