//! Cycles of the graph, the worst kinds first. A component is reported once: what is worse hides
//! what is less so in the same component.
//!
//! All cycles of a component in which nothing worse was found are of the kind looked for, so any
//! one will do; except those with exactly one anti-dependency, which have to be searched for. The
//! search looks at a bounded number of edges: in a very large component it may give up, and then
//! the cycle reported has several anti-dependencies, or is not the shortest; there is always one.

use super::effect::Effects;
use super::graph::{Arc, Graph, Label, Labels, Node};
use super::report::{Anomaly, Edge, Kind, Report};
use super::scc::{ALONE, Components, components};
use super::search::{Place, Search, sort};

/// Edges looked at for one component, and for all of them.
const SPENT_MAX: (u64, u64) = (20_000_000, 300_000_000);

const WW: Labels = Label::Ww as Labels;
const WR: Labels = Label::Wr as Labels;
const TIME: Labels = Label::Process as Labels | Label::Realtime as Labels;
/// What real time tells of registers is counted with the anti-dependencies, because it follows from
/// a read: so a stale read is one anti-dependency, however it was told.
const RW: Labels = Label::Rw as Labels;
const RW_TIME: Labels = Label::RwRealtime as Labels | Label::WwRealtime as Labels;
const LINK: Labels = Label::Link as Labels;

/// What to look for.
struct Level {
    labels: Labels,
    /// How bad it is: what is worse, or as bad, hides it.
    rank: u8,
    /// Whether the cycle must have exactly one anti-dependency.
    single: bool,
}

const LEVELS: &[Level] = &[
    Level { labels: WW, rank: 0, single: false },
    Level { labels: WW | WR, rank: 1, single: false },
    Level { labels: WW | WR | RW, rank: 2, single: true },
    Level { labels: WW | WR | RW, rank: 3, single: false },
    Level { labels: WW | TIME, rank: 0, single: false },
    Level { labels: WW | WR | TIME, rank: 1, single: false },
    Level { labels: WW | WR | RW | TIME | RW_TIME, rank: 2, single: true },
    Level { labels: WW | WR | RW | TIME | RW_TIME, rank: 3, single: false },
];

/// The rank of a lost update, which is a cycle with one anti-dependency.
const LOST_UPDATE: u8 = 2;

/// Reports the cycles of a graph, but not those that lost updates, reported already, are.
pub(super) fn report(
    graph: &Graph,
    effects: &Effects<'_>,
    lost_updates: Vec<Vec<Node>>,
    report: &mut Report,
) {
    let all = components(graph, Labels::MAX, |_| true);
    if all.members.is_empty() {
        return;
    }
    let mut known: Vec<(u8, Vec<Node>)> =
        lost_updates.into_iter().map(|nodes| (LOST_UPDATE, nodes)).collect();
    let mut finder =
        Finder { graph, search: Search::new(graph), positions: vec![0; graph.nodes()] };
    for level in LEVELS {
        let found = components(graph, level.labels | LINK, |node| all.of[node as usize] != ALONE);
        let hidden = hidden(&found, level.rank, &known);
        finder.search.spent = 0;
        for (component, hidden) in hidden.iter().enumerate() {
            if *hidden {
                continue;
            }
            let Some(cycle) = finder.cycle(level, &found, component) else { continue };
            let cycle: Vec<Arc> = cycle.iter().map(|number| *graph.arc(*number)).collect();
            let nodes = cycle.iter().map(|arc| arc.from).collect();
            known.push((level.rank, nodes));
            report.add(anomaly(graph, effects, &cycle));
        }
    }
}

/// The components of which something as bad is known.
fn hidden(found: &Components, rank: u8, known: &[(u8, Vec<Node>)]) -> Vec<bool> {
    let mut hidden = vec![false; found.members.len()];
    for (_, nodes) in known.iter().filter(|(known, _)| *known <= rank) {
        let mut of = nodes.iter().map(|node| found.of[*node as usize]);
        if let Some(first) = of.next()
            && first != ALONE
            && of.all(|other| other == first)
        {
            hidden[first as usize] = true;
        }
    }
    hidden
}

struct Finder<'a> {
    graph: &'a Graph,
    search: Search<'a>,
    positions: Vec<u32>,
}

impl Finder<'_> {
    /// A short cycle in a component.
    fn cycle(&mut self, level: &Level, found: &Components, component: usize) -> Option<Vec<u32>> {
        let members = &found.members[component];
        let graph = self.graph;
        let mut place = Place {
            labels: level.labels,
            of: &found.of,
            component: super::graph::number(component),
            positions: None,
        };
        let mut positions = std::mem::take(&mut self.positions);
        if level.single {
            place.labels &= !(RW | RW_TIME);
            let sorted = sort(graph, members, place, &mut positions);
            place.positions = sorted.then_some(positions.as_slice());
        }
        // Every cycle has an edge back in time; and if it has one anti-dependency, that one goes
        // back in the order of the others. The nearest first: their cycles are short.
        let mut back: Vec<(u64, u32)> = Vec::new();
        for node in members {
            for number in graph.from(*node) {
                let arc = graph.arc(number);
                let inside = found.of[arc.to as usize] == place.component;
                let labels = if level.single { RW | RW_TIME } else { !LINK };
                if !inside || !arc.label.is_in(labels & level.labels) {
                    continue;
                }
                let (from, to) = match place.positions {
                    Some(at) => (at[arc.from as usize].into(), at[arc.to as usize].into()),
                    None => (graph.time(arc.from), graph.time(arc.to)),
                };
                if from >= to || (level.single && place.positions.is_none()) {
                    back.push((from.abs_diff(to), number));
                }
            }
        }
        back.sort_unstable();
        let cycle = self.shortest(&back, place, level.single);
        self.positions = positions;
        cycle
    }

    fn shortest(
        &mut self,
        back: &[(u64, u32)],
        place: Place<'_>,
        may_give_up: bool,
    ) -> Option<Vec<u32>> {
        let start = self.search.spent;
        let mut best: Option<(Vec<u32>, u32)> = None;
        for (_, number) in back {
            let spent = self.search.spent;
            if (best.is_some() || may_give_up)
                && (spent - start > SPENT_MAX.0 || spent > SPENT_MAX.1)
            {
                break;
            }
            let arc = self.graph.arc(*number);
            let limit = best.as_ref().map_or(u32::MAX, |(_, cost)| *cost);
            if let Some((mut way, cost)) = self.search.way((arc.to, arc.from), place, limit) {
                way.insert(0, *number);
                best = Some((way, cost));
                if cost <= 1 {
                    break;
                }
            }
        }
        best.map(|(way, _)| way)
    }
}

/// Tells of a cycle, from its transaction with the smallest id on.
fn anomaly(graph: &Graph, effects: &Effects<'_>, cycle: &[Arc]) -> Anomaly {
    let mut edges = Vec::new();
    let (mut anti_dependencies, mut reads, mut realtime) = (0, 0, false);
    let start = cycle.iter().position(|arc| graph.is_transaction(arc.from)).unwrap_or(0);
    let mut arcs = cycle.iter().cycle().skip(start).take(cycle.len()).peekable();
    while let Some(first) = arcs.next() {
        let mut last = first;
        while let Some(link) = arcs.next_if(|arc| arc.label == Label::Link) {
            last = link;
        }
        anti_dependencies += usize::from(first.label.is_in(RW | RW_TIME));
        reads += usize::from(first.label == Label::Wr);
        realtime |= first.label.realtime();
        edges.push(edge(effects, first, last));
    }
    let least = edges.iter().enumerate().min_by_key(|(_, edge)| edge.from).map_or(0, |(n, _)| n);
    edges.rotate_left(least);
    let kind = match (anti_dependencies, reads, realtime) {
        (0, 0, false) => Kind::G0,
        (0, _, false) => Kind::G1c,
        (1, _, false) => Kind::GSingle,
        (_, _, false) => Kind::G2,
        (0, 0, true) => Kind::G0Realtime,
        (0, _, true) => Kind::G1cRealtime,
        (1, _, true) => Kind::GSingleRealtime,
        (_, _, true) => Kind::G2Realtime,
    };
    let mut text = String::new();
    for edge in &edges {
        text.push_str(&format!("T{} -{}-> ", edge.from, edge.relation));
    }
    text.push_str(&format!("T{}", edges.first().map_or(0, |edge| edge.from)));
    Anomaly { kind, transactions: edges.iter().map(|edge| edge.from).collect(), cycle: edges, text }
}

/// Tells of an edge, which may go on through links.
fn edge(effects: &Effects<'_>, first: &Arc, last: &Arc) -> Edge {
    let (from, to) = (effects.transaction(first.from), effects.transaction(last.to));
    let (key, earlier, value) = (first.key, first.earlier, last.value);
    let (a, b) = (from.id, to.id);
    let text = match first.label {
        Label::Ww => format!("key {key}: T{a} wrote {earlier}, and T{b} wrote {value} after it"),
        Label::Wr => format!("key {key}: T{a} wrote {value}, and T{b} read it"),
        Label::Rw if earlier == 0 => {
            format!("key {key}: T{a} found nothing there, not yet {value}, which T{b} wrote")
        }
        Label::Rw => {
            format!(
                "key {key}: T{a} read {earlier}, and not yet {value}, which T{b} wrote after it"
            )
        }
        Label::RwRealtime => format!(
            "key {key}: T{a} read {earlier}, which was complete before T{b}, which wrote {value}, \
             was invoked"
        ),
        Label::WwRealtime => format!(
            "key {key}: T{a} wrote {earlier}, which was complete before somebody was invoked who \
             read {value}, which T{b} wrote"
        ),
        Label::Process => format!("process {} ran T{a}, and then T{b}", from.process),
        Label::Realtime | Label::Link => format!(
            "T{a} was complete at {}, before T{b} was invoked at {}",
            from.completed, to.invoked
        ),
    };
    let timed = matches!(first.label, Label::Process | Label::Realtime | Label::Link);
    Edge {
        from: a,
        to: b,
        relation: first.label.relation(),
        realtime: first.label.realtime(),
        key: (!timed).then_some(key),
        value: (!timed).then_some(value),
        text,
    }
}
