//! Why a transaction did not happen.

use std::path::PathBuf;

/// Why a transaction could not be begun, or did not happen. Nothing of it has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// Somebody else changed what it depends on, or won where two met. Trying again may help.
    Conflict(Cause),
    /// A call that can't be part of a transaction, under [`strict`]; or no transactions here.
    ///
    /// [`strict`]: crate::Transaction::strict
    Unsupported(Cause),
    /// Publishing failed (no space, an I/O error) and was undone; or it could not be begun.
    Failed(Cause),
    /// What it was to come [`after`] did not commit; or, with the error number `ESRCH`, there is nothing of that name.
    ///
    /// [`after`]: crate::Transaction::after
    NotProduced(Cause),
    /// A transaction within it failed, and its error was not passed on.
    Aborted,
    /// Its [`timeout`] was over.
    ///
    /// [`timeout`]: crate::Transaction::timeout
    TimedOut,
}

/// What the library said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cause {
    /// In words.
    pub what: String,
    /// Where; `None` if it has no place.
    pub path: Option<PathBuf>,
    /// The error number.
    pub errno: i32,
    /// The process that won, if it is known.
    pub pid: Option<u32>,
}

impl Error {
    /// What the library said about it.
    #[must_use]
    pub fn cause(&self) -> Option<&Cause> {
        match self {
            Error::Conflict(cause)
            | Error::Unsupported(cause)
            | Error::Failed(cause)
            | Error::NotProduced(cause) => Some(cause),
            Error::Aborted | Error::TimedOut => None,
        }
    }

    /// Whether trying again may help.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self, Error::Conflict(_))
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if *self == Error::TimedOut {
            return f.write_str("the time of the transaction was over");
        }
        let Some(cause) = self.cause() else {
            return f.write_str("a transaction within this one failed, and its error was dropped");
        };
        // Most of the library's messages name the path themselves.
        if let Some(path) = &cause.path
            && !cause.what.contains(&*path.to_string_lossy())
        {
            write!(f, "{}: ", path.display())?;
        }
        f.write_str(&cause.what)
    }
}

impl std::error::Error for Error {}

/// For closures that work with files: `?` on both, and [`Error`] found again by
/// [`std::io::Error::downcast`].
impl From<Error> for std::io::Error {
    fn from(error: Error) -> std::io::Error {
        let kind = match &error {
            Error::Conflict(_) => std::io::ErrorKind::ResourceBusy,
            Error::Unsupported(_) => std::io::ErrorKind::Unsupported,
            Error::TimedOut => std::io::ErrorKind::TimedOut,
            _ => std::io::ErrorKind::Other,
        };
        std::io::Error::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_named_once() {
        let cause = |what: &str| Cause {
            what: what.into(),
            path: Some("/etc/x".into()),
            ..Cause::default()
        };
        assert_eq!(Error::Failed(cause("no space")).to_string(), "/etc/x: no space");
        assert_eq!(Error::Failed(cause("/etc/x: no space")).to_string(), "/etc/x: no space");
    }

    #[test]
    fn it_survives_being_an_io_error() {
        let error = Error::Conflict(Cause { pid: Some(7), ..Cause::default() });
        let io = std::io::Error::from(error.clone());
        assert_eq!(io.kind(), std::io::ErrorKind::ResourceBusy);
        assert_eq!(io.downcast::<Error>().unwrap(), error);
    }
}
