//! `txos recover`: finish or undo what a crash interrupted.

use std::io;

use txos_engine::commit;

use crate::app::{App, recovery_lines};
use crate::args::RecoverArgs;
use crate::exit::Failure;
use crate::json;
use crate::realm_view::clear_dead;

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
    Ok(0)
}
