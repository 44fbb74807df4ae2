//! Reads files: the main one, what it includes, and merges them into one tree.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::diagnostic::Sink;
use crate::interpolate;
use crate::source::{Document, Documents, FileId, Span};
use crate::tree::{Key, Kind, Node};
use crate::yaml::{self, Budget, FILE_BYTES_MAX};

/// Includes inside one another.
const INCLUDE_DEPTH_MAX: usize = 16;
/// Files of one configuration.
const FILES_MAX: usize = 10_000;
/// Bytes of all files of one configuration together.
const TOTAL_BYTES_MAX: usize = 64 << 20;
/// Names of files that a folder stands for.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// As Linux has it on all machines that this is built for (`asm-generic/fcntl.h`).
const O_NONBLOCK: i32 = 0o4000;

/// Whether files may be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// As the operating system lets us.
    Disk,
    /// None: the text alone is checked.
    None,
}

/// Reads a text that is one object, or a part of one. `None`: it is not YAML, which is reported.
pub(crate) fn read_part(
    documents: &mut Documents,
    part: Document,
    environment: &dyn Fn(&str) -> Option<String>,
    sink: &mut Sink,
) -> Option<Node> {
    let text = Arc::clone(&part.text);
    let file = documents.add(part);
    let mut budget = Budget::default();
    if text.len() > FILE_BYTES_MAX {
        sink.push(Span::whole(file), format!("it is larger than {FILE_BYTES_MAX} bytes"), None);
        return None;
    }
    let mut node = yaml::parse(file, &text, &mut budget, sink)?;
    interpolate::fill(&mut node, environment, &mut budget, sink);
    Some(node)
}

/// What reading came to.
pub(crate) struct Reading {
    pub(crate) documents: Documents,
    /// Everything merged. `None` when the main text is not YAML.
    pub(crate) tree: Option<Node>,
    /// Whether everything could be read: if not, what seems to be missing may just not have been seen.
    pub(crate) whole: bool,
    pub(crate) sink: Sink,
}

/// Reads a configuration whose main text is given. `documents` are texts that were read before, for something else.
pub(crate) fn read(
    mut documents: Documents,
    main: Document,
    environment: &dyn Fn(&str) -> Option<String>,
    access: Access,
) -> Reading {
    let bytes = main.text.len();
    let file = documents.add(main);
    let mut reader = Reader {
        documents,
        environment,
        access,
        sink: Sink::default(),
        budget: Budget::default(),
        bytes_left: TOTAL_BYTES_MAX.saturating_sub(bytes),
        trail: Vec::new(),
        read_before: HashMap::new(),
        trees: Vec::new(),
        whole: true,
    };
    let main_is_yaml = reader.one(file).is_some();
    let tree = if main_is_yaml { reader.merge() } else { None };
    Reading { documents: reader.documents, tree, whole: reader.whole && main_is_yaml, sink: reader.sink }
}

/// Reads a text file within the bound, without its byte order mark.
///
/// # Errors
/// A sentence.
pub fn read_text(path: &Path) -> Result<Arc<str>, String> {
    text_of(read_bytes(path, FILE_BYTES_MAX)?)
}

/// Returns the same from what is already open, such as standard input.
///
/// # Errors
/// A sentence.
pub fn read_text_from(from: impl Read) -> Result<Arc<str>, String> {
    text_of(bytes_of(from, FILE_BYTES_MAX)?)
}

fn text_of(bytes: Vec<u8>) -> Result<Arc<str>, String> {
    let text = String::from_utf8(bytes).map_err(|error| {
        let line = error.as_bytes()[..error.utf8_error().valid_up_to()].iter().filter(|b| **b == b'\n').count() + 1;
        format!("it is not UTF-8: the first bad byte is in line {line}")
    })?;
    Ok(match text.strip_prefix('\u{feff}') {
        Some(rest) => rest.into(),
        None => text.into(),
    })
}

/// Reads a file within a bound.
///
/// # Errors
/// A sentence.
pub(crate) fn read_bytes(path: &Path, max: usize) -> Result<Vec<u8>, String> {
    bytes_of(open_file(path).map_err(|error| reason(&error))?, max)
}

fn bytes_of(from: impl Read, max: usize) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    from.take(max as u64 + 1).read_to_end(&mut bytes).map_err(|error| reason(&error))?;
    if bytes.len() > max {
        return Err(format!("it is larger than {max} bytes"));
    }
    Ok(bytes)
}

/// Opens a file to be read, and nothing but a file: opening a pipe may last for ever, and so may reading a device.
///
/// # Errors
/// It is no file, or the operating system says why.
pub fn open_file(path: &Path) -> io::Result<File> {
    let only_files = |found: Metadata| match found.is_file() {
        true => Ok(()),
        false => Err(io::Error::other("it is not a file")),
    };
    // Opening some devices does something. What takes the place of a file just now is not waited for.
    only_files(fs::metadata(path)?)?;
    let file = File::options().read(true).custom_flags(O_NONBLOCK).open(path)?;
    only_files(file.metadata()?)?;
    Ok(file)
}

/// Returns what the operating system says, in few words.
pub(crate) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}

struct Reader<'a> {
    documents: Documents,
    environment: &'a dyn Fn(&str) -> Option<String>,
    access: Access,
    sink: Sink,
    budget: Budget,
    bytes_left: usize,
    /// The files that are being read, outermost first, by their true path.
    trail: Vec<PathBuf>,
    /// Every file included so far, by its true path, and where.
    read_before: HashMap<PathBuf, Span>,
    /// What each file holds, an including file before those that it includes.
    trees: Vec<Node>,
    whole: bool,
}

impl Reader<'_> {
    /// Parses one document, fills in variables, and reads what it includes. `None`: not YAML.
    fn one(&mut self, file: FileId) -> Option<()> {
        let document = self.documents.get(file)?.clone();
        if document.text.len() > FILE_BYTES_MAX {
            self.lost(Span::whole(file), format!("it is larger than {FILE_BYTES_MAX} bytes"), None);
            return None;
        }
        let Some(mut tree) = yaml::parse(file, &document.text, &mut self.budget, &mut self.sink) else {
            self.whole = false;
            return None;
        };
        interpolate::fill(&mut tree, self.environment, &mut self.budget, &mut self.sink);
        let include = match &mut tree.kind {
            Kind::Map(entries) => {
                entries.iter().position(|(key, _)| key.text == "include").map(|at| Arc::make_mut(entries).remove(at))
            }
            _ => None,
        };
        self.trees.push(tree);
        if let Some((_, include)) = include {
            let true_path = if document.on_disk { Path::new(&document.name).canonicalize().ok() } else { None };
            self.trail.push(true_path.unwrap_or_default());
            self.include(&include, &document.folder);
            self.trail.pop();
        }
        Some(())
    }

    /// Reports something without which the configuration is not whole.
    fn lost(&mut self, span: Span, message: impl Into<String>, suggestion: Option<String>) {
        self.whole = false;
        self.sink.push(span, message, suggestion);
    }

    fn include(&mut self, include: &Node, folder: &Path) {
        let patterns: Vec<&Node> = match &include.kind {
            Kind::List(items) => items.iter().collect(),
            Kind::Scalar(_) => vec![include],
            Kind::Invalid => {
                self.whole = false;
                return;
            }
            Kind::Map(_) => {
                let message = "`include` must be text or a list of texts, not a map";
                self.lost(include.span, message, None);
                return;
            }
        };
        for pattern in patterns {
            match &pattern.kind {
                Kind::Scalar(scalar) if !scalar.text.is_empty() => {
                    let text = scalar.text.clone();
                    self.pattern(&text, pattern.span, folder);
                }
                Kind::Invalid => self.whole = false,
                _ => self.lost(pattern.span, "an item of `include` must be the path of a file or folder", None),
            }
        }
    }

    /// Reads the files that one item of `include` stands for.
    fn pattern(&mut self, text: &str, span: Span, folder: &Path) {
        if self.access == Access::None {
            self.lost(span, "files are not read here", None);
            return;
        }
        if self.trail.len() > INCLUDE_DEPTH_MAX {
            self.lost(span, format!("files include one another deeper than {INCLUDE_DEPTH_MAX} levels"), None);
            return;
        }
        match expand(&folder.join(text), &mut self.documents) {
            Ok(paths) => paths.iter().for_each(|path| self.included(path, span)),
            Err(message) => self.lost(span, format!("cannot include `{text}`: {message}"), None),
        }
    }

    fn included(&mut self, path: &Path, span: Span) {
        let Some(text) = self.load(path, span) else { return };
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        let name = path.display().to_string();
        let file = self.documents.add(Document { name, folder, text, on_disk: true });
        self.one(file);
    }

    /// Returns the text of an included file, unless a bound or a circle forbids it.
    fn load(&mut self, path: &Path, span: Span) -> Option<Arc<str>> {
        let shown = path.display();
        let true_path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if self.trail.contains(&true_path) {
            self.lost(span, format!("`{shown}` includes itself"), Some("break the circle".to_owned()));
            return None;
        }
        if let Some(first) = self.read_before.get(&true_path) {
            let place = self.documents.get(first.file).map_or("", |document| &document.name);
            let message = format!("`{shown}` is included twice, first by {place}:{}", first.line);
            self.lost(span, message, None);
            return None;
        }
        if self.read_before.len() >= FILES_MAX {
            self.lost(span, format!("more than {FILES_MAX} files are included"), None);
            return None;
        }
        let text = match read_text(path) {
            Ok(text) => text,
            Err(message) => {
                self.lost(span, format!("cannot include `{shown}`: {message}"), None);
                return None;
            }
        };
        self.read_before.insert(true_path, span);
        match self.bytes_left.checked_sub(text.len()) {
            Some(left) => self.bytes_left = left,
            None => {
                let message = format!("all files together are larger than {TOTAL_BYTES_MAX} bytes");
                self.lost(span, message, None);
                return None;
            }
        }
        Some(text)
    }

    /// Joins all files: objects of included ones come behind those of the file that includes them.
    fn merge(&mut self) -> Option<Node> {
        let mut trees = std::mem::take(&mut self.trees).into_iter();
        let mut tree = trees.next()?;
        let mut places: HashMap<(String, String), Span> = HashMap::new();
        for (kind, objects) in tree.entries() {
            let named = objects.entries().iter();
            places.extend(named.map(|(name, _)| ((kind.text.to_string(), name.text.to_string()), name.span)));
        }
        for added in trees {
            let span = added.span;
            let Kind::Map(added) = added.kind else {
                let mend = "write `listeners:`, `routes:` or `clusters:`".to_owned();
                self.lost(span, "the file must be a map", Some(mend));
                continue;
            };
            let Kind::Map(entries) = &mut tree.kind else { continue };
            let entries = Arc::make_mut(entries);
            for (key, node) in Arc::unwrap_or_clone(added) {
                match entries.iter_mut().find(|(known, _)| known.text == key.text) {
                    None => {
                        let named = node.entries().iter();
                        places
                            .extend(named.map(|(name, _)| ((key.text.to_string(), name.text.to_string()), name.span)));
                        entries.push((key, node));
                    }
                    Some((known, existing)) => self.join((known, existing), (&key, node), &mut places),
                }
            }
        }
        Some(tree)
    }

    /// Joins what two files say under the same top-level key.
    fn join(
        &mut self,
        (known, existing): (&Key, &mut Node),
        (key, node): (&Key, Node),
        places: &mut HashMap<(String, String), Span>,
    ) {
        match (key.text.as_str(), &mut existing.kind, node.kind) {
            ("listeners" | "clusters" | "tables" | "caches", Kind::Map(entries), Kind::Map(added)) => {
                let kind = key.text.trim_end_matches('s');
                let entries = Arc::make_mut(entries);
                for (name, node) in Arc::unwrap_or_clone(added) {
                    match places.entry((key.text.to_string(), name.text.to_string())) {
                        Entry::Occupied(first) => {
                            let first = *first.get();
                            self.twice(&format!("{kind} `{}`", name.text), name.span, first);
                        }
                        Entry::Vacant(place) => {
                            place.insert(name.span);
                            entries.push((name, node));
                        }
                    }
                }
            }
            ("routes" | "access_logs", Kind::List(items), Kind::List(added)) => {
                Arc::make_mut(items).extend(Arc::unwrap_or_clone(added));
            }
            ("version", Kind::Scalar(first), Kind::Scalar(second)) if first.text == second.text => {}
            (_, Kind::Invalid, _) | (_, _, Kind::Invalid) => {}
            (name @ ("listeners" | "clusters" | "tables" | "caches"), Kind::Map(_), _) => {
                self.sink.push(key.span, format!("`{name}` must be a map"), None);
            }
            (name @ ("routes" | "access_logs"), Kind::List(_), _) => {
                self.sink.push(key.span, format!("`{name}` must be a list"), None);
            }
            (name, ..) => self.twice(&format!("`{name}`"), key.span, known.span),
        }
    }

    fn twice(&mut self, what: &str, span: Span, first: Span) {
        let place = self.documents.get(first.file).map_or("", |document| &document.name);
        let message = format!("{what} is defined twice, first in {place}:{}", first.line);
        self.sink.push(span, message, Some("keep one of them".to_owned()));
    }
}

/// Returns the configuration files that a path stands for: itself, or those directly in a folder, in the order of their names.
///
/// # Errors
/// The folder cannot be read, or holds too many.
pub fn files_of(path: &Path) -> Result<Vec<PathBuf>, String> {
    expand(path, &mut Documents::default())
}

/// Returns all files directly in a folder whose names are not hidden.
///
/// # Errors
/// The folder cannot be read, or holds too many.
pub fn files_in(folder: &Path) -> Result<Vec<PathBuf>, String> {
    list(folder, &|_| true, &mut Documents::default())
}

/// Returns the files that a path of `include` stands for: itself, the files of a folder, or those that fit a pattern.
fn expand(path: &Path, documents: &mut Documents) -> Result<Vec<PathBuf>, String> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let parent = path.parent().unwrap_or(Path::new(""));
    if parent.to_string_lossy().contains(['*', '?']) {
        return Err("`*` is allowed in file names, not in folder names".to_owned());
    }
    if name.contains(['*', '?']) {
        return list(parent, &|file| fits(&name, file), documents);
    }
    if path.is_dir() {
        return list(path, &|file| EXTENSIONS.iter().any(|end| fits(&format!("*.{end}"), file)), documents);
    }
    Ok(vec![path.to_owned()])
}

/// Files directly in a folder whose name is wanted, in the order of names. Hidden files are left out.
fn list(folder: &Path, wanted: &dyn Fn(&str) -> bool, documents: &mut Documents) -> Result<Vec<PathBuf>, String> {
    let real = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let mut found = Vec::new();
    for entry in fs::read_dir(real).map_err(|error| reason(&error))? {
        let name = entry.map_err(|error| reason(&error))?.file_name();
        let shown = name.to_string_lossy();
        if !shown.starts_with('.') && wanted(&shown) && !real.join(&name).is_dir() {
            found.push(folder.join(&name));
        }
        if found.len() > FILES_MAX {
            return Err(format!("it holds more than {FILES_MAX} files"));
        }
    }
    found.sort();
    documents.add_folder(real);
    Ok(found)
}

/// Returns whether a name fits a pattern in which `*` stands for any characters and `?` for one. Runs in the product of both lengths at
/// most: there is one place to go back to, the last `*`.
fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    p = at + 1;
                    n = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_names_as_in_a_shell() {
        assert!(fits("*.yaml", "a.yaml"));
        assert!(fits("shop-*.yaml", "shop-1.yaml"));
        assert!(fits("a?c*", "abc"));
        assert!(fits("*a*b*c", "xxaxxbxxbxxc"));
        assert!(!fits("*.yaml", "a.yml"));
        assert!(!fits("a?c", "ac"));
        assert!(!fits(&"*a".repeat(50), &"a".repeat(49)));
    }
}
