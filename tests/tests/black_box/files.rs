//! The filter `files`: files of a directory over every version of HTTP, and nothing beside them.

use std::fs::File;
use std::net::TcpStream;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

use super::harness::http2::{Client, request, with_fields};
use super::harness::peer::Stream;
use super::harness::{Message, Origin, Peer, Product, Setup, eventually, http3, sys};
use super::http3::site;

const CLEAR: &str = "clear: { bind: \"127.0.0.1:0\" }";
const MIB: usize = 1 << 20;

fn serving(settings: &str) -> Setup {
    serving_beside(&Origin::saying("endpoint"), settings)
}

fn serving_beside(origin: &Origin, settings: &str) -> Setup {
    Setup::to(origin).route(format!("filters: [{{ files: {{ root: DIR/www{settings} }} }}]"))
}

fn write(product: &Product, path: &str, bytes: &[u8]) {
    let path = product.folder().join("www").join(path);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("it is made");
    std::fs::write(path, bytes).expect("it is written");
}

fn ask(product: &Product, path: &str, fields: &str) -> Message {
    product.connect().ask(format!("GET {path} HTTP/1.1\r\nHost: test\r\n{fields}\r\n"))
}

/// Any piece of a file says where it is from.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|place| ((place as u32).wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

#[test]
fn files_of_every_length_come_over_every_version() {
    let site = site(serving("").listener_more(CLEAR), 2);
    let clear = site.product.address("clear");
    let (mut first, mut second, mut third) = (Peer::connect(clear), Client::connect(clear), site.connect());
    for length in [0, 1, 49_152, 49_153, 65_536, 3 * MIB + 7] {
        let wanted = pattern(length);
        write(&site.product, "a.bin", &wanted);
        let one = first.get("/a.bin");
        assert_eq!((one.status(), one.field("content-length")), (200, Some(length.to_string().as_str())));
        assert!(one.body == wanted, "{length} over HTTP/1");
        assert!(second.get("/a.bin").body == wanted, "{length} over HTTP/2");
        assert!(third.get("/a.bin").body == wanted, "{length} over HTTP/3");
        first.send("HEAD /a.bin HTTP/1.1\r\nHost: test\r\n\r\n");
        assert_eq!(first.head().field("content-length"), Some(length.to_string().as_str()));
    }
    let mut old = Peer::connect(clear);
    old.send("GET /a.bin HTTP/1.0\r\n\r\n");
    assert!(old.response().body == pattern(3 * MIB + 7));
}

#[test]
fn a_small_site_is_served_as_people_expect() {
    let origin = Origin::saying("endpoint");
    let product = serving_beside(&origin, ", cache_control: max-age=60").start();
    write(&product, "index.html", b"home");
    write(&product, "docs/index.html", b"docs");
    write(&product, "empty/x.tar.gz", b"x");
    let home = product.get("/");
    assert_eq!((home.text().as_str(), home.field("content-type")), ("home", Some("text/html; charset=utf-8")));
    assert_eq!((home.field("cache-control"), home.field("accept-ranges")), (Some("max-age=60"), Some("bytes")));
    assert_eq!(product.get("/empty/x.tar.gz").field("content-type"), Some("application/gzip"));
    let moved = product.get("/docs?a=1");
    assert_eq!((moved.status(), moved.field("location")), (301, Some("./docs/?a=1")));
    assert_eq!(product.get("/docs/").text(), "docs");
    assert_eq!([product.get("/none").status(), product.get("/empty/").status()], [404, 404]);
    let post = product.connect().ask("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 1\r\n\r\nx");
    assert_eq!((post.status(), post.field("allow")), (405, Some("GET, HEAD")));
    // The client has it already.
    let (etag, modified) = (home.field("etag").expect("a tag"), home.field("last-modified").expect("a time"));
    for (fields, status) in [
        (format!("If-None-Match: W/{etag}\r\n"), 304),
        (format!("If-Modified-Since: {modified}\r\n"), 304),
        ("If-None-Match: \"other\"\r\n".to_owned(), 200),
        ("If-Match: \"other\"\r\n".to_owned(), 412),
        (format!("If-Match: {etag}\r\n"), 200),
        ("If-Unmodified-Since: Thu, 01 Jan 1970 00:00:01 GMT\r\n".to_owned(), 412),
    ] {
        let answer = ask(&product, "/", &fields);
        assert_eq!(answer.status(), status, "{fields}");
        assert_eq!(answer.field("etag").is_some(), status != 412, "{fields}");
        assert_eq!(answer.field("content-length").is_some(), status != 304, "{fields}");
    }
    assert!(origin.requests().is_empty(), "nothing has gone on");
    let record = product.record("the page", |record| record["path"] == "/" && record["status"] == 200);
    assert_eq!(record["fault"], serde_json::Value::Null);
}

#[test]
fn what_is_not_there_goes_to_the_fallback_or_on_to_the_cluster() {
    let product = serving(", fallback: /app.html").start();
    write(&product, "app.html", b"app");
    assert_eq!([product.get("/a/b/c").text(), product.get("/").text()], ["app", "app"].map(String::from));
    assert_eq!(product.get("/.git/config").status(), 404, "hidden names have none");
    let origin = Origin::saying("endpoint");
    let product = serving_beside(&origin, ", missing: continue, strip_prefix: /static").start();
    write(&product, "a.txt", b"file");
    assert_eq!(
        [product.get("/static/a.txt").text(), product.get("/static/b").text(), product.get("/x").text()],
        ["file", "endpoint", "endpoint"].map(String::from)
    );
    let post = product.connect().ask("POST /static/a.txt HTTP/1.1\r\nHost: test\r\nContent-Length: 1\r\n\r\nx");
    assert_eq!(post.text(), "endpoint");
}

#[test]
fn ranges_are_sent_in_parts_and_their_abuse_is_not() {
    let product = serving("").start();
    let bytes = pattern(MIB);
    write(&product, "small", &bytes[..100]);
    write(&product, "large", &bytes);
    for (path, length) in [("/small", 100), ("/large", MIB)] {
        let bytes = &bytes[..length];
        let part = ask(&product, path, "Range: bytes=10-19\r\n");
        assert_eq!((part.status(), &part.body[..]), (206, &bytes[10..20]));
        assert_eq!(part.field("content-range"), Some(format!("bytes 10-19/{length}").as_str()));
        assert_eq!(ask(&product, path, "Range: bytes=-5\r\n").body, &bytes[length - 5..]);
        let several = ask(&product, path, "Range: bytes=0-1,50-59,-1\r\n");
        let media = several.field("content-type").expect("a type").to_owned();
        let boundary = media.strip_prefix("multipart/byteranges; boundary=").expect("a boundary");
        let mut wanted = Vec::new();
        for (first, last) in [(0, 1), (50, 59), (length - 1, length - 1)] {
            let lead = "content-type: application/octet-stream\r\ncontent-range: bytes";
            wanted.extend(format!("\r\n--{boundary}\r\n{lead} {first}-{last}/{length}\r\n\r\n").into_bytes());
            wanted.extend(&bytes[first..=last]);
        }
        wanted.extend(format!("\r\n--{boundary}--\r\n").into_bytes());
        assert!(several.status() == 206 && several.body == wanted);
        let beyond = ask(&product, path, &format!("Range: bytes={length}-\r\n"));
        assert_eq!((beyond.status(), beyond.field("content-range")), (416, Some(format!("bytes */{length}").as_str())));
        let etag = part.field("etag").expect("a tag");
        for (condition, status) in [(etag, 206), ("\"other\"", 200), ("Thu, 01 Jan 1970 00:00:01 GMT", 200)] {
            let answer = ask(&product, path, &format!("Range: bytes=0-0\r\nIf-Range: {condition}\r\n"));
            assert_eq!(answer.status(), status, "{condition}");
        }
        // Of the kind of CVE-2011-3192.
        let many: String = (0..500).map(|place| format!(",5-{place}")).collect();
        for abuse in [format!("bytes=0-{many}"), "bytes=0-,0-,0-".to_owned(), "bytes=9-1".to_owned()] {
            let answer = ask(&product, path, &format!("Range: {abuse}\r\n"));
            assert!(answer.status() == 200 && answer.body == bytes);
        }
    }
    let site = site(serving("").listener_more(CLEAR), 1);
    write(&site.product, "large", &bytes);
    let ranged = || with_fields(request("GET", "/large"), &[("range", "bytes=5-100004")]);
    let second = Client::connect(site.product.address("clear")).ask(ranged(), b"");
    assert!(second.status == 206 && second.body == bytes[5..100_005]);
    let third = site.connect().ask(with_fields(http3::request("GET", "/large"), &[("range", "bytes=5-100004")]), b"");
    assert!(third.status == 206 && third.body == bytes[5..100_005]);
}

#[test]
fn no_path_leads_out_of_the_root_or_to_what_is_hidden() {
    let product = serving("").start();
    write(&product, "a.txt", b"a");
    write(&product, ".env", b"secret");
    write(&product, ".git/config", b"secret");
    let www = product.folder().join("www");
    std::fs::write(product.folder().join("secret.txt"), "secret").expect("a file");
    symlink("../secret.txt", www.join("out")).expect("a link");
    symlink("/etc", www.join("etc")).expect("a link");
    symlink("a.txt", www.join("in")).expect("a link");
    sys::pipe_at(&www.join("pipe"));
    symlink("/dev/zero", www.join("zero")).expect("a link");
    for path in [
        "/../secret.txt",
        "/%2e%2e/secret.txt",
        "/..%2fsecret.txt",
        "/%2e%2e%2fsecret.txt",
        "/..%5csecret.txt",
        "/..\\secret.txt",
        "/a/../../secret.txt",
        "/%252e%252e/secret.txt",
        "/..;/secret.txt",
        "/.%2e/secret.txt",
        "//secret.txt",
        "/%c0%ae%c0%ae/secret.txt",
        "/a.txt/",
        "/a.txt%00.html",
        "/a.txt%00",
        "/.env",
        "/%2eenv",
        "/.git/config",
        "/out",
        "/etc/passwd",
        "/pipe",
        "/zero",
        "/in/x",
        "/%2fetc%2fpasswd",
        "/.%00./secret.txt",
        "/....//secret.txt",
    ] {
        let answer = ask(&product, path, "");
        assert!(matches!(answer.status(), 400 | 404), "{path}: {}", answer.status());
        assert!(
            !answer.text().contains("secret\n") && answer.text() != "secret" && !answer.text().contains("root:"),
            "{path}"
        );
    }
    assert_eq!([product.get("/in").text(), product.get("/a.txt").text()], ["a", "a"].map(String::from));
    let devices =
        Setup::to(&Origin::saying("")).route("filters: [{ files: { root: /dev, symlinks: follow } }]").start();
    assert_eq!([devices.get("/zero").status(), devices.get("/tty").status(), devices.get("/fd/0").status()], [404; 3]);
    let all = serving(", symlinks: follow, hidden: serve").start();
    write(&all, ".env", b"shown");
    symlink("../secret.txt", all.folder().join("www/out")).expect("a link");
    std::fs::write(all.folder().join("secret.txt"), "linked").expect("a file");
    assert_eq!([all.get("/.env").text(), all.get("/out").text()], ["shown", "linked"].map(String::from));
}

#[test]
fn codings_beside_are_chosen_and_compress_does_the_rest() {
    let product = Setup::to(&Origin::saying(""))
        .route("filters: [{ compress: {} }, { files: { root: DIR/www, precompressed: [br, zstd, gzip] } }]")
        .start();
    write(&product, "a.js", &vec![b'a'; 5_000]);
    write(&product, "a.js.br", b"brotli");
    write(&product, "a.js.gz", b"gzip");
    write(&product, "b.js", &vec![b'b'; 100_000]);
    for (accepted, coding, body) in [
        ("br, gzip", Some("br"), Some("brotli")),
        ("br;q=0.5, gzip", Some("gzip"), Some("gzip")),
        ("zstd, gzip;q=0.1, br;q=0", Some("gzip"), Some("gzip")),
        ("identity", None, None),
    ] {
        let answer = ask(&product, "/a.js", &format!("Accept-Encoding: {accepted}\r\n"));
        assert_eq!(answer.field("content-encoding"), coding, "{accepted}");
        assert_eq!(answer.field("content-type"), Some("text/javascript; charset=utf-8"));
        assert!(answer.all("vary").iter().any(|value| value.to_ascii_lowercase().contains("accept-encoding")));
        assert!(body.is_none_or(|body| answer.text() == body), "{accepted}");
    }
    let made = ask(&product, "/b.js", "Accept-Encoding: gzip\r\n");
    assert_eq!(made.field("content-encoding"), Some("gzip"));
    assert!(made.body.len() < 10_000);
}

#[test]
fn a_directory_is_listed_with_harmless_names() {
    let product = serving(", list: true, hidden: refuse").start();
    write(&product, "sub/<b>\"&.txt", b"x");
    write(&product, "sub/.hidden", b"x");
    write(&product, "sub/deeper/x", b"x");
    let page = product.get("/sub/");
    assert_eq!(page.field("content-type"), Some("text/html; charset=utf-8"));
    assert!(page.text().contains("<a href=\"./%3Cb%3E%22%26.txt\">&lt;b&gt;&quot;&amp;.txt</a>"), "{}", page.text());
    assert!(page.text().contains("<a href=\"./deeper/\">deeper/</a>") && !page.text().contains("hidden"));
    let told = ask(&product, "/sub/", "Accept: application/json\r\n");
    let told: serde_json::Value = serde_json::from_str(&told.text()).expect("JSON");
    assert_eq!((&told[0]["name"], &told[1]["name"]), (&"deeper".into(), &"<b>\"&.txt".into()));
    assert_eq!(product.get("/sub/%3Cb%3E%22%26.txt").text(), "x");
}

/// A client whose kernel takes in little.
fn narrow(product: &Product) -> Peer {
    let tcp = TcpStream::connect(product.web()).expect("a connection");
    sys::set_receive_buffer(&tcp, 16 * 1024);
    Peer::new(Stream::Plain(tcp))
}

#[test]
fn a_gigabyte_takes_no_memory_and_a_client_that_stops_reading_holds_nobody_up() {
    let product = serving("").start();
    write(&product, "small", b"small");
    write(&product, "huge", b"");
    let huge = File::options().write(true).open(product.folder().join("www/huge")).expect("it is there");
    huge.set_len(1 << 30).expect("a hole");
    huge.write_all_at(b"end", (1 << 30) - 3).expect("its end");
    let mut lazy: Vec<Peer> = (0..20).map(|_| narrow(&product)).collect();
    for peer in &mut lazy {
        peer.send("GET /huge HTTP/1.1\r\nHost: test\r\n\r\n");
        assert_eq!(peer.head().status(), 200);
    }
    let before = product.resident_bytes();
    let mut peer = product.connect();
    peer.send("GET /huge HTTP/1.1\r\nHost: test\r\n\r\n");
    assert_eq!(peer.head().field("content-length"), Some("1073741824"));
    let mut last = Vec::new();
    for _ in 0..1_024 {
        last = peer.take(MIB);
    }
    assert!(last.ends_with(b"\0end"));
    assert_eq!(peer.get("/small").text(), "small");
    let grown = product.resident_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes more");
    let open = sys::descriptors(product.pid());
    drop(lazy);
    eventually("their files are closed", || sys::descriptors(product.pid()) + 40 <= open + 1);
}

#[test]
fn a_file_that_is_not_in_memory_is_read_from_the_disk_whole_and_by_ranges() {
    let site = site(serving("").listener_more(CLEAR), 1);
    let (mut first, mut third) = (Peer::connect(site.product.address("clear")), site.connect());
    let bytes = pattern(3 << 20);
    write(&site.product, "cold", &bytes);
    let file = File::open(site.product.folder().join("www/cold")).expect("it is there");
    for _ in 0..3 {
        sys::forget_pages(&file);
        assert!(first.get("/cold").body == bytes);
        sys::forget_pages(&file);
        let range = "GET /cold HTTP/1.1\r\nHost: test\r\nRange: bytes=300000-2000000\r\n\r\n";
        let part = first.ask(range);
        assert_eq!((part.status(), part.field("content-range")), (206, Some("bytes 300000-2000000/3145728")));
        assert!(part.body == bytes[300_000..=2_000_000]);
        sys::forget_pages(&file);
        assert!(third.get("/cold").body == bytes);
    }
}

#[test]
fn a_file_that_shrinks_while_it_is_sent_ends_the_connection_and_one_that_is_replaced_does_not() {
    let product = serving("").start();
    let bytes = pattern(32 * MIB);
    write(&product, "a", &bytes);
    let mut peer = narrow(&product);
    peer.send("GET /a HTTP/1.1\r\nHost: test\r\n\r\n");
    assert_eq!(peer.head().status(), 200);
    write(&product, "new", b"new");
    let at = |name: &str| product.folder().join("www").join(name);
    std::fs::rename(at("new"), at("a")).expect("a rename");
    assert!(peer.take(32 * MIB) == bytes, "it keeps its bytes");
    assert_eq!(peer.get("/a").text(), "new");
    write(&product, "a", &bytes);
    peer.send("GET /a HTTP/1.1\r\nHost: test\r\n\r\n");
    assert_eq!(peer.head().status(), 200);
    let file = File::options().write(true).open(at("a")).expect("it is there");
    file.set_len(1_000).expect("it is cut");
    let rest = peer.rest();
    // What waits in the socket is the kernel's own page, of which it has cleared what was cut off.
    assert!(rest.len() < bytes.len() && bytes[..1_000] == rest[..1_000], "{} bytes", rest.len());
    assert_eq!(product.flagged("PY")["fault"], "content_failed");
}

#[test]
fn many_requests_at_once_are_all_answered() {
    let site = site(serving("").listener_more(CLEAR), 2);
    write(&site.product, "a", b"small");
    write(&site.product, "b", &pattern(100_000));
    let mut clients: Vec<_> = (0..100).map(|_| Client::connect(site.product.address("clear"))).collect();
    let mut waiting = Vec::new();
    for client in &mut clients {
        let streams: Vec<_> = (0..100).map(|_| client.open(request("GET", "/a"), true)).collect();
        client.flush();
        waiting.push(streams);
    }
    for (client, streams) in clients.iter().zip(waiting) {
        for stream in streams {
            let answer = client.answer(stream);
            assert_eq!((answer.status, answer.text().as_str()), (200, "small"));
        }
    }
    assert!(clients[0].get("/b").body == pattern(100_000));
}

#[test]
fn a_root_that_is_not_there_is_said_and_comes_with_its_files() {
    let product = serving("").start();
    assert_eq!(product.get("/a").status(), 404);
    product.expect_said(&["cannot open the root of files", "www"]);
    write(&product, "a", b"here");
    assert_eq!(product.get("/a").text(), "here");
    // A release by a link to another directory.
    let www = product.folder().join("www");
    let next = product.folder().join("next");
    std::fs::create_dir(&next).expect("a folder");
    std::fs::write(next.join("a"), "next").expect("a file");
    std::fs::rename(&www, product.folder().join("old")).expect("a rename");
    symlink(Path::new("next"), &www).expect("a link");
    assert_eq!(product.get("/a").text(), "next");
}

#[test]
fn pipes_and_sockets_in_the_root_hold_nobody_up() {
    let site = site(serving("").listener_more(CLEAR), 1);
    write(&site.product, "a.txt", b"a file");
    let root = site.product.folder().join("www");
    sys::pipe_at(&root.join("pipe"));
    let _socket = std::os::unix::net::UnixListener::bind(root.join("socket")).expect("a socket");
    symlink("pipe", root.join("link")).expect("a link");
    sys::pipe_at(&root.join("a.txt.gz"));
    let clear = site.product.address("clear");
    let (mut first, mut second, mut third) = (Peer::connect(clear), Client::connect(clear), site.connect());
    // More than there are threads that read files.
    for _ in 0..8 {
        for path in ["/pipe", "/socket", "/link", "/pipe/"] {
            assert_eq!(first.get(path).status(), 404, "{path}");
            assert_eq!(second.get(path).status, 404, "{path}");
            assert_eq!(third.get(path).status, 404, "{path}");
        }
        assert_eq!(first.get("/a.txt").text(), "a file");
    }
}
