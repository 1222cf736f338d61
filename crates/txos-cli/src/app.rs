//! What every command needs: the store, the voice, the colours.

use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal, Write, stderr};
use std::path::PathBuf;

use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;
use txos_engine::commit::{Progress, Recovered, Silent, interrupted, recover};
use txos_engine::show::{quoted, visible_message};
use txos_engine::store::{Home, default_dir};

use txos_run::question::Answerer;

use crate::args::{Global, When};
use crate::exit::Failure;
use crate::progress::Bars;
use crate::report::Reporter;
use crate::style::Paint;

/// The setting in which a command runs.
#[derive(Debug)]
pub struct App {
    store: Option<PathBuf>,
    quiet: bool,
    /// What `--report` will say.
    pub report: Reporter,
    /// Colours of standard output.
    pub out: Paint,
    /// Colours of standard error.
    pub err: Paint,
}

impl App {
    /// Puts the global options into force.
    pub fn new(global: &Global) -> Result<Self, Failure> {
        match global.color {
            When::Auto => {}
            When::Always => anstream::ColorChoice::Always.write_global(),
            When::Never => anstream::ColorChoice::Never.write_global(),
        }
        start_tracing(global.verbose);
        let store = match &global.store {
            Some(dir) => Some(
                std::path::absolute(dir)
                    .map_err(|e| Failure::new(format!("--store {}: {e}", quoted(dir))))?,
            ),
            None => None,
        };
        Ok(App {
            store,
            quiet: global.quiet,
            report: Reporter::default(),
            out: Paint::stdout(),
            err: Paint::stderr(),
        })
    }

    /// Whether only errors are wanted.
    pub fn quiet(&self) -> bool {
        self.quiet
    }

    /// Says something on standard error, unless it is to be quiet.
    pub fn say(&self, message: impl Display) {
        if !self.quiet {
            tell(format_args!("txos: {message}"));
        }
    }

    /// Says that something is not as it should be, even if quiet.
    pub fn warn(&self, message: impl Display) {
        tell(format_args!("txos: warning: {message}"));
    }

    /// Where the home store is or would be.
    pub fn store_dir(&self) -> Result<PathBuf, Failure> {
        match &self.store {
            Some(dir) => Ok(dir.clone()),
            None => Ok(default_dir()?),
        }
    }

    /// The store as `--store` named it, to hand on.
    pub fn store_option(&self) -> Option<&PathBuf> {
        self.store.as_ref()
    }

    /// What answers a program in a transaction that asks about it.
    pub fn answerer(&self) -> Answerer {
        Answerer { program: "/proc/self/exe".into(), store: self.store.clone() }
    }

    /// Opens the home store; makes it if there is none.
    pub fn open(&self) -> Result<Home, Failure> {
        let opened = Home::open(&self.store_dir()?);
        opened.map_err(|error| self.with_another_place(error))
    }

    /// Says where the store could be, if the usual place can't be written.
    fn with_another_place(&self, error: txos_engine::Error) -> Failure {
        let is_usual = self.store.is_none() && std::env::var_os("TXOS_STORE").is_none();
        let can_be_made = !matches!(&error, txos_engine::Error::Io { source, .. } if matches!(
            source.kind(),
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem | ErrorKind::NotFound
        ));
        let failure = Failure::from(error);
        if !is_usual || can_be_made {
            return failure;
        }
        failure.with_aftermath("name a directory that you can write with --store or TXOS_STORE")
    }

    /// Opens the home store if there is one: looking must not make anything.
    pub fn open_existing(&self) -> Result<Option<Home>, Failure> {
        Ok(Home::open_existing(&self.store_dir()?)?)
    }

    /// Opens the home store and finishes or undoes what a crash interrupted, as everything must
    /// that writes.
    pub fn open_recovered(&self) -> Result<Home, Failure> {
        let home = self.open()?;
        let recovered = self.recover(&home)?;
        for line in recovery_lines(&recovered) {
            self.say(line);
        }
        Ok(home)
    }

    /// Finishes or undoes what a crash interrupted, and tells which transaction it was if that can't
    /// be done now.
    pub fn recover(&self, home: &Home) -> Result<Recovered, Failure> {
        self.with_progress(|progress| recover(home, progress)).map_err(|error| {
            let failure = Failure::from(error);
            match interrupted(home) {
                Some(id) => failure.with_aftermath(&format!(
                    "the publish of {id} was interrupted, and the tree may hold a part of it until \
                     `txos recover` succeeds"
                )),
                None => failure,
            }
        })
    }

    /// Does long work with a progress display where there is somebody to see it.
    pub fn with_progress<T>(&self, work: impl FnOnce(&dyn Progress) -> T) -> T {
        if self.quiet || !stderr().is_terminal() {
            return work(&Silent);
        }
        let bars = Bars::new();
        work(&bars)
    }
}

/// Writes a line to standard error. One that can't be written to (a reader that has gone away) is
/// no reason to fail, least of all in the middle of a commit.
pub fn tell(line: impl Display) {
    let _ = writeln!(stderr(), "{}", visible_message(&line.to_string()));
}

/// What recovery did, a line each.
pub fn recovery_lines(recovered: &Recovered) -> Vec<String> {
    let undone = recovered.undone.iter().map(|id| {
        format!("recovered: the publish of {id} was interrupted and is undone; nothing of it is published")
    });
    let finished = recovered
        .finished
        .iter()
        .map(|id| format!("recovered: the publish of {id} was complete and is recorded now"));
    let notes = recovered.notes.iter().map(|note| format!("recovered: {note}"));
    undone.chain(finished).chain(notes).collect()
}

/// Sends what the crates trace to standard error: warnings always, more by `-v` or by the filter in
/// TXOS_LOG.
fn start_tracing(verbose: u8) {
    use tracing_subscriber::EnvFilter;

    let to = tracing_subscriber::fmt().with_writer(stderr).event_format(Plain);
    let filter = match (std::env::var("TXOS_LOG"), verbose) {
        (Ok(text), _) if !text.is_empty() => EnvFilter::new(text),
        (_, 0) => {
            // Only a second subscriber could make this fail, and there is none.
            let _ = to.with_max_level(tracing::Level::WARN).try_init();
            return;
        }
        (_, 1) => EnvFilter::new("info"),
        (_, 2) => EnvFilter::new("debug"),
        _ => EnvFilter::new("trace"),
    };
    let _ = to.with_env_filter(filter).try_init();
}

/// Events as txos says things: warnings are for everybody, the rest names where it comes from.
struct Plain;

impl<S, N> FormatEvent<S, N> for Plain
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        ctx: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &tracing::Event<'_>,
    ) -> std::fmt::Result {
        let meta = event.metadata();
        match *meta.level() {
            tracing::Level::ERROR | tracing::Level::WARN => write!(writer, "txos: warning: ")?,
            level => {
                write!(writer, "txos: {} {}: ", level.as_str().to_lowercase(), meta.target())?;
            }
        }
        ctx.field_format().format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recovery_is_told_line_by_line() {
        assert!(recovery_lines(&Recovered::default()).is_empty());
        let recovered = Recovered {
            undone: vec!["00000001".parse().unwrap()],
            finished: vec!["00000002".parse().unwrap()],
            notes: vec!["/x was changed".into()],
        };
        let lines = recovery_lines(&recovered);
        assert_eq!(lines.len(), 3);
        assert!(lines[0].contains("00000001") && lines[1].contains("00000002"));
        assert_eq!(lines[2], "recovered: /x was changed");
    }
}
