//! `txos recover`: finish or undo what a crash interrupted.

use std::io;

use txos_engine::commit;

use crate::app::{App, recovery_lines};
use crate::args::RecoverArgs;
use crate::exit::Failure;
use crate::json;
use crate::list::find;
use crate::realm_view::clear_dead;
use crate::tx_status::TxStatus;

/// Recovers, and tells what was done. Running it again does nothing more.
pub fn recover(app: &App, args: &RecoverArgs) -> Result<u8, Failure> {
    let recovered = match app.open_existing()? {
        Some(home) => app.recover(&home)?,
        None => commit::Recovered::default(),
    };
    clear_dead(app);
    if args.json {
        json::write(&mut io::stdout().lock(), json::Recovery::new(&recovered))?;
        return Ok(0);
    }
    let lines = recovery_lines(&recovered);
    if lines.is_empty() {
        app.say("nothing to recover");
    }
    lines.iter().for_each(|line| app.say(line));
    tell_dead(app)?;
    Ok(0)
}

/// Tells of transactions whose process is gone before they were decided: there is nothing to finish or undo, and they stay until `txos gc`.
fn tell_dead(app: &App) -> Result<(), Failure> {
    let Some(home) = app.open_existing()? else { return Ok(()) };
    let (dead, unreadable) = find(Some(&home), |status| status == TxStatus::Dead)?;
    unreadable.iter().for_each(|message| app.warn(message));
    // One whose publish is still interrupted must not be removed.
    let half_published = commit::interrupted(&home);
    let dead: Vec<String> = dead
        .iter()
        .map(|(meta, _)| meta.id)
        .filter(|id| half_published != Some(*id))
        .map(|id| id.to_string())
        .collect();
    match &dead[..] {
        [] => {}
        [id] => app.say(format_args!(
            "{id} is dead: its process is gone, and nothing of it is published; `txos gc` removes it"
        )),
        ids => app.say(format_args!(
            "{} are dead: their processes are gone, and nothing of them is published; `txos gc` removes them",
            ids.join(", ")
        )),
    }
    Ok(())
}
