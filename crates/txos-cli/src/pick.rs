//! Which transaction a word on the command line means.

use txos_engine::store::{Home, Meta};
use txos_engine::version::Stamp;
use txos_engine::{Error, TxId};
use txos_run::question;

use crate::exit::Failure;
use crate::tx_status::TxStatus;

/// What a command can be applied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Whatever has a change set: `diff`, `show`.
    Changed,
    /// Pending: `exec`, `commit`.
    Pending,
    /// Pending, or left behind: `abort`.
    Unpublished,
    /// Committed: `revert`.
    Committed,
    /// Committed, whether it was reverted or not: `restore`.
    Published,
    /// Whatever does not run: `gc --force`.
    Ended,
}

impl Wanted {
    fn takes(self, status: TxStatus) -> bool {
        use TxStatus::{Active, Committed, Dead, Lost, Pending, Reverted};
        match self {
            Wanted::Changed => matches!(status, Pending | Committed | Reverted),
            Wanted::Pending => status == Pending,
            Wanted::Unpublished => matches!(status, Pending | Lost | Dead),
            Wanted::Committed => status == Committed,
            Wanted::Published => matches!(status, Committed | Reverted),
            Wanted::Ended => status != Active,
        }
    }

    /// Of a command that names one transaction.
    pub fn by(command: &str) -> Wanted {
        match command {
            "exec" | "undo" | "redo" | "commit" | "review" | "rebase" | "merge" => Wanted::Pending,
            "abort" => Wanted::Unpublished,
            "revert" => Wanted::Committed,
            _ => Wanted::Changed,
        }
    }

    /// Whether the command can be applied to it by its id: a running one can be looked at, though `@` is
    /// none that may change any moment.
    pub fn can_take(self, status: TxStatus) -> bool {
        self.takes(status) || self == Wanted::Changed && status == TxStatus::Active
    }

    fn in_words(self) -> &'static str {
        match self {
            Wanted::Changed | Wanted::Ended => "ended",
            Wanted::Pending => "pending",
            Wanted::Unpublished => "pending or dead",
            Wanted::Committed | Wanted::Published => "committed",
        }
    }
}

/// The transaction that `text` means to a command: `@` is the newest that it can be applied to and `@~N` the
/// Nth before that; a whole name (of `run --name`) is what [`of_name`] finds; anything else is the start of an id.
pub fn pick(home: &Home, text: &str, wanted: Wanted) -> Result<TxId, Failure> {
    if text.parse::<TxId>().is_ok_and(|id| home.tx_dir(id).exists()) {
        return Ok(home.resolve(text)?);
    }
    // Inside a transaction, what is there to be looked at is that one first.
    let around = question::asked_by().filter(|_| wanted == Wanted::Changed);
    if let (Some(id), Some(0)) = (around, means_newest(text)) {
        return Ok(id);
    }
    let known = || -> Result<Vec<(Meta, TxStatus)>, Failure> {
        let mut known = Vec::new();
        for record in home.transactions()? {
            match record {
                Ok(meta) => {
                    let status = TxStatus::of(home, &meta);
                    known.push((meta, status));
                }
                // A damaged one is no candidate. One that can't be read may be the newest.
                Err(Error::Format { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        known.sort_by_key(|(meta, _)| std::cmp::Reverse(age(meta)));
        Ok(known)
    };
    if let Some(before) = means_newest(text) {
        let known = known()?;
        let mut fit = known.iter().filter(|(_, status)| wanted.takes(*status));
        return fit
            .nth(before.saturating_sub(around.iter().count()))
            .map(|(meta, _)| meta.id)
            .ok_or_else(|| {
                let found = known.iter().filter(|(_, status)| wanted.takes(*status)).count();
                let words = wanted.in_words();
                Failure::new(match found {
                    0 => format!("{text}: there is no {words} transaction"),
                    1 => format!("{text}: there is only one {words} transaction"),
                    n => format!("{text}: there are only {n} {words} transactions"),
                })
            });
    }
    match of_name(&known()?, text, wanted) {
        Some(meta) => Ok(meta.id),
        None => Ok(home.resolve(text)?),
    }
}

/// The transaction of a name, among those that are known, the newest first: the pending one, so that `diff` shows what
/// `commit` would publish; else the newest that the command can be applied to, if there is any. What is removed whatever
/// it is (`gc --force`) is the newest: no pending one has to go for one of the history.
pub fn of_name<'a>(known: &'a [(Meta, TxStatus)], name: &str, wanted: Wanted) -> Option<&'a Meta> {
    let named = || known.iter().filter(|(meta, _)| meta.name.as_deref() == Some(name));
    let fits = || named().filter(|(_, status)| wanted.takes(*status));
    let pending = fits().find(|(_, s)| *s == TxStatus::Pending && wanted != Wanted::Ended);
    pending.or_else(|| fits().next()).or_else(|| named().next()).map(|(meta, _)| meta)
}

/// When a transaction last became what it is.
fn age(meta: &Meta) -> Stamp {
    meta.ended.unwrap_or(meta.begun)
}

/// How many newer ones `@~N` passes over; `None` if the text is something else.
pub fn means_newest(text: &str) -> Option<usize> {
    match text.strip_prefix('@')? {
        "" => Some(0),
        "~" => Some(1),
        rest => rest.strip_prefix('~')?.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_and_a_number() {
        let table =
            [("@", Some(0)), ("@~", Some(1)), ("@~2", Some(2)), ("@~x", None), ("a@", None)];
        for (text, expected) in table {
            assert_eq!(means_newest(text), expected, "{text}");
        }
    }

    #[test]
    fn each_command_has_its_own_newest() {
        use TxStatus::{Active, Committed, Dead, Lost, Pending, Reverted};
        let all = [Active, Dead, Pending, Lost, Committed, Reverted];
        let taken =
            |wanted: Wanted| all.into_iter().filter(|s| wanted.takes(*s)).collect::<Vec<_>>();
        assert_eq!(taken(Wanted::Changed), [Pending, Committed, Reverted]);
        assert_eq!(taken(Wanted::Pending), [Pending]);
        assert_eq!(taken(Wanted::Unpublished), [Dead, Pending, Lost]);
        assert_eq!(taken(Wanted::Committed), [Committed]);
        assert_eq!(taken(Wanted::Ended), [Dead, Pending, Lost, Committed, Reverted]);
    }
}
