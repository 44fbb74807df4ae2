//! The way in: text to [`Snapshot`], or to everything that is wrong with it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::Snapshot;
use model::provider::{NameLookup, Provider};
use model::snapshot::EndpointsFrom;
use serde_json::json;

use crate::changes::{self, Changes};
use crate::defaults::Trees;
use crate::diagnostic::{Diagnostic, Diagnostics, Sink, show};
use crate::effective;
use crate::faulty::Faulty;
use crate::host::Loader;
use crate::inherited;
use crate::interpolate::take_types;
use crate::loaded::{FilesAlone, Loaded};
use crate::paths;
use crate::provided::{Provided, ProvidedText};
use crate::read::{Access, Reading, read, read_part, read_text};
use crate::resolve::{Before, Resolved, Resolver};
use crate::schema::cached;
use crate::source::{Document, Documents, Span};
use crate::tree::Node;
use crate::validate::validate;
use crate::whole::Objects;

/// What stands beside the files: what providers give, and before all else changes by the API.
#[derive(Clone, Copy, Debug)]
pub struct Beside<'a> {
    /// In the order in which they stand.
    pub provided: &'a [Provided],
    /// Objects in the place of all others.
    pub changes: &'a Changes,
}

/// Texts as they were read, joined with what stands beside them.
pub(crate) struct Texts {
    pub(crate) documents: Documents,
    pub(crate) trees: Trees,
    /// The files without changes.
    pub(crate) files_alone: FilesAlone,
    /// The changes.
    pub(crate) objects: Arc<Objects>,
}

impl Loader<'_> {
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

    /// Returns the same with what stands beside the file.
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

    /// Returns the same with what stands beside the text.
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

    /// Returns the folder in which a file says that changes are kept, if it says so. What is wrong with the file is reported when it is loaded.
    pub fn state_folder(&self, path: &Path) -> Option<PathBuf> {
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        let main = Document { name: path.display().to_string(), folder, text: read_text(path).ok()?, on_disk: true };
        let Reading { documents, tree, .. } = read(Documents::default(), main, self.environment, Access::Disk);
        let tree = tree?;
        let state = tree.get("admin")?.get("state")?;
        Some(documents.get(state.span.file)?.folder.join(state.text()?))
    }

    /// Returns the providers that a file names, and what its clusters ask of each, as far as that can be understood. What is wrong with the
    /// file is reported when it is loaded.
    pub fn providers(&self, path: &Path) -> (Vec<Arc<Provider>>, Vec<EndpointsFrom>) {
        let Ok(text) = read_text(path) else { return <_>::default() };
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        self.providers_of(Document { name: path.display().to_string(), folder, text, on_disk: true })
    }

    /// Returns the same of a text. Relative paths in it start at `base`.
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

    /// Returns the same files, as they were read, with other changes. The files that they name (certificates, keys, lists) are read again.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn load_changed(&self, loaded: &Loaded, changes: &Changes) -> Result<Loaded, Diagnostics> {
        self.assemble((loaded.files_alone.clone(), Some(loaded)), changes, Sink::default(), Access::Disk)
    }

    /// Returns a file, what it includes, and the folders that it looks into for that, as far as they can be read.
    pub fn watched(&self, path: &Path) -> Vec<PathBuf> {
        let main = |text| {
            let folder = path.parent().unwrap_or(Path::new("")).to_owned();
            Document { name: path.display().to_string(), folder, text, on_disk: true }
        };
        let read = |text| read(Documents::default(), main(text), self.environment, Access::Disk).documents.watched();
        read_text(path).map_or_else(|_| vec![path.to_owned()], read)
    }

    /// Returns the same files, as they were read, with other providers and changes beside them.
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

    /// Makes the snapshot again from the very same texts: the files that they name (certificates, keys, lists) are read again,
    /// and host names looked up again.
    ///
    /// # Errors
    /// Everything that is wrong with those files and names now.
    pub fn reload_files(&self, loaded: &Loaded) -> Result<Loaded, Diagnostics> {
        let (documents, trees) = (loaded.documents.clone(), loaded.trees.clone());
        let (files_alone, objects) = (loaded.files_alone.clone(), Arc::clone(&loaded.objects));
        let texts = Texts { documents, trees, files_alone, objects };
        self.resolve(texts, (&Faulty::default(), None), (Sink::default(), Access::Disk))
    }

    pub(crate) fn load(&self, main: Document, beside: Beside<'_>, access: Access) -> Result<Loaded, Diagnostics> {
        let Reading { documents, tree, whole, mut sink } = read(Documents::default(), main, self.environment, access);
        let Some(mut tree) = tree else { return Err(sink.finish(&documents)) };
        paths::settle(&cached(self.filters), &mut tree, &documents);
        take_types(&cached(self.filters), &[], &mut tree);
        if !whole {
            let schema = cached(self.filters);
            let trees = Trees::of(&schema, Arc::new(tree), &documents, None, &mut sink);
            trees.validate(&schema, None, &mut sink);
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
        let faulty = trees.validate(&schema, known, &mut sink);
        if !is_whole {
            return Err(sink.finish(&documents));
        }
        let texts = Texts { documents, trees, files_alone: files, objects: Arc::new(objects) };
        self.resolve(texts, (&faulty, before), (sink, access))
    }

    pub(crate) fn resolve(
        &self,
        Texts { documents, trees, files_alone, objects }: Texts,
        (faulty, before): (&Faulty, Option<&Loaded>),
        (mut sink, access): (Sink, Access),
    ) -> Result<Loaded, Diagnostics> {
        let resolver = Resolver::new(self, access, (&documents, &trees.merged), faulty, &mut sink);
        let resolved = resolver
            .with_defaults_at(trees.keys_of_defaults())
            .nested_in(&trees.above)
            .knowing(before.map(before_of))
            .run();
        let mut resolved = resolved;
        if sink.is_empty() {
            inherited::warn(&trees, &resolved.snapshot.routes, &mut resolved.warnings);
        }
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

/// Returns what an earlier configuration came to.
fn before_of(loaded: &Loaded) -> Before<'_> {
    let (clusters, own_zone) = (loaded.snapshot.clusters.as_slice(), loaded.own_zone.as_deref());
    Before { tree: &loaded.trees.merged, clusters, contained: &loaded.contained, own_zone }
}

/// Checks a text alone: there is no environment, no filter, no file and no name service. For fuzzing.
///
/// # Errors
/// Everything that is wrong.
pub fn check_text(text: &str) -> Result<Snapshot, Diagnostics> {
    let no_names = |_: &NameLookup, _: &str, _: u16| Err(io::Error::other("host names are not resolved here"));
    let loader =
        Loader { filters: &[], environment: &|_| None, resolve_host: &no_names, within: None, is_offline: false };
    let beside = Beside { provided: &[], changes: &Changes::default() };
    loader.load(document("text", text, Path::new("")), beside, Access::None).map(|loaded| loaded.snapshot)
}

/// Returns the first thing that is wrong with a text of a provider by itself: beside nothing else, and without looking at any file.
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

/// Returns the same for a text of a provider, beside a file that names that provider and a cluster of its endpoints.
///
/// # Errors
/// Everything that is wrong.
pub fn check_provided(text: &str) -> Result<Snapshot, Diagnostics> {
    const FILE: &str = "version: 1\nlisteners: { web: { bind: '127.0.0.1:80' } }\nroutes: [{ cluster: site }]\n\
                        clusters: { site: { endpoints: { from: fleet } } }\nproviders: { fleet: { file: { path: x } } }\n";
    let no_names = |_: &NameLookup, _: &str, _: u16| Err(io::Error::other("host names are not resolved here"));
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
