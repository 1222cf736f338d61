use super::*;
use crate::plan::{Does, Staged};

struct Store(PathBuf);

impl Store {
    fn new(tag: &str) -> (Self, Home) {
        let dir = std::env::temp_dir().join(format!("txos-journal-{tag}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        let home = Home::open(&dir).unwrap();
        (Store(dir), home)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn plan(ops: usize) -> Plan {
    let version =
        crate::version::stat_at(rustix::fs::CWD, b"/", rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
            .unwrap();
    Plan {
        id: TxId::from_bits(77),
        boot: "boot".into(),
        made: Stamp { sec: 5, nsec: 6 },
        durable: true,
        layers: vec![LayerMeta { target: "/".into(), root: None, store: "/var/lib/x".into() }],
        ops: (0..ops)
            .map(|i| Op {
                layer: 0,
                target: format!("etc/{i}").into_bytes().into(),
                before: format!("etc/{i}").into_bytes().into(),
                after: format!("etc/{i}").into_bytes().into(),
                base: None,
                new: Some(version),
                shown: true,
                below: 0,
                own_version: None,
                does: Does::Install(Staged {
                    slot: format!("tx/a/l0/upper/{i}").into_bytes().into(),
                    ..Staged::default()
                }),
            })
            .collect(),
    }
}

#[test]
fn every_stage_is_read_back() {
    let (_dir, home) = Store::new("stages");
    let plan = plan(5000);
    let (mut journal, found) = Journal::open(&home).unwrap();
    assert!(found.is_none());
    let read = || Journal::open(&home).unwrap().1.map(|f| (f.plan, f.progress));
    journal.write_plan(&plan).unwrap();
    assert_eq!(read(), Some((plan.clone(), Progress::Ready)));
    journal.applied(Stamp::now()).unwrap();
    assert_eq!(read(), Some((plan.clone(), Progress::Applied)));
    journal.done(true).unwrap();
    assert_eq!(read(), Some((plan.clone(), Progress::Done)));
    journal.undoing(false).unwrap();
    assert_eq!(read(), Some((plan.clone(), Progress::Undoing)));
    journal.idle(false).unwrap();
    assert_eq!(read(), None);
    // A shorter plan after a longer one: frames of the longer one are not taken for its own.
    let short = self::plan(1);
    journal.write_plan(&short).unwrap();
    assert_eq!(read(), Some((short, Progress::Ready)));
}

/// A txos that knew no HELD was killed in a publish, and this one recovers.
#[test]
fn older_formats_are_read() {
    let plan = plan(3);
    for version in 1..VERSION {
        let (dir, home) = Store::new(&format!("older-{version}"));
        let (mut journal, _) = Journal::open(&home).unwrap();
        journal.write_plan(&plan).unwrap();
        let path = dir.0.join("journal");
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[8..12].copy_from_slice(&version.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..12]);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        std::fs::write(&path, &bytes).unwrap();
        let (_, found) = Journal::open(&home).unwrap();
        assert_eq!(found.map(|f| (f.plan, f.progress)), Some((plan.clone(), Progress::Ready)));
    }
}

#[test]
fn stored_plans_of_older_formats_are_read() {
    let plan = plan(3);
    let body = postcard::to_stdvec(&plan).unwrap();
    for version in 1..crate::plan::FILE_VERSION {
        let mut file = [&crate::plan::FILE_MAGIC[..], &version.to_le_bytes()].concat();
        file.extend_from_slice(&crc32fast::hash(&body).to_le_bytes());
        file.extend_from_slice(&body);
        let read = crate::plan::parse(&file, plan.id, std::path::Path::new("plan"));
        assert_eq!(read.unwrap(), plan);
    }
}

#[test]
fn a_torn_plan_is_incomplete_and_a_damaged_start_is_refused() {
    let (dir, home) = Store::new("torn");
    let (mut journal, _) = Journal::open(&home).unwrap();
    journal.write_plan(&plan(20)).unwrap();
    let path = dir.0.join("journal");
    let whole = std::fs::read(&path).unwrap();
    let end = usize::try_from(journal.end).unwrap();
    for cut in (1024..end).step_by(7) {
        let mut torn = whole.clone();
        torn[cut..].fill(0);
        std::fs::write(&path, &torn).unwrap();
        let (_, found) = Journal::open(&home).unwrap();
        let found = found.unwrap();
        assert!(
            found.progress == Progress::Planning || torn == whole,
            "cut at {cut} gives {:?}",
            found.progress
        );
    }
    for byte in [0, 3, 9, 13, 512, 516, 520, 530, 540] {
        let mut bad = whole.clone();
        bad[byte] ^= 0x10;
        std::fs::write(&path, &bad).unwrap();
        assert!(matches!(Journal::open(&home), Err(Error::Format { .. })), "byte {byte}");
        assert_eq!(std::fs::read(&path).unwrap(), bad, "a refused journal is left as it is");
    }
}

/// Whoever looks is refused, and waits for nobody.
#[test]
fn a_pipe_in_place_of_the_journal_is_refused() {
    let (dir, home) = Store::new("pipe");
    let path = dir.0.join("journal");
    let _ = std::fs::remove_file(&path);
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
    assert!(matches!(holds(&home), Err(Error::Io { .. })));
    assert!(Journal::open(&home).is_err());
}

#[test]
fn paths_that_lead_out_are_not_sound() {
    for bad in ["../x", "/etc/x", "a/../b", "a//b", "./a"] {
        let mut p = plan(1);
        p.ops[0].target = bad.as_bytes().into();
        assert!(!p.is_sound(), "{bad}");
        let mut p = plan(1);
        p.ops[0].does = Does::Install(Staged { slot: bad.as_bytes().into(), ..Staged::default() });
        assert!(!p.is_sound(), "{bad}");
    }
}
