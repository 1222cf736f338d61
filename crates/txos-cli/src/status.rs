//! `txos status`: what happens between transactions, on one screen.

use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;
use txos_engine::TxId;
use txos_engine::changeset::ChangeSet;
use txos_engine::contention::Policy;
use txos_engine::realm::{Realm, SLOTS, Statistics};
use txos_engine::show::quoted;
use txos_engine::store::{Home, Meta};
use txos_run::question;

use crate::app::App;
use crate::args::StatusArgs;
use crate::changes;
use crate::exit::Failure;
use crate::json;
use crate::list::find;
use crate::log::one_line;
use crate::realm_view::{Counts, look, percent};
use crate::space::{Counting, bound, du};
use crate::style::Paint;
use crate::tx_status::TxStatus;

/// How many running transactions are looked at.
const RUNNING_MAX: usize = 8;

/// What is known.
#[derive(Debug, Serialize)]
struct Report {
    policy: &'static str,
    realm: Option<RealmReport>,
    store: Option<StoreReport>,
}

#[derive(Debug, Serialize)]
struct RealmReport {
    path: String,
    /// Whether it lies in memory, not on a disk.
    in_memory: bool,
    places: u32,
    #[serde(flatten)]
    now: Counts,
    commits: u64,
    aborts: u64,
    conflicts: u64,
    dooms: u64,
    yields: u64,
    waits: u64,
    takeovers: u64,
    full: u64,
    collisions: u64,
    records: u64,
    held: u64,
    /// `held / records`: how likely something that nobody touches seems to be in use.
    false_conflict_chance: f64,
}

/// Transactions on record, by where they stand.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct StoreReport {
    path: String,
    active: usize,
    dead: usize,
    pending: usize,
    lost: usize,
    committed: usize,
    reverted: usize,
    unreadable: usize,
    /// Disk space of private copies, and of old versions in the history; none if it takes too long to count.
    pending_bytes: Option<u64>,
    history_bytes: Option<u64>,
    /// What the store may take before the oldest history goes.
    bound: Option<u64>,
    /// Those whose commands run, as far as they were looked at.
    running: Vec<Running>,
}

/// A transaction whose command runs.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Running {
    id: String,
    name: Option<String>,
    command: String,
    /// What it has changed so far; none while that can't be told.
    counts: Option<changes::Counts>,
    /// Whether this was asked for inside of it.
    around: bool,
}

impl Running {
    fn of(home: &Home, meta: &Meta, around: Option<TxId>) -> Running {
        let entries = ChangeSet::so_far(home, meta).ok();
        Running {
            id: meta.id.to_string(),
            name: meta.name.clone(),
            command: one_line(meta),
            counts: entries.as_deref().map(changes::Counts::of),
            around: around == Some(meta.id),
        }
    }

    /// "7ey26dt9 (around this command): 2 paths (1 added, 1 modified) so far; make install".
    fn in_words(&self) -> String {
        let around = if self.around { " (around this command)" } else { "" };
        let counts = match &self.counts {
            Some(counts) => format!("{counts} so far"),
            None => "changes while it is looked at".into(),
        };
        format!("{}{around}: {counts}; {}", self.id, self.command)
    }
}

impl RealmReport {
    fn new(path: &Path, in_memory: bool, now: Counts, counted: Statistics) -> Self {
        let Statistics { commits, aborts, conflicts, dooms, yields, .. } = counted;
        let Statistics { waits, takeovers, full, collisions, records, held, .. } = counted;
        RealmReport {
            path: quoted(path),
            in_memory,
            places: SLOTS,
            now,
            commits,
            aborts,
            conflicts,
            dooms,
            yields,
            waits,
            takeovers,
            full,
            collisions,
            records,
            held,
            false_conflict_chance: held as f64 / records.max(1) as f64,
        }
    }
}

impl StoreReport {
    fn of(home: &Home) -> Result<Self, Failure> {
        let (found, unreadable) = find(Some(home), |_| true)?;
        let mut report = StoreReport {
            path: quoted(home.dir()),
            unreadable: unreadable.len(),
            ..StoreReport::default()
        };
        found.iter().for_each(|(_, status)| report.add(*status));
        let counting = Counting::begin();
        let sum = |published: bool| {
            let is_published = |s| matches!(s, TxStatus::Committed | TxStatus::Reverted);
            let of_kind = found.iter().filter(|(_, status)| is_published(*status) == published);
            of_kind.map(|(meta, _)| counting.of(home, meta)).sum::<Option<u64>>()
        };
        (report.pending_bytes, report.history_bytes) = (sum(false), sum(true));
        report.bound = bound(home)?;
        let around = question::asked_by();
        let mut running: Vec<&Meta> = found
            .iter()
            .filter_map(|(meta, status)| (*status == TxStatus::Active).then_some(meta))
            .collect();
        running.sort_by_key(|meta| (Some(meta.id) != around, meta.begun));
        running.truncate(RUNNING_MAX);
        report.running = running.into_iter().map(|meta| Running::of(home, meta, around)).collect();
        Ok(report)
    }

    fn add(&mut self, status: TxStatus) {
        *match status {
            TxStatus::Active => &mut self.active,
            TxStatus::Dead => &mut self.dead,
            TxStatus::Pending => &mut self.pending,
            TxStatus::Lost => &mut self.lost,
            TxStatus::Committed => &mut self.committed,
            TxStatus::Reverted => &mut self.reverted,
        } += 1;
    }

    /// "12M in private copies, 1.3G in the history; no bound".
    fn space(&self) -> String {
        let shown =
            |bytes: Option<u64>| bytes.map_or_else(|| "more than can be counted now".into(), du);
        let bound = match self.bound {
            Some(bytes) => format!("bound {}", du(bytes)),
            None => "no bound (`txos gc --bound SIZE` sets one)".into(),
        };
        let (pending, history) = (shown(self.pending_bytes), shown(self.history_bytes));
        format!("{pending} in private copies, {history} in the history; {bound}")
    }

    /// "2 pending, 14 committed", and whatever else there is.
    fn counted(&self) -> String {
        let always = [(self.pending, "pending"), (self.committed, "committed")];
        let sometimes = [
            (self.active, "active"),
            (self.dead, "dead"),
            (self.lost, "lost"),
            (self.reverted, "reverted"),
            (self.unreadable, "unreadable"),
        ];
        let all = always.into_iter().chain(sometimes.into_iter().filter(|(n, _)| *n > 0));
        all.map(|(n, what)| format!("{n} {what}")).collect::<Vec<_>>().join(", ")
    }
}

/// Whether a file lies in memory.
pub fn is_in_memory(path: &Path) -> bool {
    const TMPFS: i64 = 0x0102_1994;
    const RAMFS: i64 = 0x8584_58f6;
    rustix::fs::statfs(path).is_ok_and(|s| matches!(s.f_type, TMPFS | RAMFS))
}

/// Shows it.
pub fn status(app: &App, args: &StatusArgs) -> Result<u8, Failure> {
    let realm = app.realm_existing()?;
    let store = app.open_existing()?.as_ref().map(StoreReport::of).transpose()?;
    let policy = realm.as_ref().map(Realm::policy).unwrap_or_default();
    let realm = realm.map(|realm| {
        let counts = Counts::of(&look(&realm));
        let path = realm.path();
        RealmReport::new(path, is_in_memory(path), counts, realm.statistics())
    });
    let report = Report { policy: policy.name(), realm, store };
    let mut out = io::BufWriter::new(io::stdout().lock());
    if args.json {
        json::write(&mut out, report)?;
    } else if report.realm.is_none() && report.store.is_none() {
        app.say("nothing has run yet: there is neither a realm nor a store");
    } else {
        write_report(&mut out, &report, policy, app.out)?;
    }
    out.flush()?;
    Ok(0)
}

fn write_report(
    out: &mut dyn Write,
    report: &Report,
    policy: Policy,
    paint: Paint,
) -> io::Result<()> {
    let strong = paint.strong();
    match &report.realm {
        Some(realm) => {
            let place = if realm.in_memory { "in memory" } else { "on a disk" };
            writeln!(out, "{strong}realm{strong:#}         {} ({place})", realm.path)?;
        }
        None => writeln!(
            out,
            "{strong}realm{strong:#}         none yet: it is made when something runs"
        )?,
    }
    writeln!(out, "{strong}policy{strong:#}        {policy}: {}", policy.summary())?;
    if let Some(realm) = &report.realm {
        writeln!(out, "{strong}transactions{strong:#}  {}; {} places", realm.now, realm.places)?;
        writeln!(
            out,
            "{strong}records{strong:#}       {} of {} held: {} chance of a false conflict",
            realm.held,
            realm.records,
            percent(realm.held, realm.records)
        )?;
    }
    match &report.store {
        Some(store) => {
            writeln!(out, "{strong}store{strong:#}         {}: {}", store.path, store.counted())?;
            writeln!(out, "{strong}space{strong:#}         {}", store.space())?;
            for running in &store.running {
                writeln!(out, "{strong}running{strong:#}       {}", running.in_words())?;
            }
        }
        None => writeln!(out, "{strong}store{strong:#}         none")?,
    }
    let Some(realm) = &report.realm else { return Ok(()) };
    writeln!(out, "\n{strong}since the realm was made{strong:#}")?;
    let faint = paint.faint();
    for (count, what, meaning) in [
        (realm.commits, "commits", ""),
        (realm.aborts, "aborts", ""),
        (realm.conflicts, "conflicts", "met another transaction in the way"),
        (realm.waits, "waits", "waited for it"),
        (realm.yields, "yields", "gave way to it"),
        (realm.dooms, "dooms", "had to give way, while it ran"),
        (realm.takeovers, "takeovers", "cleared up after a dead process"),
        (realm.full, "full", "found all places taken"),
        (realm.collisions, "collisions", "shared a record by chance, and went on"),
    ] {
        match meaning {
            "" => writeln!(out, "{count:>10}  {what}")?,
            _ => writeln!(out, "{count:>10}  {what:10}  {faint}{meaning}{faint:#}")?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::realm_view::samples::crowd;

    fn report() -> Report {
        let counted = Statistics {
            policy: Policy::Timestamp,
            commits: 12,
            aborts: 3,
            conflicts: 5,
            dooms: 1,
            yields: 2,
            waits: 4,
            takeovers: 6,
            full: 7,
            collisions: 8,
            records: 1 << 20,
            held: 2048,
        };
        let path = Path::new("/run/txos/realm-1-2");
        let realm = RealmReport::new(path, true, Counts::of(&crowd()), counted);
        let mut store = StoreReport { path: "/var/lib/txos".into(), ..StoreReport::default() };
        for status in [TxStatus::Pending, TxStatus::Committed, TxStatus::Pending, TxStatus::Dead] {
            store.add(status);
        }
        store.pending_bytes = Some(12 << 20);
        store.history_bytes = Some(1_300_000_000);
        store.bound = Some(2 << 30);
        let counts = changes::Counts { added: 1, modified: 1, ..changes::Counts::default() };
        store.running.push(Running {
            id: "00000007".into(),
            name: None,
            command: "make install".into(),
            counts: Some(counts),
            around: true,
        });
        Report { policy: "timestamp", realm: Some(realm), store: Some(store) }
    }

    fn text(report: &Report) -> String {
        let mut out = Vec::new();
        write_report(&mut out, report, Policy::Timestamp, Paint::default()).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn everything_on_one_screen() {
        let text = text(&report());
        assert!(text.lines().count() < 24);
        assert!(text.starts_with("realm         /run/txos/realm-1-2 (in memory)\n"), "{text}");
        for line in [
            "policy        timestamp: the older wins; nobody starves",
            "transactions  3 running, 2 of them waiting, 1 dead; 60 places",
            "records       2048 of 1048576 held: 0.20 % chance of a false conflict",
            "store         /var/lib/txos: 2 pending, 1 committed, 1 dead",
            "space         12M in private copies, 1.3G in the history; bound 2.0G",
            "running       00000007 (around this command): 2 paths (1 added, 1 modified) so far; make install",
            "        12  commits",
            "         4  waits       waited for it",
            "         7  full        found all places taken",
        ] {
            assert!(text.lines().any(|l| l == line), "{line:?} is not in\n{text}");
        }
    }

    #[test]
    fn without_a_realm_or_a_store() {
        let mut report = report();
        report.realm = None;
        assert!(
            text(&report)
                .starts_with("realm         none yet: it is made when something runs\npolicy ")
        );
        report.store = None;
        assert!(text(&report).ends_with("store         none\n"));
    }

    #[test]
    fn the_schema_stays() {
        let mut out = Vec::new();
        json::write(&mut out, report()).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, include_str!("../tests/snapshots/status.json"));
    }
}
