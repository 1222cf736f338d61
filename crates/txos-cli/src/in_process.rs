//! `txos run --in-process`: the command becomes a transaction of its own process, and of those that it starts, by a
//! library that is loaded into them.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use txos_engine::program::{
    self, Kind, SYSTEM_LINKER, can_be_accompanied, changes_ids, kind, linker_beside,
};
use txos_engine::realm::RetryHistory;
use txos_engine::scope::{Scope, split};
use txos_engine::show::quoted;
use txos_engine::store::Transaction;
use txos_run::library::{Entry, Followed, Library};
use txos_run::{Hold, Leftover};

use crate::app::{App, tell};
use crate::args::{CommitOn, ExecArgs, RunArgs, WaitArgs};
use crate::exit::{self, Failure, of_command};
use crate::run::{hides_arguments, refusal};
use crate::runtime;

/// Read by the library, and removed before the command sees it.
const VARIABLE: &str = "TXOS_IN_PROCESS";
/// Its name and message for the history, likewise.
const NAME: &str = "TXOS_IN_PROCESS_NAME";
const MESSAGE: &str = "TXOS_IN_PROCESS_MESSAGE";
/// Set for the command and its children.
const VIEW: &str = "TXOS_VIEW";
const PRELOAD: &str = "LD_PRELOAD";
/// Where the shells look without PATH.
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// As many scripts interpreting each other as the kernel takes.
const SCRIPTS_MAX: usize = 5;

/// What a command is watched with whose end this process is to decide about.
pub fn watched(app: &App, args: &RunArgs) -> Result<Library, Failure> {
    let leftover = args.view.leftover.into();
    let entry = entry_of(&args.command)?;
    let scope = scope(&args.view.scope, &args.view.exclude)?;
    Ok(Library { scope, ..library(app, entry, wishes(app, args), leftover, &args.wait)? })
}

/// What of the tree is to be versioned.
fn scope(scope: &[PathBuf], exclude: &[String]) -> Result<Scope, Failure> {
    let (scope, unmatched) = txos_run::scope_of(scope, exclude)?;
    for pattern in unmatched {
        tell(format_args!("txos: {}", txos_run::unmatched(&pattern)));
    }
    Ok(scope)
}

/// The same for one more command in a transaction that is kept.
pub fn watched_again(app: &App, args: &ExecArgs, tx: &Transaction) -> Result<Library, Failure> {
    let wishes = [
        (true, "goes-on"),
        (tx.meta.durable, "durable"),
        (args.strict, "strict"),
        (app.quiet(), "quiet"),
        (hides_arguments(args.no_record_args), "hide-arguments"),
    ];
    // Which program it is, and which libraries it has, is seen in the transaction: one of ours runs it there.
    let own = std::env::current_exe().map_err(|e| Failure::new(format!("/proc/self/exe: {e}")))?;
    // That is linked statically as a rule.
    let entry = entry(own.as_os_str())?;
    let before = vec![own.into(), RUN_INSIDE.into()];
    let library = library(app, entry, asked(&wishes), args.leftover.into(), &args.wait)?;
    let only = split(tx.meta.scope.as_os_str().as_bytes());
    let scope = Scope { only, ..scope(&[], &args.exclude)? };
    Ok(Library { goes_on: Some(before), scope, ..library })
}

/// The first word of a command line by which this program runs another one, in a transaction.
const RUN_INSIDE: &str = "--run-inside";

/// In the transaction of a command: becomes the command, if this process was started for that.
pub fn run_inside() -> Option<u8> {
    let mut words = std::env::args_os().skip(1);
    if !is_inside() || words.next()? != RUN_INSIDE {
        return None;
    }
    let words: Vec<OsString> = words.collect();
    let (program, rest) = words.split_first()?;
    let status = exit::of_start_error(Command::new(program).args(rest).exec());
    if let Some(why) = refusal(&status, CommitOn::Success, &words) {
        tell(format_args!("txos: {why}"));
    }
    Some(of_command(&status))
}

fn entry_of(command: &[OsString]) -> Result<Entry, Failure> {
    match command.first() {
        Some(program) => entry(program),
        None => Err(Failure::new("there is no command to run")),
    }
}

fn library(
    app: &App,
    entry: Entry,
    mut words: Vec<String>,
    leftover: Leftover,
    wait: &WaitArgs,
) -> Result<Library, Failure> {
    words.extend(leftover.word().map(str::to_owned));
    words.push(format!("wait={}", wait.seconds));
    let store = app.store_option().map(|store| crate::paths::absolute(store)).transpose()?;
    let scope = Scope::default();
    Ok(Library { entry, words: words.join(","), store, scope, goes_on: None })
}

/// How the library gets into a command.
fn entry(program: &OsStr) -> Result<Entry, Failure> {
    let Some(path) = look_up(program) else { return preload(runtime::shared()?) };
    let kind = check(&path, SCRIPTS_MAX)
        .map_err(|why| Failure::new(format!("{}: {why}", quoted(&path))))?;
    let library = runtime::shared()?;
    let linker = linker_beside(&library);
    match kind {
        Takes::Preloaded if linker.is_none() => preload(library),
        Takes::Preloaded | Takes::Beside => match lacks_c_library(&library) {
            Some((what, copies)) => Err(Failure::new(format!(
                "{}: it is statically linked, or of another C library: to load it {what}; {copies}",
                quoted(&path)
            ))),
            None => Ok(Entry::Program { library, linker, command: path }),
        },
    }
}

/// What the library lacks to load programs itself, if it does, and what would do.
pub fn lacks_c_library(library: &Path) -> Option<(String, String)> {
    if linker_beside(library).is_some() || Path::new(SYSTEM_LINKER).exists() {
        return None;
    }
    let what = format!("the library needs the GNU C library, and {SYSTEM_LINKER} is not there");
    let place = quoted(library.parent().unwrap_or(library));
    let (linker, c_library) = (program::LINKER, program::C_LIBRARY);
    let files = format!("copies of {linker} and {c_library}, of a machine that has them,");
    let would_do = match (program::can_be_named(library), program::refused_beside(library)) {
        (true, Some((path, why))) => format!("{} would do, but {why}", quoted(&path)),
        (true, None) => format!(
            "{files} in {place} will do: files of root's, or of the library's owner, that nobody else can write to and all can run"
        ),
        (false, _) => format!(
            "{files} beside it will do, but not in {place}, because of the colon, semicolon or dollar sign"
        ),
    };
    Some((what, would_do))
}

/// Becomes the command. Returns only if that fails.
pub fn run(app: &App, args: &RunArgs) -> Result<u8, Failure> {
    let mut command = command(args)?;
    command.env(VARIABLE, wishes(app, args).join(","));
    not_started(args, command.exec())
}

/// Runs the command, which decides by itself about its transaction: how it ended. `None`: it can't be run so.
pub fn follow(
    app: &App,
    args: &RunArgs,
    hold: Hold,
    again: Option<RetryHistory>,
) -> Result<Result<Option<Followed>, u8>, Failure> {
    let mut words = wishes(app, args);
    words.extend(again.map(|again| format!("again={again}")));
    match txos_run::library::follow(&mut command(args)?, &words.join(","), hold)? {
        Ok(followed) => Ok(Ok(Some(followed))),
        // A script without a first line that says what it is for: `execvp(3)` has a shell run it.
        Err(error) if error.raw_os_error() == Some(libc::ENOEXEC) => Ok(Ok(None)),
        Err(error) => not_started(args, error).map(Err),
    }
}

/// Says why a command could not be started.
fn not_started(args: &RunArgs, error: std::io::Error) -> Result<u8, Failure> {
    let status = exit::of_start_error(error);
    if let Some(why) = refusal(&status, CommitOn::Success, &args.command) {
        tell(format_args!("txos: {why}"));
    }
    Ok(of_command(&status))
}

/// The command, with the library.
fn command(args: &RunArgs) -> Result<Command, Failure> {
    let Some((program, rest)) = args.command.split_first() else {
        return Err(Failure::new("there is no command to run"));
    };
    let mut command = entry(program)?.command(program, rest);
    for (variable, text) in [(NAME, &args.name), (MESSAGE, &args.message)] {
        if let Some(text) = text {
            command.env(variable, text);
        }
    }
    let scope = scope(&args.view.scope, &args.view.exclude)?;
    txos_run::library::set_scope(&mut command, &scope);
    if let (Some(dir), _) = args.place.paths()? {
        txos_run::check_directory(&dir)?;
        command.current_dir(dir);
    }
    Ok(command)
}

/// Whether this runs in a transaction in the library's view.
pub fn is_inside() -> bool {
    std::env::var_os(VIEW).is_some_and(|view| view == "library")
}

/// Whether a command can be run so, with all that was asked for.
pub fn can_take(args: &RunArgs) -> bool {
    let program = args.command.first().and_then(|program| look_up(program));
    args.only_with_overlay().is_empty()
        && program.is_none_or(|path| check(&path, SCRIPTS_MAX).is_ok())
}

fn wishes(app: &App, args: &RunArgs) -> Vec<String> {
    let durable = if args.in_process { args.durable } else { !args.publish.no_durable };
    let hides = hides_arguments(args.no_record_args);
    let wishes = [
        (durable, "durable"),
        (args.view.strict, "strict"),
        (app.quiet(), "quiet"),
        (hides, "hide-arguments"),
    ];
    asked(&wishes)
}

/// The words of what was asked for.
fn asked(wishes: &[(bool, &str)]) -> Vec<String> {
    wishes.iter().filter(|(wish, _)| *wish).map(|(_, word)| (*word).to_owned()).collect()
}

/// The library, in front of what is preloaded anyway.
fn preload(library: PathBuf) -> Result<Entry, Failure> {
    if library.as_os_str().as_bytes().iter().any(|b| b" :\t\n".contains(b)) {
        return Err(Failure::new(format!(
            "{}: the dynamic linker can't load a library from a path with spaces or colons",
            quoted(&library)
        )));
    }
    let mut list = library.into_os_string();
    if let Some(others) = std::env::var_os(PRELOAD).filter(|others| !others.is_empty()) {
        list.push(":");
        list.push(others);
    }
    Ok(Entry::Preload(list))
}

/// The file that a command's name stands for.
fn look_up(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| USUAL_PATH.into());
    let executable = |path: &PathBuf| path.metadata().is_ok_and(|meta| is_executable(&meta));
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(executable)
}

fn is_executable(meta: &std::fs::Metadata) -> bool {
    meta.is_file() && meta.permissions().mode() & 0o111 != 0
}

/// How a program takes the library in.
enum Takes {
    /// By the dynamic linker.
    Preloaded,
    /// It is loaded by the library.
    Beside,
}

/// How the library gets into this program, or why it does not. What can't be looked at is left for the
/// kernel to judge.
fn check(path: &Path, scripts: usize) -> Result<Takes, String> {
    let (file, meta) = match (File::open(path), path.metadata()) {
        (Ok(file), Ok(meta)) => (file, meta),
        (Err(error), Ok(meta))
            if error.kind() == std::io::ErrorKind::PermissionDenied && is_executable(&meta) =>
        {
            return Err("it can be run but not read, so it is not known whether anything can be loaded into it; \
                        run it with --view overlay"
                .into());
        }
        _ => return Ok(Takes::Preloaded),
    };
    let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if changes_ids(meta.mode(), (meta.uid(), meta.gid()), own) {
        return Err("it runs with other privileges, so nothing can be loaded into it; run it \
                    with --view overlay"
            .into());
    }
    match kind(|room, at| file.read_at(room, at).unwrap_or(0)) {
        Kind::Script(interpreter, _) if scripts > 0 => {
            let interpreter = Path::new(OsStr::from_bytes(&interpreter));
            check(interpreter, scripts - 1)
                .map_err(|why| format!("its interpreter {}: {why}", quoted(interpreter)))
        }
        Kind::Alone(_) | Kind::Sanitized(_) if can_be_accompanied() => Ok(Takes::Beside),
        Kind::Alone(_) => {
            Err("it is statically linked, or of another C library, so nothing can be loaded \
                               into it on this machine; run it with --view overlay"
                .into())
        }
        Kind::Foreign => {
            Err("it is not a 64-bit program, so nothing can be loaded into it; run it with \
                              --view overlay"
                .into())
        }
        _ => Ok(Takes::Preloaded),
    }
}
