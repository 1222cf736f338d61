//! Help texts that are more than a line, and the commands in groups.

use std::ffi::OsString;

use anstyle::{AnsiColor, Style};
use clap::builder::Styles;
use clap::{Args, CommandFactory, FromArgMatches};

use crate::args::{Cli, Global, RunArgs};

/// The commands as the overview groups them.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Run", &["run", "exec", "undo", "redo", "rebase", "merge"]),
    ("Look", &["list", "show", "diff", "log", "status", "top"]),
    ("Decide", &["review", "commit", "abort", "revert", "restore"]),
    ("Agents", &["mcp", "agent"]),
    ("Care", &["recover", "gc", "policy", "doctor", "config", "completions"]),
];

/// Exit statuses of `txos run`; in its help and its manual page.
pub const RUN_STATUSES: [(&str, &str); 8] = [
    ("0", "CMD succeeded and is committed (or kept, or shown by --dry-run)"),
    ("1-255", "CMD's own status, if it ran and failed: rolled back"),
    ("1", "also: answered no at --review; rolled back"),
    ("75", "conflict: others changed what the transaction depends on; rolled back"),
    ("125", "txos itself failed; nothing published"),
    ("126", "CMD was found but can't be executed"),
    ("127", "CMD was not found"),
    ("128+n", "CMD died of signal n: rolled back"),
];

/// The environment variables that txos reads or sets; in the manual page.
pub const ENVIRONMENT: [(&str, &str); 10] = [
    ("TXOS_ID", "Set for the commands that txos runs: the transaction's id."),
    ("TXOS_SESSION", "The session of `txos agent shell`."),
    ("TXOS_STORE", "Directory of the home store, as --store."),
    (
        "TXOS_REALM",
        "Directory in which transactions meet while they run, instead of the usual one.",
    ),
    ("XDG_STATE_HOME, HOME", "Where an ordinary user's home store is, without TXOS_STORE."),
    ("NO_COLOR", "If set and not empty, no colours (unless --color=always)."),
    (
        "TXOS_PAGER, PAGER",
        "What shows longer texts on a terminal, instead of less -FRX; `cat` or nothing: no pager.",
    ),
    ("VISUAL, EDITOR", "The editor in which a part of a transaction is chosen, instead of vi."),
    ("SHELL", "The shell that `s` starts at a review, instead of /bin/sh."),
    ("TXOS_LOG", "A tracing filter such as `txos_engine=debug`, instead of -v."),
];

/// Files and directories of txos; in the manual page.
pub const FILES: [(&str, &str); 5] = [
    ("/var/lib/txos", "Home store of root."),
    ("$XDG_STATE_HOME/txos, ~/.local/state/txos", "Home store of an ordinary user."),
    ("MOUNTPOINT/.txos", "Side store, on every other file system that a transaction versions."),
    ("/run/txos", "Realm of root: where transactions meet while they run."),
    ("$XDG_RUNTIME_DIR/txos, /dev/shm/txos-UID", "Realm of an ordinary user."),
];

const RUN_EXAMPLES: &str = "\
Examples:
  txos run -- apt-get install -y nginx         all of the package, or nothing of it
  txos run --review -- ./configure.sh          look before it happens
  txos run --keep -- make install              decide later: txos diff, commit, abort
  txos run --retry 3 -- ./update-accounts      run again when others were faster";

/// The command line with everything that is added at run time.
pub fn command() -> clap::Command {
    let command = Cli::command().styles(STYLES).mut_subcommand("run", |run| {
        run.after_help(RUN_EXAMPLES).after_long_help(format!(
            "{RUN_EXAMPLES}\n\nExit status:\n{}",
            table(&RUN_STATUSES, Style::new())
        ))
    });
    let overview = overview(&command);
    let bold = STYLES.get_header();
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{overview}\n{bold}Global options:{bold:#}\n{{options}}\n\n\
         `txos help COMMAND` tells more about a command.{{after-help}}\n"
    ))
}

/// Parses a command line.
pub fn parse<I, T>(words: I) -> Result<Cli, clap::Error>
where
    I: IntoIterator<Item = T>,
    T: Into<OsString> + Clone,
{
    let words: Vec<OsString> = words.into_iter().map(Into::into).collect();
    match parse_run(&words) {
        Some(cli) => Ok(cli),
        None => Cli::from_arg_matches(&command().try_get_matches_from(words)?),
    }
}

/// Parses `txos run …` without the descriptions of all other commands: to make those takes longer than to parse. `None`: it
/// is another command, or wrong, or asks for help.
fn parse_run(words: &[OsString]) -> Option<Cli> {
    if words.get(1)? != "run" {
        return None;
    }
    let run = RunArgs::augment_args(clap::Command::new("run"));
    let root = Global::augment_args(clap::Command::new("txos")).subcommand(run);
    Cli::from_arg_matches(&root.try_get_matches_from(words).ok()?).ok()
}

const STYLES: Styles = Styles::styled()
    .header(Style::new().bold())
    .usage(Style::new().bold())
    .literal(AnsiColor::Green.on_default())
    .placeholder(AnsiColor::Cyan.on_default());

fn overview(command: &clap::Command) -> String {
    let bold = STYLES.get_header();
    GROUPS
        .iter()
        .map(|(heading, names)| {
            let rows: Vec<(&str, String)> = names
                .iter()
                .map(|name| {
                    let about = command.find_subcommand(name).and_then(clap::Command::get_about);
                    (*name, about.map(ToString::to_string).unwrap_or_default())
                })
                .collect();
            format!("{bold}{heading}:{bold:#}\n{}\n", table(&rows, *STYLES.get_literal()))
        })
        .collect::<Vec<_>>()
        .join("\n")
}

/// Two columns, the first in a style.
fn table<T: AsRef<str>>(rows: &[(&str, T)], style: Style) -> String {
    let width = rows.iter().map(|(left, _)| left.len()).max().unwrap_or(0).max(11);
    rows.iter()
        .map(|(left, right)| format!("  {style}{left:width$}{style:#}  {}", right.as_ref()))
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_is_parsed_alone_as_among_the_others() {
        let lines = [
            "txos run true",
            "txos run -- true -x --store /y",
            "txos run --store /x -q --retry 3 --name n -- sh -c 'a b'",
            "txos run -vv --color=never --review --keep-inode=*.log make -j2 --retry 3",
            "txos run --json=- --dry-run --scope /a --scope=/b --strict -- true",
            "txos run --view library --after x --durable -- true",
        ];
        for line in lines {
            let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
            let all = command().try_get_matches_from(&words);
            let all = all.and_then(|matches| Cli::from_arg_matches(&matches)).ok();
            assert_eq!(format!("{:?}", parse_run(&words)), format!("{all:?}"), "{line}");
        }
        for line in
            ["txos run", "txos run --help", "txos run --nonsense x", "txos -q run x", "txos"]
        {
            let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
            assert!(parse_run(&words).is_none(), "{line}");
        }
    }

    #[test]
    fn clap_finds_nothing_wrong() {
        command().debug_assert();
    }

    #[test]
    fn every_command_is_in_one_group() {
        let command = command();
        let mut shown: Vec<&str> =
            command.get_subcommands().filter(|c| !c.is_hide_set()).map(|c| c.get_name()).collect();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        shown.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(shown, grouped);
    }

    #[test]
    fn everything_has_help() {
        fn check(command: &clap::Command) {
            assert!(command.get_about().is_some(), "{}", command.get_name());
            for arg in command.get_arguments() {
                assert!(arg.get_help().is_some(), "{} {}", command.get_name(), arg.get_id());
            }
            command.get_subcommands().for_each(check);
        }
        command().get_subcommands().for_each(check);
    }
}
