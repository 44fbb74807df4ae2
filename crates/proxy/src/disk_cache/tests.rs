use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use plan::cache::FileName;

use super::folder::{self, Folder};

fn name(number: u64) -> FileName {
    FileName::new(&mut || number << 56 | number)
}

/// A folder that is gone with the test.
struct Somewhere(PathBuf);

impl Somewhere {
    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Somewhere {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn somewhere() -> Somewhere {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("equipoise-cache-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&path).expect("a folder");
    Somewhere(path)
}

#[test]
fn a_file_is_found_when_it_is_whole_and_only_its_user_reads_it() {
    let at = somewhere();
    let path = at.path().join("deep/cache");
    let folder = Folder::make(path.to_str().expect("text")).expect("it is made");
    folder.try_to_write().expect("it is ours");
    let mut written = folder.write(name(1)).expect("it is begun");
    written.file.write_all(b"whole").expect("it is written");
    assert!(folder.read(name(1)).is_err(), "it has no name yet");
    let part = folder.part("01").expect("it is there");
    let temporary = folder::names(&part).expect("they can be read").next().expect("one");
    assert!(!folder::is_abandoned(&part, &temporary), "it is being written");
    written.keep().expect("it is named");
    let told = folder.read(name(1)).expect("it is there").metadata().expect("it is open");
    assert_eq!((told.len(), told.permissions().mode() & 0o777), (5, 0o600));
    assert_eq!(std::fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o700);
    drop(folder.write(name(2)).expect("it is begun"));
    assert_eq!(folder::names(&folder.part("02").expect("it is there")).expect("they can be read").count(), 0);
    std::fs::write(path.join("01/.tmp-9"), "torn").expect("it is written");
    assert!(!folder::is_abandoned(&part, ".tmp-9"), "another process may be about to lock it");
    make_older(&path.join("01/.tmp-9"));
    assert!(folder::is_abandoned(&part, ".tmp-9"));
    folder.change(name(1), 1, b"H").expect("it is there");
    assert_eq!(std::fs::read(path.join(format!("01/{}", name(1)))).expect("it is there"), b"wHole");
    assert!(folder.remove(name(1)).is_ok() && folder.remove(name(1)).is_ok());
    assert!(folder.read(name(1)).is_err() && folder.change(name(1), 0, b"x").is_err());
}

/// Has a file look as if it was written a while ago.
fn make_older(path: &Path) {
    let file = std::fs::File::options().write(true).open(path).expect("it is there");
    file.set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(61)).expect("it is ours");
}

#[test]
fn a_folder_that_others_may_write_to_is_not_used() {
    let at = somewhere();
    let text = at.path().to_str().expect("text");
    for mode in [0o777, 0o1777, 0o770, 0o702] {
        std::fs::set_permissions(at.path(), std::fs::Permissions::from_mode(mode)).expect("it is ours");
        let refused = folder::check(text).expect_err("others may write to it");
        let (told, mend) = refused.told(text);
        assert!(
            told.contains(&format!("{mode:04o}")) && mend.contains(&format!("chmod go-w {text}")),
            "{told}: {mend}"
        );
        assert!(Folder::open(text).expect("it is there").try_to_write().is_err());
    }
    std::fs::set_permissions(at.path(), std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    assert!(folder::check(text).is_ok() && Folder::open(text).expect("it is there").try_to_write().is_ok());
}

#[test]
fn what_belongs_to_another_user_is_not_read() {
    let at = somewhere();
    let folder = Folder::make(at.path().to_str().expect("text")).expect("it is there");
    let mut written = folder.write(name(5)).expect("it is begun");
    written.keep().expect("it is named");
    // Only root can give files away.
    if std::os::unix::fs::chown(at.path().join(format!("05/{}", name(5))), Some(65_534), None).is_err() {
        return;
    }
    let file = folder.read(name(5)).expect("it is there");
    assert!(matches!(super::read::read_header(&file), Err(super::read::NoResponse::Bad)));
    std::os::unix::fs::chown(at.path().join("05"), Some(65_534), None).expect("it can be given away");
    assert!(folder.part("05").is_none() && folder.write(name(5)).is_err());
}

#[test]
fn a_part_that_cannot_be_removed_is_told_and_one_that_is_there_does_no_harm() {
    let at = somewhere();
    let folder = Folder::make(at.path().to_str().expect("text")).expect("it is there");
    std::fs::create_dir_all(at.path().join(format!("06/{}/x", name(6)))).expect("it is made");
    assert!(folder.remove(name(6)).is_err());
    std::thread::scope(|scope| {
        for number in 0..8 {
            let folder = &folder;
            scope.spawn(move || folder.write(FileName::new(&mut || 7 << 56 | number)).map(drop).expect("it is begun"));
        }
    });
}

#[test]
fn links_are_not_followed() {
    let at = somewhere();
    let outside = somewhere();
    std::fs::write(outside.path().join(name(3).to_string()), "secret").expect("it is written");
    let folder = Folder::make(at.path().to_str().expect("text")).expect("it is there");
    symlink(outside.path(), at.path().join("03")).expect("it is made");
    assert!(folder.part("03").is_none() && folder.read(name(3)).is_err() && folder.write(name(3)).is_err());
    assert!(folder.remove(name(3)).is_err(), "the failure is returned");
    assert!(folder.change(name(3), 0, b"x").is_err());
    std::fs::create_dir(at.path().join("04")).expect("it is made");
    let target = outside.path().join(name(3).to_string());
    symlink(&target, at.path().join(format!("04/{}", name(4)))).expect("it is made");
    assert!(folder.read(name(4)).is_err() && folder.change(name(4), 0, b"x").is_err());
    assert_eq!(std::fs::read(&target).expect("it is there"), b"secret");
}

#[test]
fn folders_that_cannot_be_used_are_told() {
    let at = somewhere();
    let file = at.path().join("file");
    std::fs::write(&file, "").expect("it is written");
    assert!(folder::check(file.to_str().expect("text")).is_err());
    assert!(folder::check(at.path().to_str().expect("text")).is_ok());
    assert!(folder::check(at.path().join("none/yet").to_str().expect("text")).is_ok());
    assert!(Folder::make("/proc/none").is_err());
}
