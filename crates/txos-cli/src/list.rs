//! `txos list`: pending and running transactions.

use std::collections::BTreeMap;
use std::io::{self, Write};

use txos_engine::TxId;
use txos_engine::store::{Home, Meta};
use txos_engine::version::Stamp;

use crate::app::App;
use crate::args::ListArgs;
use crate::changes;
use crate::duration::ago;
use crate::exit::Failure;
use crate::json;
use crate::log::one_line;
use crate::realm_view::{Wait, look};
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
fn waits(app: &App) -> Waits {
    let realm = app.realm_existing().unwrap_or_else(|failure| {
        app.warn(failure.message().unwrap_or_default());
        None
    });
    let members = realm.as_ref().map(look).unwrap_or_default();
    members.iter().filter_map(|m| Some((m.id?, Wait::of(m, &members)?))).collect()
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
    let waits = if found.is_empty() { Waits::new() } else { waits(app) };
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
        json::write(&mut out, json::Transactions { transactions, unreadable })?;
    } else {
        unreadable.iter().for_each(|message| app.warn(message));
        if app.quiet() {
            found.iter().try_for_each(|(meta, _)| writeln!(out, "{}", meta.id))?;
        } else if found.is_empty() {
            app.say("no pending or running transactions");
        } else {
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
    let strong = paint.strong();
    writeln!(out, "{strong}ID        STATE    SINCE         PATHS   SIZE  COMMAND{strong:#}")?;
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
        if let Some(wait) = waits.get(&meta.id) {
            let faint = paint.faint();
            write!(out, " {faint}(waits {} for {wait}){faint:#}", wait.length())?;
        }
        writeln!(out)?;
    }
    Ok(())
}
