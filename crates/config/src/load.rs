//! The way in: text to [`Snapshot`], or to everything that is wrong with it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::filter::FilterSpec;
use model::provider::{NameLookup, Provider};
use model::snapshot::EndpointsFrom;
use model::{Issue, Name, Snapshot};
use serde_json::{Value, json};

use crate::changes::{self, Changes};
use crate::defaults::Trees;
use crate::diagnostic::{Diagnostic, Diagnostics, Sink, show};
use crate::effective;
use crate::interpolate::take_types;
use crate::paths;
use crate::provided::{Provided, ProvidedEndpoints, ProvidedText};
use crate::read::{Access, Reading, read, read_part, read_text};
use crate::resolve::{Before, LOG_FORMATS, Resolved, Resolver};
use crate::schema::cached;
use crate::source::{Document, Documents, Span};
use crate::tree::{Key, Node, Twins};
use crate::validate::{Faulty, validate, validate_joined};
use crate::whole::{Objects, Whole};

/// Gives the addresses of a host name with a port.
pub type ResolveHost<'a> = dyn Fn(&NameLookup, &str, u16) -> io::Result<Vec<SocketAddr>> + 'a;

/// What loading needs to know of the world. It reads files itself, but asks for everything else.
#[derive(Clone, Copy)]
pub struct Loader<'a> {
    /// The filters that routes may use.
    pub filters: &'a [FilterSpec],
    /// An environment variable, for `${NAME}`.
    pub environment: &'a dyn Fn(&str) -> Option<String>,
    /// The addresses of a host name with a port, for endpoints; the least is used. May block.
    pub resolve_host: &'a ResolveHost<'a>,
    /// For changes: files, Unix sockets and variables that this one does not use already may not be used
    /// ([`Diagnostics::beyond`]). That is found before any file is opened, and before anything else is told. `None`: all may.
    pub within: Option<&'a Loaded>,
    /// What is not on this machine is a warning: host names that do not resolve, and certificates, keys and other files that cannot
    /// be read. The snapshot is then fit to be checked, not to be run. Included files must be there all the same.
    pub is_offline: bool,
}

/// A configuration without mistakes, and what it was made of.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// What is configured.
    pub snapshot: Snapshot,
    /// The texts.
    pub documents: Documents,
    /// As they were written, and joined with the defaults in them.
    pub(crate) trees: Trees,
    pub(crate) files_alone: FilesAlone,
    /// What stands in the place of objects of the files.
    objects: Arc<Objects>,
    files: Vec<PathBuf>,
    /// With defaults filled in; what is secret is sealed. Clusters are made when they are asked for.
    effective: Value,
    /// What is secret by its name.
    secret: Arc<HashSet<String>>,
    /// As in [`Before`].
    contained: Vec<bool>,
    own_zone: Option<String>,
    warnings: Vec<Diagnostic>,
    /// As in [`Loader`].
    is_offline: bool,
}

/// What files and providers say, without changes beside them.
#[derive(Clone, Debug)]
pub(crate) struct FilesAlone {
    pub(crate) documents: Documents,
    pub(crate) tree: Arc<Node>,
    /// The files without providers.
    pub(crate) own: Arc<(Documents, Arc<Node>)>,
    /// Endpoints in the texts of providers.
    pub(crate) endpoints: Arc<ProvidedEndpoints>,
}

/// What stands beside the files: what providers give, and before all else changes by the API.
#[derive(Clone, Copy, Debug)]
pub struct Beside<'a> {
    /// In the order in which they stand.
    pub provided: &'a [Provided],
    /// Objects in the place of all others.
    pub changes: &'a Changes,
}

impl Loader<'_> {
    /// An environment variable, for changes. Where not all may be used, each seems to be there: whether it may is told by
    /// [`Self::refuse_beyond`], and whether it is there is not.
    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        (self.environment)(name).or_else(|| self.within.map(|_| String::new()))
    }

    /// Refuses what uses more than it may.
    pub(crate) fn refuse_beyond(&self, tree: &Node) -> Result<(), Diagnostics> {
        let Some(within) = self.within else { return Ok(()) };
        let schema = cached(self.filters);
        let wanted = paths::reach(&schema, &changes::news(tree, &within.trees.written));
        if wanted.is_empty() {
            return Ok(());
        }
        let known = paths::reach(&schema, &within.trees.written);
        let beyond = wanted.into_iter().find(|one| !known.contains(one));
        beyond.map_or(Ok(()), |beyond| Err(Diagnostics { beyond: Some(beyond), ..Diagnostics::default() }))
    }

    /// Loads a file and what it includes.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn load_file(&self, path: &Path) -> Result<Loaded, Diagnostics> {
        self.load_file_with(path, Beside { provided: &[], changes: &Changes::default() })
    }

    /// The same with what stands beside the file.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn load_file_with(&self, path: &Path, beside: Beside<'_>) -> Result<Loaded, Diagnostics> {
        let name = path.display().to_string();
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        match read_text(path) {
            Ok(text) => self.load(Document { name, folder, text, on_disk: true }, beside, Access::Disk),
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
        self.load_text_with((name, text, base), Beside { provided: &[], changes: &Changes::default() })
    }

    /// The same with what stands beside the text.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn load_text_with(
        &self,
        (name, text, base): (&str, &str, &Path),
        beside: Beside<'_>,
    ) -> Result<Loaded, Diagnostics> {
        self.load(document(name, text, base), beside, Access::Disk)
    }

    /// The folder in which a file says that changes are kept, if it says so. What is wrong with the file is told when it
    /// is loaded.
    pub fn state_folder(&self, path: &Path) -> Option<PathBuf> {
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        let main = Document { name: path.display().to_string(), folder, text: read_text(path).ok()?, on_disk: true };
        let Reading { documents, tree, .. } = read(Documents::default(), main, self.environment, Access::Disk);
        let tree = tree?;
        let state = tree.get("admin")?.get("state")?;
        Some(documents.get(state.span.file)?.folder.join(state.text()?))
    }

    /// The providers that a file names, and what its clusters ask of each, as far as that can be understood. What is wrong with
    /// the file is told when it is loaded.
    pub fn providers(&self, path: &Path) -> (Vec<Arc<Provider>>, Vec<EndpointsFrom>) {
        let Ok(text) = read_text(path) else { return <_>::default() };
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        self.providers_of(Document { name: path.display().to_string(), folder, text, on_disk: true })
    }

    /// The same of a text. Relative paths in it start at `base`.
    pub fn providers_in(&self, text: &str, base: &Path) -> (Vec<Arc<Provider>>, Vec<EndpointsFrom>) {
        self.providers_of(document("", text, base))
    }

    fn providers_of(&self, main: Document) -> (Vec<Arc<Provider>>, Vec<EndpointsFrom>) {
        let Reading { documents, tree, mut sink, .. } =
            read(Documents::default(), main, self.environment, Access::Disk);
        let Some(mut tree) = tree else { return <_>::default() };
        take_types(&cached(self.filters), &[], &mut tree);
        let faulty = validate(&cached(self.filters), &tree, None, &mut sink);
        Resolver::new(self, Access::Disk, (&documents, &tree), &faulty, &mut sink).providers_alone()
    }

    /// The same files, as they were read, with other changes. The files that they name (certificates, keys, lists) are read
    /// again.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn load_changed(&self, loaded: &Loaded, changes: &Changes) -> Result<Loaded, Diagnostics> {
        self.assemble((loaded.files_alone.clone(), Some(loaded)), changes, Sink::default(), Access::Disk)
    }

    /// A file, what it includes, and the folders that it looks into for that, as far as they can be read.
    pub fn watched(&self, path: &Path) -> Vec<PathBuf> {
        let main = |text| {
            let folder = path.parent().unwrap_or(Path::new("")).to_owned();
            Document { name: path.display().to_string(), folder, text, on_disk: true }
        };
        let read = |text| read(Documents::default(), main(text), self.environment, Access::Disk).documents.watched();
        read_text(path).map_or_else(|_| vec![path.to_owned()], read)
    }

    /// The same files, as they were read, with other providers and changes beside them.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn load_beside(&self, loaded: &Loaded, beside: Beside<'_>) -> Result<Loaded, Diagnostics> {
        let mut sink = Sink::default();
        match self.join(&loaded.files_alone, beside.provided, &mut sink) {
            Ok(files) => self.assemble((files, Some(loaded)), beside.changes, sink, Access::Disk),
            Err(documents) => Err(sink.finish(&documents)),
        }
    }

    /// Makes the snapshot anew from the very same texts: the files that they name (certificates, keys, lists) are read again,
    /// and host names looked up again.
    ///
    /// # Errors
    /// Everything that is wrong with those files and names now.
    pub fn reload_files(&self, loaded: &Loaded) -> Result<Loaded, Diagnostics> {
        let texts = (loaded.documents.clone(), loaded.trees.clone());
        let origin = (loaded.files_alone.clone(), Arc::clone(&loaded.objects));
        self.resolve(texts, origin, (&Faulty::default(), None), (Sink::default(), Access::Disk))
    }

    pub(crate) fn load(&self, main: Document, beside: Beside<'_>, access: Access) -> Result<Loaded, Diagnostics> {
        let Reading { documents, tree, whole, mut sink } = read(Documents::default(), main, self.environment, access);
        let Some(mut tree) = tree else { return Err(sink.finish(&documents)) };
        paths::settle(&cached(self.filters), &mut tree, &documents);
        take_types(&cached(self.filters), &[], &mut tree);
        if !whole {
            let schema = cached(self.filters);
            let trees = Trees::of(&schema, Arc::new(tree), &documents, None, &mut sink);
            validate_joined(&schema, &trees, None, &mut sink);
            return Err(sink.finish(&documents));
        }
        let files = FilesAlone::new(documents, Arc::new(tree));
        match self.join(&files, beside.provided, &mut sink) {
            Ok(files) => self.assemble((files, None), beside.changes, sink, access),
            Err(documents) => Err(sink.finish(&documents)),
        }
    }

    /// Joins files and changes, and understands them. What is as it was before is not looked at again.
    fn assemble(
        &self,
        (files, before): (FilesAlone, Option<&Loaded>),
        changes: &Changes,
        mut sink: Sink,
        access: Access,
    ) -> Result<Loaded, Diagnostics> {
        let mut documents = files.documents.clone();
        let folder = documents.main().map(|main| main.folder.clone()).unwrap_or_default();
        let mut objects = Vec::new();
        let mut is_whole = true;
        for (place, text) in changes.texts() {
            let part = text.map(|text| {
                let part = document(&format!("api:{place}"), text, &folder);
                let mut part = read_part(&mut documents, part, &|name| self.variable(name), &mut sink)?;
                take_types(&cached(self.filters), &place.split('/').collect::<Vec<_>>(), &mut part);
                Some(part)
            });
            is_whole &= !matches!(part, Some(None));
            objects.push((place.to_owned(), part.flatten()));
        }
        let tree = match objects.is_empty() {
            true => Arc::clone(&files.tree),
            false => Arc::new(changes::merge(&files.tree, objects.clone())),
        };
        self.refuse_beyond(&tree)?;
        let (schema, known) = (cached(self.filters), before.map(|before| &before.trees));
        let trees = Trees::of(&schema, tree, &documents, known, &mut sink);
        let faulty = validate_joined(&schema, &trees, known.map(|known| &*known.merged), &mut sink);
        if !is_whole {
            return Err(sink.finish(&documents));
        }
        self.resolve((documents, trees), (files, Arc::new(objects)), (&faulty, before), (sink, access))
    }

    pub(crate) fn resolve(
        &self,
        (documents, trees): (Documents, Trees),
        (files_alone, objects): (FilesAlone, Arc<Objects>),
        (faulty, before): (&Faulty, Option<&Loaded>),
        (mut sink, access): (Sink, Access),
    ) -> Result<Loaded, Diagnostics> {
        let resolver = Resolver::new(self, access, (&documents, &trees.merged), faulty, &mut sink);
        let resolved = resolver.with_defaults_at(trees.keys_of_defaults()).knowing(before.map(Loaded::as_before)).run();
        let warnings = resolved.warnings.finish_warnings(&documents);
        if !sink.is_empty() {
            return Err(Diagnostics { warnings, ..sink.finish(&documents) });
        }
        let secret = match before {
            Some(before) => Arc::clone(&before.secret),
            None => Arc::new(effective::secret_names(self.filters)),
        };
        let effective = effective::shown(resolved.effective, &trees, &secret);
        let Resolved { snapshot, files, contained, own_zone, .. } = resolved;
        Ok(Loaded {
            snapshot,
            documents,
            trees,
            files_alone,
            objects,
            files,
            effective,
            secret,
            contained,
            own_zone,
            warnings,
            is_offline: self.is_offline,
        })
    }
}

impl FilesAlone {
    pub(crate) fn new(documents: Documents, tree: Arc<Node>) -> Self {
        let own = Arc::new((documents.clone(), Arc::clone(&tree)));
        Self { documents, tree, own, endpoints: Arc::default() }
    }
}

impl Loaded {
    /// Endpoints in the texts of providers, by provider and key.
    pub fn provided_endpoints(&self) -> &Arc<ProvidedEndpoints> {
        &self.files_alone.endpoints
    }

    /// Shows an issue that was found later, such as by compiling, at the line that it is about.
    pub fn diagnose(&self, issue: &Issue) -> Diagnostic {
        show(&self.documents, self.trees.merged.locate(&issue.path), &issue.message, issue.suggestion.clone())
    }

    /// Whether it was loaded as [`Loader::is_offline`] says.
    pub fn is_offline(&self) -> bool {
        self.is_offline
    }

    /// Adds a warning that was found later.
    pub fn warn(&mut self, issue: &Issue) {
        let warning = Diagnostic { is_warning: true, ..self.diagnose(issue) };
        self.warnings.push(warning);
    }

    /// The path of the template that an access log has: its own, or the one that it names.
    pub fn template_of(&self, log: usize) -> String {
        let logs = self.trees.merged.get("access_logs").map_or(&[][..], Node::items);
        let name = logs.get(log).and_then(|log| log.get("format")).and_then(Node::text);
        let named = name.filter(|name| self.trees.merged.get(LOG_FORMATS).is_some_and(|all| all.get(name).is_some()));
        named.map_or_else(|| format!("access_logs/{log}/line"), |name| format!("{LOG_FORMATS}/{name}"))
    }

    /// What is allowed but does nothing, or not what will be expected of it, in the order of files and lines.
    pub fn warnings(&self) -> &[Diagnostic] {
        &self.warnings
    }

    /// Certificates, keys, authorities and files of filters that were read, in order, each once.
    pub fn referenced_files(&self) -> &[PathBuf] {
        &self.files
    }

    /// The configuration with defaults filled in. What came from the environment is shown as it was written
    /// (`${NAME}`), and what is secret by its name is hidden.
    pub fn effective(&self) -> Value {
        effective::unsealed(self.sealed())
    }

    /// The same, but where a secret is hidden, text follows that differs when the secret does: to be compared, and then
    /// shown by [`unsealed`] alone.
    pub fn sealed(&self) -> Value {
        self.sealed_where(|_, _| true)
    }

    /// Of this configuration and another what [`Self::sealed`] gives, without clusters that are the very same in both.
    pub fn sealed_beside(&self, other: &Self) -> (Value, Value) {
        let (ours, theirs) = (self.trees.merged.get("clusters"), other.trees.merged.get("clusters"));
        let (in_ours, in_theirs) = (Twins::of(ours), Twins::of(theirs));
        // Where nothing but the order differs all of it is told.
        let is_moved = ours.zip(theirs).is_some_and(|(ours, theirs)| is_reordered(ours.entries(), theirs.entries()));
        let is_other = |twins: &Twins<'_>, key: &Key, node: &Node| is_moved || twins.same(key, node).is_none();
        let first = self.sealed_where(|key, node| is_other(&in_theirs, key, node));
        (first, other.sealed_where(|key, node| is_other(&in_ours, key, node)))
    }

    fn sealed_where(&self, wanted: impl Fn(&Key, &Node) -> bool) -> Value {
        let mut value = self.effective.clone();
        value["clusters"] = effective::clusters(&self.trees.merged, &self.secret, wanted);
        value
    }

    fn as_before(&self) -> Before<'_> {
        let (clusters, own_zone) = (self.snapshot.clusters.as_slice(), self.own_zone.as_deref());
        Before { tree: &self.trees.merged, clusters, contained: &self.contained, own_zone }
    }

    /// Takes the objects of an earlier configuration in the place of its own where they are equal.
    pub fn share_with(&mut self, before: &Self) {
        share(&mut self.snapshot.listeners, &before.snapshot.listeners, |one| &one.name);
        share(&mut self.snapshot.routes, &before.snapshot.routes, |one| &one.name);
        share(&mut self.snapshot.clusters, &before.snapshot.clusters, |one| &one.name);
    }

    /// Whether both say the same, in the same order, wherever it stands.
    pub fn says_same(&self, other: &Self) -> bool {
        changes::is_alike(&self.trees.written, &other.trees.written)
    }

    /// Whether both were made of the very same files, as they were read.
    pub fn has_files_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.files_alone.tree, &other.files_alone.tree)
    }

    /// It as it can be kept, to be gone back to.
    pub fn whole(&self) -> Whole {
        Whole::joined(&self.files_alone.tree, &self.objects)
    }

    /// What it reaches with the rights of the program: files, Unix sockets, variables of the environment, and for what. Each by
    /// a phrase.
    pub fn reach(&self, filters: &[FilterSpec]) -> BTreeSet<String> {
        paths::reach(&cached(filters), &self.trees.written)
    }

    /// The configuration as it was written, included files and changes joined, without what is secret by its name.
    pub fn written(&self, filters: &[FilterSpec]) -> Value {
        effective::hidden(changes::written(&self.trees.written), filters)
    }

    /// The whole of it as one text, from which it can be made again. It holds what is secret, where that was written
    /// into the file.
    pub fn text(&self) -> String {
        changes::text(&self.trees.written)
    }
}

/// Puts objects of `before` in the place of those that are equal.
fn share<T: PartialEq>(all: &mut [Arc<T>], before: &[Arc<T>], name: impl Fn(&T) -> &Name) {
    let known: HashMap<&Name, &Arc<T>> = before.iter().map(|one| (name(one), one)).collect();
    for one in all {
        if let Some(known) = known.get(name(one)).filter(|known| **known == one) {
            *one = Arc::clone(known);
        }
    }
}

/// Whether both hold the same keys in another order.
fn is_reordered(ours: &[(Key, Node)], theirs: &[(Key, Node)]) -> bool {
    let is_other = || ours.iter().zip(theirs).any(|((one, _), (other, _))| one.text != other.text);
    ours.len() == theirs.len() && is_other() && {
        let known: HashSet<&str> = theirs.iter().map(|(key, _)| key.text.as_str()).collect();
        ours.iter().all(|(key, _)| known.contains(key.text.as_str()))
    }
}

/// What [`Loaded::sealed`] gives, as it may be shown.
pub fn unsealed(value: Value) -> Value {
    effective::unsealed(value)
}

/// Checks a text alone: there is no environment, no filter, no file and no name service. For fuzzing.
///
/// # Errors
/// Everything that is wrong.
pub fn check_text(text: &str) -> Result<Snapshot, Diagnostics> {
    let no_names = |_: &NameLookup, _: &str, _: u16| Err(io::Error::other("names are not looked up here"));
    let loader =
        Loader { filters: &[], environment: &|_| None, resolve_host: &no_names, within: None, is_offline: false };
    let beside = Beside { provided: &[], changes: &Changes::default() };
    loader.load(document("text", text, Path::new("")), beside, Access::None).map(|loaded| loaded.snapshot)
}

/// The first thing that is wrong with a text of a provider by itself: beside nothing else, and without looking at any file.
pub fn fault_of_provided(loader: &Loader<'_>, provider: &str, text: &str) -> Option<Diagnostic> {
    let file = json!({
        "version": 1, "listeners": { "web": { "bind": "127.0.0.1:80" } }, "providers": { provider: { "file": { "path": "x" } } },
    });
    let text = ProvidedText { name: String::new(), folder: None, text: text.into() };
    let provided = [Provided { provider: provider.to_owned(), texts: vec![text] }];
    let beside = Beside { provided: &provided, changes: &Changes::default() };
    let loaded = loader.load(document("file", &file.to_string(), Path::new("")), beside, Access::None);
    loaded.err().and_then(|wrong| wrong.list.into_iter().next())
}

/// The same for a text of a provider, beside a file that names that provider and a cluster of its endpoints.
///
/// # Errors
/// Everything that is wrong.
pub fn check_provided(text: &str) -> Result<Snapshot, Diagnostics> {
    const FILE: &str = "version: 1\nlisteners: { web: { bind: '127.0.0.1:80' } }\nroutes: [{ cluster: site }]\n\
                        clusters: { site: { endpoints: { from: fleet } } }\nproviders: { fleet: { file: { path: x } } }\n";
    let no_names = |_: &NameLookup, _: &str, _: u16| Err(io::Error::other("names are not looked up here"));
    let loader =
        Loader { filters: &[], environment: &|_| None, resolve_host: &no_names, within: None, is_offline: false };
    let text = ProvidedText { name: "text".to_owned(), folder: None, text: text.into() };
    let provided = [Provided { provider: "fleet".to_owned(), texts: vec![text] }];
    let beside = Beside { provided: &provided, changes: &Changes::default() };
    loader.load(document("file", FILE, Path::new("")), beside, Access::None).map(|loaded| loaded.snapshot)
}

pub(crate) fn document(name: &str, text: &str, base: &Path) -> Document {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    Document { name: name.to_owned(), folder: base.to_owned(), text: text.into(), on_disk: false }
}
