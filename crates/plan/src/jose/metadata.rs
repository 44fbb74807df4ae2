//! What a provider says of itself (OpenID Connect Discovery section 3).

use model::provider::split_url;
use serde_json::Value;

use super::json;

/// Bytes of one URL.
const URL_BYTES_MAX: usize = 2048;

/// The endpoints of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Where users log in.
    pub authorization_url: String,
    /// Where codes are exchanged for tokens.
    pub token_url: String,
    /// Where its keys are.
    pub keys_url: String,
    /// Where it ends its own session, if it has such a place.
    pub end_session_url: Option<String>,
    /// Where it says more about users, if it has such a place.
    pub userinfo_url: Option<String>,
}

impl Metadata {
    /// Reads a discovery document. It must name this issuer, and if the issuer has `https`, so must all endpoints.
    ///
    /// # Errors
    /// Says what is wrong. The text contains nothing of the document.
    pub fn parse(document: &[u8], issuer: &str) -> Result<Self, String> {
        let Some(Value::Object(members)) = json::parse(document) else {
            return Err("the discovery document is not a JSON object".to_owned());
        };
        let text = |name: &str| members.get(name).and_then(Value::as_str);
        if text("issuer") != Some(issuer) {
            // OpenID Connect Discovery section 4.3: exactly the same, so that one provider cannot speak for another.
            return Err(format!("the discovery document is not of the issuer `{issuer}`"));
        }
        let is_secure = issuer.starts_with("https://");
        let url = |name: &str| match text(name) {
            None => Ok(None),
            Some(url) if is_endpoint(url, is_secure) => Ok(Some(url.to_owned())),
            Some(_) => Err(format!("`{name}` in the discovery document is not a URL that may be used")),
        };
        let needed = |name: &str| url(name)?.ok_or_else(|| format!("the discovery document has no `{name}`"));
        Ok(Self {
            authorization_url: needed("authorization_endpoint")?,
            token_url: needed("token_endpoint")?,
            keys_url: needed("jwks_uri")?,
            end_session_url: url("end_session_endpoint")?,
            // Few need it: an odd one must not end all logins.
            userinfo_url: url("userinfo_endpoint").unwrap_or_default(),
        })
    }
}

/// Returns whether a text is a URL that may stand in a header field, with `https` where that is asked for.
pub(crate) fn is_endpoint(url: &str, is_secure: bool) -> bool {
    // `split_url` checks the path only.
    let is_visible = url.len() <= URL_BYTES_MAX && url.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    is_visible && split_url(url).is_some_and(|(has_tls, ..)| has_tls || !is_secure)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document(changes: Value) -> Vec<u8> {
        let mut all = json!({
            "issuer": "https://a/x", "authorization_endpoint": "https://a/auth", "token_endpoint": "https://b/token",
            "jwks_uri": "https://a/keys",
        });
        all.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        all.to_string().into_bytes()
    }

    #[test]
    fn a_document_names_the_endpoints() {
        let read = |changes| Metadata::parse(&document(changes), "https://a/x").unwrap();
        let metadata = read(json!({}));
        assert_eq!((metadata.token_url.as_str(), metadata.end_session_url), ("https://b/token", None));
        let metadata = read(json!({ "end_session_endpoint": "https://a/end?x=1" }));
        assert_eq!(metadata.end_session_url.as_deref(), Some("https://a/end?x=1"));
        assert_eq!(read(json!({ "userinfo_endpoint": "https://a/me" })).userinfo_url.as_deref(), Some("https://a/me"));
        assert_eq!(
            read(json!({ "userinfo_endpoint": "http://a/me" })).userinfo_url,
            None,
            "it is as if it were not there"
        );
    }

    #[test]
    fn a_document_of_another_issuer_or_with_bad_urls_is_refused() {
        for (changes, why) in [
            (json!({ "issuer": "https://a/x/" }), "not of the issuer"),
            (json!({ "issuer": null }), "not of the issuer"),
            (json!({ "token_endpoint": "http://b/token" }), "`token_endpoint`"),
            (json!({ "token_endpoint": null }), "no `token_endpoint`"),
            (json!({ "jwks_uri": "javascript:alert(1)" }), "`jwks_uri`"),
            (json!({ "authorization_endpoint": "https://a/auth\r\nset-cookie: a=b" }), "`authorization_endpoint`"),
            (json!({ "authorization_endpoint": "https://a b/auth" }), "`authorization_endpoint`"),
            (json!({ "end_session_endpoint": "//evil" }), "`end_session_endpoint`"),
        ] {
            let told = Metadata::parse(&document(changes), "https://a/x").unwrap_err();
            assert!(told.contains(why), "{told}");
        }
        for bad in [&b""[..], b"[]", b"<html>", b"{\"issuer\":\"https://a/x\",\"issuer\":\"https://a/x\"}", b"\xff"] {
            assert!(Metadata::parse(bad, "https://a/x").is_err());
        }
        assert!(Metadata::parse(&document(json!({ "issuer": "http://a" })), "http://a").is_ok());
    }
}
