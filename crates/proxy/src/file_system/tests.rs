use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::*;

/// A directory of its own, with a secret beside it, that is gone with the test.
struct Site(PathBuf);

impl Site {
    fn new(name: &str) -> Self {
        let own = std::env::temp_dir().join(format!("equipoise-files-{}-{name}", std::process::id()));
        let site = Self(own);
        std::fs::create_dir_all(site.root().join("sub/empty")).expect("a directory");
        site.write("index.html", b"home");
        site.write("sub/page.html", b"page");
        std::fs::write(site.0.join("secret"), "secret").expect("a file");
        site
    }

    fn root(&self) -> PathBuf {
        self.0.join("root")
    }

    fn write(&self, path: &str, bytes: &[u8]) {
        std::fs::write(self.root().join(path), bytes).expect("a file");
    }

    fn ask(&self, path: &str, root: impl FnOnce(&mut FileRoot)) -> FileAsk {
        let mut own = FileRoot {
            directory: self.root().to_string_lossy().into_owned(),
            symlinks: Symlinks::Beneath,
            index: vec!["index.html".to_owned()],
            fallback: None,
            entries_max: 0,
        };
        root(&mut own);
        FileAsk { root: Arc::new(own), path: path.as_bytes().to_vec(), codings: Vec::new() }
    }

    /// What is found: the bytes of a small file, or a word for all else. A look that does not block finds the same, or leaves it.
    fn look(&self, path: &str, root: impl FnOnce(&mut FileRoot)) -> String {
        let ask = self.ask(path, root);
        let found = word(find(&ask));
        if let Some(now) = find_now(&ask) {
            assert_eq!(word(now), found, "{path}");
        }
        found
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn word(found: FileFound) -> String {
    match found {
        FileFound::File(file) => match &file.bytes {
            Some(bytes) => format!("{}{}", String::from_utf8_lossy(bytes), file.coding.unwrap_or_default()),
            None => format!("{} bytes", file.length),
        },
        FileFound::Directory(entries) => {
            let mut names: Vec<_> = entries.iter().map(|entry| String::from_utf8_lossy(&entry.name)).collect();
            names.sort();
            names.join(" ")
        }
        other => format!("{other:?}"),
    }
}

fn plain(_: &mut FileRoot) {}

fn mkfifo(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status().expect("mkfifo");
    assert!(made.success());
}

#[test]
fn files_and_directories_are_found_as_their_paths_say() {
    let site = Site::new("found");
    for (path, wanted) in [
        ("", "home"),
        ("index.html", "home"),
        ("index.html/", "Missing"),
        ("sub", "WithoutSlash"),
        ("sub/", "Missing"),
        ("sub/page.html", "page"),
        ("sub/page.html/x", "Missing"),
        ("none", "Missing"),
    ] {
        assert_eq!(site.look(path, plain), wanted, "{path}");
    }
    let fallback = |root: &mut FileRoot| root.fallback = Some("index.html".to_owned());
    assert_eq!((site.look("a/b/c", fallback), site.look("sub/", fallback)), ("home".into(), "home".into()));
    assert_eq!(site.look("sub/", |root| root.entries_max = 10), "empty page.html");
    assert_eq!(site.look("sub/", |root| root.entries_max = 1).split(' ').count(), 1);
    assert_eq!(site.look("x", |root| root.directory.push_str("-none")), "Missing");
    assert_eq!(site.look(&"a".repeat(4_000), plain), "Missing");
}

#[test]
fn what_is_in_memory_is_found_without_blocking() {
    let site = Site::new("now");
    site.write("large", &[7; 100_000]);
    let now = |path: &str| {
        let ask = site.ask(path, plain);
        find(&ask);
        find_now(&ask).map(word)
    };
    let found = ["index.html", "large", "sub", "none"].map(now);
    assert_eq!(found.map(Option::unwrap_or_default), ["home", "100000 bytes", "WithoutSlash", "Missing"]);
    let FileFound::File(file) = find(&site.ask("large", plain)) else { panic!("it is there") };
    let (content, mut room) = (file.content.expect("it is large"), [0; 10]);
    assert_eq!(content.read_now(&mut room, 99_995).map(|read| read.expect("it is open")), Some(5));
    assert_eq!((room, content.file().is_some()), ([7, 7, 7, 7, 7, 0, 0, 0, 0, 0], true));
    // To open a file of `/proc` may do anything.
    let ask = site.ask("version", |root| root.directory = "/proc".to_owned());
    find(&ask);
    assert!(find_now(&ask).is_none());
}

#[test]
fn a_file_that_was_read_a_moment_ago_is_kept_and_a_change_of_it_is_seen_at_once() {
    let site = Site::new("recent");
    let ask = |path: &str| site.ask(path, |root| root.fallback = Some("index.html".to_owned()));
    let (index, page, missing) = (ask(""), ask("sub/page.html"), ask("none"));
    let now = |ask: &FileAsk| {
        find(ask);
        find_now(ask).map(word).unwrap_or_default()
    };
    let before = recent::counts().0;
    assert_eq!((now(&page), recent::counts().0 - before), ("page".to_owned(), 0), "it may be changed in the same tick");
    std::thread::sleep(Duration::from_millis(150));
    assert_eq!([&index, &page, &missing].map(now), ["home", "page", "home"]);
    assert_eq!(recent::counts().0 - before, 2, "what stands for others is not kept");
    assert_eq!([&index, &page].map(now), ["home", "page"]);
    // The same length, in the same place.
    site.write("sub/page.html", b"gape");
    assert_eq!(now(&page), "gape");
    std::fs::rename(site.root().join("sub/page.html"), site.root().join("index.html")).expect("a rename");
    assert_eq!([&index, &page].map(now), ["gape", "gape"], "the second by the fallback");
    std::fs::remove_file(site.root().join("index.html")).expect("it is there");
    assert_eq!([&index, &page].map(now), ["Missing", "Missing"]);
    // The root is a link to another release.
    let (one, other, current) = (site.0.join("one"), site.0.join("other"), site.0.join("current"));
    for (folder, text) in [(&one, "one"), (&other, "two")] {
        std::fs::create_dir(folder).expect("a directory");
        std::fs::write(folder.join("a"), text).expect("a file");
    }
    symlink(&one, &current).expect("a link");
    std::thread::sleep(Duration::from_millis(150));
    let linked = site.ask("a", |root| root.directory = current.to_string_lossy().into_owned());
    assert_eq!([now(&linked), now(&linked)], ["one", "one"]);
    symlink(&other, site.0.join("next")).expect("a link");
    std::fs::rename(site.0.join("next"), &current).expect("a rename");
    assert_eq!(now(&linked), "two");
}

#[test]
fn links_lead_out_of_the_root_only_where_all_are_followed() {
    let site = Site::new("links");
    let link = |to: &str, name: &str| symlink(to, site.root().join(name)).expect("a link");
    link("../secret", "out");
    link("/etc/passwd", "absolute");
    link("sub/page.html", "inside");
    link("..", "up");
    link("loop", "loop");
    link("/proc/self/root", "magic");
    let with = |links| move |root: &mut FileRoot| root.symlinks = links;
    for (path, refused, beneath, followed) in [
        ("out", "Missing", "Missing", "secret"),
        ("up/secret", "Missing", "Missing", "secret"),
        ("up/root/index.html", "Missing", "Missing", "home"),
        ("inside", "Missing", "page", "page"),
        ("loop", "Missing", "Missing", "Missing"),
        ("magic/etc/passwd", "Missing", "Missing", "Missing"),
    ] {
        assert_eq!(site.look(path, with(Symlinks::Refuse)), refused, "{path}");
        assert_eq!(site.look(path, with(Symlinks::Beneath)), beneath, "{path}");
        assert_eq!(site.look(path, with(Symlinks::Follow)), followed, "{path}");
    }
    assert_eq!(site.look("absolute", plain), "Missing");
    // The kernel keeps this one out, even where the caller does not.
    assert_eq!(site.look("../secret", plain), "Missing");
    assert_eq!(site.look("/etc/passwd", plain), "Missing");
}

#[test]
fn only_regular_files_are_given() {
    let site = Site::new("types");
    mkfifo(&site.root().join("fifo"));
    let _socket = std::os::unix::net::UnixListener::bind(site.root().join("socket")).expect("a socket");
    assert_eq!((site.look("fifo", plain), site.look("socket", plain)), ("Missing".into(), "Missing".into()));
    let devices = |root: &mut FileRoot| root.directory = "/dev".to_owned();
    assert_eq!((site.look("zero", devices), site.look("null", devices)), ("Missing".into(), "Missing".into()));
}

#[test]
fn a_coding_beside_is_given_unless_it_is_older() {
    let site = Site::new("codings");
    site.write("index.html.br", b"short");
    let mut ask = site.ask("", plain);
    ask.codings = vec![".zst", ".br"];
    assert_eq!(word(find(&ask)), "short.br");
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(60);
    let beside = File::options().write(true).open(site.root().join("index.html.br")).expect("it is there");
    beside.set_modified(old).expect("a time");
    assert_eq!(word(find(&ask)), "home");
}

#[test]
fn a_large_file_stays_open_and_keeps_its_bytes_when_another_takes_its_name() {
    let site = Site::new("large");
    site.write("large", &vec![b'a'; REPLAY_BYTES_MAX + 1]);
    let FileFound::File(file) = find(&site.ask("large", plain)) else { panic!("it is there") };
    let content = file.content.as_ref().expect("it is open");
    site.write("other", &vec![b'b'; REPLAY_BYTES_MAX + 1]);
    std::fs::rename(site.root().join("other"), site.root().join("large")).expect("a rename");
    let mut room = [0; 10];
    assert_eq!(content.read_at(&mut room, 40_000).expect("it is read"), 10);
    assert_eq!(room, [b'a'; 10]);
    assert_eq!(content.read_at(&mut room, file.length).expect("it is the end"), 0);
}

#[test]
fn a_large_file_that_was_sent_a_moment_ago_stays_open_for_about_a_second_without_further_requests() {
    let site = Site::new("open");
    site.write("large", &vec![b'a'; REPLAY_BYTES_MAX + 1]);
    let ask = site.ask("large", plain);
    std::thread::sleep(Duration::from_millis(150));
    let first = || {
        let found = find_now(&ask).unwrap_or_else(|| find(&ask));
        let FileFound::File(file) = found else { return 0 };
        let mut room = [0];
        file.content.as_ref().expect("it is open").read_at(&mut room, 0).expect("it is read");
        room[0]
    };
    let open = || recent::counts().1;
    assert_eq!((first(), open()), (b'a', 0), "nobody would close it in time");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        if find_now(&ask).is_none() {
            return; // The file system cannot say what is in memory.
        }
        assert_eq!((first(), open()), (b'a', 1));
        site.write("large", &vec![b'b'; REPLAY_BYTES_MAX + 1]);
        assert_eq!(first(), b'b', "a change is seen at once");
        std::fs::remove_file(site.root().join("large")).expect("it is there");
        assert_eq!(first(), 0);
        let begin = Instant::now();
        while open() > 0 {
            assert!(begin.elapsed() < Duration::from_secs(30), "it is closed");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
}
