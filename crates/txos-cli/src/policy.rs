//! `txos policy`: who gives way when two transactions want the same thing.

use std::io::{self, Write};

use serde::Serialize;
use txos_engine::contention::Policy;

use crate::app::App;
use crate::args::{PolicyAction, PolicyArgs, PolicyGetArgs, PolicySetArgs};
use crate::exit::Failure;
use crate::json;
use crate::style::Paint;

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    policy: &'static str,
    policies: Vec<Described>,
}

#[derive(Debug, Serialize)]
struct Described {
    name: &'static str,
    summary: &'static str,
    in_force: bool,
}

impl Report {
    fn new(policy: Policy) -> Self {
        let described =
            |p: Policy| Described { name: p.name(), summary: p.summary(), in_force: p == policy };
        Report { policy: policy.name(), policies: Policy::ALL.map(described).into() }
    }
}

/// Shows or sets it.
pub fn policy(app: &App, args: &PolicyArgs) -> Result<u8, Failure> {
    match &args.action {
        None => get(app, &args.get),
        Some(PolicyAction::Get(args)) => get(app, args),
        Some(PolicyAction::Set(args)) => set(app, args),
    }
}

fn get(app: &App, args: &PolicyGetArgs) -> Result<u8, Failure> {
    // Without a realm the next one to begin makes one, with the default policy.
    let policy = app.realm_existing()?.map(|realm| realm.policy()).unwrap_or_default();
    let mut out = io::stdout().lock();
    if args.json {
        json::write(&mut out, Report::new(policy))?;
    } else if args.all {
        write_all(&mut out, policy, app.out)?;
    } else {
        let strong = app.out.strong();
        writeln!(out, "{strong}{policy}{strong:#}: {}", policy.summary())?;
    }
    Ok(0)
}

fn set(app: &App, args: &PolicySetArgs) -> Result<u8, Failure> {
    let there = app.realm_existing()?;
    let realm = match &there {
        Some(realm) => realm,
        None => app.realm(&app.open()?, "txos policy")?,
    };
    let before = realm.policy();
    realm.set_policy(args.policy);
    if args.json {
        json::write(&mut io::stdout().lock(), Report::new(args.policy))?;
        return Ok(0);
    }
    let policy = args.policy;
    if policy == before {
        app.say(format_args!("the policy is {policy} already: {}", policy.summary()));
    } else {
        app.say(format_args!(
            "the policy is {policy} now (it was {before}): {}. It holds until this machine restarts",
            policy.summary()
        ));
    }
    Ok(0)
}

fn write_all(out: &mut dyn Write, now: Policy, paint: Paint) -> io::Result<()> {
    for policy in Policy::ALL {
        let (style, mark) =
            if policy == now { (paint.strong(), '*') } else { (paint.plain(), ' ') };
        writeln!(out, "{mark} {style}{policy:12}{style:#}  {}", policy.summary())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_in_force_is_marked() {
        let mut out = Vec::new();
        write_all(&mut out, Policy::Karma, Paint::default()).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), Policy::ALL.len());
        assert_eq!(lines[1], "  timestamp     the older wins; nobody starves");
        let marked: Vec<_> = lines.iter().filter(|l| l.starts_with('*')).collect();
        assert_eq!(marked.len(), 1);
        assert!(marked[0].starts_with("* karma         who did more work wins"));
    }

    #[test]
    fn scripts_see_all_of_them() {
        let report = serde_json::to_value(Report::new(Policy::Polite)).unwrap();
        assert_eq!(report["policy"], "polite");
        let policies = report["policies"].as_array().unwrap();
        assert_eq!(policies.len(), Policy::ALL.len());
        let in_force = policies.iter().filter(|p| p["in_force"] == true);
        assert_eq!(in_force.map(|p| &p["name"]).collect::<Vec<_>>(), ["polite"]);
    }
}
