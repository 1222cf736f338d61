//! Discarding: one rename for the caller, the deletion in the background.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use txos_engine::store::{Home, Transaction};

use crate::app::App;
use crate::exit::Failure;
use crate::space;

/// The longest that a caller waits for deletion.
const PATIENCE: Duration = Duration::from_millis(2);

/// Discards a transaction. That it can't be is worth a warning, not a failure: nothing of it is
/// published, and `gc` tries again.
pub fn discard(app: &App, home: &Home, tx: Transaction) {
    let id = tx.id();
    if let Err(error) = home.discard(tx) {
        app.warn(format_args!("{error}; `txos gc --force {id}` tries again"));
        return;
    }
    clear(app, home);
}

/// How many small parts of transactions are left in the trash for the next command.
const LEFT_MAX: usize = 16;

/// Discards a transaction that changed nothing. The next command deletes what is left of it, while its view is made.
pub fn discard_unchanged(app: &App, home: &Home, tx: Transaction) {
    let id = tx.id();
    // Private copies may be there all the same, of any size.
    let is_bare = tx.layers().iter().all(|layer| {
        [&layer.upper, &layer.work.join("index")].into_iter().all(|dir| {
            std::fs::read_dir(dir).map_or_else(
                |error| error.kind() == std::io::ErrorKind::NotFound,
                |mut names| names.next().is_none(),
            )
        })
    });
    if let Err(error) = home.discard(tx) {
        app.warn(format_args!("{error}; `txos gc --force {id}` tries again"));
    } else if !is_bare || !home.has_little_trash(LEFT_MAX).unwrap_or(false) {
        clear(app, home);
    }
}

/// Deletes what little there is in the trash; leaves more to a process of its own.
pub fn clear(app: &App, home: &Home) {
    if matches!(home.empty_trash(Some(PATIENCE)), Ok(true)) {
        return;
    }
    leave_to_another(app);
}

/// Leaves what takes long to a process of its own.
pub fn leave_to_another(app: &App) {
    if let Err(error) = spawn(app) {
        tracing::info!("no process to empty the trash ({error}); the next `txos gc` does it");
    }
}

/// Starts `txos gc --trash`, with standard streams of its own, so that nobody waits for it.
fn spawn(app: &App) -> std::io::Result<()> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("txos");
    if let Some(dir) = app.store_option() {
        command.arg("--store").arg(dir);
    }
    command.args(["gc", "--trash"]).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map(drop)
}

/// `txos gc --trash`: what [`spawn`] started.
pub fn empty_detached(app: &App) -> Result<u8, Failure> {
    // Fails only for a leader of a process group, which no terminal ends by accident.
    let _ = rustix::process::setsid();
    close_inherited();
    // Nobody waits for it; let those go first for whom somebody does.
    let _ = rustix::process::nice(10);
    if let Some(home) = app.open_existing()? {
        home.empty_trash(None)?;
        space::note_all(&home)?;
    }
    Ok(0)
}

/// Closes what was inherited beyond the standard streams: a pipe that is kept open here would make
/// its reader wait for the deletion after all.
#[allow(unsafe_code)]
fn close_inherited() {
    // SAFETY: nothing in this process owns a descriptor above 2 yet: it runs before the store is
    // opened, and the runtime opens none.
    unsafe {
        libc::close_range(3, libc::c_uint::MAX, 0);
    }
}
