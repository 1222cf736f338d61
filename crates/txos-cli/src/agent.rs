//! `txos agent`: for tools that run shell commands themselves. Each command of a session is run in the
//! session's pending transaction, which the first one makes.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::FlockOperation;
use serde_json::{Map, Value, json};
use txos_engine::TxId;
use txos_engine::show::quoted;

use crate::app::{App, tell};
use crate::args::{
    AgentAction, AgentCommandArgs, AgentHookArgs, AgentShellArgs, AgentTool, Command as Verb,
};
use crate::exit::{self, Failure, of_command};
use crate::pick::{Wanted, pick};
use crate::tx_status::TxStatus;
use crate::{exec, help};

/// Names the session.
const SESSION: &str = "TXOS_SESSION";
/// The shell that is run, unless it is named.
const SHELLS: [&str; 2] = ["/bin/bash", "/bin/sh"];
/// With which a hook ends so that the tool does not run the command: any other status would let it run
/// without a transaction.
pub const BLOCKED: u8 = 2;

/// Does what was asked for.
pub fn agent(app: &App, action: &AgentAction) -> Result<u8, Failure> {
    match action {
        AgentAction::Shell(args) => shell(app, args),
        AgentAction::Hook(args) => Ok(hook(args)),
    }
}

/// Runs a shell with these arguments, in the session's transaction.
fn shell(app: &App, args: &AgentShellArgs) -> Result<u8, Failure> {
    let shell = shell_of(&args.commands);
    if txos_run::inside().is_some() {
        // It is part of a transaction already.
        let status = exit::of_start_error(Command::new(&shell).args(&args.words).exec());
        tell(format_args!("txos: {}: it can't be started", quoted(shell.as_ref())));
        return Ok(of_command(&status));
    }
    let id = transaction(app, args)?.to_string();
    let mut words: Vec<OsString> = ["txos", "exec", "--leftover=kill"].map(Into::into).to_vec();
    words.extend(ending(&args.commands));
    words.extend(excluded(&args.commands));
    words.extend([id.into(), "--".into(), shell.into()]);
    words.extend(args.words.iter().cloned());
    let cli = help::parse(words).map_err(|e| Failure::new(e.to_string()))?;
    match &cli.command {
        Verb::Exec(args) => exec::exec(app, args),
        _ => Ok(0),
    }
}

/// The shell that runs the commands.
fn shell_of(args: &AgentCommandArgs) -> PathBuf {
    let [bash, sh] = SHELLS;
    let usual = if Path::new(bash).exists() { bash } else { sh };
    args.shell.clone().unwrap_or_else(|| usual.into())
}

/// The options that say how a command may end, as words.
fn ending(args: &AgentCommandArgs) -> impl Iterator<Item = OsString> {
    let commit_on = format!("--commit-on={}", args.commit_on.word());
    std::iter::once(commit_on.into()).chain(args.strict.then(|| "--strict".into()))
}

/// The options that say what is left alone, as words.
fn excluded(args: &AgentCommandArgs) -> impl Iterator<Item = OsString> {
    args.exclude.iter().map(|glob| format!("--exclude={glob}").into())
}

/// The name of the session's transaction.
fn session_name(given: Option<&str>) -> Result<String, Failure> {
    let named = given.map(str::to_owned).or_else(|| std::env::var(SESSION).ok());
    let name = match named.filter(|name| !name.is_empty()) {
        Some(name) => name,
        None => {
            let dir = std::env::current_dir()
                .map_err(|e| Failure::new(format!("finding the working directory: {e}")))?;
            quoted(&dir)
        }
    };
    Ok(format!("agent:{name}"))
}

/// The session's pending transaction; a new one if there is none.
fn transaction(app: &App, args: &AgentShellArgs) -> Result<TxId, Failure> {
    let name = session_name(args.session.as_deref())?;
    let home = app.open_recovered()?;
    let lock = std::fs::File::open(app.store_dir()?)?;
    let pending = || match pick(&home, &name, Wanted::Pending) {
        // A name may also be that of one that is not pending any more.
        Ok(id) => {
            let meta = home.meta(id)?;
            let usable = matches!(TxStatus::of(&home, &meta), TxStatus::Pending | TxStatus::Active);
            Ok::<_, Failure>((meta.name.as_ref() == Some(&name) && usable).then_some(id))
        }
        Err(_) => Ok(None),
    };
    if let Some(id) = pending()? {
        return Ok(id);
    }
    // Two first commands of a session must not make two.
    rustix::fs::flock(&lock, FlockOperation::LockExclusive).map_err(std::io::Error::from)?;
    if let Some(id) = pending()? {
        return Ok(id);
    }
    begin(app, args, &name)?;
    pending()?
        .ok_or_else(|| Failure::new(format!("{name}: its transaction is gone; nothing was run")))
}

fn begin(app: &App, args: &AgentShellArgs, name: &str) -> Result<(), Failure> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("txos").arg("-q");
    if let Some(store) = app.store_option() {
        command.arg("--store").arg(store);
    }
    command.args(["run", "--keep"]).arg(format!("--name={name}"));
    for dir in &args.commands.scope {
        command.arg("--scope").arg(dir);
    }
    command.args(excluded(&args.commands));
    command.args(["--", "true"]).stdin(Stdio::null());
    let begun = command.output()?;
    if begun.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&begun.stderr);
    let said = said.trim().trim_start_matches("txos: ");
    Err(Failure::new(format!("beginning the session's transaction: {said}; nothing was run")))
}

/// Answers a tool that is about to run a command. What fails here blocks the command.
fn hook(args: &AgentHookArgs) -> u8 {
    match answer(args) {
        Ok(None) => 0,
        Ok(Some(answer)) => match writeln!(std::io::stdout(), "{answer}") {
            Ok(()) => 0,
            Err(_) => BLOCKED,
        },
        Err(message) => {
            tell(format_args!("txos: agent hook: {message}; the command is not run"));
            BLOCKED
        }
    }
}

/// The largest question that is read.
const QUESTION_MAX: u64 = 16 * 1024 * 1024;

fn answer(args: &AgentHookArgs) -> Result<Option<Value>, String> {
    let mut text = Vec::new();
    std::io::stdin()
        .take(QUESTION_MAX)
        .read_to_end(&mut text)
        .map_err(|e| format!("standard input: {e}"))?;
    let question: Value =
        serde_json::from_slice(&text).map_err(|e| format!("standard input is no JSON: {e}"))?;
    let txos = std::env::current_exe().map_err(|e| format!("finding txos itself: {e}"))?;
    rewritten(args, &question, txos.as_os_str())
}

/// What a tool calls its hook before a tool, and its tool that runs commands.
fn names(tool: AgentTool) -> (&'static str, &'static str) {
    match tool {
        AgentTool::ClaudeCode | AgentTool::Codex => ("PreToolUse", "Bash"),
        AgentTool::GeminiCli => ("BeforeTool", "run_shell_command"),
    }
}

/// The answer to a question; `None` if it is about something else than running a command.
fn rewritten(
    args: &AgentHookArgs,
    question: &Value,
    txos: &OsStr,
) -> Result<Option<Value>, String> {
    let (before, runs) = names(args.tool);
    let text = |name: &str| question[name].as_str();
    let event = text("hook_event_name").ok_or("there is no hook_event_name")?;
    if event != before || text("tool_name").ok_or("there is no tool_name")? != runs {
        return Ok(None);
    }
    let input = question["tool_input"].as_object().ok_or("tool_input is no object")?;
    let command = input.get("command").and_then(Value::as_str);
    let command = command.ok_or("tool_input has no command")?;
    if input.get("run_in_background") == Some(&Value::Bool(true)) {
        return Ok(Some(denied(args.tool, BACKGROUND)));
    }
    let session = args.session.as_deref().or(text("session_id"));
    let session = session.filter(|s| !s.is_empty()).ok_or("there is no session_id")?;
    let mut words: Vec<OsString> = vec![txos.into(), "agent".into(), "shell".into()];
    words.push(format!("--session={session}").into());
    words.extend(ending(&args.commands));
    for dir in &args.commands.scope {
        let dir = std::path::absolute(dir).map_err(|e| format!("--scope: {e}"))?;
        words.extend(["--scope".into(), dir.into_os_string()]);
    }
    words.extend(excluded(&args.commands));
    words.extend(["--shell".into(), shell_of(&args.commands).into_os_string()]);
    let words: Option<Vec<String>> = words.iter().map(|w| w.to_str().map(shell_word)).collect();
    let prefix = words.ok_or("a path is no valid UTF-8")?.join(" ");
    // It is asked about what it has rewritten itself.
    if command.starts_with(&prefix) {
        return Ok(None);
    }
    let mut input = input.clone();
    input.insert("command".into(), format!("{prefix} -c {}", shell_word(command)).into());
    Ok(Some(allowed(args, input)))
}

const BACKGROUND: &str = "commands in the background are not run: they would keep the session's transaction from every \
                          other command";

fn allowed(args: &AgentHookArgs, input: Map<String, Value>) -> Value {
    let specific = match args.tool {
        AgentTool::GeminiCli => json!({"hookEventName": "BeforeTool", "tool_input": input}),
        // Codex takes a changed command with no other word.
        AgentTool::Codex => {
            json!({"hookEventName": "PreToolUse", "permissionDecision": "allow", "updatedInput": input})
        }
        AgentTool::ClaudeCode => json!({
            "hookEventName": "PreToolUse",
            "permissionDecision": if args.allow { "allow" } else { "ask" },
            "permissionDecisionReason": "it runs in a txos transaction: nothing is published before a commit",
            "updatedInput": input,
        }),
    };
    json!({"hookSpecificOutput": specific})
}

fn denied(tool: AgentTool, reason: &str) -> Value {
    match tool {
        AgentTool::GeminiCli => json!({"decision": "deny", "reason": reason}),
        AgentTool::ClaudeCode | AgentTool::Codex => json!({"hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": reason,
        }}),
    }
}

/// A word as a shell takes it.
fn shell_word(word: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/._-+@%=:,".contains(&b);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::CommitOn;

    fn args(tool: AgentTool) -> AgentHookArgs {
        AgentHookArgs {
            tool,
            session: None,
            allow: false,
            commands: AgentCommandArgs {
                commit_on: CommitOn::Always,
                strict: false,
                scope: Vec::new(),
                exclude: Vec::new(),
                shell: Some("/bin/sh".into()),
            },
        }
    }

    fn asked(tool: AgentTool, question: &Value) -> Result<Option<Value>, String> {
        rewritten(&args(tool), question, OsStr::new("/opt/a b/txos"))
    }

    #[test]
    fn a_command_is_rewritten_and_the_rest_of_its_input_stays() {
        let question = json!({"hook_event_name": "PreToolUse", "session_id": "s 1", "tool_name": "Bash",
            "tool_input": {"command": "echo 'a' > b", "timeout": 5}, "cwd": "/w"});
        let command = "'/opt/a b/txos' agent shell '--session=s 1' --commit-on=always --shell /bin/sh \
                       -c 'echo '\\''a'\\'' > b'";
        for (tool, decision) in [(AgentTool::ClaudeCode, "ask"), (AgentTool::Codex, "allow")] {
            let answer = asked(tool, &question).unwrap().unwrap();
            let specific = &answer["hookSpecificOutput"];
            assert_eq!(specific["hookEventName"], "PreToolUse");
            assert_eq!(specific["permissionDecision"], decision);
            assert_eq!(specific["updatedInput"], json!({"command": command, "timeout": 5}));
        }
        let question = json!({"hook_event_name": "BeforeTool", "session_id": "s 1",
            "tool_name": "run_shell_command", "tool_input": {"command": "echo 'a' > b"}});
        let answer = asked(AgentTool::GeminiCli, &question).unwrap().unwrap();
        assert_eq!(answer["hookSpecificOutput"]["tool_input"], json!({"command": command}));
        // What is rewritten already stays.
        let again = json!({"hook_event_name": "BeforeTool", "session_id": "s 1",
            "tool_name": "run_shell_command", "tool_input": {"command": command}});
        assert_eq!(asked(AgentTool::GeminiCli, &again), Ok(None));
    }

    #[test]
    fn other_tools_and_events_are_let_pass_and_nonsense_is_not() {
        let question = |event: &str, tool: &str| json!({"hook_event_name": event, "session_id": "s", "tool_name": tool, "tool_input": {"command": "x"}});
        for (event, tool) in [("PostToolUse", "Bash"), ("PreToolUse", "Edit"), ("Stop", "")] {
            assert_eq!(asked(AgentTool::ClaudeCode, &question(event, tool)), Ok(None));
        }
        for nonsense in [
            json!(3),
            json!({}),
            json!({"hook_event_name": "PreToolUse"}),
            json!({"hook_event_name": "PreToolUse", "tool_name": "Bash"}),
            json!({"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {}}),
            json!({"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "x"}}),
        ] {
            assert!(asked(AgentTool::ClaudeCode, &nonsense).is_err(), "{nonsense}");
        }
        let behind = json!({"hook_event_name": "PreToolUse", "tool_name": "Bash", "session_id": "s",
            "tool_input": {"command": "x", "run_in_background": true}});
        let answer = asked(AgentTool::ClaudeCode, &behind).unwrap().unwrap();
        assert_eq!(answer["hookSpecificOutput"]["permissionDecision"], "deny");
    }
}
