//! The realm: where the participants of one trust domain meet while their transactions run.
//!
//! A segment of shared memory holds the *transaction table* (slots) and the *ownership records*
//! (orecs). A transaction takes a slot, and before it touches a facet for the first time it writes
//! itself into the facet's ownership record. Whoever finds somebody in the way is told by the
//! realm's policy ([`crate::contention`]) whether to abort him, to abort itself, or to wait.
//!
//! # Invariants
//!
//! - **The realm is never the truth about outsiders; versions are** ([`crate::readset`]). It makes
//!   participants meet early and see each other's commits whole. Everything it says is checked
//!   again by validation, so a damaged realm can cost restarts and waiting, not a wrong commit.
//! - **Strict two-phase locking with wounds**: what is held firmly is held until the transaction has
//!   ended, and whoever is dispossessed of it was doomed first, so it can't commit. Hence histories
//!   are strictly serializable. What a command holds while it runs it holds *softly*: it validates what it
//!   read and acquires firmly what it publishes, so it can lose a record to who only collides with
//!   it, and is none the worse.
//! - **Nobody waits on one who waits.** Who wants to wait says so in its slot, *then* looks whether
//!   the other waits. In a cycle the last to do so would see that the next one waits. Who
//!   waits for its turn can't see whom that leads to: it wakes those who wait for it, and they look
//!   again. Publishing transactions and dead ones are exceptions that are none: they wait for
//!   nobody.
//! - **Every step is one atomic operation on one word**, and every word that stands for a process
//!   is the identity of that process. So at whatever instruction a process is killed, what it held
//!   can be found, and whoever meets it takes over ([`takeover`]).
//! - **A seized facet was held by nobody who could commit**: before it takes the word, the winner
//!   pins the slots of all holders; a pinned slot takes no new transaction, so the bits in the word
//!   mean the generations that were looked at ([`contend`]).
//!
//! | module | what lives there |
//! |---|---|
//! | `facet` | what can be acquired; the hash |
//! | `word`, `status` | the two words everything turns around |
//! | `layout`, `table`, `segment` | the segment: fields, mapping, file |
//! | `list` | what a slot holds, facet by facet |
//! | `identity` | which process, and whether it lives |
//! | `tx_handle` | a transaction's place: begin, acquire, prepare, publish, finish, abort |
//! | [`contend`], [`wait`] | a conflict with a holder; waiting for one |
//! | [`takeover`] | what becomes of the dead |
//! | `order` | ordered transactions |
//! | `outside` | waits for what the realm does not know |
//! | `single` | single calls as transactions of their own |
//! | `snapshot` | what people are shown |
//! | `sync` | atomics, exchangeable for the model checker's |
//! | `model` | the model: every interleaving of small transactions, deaths included |
//!
//! Used by `txos-run` (one transaction per command) and by whatever runs transactions inside a
//! process. It knows neither stores nor journals; [`ResolvePublish`] asks those who do.

mod contend;
mod facet;
#[cfg(all(feature = "fuzzing", not(loom)))]
pub(crate) mod fuzz;
mod identity;
mod layout;
#[cfg(not(loom))]
mod list;
#[cfg(loom)]
mod model;
mod order;
mod outside;
#[cfg(not(loom))]
mod segment;
mod single;
mod snapshot;
mod status;
mod sync;
#[cfg(not(loom))]
mod table;
mod takeover;
#[cfg(not(loom))]
#[cfg(test)]
mod tests;
mod tx_handle;
mod wait;
mod word;

pub use contend::{AbortCause, Opponent};
pub use facet::{Facet, Seed};
pub use identity::Identity;
pub use outside::{OutsideWait, Place};
#[cfg(not(loom))]
pub(crate) use segment::open_dir;
#[cfg(not(loom))]
pub use segment::{default_dir, rebuild};
pub use snapshot::{Member, Statistics, WaitsFor};
pub use status::State;
#[cfg(not(loom))]
pub use table::mapped;
pub use takeover::{DeadPublish, PublishFate, ResolvePublish, Unresolved};
pub use tx_handle::{Begin, BeginError, RetryHistory, TxHandle, Watch, touch_thread};
pub use wait::{WaitDecision, WaitInfo};
pub use word::Access;

use crate::contention::Policy;
#[cfg(not(loom))]
use sync::Ordering::Relaxed;
use sync::Ordering::{Acquire, Release};

/// Places for transactions that run at the same time.
pub const SLOTS: u32 = 60;

/// In `waiting_for`: not for a slot, but for its turn among ordered transactions.
const WAITS_FOR_TURN: u32 = u32::MAX;

/// A participant's door to a realm. One per process; threads share it.
pub struct Realm {
    #[cfg(not(loom))]
    segment: segment::Segment,
    #[cfg(loom)]
    table: std::sync::Arc<model::Table>,
    /// [`Identity`] of this process: another one after [`Realm::move_here`].
    me: std::sync::atomic::AtomicU64,
    /// What people are told that runs here.
    label: String,
    /// Where the journal of this process's commits is.
    home: std::path::PathBuf,
    resolver: Box<dyn ResolvePublish>,
    /// The dead publisher of whom it was last said that the publish can't be resolved.
    unresolved: std::sync::atomic::AtomicU64,
}

impl std::fmt::Debug for Realm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Realm").field("me", &self.me()).field("label", &self.label).finish()
    }
}

impl Realm {
    /// The process that takes part.
    fn me(&self) -> Identity {
        Identity::known(self.me.load(std::sync::atomic::Ordering::Relaxed))
    }

    /// The calling process, for [`Facet::Descriptor`]: for all time of this boot.
    #[must_use]
    pub fn this_process(&self) -> u64 {
        self.me().word()
    }
}

#[cfg(not(loom))]
impl Realm {
    /// The calling process, a copy of the one that has joined, takes part in its place: here, in this copy.
    ///
    /// # Errors
    /// As [`Identity::of_self`].
    pub fn move_here(&self) -> std::io::Result<()> {
        let me = Identity::of_self()?;
        self.me.store(me.word(), std::sync::atomic::Ordering::Relaxed);
        Ok(())
    }

    /// A copy of the process takes part in its place from here on, which has [moved](Self::move_here): the file is closed here.
    pub fn moved_away(&self) {
        self.segment.leave_file();
    }

    /// Joins the realm in `dir`, making it if there is none.
    ///
    /// `label` is what others are told that runs here; `home` the home store whose journal says
    /// what became of this process's commits; `resolver` is asked about those of dead ones.
    ///
    /// # Errors
    /// [`Error::Format`](crate::Error::Format) for a damaged, foreign or newer realm,
    /// [`Error::Io`](crate::Error::Io) with the step.
    pub fn join(
        dir: &std::path::Path,
        label: &str,
        home: &std::path::Path,
        resolver: Box<dyn ResolvePublish>,
    ) -> crate::Result<Realm> {
        Realm::of(segment::Segment::open(dir)?, label, home, resolver)
    }

    /// Joins the realm in `dir` if there is one, to look at it or to set its policy.
    ///
    /// # Errors
    /// As [`Realm::join`].
    pub fn join_existing(
        dir: &std::path::Path,
        label: &str,
        home: &std::path::Path,
        resolver: Box<dyn ResolvePublish>,
    ) -> crate::Result<Option<Realm>> {
        let segment = segment::Segment::open_existing(dir)?;
        segment.map(|segment| Realm::of(segment, label, home, resolver)).transpose()
    }

    fn of(
        segment: segment::Segment,
        label: &str,
        home: &std::path::Path,
        resolver: Box<dyn ResolvePublish>,
    ) -> crate::Result<Realm> {
        let me = Identity::of_self()
            .map_err(|e| crate::Error::io("finding out who we are from", "/proc/self", e))?;
        if home.as_os_str().len() >= layout::HOME_LEN {
            return Err(crate::Error::Unsupported {
                what: format!(
                    "the path of the store is too long for the realm ({} bytes)",
                    home.as_os_str().len()
                ),
                advice: "Name a shorter one with TXOS_STORE.".into(),
            });
        }
        Ok(Realm {
            segment,
            me: me.word().into(),
            label: label.to_owned(),
            home: home.to_owned(),
            resolver,
            unresolved: std::sync::atomic::AtomicU64::new(0),
        })
    }

    /// Where its segment is.
    #[must_use]
    pub fn path(&self) -> &std::path::Path {
        &self.segment.path
    }

    #[inline]
    fn table(&self) -> &table::Table {
        &self.segment.table
    }

    #[inline]
    fn hash_of(&self, facet: &Facet<'_>) -> u64 {
        facet.hash(self.segment.seed)
    }

    /// Whether a slot's transaction holds the facet of that hash, as far as one can tell.
    fn seems_to_hold(&self, number: u32, hash: u64) -> bool {
        self.table().slot(number).flags.load(Relaxed) & tx_handle::LISTED == 0
            || self.table().list(number).has(hash)
    }
}

impl Realm {
    #[cfg(loom)]
    fn table(&self) -> &model::Table {
        &self.table
    }

    #[cfg(loom)]
    fn hash_of(&self, facet: &Facet<'_>) -> u64 {
        match facet {
            Facet::Page { number, .. } => *number,
            _ => 0,
        }
    }

    /// In the model a scene says it for all.
    #[cfg(loom)]
    fn seems_to_hold(&self, _number: u32, _hash: u64) -> bool {
        !self.table.all_collide
    }

    /// The ownership record of a facet.
    #[inline]
    fn index_of(&self, facet: &Facet<'_>) -> u32 {
        self.table().index(self.hash_of(facet))
    }

    /// The policy conflicts are arbitrated by now.
    #[must_use]
    pub fn policy(&self) -> Policy {
        Policy::from_code(self.table().board().policy.load(Acquire)).unwrap_or_default()
    }

    /// Changes it, from the next conflict on, for everybody.
    pub fn set_policy(&self, policy: Policy) {
        self.table().board().policy.store(policy.code(), Release);
    }

    /// A number that is another one after each publish; `None` while somebody publishes. Who gets the
    /// same number before and after a look has seen no half of any commit.
    #[must_use]
    pub fn quiet(&self) -> Option<u64> {
        self.quiet_beside(None)
    }

    /// Counts the publishes of participants that may have changed names. While it stays the same, what a
    /// participant found at a name only an outsider can have changed; as long as the participant holds the
    /// entry ([`Facet::Entry`]), and for as long after it as the number stays.
    #[must_use]
    pub fn names_published(&self) -> u64 {
        self.table().board().names.load(Acquire)
    }

    /// Counts the publishes of participants that have ended. Who looks at an object first and acquires it
    /// then, and gets the same number before the look and after it, has seen what is there while it holds
    /// it: whoever changed the object in between would have been counted before letting it go.
    #[must_use]
    pub fn publishes_ended(&self) -> u64 {
        self.table().board().ended.load(Acquire)
    }

    /// [`Realm::quiet`] of all slots but one.
    fn quiet_beside(&self, own: Option<u32>) -> Option<u64> {
        let mut published = 0u64;
        for number in (0..SLOTS).filter(|number| own != Some(*number)) {
            let slot = self.table().slot(number);
            // A publish is counted before its status ends, and here the status is looked at before the count:
            // one that is seen to have ended has been counted, and what was counted changes nothing any more.
            let status = status::Status(slot.status.load(Acquire));
            if status.state() == State::Publishing {
                // Of one whose process is dead, half may be there: whoever begins finishes or undoes it. That takes the store's
                // locks, which one that commits has.
                if own.is_some() || cfg!(loom) || !self.take_over_if_dead(number) {
                    return None;
                }
            }
            published = published.wrapping_add(slot.commits.load(Acquire));
            published = published.wrapping_add(slot.aborts.load(Acquire).rotate_left(32));
        }
        Some(published)
    }

    /// Whether a call that touches a facet without being in a transaction would disturb a
    /// transaction, or see half of one. A load and a comparison: made before every such call.
    #[inline]
    #[must_use]
    pub fn is_in_use(&self, facet: &Facet<'_>, access: Access) -> bool {
        let orec = self.table().orec(self.index_of(facet));
        word::Word(orec.load(Acquire)).is_in_the_way_of(access)
    }
}
