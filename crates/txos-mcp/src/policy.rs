//! The policy: what an agent may do, and what needs a person. A TOML file; without one, the defaults.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use txos_engine::show::quoted;

use crate::names;

/// All of it. A key that is not known is refused: a misspelt limit would be none.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// The directory that commands run in, relative to that of the policy file.
    #[serde(
        deserialize_with = "names::deserialize_some",
        serialize_with = "names::serialize_some",
        skip_serializing_if = "Option::is_none"
    )]
    pub workspace: Option<PathBuf>,
    /// What is versioned.
    pub versioned: Versioned,
    /// Who decides about a commit.
    pub commit: Decider,
    /// Who decides about undoing a commit.
    pub revert: Decider,
    /// What becomes of the changes of a command that fails, unless the call says it.
    pub on_failure: OnFailure,
    /// The shell that commands are given to.
    #[serde(deserialize_with = "names::deserialize", serialize_with = "names::serialize")]
    pub shell: PathBuf,
    /// What may take effect at once.
    pub live: Live,
    /// Limits.
    pub limits: Limits,
}

/// What is versioned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Versioned {
    /// Every real file system.
    #[default]
    Machine,
    /// The workspace only: changes elsewhere are live.
    Workspace,
}

/// Who decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decider {
    /// A person, at a terminal.
    #[default]
    Person,
    /// The agent.
    Agent,
}

/// What becomes of the changes of a command that fails.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum OnFailure {
    /// They are taken back: the transaction is as it was before the command.
    #[default]
    Discard,
    /// They are kept, as after a command in a shell.
    Keep,
}

/// What may take effect at once.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Live {
    /// Whether commands have a network. Else there is only the loopback interface.
    pub network: bool,
    /// Whether effects that can't be rolled back (devices, services, settings of the kernel) are let through
    /// and reported. Else the first one stops the command.
    pub effects: bool,
    /// Patterns of paths that are changed at once.
    pub exclude: Vec<String>,
}

/// Limits.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Bytes of each text in an answer.
    pub output_bytes: usize,
    /// Seconds that a command may take.
    pub command_seconds: u64,
    /// Commands in one transaction of which the changes are kept.
    pub commands: u32,
    /// Bytes of disk space that the private copies of a transaction may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_bytes: Option<u64>,
    /// Bytes of memory that a command may take, with all that it starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            workspace: None,
            versioned: Versioned::default(),
            commit: Decider::default(),
            revert: Decider::default(),
            on_failure: OnFailure::default(),
            shell: "/bin/sh".into(),
            live: Live::default(),
            limits: Limits::default(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            output_bytes: 32 * 1024,
            command_seconds: 600,
            commands: 500,
            private_bytes: None,
            memory_bytes: None,
        }
    }
}

/// The smallest bound of a text that still says something.
const OUTPUT_MIN: usize = 1024;
/// The largest: an answer is one line of JSON, which clients hold in memory.
const OUTPUT_MAX: usize = 4 * 1024 * 1024;

impl Policy {
    /// Reads one, and finds its workspace: as it says, else as `--workspace` says, else the working
    /// directory.
    ///
    /// # Errors
    /// A message that names what is wrong, and where.
    pub fn load(file: Option<&Path>, workspace: Option<&Path>) -> Result<Policy, String> {
        let mut policy = match file {
            None => Policy::default(),
            Some(file) => read(file)?,
        };
        if workspace.is_some() && policy.workspace.is_some() {
            return Err("the policy names the workspace, so --workspace can't".into());
        }
        let dir = policy.workspace.clone().or(workspace.map(Path::to_path_buf));
        let dir = match dir {
            Some(dir) => dir,
            None => std::env::current_dir()
                .map_err(|e| format!("the working directory can't be found: {e}"))?,
        };
        let absolute =
            dir.canonicalize().map_err(|e| format!("workspace {}: {e}", quoted(&dir)))?;
        if !absolute.is_dir() {
            return Err(format!("workspace {}: it is no directory", quoted(&dir)));
        }
        policy.workspace = Some(absolute);
        policy.check()?;
        Ok(policy)
    }

    fn check(&self) -> Result<(), String> {
        let limits = &self.limits;
        if !(OUTPUT_MIN..=OUTPUT_MAX).contains(&limits.output_bytes) {
            return Err(format!("limits.output_bytes: from {OUTPUT_MIN} to {OUTPUT_MAX}"));
        }
        if limits.command_seconds == 0 {
            return Err("limits.command_seconds: at least 1".into());
        }
        if limits.commands == 0 {
            return Err("limits.commands: at least 1".into());
        }
        if !self.shell.is_absolute() {
            return Err(format!("shell {}: an absolute path is wanted", quoted(&self.shell)));
        }
        if self.live.network && !self.live.effects {
            return Err(
                "live.network = true needs live.effects = true: what goes over a network can't be \
                        rolled back"
                    .into(),
            );
        }
        for glob in &self.live.exclude {
            globset::Glob::new(glob).map_err(|e| format!("live.exclude: {e}"))?;
        }
        Ok(())
    }

    /// The workspace.
    pub fn workspace(&self) -> &Path {
        self.workspace.as_deref().unwrap_or(Path::new("/"))
    }

    /// The longest that a command may take: what it asks for, but no more than the limit.
    pub fn time_of(&self, asked: Option<u64>) -> Duration {
        let limit = self.limits.command_seconds;
        Duration::from_secs(asked.map_or(limit, |asked| asked.clamp(1, limit)))
    }
}

fn read(file: &Path) -> Result<Policy, String> {
    let shown = quoted(file);
    let text = std::fs::read_to_string(file).map_err(|e| format!("policy {shown}: {e}"))?;
    let mut policy: Policy = toml::from_str(&text).map_err(|e| format!("policy {shown}: {e}"))?;
    if let Some(dir) = &policy.workspace {
        let beside = file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        policy.workspace = Some(beside.join(dir));
    }
    Ok(policy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Policy, String> {
        let policy: Policy = toml::from_str(text).map_err(|e| e.to_string())?;
        policy.check()?;
        Ok(policy)
    }

    #[test]
    fn without_a_word_a_person_decides_and_nothing_is_live() {
        let policy = parse("").unwrap();
        assert_eq!((policy.commit, policy.revert), (Decider::Person, Decider::Person));
        assert!(!policy.live.effects && !policy.live.network && policy.live.exclude.is_empty());
        assert_eq!(policy.versioned, Versioned::Machine);
        assert_eq!(policy.on_failure, OnFailure::Discard);
    }

    #[test]
    fn what_is_misspelt_is_refused_by_name() {
        for (text, named) in [
            ("comit = 'agent'", "comit"),
            ("commit = 'robot'", "robot"),
            ("[live]\nnetwrok = true", "netwrok"),
            ("[limits]\noutput = 3", "output"),
            ("[limits]\noutput_bytes = 3", "output_bytes"),
            ("[limits]\ncommand_seconds = 0", "command_seconds"),
            ("[limits]\ncommands = 0", "commands"),
            ("[live]\nnetwork = true", "live.effects"),
            ("shell = 'bash'", "bash"),
            ("[live]\nexclude = ['a[']", "exclude"),
            ("commit", "commit"),
        ] {
            let error = parse(text).map(|p| format!("{p:?}")).unwrap_err();
            assert!(error.contains(named), "{text}: {error}");
        }
    }

    #[test]
    fn a_command_asks_for_less_time_than_the_limit_only() {
        let policy = parse("[limits]\ncommand_seconds = 60").unwrap();
        for (asked, given) in [(None, 60), (Some(5), 5), (Some(900), 60), (Some(0), 1)] {
            assert_eq!(policy.time_of(asked), Duration::from_secs(given), "{asked:?}");
        }
    }
}
