//! Edges of real time and of process order. Real time has a product of edges, so they go through
//! nodes along the time line: each stands for "all that was complete until here", and leads to the
//! next and to what is invoked between the two.

use std::collections::HashMap;

use super::effect::Effects;
use super::graph::{Arc, Builder, Label, Node};
use super::op::NEVER;

/// Adds the edges.
pub(super) fn edges(effects: &Effects<'_>, builder: &mut Builder) {
    let plain = |from, to, label| Arc { from, to, label, key: 0, earlier: 0, value: 0 };
    let mut last_of: HashMap<u64, Node> = HashMap::new();
    for node in effects.all() {
        let transaction = effects.transaction(node);
        if let Some(last) = last_of.insert(transaction.process, node)
            && effects.transaction(last).end() <= transaction.invoked
        {
            builder.add(plain(last, node, Label::Process));
        }
    }

    let mut complete: Vec<(u64, Node)> = effects
        .all()
        .map(|node| (effects.transaction(node).end(), node))
        .filter(|(end, _)| *end != NEVER)
        .collect();
    complete.sort_unstable();
    let mut complete = complete.into_iter().peekable();
    let mut line: Option<Node> = None;
    for node in effects.all() {
        let invoked = effects.transaction(node).invoked;
        if complete.peek().is_some_and(|(end, _)| *end < invoked) {
            let point = builder.pass(invoked);
            if let Some(before) = line.replace(point) {
                builder.link(before, point, 0, 0);
            }
            while let Some((_, done)) = complete.next_if(|(end, _)| *end < invoked) {
                builder.add(plain(done, point, Label::Realtime));
            }
        }
        if let Some(line) = line {
            builder.link(line, node, 0, 0);
        }
    }
}
