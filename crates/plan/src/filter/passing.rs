//! What a verified token does to a request.

use std::sync::Arc;

use model::{FieldName, Issue, RequestHead};
use serde_json::Value;

use crate::filter::Notes;
use crate::filter::fields::{changeable_name, without_margin};
use crate::filter::settings::Ordered;
use crate::filter::variables::Stage;
use crate::jose::{Claims, text};

/// Claims that a token must have, and those that go to the endpoint.
#[derive(Debug)]
pub(crate) struct Passing {
    /// Claims, each with the values of which it must have one.
    required: Box<[(String, Vec<Value>)]>,
    /// Fields, each with its claim.
    headers: Box<[(FieldName, String)]>,
    /// The claim that names the user.
    user: String,
}

/// What is known of a verified token.
#[derive(Debug)]
pub(crate) struct Verdict {
    claims: Arc<Claims>,
    user: Option<Box<str>>,
    /// In the order of [`Passing::headers`].
    values: Box<[Option<Box<str>>]>,
    /// Whether it has all claims that are required.
    pub(crate) is_allowed: bool,
}

impl Passing {
    /// Compiles the settings `claims`, `claim_headers` and `user_claim`.
    ///
    /// # Errors
    /// A field that filters may not change, or a claim that no value satisfies.
    pub(crate) fn compile(
        required: Option<Ordered<Value>>,
        headers: Option<Ordered<String>>,
        user: String,
    ) -> Result<Self, Issue> {
        let required = required.map(|ordered| ordered.0).unwrap_or_default().into_iter().map(|(claim, values)| {
            let list = match values {
                Value::Array(list) => list,
                one => vec![one],
            };
            let is_plain = |value: &Value| matches!(value, Value::String(_) | Value::Bool(_) | Value::Number(_));
            if list.is_empty() || !list.iter().all(is_plain) {
                let issue = Issue::at(format!("claims/{claim}"), "a claim needs a text, a number, `true` or `false`");
                return Err(issue.suggest("list several of them to allow each"));
            }
            Ok((claim, list))
        });
        let required = required.collect::<Result<_, _>>()?;
        let headers = headers.map(|ordered| ordered.0).unwrap_or_default();
        for (place, (name, _)) in headers.iter().enumerate() {
            if headers[..place].iter().any(|(earlier, _)| model::fields::reads_as(earlier.as_bytes(), name)) {
                let issue = Issue::at(format!("claim_headers/{name}"), format!("`{name}` is listed twice"));
                return Err(issue.suggest("keep one of them: `-` and `_` are alike to many endpoints"));
            }
        }
        let headers = headers.into_iter().map(|(name, claim)| {
            let path = format!("claim_headers/{name}");
            Ok((changeable_name(&name, Stage::Request).map_err(|issue| issue.below(&path))?, claim))
        });
        Ok(Self { required, headers: headers.collect::<Result<_, Issue>>()?, user })
    }

    /// Returns whether a setting names this claim, or something in it.
    pub(crate) fn needs(&self, name: &str) -> bool {
        let is_within =
            |claim: &str| claim.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        let claims = self.required.iter().map(|(claim, _)| claim).chain(self.headers.iter().map(|(_, claim)| claim));
        claims.chain([&self.user]).any(|claim| is_within(claim))
    }

    /// Returns the fields that it sets.
    pub(crate) fn names(&self) -> impl Iterator<Item = &FieldName> {
        self.headers.iter().map(|(name, _)| name)
    }

    /// Judges the claims of a verified token.
    pub(crate) fn judge(&self, claims: Claims) -> Verdict {
        let has = |(claim, values): &(String, Vec<Value>)| values.iter().any(|value| claims.has(claim, value));
        let is_allowed = self.required.iter().all(has);
        let value_of = |claim: &str| claims.get(claim).and_then(text).map(String::into_boxed_str);
        let values = self.headers.iter().map(|(_, claim)| value_of(claim)).collect();
        Verdict { user: value_of(&self.user), values, is_allowed, claims: Arc::new(claims) }
    }

    /// Removes the fields that only verified claims may set.
    pub(crate) fn remove_forged(&self, head: &mut RequestHead) {
        for (name, _) in &self.headers {
            head.fields.remove_alike(name);
        }
    }

    /// Writes the claims into the fields of a request. What is not claimed is removed.
    pub(crate) fn write(&self, verdict: &Verdict, head: &mut RequestHead) {
        for ((name, _), value) in self.headers.iter().zip(&verdict.values) {
            match value.as_deref().map(|value| without_margin(value.as_bytes())) {
                Some(value) if !value.is_empty() => head.fields.set_alone(name, value),
                _ => drop(head.fields.remove_alike(name)),
            }
        }
    }
}

impl Verdict {
    /// Notes the user and the claims for later filters and the access log.
    pub(crate) fn note(&self, notes: &mut Notes) {
        if let Some(user) = &self.user {
            notes.set_user(user.as_bytes());
        }
        notes.set_claims(Arc::clone(&self.claims));
    }

    /// Returns roughly how many bytes it occupies.
    pub(crate) fn weight(&self) -> usize {
        let texts = self.values.iter().flatten().chain(&self.user).map(|text| text.len() + 16).sum::<usize>();
        self.claims.weight() + texts + size_of::<Self>()
    }
}
