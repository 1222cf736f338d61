//! Operations as bytes, in the journal and in stored plans (docs/journal-format.md).
//!
//! A record has all fields that any operation has, in the order of the format; what an operation has not is
//! empty. Formats 1 to 4 are the same here, so one record reads them all. Fields that an operation has no use
//! for are ignored when it is read.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::op::{Does, Exchanged, Op, Rebuilt, Staged, Write, in_place};
use crate::changeset::{AttrChange, Strip};
use crate::path::{LayerPath, StorePath};
use crate::version::{Stamp, Version};

/// Which operation it is. The number in a record is the place here: a new kind goes to the end, and raises
/// the versions of the journal and, if a finished commit can have it, of stored plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Kind {
    Install,
    Exchange,
    Remove,
    MoveOut,
    MoveIn,
    Link,
    Data,
    Attrs,
    DirTime,
    Patch,
    Rebuild,
}

/// One operation.
#[derive(Serialize, Deserialize)]
struct Record<'a> {
    layer: u16,
    kind: Kind,
    target: Cow<'a, [u8]>,
    before: Cow<'a, [u8]>,
    after: Cow<'a, [u8]>,
    slot: Cow<'a, [u8]>,
    undo_copy: Cow<'a, [u8]>,
    /// Where a moved object was, or another name.
    from: Option<Cow<'a, [u8]>>,
    base: Option<Version>,
    new: Option<Version>,
    strip: Cow<'a, [Strip]>,
    attrs: Option<Cow<'a, AttrChange>>,
    shown: bool,
    below: u64,
    own_version: Option<Version>,
}

impl Serialize for Op {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let strip = match &self.does {
            Does::Install(staged) | Does::Exchange { staged, .. } => {
                Cow::Borrowed(&staged.strip[..])
            }
            Does::Rebuild(rebuilt) => rebuilt.times.iter().map(strip_of_time).collect(),
            Does::Remove { .. }
            | Does::MoveOut { .. }
            | Does::MoveIn { .. }
            | Does::Link { .. }
            | in_place!() => Cow::Borrowed(&[][..]),
        };
        let record = Record {
            layer: self.layer,
            kind: match &self.does {
                Does::Install(_) => Kind::Install,
                Does::Exchange { .. } => Kind::Exchange,
                Does::Remove { .. } => Kind::Remove,
                Does::MoveOut { .. } => Kind::MoveOut,
                Does::MoveIn { .. } => Kind::MoveIn,
                Does::Link { .. } => Kind::Link,
                Does::Data(_) => Kind::Data,
                Does::Attrs { .. } => Kind::Attrs,
                Does::DirTime { .. } => Kind::DirTime,
                Does::Patch { .. } => Kind::Patch,
                Does::Rebuild(_) => Kind::Rebuild,
            },
            target: Cow::Borrowed(&self.target),
            before: Cow::Borrowed(&self.before),
            after: Cow::Borrowed(&self.after),
            slot: Cow::Borrowed(self.slot()),
            undo_copy: Cow::Borrowed(self.write().map_or(&[], |write| &write.undo_copy)),
            from: self.other().or(self.moved_from()).map(Cow::Borrowed),
            base: self.base,
            new: self.new,
            strip,
            attrs: self.attrs().map(Cow::Borrowed),
            shown: self.shown,
            below: self.below,
            own_version: self.own_version,
        };
        record.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Op {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Op, D::Error> {
        let record = Record::deserialize(from)?;
        record.into_op().ok_or_else(|| de::Error::custom("an operation without what it needs"))
    }
}

impl Record<'_> {
    /// The operation; `None` if it lacks something that it needs.
    fn into_op(self) -> Option<Op> {
        let slot = StorePath::from(self.slot.into_owned());
        let attrs = self.attrs.map(|attrs| Box::new(attrs.into_owned()));
        let undo_copy = StorePath::from(self.undo_copy.into_owned());
        let from = self.from.map(|from| LayerPath::from(from.into_owned()));
        let staged = |slot| Staged { slot, strip: self.strip.to_vec(), dirs: Vec::new() };
        let does = match self.kind {
            Kind::Install => Does::Install(staged(slot)),
            Kind::Exchange => Does::Exchange {
                staged: staged(slot),
                outsiders: Exchanged::default(),
                other: from,
            },
            Kind::Remove => Does::Remove { slot, other: from },
            Kind::MoveOut => Does::MoveOut { slot },
            Kind::MoveIn => Does::MoveIn { slot, from },
            Kind::Link => Does::Link { slot, other: from? },
            Kind::Data => Does::Data(Write { slot, undo_copy, attrs, held: None }),
            Kind::Patch => Does::Patch {
                write: Write { slot, undo_copy, attrs, held: None },
                pages: Vec::new(),
            },
            Kind::Attrs => Does::Attrs {
                change: attrs?,
                held: None,
                retained: Some(slot).filter(|slot| !slot.is_empty()),
            },
            Kind::DirTime => Does::DirTime { change: attrs? },
            Kind::Rebuild => Does::Rebuild(Rebuilt {
                slot,
                times: self.strip.iter().map(time_of_strip).collect::<Option<_>>()?,
                ..Rebuilt::default()
            }),
        };
        let op = Op {
            layer: self.layer,
            target: self.target.into_owned().into(),
            before: self.before.into_owned().into(),
            after: self.after.into_owned().into(),
            base: self.base,
            new: self.new,
            shown: self.shown,
            below: self.below,
            own_version: self.own_version,
            does,
        };
        op.is_complete().then_some(op)
    }
}

/// The name under which a record has the time of a directory.
const TIME: &[u8] = b"mtime";

/// A directory's time as a record has it: seconds and nanoseconds, little-endian.
fn strip_of_time((below, time): &(Vec<u8>, Stamp)) -> Strip {
    let value = [&time.sec.to_le_bytes()[..], &time.nsec.to_le_bytes()].concat();
    Strip { below: below.clone(), name: TIME.to_vec(), value }
}

/// The same, read; `None` if it is none.
fn time_of_strip(strip: &Strip) -> Option<(Vec<u8>, Stamp)> {
    let (sec, nsec) = strip.value.split_first_chunk().filter(|_| strip.name == TIME)?;
    let time =
        Stamp { sec: i64::from_le_bytes(*sec), nsec: u32::from_le_bytes(*nsec.first_chunk()?) };
    Some((strip.below.clone(), time))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::FileId;
    use crate::version::Stamp;

    fn version(ino: u64) -> Version {
        let stamp = Stamp { sec: 1, nsec: 2 };
        let id = FileId { dev: 1, ino };
        let (mode, nlink) = (0o100_644, 1);
        Version { id, mode, uid: 0, gid: 0, nlink, size: 3, mtime: stamp, ctime: stamp, rdev: 0 }
    }

    fn op(does: Does) -> Op {
        Op {
            layer: 1,
            target: b"d/t".to_vec().into(),
            before: b"b".to_vec().into(),
            after: b"a".to_vec().into(),
            base: Some(version(5)),
            new: Some(version(6)),
            shown: true,
            below: 300,
            own_version: None,
            does,
        }
    }

    /// One of each kind, with its number and what of a record it fills.
    fn all() -> Vec<(u8, Op, &'static str)> {
        let slot = || StorePath::from(b"s".to_vec());
        let strip = Strip { below: b"x".to_vec(), name: b"n".to_vec(), value: b"v".to_vec() };
        let staged = || Staged { slot: slot(), strip: vec![strip.clone()], dirs: Vec::new() };
        let change = || Box::new(AttrChange { mode: Some((1, 2)), ..AttrChange::default() });
        let other = Some(LayerPath::from(b"o".to_vec()));
        let write = || Write {
            slot: slot(),
            undo_copy: b"u".to_vec().into(),
            attrs: Some(change()),
            held: None,
        };
        let exchange = Does::Exchange {
            staged: staged(),
            outsiders: Exchanged::default(),
            other: other.clone(),
        };
        let retained = Some(slot());
        let times = vec![(b"x".to_vec(), Stamp { sec: 3, nsec: 4 })];
        let rebuilt = Rebuilt { slot: slot(), times, ..Rebuilt::default() };
        vec![
            (0, op(Does::Install(staged())), "strip"),
            (1, op(exchange), "strip from"),
            (2, op(Does::Remove { slot: slot(), other: other.clone() }), "from"),
            (3, op(Does::MoveOut { slot: slot() }), ""),
            (4, op(Does::MoveIn { slot: slot(), from: other }), "from"),
            (5, op(Does::Link { slot: slot(), other: b"o".to_vec().into() }), "from"),
            (6, op(Does::Data(write())), "undo attrs"),
            (7, op(Does::Attrs { change: change(), held: None, retained }), "attrs"),
            (8, op(Does::DirTime { change: change() }), "no-slot attrs"),
            (9, op(Does::Patch { write: write(), pages: Vec::new() }), "undo attrs"),
            (10, op(Does::Rebuild(rebuilt)), "time"),
        ]
    }

    /// The bytes of the format, field by field.
    fn by_hand(number: u8, fills: &str) -> Vec<u8> {
        let has = |field: &str| fills.split(' ').any(|f| f == field);
        // dev, ino; mode 0o100644, uid, gid, nlink, size; two stamps, their seconds zigzag; rdev
        let version = |ino| [&[1, ino, 0xa4, 0x83, 2, 0, 0, 1, 3, 2, 2, 2, 2, 0][..]].concat();
        let mut bytes = vec![1, number, 3, b'd', b'/', b't', 1, b'b', 1, b'a'];
        bytes.extend(if has("no-slot") { &[0][..] } else { &[1, b's'] });
        bytes.extend(if has("undo") { &[1, b'u'][..] } else { &[0] });
        bytes.extend(if has("from") { &[1, 1, b'o'][..] } else { &[0] });
        for ino in [5, 6] {
            bytes.push(1);
            bytes.extend(version(ino));
        }
        let time = [&[1, 1, b'x', 5][..], b"mtime", &[12, 3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0]];
        bytes.extend(match (has("strip"), has("time")) {
            (true, _) => vec![1, 1, b'x', 1, b'n', 1, b'v'],
            (_, true) => time.concat(),
            _ => vec![0],
        });
        // mode, and neither owner nor time nor extended attributes
        bytes.extend(if has("attrs") { &[1, 1, 1, 2, 0, 0, 0][..] } else { &[0] });
        // shown; 300; no version of our own
        bytes.extend([1, 0xac, 2, 0]);
        bytes
    }

    #[test]
    fn every_operation_is_its_record() {
        for (number, op, fills) in all() {
            let bytes = postcard::to_stdvec(&op).unwrap();
            assert_eq!(bytes, by_hand(number, fills), "{op:?}");
            assert_eq!(postcard::from_bytes::<Op>(&bytes).unwrap(), op);
        }
    }

    #[test]
    fn an_operation_that_lacks_something_is_refused() {
        for (number, op, fills) in all() {
            let without_slot = [fills, "no-slot"].join(" ");
            let bytes = by_hand(number, &without_slot);
            let read = postcard::from_bytes::<Op>(&bytes);
            // Only changes of attributes have none.
            assert_eq!(read.is_ok(), matches!(number, 7 | 8), "{op:?}");
        }
        let no_attrs = by_hand(7, "");
        assert!(postcard::from_bytes::<Op>(&no_attrs).is_err());
        let no_other = by_hand(5, "");
        assert!(postcard::from_bytes::<Op>(&no_other).is_err());
        // What an operation has no use for is ignored.
        let (_, move_out, _) = all().swap_remove(3);
        let more = by_hand(3, "strip from undo attrs");
        assert_eq!(postcard::from_bytes::<Op>(&more).unwrap(), move_out);
        assert!(postcard::from_bytes::<Op>(&by_hand(10, "strip")).is_err(), "that is no time");
        assert!(postcard::from_bytes::<Op>(&by_hand(11, "from")).is_err());
    }
}
