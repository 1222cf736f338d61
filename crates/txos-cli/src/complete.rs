//! What a shell completes: the options and commands by the script that `txos completions` prints, and the
//! transactions by `txos complete`, which that script asks.
//!
//! ```text
//! txos complete [--] WORD...
//! ```
//!
//! The words are those after `txos`, the last one as far as it is typed. The exit status says whether a
//! transaction is wanted there; if so, each line is a word that fits and, after a tab, what it stands for. It
//! changes nothing, and has no messages: they would end up in the middle of a command line.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::PathBuf;

use clap_complete::Shell;
use txos_engine::show::visible;
use txos_engine::store::{Home, Meta, default_dir};
use txos_engine::version::Stamp;

use crate::changes::paths_if_counted;
use crate::duration::ago;
use crate::help;
use crate::list::find;
use crate::log::one_line;
use crate::pick::{Wanted, means_newest, of_name};
use crate::tx_status::TxStatus;

/// Transactions that are offered: nobody reads a longer list.
const OFFERED_MAX: usize = 200;

/// Columns of a description.
const DESCRIPTION_MAX: usize = 90;

/// The script for a shell.
pub fn script(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut help::command(), "txos", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    match shell {
        Shell::Bash => script + include_str!("complete/transactions.bash"),
        Shell::Fish => script + include_str!("complete/transactions.fish"),
        Shell::Zsh => {
            let first = "_txos() {\n";
            let asks = format!("{first}    _txos_transactions && return 0\n");
            let functions = include_str!("complete/transactions.zsh");
            let script = script.replacen(first, &asks, 1);
            // The function is there before the one that calls it is called, at the end.
            script.replacen("_txos() {\n", &format!("{functions}\n{first}"), 1)
        }
        _ => script,
    }
}

/// Prints what fits; gives whether a transaction is wanted at all.
pub fn complete(words: &[String]) -> bool {
    let Some(place) = Place::of(words) else { return false };
    // What is inside a transaction sees no store.
    if txos_run::inside().is_some() {
        return false;
    }
    let offered = place.home().and_then(|home| place.offered(&home)).unwrap_or_default();
    let _ = std::io::Write::write_all(&mut std::io::stdout(), offered.as_bytes());
    true
}

/// A place on a command line where a transaction is wanted.
#[derive(Debug, PartialEq, Eq)]
struct Place<'a> {
    wanted: Wanted,
    /// The word as far as it is typed.
    typed: &'a str,
    store: Option<PathBuf>,
}

impl<'a> Place<'a> {
    fn of(words: &'a [String]) -> Option<Place<'a>> {
        let (typed, before) = words.split_last()?;
        let root = help::command();
        let mut command = &root;
        let mut store = None;
        let mut positional = 0;
        let mut words = before.iter();
        // The option whose value is being typed, if one is.
        let mut option = None;
        let mut only_words = false;
        while let Some(word) = words.next() {
            if !only_words && word == "--" {
                only_words = true;
                continue;
            }
            let found = (!only_words).then(|| option_of(&root, command, word)).flatten();
            if let Some(name) = found {
                match words.next() {
                    Some(value) if name == "store" => store = Some(PathBuf::from(value)),
                    Some(_) => {}
                    None => option = Some(name),
                }
                continue;
            }
            if !only_words && word.starts_with('-') && word != "-" {
                if let Some(value) = word.strip_prefix("--store=") {
                    store = Some(PathBuf::from(value));
                }
                continue;
            }
            if std::ptr::eq(command, &raw const root) {
                command = root.find_subcommand(word)?;
            } else {
                positional += 1;
            }
        }
        let wanted = match option {
            Some("force") if command.get_name() == "gc" => Wanted::Ended,
            Some("source") if command.get_name() == "restore" => Wanted::Published,
            Some(_) => return None,
            None if !only_words && typed.starts_with('-') => return None,
            None => {
                let argument = command.get_positionals().nth(positional)?;
                (argument.get_id() == "id").then(|| Wanted::by(command.get_name()))?
            }
        };
        Some(Place { wanted, typed, store })
    }

    fn home(&self) -> Option<Home> {
        let dir = match &self.store {
            Some(dir) => std::path::absolute(dir).ok()?,
            None => default_dir().ok()?,
        };
        // Completing makes nothing.
        Home::open_existing(&dir).ok()?
    }

    /// A line each.
    fn offered(&self, home: &Home) -> Option<String> {
        let (mut found, _) = find(Some(home), |status| self.wanted.can_take(status)).ok()?;
        found.sort_by_key(|(meta, _)| std::cmp::Reverse(meta.ended.unwrap_or(meta.begun)));
        Some(lines(&found, self.wanted, self.typed, Stamp::now()))
    }
}

/// Whether a word is an option that has its value in the next word; if so, the option.
fn option_of<'c>(
    root: &'c clap::Command,
    command: &'c clap::Command,
    word: &str,
) -> Option<&'c str> {
    let globals = root.get_arguments().filter(|a| a.is_global_set());
    let mut options = command.get_arguments().chain(globals).filter(|a| !a.is_positional());
    let named = |a: &&clap::Arg| match word.strip_prefix("--") {
        Some(long) => a.get_long() == Some(long),
        None => {
            let mut letters = word.strip_prefix('-').unwrap_or_default().chars();
            // The last of several letters may have a value.
            letters.next_back().is_some_and(|letter| a.get_short() == Some(letter))
        }
    };
    let option = options.find(named)?;
    let apart = option.get_action().takes_values() && !option.is_require_equals_set();
    apart.then(|| option.get_id().as_str())
}

/// The transactions that fit, newest first: by their ids, and by their names where a name means just this one.
fn lines(found: &[(Meta, TxStatus)], wanted: Wanted, typed: &str, now: Stamp) -> String {
    let mut lines = String::new();
    let mut offered = 0;
    for (meta, status) in found {
        let id = meta.id.to_string();
        let is_meant = |name: &str| of_name(found, name, wanted).is_some_and(|m| m.id == meta.id);
        let name = meta.name.as_deref().filter(|name| can_be_typed(name) && is_meant(name));
        let fits = [Some(&*id), name].into_iter().flatten().filter(|word| word.starts_with(typed));
        for word in fits {
            let description = description(meta, *status, now);
            let _ = writeln!(lines, "{word}\t{description}");
            offered += 1;
        }
        if offered >= OFFERED_MAX {
            break;
        }
    }
    lines
}

/// Whether a name can be offered: a word that means this transaction, of characters that a line can show.
fn can_be_typed(name: &str) -> bool {
    let odd = |c: char| c.is_control() || c == '\u{fffd}';
    !name.is_empty()
        && !name.starts_with(['-', '~'])
        && means_newest(name).is_none()
        && !name.chars().any(odd)
        && visible(name.as_bytes()) == name
}

fn description(meta: &Meta, status: TxStatus, now: Stamp) -> String {
    let since = ago(meta.ended.unwrap_or(meta.begun), now);
    let counted = match status {
        TxStatus::Active | TxStatus::Dead => String::new(),
        _ => format!(", {}", paths_if_counted(meta.changes)),
    };
    let text = format!("{status} {since}{counted}: {}", one_line(meta));
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match text.char_indices().nth(DESCRIPTION_MAX) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text,
    }
}

/// The words of `txos complete` as text; what is no text fits nothing.
pub fn as_text(words: &[impl AsRef<OsStr>]) -> Vec<String> {
    words.iter().map(|word| word.as_ref().to_string_lossy().into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tx_status::sample;

    fn wanted(line: &str) -> Option<Wanted> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        Place::of(&words).map(|place| place.wanted)
    }

    #[test]
    fn where_a_transaction_is_wanted() {
        for (line, expected) in [
            ("show ", Some(Wanted::Changed)),
            ("show 3f", Some(Wanted::Changed)),
            ("-q --color always diff --stat 3f", Some(Wanted::Changed)),
            ("commit --wait 5 ", Some(Wanted::Pending)),
            ("commit --wait=5 ", Some(Wanted::Pending)),
            ("commit --wait ", None),
            ("commit --", None),
            ("commit -- ", Some(Wanted::Pending)),
            ("commit 3f ", None),
            ("exec ", Some(Wanted::Pending)),
            ("exec 3f ", None),
            ("exec 3f show ", None),
            ("abort ", Some(Wanted::Unpublished)),
            ("review ", Some(Wanted::Pending)),
            ("revert --skip-changed ", Some(Wanted::Committed)),
            ("restore --source ", Some(Wanted::Published)),
            ("restore ", None),
            ("gc --force ", Some(Wanted::Ended)),
            ("gc ", None),
            ("log ", None),
            ("run ", None),
            ("run txos show ", None),
            ("sho", None),
            ("nonsense ", None),
            ("", None),
        ] {
            assert_eq!(wanted(line), expected, "{line:?}");
        }
        let words = ["--store", "/x", "show", ""].map(str::to_owned);
        assert_eq!(Place::of(&words).unwrap().store, Some("/x".into()));
        let words = ["show", "--store=/y", ""].map(str::to_owned);
        assert_eq!(Place::of(&words).unwrap().store, Some("/y".into()));
        assert!(Place::of(&[]).is_none());
    }

    #[test]
    fn what_is_offered() {
        let meta = |bits, name: Option<&str>| Meta {
            id: txos_engine::id::TxId::from_bits(bits),
            name: name.map(str::to_owned),
            command: vec!["make".into(), "a b".into()],
            changes: Some(2),
            ..sample()
        };
        let found = [
            (meta(0x0a00_0001, Some("up grade")), TxStatus::Committed),
            (meta(0x0a00_0002, Some("up grade")), TxStatus::Pending),
            (meta(0x0b00_0003, Some("-q")), TxStatus::Active),
            (meta(0x0b00_0004, Some("a\tb\u{1b}[2J")), TxStatus::Committed),
            (meta(0x0b00_0005, Some("@~1")), TxStatus::Committed),
        ];
        let words = |typed: &str| -> Vec<String> {
            let text = lines(&found, Wanted::Changed, typed, Stamp::now());
            text.lines().map(|l| l.split('\t').next().unwrap().to_owned()).collect()
        };
        let ids: Vec<String> = found.iter().map(|(meta, _)| meta.id.to_string()).collect();
        assert_eq!(words(&ids[2]), ids[2..3]);
        assert_eq!(words("up"), ["up grade"]);
        assert_eq!(words("x"), [""; 0]);
        let mut all = ids.clone();
        // A part and the rest: the name is that of what is pending.
        all.insert(2, "up grade".into());
        assert_eq!(words(""), all);
        let text = lines(&found, Wanted::Changed, "", Stamp::now());
        assert_eq!(text.matches('\t').count(), all.len(), "{text:?}");
        assert!(!text.contains('\u{1b}'), "{text:?}");
        assert!(text.contains(", 2 paths: up grade: make 'a b'\n"), "{text:?}");
    }

    #[test]
    fn every_script_asks() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = script(shell);
            assert!(script.contains("txos complete --"), "{shell}");
        }
        let zsh = script(Shell::Zsh);
        assert_eq!(zsh.matches("_txos_transactions && return 0").count(), 1);
        assert_eq!(zsh.matches("\n_txos_transactions() {").count(), 1);
    }
}
