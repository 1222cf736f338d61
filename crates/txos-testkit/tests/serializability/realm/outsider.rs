//! An ordinary user can neither open root's realm, nor stall it, nor have root use one of theirs.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use txos_engine::realm::{Begin, Realm, Unresolved};
use txos_testkit::realm_stress::Site;
use txos_testkit::user::User;
use txos_testkit::{Invocation, Lab, Rendezvous, require, skip};

use crate::WORKER;

fn works(realm: &Realm) {
    for cell in 0..100 {
        let mut handle = realm.begin(&Begin::default()).unwrap();
        let facet = txos_testkit::realm_stress::cells::facet(cell);
        handle.acquire(&facet, txos_engine::realm::Access::Write).unwrap();
        handle.publish().unwrap();
        handle.finish().unwrap();
    }
}

#[test]
fn a_user_can_not_get_at_the_realm_of_root() {
    require!(skip::is_root() && skip::has("useradd"), "makes a user, so needs root and useradd");
    let lab = Lab::in_memory();
    let user = User::new();
    let site = Site::new(&lab, "site", WORKER, 128);
    let (dir, segment) = (site.dir().join("realm"), site.realm.path());
    let open_dir = lab.dir().join("open");
    std::fs::create_dir(&open_dir).unwrap();
    std::fs::set_permissions(&open_dir, std::fs::Permissions::from_mode(0o1777)).unwrap();
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().mode() & 0o7777;
    assert_eq!((mode(&dir), mode(segment)), (0o700, 0o600));
    // Even where root has opened the directory, the segment itself can't be.
    for open in [0o700, 0o755] {
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(open)).unwrap();
        let attempts = [
            format!(": <{}", segment.display()),
            format!(": >>{}", segment.display()),
            format!("flock --nonblock {} true", segment.display()),
            format!("ln {} {}/mine", segment.display(), open_dir.display()),
            format!("rm -f {}", segment.display()),
            format!("mv {} {}.old", dir.display(), dir.display()),
            format!(": >{}/other", dir.display()),
        ];
        for attempt in attempts {
            let shell = user.runs(Invocation::shell(&attempt).dir("/"));
            let done = shell.run();
            assert_ne!(done.code(), 0, "{attempt}: {done:?}");
            assert!(done.stderr.contains("ermitted") || done.stderr.contains("enied"), "{done:?}");
        }
        works(&site.realm);
    }
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o700)).unwrap();
    let flock = format!("flock --nonblock {} true", dir.display());
    let done = user.runs(Invocation::shell(&flock).dir("/")).run();
    assert_ne!(done.code(), 0, "{done:?}");
    works(&site.realm);
}

/// What a user can lock is the directory above, and with it nothing.
#[test]
fn a_user_who_locks_what_there_is_to_lock_stalls_nobody() {
    require!(skip::is_root() && skip::has("useradd"), "makes a user, so needs root and useradd");
    let lab = Lab::in_memory();
    let user = User::new();
    let mut meeting = Rendezvous::new();
    let hold = format!("exec 7<{}; flock 7; echo >&8; read _ <&9", lab.dir().display());
    let holder = user.runs(Invocation::shell(&hold).dir("/")).meeting(&mut meeting).start();
    assert!(meeting.arrived());
    let site = Site::new(&lab, "site", WORKER, 128);
    works(&site.realm);
    let _ = site.steps(["begin", "write:0:1", "publish", "finish"]).run().expect(0);
    let _ = txos_engine::realm::rebuild(&site.dir().join("realm")).unwrap_err();
    meeting.go();
    let _ = holder.wait().expect(0);
}

#[test]
fn root_refuses_what_a_user_has_put_in_its_place() {
    require!(skip::is_root() && skip::has("useradd"), "makes a user, so needs root and useradd");
    let lab = Lab::in_memory();
    let user = User::new();
    let open = lab.dir().join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o1777)).unwrap();
    let as_user = |script: &str| {
        let _ = user.runs(Invocation::shell(script).dir(&open)).run().expect(0);
    };
    let join = |name: &str| {
        let settle = |_: &_| Err(Unresolved("nobody publishes here".into()));
        Realm::join(&open.join(name), "root", &open, Box::new(settle))
    };
    let refused = |name: &str, why: &str| {
        let error = join(name).unwrap_err().to_string();
        assert!(error.contains(why), "{name}: {error}");
    };
    // A directory, held locked by the user.
    let mut meeting = Rendezvous::new();
    let squat = "mkdir -m 700 taken; exec 7<taken; flock 7; echo >&8; read _ <&9";
    let squatter = user.runs(Invocation::shell(squat).dir(&open)).meeting(&mut meeting).start();
    assert!(meeting.arrived());
    refused("taken", "it belongs to user");
    // Open to root as well, with something in it.
    as_user("chmod 777 taken; touch taken/realm-0-0");
    refused("taken", "it belongs to user");
    meeting.go();
    let _ = squatter.wait().expect(0);
    // A link to a directory of root's, to one of the user's, to nothing.
    std::fs::create_dir(open.join("rooted")).unwrap();
    as_user("ln -s rooted link; ln -s taken mine; ln -s nowhere nothing; touch file");
    for name in ["link", "mine", "nothing", "file"] {
        refused(name, "directory");
    }
    assert!(!open.join("nowhere").exists());
    assert_eq!(std::fs::read_dir(open.join("rooted")).unwrap().count(), 0);
    // A directory of root's that others may write to.
    std::fs::set_permissions(open.join("rooted"), std::fs::Permissions::from_mode(0o777)).unwrap();
    refused("rooted", "others can write it");
    // What the user can't have touched works.
    works(&join("new").unwrap());
    let found = std::fs::metadata(open.join("new")).unwrap();
    assert_eq!((found.uid(), found.mode() & 0o777), (0, 0o700));
}

/// And users have realms of their own.
#[test]
fn a_user_has_a_realm_of_their_own() {
    require!(skip::is_root() && skip::has("useradd"), "makes a user, so needs root and useradd");
    let lab = Lab::in_memory();
    let user = User::new();
    let site = Site::new(&lab, "site", WORKER, 4);
    // Out of the way of the permissions of wherever it was built.
    let program = lab.dir().join("realm-worker");
    txos_testkit::process::copy_program(WORKER, &program);
    let own = user.home.join("own");
    let worker = |dir: &std::path::Path| {
        user.runs(Invocation::new(&program).dir("/").arg(dir))
            .args(["1", "steps", "begin", "write:0:1", "publish", "finish"])
            .run()
    };
    let prepare = format!("mkdir {0}; umask 0; : >{0}/journal-1", own.display());
    let _ = user.runs(Invocation::shell(&prepare).dir("/")).run().expect(0);
    std::fs::copy(site.dir().join("cells"), own.join("cells")).unwrap();
    std::os::unix::fs::chown(own.join("cells"), Some(user.uid), Some(user.gid)).unwrap();
    let _ = worker(&own).expect(0);
    assert_eq!(std::fs::metadata(own.join("realm")).unwrap().mode() & 0o7777, 0o700);
    // With root's in its place it is refused.
    std::fs::remove_dir_all(own.join("realm")).unwrap();
    std::os::unix::fs::symlink(site.dir().join("realm"), own.join("realm")).unwrap();
    let done = worker(&own).expect(1);
    assert!(done.stderr.contains("realm"), "{done:?}");
    std::fs::remove_file(own.join("realm")).unwrap();
    std::fs::create_dir(own.join("realm")).unwrap();
    let done = worker(&own).expect(1);
    assert!(done.stderr.contains("can't hold a realm"), "{done:?}");
    works(&site.realm);
}
