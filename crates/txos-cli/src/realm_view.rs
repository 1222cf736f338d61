//! The transactions that run, as people see them: who waits for whom, and for how long.

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use txos_engine::TxId;
use txos_engine::realm::{Member, Realm, State, WaitsFor};

use crate::app::App;
use crate::duration::length;

/// Between two looks at one that does not seem to wait.
const SECOND_LOOK_AFTER: Duration = Duration::from_millis(1);

/// For whom a transaction waits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Wait {
    /// The other one's name, if it has one.
    pub id: Option<TxId>,
    /// Its process; none if it waits for its turn, or the other one has just ended.
    pub pid: Option<u32>,
    /// Whether it waits for its turn among ordered transactions.
    pub turn: bool,
    /// For how long.
    pub seconds: f64,
}

impl Wait {
    /// For whom one waits, who is among all others.
    pub fn of(member: &Member, all: &[Member]) -> Option<Self> {
        let (whom, time) = member.waits?;
        let holder = all.iter().find(|m| whom == WaitsFor::Slot(m.slot));
        Some(Wait {
            id: holder.and_then(|m| m.id),
            pid: holder.map(|m| m.pid),
            turn: whom == WaitsFor::Turn,
            seconds: seconds(time),
        })
    }

    /// For how long, to one unit.
    pub fn length(&self) -> String {
        length(Duration::try_from_secs_f64(self.seconds).unwrap_or_default())
    }
}

/// For whom.
impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.turn, self.id, self.pid) {
            (true, ..) => f.write_str("its turn"),
            (_, Some(id), _) => write!(f, "{id}"),
            (_, None, Some(pid)) => write!(f, "process {pid}"),
            (_, None, None) => f.write_str("one that has just ended"),
        }
    }
}

/// One that runs, as `--json` shows it.
#[derive(Debug, Serialize)]
pub struct Shown<'a> {
    id: Option<TxId>,
    pid: u32,
    state: State,
    dead: bool,
    priority: i32,
    seconds: f64,
    held: u64,
    work: u64,
    restarts: u32,
    waits_for: Option<Wait>,
    command: &'a str,
}

impl<'a> Shown<'a> {
    /// All of them.
    pub fn all(members: &'a [Member]) -> Vec<Self> {
        members.iter().map(|member| Shown::of(member, members)).collect()
    }

    /// One of them.
    pub fn of(m: &'a Member, members: &[Member]) -> Self {
        Shown {
            id: m.id,
            pid: m.pid,
            state: m.state,
            dead: m.dead,
            priority: m.priority,
            seconds: seconds(m.age),
            held: m.held,
            work: m.work,
            restarts: m.restarts,
            waits_for: Wait::of(m, members),
            command: &m.label,
        }
    }
}

/// How many there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Whose processes live.
    pub running: usize,
    /// Of these, that wait for somebody.
    pub waiting: usize,
    /// Whose processes are gone.
    pub dead: usize,
}

impl Counts {
    /// Counts them.
    pub fn of(members: &[Member]) -> Self {
        let living = || members.iter().filter(|m| !m.dead);
        Counts {
            running: living().count(),
            waiting: living().filter(|m| m.waits.is_some()).count(),
            dead: members.iter().filter(|m| m.dead).count(),
        }
    }
}

/// "2 running, 1 of them waiting, 1 dead".
impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} running", self.running)?;
        if self.waiting > 0 {
            write!(f, ", {} of them waiting", self.waiting)?;
        }
        if self.dead > 0 {
            write!(f, ", {} dead", self.dead)?;
        }
        Ok(())
    }
}

/// Who is there now, the oldest first.
///
/// Who waits looks around now and then, and does not wait in that instant; so those who do not
/// seem to wait are looked at twice.
pub fn look(realm: &Realm) -> Vec<Member> {
    let mut members = realm.members();
    if members.len() > 1 && members.iter().any(|m| m.waits.is_none()) {
        std::thread::sleep(SECOND_LOOK_AFTER);
        add_waits(&mut members, &realm.members());
    }
    members.sort_by_key(|m| (std::cmp::Reverse(m.age), m.slot));
    members
}

fn add_waits(members: &mut [Member], later: &[Member]) {
    for member in members.iter_mut().filter(|m| m.waits.is_none()) {
        let same = |m: &&Member| (m.slot, m.id, m.pid) == (member.slot, member.id, member.pid);
        member.waits = later.iter().find(same).and_then(|m| m.waits);
    }
}

/// Clears away what dead processes left in the realm, if there is one.
pub fn clear_dead(app: &App) {
    match app.realm_existing() {
        Ok(Some(realm)) => match realm.sweep() {
            0 => {}
            1 => app.say("cleared the place of a dead process in the realm"),
            n => app.say(format_args!("cleared the places of {n} dead processes in the realm")),
        },
        Ok(None) => {}
        // Whatever is to be done does not depend on it.
        Err(failure) => app.warn(failure.message().unwrap_or_default()),
    }
}

/// Seconds, to the millisecond.
pub fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1000.0).round() / 1000.0
}

/// A part of a whole in percent, to two digits that count.
pub fn percent(part: u64, whole: u64) -> String {
    if part == 0 || whole == 0 {
        return "0 %".into();
    }
    let percent = part as f64 / whole as f64 * 100.0;
    let decimals = (1.0 - percent.log10().floor()).max(0.0) as usize;
    format!("{percent:.decimals$} %")
}

#[cfg(test)]
pub mod samples {
    use super::*;

    /// One that runs and waits for nobody.
    pub fn member(slot: u32, id: Option<&str>, age: u64) -> Member {
        Member {
            slot,
            id: id.map(|id| id.parse().unwrap()),
            pid: 1000 + slot,
            label: "make install".into(),
            state: State::Active,
            priority: 0,
            age: Duration::from_secs(age),
            held: 12,
            work: 34,
            restarts: 0,
            waits: None,
            dead: false,
        }
    }

    /// The first one waits for the second, which waits for its turn; the third is dead; the fourth
    /// has no name.
    pub fn crowd() -> Vec<Member> {
        let mut all = vec![
            member(7, Some("3kq9w2ma"), 12),
            member(3, Some("aaaa0001"), 75),
            member(0, Some("aaaa0002"), 7300),
            member(9, None, 0),
        ];
        all[0].waits = Some((WaitsFor::Slot(3), Duration::from_micros(12_345_678)));
        all[0].restarts = 2;
        all[1].waits = Some((WaitsFor::Turn, Duration::from_secs(3)));
        all[2].dead = true;
        all[2].state = State::Publishing;
        all[3].label = String::new();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::samples::{crowd, member};
    use super::*;

    #[test]
    fn who_waits_for_whom() {
        let all = crowd();
        let wait = Wait::of(&all[0], &all).unwrap();
        assert_eq!((wait.id, wait.pid, wait.turn), (all[1].id, Some(1003), false));
        assert_eq!(wait.seconds, 12.346);
        assert_eq!((wait.to_string(), wait.length()), ("aaaa0001".into(), "12 s".into()));
        let turn = Wait::of(&all[1], &all).unwrap();
        assert_eq!((turn.id, turn.pid, turn.turn), (None, None, true));
        assert_eq!(turn.to_string(), "its turn");
        assert_eq!(Wait::of(&all[3], &all), None);
    }

    #[test]
    fn holders_without_a_name_or_gone() {
        let mut all = crowd();
        all[0].waits = Some((WaitsFor::Slot(9), Duration::ZERO));
        assert_eq!(Wait::of(&all[0], &all).unwrap().to_string(), "process 1009");
        all[0].waits = Some((WaitsFor::Slot(50), Duration::ZERO));
        assert_eq!(Wait::of(&all[0], &all).unwrap().to_string(), "one that has just ended");
    }

    #[test]
    fn the_second_look_counts_for_the_same_transaction_only() {
        let waits = Some((WaitsFor::Slot(1), Duration::from_secs(1)));
        let mut members = vec![member(1, Some("aaaa0001"), 1), member(2, Some("aaaa0002"), 1)];
        let mut later = members.clone();
        later[0].waits = waits;
        later[1].waits = waits;
        later[1].id = None;
        add_waits(&mut members, &later);
        assert_eq!((members[0].waits, members[1].waits), (waits, None));
    }

    #[test]
    fn they_are_counted() {
        assert_eq!(Counts::of(&crowd()).to_string(), "3 running, 2 of them waiting, 1 dead");
        assert_eq!(Counts::default().to_string(), "0 running");
    }

    #[test]
    fn parts_of_a_whole() {
        let records = 1 << 20;
        let shown = [0, 1, 1000, 20_000, 130_000, 1_040_000, records].map(|n| percent(n, records));
        assert_eq!(
            shown,
            ["0 %", "0.000095 %", "0.095 %", "1.9 %", "12 %", "99 %", "100 %"].map(String::from)
        );
        assert_eq!(percent(1, 0), "0 %");
    }

    #[test]
    fn members_as_scripts_see_them() {
        let all = crowd();
        let shown = serde_json::to_value(Shown::all(&all)).unwrap();
        assert_eq!(
            shown[0],
            serde_json::json!({
                "id": "3kq9w2ma", "pid": 1007, "state": "active", "dead": false, "priority": 0,
                "seconds": 12.0, "held": 12, "work": 34, "restarts": 2,
                "waits_for": {"id": "aaaa0001", "pid": 1003, "turn": false, "seconds": 12.346},
                "command": "make install",
            })
        );
        assert_eq!(shown[2]["state"], "publishing");
        assert_eq!(shown[2]["dead"], true);
        assert!(shown[3]["id"].is_null() && shown[3]["waits_for"].is_null());
    }
}
