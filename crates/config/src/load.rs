//! The way in: text to [`Snapshot`], or to everything that is wrong with it.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::filter::FilterSpec;
use model::{Issue, Snapshot};
use serde_json::Value;

use crate::diagnostic::{Diagnostic, Diagnostics, Sink, show};
use crate::effective;
use crate::read::{Access, Reading, read, read_text};
use crate::resolve::Resolver;
use crate::schema::schema;
use crate::source::{Document, Documents, Span};
use crate::tree::Node;
use crate::validate::{Faulty, validate};

/// What loading needs to know of the world. It reads files itself, but asks for everything else.
#[derive(Clone, Copy)]
pub struct Loader<'a> {
    /// The filters that routes may use.
    pub filters: &'a [FilterSpec],
    /// An environment variable, for `${NAME}`.
    pub environment: &'a dyn Fn(&str) -> Option<String>,
    /// The addresses of a host name, for endpoints; the first is used. May block.
    pub resolve_host: &'a dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>>,
}

/// A configuration without mistakes, and what it was made of.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// What is configured.
    pub snapshot: Snapshot,
    /// The texts.
    pub documents: Documents,
    tree: Arc<Node>,
    files: Vec<PathBuf>,
    effective: Value,
    warnings: Vec<Diagnostic>,
}

impl Loader<'_> {
    /// Loads a file and what it includes.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn load_file(&self, path: &Path) -> Result<Loaded, Diagnostics> {
        let name = path.display().to_string();
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        match read_text(path) {
            Ok(text) => self.load(Document { name, folder, text, on_disk: true }, Access::Disk),
            Err(message) => {
                let mut documents = Documents::default();
                let file = documents.add(Document { name, folder, text: "".into(), on_disk: true });
                Err(show(&documents, Span::whole(file), &format!("cannot be read: {message}"), None).into())
            }
        }
    }

    /// Loads a text. `name` is shown in diagnostics; relative paths in it start at `base`.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn load_text(&self, name: &str, text: &str, base: &Path) -> Result<Loaded, Diagnostics> {
        self.load(document(name, text, base), Access::Disk)
    }

    /// Makes the snapshot anew from the very same texts: certificates, keys and authorities are read again, and host
    /// names looked up again.
    ///
    /// # Errors
    /// Everything that is wrong with those files and names now.
    pub fn reload_files(&self, loaded: &Loaded) -> Result<Loaded, Diagnostics> {
        let tree = Arc::clone(&loaded.tree);
        self.resolve(loaded.documents.clone(), tree, &Faulty::default(), Sink::default(), Access::Disk)
    }

    pub(crate) fn load(&self, main: Document, access: Access) -> Result<Loaded, Diagnostics> {
        let Reading { documents, tree, whole, mut sink } = read(main, self.environment, access);
        let Some(tree) = tree else { return Err(sink.finish(&documents)) };
        let faulty = validate(&schema(self.filters), &tree, &mut sink);
        if !whole {
            return Err(sink.finish(&documents));
        }
        self.resolve(documents, Arc::new(tree), &faulty, sink, access)
    }

    fn resolve(
        &self,
        documents: Documents,
        tree: Arc<Node>,
        faulty: &Faulty,
        mut sink: Sink,
        access: Access,
    ) -> Result<Loaded, Diagnostics> {
        let resolver = Resolver::new(self, access, (&documents, &tree), faulty, &mut sink);
        let resolved = resolver.run();
        if !sink.is_empty() {
            return Err(sink.finish(&documents));
        }
        let effective = effective::shown(resolved.effective, &tree, self.filters);
        let mut warnings = resolved.warnings.finish(&documents).list;
        warnings.iter_mut().for_each(|warning| warning.is_warning = true);
        Ok(Loaded { snapshot: resolved.snapshot, documents, tree, files: resolved.files, effective, warnings })
    }
}

impl Loaded {
    /// Shows an issue that was found later, such as by compiling, at the line that it is about.
    pub fn diagnose(&self, issue: &Issue) -> Diagnostic {
        show(&self.documents, self.tree.locate(&issue.path), &issue.message, issue.suggestion.clone())
    }

    /// What is allowed but does nothing, or not what will be expected of it, in the order of files and lines.
    pub fn warnings(&self) -> &[Diagnostic] {
        &self.warnings
    }

    /// Certificates, keys and authorities that were read, in order, each once.
    pub fn referenced_files(&self) -> &[PathBuf] {
        &self.files
    }

    /// The configuration with defaults filled in. What came from the environment is shown as it was written
    /// (`${NAME}`), and what is secret by its name is hidden.
    pub fn effective(&self) -> Value {
        self.effective.clone()
    }
}

/// Checks a text alone: there is no environment, no filter, no file and no name service. For fuzzing.
///
/// # Errors
/// Everything that is wrong.
pub fn check_text(text: &str) -> Result<Snapshot, Diagnostics> {
    let no_names = |_: &str, _: u16| Err(io::Error::other("names are not looked up here"));
    let loader = Loader { filters: &[], environment: &|_| None, resolve_host: &no_names };
    loader.load(document("text", text, Path::new("")), Access::None).map(|loaded| loaded.snapshot)
}

fn document(name: &str, text: &str, base: &Path) -> Document {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    Document { name: name.to_owned(), folder: base.to_owned(), text: text.into(), on_disk: false }
}
