//! From files to published plans, with a data plane that only takes notes.

mod canary;
mod history;
mod provided;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

use model::Issue;
use telemetry::Telemetry;
use tempfile::TempDir;

use super::*;
use crate::history::Origin;
use crate::refusal::Refusal;
use crate::status::State;

const GOOD: &str = r#"
version: 1
listeners: { web: { bind: "127.0.0.1:0" } }
routes: [{ cluster: site }]
clusters: { site: { endpoints: ["127.0.0.1:9001"] } }
"#;

const SECURE: &str = r#"
version: 1
listeners: { web: { bind: "127.0.0.1:0", tls: { certificates: [{ chain: site.pem, key: site.key }] } } }
routes: [{ cluster: site }]
clusters: { site: { endpoints: ["127.0.0.1:9001"] } }
"#;

#[derive(Default)]
struct DataPlane {
    published: Mutex<Vec<Arc<Plan>>>,
    tried: Mutex<Option<Arc<Plan>>>,
    refuses: AtomicBool,
}

struct Fixture {
    /// It ends before its folder does.
    reconciler: Reconciler,
    data: Arc<DataPlane>,
    folder: TempDir,
}

/// Stands for the check that a key belongs to its certificate.
fn inspect(plan: &Plan) -> Result<(), Vec<Issue>> {
    let tls = plan.snapshot.listeners.iter().filter_map(|listener| listener.tls.as_ref());
    let bad = tls.flat_map(|tls| &tls.certificates).any(|certificate| &*certificate.key.bytes == key(0).as_bytes());
    let place = "listeners/web/tls/certificates/0/key";
    if bad { Err(vec![Issue::at(place, "the key is not that of the certificate")]) } else { Ok(()) }
}

/// Real pairs, made once: chain and key by number. Number 0 stands for a key of another certificate.
fn pair(number: usize) -> &'static (String, String) {
    static PAIRS: OnceLock<Vec<(String, String)>> = OnceLock::new();
    let make = |_| {
        let made = rcgen::generate_simple_self_signed(vec!["site.example".into()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    };
    &PAIRS.get_or_init(|| (0..4).map(make).collect())[number]
}

fn key(number: usize) -> &'static str {
    &pair(number).1
}

impl Fixture {
    fn new(text: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let data = Arc::new(DataPlane::default());
        let reconciler = Self::owner(&folder, &data);
        let fixture = Self { reconciler, data, folder };
        fixture.write("site.yaml", text);
        fixture
    }

    fn owner(folder: &TempDir, data: &Arc<DataPlane>) -> Reconciler {
        let publisher = Publisher::new({
            let data = Arc::clone(data);
            move |plan| {
                if data.refuses.load(Ordering::Relaxed) {
                    return Err("listener web: address in use".into());
                }
                // As the data plane does.
                *data.tried.lock().unwrap() = None;
                data.published.lock().unwrap().push(plan);
                Ok(())
            }
        })
        .with_trials({
            let data = Arc::clone(data);
            move |trial| {
                *data.tried.lock().unwrap() = trial.map(|trial| trial.plan);
                Ok(())
            }
        });
        let source = Source::File(folder.path().join("site.yaml"));
        let view = View::new(Telemetry::new(1), 1, Box::new(|| (0, 0)));
        Reconciler::new(source, inspect, publisher, view).unwrap()
    }

    /// Another owner in the place of this one, as a process that is started in the same folder has it: what this one knew.
    fn follow(&mut self) -> ConfigurationHandover {
        let handed = self.reconciler.hand_over();
        self.reconciler = Self::owner(&self.folder, &self.data);
        handed
    }

    /// Removes the folder in which it keeps what is to outlive it.
    fn remove_kept(&self, name: &str) {
        // Nothing is written there any more behind this.
        self.reconciler.hand_over();
        std::fs::remove_dir_all(self.path(name)).unwrap();
    }

    fn started(text: &str) -> Self {
        let mut fixture = Self::new(text);
        fixture.start();
        fixture
    }

    fn start(&mut self) {
        let candidate = self.reconciler.prepare().unwrap_or_else(|error| panic!("{error}"));
        self.reconciler.commit(candidate, Origin::Start).unwrap();
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        Path::join(self.folder.path(), name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// Puts another file in the place of one, as tools that renew certificates do.
    fn replace(&self, name: &str, text: &str) {
        self.write("next", text);
        std::fs::rename(self.path("next"), self.path(name)).unwrap();
    }

    fn published(&self) -> usize {
        self.data.published.lock().unwrap().len()
    }

    fn key_in_force(&self) -> String {
        let plan = self.reconciler.view().plan().unwrap();
        let key = &plan.snapshot.listeners[0].tls.as_ref().unwrap().certificates[0].key;
        String::from_utf8(key.bytes.to_vec()).unwrap()
    }
}

/// By somebody who may do everything.
fn order(change: crate::Change) -> crate::Order {
    crate::Order {
        change,
        author: "me".into(),
        expected: None,
        is_dry: false,
        canary: None,
        is_trusted: true,
        under: None,
    }
}

#[test]
fn a_program_is_ready_with_its_first_generation() {
    let mut fixture = Fixture::new(GOOD);
    let view = fixture.reconciler.view().clone();
    assert_eq!((view.state(), view.generation()), (State::Starting, 0));
    fixture.start();
    assert_eq!((view.state(), view.generation(), fixture.published()), (State::Ready, 1, 1));
    assert_eq!(view.effective()["clusters"]["site"]["balance"], "round_robin");
}

#[test]
fn a_reload_publishes_what_the_file_says_now_and_keeps_the_state_of_what_stayed() {
    let mut fixture = Fixture::started(GOOD);
    let state = |fixture: &Fixture| {
        let plan = fixture.reconciler.view().plan().unwrap();
        Arc::clone(&plan.clusters[0].endpoints[0].state)
    };
    let before = state(&fixture);
    fixture.write("site.yaml", &GOOD.replace(r#""127.0.0.1:9001""#, r#""127.0.0.1:9001", "127.0.0.1:9002""#));
    assert_eq!(fixture.reconciler.reload().unwrap(), 2);
    assert!(Arc::ptr_eq(&before, &state(&fixture)));
    let status = fixture.reconciler.view().status();
    assert_eq!(status.clusters[0].endpoints.len(), 2);
    let origins: Vec<_> = status.generations.iter().map(|entry| (entry.generation, entry.origin)).collect();
    assert_eq!(origins, [(2, Origin::Reload), (1, Origin::Start)]);
}

#[test]
fn a_bad_file_tells_all_its_problems_and_leaves_the_running_one() {
    let mut fixture = Fixture::started(GOOD);
    fixture.write("site.yaml", &GOOD.replace("routes", "ruotes").replace("endpoints", "endpints"));
    match fixture.reconciler.reload().unwrap_err() {
        Refusal::Bad(diagnostics) => {
            assert!(diagnostics.list.len() >= 2, "{diagnostics}");
            assert!(diagnostics.list.iter().all(|diagnostic| diagnostic.line > 0), "{diagnostics}");
        }
        other => panic!("{other:?}"),
    }
    let status = fixture.reconciler.view().status();
    assert_eq!((status.generation, status.refused, status.state), (1, 1, State::Ready));
    fixture.write("site.yaml", GOOD);
    assert_eq!(fixture.reconciler.reload().unwrap(), 2);
}

#[test]
fn a_plan_that_the_data_plane_does_not_take_leaves_the_running_one() {
    let mut fixture = Fixture::started(GOOD);
    fixture.data.refuses.store(true, Ordering::Relaxed);
    assert_eq!(fixture.reconciler.reload().unwrap_err().to_string(), "listener web: address in use");
    assert_eq!(fixture.reconciler.view().generation(), 1);
    fixture.data.refuses.store(false, Ordering::Relaxed);
    assert_eq!(fixture.reconciler.reload().unwrap(), 2, "no number is lost");
}

#[test]
fn a_wrong_line_of_an_access_log_is_found_before_it_is_opened() {
    let text = format!("{GOOD}access_logs: [{{ stdout: true, line: '{{no_such_variable}}' }}]\n");
    let fixture = Fixture::new(&text);
    let diagnostics = fixture.reconciler.prepare().err().unwrap();
    assert_eq!((diagnostics.list.len(), diagnostics.list[0].line), (1, 6), "{diagnostics}");
}

#[test]
fn a_renewed_certificate_is_published_once_it_is_stable() {
    let mut fixture = Fixture::new(SECURE);
    fixture.write("site.pem", &pair(1).0);
    fixture.write("site.key", key(1));
    fixture.start();
    // Files written this moment are read once more, to no effect.
    for _ in 0..4 {
        assert_eq!(fixture.reconciler.look_at_files().unwrap(), None);
    }
    fixture.replace("site.key", key(2));
    assert_eq!(fixture.reconciler.look_at_files().unwrap(), None, "not stable yet");
    assert_eq!(fixture.reconciler.look_at_files().unwrap(), Some(2));
    assert_eq!(fixture.key_in_force(), key(2));
    for _ in 0..4 {
        assert_eq!(fixture.reconciler.look_at_files().unwrap(), None);
    }
    assert_eq!(fixture.published(), 2);
    assert_eq!(fixture.reconciler.view().status().generations[0].origin, Origin::Certificates);
}

#[test]
fn a_bad_pair_is_refused_once_and_the_old_one_stays_until_it_is_mended() {
    let mut fixture = Fixture::new(SECURE);
    fixture.write("site.pem", &pair(1).0);
    fixture.write("site.key", key(1));
    fixture.start();
    fixture.replace("site.key", key(0));
    let complaints: Vec<String> =
        (0..6).filter_map(|_| fixture.reconciler.look_at_files().err()).map(|refusal| refusal.to_string()).collect();
    assert_eq!(complaints.len(), 1, "{complaints:?}");
    assert!(complaints[0].contains("not that of the certificate") && complaints[0].contains("site.yaml:3"));
    assert_eq!((fixture.key_in_force().as_str(), fixture.published()), (key(1), 1));
    fixture.replace("site.key", key(3));
    let generations: Vec<u64> = (0..4).filter_map(|_| fixture.reconciler.look_at_files().unwrap()).collect();
    assert_eq!((generations, fixture.key_in_force().as_str()), (vec![2], key(3)));
}

#[test]
fn renewed_certificates_do_not_bring_an_edited_file_into_force() {
    let mut fixture = Fixture::new(SECURE);
    fixture.write("site.pem", &pair(1).0);
    fixture.write("site.key", key(1));
    fixture.start();
    fixture.write("site.yaml", "this is being edited: [");
    fixture.replace("site.key", key(2));
    let generations: Vec<u64> = (0..4).filter_map(|_| fixture.reconciler.look_at_files().unwrap()).collect();
    assert_eq!(generations, [2]);
    assert_eq!(fixture.reconciler.view().plan().unwrap().clusters.len(), 1);
}

/// A file that keeps changes in a folder of this name.
fn keeping(name: &str) -> String {
    format!("{GOOD}admin: {{ bind: \"127.0.0.1:0\", state: {name} }}\n")
}

fn wished(fixture: &Fixture, state: Option<&'static str>) -> (Candidate, Origin) {
    let change = crate::Change::Wish { cluster: "site".into(), endpoint: "127.0.0.1:9001".into(), state };
    let order = crate::Order {
        change,
        author: "me".into(),
        expected: None,
        is_dry: false,
        canary: None,
        is_trusted: true,
        under: None,
    };
    fixture.reconciler.preparation().prepare_change(&order).unwrap()
}

fn wish(fixture: &mut Fixture, state: Option<&'static str>) -> Result<u64, String> {
    let (candidate, origin) = wished(fixture, state);
    fixture.reconciler.commit(candidate, origin)
}

#[test]
fn what_comes_by_itself_is_not_refused_because_something_cannot_be_kept() {
    let mut fixture = Fixture::new(&keeping("a"));
    std::fs::create_dir(fixture.path("a")).unwrap();
    fixture.start();
    fixture.remove_kept("a");
    let (candidate, _) = wished(&fixture, Some("drain"));
    fixture.reconciler.commit(candidate, Origin::ProviderEndpoints).unwrap();
    assert!(fixture.reconciler.not_kept().is_some_and(|why| why.contains("cannot save changes")));
    std::fs::create_dir(fixture.path("a")).unwrap();
    fixture.reconciler.keep_again();
    assert_eq!(fixture.reconciler.not_kept(), None);
    assert!(std::fs::read_to_string(fixture.path("a/changes.json")).unwrap().contains("drain"));
}

#[test]
fn what_was_taken_back_while_nothing_was_kept_does_not_come_back() {
    let mut fixture = Fixture::new(&keeping("a"));
    std::fs::create_dir(fixture.path("a")).unwrap();
    fixture.start();
    wish(&mut fixture, Some("drain")).unwrap();
    let kept = fixture.path("a/changes.json");
    assert!(std::fs::read_to_string(&kept).unwrap().contains("drain"));
    fixture.write("site.yaml", GOOD);
    fixture.reconciler.reload().unwrap();
    wish(&mut fixture, None).unwrap();
    fixture.write("site.yaml", &keeping("a"));
    let refused = fixture.reconciler.reload().unwrap_err().to_string();
    assert!(refused.contains("has API changes of an earlier run"), "{refused}");
    std::fs::remove_file(&kept).unwrap();
    fixture.reconciler.reload().unwrap();
    wish(&mut fixture, Some("up")).unwrap();
    assert!(std::fs::read_to_string(&kept).unwrap().contains("up"));
}

#[test]
fn what_cannot_be_put_in_its_place_is_told_and_tried_again() {
    let mut fixture = Fixture::new(&keeping("a"));
    std::fs::create_dir(fixture.path("a")).unwrap();
    fixture.start();
    // A folder cannot be replaced by a file.
    std::fs::create_dir(fixture.path("a/changes.json")).unwrap();
    wish(&mut fixture, Some("drain")).unwrap();
    assert!(fixture.reconciler.not_kept().is_some(), "it is in force, and not kept");
    fixture.reconciler.keep_again();
    assert!(fixture.reconciler.not_kept().is_some());
    std::fs::remove_dir(fixture.path("a/changes.json")).unwrap();
    fixture.reconciler.keep_again();
    assert_eq!(fixture.reconciler.not_kept(), None);
    assert!(std::fs::read_to_string(fixture.path("a/changes.json")).unwrap().contains("drain"));
}

#[test]
fn a_route_that_has_no_name_is_taken_out_once() {
    let mut fixture = Fixture::started(&GOOD.replace("{ cluster: site }", "{ cluster: site }, { respond: {} }"));
    let order = order(crate::Change::ReplaceObject { kind: "routes", name: "route-1".into(), text: None });
    let (candidate, origin) = fixture.reconciler.preparation().prepare_change(&order).unwrap();
    fixture.reconciler.commit(candidate, origin).unwrap();
    let again = fixture.reconciler.preparation().prepare_change(&order);
    assert!(matches!(again, Err(Refusal::Missing { .. })), "it is gone, and no other has its name");
    let plan = fixture.reconciler.view().plan().unwrap();
    let names: Vec<&str> = plan.snapshot.routes.iter().map(|route| route.name.as_str()).collect();
    assert_eq!(names, ["route-2"]);
}

/// As many clusters as it takes to tell what is touched from what is not.
fn many(weight: u32) -> String {
    let cluster = |number: u32| {
        let weight = if number == 17 { weight } else { 1 };
        format!("  c{number}: {{ endpoints: [\"127.0.0.1:1\", {{ address: \"127.0.0.1:2\", weight: {weight} }}] }}\n")
    };
    let clusters: String = (0..100).map(cluster).collect();
    format!(
        "version: 1\nlisteners: {{ web: {{ bind: \"127.0.0.1:0\" }} }}\nroutes: [{{ cluster: c0 }}]\nclusters:\n{clusters}"
    )
}

/// The clusters that are not the very same in two plans, and whether plan and snapshot agree on that.
fn touched(before: &Plan, after: &Plan) -> Vec<String> {
    let plans = before.clusters.iter().zip(&after.clusters);
    let other: Vec<String> =
        plans.filter(|(one, other)| !Arc::ptr_eq(one, other)).map(|(one, _)| one.cluster.name.to_string()).collect();
    let snapshots = before.snapshot.clusters.iter().zip(&after.snapshot.clusters);
    let settings = snapshots.filter(|(one, other)| !Arc::ptr_eq(one, other)).count();
    assert_eq!(settings, other.len());
    let held = after.snapshot.clusters.iter().zip(&after.clusters);
    assert!(held.into_iter().all(|(settings, plan)| Arc::ptr_eq(settings, &plan.cluster)), "nothing is held twice");
    other
}

#[test]
fn one_endpoint_changed_by_the_api_or_in_the_file_leaves_all_other_clusters_the_very_same() {
    let mut fixture = Fixture::started(&many(1));
    let plan = |fixture: &Fixture| fixture.reconciler.view().plan().unwrap();
    let first = plan(&fixture);
    let edit = config::EndpointEdit::Weight("127.0.0.1:1".to_owned(), 7);
    let order = order(crate::Change::Endpoints { cluster: "c42".to_owned(), edit });
    let (candidate, origin) = fixture.reconciler.preparation().prepare_change(&order).unwrap();
    fixture.reconciler.commit(candidate, origin).unwrap();
    let second = plan(&fixture);
    assert_eq!(touched(&first, &second), ["c42"]);
    assert!(Arc::ptr_eq(&first.clusters[42].endpoints[0].state, &second.clusters[42].endpoints[0].state));
    fixture.write("site.yaml", &many(3));
    fixture.reconciler.reload().unwrap();
    assert_eq!(touched(&second, &plan(&fixture)), ["c17"]);
    let told: Vec<usize> =
        fixture.reconciler.view().generations().iter().map(|entry| entry.differences.list.len()).collect();
    assert_eq!(told[..2], [1, 1]);
    // What was in force before the file changed can still be gone back to.
    let order = crate::Order { change: crate::Change::Rollback(2), ..order };
    let (candidate, origin) = fixture.reconciler.preparation().prepare_change(&order).unwrap();
    fixture.reconciler.commit(candidate, origin).unwrap();
    let last = plan(&fixture);
    let weights =
        |place: usize| last.snapshot.clusters[place].endpoints.iter().map(|one| one.weight).collect::<Vec<_>>();
    assert_eq!((weights(42), weights(17)), (vec![7, 1], vec![1, 1]));
}
