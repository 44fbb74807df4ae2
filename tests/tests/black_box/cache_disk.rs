//! The disk of a cache: what it keeps over restarts, and what it does with files that are not as they were written.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::cache::response;
use super::harness::product::{command_in, executable, folder};
use super::harness::{Origin, Product, Setup, eventually};

const LABELS: &[&str] = &["cache=\"pages\""];

/// An origin whose body to `/N/…` is N bytes that begin with the number of the request.
fn sized() -> Origin {
    let count = AtomicUsize::new(0);
    Origin::answering(move |request| {
        let number = count.fetch_add(1, Ordering::SeqCst) + 1;
        let length = request.target().split('/').nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
        let fields = ["Cache-Control: max-age=600", "ETag: \"1\"", "Surrogate-Key: all"];
        response(
            "200 OK",
            &fields,
            &format!("{number} {}", "0123456789abcdef".repeat(length / 16 + 1)[..length].to_owned()),
        )
    })
}

fn setup(origin: &Origin, disk: &str) -> Setup {
    Setup::to(origin)
        .top(format!("caches: {{ pages: {{ memory: 1MiB, disk: {{ path: DIR/cache, {disk} }} }} }}"))
        .route("filters: [{ cache: { store: pages, tags: surrogate-key, body_max: 10MiB } }]")
}

fn restart(mut product: Product, text: &str) -> Product {
    product.signal(libc::SIGKILL);
    product.wait_ended();
    restart_in(product, text)
}

/// Starts another where one has ended.
fn restart_in(mut ended: Product, text: &str) -> Product {
    Product::start_in(ended.take_folder(), text, 2)
}

/// Which request of the origin the answer is from.
fn number(product: &Product, path: &str) -> String {
    let answer = product.get(path);
    assert_eq!(answer.status(), 200);
    let text = answer.text();
    let (number, body) = text.split_once(' ').expect("a number");
    let length: usize = path.split('/').nth(1).expect("a length").parse().expect("a length");
    assert!(body.len() == length && "0123456789abcdef".repeat(length / 16 + 1).starts_with(body), "another body");
    number.to_owned()
}

fn on_disk(product: &Product, wanted: f64) {
    product.expect_metric("equipoise_cache_disk_entries", LABELS, wanted);
}

/// All files of the cache, but for those that are being written.
fn files(product: &Product) -> Vec<PathBuf> {
    let all = files_of(product.folder()).into_iter();
    all.filter(|path| !path.to_string_lossy().contains(".tmp-")).collect()
}

fn files_of(folder: &Path) -> Vec<PathBuf> {
    let list = |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    list(&folder.join("cache")).flat_map(|part| list(&part).collect::<Vec<_>>()).collect()
}

/// Has a file look as if it was written a while ago: what is newer may be that of another process.
fn make_older(path: &Path) {
    let file = std::fs::File::options().write(true).open(path).expect("it is there");
    file.set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(61)).expect("it is ours");
}

fn failures(product: &Product, reason: &str) -> f64 {
    product.metric("equipoise_cache_disk_failures_total", &[LABELS[0], &format!("reason=\"{reason}\"")])
}

#[test]
fn what_is_stored_is_there_after_a_kill_and_a_large_body_is_read_from_its_file() {
    let origin = sized();
    let all = setup(&origin, "max: 100MiB");
    let product = all.start();
    let told: Vec<_> = ["/100/a", "/5000000/b", "/70000/c", "/0/d"].map(|path| number(&product, path)).into();
    on_disk(&product, 4.0);
    for path in files(&product) {
        let mode = |path: &Path| std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().expect("a folder"))), (0o600, 0o700));
    }
    let product = restart(product, &all.text());
    on_disk(&product, 4.0);
    for _ in 0..2 {
        let again: Vec<_> = ["/100/a", "/5000000/b", "/70000/c", "/0/d"].map(|path| number(&product, path)).into();
        assert_eq!(again, told);
    }
    assert_eq!(origin.requests().len(), 4);
    let hits = |tier: &str| product.metric("equipoise_cache_hits_total", &[LABELS[0], &format!("tier=\"{tier}\"")]);
    assert_eq!((hits("disk"), hits("memory")), (5.0, 3.0), "small ones are read once, the large one each time");
    let mut peer = product.connect();
    let part = peer.ask("GET /5000000/b HTTP/1.1\r\nHost: test\r\nRange: bytes=65530-65600\r\n\r\n");
    assert_eq!((part.status(), part.text().len()), (206, 71));
    let same = peer.ask("GET /5000000/b HTTP/1.1\r\nHost: test\r\nIf-None-Match: \"1\"\r\n\r\n");
    assert_eq!((same.status(), same.text().as_str()), (304, ""));
    let told = product.api("/api/caches/pages");
    assert_eq!((told["disk"]["entries"].as_u64(), told["disk"]["failures"]["bad_file"].as_u64()), (Some(4), Some(0)));
}

/// Names of files that are being written.
fn temporary(folder: &Path) -> usize {
    let parts = std::fs::read_dir(folder.join("cache")).into_iter().flatten().flatten();
    let names = parts.flat_map(|part| std::fs::read_dir(part.path()).into_iter().flatten().flatten());
    names.filter(|entry| entry.file_name().to_string_lossy().starts_with(".tmp-")).count()
}

#[test]
fn a_kill_in_the_middle_of_a_write_and_a_client_that_leaves_leave_no_part() {
    let (tell, told) = std::sync::mpsc::channel::<()>();
    let told = std::sync::Mutex::new(told);
    let count = AtomicUsize::new(0);
    let head = "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: 2000000\r\n\r\n";
    let origin = Origin::start(move |mut visit| {
        while visit.request().is_some() {
            let half = "h".repeat(1_000_000);
            if count.fetch_add(1, Ordering::SeqCst) < 2 {
                let _ = visit.peer.try_send(format!("{head}{half}"));
                let _ = told.lock().expect("free").recv();
                return;
            }
            if visit.peer.try_send(format!("{head}{half}{half}")).is_err() {
                return;
            }
        }
    });
    let all = setup(&origin, "max: 100MiB");
    let mut product = all.start();
    let ask = "GET / HTTP/1.1\r\nHost: test\r\n\r\n";
    let mut first = product.connect();
    first.send(ask);
    first.head();
    eventually("it is being written", || temporary(product.folder()) == 1);
    first.reset();
    eventually("nothing is left of it", || temporary(product.folder()) == 0);
    tell.send(()).expect("the origin waits");
    let mut second = product.connect();
    second.send(ask);
    second.head();
    eventually("it is being written", || temporary(product.folder()) == 1);
    product.signal(libc::SIGKILL);
    product.wait_ended();
    assert_eq!(temporary(product.folder()), 1);
    files_of(product.folder()).iter().for_each(|path| make_older(path));
    let product = restart_in(product, &all.text());
    eventually("it is removed", || temporary(product.folder()) == 0);
    assert_eq!(product.metric("equipoise_cache_disk_entries", LABELS), 0.0);
    for _ in 0..2 {
        assert_eq!(product.get("/").text().len(), 2_000_000);
        on_disk(&product, 1.0);
    }
    assert_eq!(origin.requests().len(), 3);
    drop(tell);
}

#[test]
fn a_large_body_is_fetched_once_for_all_and_validated_without_being_sent_again() {
    let body: &'static str = "0123456789abcdef".repeat(30_000).leak();
    let origin = Origin::answering(move |request| match request.field("if-none-match") {
        Some(_) => {
            b"HTTP/1.1 304 Not Modified\r\nCache-Control: max-age=600\r\nETag: \"1\"\r\nX-New: 1\r\n\r\n".to_vec()
        }
        None => response("200 OK", &["Cache-Control: max-age=0", "ETag: \"1\""], body),
    });
    let product = setup(&origin, "max: 100MiB").start();
    assert!(product.get("/").text() == body);
    on_disk(&product, 1.0);
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let mut peer = product.connect();
            peer.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
            peer
        })
        .collect();
    for mut peer in clients {
        assert!(peer.response().text() == body);
    }
    eventually("the new head is on disk", || product.get("/").field("x-new") == Some("1"));
    let asked = origin.requests().len();
    assert!(product.get("/").text() == body);
    assert_eq!(origin.requests().len(), asked);
    assert_eq!(origin.requests().iter().filter(|request| request.field("if-none-match").is_none()).count(), 1);
    on_disk(&product, 1.0);
    eventually("the older file is gone", || files(&product).len() == 1);
}

#[test]
fn an_upgrade_keeps_what_is_stored_and_both_processes_write() {
    let origin = sized();
    let all = setup(&origin, "max: 100MiB");
    let product = all.start();
    let first = number(&product, "/300000/a");
    on_disk(&product, 1.0);
    product.upgrade();
    eventually("the new process finds the file", || number(&product, "/300000/a") == first);
    number(&product, "/100/b");
    eventually("both files are there", || files(&product).len() == 2);
}

#[test]
fn files_that_are_not_as_they_were_written_are_removed_and_never_served() {
    let origin = sized();
    let all = setup(&origin, "max: 100MiB");
    let mut product = all.start();
    let paths = ["/100/a", "/2000000/b", "/80000/c", "/90000/d"];
    paths.iter().for_each(|path| drop(number(&product, path)));
    on_disk(&product, 4.0);
    product.signal(libc::SIGKILL);
    product.wait_ended();
    let mut all_files = files(&product);
    all_files.sort_by_key(|path| std::fs::metadata(path).expect("it is there").len());
    let lengths = |place: usize| std::fs::read(&all_files[place]).expect("it is there");
    // One in its header, one in the middle of its body, one cut short, and a link in place of the last.
    let mut head = lengths(0);
    head[100] ^= 1;
    std::fs::write(&all_files[0], head).expect("it can be written");
    let short = lengths(1);
    std::fs::write(&all_files[1], &short[..short.len() - 1]).expect("it can be written");
    std::fs::remove_file(&all_files[2]).expect("it is there");
    std::os::unix::fs::symlink("/etc/passwd", &all_files[2]).expect("it can be made");
    let mut body = lengths(3);
    body[1_000_000] ^= 1;
    std::fs::write(&all_files[3], body).expect("it can be written");
    let part = all_files[0].parent().expect("a folder").to_owned();
    std::fs::write(part.join(".tmp-1"), "torn").expect("it can be written");
    make_older(&part.join(".tmp-1"));
    std::fs::write(part.join("notes.txt"), "mine").expect("it can be written");
    std::fs::write(part.join(format!("{}{}", part.file_name().unwrap().to_str().unwrap(), "0".repeat(30))), "foreign")
        .expect("it can be written");
    let product = restart_in(product, &all.text());
    eventually("four files are found out", || failures(&product, "bad_file") == 4.0);
    on_disk(&product, 1.0);
    let here = |name: &str| files_named(&product, name);
    eventually("what was torn is gone", || !here(".tmp-1"));
    assert!(here("notes.txt"), "what is not ours stays");
    // The head of the last is good. Its body ends where it is not.
    let mut peer = product.connect();
    peer.send("GET /2000000/b HTTP/1.1\r\nHost: test\r\n\r\n");
    assert_eq!(peer.head().status(), 200);
    assert!(peer.rest().len() < 1_000_000);
    eventually("it is removed", || failures(&product, "bad_file") == 5.0);
    let again: Vec<_> = paths.map(|path| number(&product, path)).into();
    assert_eq!(again.len(), 4);
    assert_eq!(origin.requests().len(), 8);
}

fn files_named(product: &Product, name: &str) -> bool {
    let parts = std::fs::read_dir(product.folder().join("cache")).expect("it is there");
    parts.flatten().any(|part| part.path().join(name).exists())
}

#[test]
fn a_purge_reaches_the_disk_and_survives_a_kill() {
    let origin = sized();
    let all = setup(&origin, "max: 100MiB");
    let product = all.start();
    for path in ["/100/a", "/2000000/b", "/100/c"] {
        number(&product, path);
    }
    on_disk(&product, 3.0);
    let purge = |query: &str| product.call(&format!("DELETE /api/caches/pages/entries{query}"), &[], "").text();
    assert_eq!(purge("?url=http%3A%2F%2Ftest%2F100%2Fa"), "{\"purged\":1}");
    assert_eq!(purge("?tag=all&soft=true"), "{\"purged\":2}");
    assert_eq!(files(&product).len(), 2);
    let product = restart(product, &all.text());
    on_disk(&product, 2.0);
    assert_eq!(product.call("DELETE /api/caches/pages/entries", &[], "").text(), "{\"purged\":2}");
    let product = restart(product, &all.text());
    assert!(files(&product).is_empty());
    number(&product, "/100/c");
    assert_eq!(origin.requests().len(), 4);
}

#[test]
fn a_file_that_cannot_be_removed_is_told_by_the_purge() {
    let origin = sized();
    let product = setup(&origin, "max: 100MiB").start();
    number(&product, "/100/a");
    on_disk(&product, 1.0);
    // A folder in the place of the file is not removed.
    let file = files(&product).remove(0);
    std::fs::remove_file(&file).expect("it is there");
    std::fs::create_dir_all(file.join("x")).expect("it can be made");
    let purge = || product.call("DELETE /api/caches/pages/entries", &[], "");
    let told = purge();
    assert_eq!(told.status(), 503);
    assert!(told.text().contains("1 responses of `pages` are purged"), "{}", told.text());
    number(&product, "/100/b");
    assert!(failures(&product, "write") >= 1.0);
    std::fs::remove_dir_all(&file).expect("it is there");
    assert_eq!(purge().status(), 200);
}

#[test]
fn a_changed_key_does_not_find_what_another_has_stored() {
    let origin = sized();
    let all = setup(&origin, "max: 100MiB");
    let other = all.text().replace("store: pages,", "store: pages, key: { ignore: [a] },");
    assert_ne!(other, all.text());
    let product = all.start();
    let first = number(&product, "/100/a");
    on_disk(&product, 1.0);
    let product = restart(product, &other);
    on_disk(&product, 1.0);
    let second = number(&product, "/100/a");
    assert_ne!(first, second);
    on_disk(&product, 2.0);
    let product = restart(product, &all.text());
    assert_eq!(number(&product, "/100/a"), first);
}

#[test]
fn the_bound_on_the_disk_holds_and_a_removed_folder_is_made_again() {
    let origin = sized();
    let product = setup(&origin, "max: 10MiB").start();
    for place in 0..12 {
        number(&product, &format!("/1000000/{place}"));
    }
    eventually("the bound holds", || product.metric("equipoise_cache_disk_bytes", LABELS) <= f64::from(10 << 20));
    eventually("files made room", || product.metric("equipoise_cache_disk_evictions_total", LABELS) >= 2.0);
    std::fs::remove_dir_all(product.folder().join("cache")).expect("it is there");
    for place in 0..12 {
        number(&product, &format!("/1000000/{place}"));
    }
    assert_eq!(failures(&product, "bad_file"), 0.0);
    eventually("files are written again", || !files(&product).is_empty());
}

#[test]
fn a_file_that_cannot_be_written_stops_no_other_and_no_request() {
    let origin = sized();
    let place = folder();
    let text = setup(&origin, "max: 100MiB").text().replace("DIR", place.path().to_str().expect("a path"));
    std::fs::write(place.path().join("equipoise.yaml"), text).expect("it can be written");
    // No file can be longer than 64 KiB.
    let mut command = Command::new("sh");
    let run = "trap '' XFSZ; ulimit -f 128; exec \"$0\" run -c equipoise.yaml --workers 2";
    command.args(["-c", run]).arg(executable());
    let product = Product::spawn_command(&mut command, place);
    number(&product, "/100/a");
    on_disk(&product, 1.0);
    number(&product, "/800000/b");
    eventually("the failure is counted", || failures(&product, "write") >= 1.0);
    eventually("and logged", || product.stderr().contains("cannot write files of a cache"));
    for round in 0..20 {
        number(&product, &format!("/800000/{round}"));
    }
    // One file is too long for the disk, which takes others.
    number(&product, "/100/c");
    on_disk(&product, 2.0);
    assert_eq!(product.stderr().matches("cannot write files of a cache").count(), 1);
    assert!(files(&product).len() == 2);
}

#[test]
fn folders_that_cannot_be_used_are_reported() {
    let origin = sized();
    let place = folder();
    std::fs::write(place.path().join("file"), "").expect("it can be written");
    let text = |caches: &str, more: &str| {
        let caches = caches.replace("DIR", place.path().to_str().expect("a path"));
        let filter = format!("filters: [{{ cache: {{ store: a{more} }} }}]");
        Setup::to(&origin).top(format!("caches: {{ {caches} }}")).route(filter).text()
    };
    for (caches, more, wanted) in [
        (
            "a: { disk: { path: DIR/x, max: 1GiB } }, b: { disk: { path: DIR/./x/, max: 1GiB } }",
            "",
            "the caches `a` and `b` have the same folder",
        ),
        ("a: { disk: { path: cache, max: 1GiB } }", "", "is not the absolute path of a folder"),
        ("a: { disk: { path: DIR/x, max: 2MiB } }", "", "raise `disk.max`"),
        ("a: { disk: { path: DIR/x, max: 20MiB } }", ", body_max: 30MiB", "raise `disk.max`"),
        ("a: { disk: { path: DIR/x, max: 1KiB } }", "", "from 1MiB to 1PiB"),
        (
            "a: { disk: { path: DIR/file, max: 1GiB } }",
            "",
            "make it a folder that the user of the process may write to",
        ),
    ] {
        std::fs::write(place.path().join("a.yaml"), text(caches, more)).expect("it can be written");
        let ended = command_in(place.path(), &["check", "a.yaml"]);
        let said = ended.stdout + &ended.stderr;
        assert!(!ended.status.success() && said.contains(wanted), "{caches}: {said}");
    }
}
