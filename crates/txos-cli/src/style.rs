//! Colours: which, and whether.
//!
//! Styles are applied where text is made, never filtered out of a finished stream: a patch must
//! come through byte for byte even if a file contains escape sequences.

use std::io::{stderr, stdout};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use txos_engine::changeset::Status;

/// Whether one output stream gets colours.
#[derive(Clone, Copy, Debug, Default)]
pub struct Paint {
    on: bool,
}

impl Paint {
    /// For standard output, after `--color`, NO_COLOR, CLICOLOR and whether it is a terminal.
    pub fn stdout() -> Self {
        Paint { on: AutoStream::choice(&stdout()) != ColorChoice::Never }
    }

    /// For standard error, likewise.
    pub fn stderr() -> Self {
        Paint { on: AutoStream::choice(&stderr()) != ColorChoice::Never }
    }

    fn style(self, style: Style) -> Style {
        if self.on { style } else { Style::new() }
    }

    fn colour(self, colour: AnsiColor) -> Style {
        self.style(colour.on_default())
    }

    /// Nothing special.
    #[expect(clippy::unused_self, reason = "as the others")]
    pub fn plain(self) -> Style {
        Style::new()
    }

    /// A transaction's id.
    pub fn id(self) -> Style {
        self.colour(AnsiColor::Yellow)
    }

    /// A heading, a file's header in a patch.
    pub fn strong(self) -> Style {
        self.style(Style::new().bold())
    }

    /// What is less important.
    pub fn faint(self) -> Style {
        self.style(Style::new().dimmed())
    }

    /// Something good, an added line.
    pub fn good(self) -> Style {
        self.colour(AnsiColor::Green)
    }

    /// Something bad, a removed line.
    pub fn bad(self) -> Style {
        self.colour(AnsiColor::Red)
    }

    /// A hunk's header.
    pub fn hunk(self) -> Style {
        self.colour(AnsiColor::Cyan)
    }

    /// The letter of a status.
    pub fn status(self, status: Status) -> Style {
        match status {
            Status::Added => self.good(),
            Status::Deleted => self.bad(),
            Status::Renamed => self.hunk(),
            Status::Modified | Status::Attributes | Status::TypeChanged => {
                self.colour(AnsiColor::Yellow)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn off_means_no_byte_of_it() {
        let off = Paint::default();
        for style in [off.id(), off.strong(), off.good(), off.bad(), off.hunk(), off.faint()] {
            assert_eq!(format!("{style}x{style:#}"), "x");
        }
        assert_ne!(Paint { on: true }.id().to_string(), "");
    }
}
