//! What a token says once its signature is verified.

use model::base64::decode_url;
use serde_json::{Map, Value};

use super::json;

/// The claims of a verified token, or what a provider says of a token (RFC 7662 section 2.2).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Claims(Map<String, Value>);

impl Claims {
    /// Reads the payload of a token. Returns `None` if it is not base64url, not a JSON object, or names a claim twice.
    pub(super) fn parse(payload: &[u8]) -> Option<Self> {
        Self::from_json(&decode_url(payload)?)
    }

    /// Reads the claims of a token that was verified before. Returns `None` if it is none.
    pub(crate) fn of_verified(token: &str) -> Option<Self> {
        Self::parse(token.split('.').nth(1)?.as_bytes())
    }

    /// Reads a JSON object. Returns `None` if it is none, or names a claim twice.
    pub fn from_json(bytes: &[u8]) -> Option<Self> {
        match json::parse(bytes)? {
            Value::Object(map) => Some(Self(map)),
            _ => None,
        }
    }

    /// Returns these claims.
    pub(crate) fn new(members: Map<String, Value>) -> Self {
        Self(members)
    }

    /// Returns a claim: the one of this name, or else the one that the dots in the name lead to, as in `realm_access.roles`.
    pub fn get(&self, name: &str) -> Option<&Value> {
        if let Some(value) = self.0.get(name) {
            return Some(value);
        }
        let mut parts = name.split('.');
        let first = self.0.get(parts.next()?)?;
        parts.try_fold(first, |value, part| value.as_object()?.get(part))
    }

    /// Returns the claims that `other` does not have, also not by the dots in their names.
    pub(crate) fn beyond(self, other: &Self) -> Map<String, Value> {
        self.0.into_iter().filter(|(name, _)| other.get(name).is_none()).collect()
    }

    /// Adds claims; those that are there already stay as they are.
    pub(crate) fn add(&mut self, more: &Map<String, Value>) {
        let own = more.iter().filter(|(name, _)| self.get(name).is_none());
        let own: Vec<(String, Value)> = own.map(|(name, value)| (name.clone(), value.clone())).collect();
        self.0.extend(own);
    }

    /// Returns a claim as text, see [`text`].
    pub fn text(&self, name: &str) -> Option<String> {
        self.get(name).and_then(text)
    }

    /// Returns a moment in seconds since 1970 (NumericDate, RFC 7519 section 2).
    ///
    /// # Errors
    /// The claim is not a number.
    pub(crate) fn moment(&self, name: &str) -> Result<Option<u64>, ()> {
        match self.0.get(name) {
            None => Ok(None),
            // What is below 0 becomes 0, and what is too large the last moment there is.
            Some(Value::Number(number)) => {
                Ok(Some(number.as_u64().unwrap_or_else(|| number.as_f64().unwrap_or_default() as u64)))
            }
            Some(_) => Err(()),
        }
    }

    /// Returns whether a claim is this value, or a list that contains it. A text of the claims `scope` and `scp` is a list of words
    /// (RFC 8693 section 4.2).
    pub fn has(&self, name: &str, wanted: &Value) -> bool {
        match self.get(name) {
            None => false,
            Some(Value::Array(list)) => list.contains(wanted),
            Some(Value::String(words)) if matches!(name, "scope" | "scp") => {
                wanted.as_str().is_some_and(|wanted| words.split(' ').any(|word| word == wanted))
            }
            Some(value) => value == wanted,
        }
    }

    /// Returns roughly how many bytes the claims occupy.
    pub fn weight(&self) -> usize {
        fn of(value: &Value) -> usize {
            let inside = match value {
                Value::String(text) => text.len(),
                Value::Array(list) => list.iter().map(of).sum(),
                Value::Object(map) => map.iter().map(|(name, value)| name.len() + 64 + of(value)).sum(),
                _ => 0,
            };
            inside + size_of::<Value>()
        }
        self.0.iter().map(|(name, value)| name.len() + 64 + of(value)).sum()
    }
}

/// Returns a claim as the text of a header field: a text as it is, a number or a truth value as JSON has it, a list of these joined by
/// commas. Items of a list that contain a comma themselves are left out, because they would look like two. Other values have no text.
pub(crate) fn text(value: &Value) -> Option<String> {
    let plain = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        _ => None,
    };
    match value {
        Value::Array(list) => {
            let items: Vec<String> = list.iter().filter_map(plain).filter(|item| !item.contains(',')).collect();
            Some(items.join(","))
        }
        other => plain(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_dots_does_not_hide_what_they_lead_to() {
        let claims = |text: &str| Claims::from_json(text.as_bytes()).unwrap();
        let token = claims(r#"{"realm":{"roles":["user"]}}"#);
        let said = r#"{"realm.roles":["admin"],"realm.zone":"z","team":"red"}"#;
        let more = claims(said).beyond(&token);
        assert_eq!(more.keys().collect::<Vec<_>>(), ["realm.zone", "team"]);
        let mut all = token;
        all.add(&claims(said).0);
        assert_eq!(all.text("realm.roles").as_deref(), Some("user"));
        assert_eq!((all.text("realm.zone").as_deref(), all.text("team").as_deref()), (Some("z"), Some("red")));
    }
}
