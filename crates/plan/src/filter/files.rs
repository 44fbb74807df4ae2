//! `files`.

mod answer;
mod conditions;
mod listing;
mod media;
mod path;
mod ranges;
#[cfg(test)]
mod tests;

use std::sync::{Arc, LazyLock};

use model::{FieldName, Issue, LocalResponse, Method, RequestHead};
use schemars::JsonSchema;
use serde::Deserialize;

use super::quality::{FULL, weight};
use super::settings::{Ordered, Settings};
use super::{
    Compiling, FileAsk, FileFound, FileRoot, FilterEntry, Flow, Found, Need, OpenedFile, RequestStep, Steps, Symlinks,
    Turn,
};
use answer::{Told, respond};
pub use ranges::{Asked, asked};

pub(super) const ENTRY: FilterEntry = FilterEntry::of::<Files>("files", DOC);

const DOC: &str = r#"Serves files of a directory.

The path of the request, without `strip_prefix`, is that of a file below `root`. A directory is answered by the first file of `index` that it
has. What is not there gets the file `fallback`, else 404; with `missing: continue` the request goes on to the action of its route.

Requests other than `GET` and `HEAD` get 405; with `missing: continue` they go on, too. Responses have `etag` (of time and length),
`last-modified` and `accept-ranges`. Conditions of requests and up to 16 ranges are answered as RFC 9110 says. Only regular files are sent. Paths
with a segment that begins with a dot, but for `.well-known`, are not found unless `hidden` is `serve`. Linux 5.6 or newer is needed.

Small files leave in one write. Over HTTP/1 without TLS the kernel sends larger ones (`sendfile`), unless a filter changes or slows down bodies.
What is not in memory is read by threads beside the workers. A file that becomes shorter while it is sent ends the connection, and one that is
changed in place may arrive in a mix: replace files by renaming others over them.

```yaml
filters:
  - files: { root: /srv/www, fallback: /index.html, precompressed: [br, gzip], cache_control: max-age=60 }
```
"#;

/// Entries of a directory that are listed.
const ENTRIES_MAX: usize = 4_096;
const NAMES_MAX: usize = 16;
const TYPES_MAX: usize = 256;

/// Which files are served, and how.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Files {
    /// The absolute path of the directory. It may be a symbolic link, which is followed at each request.
    #[schemars(regex(pattern = "^/"))]
    root: String,
    /// What is taken off the beginning of the path, such as `/static`; by default nothing.
    strip_prefix: Option<String>,
    /// Names of files that stand for their directory, `[index.html]` by default. The first that is there is sent.
    index: Option<Vec<String>>,
    /// The path below `root` of the file that stands for those that are not there, such as `/index.html` of a single-page application.
    fallback: Option<String>,
    /// What a request for a file that is not there gets: `respond` with 404, the default, or `continue`.
    #[serde(default)]
    missing: Missing,
    /// Whether directories without an index are listed, as HTML, or as JSON for clients that prefer it.
    #[serde(default)]
    list: bool,
    /// Codings of files beside the others, such as `app.js.br`, in the order of preference. One is sent if the client accepts it, and it is not
    /// older than the file itself.
    #[serde(default)]
    precompressed: Vec<Precompressed>,
    /// The field `cache-control` of responses with files.
    cache_control: Option<String>,
    /// What is done about names that begin with a dot: `refuse`, the default, or `serve`.
    #[serde(default)]
    hidden: Hidden,
    /// What is done about symbolic links below `root`: `refuse` all, follow those that are relative and stay `beneath` it (the default), or
    /// `follow` all.
    #[serde(default)]
    symlinks: LinksSetting,
    /// Media types by extension, such as `{ foo: application/x-foo }`, beside those that are built in.
    types: Option<Ordered<String>>,
    /// The character set of text, `utf-8` by default; empty for none.
    charset: Option<String>,
}

/// What a request for a file that is not there gets.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Missing {
    /// 404.
    #[default]
    Respond,
    /// The action of its route.
    Continue,
}

/// What is done about names that begin with a dot.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Hidden {
    /// They are not found.
    #[default]
    Refuse,
    /// They are served.
    Serve,
}

/// What is done about symbolic links.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum LinksSetting {
    /// None is followed.
    Refuse,
    /// Those that stay below the root.
    #[default]
    Beneath,
    /// All are followed.
    Follow,
}

/// A coding of files beside the others.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Precompressed {
    /// `.br`.
    Br,
    /// `.zst`.
    Zstd,
    /// `.gz`.
    Gzip,
}

impl Precompressed {
    fn suffix(self) -> &'static str {
        match self {
            Self::Br => ".br",
            Self::Zstd => ".zst",
            Self::Gzip => ".gz",
        }
    }
}

/// The content coding of a file with this end of its name.
fn coding_of(suffix: &str) -> &'static str {
    match suffix {
        ".br" => "br",
        ".zst" => "zstd",
        _ => "gzip",
    }
}

impl Settings for Files {
    fn compile(self, _: &mut Compiling<'_>) -> Result<Steps, Issue> {
        if !self.root.starts_with('/') || self.root.contains('\0') {
            let issue = Issue::at("root", format!("`{}` is not an absolute path", self.root));
            return Err(issue.suggest("write one such as `/srv/www`"));
        }
        let index = self.index.unwrap_or_else(|| vec!["index.html".to_owned()]);
        check_index(&index)?;
        let fallback = self.fallback.as_deref().map(fallback_below_root).transpose()?;
        let prefix = self.strip_prefix.map(prefix).transpose()?;
        if let Some(text) = &self.cache_control {
            check_value("cache_control", text)?;
        }
        let charset = self.charset.unwrap_or_else(|| "utf-8".to_owned());
        if !charset.is_empty() && !model::fields::is_token(charset.as_bytes()) {
            let issue = Issue::at("charset", format!("`{charset}` is not a character set"));
            return Err(issue.suggest("write `utf-8`"));
        }
        let symlinks = match self.symlinks {
            LinksSetting::Refuse => Symlinks::Refuse,
            LinksSetting::Beneath => Symlinks::Beneath,
            LinksSetting::Follow => Symlinks::Follow,
        };
        let entries_max = if self.list { ENTRIES_MAX } else { 0 };
        let root = FileRoot { directory: self.root, symlinks, index, fallback, entries_max };
        Ok(Steps::of_request(FilesStep {
            root: Arc::new(root),
            prefix,
            goes_on: self.missing == Missing::Continue,
            codings: self.precompressed,
            cache_control: self.cache_control,
            shows_hidden: self.hidden == Hidden::Serve,
            types: types(self.types)?,
            charset,
        }))
    }
}

fn check_index(index: &[String]) -> Result<(), Issue> {
    if index.len() > NAMES_MAX {
        return Err(Issue::at("index", format!("{} names are more than {NAMES_MAX}", index.len())));
    }
    let is_bad = |name: &String| name.is_empty() || name.contains(['/', '\0']) || name == "." || name == "..";
    match index.iter().position(is_bad) {
        None => Ok(()),
        Some(place) => {
            let issue = Issue::at(format!("index/{place}"), format!("`{}` is not the name of a file", index[place]));
            Err(issue.suggest("write a name such as `index.html`"))
        }
    }
}

fn fallback_below_root(text: &str) -> Result<String, Issue> {
    let path = text.strip_prefix('/').unwrap_or_default();
    let is_bad = |segment: &str| matches!(segment, "" | "." | "..") || segment.contains('\0');
    if path.split('/').any(is_bad) {
        let issue = Issue::at("fallback", format!("`{text}` is not the path of a file below `root`"));
        return Err(issue.suggest("write one such as `/index.html`"));
    }
    Ok(path.to_owned())
}

fn prefix(text: String) -> Result<String, Issue> {
    let whole = text.strip_suffix('/').unwrap_or(&text);
    if !whole.starts_with('/') || whole.contains(['?', '#', '\0']) {
        let issue = Issue::at("strip_prefix", format!("`{text}` is not the beginning of a path"));
        return Err(issue.suggest("write one such as `/static`, or leave it out"));
    }
    Ok(whole.to_owned())
}

fn check_value(key: &str, text: &str) -> Result<(), Issue> {
    if text.is_empty() || text.chars().any(char::is_control) {
        return Err(Issue::at(key, "it cannot be the value of a field").suggest("write it in one line"));
    }
    Ok(())
}

fn types(list: Option<Ordered<String>>) -> Result<Box<[(String, String)]>, Issue> {
    let list = list.map_or(Vec::new(), |list| list.0);
    if list.len() > TYPES_MAX {
        return Err(Issue::at("types", format!("{} types are more than {TYPES_MAX}", list.len())));
    }
    let one = |(extension, media): (String, String)| {
        let below = |issue: Issue| issue.below(&extension).below("types");
        let name = extension.strip_prefix('.').unwrap_or(&extension).to_ascii_lowercase();
        if name.is_empty() || name.contains(['.', '/']) {
            return Err(below(Issue::at("", "not an extension").suggest("write one such as `foo`")));
        }
        check_value("", &media).map_err(below)?;
        if !media.contains('/') {
            return Err(below(
                Issue::at("", format!("`{media}` is not a media type")).suggest("write it as `text/html`"),
            ));
        }
        Ok((name, media))
    };
    list.into_iter().map(one).collect()
}

fn name(text: &str) -> FieldName {
    FieldName::new(text).unwrap_or_else(|_| unreachable!("a constant token"))
}

static ACCEPT: LazyLock<FieldName> = LazyLock::new(|| name("accept"));
static ACCEPT_ENCODING: LazyLock<FieldName> = LazyLock::new(|| name("accept-encoding"));

struct FilesStep {
    root: Arc<FileRoot>,
    prefix: Option<String>,
    goes_on: bool,
    codings: Vec<Precompressed>,
    cache_control: Option<String>,
    shows_hidden: bool,
    types: Box<[(String, String)]>,
    charset: String,
}

impl FilesStep {
    /// The path below the root; `None`: it can name nothing there.
    fn path(&self, head: &RequestHead) -> Option<Vec<u8>> {
        let path = head.path();
        let rest = match &self.prefix {
            None => path,
            Some(prefix) => match path.strip_prefix(prefix.as_bytes())? {
                [] => b"/",
                rest @ [b'/', ..] => rest,
                _ => return None,
            },
        };
        path::below_root(rest, self.shows_hidden)
    }

    /// Whether the client asks for the root itself without the slash at its end, which links in its page are relative to.
    fn lacks_slash(&self, head: &RequestHead) -> bool {
        let is_root = self.prefix.as_ref().is_some_and(|prefix| head.path() == prefix.as_bytes());
        // Another filter may have removed the slash, or lead here from elsewhere.
        is_root && head.received_path().ends_with(head.path())
    }

    /// The codings that the client takes, best first.
    fn codings(&self, head: &RequestHead) -> Vec<&'static str> {
        let weigh = |coding: &Precompressed| (accepts(head, &ACCEPT_ENCODING, &[coding_of(coding.suffix())]), *coding);
        let mut found: Vec<_> = self.codings.iter().map(weigh).filter(|(weight, _)| *weight > 0).collect();
        found.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
        found.into_iter().map(|(_, coding)| coding.suffix()).collect()
    }

    fn missing(&self) -> Flow {
        if self.goes_on { Flow::Continue } else { Flow::refuse(404, "there is no such file") }
    }

    fn media(&self, name: &[u8]) -> String {
        let extension = media::extension(name).unwrap_or_default();
        let own = self.types.iter().find(|(known, _)| *known == extension).map(|(_, media)| media.as_str());
        let media = own.or_else(|| media::known(&extension)).unwrap_or(media::UNKNOWN);
        if self.charset.is_empty() || !media.starts_with("text/") || media.contains(';') {
            media.to_owned()
        } else {
            format!("{media}; charset={}", self.charset)
        }
    }

    fn send(&self, head: &RequestHead, file: &OpenedFile, turn: &mut Turn<'_>) -> Flow {
        let media = self.media(&file.name);
        let (cache_control, varies) = (self.cache_control.as_deref(), !self.codings.is_empty());
        respond(head, file, &Told { media: &media, cache_control, varies }, || (turn.chance)())
    }
}

/// The weight of the best of these names in a field, in thousandths; 0 without one.
fn accepts(head: &RequestHead, field: &FieldName, names: &[&str]) -> u16 {
    let members = head.fields.all(field).flat_map(|value| value.split(|byte| *byte == b','));
    let weigh = |member: &[u8]| {
        let mut parts = member.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let name = parts.next().unwrap_or_default();
        let is_named = names.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()));
        is_named.then(|| parts.next().map_or(FULL, |parameter| weight(parameter).unwrap_or(0)))
    };
    members.filter_map(weigh).max().unwrap_or(0)
}

fn not_allowed() -> Flow {
    let fields = vec![
        ("content-type".to_owned(), "text/plain; charset=utf-8".to_owned()),
        ("allow".to_owned(), "GET, HEAD".to_owned()),
    ];
    let body = b"files can be read only\n".to_vec();
    Flow::Respond(Box::new(LocalResponse { status: 405, fields, body }))
}

fn busy() -> Flow {
    let fields = vec![
        ("content-type".to_owned(), "text/plain; charset=utf-8".to_owned()),
        ("retry-after".to_owned(), "1".to_owned()),
    ];
    let body = b"too many files are being read\n".to_vec();
    Flow::Respond(Box::new(LocalResponse { status: 503, fields, body }))
}

fn redirect(location: String) -> Flow {
    let fields = vec![("location".to_owned(), location)];
    Flow::Respond(Box::new(LocalResponse { status: 301, fields, body: Vec::new() }))
}

impl RequestStep for FilesStep {
    fn apply(&self, head: &mut RequestHead, _: &mut Turn<'_>) -> Flow {
        if !matches!(Method::of(head.method_bytes()), Method::Get | Method::Head) {
            return if self.goes_on { Flow::Continue } else { not_allowed() };
        }
        let Some(path) = self.path(head) else { return self.missing() };
        let codings = self.codings(head);
        Flow::Need(Need::File(Box::new(FileAsk { root: self.root.clone(), path, codings })))
    }

    fn resume(&self, head: &mut RequestHead, found: Found<'_>, turn: &mut Turn<'_>) -> Flow {
        let Found::File(found) = found else { return Flow::Continue };
        match found {
            FileFound::File(_) | FileFound::Directory(_) if self.lacks_slash(head) => {
                redirect(path::with_slash(head.received_path(), head.received_query()))
            }
            FileFound::File(file) => self.send(head, &file, turn),
            FileFound::Directory(mut entries) => {
                entries.retain(|entry| self.shows_hidden || !entry.name.starts_with(b"."));
                let is_json = accepts(head, &ACCEPT, &["application/json"]) > accepts(head, &ACCEPT, &["text/html"]);
                Flow::Respond(Box::new(listing::response(entries, is_json)))
            }
            // Another filter has removed the slash: a redirect would lead here once more.
            FileFound::WithoutSlash if head.received_path().ends_with(b"/") => self.missing(),
            FileFound::WithoutSlash => redirect(path::with_slash(head.received_path(), head.received_query())),
            FileFound::Missing => self.missing(),
            FileFound::Denied => Flow::refuse(403, "the file cannot be read"),
            FileFound::Busy => busy(),
            FileFound::Failed => Flow::refuse(500, "the file cannot be read"),
        }
    }
}
