//! For fuzzing: a participant that writes anything anywhere into the segment, between any two steps
//! of another one. The other one must not crash, read beyond its segment, or go on for ever.

use std::cell::RefCell;
use std::os::unix::fs::FileExt;

use super::layout::{GROUPS_AT, ORECS_AT, SLOTS_AT, Slot};
use super::status::{State, Status};
use super::table::SEGMENT_LEN;
use super::{Access, Begin, Facet, Identity, PublishFate, Realm, SLOTS, TxHandle, WaitDecision};
use crate::contention::Policy;
use crate::fuzzing::Input;
use crate::object::FileId;

/// How often somebody is asked whether to wait on, before he says no.
const PATIENCE: u32 = 3;
/// Records that are touched and scribbled on.
const RECORDS: u64 = 8;

struct Scene {
    realm: Realm,
    file: std::fs::File,
}

impl Scene {
    fn new() -> std::io::Result<Scene> {
        let dir = crate::fuzzing::scratch("realm")?;
        let resolver = Box::new(|_: &super::DeadPublish| Ok(PublishFate::Undone));
        let realm = Realm::join(&dir, "fuzz", &dir, resolver).map_err(std::io::Error::other)?;
        let file = std::fs::OpenOptions::new().read(true).write(true).open(realm.path())?;
        Ok(Scene { realm, file })
    }

    /// As it was made.
    fn reset(&self) -> std::io::Result<()> {
        let zeros = vec![0u8; ORECS_AT - SLOTS_AT + 8 * RECORDS as usize];
        self.file.write_all_at(&zeros, SLOTS_AT as u64)?;
        self.file.write_all_at(&zeros[..512], 128)
    }

    fn word(&self, input: &mut Input<'_>) -> u64 {
        let state = |input: &mut Input<'_>| u64::from(input.byte() % 8);
        match input.byte() % 10 {
            0 => 0,
            1 => self.realm.me().word(),
            2 => Identity::of(1).map_or(1, Identity::word),
            3 => u64::MAX,
            4 => Status::new(u64::from(input.byte()), State::Publishing).0,
            5 => u64::from(input.byte()) << 5 | state(input),
            6 => (u64::MAX >> 5) << 5 | state(input),
            7 => 1 << (input.byte() % 64),
            8 => u64::from(input.byte() % 8) << 60 | 1 << (input.byte() % 64) | 1,
            _ => input.long(),
        }
    }

    fn scribble(&self, input: &mut Input<'_>) {
        let word = self.word(input);
        let slot = SLOTS_AT as u64 + u64::from(input.byte() % 4) * size_of::<Slot>() as u64;
        let at = match input.byte() % 8 {
            // Words of a slot that count, then any.
            0..4 => slot + 8 * u64::from(input.byte() % 24),
            4 => ORECS_AT as u64 + 8 * (u64::from(input.byte()) % RECORDS),
            5 => GROUPS_AT as u64 + 8 * u64::from(input.byte()),
            6 => 128 + 8 * u64::from(input.byte() % 16),
            _ => slot + 8 * (input.long() % 128),
        };
        if at + 8 <= SEGMENT_LEN as u64 {
            let _ = self.file.write_all_at(&word.to_le_bytes(), at);
        }
    }

    fn begin(&self, input: &mut Input<'_>) -> Option<TxHandle<'_>> {
        let how = input.byte();
        let begin = Begin {
            nonblock: true,
            sequence: (how & 6 == 6).then(|| u64::from(how >> 6)),
            reset_sequence: how & 8 != 0,
            soft: how & 16 != 0,
            ..Begin::default()
        };
        let mut handle = self.realm.begin(&begin).ok()?;
        if how & 1 != 0 {
            handle.may_wait();
        }
        let mut asked = 0;
        Some(handle.attended(move |_| {
            asked += 1;
            if asked < PATIENCE { WaitDecision::Wait } else { WaitDecision::CallOff }
        }))
    }

    fn step<'s>(&'s self, handles: &mut Vec<TxHandle<'s>>, input: &mut Input<'_>) {
        let (what, which) = (input.byte(), usize::from(input.byte() % 3));
        let access = match input.byte() % 3 {
            0 => Access::Read,
            1 => Access::Insert,
            _ => Access::Write,
        };
        let record = u32::from(input.byte()) % RECORDS as u32;
        let facet = Facet::Listing(FileId { dev: 1, ino: u64::from(record) });
        match what % 16 {
            0..6 => self.scribble(input),
            6 if handles.len() < 3 => handles.extend(self.begin(input)),
            7..10 => {
                if let Some(handle) = handles.get_mut(which) {
                    let _ = handle.acquire_hashed(u64::from(record), access);
                }
            }
            10 => {
                if let Some(handle) = handles.get_mut(which) {
                    let _ = (handle.pass(&facet, access), handle.acquire(&facet, access));
                }
            }
            11 => {
                if let Some(handle) = handles.get_mut(which) {
                    let _ = handle.prepare().and_then(|()| match handle.turn {
                        // Who waits for his turn can be waited for only if the turn can come.
                        Some(_) => Ok(()),
                        None => handle.publish(),
                    });
                }
            }
            12 if which < handles.len() => drop(handles.swap_remove(which)),
            13 if which < handles.len() => {
                let handle = handles.swap_remove(which);
                let _ = handle.finish();
            }
            14 => {
                let _ = (self.realm.members(), self.realm.quiet(), self.realm.sweep());
                let _ = self.realm.is_in_use(&facet, access);
            }
            15 if record == 0 => drop(self.realm.statistics()),
            _ => {
                let all = Policy::ALL;
                if let Some(policy) = all.get(usize::from(input.byte()) % all.len()) {
                    self.realm.set_policy(*policy);
                }
            }
        }
    }
}

/// Participants and a hostile one, in any order.
pub(crate) fn scribbled(input: &mut Input<'_>) {
    thread_local! {
        static SCENE: RefCell<Option<Scene>> = const { RefCell::new(None) };
    }
    SCENE.with_borrow_mut(|scene| {
        if scene.is_none() {
            *scene = Scene::new().ok();
        }
        let Some(scene) = scene else { return };
        if scene.reset().is_err() {
            return;
        }
        let mut handles = Vec::new();
        for _ in 0..64 {
            if input.is_empty() {
                break;
            }
            scene.step(&mut handles, input);
        }
        drop(handles);
        assert!(SLOTS as usize * size_of::<Slot>() + SLOTS_AT <= GROUPS_AT);
    });
}

/// The fixed part of a segment's header.
pub(crate) fn header(bytes: &[u8]) {
    super::segment::fuzz_header(bytes);
}

/// `/proc/PID/stat`.
pub(crate) fn stat(bytes: &[u8]) {
    let _ = super::identity::start_and_state(bytes);
}
