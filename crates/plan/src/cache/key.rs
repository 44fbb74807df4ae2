//! Keys of stored responses.
//!
//! A key is `PARTITION 0 EXTRA 0 URL`, of which no part holds a zero byte. The partition is the name of the route, so that routes that
//! differ in other things than the URL never share a response.

use model::Scheme;

use super::control::trimmed;

/// The query parameters that belong to the key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Parameters {
    /// All of them.
    #[default]
    All,
    /// All but those of these names. A name that ends in `*` stands for all that begin with it.
    Ignore(Box<[Box<str>]>),
    /// Only those of these names.
    Only(Box<[Box<str>]>),
}

impl Parameters {
    fn keeps(&self, name: &[u8]) -> bool {
        let is_one = |names: &[Box<str>]| {
            names.iter().any(|known| match known.strip_suffix('*') {
                Some(prefix) => name.starts_with(prefix.as_bytes()),
                None => name == known.as_bytes(),
            })
        };
        match self {
            Self::All => true,
            Self::Ignore(names) => !is_one(names),
            Self::Only(names) => is_one(names),
        }
    }
}

/// Writes `scheme://host/path?query` as the keys have it: the host in lower case and without the scheme's own port, and the parameters that
/// belong to the key, in their order.
pub fn write_url(
    scheme: Scheme,
    authority: &[u8],
    (path, query): (&[u8], Option<&[u8]>),
    parameters: &Parameters,
    out: &mut Vec<u8>,
) {
    let (prefix, port): (&[u8], &[u8]) = match scheme {
        Scheme::Http => (b"http://", b":80"),
        Scheme::Https => (b"https://", b":443"),
    };
    out.extend_from_slice(prefix);
    let host = authority.strip_suffix(port).unwrap_or(authority);
    out.extend(host.iter().filter(|byte| **byte != 0).map(u8::to_ascii_lowercase));
    out.extend(path.iter().filter(|byte| **byte != 0));
    let Some(query) = query else { return };
    if *parameters == Parameters::All {
        out.push(b'?');
        out.extend(query.iter().filter(|byte| **byte != 0));
        return;
    }
    let mut mark = b'?';
    for pair in query.split(|byte| *byte == b'&') {
        let name = pair.split(|byte| *byte == b'=').next().unwrap_or_default();
        // Endpoints may decode names, and some part pairs at `;` as well: what they could read otherwise than it is read here stays.
        let is_ambiguous = pair.contains(&b';') || name.iter().any(|byte| matches!(byte, b'%' | b'+'));
        if !pair.is_empty() && (is_ambiguous || parameters.keeps(name)) {
            out.push(mark);
            out.extend(pair.iter().filter(|byte| **byte != 0));
            mark = b'&';
        }
    }
}

/// Brings a URL that a person writes to the form of keys. Returns `None` if it is no absolute URL of HTTP.
pub fn normal_url(url: &[u8]) -> Option<Vec<u8>> {
    let url = trimmed(url);
    if url.iter().any(|byte| byte.is_ascii_control() || *byte == b' ') {
        return None;
    }
    let place = url.windows(3).position(|three| three == b"://")?;
    let scheme = match url[..place].to_ascii_lowercase().as_slice() {
        b"http" => Scheme::Http,
        b"https" => Scheme::Https,
        _ => return None,
    };
    let rest = &url[place + 3..];
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    let (authority, target) = rest.split_at(end);
    let behind = authority.rsplit(|byte| *byte == b']').next().unwrap_or_default();
    // No host, a port alone, or two ports.
    if authority.is_empty() || authority.starts_with(b":") || behind.iter().filter(|byte| **byte == b':').count() > 1 {
        return None;
    }
    let target = target.split(|byte| *byte == b'#').next().unwrap_or_default();
    let (path, query) = match target.iter().position(|byte| *byte == b'?') {
        Some(at) => (&target[..at], Some(&target[at + 1..])),
        None => (target, None),
    };
    let path = if path.is_empty() { b"/" } else { path };
    let mut out = Vec::with_capacity(url.len() + 1);
    write_url(scheme, authority, (path, query), &Parameters::All, &mut out);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(authority: &str, path: &str, query: Option<&str>, parameters: &Parameters) -> String {
        let mut out = Vec::new();
        let target = (path.as_bytes(), query.map(str::as_bytes));
        write_url(Scheme::Https, authority.as_bytes(), target, parameters, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_key_has_the_host_in_one_form_and_the_parameters_that_count() {
        assert_eq!(url("Shop.Example:443", "/A", Some("b=1&a=2"), &Parameters::All), "https://shop.example/A?b=1&a=2");
        assert_eq!(url("shop.example:80", "/", Some(""), &Parameters::All), "https://shop.example:80/?");
        let ignore = Parameters::Ignore(["utm_*".into(), "fbclid".into()].into());
        assert_eq!(url("a", "/", Some("utm_source=x&id=1&fbclid&utmost=2"), &ignore), "https://a/?id=1&utmost=2");
        assert_eq!(url("a", "/", Some("utm_x"), &ignore), "https://a/");
        // Nothing that an endpoint may take for `id` is left out.
        assert_eq!(url("a", "/", Some("id=1&utm_x=a;id=2"), &ignore), "https://a/?id=1&utm_x=a;id=2");
        let only = Parameters::Only(["id".into()].into());
        assert_eq!(url("a", "/", Some("id=1&%69d=2&x=%20"), &only), "https://a/?id=1&%69d=2");
        assert_eq!(url("a", "/", Some("x=id&id=1&ID=2"), &only), "https://a/?id=1");
    }

    #[test]
    fn a_url_of_a_purge_has_the_form_of_keys() {
        let told = |text: &str| normal_url(text.as_bytes()).map(|url| String::from_utf8(url).unwrap());
        assert_eq!(told("HTTPS://A.example:443?x#y").as_deref(), Some("https://a.example/?x"));
        assert_eq!(told(" http://a/b#c?d "), Some("http://a/b".into()));
        assert_eq!(told("https://[::1]:443/a"), Some("https://[::1]/a".into()));
        for bad in [
            "/a",
            "a.example/b",
            "ftp://a/",
            "http:///a",
            "https://:443/",
            "https://a:443:443/",
            "http://a/b c",
            "http://\0/",
        ] {
            assert_eq!(told(bad), None, "{bad}");
        }
    }
}
