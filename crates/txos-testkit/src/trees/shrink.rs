//! The smallest case that fails in the same way: first operations are left out, in pieces that get
//! smaller, then transactions are joined, then arguments are made simple; again, as long as it helps.

use std::time::{Duration, Instant};

use super::{Case, Op};

/// Longest time that one case is cut down for.
const TIME_MAX: Duration = Duration::from_secs(120);

/// Cuts a case down, as long as it `fails`.
#[must_use]
pub fn shrink(case: &Case, mut fails: impl FnMut(&Case) -> bool) -> Case {
    let end = Instant::now() + TIME_MAX;
    let mut fails = |case: &Case| Instant::now() < end && fails(case);
    let mut case = case.clone();
    loop {
        let before = case.clone();
        case = fewer(case, &mut fails);
        case = joined(case, &mut fails);
        case = simpler(case, &mut fails);
        case = fewer_names(case, &mut fails);
        if case == before {
            return case;
        }
    }
}

/// Leaves out operations: halves, quarters, and so on, down to each one alone.
fn fewer(mut case: Case, fails: &mut impl FnMut(&Case) -> bool) -> Case {
    let sections = 1 + case.parts.len();
    for section in (0..sections).rev() {
        let length = |case: &Case| case.sections().nth(section).map_or(0, Vec::len);
        let mut size = length(&case);
        while size > 0 {
            let mut at = 0;
            while at < length(&case) {
                let mut smaller = case.clone();
                if let Some(list) = smaller.sections_mut().nth(section) {
                    list.drain(at..(at + size).min(list.len()));
                }
                if fails(&smaller) {
                    case = smaller;
                } else {
                    at += size;
                }
            }
            size /= 2;
        }
    }
    case
}

/// Without a transaction, or with two as one.
fn joined(mut case: Case, fails: &mut impl FnMut(&Case) -> bool) -> Case {
    let mut at = 0;
    while case.parts.len() > 1 && at < case.parts.len() {
        let mut without = case.clone();
        let taken = without.parts.remove(at);
        let mut together = without.clone();
        if let Some(part) = together.parts.get_mut(at.min(case.parts.len() - 2)) {
            if at + 1 < case.parts.len() {
                part.splice(0..0, taken.clone());
            } else {
                part.extend(taken.clone());
            }
        }
        let mut before = without.clone();
        before.prepare.extend(taken);
        match [without, together, before].into_iter().find(|smaller| fails(smaller)) {
            Some(smaller) => case = smaller,
            None => at += 1,
        }
    }
    case
}

/// With simpler arguments.
fn simpler(mut case: Case, fails: &mut impl FnMut(&Case) -> bool) -> Case {
    for section in 0..=case.parts.len() {
        let count = case.sections().nth(section).map_or(0, Vec::len);
        for at in 0..count {
            let op =
                |case: &Case| case.sections().nth(section).and_then(|list| list.get(at)).cloned();
            let arguments = op(&case).map_or(0, |op| op.args.len());
            for argument in 0..arguments {
                while let Some(now) = op(&case) {
                    let candidates = simpler_arguments(&now, argument);
                    let with = |word: String| {
                        let mut smaller = case.clone();
                        if let Some(op) =
                            smaller.sections_mut().nth(section).and_then(|l| l.get_mut(at))
                        {
                            op.args[argument] = word;
                        }
                        smaller
                    };
                    match candidates.into_iter().map(with).find(|smaller| fails(smaller)) {
                        Some(smaller) => case = smaller,
                        None => break,
                    }
                }
            }
        }
    }
    case
}

/// Arguments that are simpler than this one, the simplest first; never one that leads back.
fn simpler_arguments(op: &Op, at: usize) -> Vec<String> {
    let word = &op.args[at];
    let kind = op.signature().chars().nth(at).unwrap_or(' ');
    let mut list: Vec<String> = Vec::new();
    match kind {
        'p' => {
            if let Some(rest) = word.strip_prefix("./").or_else(|| word.strip_prefix("@/")) {
                list.push(rest.to_owned());
            }
            if let Some(rest) = word.strip_suffix('/') {
                list.push(rest.to_owned());
            }
            if let Some((first, rest)) = word.split_once('/') {
                list.extend([first.to_owned(), rest.to_owned()]);
            }
        }
        'l' | 'n' | 's' | 't' => {
            let number: i64 = word.parse().unwrap_or(0);
            let mut candidates = vec![0, 1, 2, 4096];
            candidates.push(number / 2);
            candidates.retain(|n| (0..number).contains(n) || (number < 0 && *n == 0));
            list.extend(candidates.iter().map(i64::to_string));
        }
        'm' if word != "0755" => list.push("0755".to_owned()),
        'w' if op.name == "open" => {
            for simple in ["r", "w", "+"] {
                if word.len() > 1 {
                    list.push(simple.to_owned());
                }
            }
        }
        'w' if word != "user.a" => list.push("user.a".to_owned()),
        _ => {}
    }
    list.retain(|other| other != word && !other.is_empty());
    list
}

/// With the first letters, each for one that is used now.
fn fewer_names(mut case: Case, fails: &mut impl FnMut(&Case) -> bool) -> Case {
    const LETTERS: [char; 6] = ['a', 'b', 'c', 'd', 'e', 'f'];
    let used = |case: &Case, letter: char| {
        paths(case).any(|path| path.split('/').any(|name| name.starts_with(letter)))
    };
    for (n, letter) in LETTERS.into_iter().enumerate().skip(1) {
        if !used(&case, letter) {
            continue;
        }
        for other in LETTERS.into_iter().take(n) {
            let mut smaller = case.clone();
            for op in smaller.sections_mut().flatten() {
                let signature = op.signature();
                for (arg, _) in op.args.iter_mut().zip(signature.chars()).filter(|(_, k)| *k == 'p')
                {
                    *arg = arg.replace(letter, &other.to_string());
                }
            }
            if fails(&smaller) {
                case = smaller;
                break;
            }
        }
    }
    case
}

fn paths(case: &Case) -> impl Iterator<Item = &String> {
    let of = |op: &'_ Op| op.signature();
    case.sections()
        .flatten()
        .flat_map(move |op| op.args.iter().zip(of(op).chars()).filter(|(_, kind)| *kind == 'p'))
        .map(|(arg, _)| arg)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trees::generate::{Limits, of_seed};

    /// A planted failure: a directory is made before, renamed in one transaction, and something of
    /// it is changed later, by its new name.
    fn planted(case: &Case) -> bool {
        let ops: Vec<&Op> = case.parts.iter().flatten().collect();
        case.prepare.iter().filter(|op| op.name == "mkdir").any(|made| {
            let moved = ops.iter().position(|op| {
                op.name == "rename"
                    && op.args[0].trim_matches('/') == made.args[0].trim_matches('/')
            });
            moved.is_some_and(|at| {
                let to = &ops[at].args[1];
                ops[at + 1..]
                    .iter()
                    .any(|op| op.name == "chmod" && op.args[0].starts_with(to.as_str()))
            })
        })
    }

    #[test]
    fn a_planted_failure_is_cut_down_to_three_operations() {
        let mut found = 0;
        for seed in 0..20_000 {
            let case = of_seed(seed, &Limits::none());
            if !planted(&case) {
                continue;
            }
            found += 1;
            let small = shrink(&case, planted);
            assert!(planted(&small), "seed {seed}: cured:\n{small}");
            assert_eq!(small.len(), 3, "seed {seed}:\n{small}");
            assert_eq!(small.parts.len(), 1, "seed {seed}:\n{small}");
            assert_eq!(shrink(&small, planted), small, "seed {seed}: again");
            assert_eq!(Case::parse(&small.to_string()), Ok(small), "seed {seed}");
        }
        assert!(found >= 10, "{found} found");
    }

    #[test]
    fn numbers_and_paths_become_simple() {
        let case = Case::parse("prepare\ntransaction\nwrite ./d/e/f 70000 77\nlist c\n");
        let needs = |case: &Case| {
            case.parts
                .iter()
                .flatten()
                .any(|op| op.name == "write" && op.args[1].parse::<u64>().is_ok_and(|n| n > 4096))
        };
        let small = shrink(&case.unwrap_or_default(), needs);
        let text = small.to_string();
        assert!(text.starts_with("prepare\ntransaction\nwrite a "), "{text}");
        let length: u64 = small.parts[0][0].args[1].parse().unwrap_or(0);
        assert!((4097..8194).contains(&length) && small.len() == 1, "{text}");
    }

    #[test]
    fn what_always_fails_becomes_nothing() {
        let small = shrink(&of_seed(3, &Limits::none()), |_| true);
        assert!(small.is_empty() && small.parts.len() == 1, "{small}");
    }
}
