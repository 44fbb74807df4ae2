//! What a cluster holds that nobody asks for, in bytes that were asked of the allocator: exact, whatever the machine.
//!
//! `cargo test -p equipoise-control --test idle_cluster -- --nocapture` tells who holds them.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use config::Loader;
use control::{Change, EndpointEdit, Order, Reconciler, Source, View};
use plan::Publisher;
use telemetry::Telemetry;

/// Bytes of a cluster of ten endpoints.
const CLUSTER_BYTES_MAX: usize = 3_300;
/// Bytes that 40 changes may add to 80 before them: room for tables that grow a little, and far less than a copy of anything.
const CHANGES_BYTES_MAX: usize = 16 * 1024;

static LIVE: AtomicUsize = AtomicUsize::new(0);

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: all is as the system's allocator has it; bytes are only counted.
unsafe impl GlobalAlloc for Counting {
    // SAFETY: the caller promises what the trait asks for.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    // SAFETY: the caller promises what the trait asks for.
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(block, layout) }
    }
}

fn configuration(clusters: usize) -> String {
    let endpoint = |cluster: usize, place: usize| format!("\"127.{}.{}.{place}:9000\"", cluster / 250, cluster % 250);
    let cluster = |number: usize| {
        let endpoints: Vec<String> = (1..=10).map(|place| endpoint(number, place)).collect();
        format!("  c{number}: {{ endpoints: [{}] }}\n", endpoints.join(", "))
    };
    let clusters: String = (0..clusters).map(cluster).collect();
    format!(
        "version: 1\nlisteners: {{ web: {{ bind: \"127.0.0.1:0\" }} }}\nroutes: [{{ cluster: site }}]\n\
         clusters:\n  site: {{ endpoints: [\"127.0.0.1:1\"] }}\n{clusters}"
    )
}

fn owner(text: String, folder: &std::path::Path) -> Reconciler {
    let source = Source::Text { name: "text".to_owned(), text, base: folder.to_owned() };
    let view = View::new(Telemetry::new(2), 2, Box::new(|| (0, 0)));
    let mut owner = Reconciler::new(source, |_| Ok(()), Publisher::new(|_| Ok(())), view).unwrap();
    let candidate = owner.prepare().unwrap();
    owner.commit(candidate, control::history::Origin::Start).unwrap();
    owner
}

#[test]
fn a_cluster_that_nobody_asks_for_holds_few_bytes() {
    // That nothing leads to nearly all clusters is told otherwise.
    telemetry::log::set_level(telemetry::log::Level::Error);
    let count = if std::env::var_os("EQUIPOISE_LONG").is_some() { 10_000 } else { 500 };
    let live = || LIVE.load(Ordering::Relaxed);
    let each = |bytes: usize| bytes / count;
    let filters = plan::filter::specs();
    let loader = Loader {
        filters: &filters,
        environment: &|_| None,
        resolve_host: &|_, _, _| Err(std::io::ErrorKind::Unsupported.into()),
        within: None,
        is_offline: false,
    };
    // What is made once, whatever there is.
    let small = loader.load_text("text", &configuration(1), "".as_ref()).unwrap();
    drop(black_box(plan::compile(Arc::new(small.snapshot.clone()), None, 1)));

    let text = configuration(count);
    let begun = live();
    let loaded = loader.load_text("text", &text, "".as_ref()).unwrap();
    let whole = live() - begun;
    let snapshot = Arc::new(loaded.snapshot.clone());
    drop((loaded, small));
    let nouns = live() - begun;
    let plan = plan::compile(Arc::clone(&snapshot), None, 1).unwrap();
    let compiled = live() - begun - nouns;
    println!(
        "bytes of a cluster: text and tree {}, nouns {}, plan {}",
        each(whole - nouns),
        each(nouns),
        each(compiled)
    );
    drop((plan, snapshot));

    let folder = std::env::temp_dir();
    let few = live();
    let small = owner(configuration(1), &folder);
    let few = live() - few;
    let begun = live();
    let mut owner = owner(text.clone(), &folder);
    let all = (live() - begun).saturating_sub(few + text.len());
    println!("all of it {}", each(all));
    // More of them than the history has generations that.
    let mut took: Vec<_> = (0..80).map(|number| change(&mut owner, number)).collect();
    took.sort_unstable();
    let held = || (live() - begun).saturating_sub(few + text.len());
    let after = held();
    println!("after changes {}, times (whole, prepare) {:?} {:?} {:?}", each(after), took[0], took[40], took[79]);
    for number in 80..120 {
        change(&mut owner, number);
    }
    let later = held();
    println!("after more of them {}", each(later));
    drop(small);
    assert!(each(all) < CLUSTER_BYTES_MAX && each(after) < CLUSTER_BYTES_MAX, "{} {}", each(all), each(after));
    assert!(later < after + CHANGES_BYTES_MAX, "from {after} to {later} bytes, and more with every change");
}

/// Changes the weight of one endpoint, and tells how long the whole and the preparation took.
fn change(owner: &mut Reconciler, number: u32) -> (Duration, Duration) {
    let edit = EndpointEdit::Weight("127.0.7.3:9000".to_owned(), 2 + number % 3);
    let change = Change::Endpoints { cluster: "c7".to_owned(), edit };
    let author = "hand".into();
    let order = Order { change, author, expected: None, is_dry: false, canary: None, is_trusted: true, under: None };
    let begun = Instant::now();
    let (candidate, origin) = owner.preparation().prepare_change(&order).unwrap();
    let prepared = begun.elapsed();
    owner.commit(candidate, origin).unwrap();
    (begun.elapsed(), prepared)
}
