//! A configuration without mistakes, with all that can be asked of it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use model::filter::FilterSpec;
use model::snapshot::Endpoint;
use model::{Issue, Name, Snapshot};
use serde_json::Value;

use crate::changes;
use crate::defaults::Trees;
use crate::diagnostic::{Diagnostic, show};
use crate::effective;
use crate::file::LOG_FORMATS;
use crate::part;
use crate::paths;
use crate::schema::cached;
use crate::source::Documents;
use crate::tree::{ByName, Key, Node};
use crate::whole::{Objects, Whole};

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
    pub(crate) objects: Arc<Objects>,
    pub(crate) files: Vec<PathBuf>,
    /// With defaults filled in; what is secret is sealed. Clusters are made when they are asked for.
    pub(crate) effective: Value,
    /// What is secret by its name.
    pub(crate) secret: Arc<HashSet<String>>,
    /// As in [`crate::resolve::Before`].
    pub(crate) contained: Vec<bool>,
    pub(crate) own_zone: Option<String>,
    pub(crate) warnings: Vec<Diagnostic>,
    /// As in [`Loader`].
    pub(crate) is_offline: bool,
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

/// Endpoints by provider and key.
pub type ProvidedEndpoints = BTreeMap<(String, String), Arc<[Endpoint]>>;

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
        let span = part::place_of(&self.documents, &self.trees.merged, issue);
        show(&self.documents, span, &issue.message, issue.suggestion.clone())
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
        let (in_ours, in_theirs) = (ByName::of(ours), ByName::of(theirs));
        // Where nothing but the order differs all of it is told.
        let is_moved = ours.zip(theirs).is_some_and(|(ours, theirs)| is_reordered(ours.entries(), theirs.entries()));
        let is_other = |known: &ByName<'_>, key: &Key, node: &Node| is_moved || known.same(key, node).is_none();
        let first = self.sealed_where(|key, node| is_other(&in_theirs, key, node));
        (first, other.sealed_where(|key, node| is_other(&in_ours, key, node)))
    }

    fn sealed_where(&self, wanted: impl Fn(&Key, &Node) -> bool) -> Value {
        let mut value = self.effective.clone();
        value["clusters"] = effective::clusters(&self.trees.merged, &self.secret, wanted);
        value
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
