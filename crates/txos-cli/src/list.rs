//! `txos list`: pending and running transactions.

use std::collections::BTreeMap;
use std::io::{self, Write};

use txos_engine::TxId;
use txos_engine::realm::Member;
use txos_engine::show::visible_message;
use txos_engine::store::{Home, Meta};
use txos_engine::version::Stamp;

use crate::app::App;
use crate::args::ListArgs;
use crate::changes;
use crate::duration::{ago, length};
use crate::exit::Failure;
use crate::json;
use crate::log::one_line;
use crate::realm_view::{Shown, Wait, look};
use crate::space::{Counting, du};
use crate::style::Paint;
use crate::tx_status::TxStatus;

/// The transactions of a store, newest first, and messages about records that can't be read.
pub type Found = (Vec<(Meta, TxStatus)>, Vec<String>);

/// Reads the records of which `wanted` is true. Without a store there are none.
pub fn find(home: Option<&Home>, wanted: impl Fn(TxStatus) -> bool) -> Result<Found, Failure> {
    let mut found = (Vec::new(), Vec::new());
    for record in home.map(Home::transactions).transpose()?.unwrap_or_default() {
        match (record, home) {
            (Ok(meta), Some(home)) => {
                let status = TxStatus::of(home, &meta);
                if wanted(status) {
                    found.0.push((meta, status));
                }
            }
            (Err(error), _) => found.1.push(error.to_string()),
            (Ok(_), None) => {}
        }
    }
    Ok(found)
}

/// Who waits, and for whom.
type Waits = BTreeMap<TxId, Wait>;

/// Asks the realm, which a list can do without.
fn members(app: &App) -> Vec<Member> {
    let realm = app.realm_existing().unwrap_or_else(|failure| {
        app.warn(failure.message().unwrap_or_default());
        None
    });
    realm.as_ref().map(look).unwrap_or_default()
}

/// Those that run and have no record in the store: commands in the library's view whose own process commits, and
/// transactions of programs.
fn without_record<'a>(home: Option<&Home>, members: &'a [Member]) -> Vec<&'a Member> {
    let has_record = |id: TxId| home.is_some_and(|home| home.meta(id).is_ok());
    members.iter().filter(|m| !m.dead && !m.id.is_some_and(has_record)).collect()
}

/// Lists them.
pub fn list(app: &App, args: &ListArgs) -> Result<u8, Failure> {
    let home = app.open_existing()?;
    let published = |s| matches!(s, TxStatus::Committed | TxStatus::Reverted);
    let (mut found, unreadable) = find(home.as_ref(), |status| !published(status))?;
    if let Some(home) = home.as_ref().filter(|_| args.json || !app.quiet()) {
        for (meta, _) in &mut found {
            changes::count(home, meta);
        }
    }
    let members = members(app);
    let waits: Waits =
        members.iter().filter_map(|m| Some((m.id?, Wait::of(m, &members)?))).collect();
    let others = without_record(home.as_ref(), &members);
    let mut out = io::BufWriter::new(io::stdout().lock());
    let counting = Counting::begin();
    let space = |meta: &Meta| home.as_ref().and_then(|home| counting.of(home, meta));
    if args.json {
        let transaction = |(meta, status): &(Meta, TxStatus)| {
            json::Transaction::new(meta, *status)
                .waiting(waits.get(&meta.id).copied())
                .taking(space(meta))
        };
        let transactions = found.iter().map(transaction).collect();
        let running = Some(others.iter().map(|m| Shown::of(m, &members)).collect());
        json::write(&mut out, json::Transactions { transactions, unreadable, running })?;
    } else {
        unreadable.iter().for_each(|message| app.warn(message));
        if app.quiet() {
            let ids = others.iter().filter_map(|m| m.id);
            let ids = ids.chain(found.iter().map(|(meta, _)| meta.id));
            ids.into_iter().try_for_each(|id| writeln!(out, "{id}"))?;
        } else if found.is_empty() && others.is_empty() {
            app.say("no pending or running transactions");
        } else {
            write_heading(&mut out, app.out)?;
            others.iter().try_for_each(|m| write_member(&mut out, m, &members, app.out))?;
            write_table(&mut out, &found, &waits, &space, app.out)?;
        }
    }
    out.flush()?;
    Ok(0)
}

fn write_table(
    out: &mut dyn Write,
    found: &[(Meta, TxStatus)],
    waits: &Waits,
    space: &dyn Fn(&Meta) -> Option<u64>,
    paint: Paint,
) -> io::Result<()> {
    let now = Stamp::now();
    for (meta, status) in found {
        let id = paint.id();
        let state = match status {
            TxStatus::Dead | TxStatus::Lost => paint.bad(),
            TxStatus::Active => paint.good(),
            _ => paint.faint(),
        };
        let since = ago(meta.ended.unwrap_or(meta.begun), now);
        let counted = matches!(status, TxStatus::Pending | TxStatus::Lost);
        let changes = meta.changes.filter(|_| counted);
        let changes = changes.map_or_else(|| "-".into(), |n| n.to_string());
        let size = space(meta).map_or_else(|| "-".into(), du);
        write!(
            out,
            "{id}{}{id:#}  {state}{:7}{state:#}  {since:12}  {changes:>5}  {size:>5}  {}",
            meta.id,
            status.to_string(),
            one_line(meta)
        )?;
        write_wait(out, waits.get(&meta.id), paint)?;
    }
    Ok(())
}

fn write_heading(out: &mut dyn Write, paint: Paint) -> io::Result<()> {
    let strong = paint.strong();
    writeln!(out, "{strong}ID        STATE    SINCE         PATHS   SIZE  COMMAND{strong:#}")
}

/// One of which there is no record.
fn write_member(
    out: &mut dyn Write,
    member: &Member,
    members: &[Member],
    paint: Paint,
) -> io::Result<()> {
    let (style, state) = (paint.id(), paint.good());
    let id = member.id.map_or_else(|| "-".into(), |id| id.to_string());
    let (active, since) = (TxStatus::Active.to_string(), format!("{} ago", length(member.age)));
    let command = visible_message(&member.label);
    write!(
        out,
        "{style}{id:8}{style:#}  {state}{active:7}{state:#}  {since:12}  {:>5}  {:>5}  {command}",
        "-", "-"
    )?;
    write_wait(out, Wait::of(member, members).as_ref(), paint)
}

/// The end of a line: for whom it waits.
fn write_wait(out: &mut dyn Write, wait: Option<&Wait>, paint: Paint) -> io::Result<()> {
    if let Some(wait) = wait {
        let faint = paint.faint();
        write!(out, " {faint}(waits {} for {wait}){faint:#}", wait.length())?;
    }
    writeln!(out)
}
