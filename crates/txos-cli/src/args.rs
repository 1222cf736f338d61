//! The command line: every command and option, with the help that people read.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use txos_engine::commit::{Isolation, Options};
use txos_engine::contention::Policy;
use txos_run::{Hold, Leftover, Limits, RunOptions};

use crate::duration::{Age, Moment, TimeLimit};
use crate::report::Target;
use crate::size::{Bound, Size};

/// Groups any commands into one operation that happens as a whole or not at all.
#[derive(Debug, Parser)]
#[command(name = "txos", version, long_about = LONG_ABOUT)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const LONG_ABOUT: &str = "\
Groups any commands into one operation that happens as a whole or not at all.

`txos run -- CMD` runs an unmodified program, with every process it starts, as a transaction on the \
live machine. Its changes to files stay invisible to everybody else until CMD succeeds; then they \
are published all together. If CMD fails, or somebody else changed what it depends on, nothing has \
happened.";

/// Options of every command.
#[derive(Args, Debug)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// Keep transactions in this directory
    ///
    /// Same as the environment variable TXOS_STORE. Without either: /var/lib/txos for root, else
    /// $XDG_STATE_HOME/txos or ~/.local/state/txos.
    #[arg(long, global = true, value_name = "DIR")]
    pub store: Option<PathBuf>,
    /// Say nothing but errors
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Tell on standard error what is being done; -vv and -vvv tell more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Use colours
    ///
    /// `auto` means on a terminal, unless NO_COLOR is set.
    #[arg(long, global = true, value_name = "WHEN", default_value_t, value_enum)]
    pub color: When,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum When {
    /// On a terminal.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command in a new transaction
    Run(RunArgs),
    /// Run a command in a pending transaction
    Exec(ExecArgs),
    /// Take back what the last commands of a pending transaction changed
    Undo(UndoArgs),
    /// Put back what was undone
    Redo(UndoArgs),
    /// List pending and running transactions
    List(ListArgs),
    /// Show a transaction and the paths it changes
    Show(ShowArgs),
    /// Show what a transaction changes
    Diff(DiffArgs),
    /// Show the history: committed transactions, newest first
    Log(LogArgs),
    /// Show what happens between transactions: policy, conflicts, places, pending ones
    Status(StatusArgs),
    /// Watch the transactions that run: who waits for whom
    ///
    /// Ctrl-C ends it, with status 130.
    Top(TopArgs),
    /// Show what a pending transaction changes, and ask whether to commit it
    Review(ReviewArgs),
    /// Run the commands of a pending transaction again, on what is there now
    Rebase(RebaseArgs),
    /// Add what other pending transactions change to a pending one
    ///
    /// Each becomes a layer of it (`txos undo` takes it out again), and is gone as a transaction of its own. Refused, by
    /// path, if two change the same, or if each has looked at what the other changes.
    Merge(MergeArgs),
    /// Publish a pending transaction
    Commit(CommitArgs),
    /// Discard a pending transaction, or what a dead one left behind
    Abort(IdArg),
    /// Undo a committed transaction
    Revert(RevertArgs),
    /// Put earlier versions of paths back, from what the history retains
    Restore(RestoreArgs),
    /// Finish or undo what a crash interrupted
    Recover(RecoverArgs),
    /// Remove what is no longer needed: leftovers, old history, trash
    Gc(GcArgs),
    /// Show or set who gives way when two transactions want the same thing
    #[command(args_conflicts_with_subcommands = true)]
    Policy(PolicyArgs),
    /// Check this machine, the stores and the realm
    Doctor(DoctorArgs),
    /// Serve an agent: a Model Context Protocol server on standard input and output
    ///
    /// Its tools let the agent run commands in a transaction, look at what they change, and finish it. See
    /// docs/agents.md.
    Mcp(McpArgs),
    /// Run the commands of a tool that has a shell or hooks in a transaction of its session
    Agent {
        /// What to do.
        #[command(subcommand)]
        action: AgentAction,
    },
    /// Print how to compile and link a program that uses transactions
    Config(ConfigArgs),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Print the transactions that fit a command line
    #[command(hide = true)]
    Complete {
        /// The words after `txos`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
    /// Write the manual pages
    #[command(hide = true)]
    Man {
        /// Directory to write them to
        dir: PathBuf,
    },
}

/// A transaction.
#[derive(Args, Debug)]
pub struct IdArg {
    /// Transaction: an id or the start of one, its --name, @ for the newest, @~1 for the one before
    ///
    /// @ is the newest that this command can be applied to: of the pending ones for exec and commit, of the
    /// committed ones for revert. A name that several have is the pending one, or else the newest that the command can be
    /// applied to. Once a part is committed, @ and the name are the rest to every command that takes what is pending; the
    /// part has an id of its own.
    pub id: String,
}

/// How to publish; the same for `run` and `commit`.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Publishing")]
pub struct PublishArgs {
    /// What must be unchanged at commit: all that was read, or only what is changed
    #[arg(long, value_name = "LEVEL", default_value_t, value_enum)]
    pub isolation: IsolationArg,
    /// Treat it as a conflict when others appended to the same file too
    #[arg(long)]
    pub no_merge_append: bool,
    /// Change files that match in place, so that their inode stays; may be repeated
    #[arg(long, value_name = "GLOB")]
    pub keep_inode: Vec<String>,
    /// Do not hold back others' opens of the changed files during the publish (root only)
    #[arg(long)]
    pub no_gate: bool,
    /// Skip the flushes: atomic when processes crash, but a power cut may leave a part
    #[arg(long)]
    pub no_durable: bool,
}

/// Isolation levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum IsolationArg {
    /// Everything that was read or changed
    #[default]
    Serializable,
    /// Only what is changed
    Snapshot,
}

impl PublishArgs {
    /// The engine's options; `durable` is what the transaction began with.
    pub fn options(&self, durable: bool, paths: Vec<PathBuf>) -> Options {
        Options {
            kept: true,
            isolation: match self.isolation {
                IsolationArg::Serializable => Isolation::Serializable,
                IsolationArg::Snapshot => Isolation::Snapshot,
            },
            merge_append: !self.no_merge_append,
            keep_inode: self.keep_inode.clone(),
            gate: !self.no_gate,
            durable: durable && !self.no_durable,
            paths,
            skip_changed: Vec::new(),
            merge: false,
            nonblock: false,
        }
    }
}

/// How long other transactions are waited for, if nothing else is said.
const WAIT_SECONDS: u64 = 60;

/// How long other transactions are waited for.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct WaitArgs {
    /// Wait at most so long for a transaction that is in the way
    ///
    /// A command that has waited so long goes on with what is there, and is validated when it commits (in the library's view, it
    /// has lost: 75); a commit that has waited so long is given up.
    #[arg(long = "wait", value_name = "SECS", default_value_t = WAIT_SECONDS, help_heading = "Commit")]
    pub seconds: u64,
}

impl WaitArgs {
    /// For how long.
    pub fn patience(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

/// What belongs to the private view, or to the change set that it leaves.
const NOT_IN_PROCESS: [&str; 27] = [
    "after",
    "which_view",
    "dir",
    "hide",
    "max_bytes",
    "time",
    "memory",
    "no_network",
    "no_record_args",
    "report",
    "review",
    "keep",
    "dry_run",
    "commit_on",
    "retry",
    "name",
    "message",
    "scope",
    "exclude",
    "hold_output",
    "leftover",
    "isolation",
    "no_merge_append",
    "keep_inode",
    "no_gate",
    "no_durable",
    "seconds",
];

/// `txos run`.
#[derive(Args, Debug)]
#[command(override_usage = "txos run [OPTIONS] [--] CMD [ARG]...")]
pub struct RunArgs {
    /// Write how it ended to this file, or to an open descriptor, as JSON (see docs/json.md)
    #[arg(long, help_heading = "Ending", value_name = "FILE|FD:N")]
    pub report: Option<Target>,
    /// Show what would change and ask, when CMD has ended
    #[arg(long, help_heading = "Ending", group = "ending")]
    pub review: bool,
    /// Leave the transaction pending and print its id
    #[arg(long, help_heading = "Ending", group = "ending")]
    pub keep: bool,
    /// Show what would change, then roll back
    #[arg(long, help_heading = "Ending", group = "ending")]
    pub dry_run: bool,
    /// Whether a failing CMD is committed too
    #[arg(long, help_heading = "Ending", value_name = "WHEN", default_value_t, value_enum)]
    pub commit_on: CommitOn,
    /// On conflict, run CMD again, up to N times, whatever it printed or read
    ///
    /// Without this option it is run again for as long as --wait says, if nobody can have noticed: it has
    /// printed nothing, has read nothing of its standard input, and was live nowhere.
    #[arg(
        long,
        help_heading = "Ending",
        value_name = "N",
        conflicts_with_all = ["keep", "dry_run"]
    )]
    pub retry: Option<u32>,

    /// Come after another run, by its --name or the id of its transaction; may be repeated
    ///
    /// CMD starts at once, and sees what that run commits: it waits for the end of that run when it looks at what that run changes,
    /// and runs again if it had looked before. Of several runs of this name it comes after all; one that has not begun is waited
    /// for as --wait says. It commits after that run has, whatever the time that takes. If that run fails, so does this one (125);
    /// with --retry it runs again, after the next run of that name. What CMD prints is held, as by --hold-output.
    #[arg(
        long,
        help_heading = "Ending",
        value_name = "ID|NAME",
        conflicts_with_all = ["keep", "review", "dry_run"]
    )]
    pub after: Vec<String>,

    /// Name for the history, and for --after
    #[arg(long, help_heading = "History")]
    pub name: Option<String>,
    /// Message for the history
    #[arg(short, long, help_heading = "History", value_name = "TEXT")]
    pub message: Option<String>,
    /// Keep CMD's arguments out of the history, of lists and of reports, for passwords and the like
    ///
    /// TXOS_RECORD_ARGS=off does the same. Only the program is recorded. While CMD runs, its arguments stand in
    /// /proc for whom that shows them, as without txos.
    #[arg(long, help_heading = "History")]
    pub no_record_args: bool,

    /// What runs it.
    #[command(flatten)]
    pub view: ViewArgs,
    /// Where it runs.
    #[command(flatten)]
    pub place: PlaceArgs,
    /// What it may use.
    #[command(flatten)]
    pub limits: LimitArgs,
    /// How to publish.
    #[command(flatten)]
    pub publish: PublishArgs,
    /// How long to wait for others.
    #[command(flatten)]
    pub wait: WaitArgs,

    /// Where CMD gets its own view of the files from
    ///
    /// `overlay`: mounts and a supervisor, for any program. `library`: a library that is loaded into CMD and into the programs that it
    /// runs answers their system calls; nothing is mounted and no privileges are needed, but
    /// options that need an overlay, such as --hide and --memory, are refused. `auto` is the overlay, or the library where the
    /// overlay is not to be had: where no mounts or namespaces are allowed, and where what is to be versioned is on an overlay
    /// itself, as in containers.
    #[arg(
        long = "view",
        value_name = "WHICH",
        default_value_t,
        value_enum,
        help_heading = "Isolation"
    )]
    pub which_view: WhichView,
    /// As --view library; but the changes are safe against a power cut only with --durable
    #[arg(long, help_heading = "In the process", conflicts_with_all = NOT_IN_PROCESS)]
    pub in_process: bool,
    /// With --in-process: make the changes safe against a power cut
    #[arg(long, help_heading = "In the process", requires = "in_process")]
    pub durable: bool,

    /// Command to run, and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        value_name = "CMD",
        help_heading = "Arguments"
    )]
    pub command: Vec<OsString>,
}

/// What a command in a transaction sees and may do.
#[derive(Args, Debug)]
#[command(next_help_heading = "Isolation")]
pub struct ViewArgs {
    /// Version only this tree; may be repeated [default: all real file systems]
    #[arg(long, value_name = "DIR")]
    pub scope: Vec<PathBuf>,
    /// Leave paths that match alone: CMD changes them at once; may be repeated
    ///
    /// It is what matches when CMD starts, each with all that is below it. DIR/** is the same as DIR.
    #[arg(long, value_name = "GLOB")]
    pub exclude: Vec<String>,
    /// Hold back standard output and error until the commit
    ///
    /// On a rollback standard output is dropped; standard error is shown, because there the command
    /// says why it failed.
    #[arg(long, conflicts_with = "keep")]
    pub hold_output: bool,
    /// Stop and roll back when CMD does what can't be rolled back [default: warn]
    #[arg(long)]
    pub strict: bool,
    /// Don't preload the recorder into programs: each look is told to the supervisor (TXOS_RECORDER=off
    /// does the same)
    #[arg(long)]
    pub no_preload: bool,
    /// What to do with processes that are left when CMD has ended
    #[arg(long, value_name = "WHAT", default_value_t, value_enum)]
    pub leftover: LeftoverArg,
}

/// Where a command runs, and what it does not find there; the same for `run` and `exec`.
#[derive(Args, Clone, Debug, Default)]
pub struct PlaceArgs {
    /// Start CMD in this directory
    ///
    /// Paths in other options are relative to where txos itself is started.
    #[arg(long, help_heading = "Isolation", value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Make this path absent for CMD; may be repeated
    ///
    /// What lies there is not found, and is not part of what must be unchanged at the commit. A CMD that makes
    /// something under this name, or moves or removes a directory above it, is refused (125).
    #[arg(long, help_heading = "Isolation", value_name = "PATH")]
    pub hide: Vec<PathBuf>,
}

impl PlaceArgs {
    /// Both, absolute.
    pub fn paths(&self) -> Result<(Option<PathBuf>, Vec<PathBuf>), crate::exit::Failure> {
        let absolute = |path: &PathBuf| crate::paths::absolute(path);
        let hide = self.hide.iter().map(absolute).collect::<Result<_, _>>()?;
        let dir = self.dir.as_ref().map(absolute).transpose()?;
        // As the kernel will call it. One that is not there is an error of the run.
        Ok((dir.map(|dir| dir.canonicalize().unwrap_or(dir)), hide))
    }
}

/// What a command may use; the same for `run` and `exec`.
#[derive(Args, Clone, Debug, Default)]
pub struct LimitArgs {
    /// Stop and roll back when the private copies take more disk space than this, such as 500M or 2G (status 153)
    ///
    /// They are those of the whole transaction. Nothing larger is ever kept or published; while CMD runs they
    /// are looked at every 10 ms, or less often where there are many, and may grow beyond it in between.
    #[arg(long, help_heading = "Limits", value_name = "SIZE")]
    pub max_bytes: Option<Size>,
    /// Stop and roll back when CMD, with all that it started, has not ended after this time, such as 90s or 5m
    /// (status 124)
    ///
    /// All of its processes get SIGTERM, and SIGKILL 5 s later. Each attempt has this time.
    #[arg(long, help_heading = "Limits", value_name = "DURATION")]
    pub time: Option<TimeLimit>,
    /// Give CMD, with all that it starts, so much memory, such as 512M
    ///
    /// The kernel ends processes that need more (status 137 if it is CMD). It needs a memory cgroup; where none
    /// can be made each process has so much address space instead, which is said.
    #[arg(long, help_heading = "Limits", value_name = "SIZE")]
    pub memory: Option<Size>,
    /// Give CMD a network of its own, of which only the loopback interface is there
    ///
    /// Services that listen on Unix sockets with a path are reached all the same.
    #[arg(long, help_heading = "Limits")]
    pub no_network: bool,
}

impl From<&LimitArgs> for Limits {
    fn from(args: &LimitArgs) -> Limits {
        Limits {
            max_bytes: args.max_bytes.map(|size| size.0),
            time: args.time.map(|time| time.0),
            memory: args.memory.map(|size| size.0),
            no_network: args.no_network,
        }
    }
}

/// Where a command gets its view from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum WhichView {
    /// The overlay where it is to be had, else the library
    #[default]
    Auto,
    /// Mounts and a supervisor
    Overlay,
    /// A library in the command's programs
    Library,
}

/// When to commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum CommitOn {
    /// When CMD exits with status 0
    #[default]
    Success,
    /// Whenever CMD ran
    Always,
}

impl CommitOn {
    /// As on the command line.
    pub fn word(self) -> &'static str {
        match self {
            CommitOn::Success => "success",
            CommitOn::Always => "always",
        }
    }
}

/// What to do with processes that outlive the command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LeftoverArg {
    /// Wait for them
    #[default]
    Wait,
    /// Kill them
    Kill,
}

/// How a run is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Commit.
    Commit,
    /// Ask first.
    Review,
    /// Keep pending.
    Keep,
    /// Show and roll back.
    DryRun,
}

impl RunArgs {
    /// How this run is to end when the command succeeds.
    pub fn ending(&self) -> Ending {
        match (self.review, self.keep, self.dry_run) {
            (true, ..) => Ending::Review,
            (_, true, _) => Ending::Keep,
            (_, _, true) => Ending::DryRun,
            _ => Ending::Commit,
        }
    }

    /// Whether what the command prints is held until the commit.
    pub fn holds_output(&self) -> bool {
        self.view.hold_output || !self.after.is_empty()
    }

    /// What `txos-run` needs to know. `place` is [`PlaceArgs::paths`].
    pub fn options(&self, place: (Option<PathBuf>, Vec<PathBuf>)) -> RunOptions {
        let (directory, hide) = place;
        RunOptions {
            directory,
            hide,
            limits: (&self.limits).into(),
            answerer: None,
            given: None,
            command: self.command.clone(),
            hide_arguments: crate::run::hides_arguments(self.no_record_args),
            name: self.name.clone(),
            message: self.message.clone(),
            scope: self.view.scope.clone(),
            exclude: self.view.exclude.clone(),
            hold_output: if self.holds_output() { Hold::Fully } else { Hold::No },
            after: txos_engine::runs::Predecessors::default(),
            strict: self.view.strict,
            recorder: crate::run::preloads(self.view.no_preload),
            leftover: self.view.leftover.into(),
            durable: !self.publish.no_durable,
            isolation: self.publish.options(true, Vec::new()).isolation,
            patience: self.wait.patience(),
        }
    }
}

impl RunArgs {
    /// What was asked for that a transaction inside another one can't hold, by name.
    pub fn only_outermost(&self) -> Vec<&'static str> {
        let (view, publish) = (&self.view, &self.publish);
        let wait = WaitArgs { seconds: WAIT_SECONDS };
        named([
            (self.review, "--review"),
            (self.keep, "--keep"),
            (self.retry.is_some(), "--retry"),
            (!self.after.is_empty(), "--after"),
            (!view.scope.is_empty(), "--scope"),
            (!view.exclude.is_empty(), "--exclude"),
            (view.hold_output, "--hold-output"),
            (publish.isolation != IsolationArg::default(), "--isolation"),
            (publish.no_merge_append, "--no-merge-append"),
            (!publish.keep_inode.is_empty(), "--keep-inode"),
            (publish.no_gate, "--no-gate"),
            (publish.no_durable, "--no-durable"),
            (self.wait.seconds != wait.seconds, "--wait"),
            (self.in_process, "--in-process"),
            (self.which_view != WhichView::default(), "--view"),
            (self.durable, "--durable"),
        ])
    }

    /// What was asked for that a command with the library in it can't hold, by name.
    pub fn only_with_overlay(&self) -> Vec<&'static str> {
        let view = &self.view;
        named([
            (view.no_preload, "--no-preload"),
            (!self.place.hide.is_empty(), "--hide"),
            (self.limits.memory.is_some(), "--memory"),
            (self.limits.no_network, "--no-network"),
            (!self.publish.keep_inode.is_empty(), "--keep-inode"),
        ])
    }

    /// Whether something was asked for that this process has to see to when a command with the library in it has ended, or
    /// while it runs. Otherwise this process becomes the command.
    pub fn needs_watcher(&self) -> bool {
        let publish = &self.publish;
        self.report.is_some()
            || self.ending() != Ending::Commit
            || self.retry.is_some()
            || self.commit_on != CommitOn::default()
            || self.holds_output()
            || self.name.is_some()
            || self.view.leftover != LeftoverArg::default()
            || self.limits.max_bytes.is_some()
            || self.limits.time.is_some()
            || publish.isolation != IsolationArg::default()
            || publish.no_merge_append
            || publish.no_gate
            || self.wait.seconds != WAIT_SECONDS
    }

    /// What was asked for besides that only a transaction of its own can hold, and not a command that joins another one.
    pub fn only_by_itself(&self) -> Vec<&'static str> {
        named([
            (self.report.is_some(), "--report"),
            (self.dry_run, "--dry-run"),
            (self.name.is_some(), "--name"),
            (self.message.is_some(), "--message"),
            (self.commit_on != CommitOn::default(), "--commit-on"),
            (self.no_record_args, "--no-record-args"),
            (self.view.strict, "--strict"),
            (self.view.no_preload, "--no-preload"),
            (self.view.leftover != LeftoverArg::default(), "--leftover"),
            (!self.place.hide.is_empty(), "--hide"),
            (self.limits.max_bytes.is_some(), "--max-bytes"),
            (self.limits.time.is_some(), "--time"),
            (self.limits.memory.is_some(), "--memory"),
            (self.limits.no_network, "--no-network"),
        ])
    }
}

fn named<const N: usize>(options: [(bool, &'static str); N]) -> Vec<&'static str> {
    options.into_iter().filter_map(|(asked, name)| asked.then_some(name)).collect()
}

impl From<LeftoverArg> for Leftover {
    fn from(arg: LeftoverArg) -> Leftover {
        match arg {
            LeftoverArg::Wait => Leftover::Wait,
            LeftoverArg::Kill => Leftover::Kill,
        }
    }
}

/// `txos exec`.
#[derive(Args, Debug)]
#[command(override_usage = "txos exec [OPTIONS] ID [--] CMD [ARG]...")]
pub struct ExecArgs {
    /// Transaction: an id or the start of one, its --name, @ for the newest, @~1 for the one before
    ///
    /// @ is the newest that this command can be applied to: of the pending ones for exec and commit, of the
    /// committed ones for revert. A name that several have is the pending one, or else the newest that the command can be
    /// applied to. Once a part is committed, @ and the name are the rest to every command that takes what is pending; the
    /// part has an id of its own.
    pub id: String,
    /// Write how it ended to this file, or to an open descriptor, as JSON (see docs/json.md)
    #[arg(long, value_name = "FILE|FD:N")]
    pub report: Option<Target>,
    /// How long to wait for others.
    #[command(flatten)]
    pub wait: WaitArgs,
    /// Run CMD in a new pending transaction that begins as ID is, or, if a command runs in ID, as it was before that
    ///
    /// It is kept if CMD succeeds, and gone if not. `txos merge ID FORK` adds what it changed to ID, `txos abort FORK`
    /// drops it. Committed by itself, it publishes what ID was, too.
    #[arg(long)]
    pub fork: bool,
    /// A name for the fork
    #[arg(long, value_name = "NAME", requires = "fork")]
    pub name: Option<String>,
    /// Leave paths that match alone, as for `run`; may be repeated
    #[arg(long, value_name = "GLOB")]
    pub exclude: Vec<String>,
    /// When the transaction keeps what CMD changed; else it is as it was before CMD
    #[arg(long, value_name = "WHEN", default_value_t, value_enum)]
    pub commit_on: CommitOn,
    /// Stop when CMD does what can't be rolled back [default: warn]; the transaction is as it was before
    /// CMD
    #[arg(long)]
    pub strict: bool,
    /// Don't preload the recorder into programs: each look is told to the supervisor (TXOS_RECORDER=off
    /// does the same)
    #[arg(long)]
    pub no_preload: bool,
    /// Keep CMD's arguments out of lists and reports, as for `run`
    #[arg(long)]
    pub no_record_args: bool,
    /// What to do with processes that are left when CMD has ended
    #[arg(long, value_name = "WHAT", default_value_t, value_enum)]
    pub leftover: LeftoverArg,
    /// Where it runs.
    #[command(flatten)]
    pub place: PlaceArgs,
    /// What it may use.
    #[command(flatten)]
    pub limits: LimitArgs,
    /// Command to run, and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        value_name = "CMD",
        help_heading = "Arguments"
    )]
    pub command: Vec<OsString>,
}

impl ExecArgs {
    /// What was asked for that a command in the library's view can't hold.
    pub fn only_with_overlay(&self) -> Vec<&'static str> {
        named([
            (self.no_preload, "--no-preload"),
            (!self.place.hide.is_empty(), "--hide"),
            (self.limits.memory.is_some(), "--memory"),
            (self.limits.no_network, "--no-network"),
        ])
    }
}

/// `txos undo` and `txos redo`.
#[derive(Args, Debug)]
pub struct UndoArgs {
    /// Transaction: an id or the start of one, its --name, @ for the newest, @~1 for the one before
    ///
    /// @ is the newest that this command can be applied to: of the pending ones for exec and commit, of the
    /// committed ones for revert. A name that several have is the pending one, or else the newest that the command can be
    /// applied to. Once a part is committed, @ and the name are the rest to every command that takes what is pending; the
    /// part has an id of its own.
    #[arg(default_value = "@")]
    pub id: String,
    /// How many layers
    ///
    /// Each command that was run in the transaction is a layer (`txos show`). With all of
    /// them undone, the transaction is pending with nothing changed and nothing read: `txos redo` puts them back,
    /// `txos exec` makes a new first one, and `txos abort` discards it.
    #[arg(short = 'n', long = "number", value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub count: u32,
    /// Write how it ended to this file, or to an open descriptor, as JSON (see docs/json.md)
    #[arg(long, value_name = "FILE|FD:N")]
    pub report: Option<Target>,
    /// How long to wait for others.
    #[command(flatten)]
    pub wait: WaitArgs,
}

/// `txos agent`.
#[derive(Debug, Subcommand)]
pub enum AgentAction {
    /// Run a shell with these arguments in the session's transaction, which the first command begins
    ///
    /// It stays pending: `txos diff`, `txos review`, `txos commit` and `txos abort` take the name
    /// agent:SESSION.
    Shell(AgentShellArgs),
    /// Answer a tool's hook, which asks on standard input before it runs a command: run it in the session's
    /// transaction
    ///
    /// A question that can't be answered blocks the command, with status 2.
    Hook(AgentHookArgs),
}

/// How the commands of a session are run.
#[derive(Args, Debug)]
pub struct AgentCommandArgs {
    /// The shell to run [default: /bin/bash, or /bin/sh where there is none]
    #[arg(long, value_name = "PATH")]
    pub shell: Option<PathBuf>,
    /// When the transaction keeps what a command changed; else it is as it was before
    #[arg(long, value_name = "WHEN", default_value = "always", value_enum)]
    pub commit_on: CommitOn,
    /// Stop a command when it does what can't be rolled back [default: warn]
    #[arg(long)]
    pub strict: bool,
    /// Version only this tree; may be repeated. Counts when the session begins
    #[arg(long, value_name = "DIR")]
    pub scope: Vec<PathBuf>,
    /// Leave paths that match alone, as for `run`; may be repeated
    #[arg(long, value_name = "GLOB")]
    pub exclude: Vec<String>,
}

/// `txos agent shell`.
#[derive(Args, Debug)]
#[command(override_usage = "txos agent shell [OPTIONS] [-c COMMAND] [ARG]...")]
pub struct AgentShellArgs {
    /// The session [default: $TXOS_SESSION, or the working directory]
    #[arg(long, value_name = "NAME")]
    pub session: Option<String>,
    /// How commands are run.
    #[command(flatten)]
    pub commands: AgentCommandArgs,
    /// What the shell is given
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARG")]
    pub words: Vec<OsString>,
}

/// `txos agent hook`.
#[derive(Args, Debug)]
pub struct AgentHookArgs {
    /// The tool that asks
    #[arg(value_enum, value_name = "TOOL")]
    pub tool: AgentTool,
    /// The session [default: the tool's own]
    #[arg(long, value_name = "NAME")]
    pub session: Option<String>,
    /// Claude Code: run commands without asking the user [default: ask]
    #[arg(long)]
    pub allow: bool,
    /// How commands are run.
    #[command(flatten)]
    pub commands: AgentCommandArgs,
}

/// A tool with hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AgentTool {
    /// Claude Code: `PreToolUse`
    ClaudeCode,
    /// Codex: `PreToolUse`
    Codex,
    /// Gemini CLI: `BeforeTool`
    GeminiCli,
}

/// `txos mcp`.
#[derive(Args, Debug)]
pub struct McpArgs {
    /// What the agent may do, and what needs a person (see docs/agents.md) [default: a person commits, nothing
    /// is live]
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// The directory that commands run in [default: the working directory]
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    /// Print the policy in force, and end
    #[arg(long)]
    pub print_policy: bool,
}

/// `txos config`.
#[derive(Args, Debug)]
#[group(id = "what", required = true, multiple = true)]
#[command(disable_version_flag = true)]
pub struct ConfigArgs {
    /// Where the header is
    #[arg(long, group = "what")]
    pub cflags: bool,
    /// How to link with the shared library
    #[arg(long, group = "what")]
    pub libs: bool,
    /// How to link with the static library
    #[arg(long, group = "what", conflicts_with = "libs")]
    pub static_libs: bool,
    /// The library's version
    #[arg(long, group = "what")]
    pub version: bool,
}

/// `txos list`.
#[derive(Args, Debug)]
pub struct ListArgs {
    /// Print JSON (see docs/json.md)
    #[arg(long)]
    pub json: bool,
}

/// `txos show`.
#[derive(Args, Debug)]
pub struct ShowArgs {
    /// Transaction: an id or the start of one, its --name, @ for the newest, @~1 for the one before
    ///
    /// @ is the newest that this command can be applied to: of the pending ones for exec and commit, of the
    /// committed ones for revert. A name that several have is the pending one, or else the newest that the command can be
    /// applied to. Once a part is committed, @ and the name are the rest to every command that takes what is pending; the
    /// part has an id of its own.
    #[arg(default_value = "@")]
    pub id: String,
    /// Print JSON (see docs/json.md)
    #[arg(long)]
    pub json: bool,
}

/// `txos diff`.
#[derive(Args, Debug)]
pub struct DiffArgs {
    /// What one layer of a pending transaction changed, by its number in `txos show`
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub layer: Option<u32>,
    /// Transaction: an id or the start of one, its --name, @ for the newest, @~1 for the one before
    ///
    /// @ is the newest that this command can be applied to: of the pending ones for exec and commit, of the
    /// committed ones for revert. A name that several have is the pending one, or else the newest that the command can be
    /// applied to. Once a part is committed, @ and the name are the rest to every command that takes what is pending; the
    /// part has an id of its own.
    #[arg(default_value = "@")]
    pub id: String,
    /// Only what lies at or below these paths
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// The sizes before and after, and the totals
    #[arg(long, group = "format")]
    pub stat: bool,
    /// One letter and the path: A added, M modified, m attributes, T type changed, R renamed, D deleted
    #[arg(long, group = "format")]
    pub name_status: bool,
    /// A unified diff, as git writes it (the default)
    #[arg(short, long, group = "format")]
    pub patch: bool,
    /// A patch for `git apply`: what is changed below the working directory, with names relative to it
    ///
    /// What git has no words for (owners, empty directories, devices) is left out, and told on standard
    /// error.
    #[arg(long, group = "format")]
    pub relative: bool,
    /// JSON (see docs/json.md)
    #[arg(long, group = "format")]
    pub json: bool,
}

/// `txos log`.
#[derive(Args, Debug)]
pub struct LogArgs {
    /// One line each
    #[arg(long)]
    pub oneline: bool,
    /// At most this many
    #[arg(short = 'n', long, value_name = "N")]
    pub max_count: Option<usize>,
    /// Only those that changed something at or below these paths
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Only those committed at most this long ago (2h, 7d), or at this time or later
    ///
    /// A time is a date, which means its midnight (2026-11-24), a date and a time ("2026-11-24 14:53"), both in
    /// the local time zone, or RFC 3339 (2026-11-24T14:53:00+01:00).
    #[arg(long, value_name = "TIME")]
    pub since: Option<Moment>,
    /// Only those committed at least this long ago, or before this time
    #[arg(long, value_name = "TIME")]
    pub until: Option<Moment>,
    /// Only those of this name
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Print JSON (see docs/json.md)
    #[arg(long, conflicts_with = "oneline")]
    pub json: bool,
}

/// `txos review`.
#[derive(Args, Debug)]
pub struct ReviewArgs {
    /// Transaction: an id or the start of one, its --name, @ for the newest pending one
    #[arg(default_value = "@")]
    pub id: String,
    /// Write a page for a browser to this file (- for standard output), and ask nothing
    ///
    /// The page has everything in it, and runs no script. It can be had of committed transactions as well.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["isolation", "no_merge_append", "keep_inode", "no_gate", "no_durable", "seconds"])]
    pub html: Option<PathBuf>,
    /// How to publish.
    #[command(flatten)]
    pub publish: PublishArgs,
    /// How long to wait for others.
    #[command(flatten)]
    pub wait: WaitArgs,
}

/// `txos commit`.
#[derive(Args, Debug, Default)]
pub struct CommitArgs {
    /// Transaction: an id or the start of one, its --name, @ for the newest, @~1 for the one before
    ///
    /// @ is the newest that this command can be applied to: of the pending ones for exec and commit, of the
    /// committed ones for revert. A name that several have is the pending one, or else the newest that the command can be
    /// applied to. Once a part is committed, @ and the name are the rest to every command that takes what is pending; the
    /// part has an id of its own.
    pub id: String,
    /// Write how it ended to this file, or to an open descriptor, as JSON (see docs/json.md)
    #[arg(long, value_name = "FILE|FD:N")]
    pub report: Option<Target>,
    /// Publish only what lies at or below these paths; the rest stays pending
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Only look whether it could be committed now
    #[arg(long, short = 'n', conflicts_with = "paths")]
    pub dry_run: bool,
    /// How.
    #[command(flatten)]
    pub publish: PublishArgs,
    /// How long to wait for others.
    #[command(flatten)]
    pub wait: WaitArgs,
}

/// `txos revert`.
#[derive(Args, Debug)]
pub struct RevertArgs {
    /// Transaction: an id or the start of one, its --name, @ for the newest, @~1 for the one before
    ///
    /// @ is the newest that this command can be applied to: of the pending ones for exec and commit, of the
    /// committed ones for revert. A name that several have is the pending one, or else the newest that the command can be
    /// applied to. Once a part is committed, @ and the name are the rest to every command that takes what is pending; the
    /// part has an id of its own.
    #[arg(default_value = "@")]
    pub id: String,
    /// Undo only what lies at or below these paths, or matches them as patterns; the rest stays committed
    ///
    /// What belongs together, as the names of one file, both ends of a move, or a new directory and what is in
    /// it, can only be undone together: txos says which paths are to be named as well.
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Leave what others have changed since as it is, instead of refusing; may be repeated with patterns
    ///
    /// With =GLOB only paths that match, such as --skip-changed='/var/log/**'. A pattern that begins with none of /, ** and {
    /// is relative to the working directory. What belongs together with such a path, as the other half of a
    /// move does, is left with it.
    #[arg(
        long,
        value_name = "GLOB",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "**"
    )]
    pub skip_changed: Vec<String>,
    /// Merge texts that others have changed since, line by line, instead of refusing
    ///
    /// Their lines stay, and lines that only this transaction had changed become the old ones. Where both
    /// have changed the same lines, or what it left is not known, nothing is done.
    #[arg(long)]
    pub merge: bool,
    /// Write how it ended to this file, or to an open descriptor, as JSON (see docs/json.md)
    #[arg(long, value_name = "FILE|FD:N")]
    pub report: Option<Target>,
    /// Show what would change, and change nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// How long to wait for others.
    #[command(flatten)]
    pub wait: WaitArgs,
    /// Do not hold back others' opens of the changed files during the publish (root only)
    #[arg(long)]
    pub no_gate: bool,
    /// Skip the flushes: atomic when processes crash, but a power cut may leave a part
    #[arg(long)]
    pub no_durable: bool,
}

/// `txos rebase`.
#[derive(Args, Debug, Default)]
pub struct RebaseArgs {
    /// Transaction: an id or the start of one, its --name, @ for the newest pending one
    pub id: String,
    /// Leave paths that match alone, as for `run`; may be repeated
    #[arg(long, value_name = "GLOB")]
    pub exclude: Vec<String>,
    /// Stop and roll back when CMD does what can't be rolled back [default: warn]
    #[arg(long)]
    pub strict: bool,
    /// Write how it ended to this file, or to an open descriptor, as JSON (see docs/json.md)
    #[arg(long, value_name = "FILE|FD:N")]
    pub report: Option<Target>,
    /// How long to wait for others.
    #[command(flatten)]
    pub wait: WaitArgs,
}

/// `txos merge`.
#[derive(Args, Debug)]
#[command(override_usage = "txos merge [OPTIONS] ID OTHER...")]
pub struct MergeArgs {
    /// Transaction that the others are added to: an id or the start of one, its --name, @ for the newest pending one
    pub id: String,
    /// Transactions that are added to it, one after the other
    #[arg(required = true, value_name = "OTHER")]
    pub others: Vec<String>,
    /// How long to wait for others.
    #[command(flatten)]
    pub wait: WaitArgs,
}

/// `txos restore`.
#[derive(Args, Debug)]
#[command(
    override_usage = "txos restore [OPTIONS] PATH@ID...\n       txos restore [OPTIONS] --source ID PATH..."
)]
pub struct RestoreArgs {
    /// The path, and the transaction as which left it: an id, a --name, @ for the newest, @~1 for the one before
    ///
    /// Below a directory, all that was changed since is put back. A path that was not there then is removed,
    /// unless it is a directory.
    #[arg(required = true, value_name = "PATH@ID")]
    pub paths: Vec<PathBuf>,
    /// The transaction, for paths without @ID
    #[arg(long, short, value_name = "ID")]
    pub source: Option<String>,
    /// As the paths were before the transaction, instead of as it left them
    #[arg(long)]
    pub before: bool,
    /// Write how it ended to this file, or to an open descriptor, as JSON (see docs/json.md)
    #[arg(long, value_name = "FILE|FD:N")]
    pub report: Option<Target>,
    /// How long to wait for others.
    #[command(flatten)]
    pub wait: WaitArgs,
    /// Do not hold back others' opens of the changed files during the publish (root only)
    #[arg(long)]
    pub no_gate: bool,
    /// Skip the flushes: atomic when processes crash, but a power cut may leave a part
    #[arg(long)]
    pub no_durable: bool,
}

/// `txos recover`.
#[derive(Args, Debug)]
pub struct RecoverArgs {
    /// Print JSON (see docs/json.md)
    #[arg(long)]
    pub json: bool,
}

/// `txos gc`.
#[derive(Args, Debug)]
pub struct GcArgs {
    /// Remove committed transactions older than this, such as 30d or 12h [default: keep all]
    #[arg(long, value_name = "AGE")]
    pub older_than: Option<Age>,
    /// Remove committed transactions but the newest N; with --older-than, never one of the newest N
    #[arg(long, value_name = "N")]
    pub keep: Option<usize>,
    /// Remember that the store may take so much, such as 10G: after each commit the oldest history is removed
    /// while it takes more. `none` takes the bound away
    ///
    /// Pending transactions count, and are never removed, nor is the newest commit.
    #[arg(long, value_name = "SIZE|none")]
    pub bound: Option<Bound>,
    /// Remove this transaction whatever its state (not a running one); may be repeated
    #[arg(long, value_name = "ID")]
    pub force: Vec<String>,
    /// Print JSON (see docs/json.md)
    #[arg(long)]
    pub json: bool,
    /// Only empty the trash, detached from the caller
    #[arg(long, hide = true)]
    pub trash: bool,
}

/// `txos doctor`.
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// Replace a damaged, foreign or newer realm by a new one, if nobody uses it
    ///
    /// Its counters begin at 0 and its policy is the default one. No transaction is lost by it.
    #[arg(long, conflicts_with = "json")]
    pub rebuild: bool,
    /// Print JSON (see docs/json.md)
    #[arg(long)]
    pub json: bool,
}

/// `txos status`.
#[derive(Args, Debug)]
pub struct StatusArgs {
    /// Print JSON (see docs/json.md)
    #[arg(long)]
    pub json: bool,
}

/// `txos top`.
#[derive(Args, Debug)]
pub struct TopArgs {
    /// Seconds between two looks, at least 0.1
    #[arg(long, value_name = "SECS", default_value = "1", value_parser = interval)]
    pub interval: Duration,
    /// Look once, and end
    #[arg(long, conflicts_with = "interval")]
    pub once: bool,
    /// Print JSON (see docs/json.md): without --once, a line for each look
    #[arg(long)]
    pub json: bool,
}

/// The shortest time between two looks of `txos top`, in seconds.
const INTERVAL_MIN: f64 = 0.1;

fn interval(text: &str) -> Result<Duration, String> {
    let bad = || format!("a number of seconds, at least {INTERVAL_MIN}");
    let seconds: f64 = text.parse().map_err(|_| bad())?;
    let long_enough = seconds >= INTERVAL_MIN;
    let interval = Duration::try_from_secs_f64(seconds).ok();
    interval.filter(|_| long_enough).ok_or_else(bad)
}

/// `txos policy`.
#[derive(Args, Debug)]
pub struct PolicyArgs {
    /// What to do.
    #[command(subcommand)]
    pub action: Option<PolicyAction>,
    /// How to show it.
    #[command(flatten)]
    pub get: PolicyGetArgs,
}

/// What to do about the policy.
#[derive(Debug, Subcommand)]
pub enum PolicyAction {
    /// Show the policy in force; the same as without a word
    Get(PolicyGetArgs),
    /// Set the policy for everybody, from the next conflict on, until the next restart
    ///
    /// It is kept in the realm, which lives until the machine restarts: then the default policy is in
    /// force again.
    Set(PolicySetArgs),
}

/// `txos policy get`.
#[derive(Args, Debug)]
pub struct PolicyGetArgs {
    /// List all policies, and mark the one in force
    #[arg(long)]
    pub all: bool,
    /// Print JSON (see docs/json.md)
    #[arg(long)]
    pub json: bool,
}

/// `txos policy set`.
#[derive(Args, Debug)]
pub struct PolicySetArgs {
    /// The policy
    #[arg(value_name = "NAME", value_parser = policy_parser())]
    pub policy: Policy,
    /// Print JSON (see docs/json.md)
    #[arg(long)]
    pub json: bool,
}

fn policy_parser() -> impl TypedValueParser<Value = Policy> {
    let values = Policy::ALL.map(|p| PossibleValue::new(p.name()).help(p.summary()));
    PossibleValuesParser::new(values).try_map(|name| name.parse::<Policy>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::help::parse;

    fn run(words: &[&str]) -> RunArgs {
        match parse(["txos"].iter().chain(words)).unwrap().command {
            Command::Run(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_command_is_taken_as_it_is() {
        for words in [
            &["run", "make", "-j4", "--", "--keep", "install"][..],
            &["run", "--", "make", "-j4", "--", "--keep", "install"],
            &["run", "--no-gate", "--", "make", "-j4", "--", "--keep", "install"],
        ] {
            let args = run(words);
            assert_eq!(args.command, ["make", "-j4", "--", "--keep", "install"], "{words:?}");
            assert_eq!(args.ending(), Ending::Commit);
        }
    }

    #[test]
    fn a_misspelt_option_is_no_command() {
        for words in [
            &["run", "--no-durabel", "make"][..],
            &["run", "--keep", "-j4", "make"],
            &["run", "-x"],
            &["exec", "@", "--stric", "make"],
        ] {
            let error = parse(["txos"].iter().chain(words)).unwrap_err();
            assert_eq!(error.kind(), clap::error::ErrorKind::UnknownArgument, "{words:?}");
        }
        assert_eq!(run(&["run", "--", "--odd", "-x"]).command, ["--odd", "-x"]);
        let cli = parse(["txos", "exec", "@", "make", "--strict", "-j4"]).unwrap();
        assert!(matches!(cli.command, Command::Exec(e)
            if e.command == ["make", "--strict", "-j4"] && !e.strict));
    }

    #[test]
    fn endings_exclude_each_other() {
        assert_eq!(run(&["run", "--keep", "true"]).ending(), Ending::Keep);
        assert_eq!(run(&["run", "--review", "true"]).ending(), Ending::Review);
        assert_eq!(run(&["run", "--dry-run", "true"]).ending(), Ending::DryRun);
        for words in [
            &["run", "--keep", "--dry-run", "true"][..],
            &["run", "--review", "--keep", "true"],
            &["run", "--keep", "--hold-output", "true"],
            &["run", "--retry", "2", "--keep", "true"],
            &["run", "--retry", "x", "true"],
            &["run", "--isolation", "none", "true"],
            &["run"],
            &["run", "--"],
            &["diff", "x", "--stat", "--json"],
            &["gc", "--older-than", "30"],
            &["top", "--interval", "0.05"],
            &["top", "--interval", "nan"],
            &["top", "--interval", "1e30"],
            &["top", "--interval", "-1"],
            &["top", "--once", "--interval", "2"],
            &["policy", "set"],
            &["policy", "set", "nonsense"],
            &["policy", "--all", "set", "timestamp"],
            &["doctor", "--rebuild", "--json"],
            &["nonsense"],
            &[],
        ] {
            assert!(parse(["txos"].iter().chain(words)).is_err(), "{words:?}");
        }
    }

    #[test]
    fn options_reach_engine_and_run() {
        let args = run(&[
            "run",
            "--isolation",
            "snapshot",
            "--no-merge-append",
            "--keep-inode",
            "*.db",
            "--keep-inode",
            "*.log",
            "--no-gate",
            "--no-durable",
            "--leftover",
            "kill",
            "--scope",
            "/srv",
            "--scope",
            "/etc",
            "--exclude",
            "/srv/x*",
            "--strict",
            "--hold-output",
            "--name",
            "n",
            "-m",
            "why",
            "--retry",
            "3",
            "true",
        ]);
        let options = args.publish.options(true, Vec::new());
        assert_eq!(options.isolation, Isolation::Snapshot);
        assert!(!options.merge_append && !options.gate && !options.durable);
        assert_eq!(options.keep_inode, ["*.db", "*.log"]);
        let run = args.options((None, Vec::new()));
        assert_eq!(run.leftover, Leftover::Kill);
        assert_eq!(run.scope, [PathBuf::from("/srv"), "/etc".into()]);
        assert_eq!(run.exclude, ["/srv/x*"]);
        assert!(run.strict && run.hold_output == Hold::Fully && !run.durable);
        assert_eq!((run.name.as_deref(), run.message.as_deref()), (Some("n"), Some("why")));
        assert_eq!(args.retry, Some(3));
    }

    #[test]
    fn a_policy_is_shown_or_set() {
        let args = |words: &[&str]| match parse(["txos", "policy"].iter().chain(words)) {
            Ok(Cli { command: Command::Policy(args), .. }) => args,
            other => panic!("{other:?}"),
        };
        assert!(matches!(args(&[]), PolicyArgs { action: None, get } if !get.all && !get.json));
        assert!(matches!(args(&["--all"]), PolicyArgs { action: None, get } if get.all));
        let get = args(&["get", "--json"]).action;
        assert!(matches!(get, Some(PolicyAction::Get(get)) if get.json));
        for policy in Policy::ALL {
            let set = args(&["set", policy.name()]).action;
            assert!(matches!(set, Some(PolicyAction::Set(set)) if set.policy == policy));
        }
        let error = parse(["txos", "policy", "set", "fair"]).unwrap_err().to_string();
        assert!(Policy::ALL.iter().all(|p| error.contains(p.name())), "{error}");
    }

    #[test]
    fn intervals_are_read() {
        assert_eq!(interval("0.1"), Ok(Duration::from_millis(100)));
        assert_eq!(interval("3"), Ok(Duration::from_secs(3)));
    }

    #[test]
    fn global_options_may_stand_anywhere_before_the_command() {
        let cli = parse(["txos", "list", "--store", "/x", "-q", "--color=never"]).unwrap();
        assert_eq!(cli.global.store, Some("/x".into()));
        assert!(cli.global.quiet);
        assert_eq!(cli.global.color, When::Never);
        let cli = parse(["txos", "-vv", "run", "-q", "grep", "-q", "x"]).unwrap();
        assert_eq!(cli.global.verbose, 2);
        assert!(cli.global.quiet);
        assert!(matches!(cli.command, Command::Run(r) if r.command == ["grep", "-q", "x"]));
    }
}
