//! Providers: what they give comes into force without a word from anybody, and what is wrong with it changes nothing.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::harness::net::free;
use super::harness::origin::{ok, ok_for};
use super::harness::poll::{SECOND, half_within};
use super::harness::product::{self, Product};
use super::harness::{Message, Origin, eventually, tls, until};
use super::reload::Load;

/// A listener, the administrator's address, and this.
fn setup(rest: &str) -> String {
    format!("version: 1\nlisteners: {{ web: {{ bind: \"127.0.0.1:0\" }} }}\nadmin: {{ bind: \"127.0.0.1:0\" }}\n{rest}")
}

/// A cluster whose endpoints come from the provider `fleet`, which is this.
fn fleet(provider: &str) -> String {
    let cluster = "routes: [{ cluster: site }]\nclusters: { site: { endpoints: { from: fleet } } }\n";
    setup(&format!("{cluster}providers: {{ fleet: {{ {provider} }} }}\n"))
}

fn endpoints(origins: &[&Origin]) -> String {
    let list: Vec<String> = origins.iter().map(|origin| format!("\"{}\"", origin.address())).collect();
    format!("endpoints: {{ site: [{}] }}\n", list.join(", "))
}

/// Puts a file in the place of another, as careful programs do.
fn put(folder: &Path, name: &str, text: &str) {
    let beside = folder.join(format!(".{name}.tmp"));
    fs::write(&beside, text).expect("a file");
    fs::rename(&beside, folder.join(name)).expect("renamed");
}

fn in_folder(name: &str, text: &str) -> tempfile::TempDir {
    let folder = product::folder();
    put(folder.path(), name, text);
    folder
}

fn status(product: &Product, name: &str) -> Value {
    let told = product.api("/api/providers");
    let all = told["providers"].as_array().expect("a list");
    all.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("{told}")).clone()
}

fn expect(product: &Product, name: &str, key: &str, wanted: &str) {
    eventually(&format!("{key} of {name} is {wanted}"), || status(product, name)[key].as_str() == Some(wanted));
}

/// What a refused provider wants, once it is refused.
fn problems(product: &Product, name: &str) -> String {
    until("it is refused", || status(product, name)["problems"].as_str().map(str::to_owned))
}

fn says(product: &Product, path: &str) -> String {
    let answer = product.get(path);
    format!("{} {}", answer.status(), answer.text())
}

fn expect_answer(product: &Product, wanted: &str) {
    eventually(&format!("the answer is {wanted}"), || says(product, "/").contains(wanted));
}

#[test]
fn endpoints_come_from_a_file_and_follow_it_under_load_without_a_failed_request() {
    let origins = [Origin::saying("one"), Origin::saying("two"), Origin::saying("three")];
    let [one, two, three] = &origins;
    let folder = in_folder("fleet.yaml", &endpoints(&[one]));
    let product = Product::start_in(folder, &fleet("file: { path: fleet.yaml, interval: 20ms }"), 2);
    assert!(says(&product, "/").contains("one"), "the start waits for what it says first");
    let load = Load::on(&product, 4);
    for change in 0..12 {
        let now = [[one, two], [two, three], [three, one]][change % 3];
        put(product.folder(), "fleet.yaml", &endpoints(&now));
        let names: Vec<String> = now.iter().map(|origin| origin.address().to_string()).collect();
        eventually("the endpoints are there", || {
            let told = product.api("/api/clusters/site/endpoints");
            let list = told["endpoints"].as_array().expect("a list");
            list.iter().map(|one| one["name"].as_str().expect("a name").to_owned()).eq(names.iter().cloned())
        });
        let before = load.done();
        eventually("the load goes on", || load.done() > before + 20);
    }
    load.end();
    let told = status(&product, "fleet");
    assert_eq!((told["state"].as_str(), told["endpoints"].as_u64()), (Some("up"), Some(2)), "{told}");
    product.expect_metric("equipoise_provider_up", &["fleet"], 1.0);
    product.expect_metric("equipoise_provider_endpoints", &["fleet"], 2.0);
}

/// Brings one endpoint after the other by `give`, and looks when each is felt.
fn felt_within_a_second(product: &Product, what: &str, origins: [&Origin; 2], give: impl Fn(&str)) {
    half_within(SECOND, what, |number| {
        let now = (number + 1) % 2;
        let text = endpoints(&[origins[now]]);
        let begun = Instant::now();
        give(&text);
        expect_answer(product, ["one", "two"][now]);
        begun.elapsed()
    });
}

#[test]
fn another_file_is_felt_within_a_second() {
    let (one, two) = (Origin::saying("one"), Origin::saying("two"));
    let folder = in_folder("fleet.yaml", &endpoints(&[&one]));
    let product = Product::start_in(folder, &fleet("file: { path: fleet.yaml, interval: 100ms }"), 2);
    let give = |text: &str| put(product.folder(), "fleet.yaml", text);
    felt_within_a_second(&product, "a change of a file that is looked at every 100 ms", [&one, &two], give);
}

#[test]
fn a_file_that_is_whole_is_taken_at_once_and_one_that_is_being_written_is_not() {
    let (one, two, three) = (Origin::saying("one"), Origin::saying("two"), Origin::saying("three"));
    let folder = in_folder("fleet.yaml", &endpoints(&[&one]));
    // Nothing is found by looking.
    let product = Product::start_in(folder, &fleet("file: { path: fleet.yaml, interval: 1h }"), 2);
    expect_answer(&product, "one");
    put(product.folder(), "fleet.yaml", &endpoints(&[&two]));
    expect_answer(&product, "two");
    let mut file = fs::File::create(product.folder().join("fleet.yaml")).expect("a file");
    let text = endpoints(&[&three]);
    let (first, rest) = text.split_at(text.len() / 2);
    file.write_all(first.as_bytes()).expect("half");
    product.reload_unchanged();
    assert!(says(&product, "/").contains("two"));
    file.write_all(rest.as_bytes()).expect("the rest");
    drop(file);
    expect_answer(&product, "three");
    assert_eq!(status(&product, "fleet")["refused"], 0, "nothing was read half");
}

#[test]
fn a_bad_file_changes_nothing_and_is_told_with_the_provider_and_the_line() {
    let origin = Origin::saying("one");
    let folder = in_folder("fleet.yaml", &endpoints(&[&origin]));
    let product = Product::start_in(folder, &fleet("file: { path: fleet.yaml, interval: 20ms }"), 2);
    for (bad, place) in [
        ("endpoints: { site: [\"127.0.0.1", "fleet.yaml:1"),
        ("endpoints:\n  site: [nowhere]\n", "fleet.yaml:2:10: `nowhere` is not an address with a port"),
        ("admin: { bind: \"127.0.0.1:1\" }\n", "a provider cannot deliver `admin`"),
        ("routes: [{ cluster: nobody }]\n", "there is no cluster `nobody`"),
    ] {
        let refused = product.metric("equipoise_provider_refused_total", &["fleet"]);
        put(product.folder(), "fleet.yaml", bad);
        product.expect_metric("equipoise_provider_refused_total", &["fleet"], refused + 1.0);
        eventually(place, || {
            let told = problems(&product, "fleet");
            told.contains("provider:fleet:") && told.contains(place)
        });
        product.expect_said(&[place]);
        assert!(says(&product, "/").contains("one"), "what was before stays");
    }
    let ctl = product_ctl(&product);
    assert!(ctl.contains("the new state of fleet is rejected") && ctl.contains("nobody"), "{ctl}");
    put(product.folder(), "fleet.yaml", &endpoints(&[&origin]));
    eventually("it is good again", || status(&product, "fleet")["problems"].is_null());
}

#[test]
fn what_a_provider_gives_is_not_shown_to_who_reads_what_is_wrong_with_it() {
    let origin = Origin::saying("one");
    let folder = in_folder("fleet.yaml", &endpoints(&[&origin]));
    let product = Product::start_in(folder, &fleet("file: { path: fleet.yaml, interval: 20ms }"), 2);
    let wrong = "basic_auth: { users: { ann: s3cret }, relm: x }";
    put(product.folder(), "fleet.yaml", &format!("routes: [{{ cluster: site, filters: [{{ {wrong} }}] }}]\n"));
    let told = problems(&product, "fleet");
    assert!(told.contains("fleet.yaml:1:") && told.contains("relm") && !told.contains("s3cret"), "{told}");
    product.expect_said(&["fleet.yaml:1:", "relm"]);
    assert!(!product.stderr().contains("s3cret"), "{}", product.stderr());
}

fn product_ctl(product: &Product) -> String {
    let admin = product.address("admin").to_string();
    let ended = product::command(&["ctl", "--admin", &admin, "providers"]);
    ended.stdout
}

#[test]
fn a_file_that_is_gone_unreadable_or_huge_leaves_what_was() {
    let (one, two) = (Origin::saying("one"), Origin::saying("two"));
    let folder = in_folder("fleet.yaml", &endpoints(&[&one]));
    let product = Product::start_in(folder, &fleet("file: { path: fleet.yaml, interval: 20ms }"), 2);
    let file = product.folder().join("fleet.yaml");
    let away = |why: &str| {
        expect(&product, "fleet", "state", "away");
        eventually(why, || status(&product, "fleet")["reason"].as_str().is_some_and(|reason| reason.contains(why)));
        product.expect_metric("equipoise_provider_up", &["fleet"], 0.0);
        assert!(says(&product, "/").contains("one"));
    };
    fs::remove_file(&file).expect("removed");
    away("there is no such file");
    fs::create_dir(&file).expect("a folder in its place");
    fs::remove_dir(&file).expect("removed");
    fs::File::create(&file).and_then(|file| file.set_len(17 << 20)).expect("a huge file");
    away("larger than");
    fs::write(&file, [0xff, 0xfe, 0x00]).expect("a file");
    away("not UTF-8");
    put(product.folder(), "fleet.yaml", &endpoints(&[&two]));
    expect_answer(&product, "two");
    expect(&product, "fleet", "state", "up");
}

#[test]
fn a_pipe_in_the_place_of_a_file_is_told_and_holds_no_provider_up() {
    let (one, other) = (Origin::saying("one"), Origin::saying("other"));
    let folder = in_folder("fleet.yaml", &endpoints(&[&one]));
    super::harness::sys::pipe_at(&folder.path().join("pipe.yaml"));
    let text = fleet("file: { path: fleet.yaml, interval: 100ms }")
        .replace("providers: {", "providers: { pipe: { file: { path: pipe.yaml, interval: 100ms } },");
    let mut product = Product::start_in(folder, &text, 1);
    expect_answer(&product, "one");
    eventually("it is told", || status(&product, "pipe").to_string().contains("it is not a file"));
    put(product.folder(), "fleet.yaml", &endpoints(&[&other]));
    expect_answer(&product, "other");
    product.signal(libc::SIGTERM);
    assert!(product.wait_ended().success());
}

#[test]
fn a_file_written_in_pieces_is_taken_when_it_is_whole() {
    use std::io::Write as _;
    let (one, two) = (Origin::saying("one"), Origin::saying("two"));
    let folder = in_folder("fleet.yaml", &endpoints(&[&one]));
    let product = Product::start_in(folder, &fleet("file: { path: fleet.yaml, interval: 300ms }"), 2);
    let text = format!("# {}\n{}", "x".repeat(200), endpoints(&[&two]));
    let mut file = fs::File::create(product.folder().join("fleet.yaml")).expect("a file");
    for piece in text.as_bytes().chunks(8) {
        file.write_all(piece).expect("written");
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(file);
    expect_answer(&product, "two");
}

#[test]
fn a_folder_whose_content_is_swapped_by_a_link_gives_whole_objects() {
    let (one, two) = (Origin::saying("one"), Origin::saying("two"));
    let folder = product::folder();
    let objects = |origin: &Origin| {
        let clusters = format!("clusters: {{ site: {{ endpoints: [\"{}\"] }} }}\n", origin.address());
        [("clusters.yaml", clusters), ("routes.json", "{\"routes\": [{\"cluster\": \"site\"}]}".to_owned())]
    };
    // As Kubernetes mounts a ConfigMap: names lead to `..data`, which leads to the content.
    let mount = folder.path().join("sites");
    let fill = |version: &str, origin: &Origin| {
        fs::create_dir_all(mount.join(version)).expect("a folder");
        objects(origin)
            .iter()
            .for_each(|(name, text)| fs::write(mount.join(version).join(name), text).expect("a file"));
        symlink(version, mount.join("..tmp")).expect("a link");
        fs::rename(mount.join("..tmp"), mount.join("..data")).expect("renamed");
    };
    fill("..1", &one);
    for (name, _) in objects(&one) {
        symlink(Path::new("..data").join(name), mount.join(name)).expect("a link");
    }
    let text = setup("providers: { sites: { file: { path: sites, interval: 20ms } } }\n");
    let product = Product::start_in(folder, &text, 2);
    assert!(says(&product, "/").contains("one"));
    fill("..2", &two);
    expect_answer(&product, "two");
    fs::remove_file(product.folder().join("sites/routes.json")).expect("removed");
    expect_answer(&product, "404");
    assert_eq!(product.metric("equipoise_provider_refused_total", &["sites"]), 0.0);
}

#[test]
fn who_comes_second_with_a_name_is_refused_until_the_name_is_free() {
    let (one, two) = (Origin::saying("one"), Origin::saying("two"));
    let folder = product::folder();
    let objects = |origin: &Origin| {
        format!("routes: [{{ cluster: site }}]\nclusters: {{ site: {{ endpoints: [\"{}\"] }} }}\n", origin.address())
    };
    put(folder.path(), "a.yaml", &objects(&one));
    put(folder.path(), "b.yaml", &objects(&two));
    let text = setup(
        "providers: { b: { file: { path: a.yaml, interval: 20ms } }, a: { file: { path: b.yaml, interval: 20ms } } }\n",
    );
    let product = Product::start_in(folder, &text, 2);
    assert!(says(&product, "/").contains("one"), "the first in the order of the file");
    let told = problems(&product, "a");
    assert!(told.contains("provider:a:") && told.contains("is defined twice, first in provider:b:"), "{told}");
    // The files cannot take a name either that somebody has.
    let said = product.reload(&format!("{text}clusters: {{ site: {{ endpoints: [\"127.0.0.1:1\"] }} }}\n"));
    assert!(said.contains("is defined twice") && said.contains("provider:b:"), "{said}");
    put(product.folder(), "a.yaml", "version: 1\n");
    expect_answer(&product, "two");
    eventually("nothing is refused", || status(&product, "a")["problems"].is_null());
}

#[test]
fn what_cannot_be_published_of_one_provider_holds_up_neither_another_nor_the_files() {
    let (one, two) = (Origin::saying("one"), Origin::saying("two"));
    let folder = in_folder("fleet.yaml", &endpoints(&[&one]));
    put(folder.path(), "doors.yaml", "version: 1\n");
    let text = fleet("file: { path: fleet.yaml, interval: 20ms }")
        .replace("providers: {", "providers: { doors: { file: { path: doors.yaml, interval: 20ms } },");
    let product = Product::start_in(folder, &text, 2);
    assert!(says(&product, "/").contains("one"));
    let busy = free();
    let taken = std::net::TcpListener::bind(busy).expect("a free port");
    put(product.folder(), "doors.yaml", &format!("listeners: {{ more: {{ bind: \"{busy}\" }} }}\n"));
    let told = problems(&product, "doors");
    assert!(told.contains(&format!("listener more: cannot listen on {busy}")), "{told}");
    // It is tried with all that comes, and refused alone.
    put(product.folder(), "fleet.yaml", &endpoints(&[&two]));
    expect_answer(&product, "two");
    assert!(status(&product, "fleet")["problems"].is_null());
    let own = "routes: [{ match: { path: { exact: /own } }, respond: { body: own } }, ";
    let said = product.reload(&text.replace("routes: [", own));
    assert!(said.contains("configuration is live"), "{said}");
    assert!(says(&product, "/own").contains("own"));
    let told = product.call("POST /api/reload", &[], "");
    assert_eq!(told.status(), 200, "{}", told.text());
    assert!(status(&product, "doors")["problems"].as_str().is_some_and(|told| told.contains("cannot listen")));
    // Until it can be: by itself, though files were read meanwhile.
    drop(taken);
    eventually("the listener is there", || {
        product.api("/api/status")["listeners"].as_array().is_some_and(|all| all.len() == 2)
    });
    eventually("nothing is refused", || status(&product, "doors")["problems"].is_null());
}

#[test]
fn what_cannot_be_published_for_a_moment_comes_into_force_by_itself() {
    let folder = in_folder("doors.yaml", "version: 1\n");
    let text = fleet("file: { path: fleet.yaml }").replace("fleet.yaml", "doors.yaml");
    let product = Product::start_in(folder, &text, 1);
    let busy = free();
    let taken = std::net::TcpListener::bind(busy).expect("a free port");
    put(product.folder(), "doors.yaml", &format!("listeners: {{ more: {{ bind: \"{busy}\" }} }}\n"));
    let told = problems(&product, "fleet");
    assert!(told.contains(&format!("listener more: cannot listen on {busy}")), "{told}");
    drop(taken);
    eventually("the listener is there", || {
        product.api("/api/status")["listeners"].as_array().is_some_and(|all| all.len() == 2)
    });
    eventually("nothing is refused", || status(&product, "fleet")["problems"].is_null());
}

#[test]
fn a_wish_waits_for_an_endpoint_that_comes_back_and_can_be_taken_back_meanwhile() {
    let (one, two) = (Origin::saying("one"), Origin::saying("two"));
    let folder = in_folder("fleet.yaml", &endpoints(&[&one, &two]));
    let product = Product::start_in(folder, &fleet("file: { path: fleet.yaml, interval: 20ms }"), 2);
    let wish = |state: &str| {
        let call = format!("PUT /api/clusters/site/endpoints/{}/state", one.address());
        let answer = product.call(&call, &["Content-Type: application/json"], &format!("{{ \"state\": \"{state}\" }}"));
        assert_eq!(answer.status(), 200, "{}", answer.text());
    };
    let give = |origins: &[&Origin]| {
        put(product.folder(), "fleet.yaml", &endpoints(origins));
        eventually("the endpoints are there", || {
            let told = product.api("/api/clusters/site/endpoints");
            told["endpoints"].as_array().is_some_and(|all| all.len() == origins.len())
        });
    };
    wish("maintenance");
    // It is started anew where it is, and the files are read meanwhile.
    give(&[&two]);
    product.reload_unchanged();
    give(&[&one, &two]);
    assert!((0..20).all(|_| says(&product, "/").contains("two")), "it is worked on still");
    give(&[&two]);
    wish("ready");
    give(&[&one, &two]);
    expect_answer(&product, "one");
}

/// Answers with a document under a tag, as long as it is wanted.
struct Site {
    origin: Origin,
    answer: Arc<Mutex<Vec<u8>>>,
    not_modified: Arc<AtomicUsize>,
}

impl Site {
    fn start(document: &str) -> Self {
        let answer = Arc::new(Mutex::new(tagged(document)));
        let not_modified = Arc::new(AtomicUsize::new(0));
        let origin = Origin::answering({
            let (answer, not_modified) = (Arc::clone(&answer), Arc::clone(&not_modified));
            move |request: &Message| {
                let answer = answer.lock().expect("an answer").clone();
                let known = request.field("if-none-match").map(|tag| format!("etag: {tag}\r\n"));
                if known.is_some_and(|known| String::from_utf8_lossy(&answer).contains(&known)) {
                    not_modified.fetch_add(1, Ordering::SeqCst);
                    return b"HTTP/1.1 304 Not Modified\r\n\r\n".to_vec();
                }
                answer
            }
        });
        Self { origin, answer, not_modified }
    }

    fn set(&self, answer: impl Into<Vec<u8>>) {
        *self.answer.lock().expect("an answer") = answer.into();
    }

    fn provider(&self) -> String {
        fleet(&format!("http: {{ url: \"http://{}/fleet.yaml\", interval: 20ms, timeout: 3s }}", self.origin.address()))
    }
}

/// What tags are made with.
static TAGS: OnceLock<RandomState> = OnceLock::new();

fn tagged(document: &str) -> Vec<u8> {
    let tag = format!("etag: \"{:x}\"\r\n", TAGS.get_or_init(RandomState::new).hash_one(document));
    format!("HTTP/1.1 200 OK\r\n{tag}content-length: {}\r\n\r\n{document}", document.len()).into_bytes()
}

#[test]
fn a_document_is_asked_for_by_http_and_what_is_wrong_with_answers_changes_nothing() {
    let (one, two) = (Origin::saying("one"), Origin::saying("two"));
    let site = Site::start(&endpoints(&[&one]));
    let product = Product::start(&site.provider());
    assert!(says(&product, "/").contains("one"));
    eventually("it is asked by its tag", || site.not_modified.load(Ordering::SeqCst) > 2);
    for (answer, why) in [
        (b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n".to_vec(), "answered 500"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxx\r\n".to_vec(), "chunks"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n".to_vec(), "no complete response within 3s"),
        (b"SSH-2.0-x\r\n\r\n".to_vec(), "not valid HTTP/1"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n\xff\xfe".to_vec(), "not UTF-8"),
        (format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(20_000)).into_bytes(), "longer than 16384 bytes"),
    ] {
        site.set(answer);
        eventually(why, || status(&product, "fleet")["reason"].as_str().is_some_and(|reason| reason.contains(why)));
        assert!(says(&product, "/").contains("one"));
        // Back again, so that the next failure is asked for soon.
        site.set(tagged(&endpoints(&[&one])));
        expect(&product, "fleet", "state", "up");
    }
    site.set(tagged("endpoints: { site: [x] }"));
    let told = problems(&product, "fleet");
    assert!(told.contains(&format!("provider:fleet:http://{}/fleet.yaml:1:", site.origin.address())), "{told}");
    site.set(tagged(&endpoints(&[&two])));
    expect_answer(&product, "two");
}

#[test]
fn another_document_is_felt_within_a_second() {
    let (one, two) = (Origin::saying("one"), Origin::saying("two"));
    let site = Site::start(&endpoints(&[&one]));
    let product = Product::start(&site.provider().replace("20ms", "100ms"));
    let give = |text: &str| site.set(tagged(text));
    felt_within_a_second(&product, "a change of a document that is asked for every 100 ms", [&one, &two], give);
}

#[test]
fn an_answer_without_end_is_given_up_at_its_bound_and_one_that_hangs_at_its_time() {
    let one = Origin::saying("one");
    let document = endpoints(&[&one]);
    let wanted = Arc::new(Mutex::new("good"));
    let site = Origin::start({
        let wanted = Arc::clone(&wanted);
        move |mut visit| {
            while visit.request().is_some() {
                let now = *wanted.lock().expect("a word");
                match now {
                    "good" => drop(visit.peer.try_send(ok(&document))),
                    "hang" => {
                        // Until the other side gives up.
                        while visit.peer.fill().is_ok_and(|count| count > 0) {}
                        return;
                    }
                    _ => {
                        drop(visit.peer.try_send("HTTP/1.1 200 OK\r\n\r\n"));
                        while visit.peer.try_send("# more and more\n".repeat(1000)).is_ok() {}
                        return;
                    }
                }
            }
        }
    });
    let settings =
        format!("http: {{ url: \"http://{}/\", interval: 20ms, timeout: 4s, size_max: 64KiB }}", site.address());
    let product = Product::start(&fleet(&settings));
    assert!(says(&product, "/").contains("one"));
    for (word, why) in [("endless", "larger than 65536 bytes"), ("hang", "within 4s")] {
        *wanted.lock().expect("a word") = word;
        eventually(why, || status(&product, "fleet")["reason"].as_str().is_some_and(|reason| reason.contains(why)));
        assert!(says(&product, "/").contains("one"));
        *wanted.lock().expect("a word") = "good";
        expect(&product, "fleet", "state", "up");
    }
}

#[test]
fn a_provider_is_asked_by_tls_with_an_authority_of_its_own_and_credentials() {
    let one = Origin::saying("one");
    let authority = tls::Authority::new("test");
    let document = endpoints(&[&one]);
    let site =
        Origin::start_tls(tls::origin(&authority.issue(&["config.test", "localhost"]), None), move |mut visit| {
            visit.answer_all(|request| {
                let is_known = request.field("authorization") == Some("Basic bWU6c2VjcmV0");
                Some(if is_known {
                    ok_for(request, &document)
                } else {
                    b"HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n".to_vec()
                })
            });
        });
    let folder = product::folder();
    authority.write(folder.path(), "ca");
    let file = until("the authority is written", || {
        fs::read_dir(folder.path())
            .expect("a folder")
            .filter_map(Result::ok)
            .find(|one| one.file_name().to_string_lossy().starts_with("ca"))
    });
    let settings = |more: &str| {
        format!(
            "start_timeout: 1s, http: {{ url: \"https://localhost:{}/\", interval: 20ms, basic_auth: {{ user: me, password: secret }}{more} }}",
            site.address().port()
        )
    };
    let tls = format!(", tls: {{ authorities: \"{}\" }}", file.path().display());
    let product = Product::start_in(folder, &fleet(&settings("")), 2);
    assert!(says(&product, "/").contains("503"), "nobody vouches for it");
    eventually("the handshake has failed", || {
        status(&product, "fleet")["reason"].as_str().is_some_and(|reason| reason.contains("TLS handshake failed"))
    });
    product.reload(&fleet(&settings(&tls)));
    expect_answer(&product, "one");
    assert!(!product.api("/api/config").to_string().contains("secret\""), "the password is hidden");
}

#[test]
fn what_was_kept_is_there_after_a_start_while_the_provider_is_away() {
    let one = Origin::saying("one");
    let site = Site::start(&endpoints(&[&one]));
    let folder = product::folder();
    let text = site.provider().replace("admin: {", "admin: { state: \"DIR\",");
    let product = Product::start_in(folder, &text, 2);
    assert!(says(&product, "/").contains("one"));
    let kept = product.folder().join("provider.fleet.json");
    eventually("it is kept", || kept.exists());
    let again = product::folder();
    fs::copy(&kept, again.path().join("provider.fleet.json")).expect("a copy");
    drop(product);
    site.set(b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n".to_vec());
    let product = Product::start_in(again, &text, 2);
    assert!(says(&product, "/").contains("one"), "{}", product.stderr());
    expect(&product, "fleet", "state", "away");
    assert_eq!(status(&product, "fleet")["kept_from_before"], true);
    site.set(tagged(&endpoints(&[&one])));
    expect(&product, "fleet", "state", "up");
    assert_eq!(status(&product, "fleet")["kept_from_before"], false);
}

#[test]
fn a_kept_state_that_cannot_be_read_is_told_and_does_not_forbid_the_start() {
    let one = Origin::saying("one");
    let site = Site::start(&endpoints(&[&one]));
    let folder = in_folder("provider.fleet.json", "{ \"format\": 1, \"state\": {");
    let product = Product::start_in(folder, &site.provider().replace("admin: {", "admin: { state: \"DIR\","), 2);
    assert!(says(&product, "/").contains("one"));
    product.expect_said(&["the saved state of a provider cannot be read", "provider.fleet.json"]);
    let kept = product.folder().join("provider.fleet.json");
    eventually("it is kept anew", || fs::read_to_string(&kept).is_ok_and(|text| text.contains("127.0.0.1")));
}

#[test]
fn without_a_word_from_its_provider_a_cluster_has_no_endpoints_and_gets_them_when_it_speaks() {
    let one = Origin::saying("one");
    for balance in [
        "round_robin",
        "random",
        "least_request",
        "power_of_two",
        "least_time",
        "peak_ewma",
        "first",
        "hash: { on: path }",
    ] {
        let text = fleet("start_timeout: 10ms, file: { path: fleet.yaml, interval: 20ms }")
            .replace("from: fleet }", &format!("from: fleet }}, balance: {balance}, queue: {{ requests_max: 5 }}"))
            .replace("balance: hash: { on: path }", "balance: { hash: { on: path } }");
        let product = Product::start(&text);
        assert!(says(&product, "/").starts_with("503"), "{balance}");
        expect(&product, "fleet", "state", "away");
        put(product.folder(), "fleet.yaml", &endpoints(&[&one]));
        expect_answer(&product, "one");
        put(product.folder(), "fleet.yaml", "endpoints: { site: [] }");
        expect_answer(&product, "503");
        put(product.folder(), "fleet.yaml", &endpoints(&[&one]));
        expect_answer(&product, "one");
    }
}

#[test]
fn the_main_file_is_watched_where_that_is_wanted() {
    let (one, two) = (Origin::saying("one"), Origin::saying("two"));
    let folder = product::folder();
    fs::create_dir(folder.path().join("sites")).expect("a folder");
    let text = setup("include: sites/\nwatch: true\nroutes: [{ cluster: site }]\n");
    let cluster = |origin: &Origin| format!("clusters: {{ site: {{ endpoints: [\"{}\"] }} }}\n", origin.address());
    put(&folder.path().join("sites"), "site.yaml", &cluster(&one));
    let product = Product::start_in(folder, &text, 2);
    assert!(says(&product, "/").contains("one"));
    put(&product.folder().join("sites"), "site.yaml", &cluster(&two));
    expect_answer(&product, "two");
    put(&product.folder().join("sites"), "more.yaml", "clusters: { more: { endpoints: [x] } }");
    product.expect_said(&["more.yaml:1", "configuration rejected"]);
    assert!(says(&product, "/").contains("two"));
    fs::remove_file(product.folder().join("sites/more.yaml")).expect("removed");
    put(&product.folder().join("sites"), "site.yaml", &cluster(&one));
    expect_answer(&product, "one");
    assert_eq!(product.stderr().matches("configuration rejected").count(), 1, "a mistake is told once");
}

#[test]
fn what_the_api_changes_stands_before_what_a_provider_gives() {
    let (one, two) = (Origin::saying("one"), Origin::saying("two"));
    let objects = |origin: &Origin| {
        format!("routes: [{{ cluster: site }}]\nclusters: {{ site: {{ endpoints: [\"{}\"] }} }}\n", origin.address())
    };
    let folder = in_folder("a.yaml", &objects(&one));
    let product =
        Product::start_in(folder, &setup("providers: { a: { file: { path: a.yaml, interval: 20ms } } }\n"), 2);
    let object = format!("{{\"endpoints\": [\"{}\"]}}", two.address());
    let fields = ["Content-Type: application/json", "If-Match: *"];
    let answer = product.call("PUT /api/config/clusters/site", &fields, &object);
    assert_eq!(answer.status(), 200, "{}", answer.text());
    assert!(says(&product, "/").contains("two"));
    put(product.folder(), "a.yaml", &format!("# other\n{}", objects(&one)));
    let text = "listeners: { more: { bind: \"127.0.0.1:0\" } }\n";
    put(product.folder(), "a.yaml", &format!("{text}{}", objects(&one)));
    eventually("the provider gave a listener", || {
        product.api("/api/status")["listeners"].as_array().is_some_and(|all| all.len() == 2)
    });
    assert!(says(&product, "/").contains("two"), "the cluster is the API's");
    let answer = product.call("DELETE /api/config", &fields[1..], "");
    assert_eq!(answer.status(), 200, "{}", answer.text());
    assert!(says(&product, "/").contains("one"), "and the provider's again");
}
