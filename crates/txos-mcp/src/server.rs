//! The tools.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{Implementation, JsonObject, ServerCapabilities, ServerConfig};
use rmcp::{Json, ServerHandler, tool, tool_handler, tool_router};
use schemars::Schema;
use schemars::transform::{RecursiveTransform, Transform};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio_util::sync::CancellationToken;
use txos_engine::show::quoted;

use crate::answers::{
    BeginArgs, Begun, Changes, Content, Decided, DiffArgs, DiffFormat, Difference, Moved, NoArgs,
    Ran, ReadArgs, RevertArgs, Review, RunArgs, ShowArgs, Status, UndoArgs,
};
use crate::documents::{List, Live, Report, Shown, Transaction};
use crate::names::{self, Typed};
use crate::policy::{Decider, OnFailure, Policy, Versioned};
use crate::summary;
use crate::txos::{Call, Ended, Stopped, Txos};

/// How many changes `show` lists unless it is asked for another number.
const CHANGES: usize = 200;

/// What the clients' models read first.
const INSTRUCTIONS: &str = "\
Commands run in a system transaction: nobody else sees what they change until it is committed, and everything can \
be undone: `undo` takes back the last commands. `run` runs a shell command and begins a transaction if none is open. Look with `diff`, `show`, `read` and \
`review`. Finish with `commit` (which may need a person: then tell them the command that the answer names) or \
`abort`. A command that fails leaves nothing behind, unless on_failure is `keep`.";

/// The server. Clones share the transaction.
#[derive(Clone, Debug)]
pub struct Server {
    policy: Arc<Policy>,
    txos: Txos,
    typed: Typed,
    tools: Arc<ToolRouter<Server>>,
    session: Arc<Mutex<Session>>,
}

/// The open transaction.
#[derive(Debug, Default)]
struct Session {
    id: Option<String>,
    /// Commands that it has kept changes of.
    commands: u32,
    /// What its commands did that can't be rolled back.
    live: Vec<Live>,
}

/// Why a tool has failed: what, what is unchanged, what to do.
type Failure = String;

#[tool_router(router = generated)]
impl Server {
    /// With this policy. `typed`: how a person calls txos.
    pub fn new(policy: Policy, txos: Txos, typed: Typed) -> Server {
        let mut tools = Self::generated();
        for tool in tools.map.values_mut().map(|route| &mut route.attr) {
            without_formats(&mut tool.input_schema);
            tool.output_schema.iter_mut().for_each(without_formats);
        }
        let tools = Arc::new(tools);
        Server { policy: Arc::new(policy), txos, typed, tools, session: Arc::default() }
    }

    /// Begins a transaction in the workspace, or goes on with a pending one.
    #[tool(
        name = "begin",
        description = "Begin a transaction in the workspace, or go on with a pending one (`resume`). `run` does it by itself.",
        annotations(read_only_hint = false, destructive_hint = false)
    )]
    async fn begin(
        &self,
        Parameters(args): Parameters<BeginArgs>,
        cancelled: CancellationToken,
    ) -> Result<Json<Begun>, Failure> {
        let mut session = self.session(&cancelled).await?;
        if let Some(id) = &session.id {
            return Err(format!(
                "transaction {id} is open already; finish it first with `commit` or `abort`"
            ));
        }
        let resumed = args.resume.is_some();
        let id = match args.resume {
            Some(id) => self.resumable(&id, &cancelled).await?,
            None => self.begin_new(args.name, args.message, &cancelled).await?,
        };
        *session = Session { id: Some(id.clone()), ..Session::default() };
        Ok(Json(Begun { id, workspace: self.workspace_text(), resumed }))
    }

    /// Runs a command in the transaction.
    #[tool(
        name = "run",
        description = "Run a shell command in the transaction. Nobody else sees what it changes. If it fails, its changes are taken back, unless on_failure is `keep`.",
        annotations(read_only_hint = false, destructive_hint = false)
    )]
    async fn run(
        &self,
        Parameters(args): Parameters<RunArgs>,
        cancelled: CancellationToken,
    ) -> Result<Json<Ran>, Failure> {
        if args.command.contains('\0') {
            return Err("a command can't contain NUL; nothing was run".into());
        }
        let directory = args.directory.as_ref().map(|dir| self.path(dir)).transpose()?;
        let mut session = self.session(&cancelled).await?;
        let (id, begun) = match &session.id {
            Some(id) => (id.clone(), false),
            None => (self.begin_new(None, None, &cancelled).await?, true),
        };
        if begun {
            *session = Session { id: Some(id.clone()), ..Session::default() };
        }
        let limit = self.policy.limits.commands;
        if session.commands >= limit {
            return Err(format!(
                "{id} has {limit} commands, as many as the policy allows (limits.commands); nothing was \
                 run; `commit` or `abort` it, and go on in a new one"
            ));
        }
        let call = self.call_of(&id, &args, directory.as_deref());
        let ended = self.start(call, &cancelled).await?;
        let ran = self.ran(&mut session, id, begun, ended).await?;
        Ok(Json(ran))
    }

    /// Takes back what the last commands changed.
    #[tool(
        name = "undo",
        description = "Take back what the last command, or the last `count` commands, changed in the transaction.",
        annotations(read_only_hint = false, destructive_hint = false)
    )]
    async fn undo(
        &self,
        Parameters(args): Parameters<UndoArgs>,
        cancelled: CancellationToken,
    ) -> Result<Json<Moved>, Failure> {
        self.go("undo", &args, &cancelled).await
    }

    /// Puts back what was undone.
    #[tool(
        name = "redo",
        description = "Put back what `undo` has taken back, as long as no command was run since.",
        annotations(read_only_hint = false, destructive_hint = false)
    )]
    async fn redo(
        &self,
        Parameters(args): Parameters<UndoArgs>,
        cancelled: CancellationToken,
    ) -> Result<Json<Moved>, Failure> {
        self.go("redo", &args, &cancelled).await
    }

    /// What is open.
    #[tool(
        name = "status",
        description = "What is open, which pending transactions can be gone on with, and the policy in force.",
        annotations(read_only_hint = true)
    )]
    async fn status(
        &self,
        Parameters(NoArgs {}): Parameters<NoArgs>,
        cancelled: CancellationToken,
    ) -> Result<Json<Status>, Failure> {
        let mut session = self.session(&cancelled).await?;
        let all = self.pending(&cancelled).await?;
        let ours = all.iter().find(|tx| Some(&tx.id) == session.id.as_ref());
        if ours.is_none() {
            *session = Session::default();
        }
        let here = self.workspace_text();
        let pending = all.iter().filter(|tx| tx.state == "pending" && tx.directory == here);
        Ok(Json(Status {
            id: session.id.clone(),
            state: ours.map(|tx| tx.state.clone()),
            changes: ours.and_then(|tx| tx.changes),
            layers: ours.map(|tx| tx.stack.clone()).unwrap_or_default(),
            pending: pending.map(|tx| tx.id.clone()).collect(),
            workspace: here,
            policy: serde_json::to_value(&*self.policy).map_err(|e| e.to_string())?,
        }))
    }

    /// What the transaction changes, as text.
    #[tool(
        name = "diff",
        description = "What the transaction changes so far, as a unified diff, as sizes or as names.",
        annotations(read_only_hint = true)
    )]
    async fn diff(
        &self,
        Parameters(args): Parameters<DiffArgs>,
        cancelled: CancellationToken,
    ) -> Result<Json<Difference>, Failure> {
        let session = self.session(&cancelled).await?;
        let id = open(&session)?;
        let format = match args.format {
            DiffFormat::Patch => "--patch",
            DiffFormat::Stat => "--stat",
            DiffFormat::Names => "--name-status",
        };
        let words = ["diff", format, "--", &id];
        let words = words.map(Into::into).into_iter().chain(self.paths(&args.paths)?);
        let ended = self.start(self.call(words.collect()), &cancelled).await?;
        let ended = succeeded(ended)?;
        Ok(Json(Difference { id, diff: ended.stdout }))
    }

    /// What the transaction changes, as a list.
    #[tool(
        name = "show",
        description = "The paths that the transaction changes so far, with what happened to each.",
        annotations(read_only_hint = true)
    )]
    async fn show(
        &self,
        Parameters(args): Parameters<ShowArgs>,
        cancelled: CancellationToken,
    ) -> Result<Json<Changes>, Failure> {
        let session = self.session(&cancelled).await?;
        let id = open(&session)?;
        let shown = self.changes(&id, &args.paths, &cancelled).await?;
        let limit = args.limit.unwrap_or(CHANGES);
        let changes: Vec<_> = shown.changes.iter().take(limit).map(summary::change).collect();
        Ok(Json(Changes {
            id,
            state: shown.transaction.state,
            counts: shown.counts,
            left_out: (shown.changes.len() - changes.len()) as u64,
            changes,
        }))
    }

    /// A file, as it is in the transaction.
    #[tool(
        name = "read",
        description = "Read a file as it is inside the transaction.",
        annotations(read_only_hint = true)
    )]
    async fn read(
        &self,
        Parameters(args): Parameters<ReadArgs>,
        cancelled: CancellationToken,
    ) -> Result<Json<Content>, Failure> {
        let session = self.session(&cancelled).await?;
        let id = open(&session)?;
        let most = self.policy.limits.output_bytes;
        let limit = args.limit.unwrap_or(most).clamp(1, most);
        let path = self.path(&args.path)?;
        let shown = quoted(&path);
        // One byte more tells whether it ends there. A look is no layer, so it ends as if it had failed.
        let script = "fail() { printf '%s: %s\\n' \"$shown\" \"$1\" >&2; exit 1; }\n\
                      shown=$4\n\
                      test ! -d \"$1\" || fail 'it is a directory'\n\
                      test ! -p \"$1\" || fail 'it is a FIFO, which would be waited for'\n\
                      test -r \"$1\" || fail \"it is not there, or can't be read\"\n\
                      tail -c \"+$2\" -- \"$1\" | head -c \"$3\"\nexit 3";
        let (from, upto) = ((args.offset.saturating_add(1)).to_string(), (limit + 1).to_string());
        let words = ["/bin/sh", "-c", script, "sh"].map(Into::into).into_iter();
        let words = words.chain([path.into(), from.into(), upto.into(), shown.clone().into()]);
        let mut call = self.exec(&id, OnFailure::Discard, None, words);
        (call.bound, call.page) = (2 * (limit + 1), Some(limit));
        let mut ended = self.start(call, &cancelled).await?;
        if ended.status == LOOKED {
            ended.status = 0;
        }
        let ended = succeeded(ended)?;
        let (content, end) = (ended.stdout, !ended.more);
        Ok(Json(Content { path: shown, offset: args.offset, content, end }))
    }

    /// What a person, or the agent, should look at before a commit.
    #[tool(
        name = "review",
        description = "A summary for deciding: numbers, deletions and changes of permissions first, what lies outside the workspace, whether it could be committed now, and who has to do that.",
        annotations(read_only_hint = true)
    )]
    async fn review(
        &self,
        Parameters(NoArgs {}): Parameters<NoArgs>,
        cancelled: CancellationToken,
    ) -> Result<Json<Review>, Failure> {
        let session = self.session(&cancelled).await?;
        let id = open(&session)?;
        let shown = self.changes(&id, &[], &cancelled).await?;
        let mut call = self.call(["commit", "--dry-run", &id].map(Into::into).to_vec());
        call.report = true;
        let report = report_of(&self.start(call, &cancelled).await?)?;
        let can_commit = report.exit_status == 0;
        let needs_person = self.needs_person(&shown).is_some();
        Ok(Json(summary::review(
            &shown,
            self.policy.workspace(),
            summary::Verdict { can_commit, message: report.message, conflicts: report.conflicts },
            session.live.clone(),
            needs_person,
            &self.typed,
        )))
    }

    /// Publishes the transaction, if the policy lets an agent.
    #[tool(
        name = "commit",
        description = "Publish the transaction: everybody sees all of it, or, if that fails, nothing. If the policy wants a person to decide, nothing is done, and the answer names the command that the person runs.",
        annotations(read_only_hint = false, destructive_hint = true)
    )]
    async fn commit(
        &self,
        Parameters(NoArgs {}): Parameters<NoArgs>,
        cancelled: CancellationToken,
    ) -> Result<Json<Decided>, Failure> {
        let mut session = self.session(&cancelled).await?;
        let id = open(&session)?;
        if self.policy.commit == Decider::Person {
            return Ok(Json(self.person("the policy has a person commit", &id)));
        }
        let shown = self.changes(&id, &[], &cancelled).await?;
        if let Some(why) = self.needs_person(&shown) {
            return Ok(Json(self.person(&why, &id)));
        }
        let mut call = self.call(["commit", &id].map(Into::into).to_vec());
        (call.report, call.to_the_end) = (true, true);
        let ended = self.start(call, &cancelled).await?;
        let report = report_of(&ended)?;
        if report.exit_status != 0 {
            let advice = format!(
                "look at the paths with `read`, and `abort` and do it again in a new transaction; {id} stays as it is \
                 until then"
            );
            return Err(refused(&report, &ended, &advice));
        }
        *session = Session::default();
        Ok(Json(Decided {
            id,
            outcome: report.outcome,
            counts: report.counts,
            message: None,
            commands: Vec::new(),
        }))
    }

    /// Undoes a committed transaction, if the policy lets an agent.
    #[tool(
        name = "revert",
        description = "Undo a transaction that was committed in this workspace. If the policy wants a person to decide, the answer names the command.",
        annotations(read_only_hint = false, destructive_hint = true)
    )]
    async fn revert(
        &self,
        Parameters(args): Parameters<RevertArgs>,
        cancelled: CancellationToken,
    ) -> Result<Json<Decided>, Failure> {
        let _session = self.session(&cancelled).await?;
        if args.id.starts_with('-') {
            return Err(format!("{}: an id is wanted", args.id));
        }
        let shown = self.changes(&args.id, &[], &cancelled).await?;
        let id = shown.transaction.id;
        if shown.transaction.directory != self.workspace_text() {
            return Err(format!(
                "{id} was made in {}, not in this workspace; nothing was undone",
                shown.transaction.directory
            ));
        }
        if self.policy.revert == Decider::Person {
            return Ok(Json(Decided {
                outcome: "needs-person".into(),
                counts: None,
                message: Some("the policy has a person revert; nothing was done".into()),
                commands: vec![self.typed.command(&format!("revert {id}"))],
                id,
            }));
        }
        let mut call = self.call(["revert", &id].map(Into::into).to_vec());
        (call.report, call.to_the_end) = (true, true);
        let ended = self.start(call, &cancelled).await?;
        let report = report_of(&ended)?;
        if report.exit_status != 0 {
            let command = self.typed.command(&format!("revert --skip-changed {id}"));
            let advice = format!(
                "nothing was reverted; what others have changed since, a person can leave as it is (`{command}`)"
            );
            return Err(refused(&report, &ended, &advice));
        }
        Ok(Json(Decided {
            id: report.id.unwrap_or(id),
            outcome: report.outcome,
            counts: report.counts,
            message: None,
            commands: Vec::new(),
        }))
    }

    /// Discards the transaction.
    #[tool(
        name = "abort",
        description = "Discard the transaction: nothing of it was ever published.",
        annotations(read_only_hint = false, destructive_hint = true)
    )]
    async fn abort(
        &self,
        Parameters(NoArgs {}): Parameters<NoArgs>,
        cancelled: CancellationToken,
    ) -> Result<Json<Decided>, Failure> {
        let mut session = self.session(&cancelled).await?;
        let id = open(&session)?;
        let mut call = self.call(["abort", &id].map(Into::into).to_vec());
        call.to_the_end = true;
        succeeded(self.start(call, &cancelled).await?)?;
        *session = Session::default();
        Ok(Json(Decided {
            id,
            outcome: "aborted".into(),
            counts: None,
            message: None,
            commands: Vec::new(),
        }))
    }
}

#[tool_handler(router = self.tools)]
impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let implementation = Implementation::new("txos", env!("CARGO_PKG_VERSION"));
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        ServerConfig::new(capabilities)
            .with_server_info(implementation)
            .with_instructions(INSTRUCTIONS)
    }
}

impl Server {
    /// Stops what runs, and waits until it has stopped.
    pub async fn end(&self) {
        self.txos.shutdown.cancel();
        drop(self.session.lock().await);
    }

    /// The session, when no other call has it: the calls of a client happen one after the other.
    async fn session(
        &self,
        cancelled: &CancellationToken,
    ) -> Result<OwnedMutexGuard<Session>, Failure> {
        tokio::select! {
            session = Arc::clone(&self.session).lock_owned() => Ok(session),
            () = cancelled.cancelled() => Err(CANCELLED.into()),
            () = self.txos.shutdown.cancelled() => Err(ENDS.into()),
        }
    }

    fn workspace_text(&self) -> String {
        quoted(self.policy.workspace())
    }

    /// A path that was given relative to the workspace.
    fn path(&self, text: &str) -> Result<PathBuf, Failure> {
        Ok(self.policy.workspace().join(names::path(text)?))
    }

    /// Several of them.
    fn paths(&self, texts: &[String]) -> Result<Vec<OsString>, Failure> {
        texts.iter().map(|text| self.path(text).map(PathBuf::into_os_string)).collect()
    }

    fn call(&self, words: Vec<OsString>) -> Call {
        Call {
            words,
            directory: self.policy.workspace().to_owned(),
            bound: self.policy.limits.output_bytes,
            ..Call::default()
        }
    }

    /// `txos exec`.
    fn exec(
        &self,
        id: &str,
        on_failure: OnFailure,
        directory: Option<&Path>,
        command: impl IntoIterator<Item = OsString>,
    ) -> Call {
        let mut words: Vec<OsString> = vec!["exec".into(), "--leftover=kill".into()];
        words.extend(self.effects());
        words.extend(self.bounds());
        if let Some(directory) = directory {
            words.extend(["--dir".into(), directory.into()]);
        }
        if on_failure == OnFailure::Keep {
            words.push("--commit-on=always".into());
        }
        words.extend([id.into(), "--".into()]);
        words.extend(command);
        Call { report: true, ..self.call(words) }
    }

    /// Takes layers back, or puts them back.
    async fn go(
        &self,
        verb: &str,
        args: &UndoArgs,
        cancelled: &CancellationToken,
    ) -> Result<Json<Moved>, Failure> {
        let session = self.session(cancelled).await?;
        let id = open(&session)?;
        let count = args.count.unwrap_or(1);
        if verb == "undo" {
            // The first layer is the beginning, and no command of this server's.
            let all = self.pending(cancelled).await?;
            let ours = all.iter().find(|tx| tx.id == id);
            let layers = ours.map(|tx| tx.stack.iter().filter(|layer| !layer.undone).count());
            let commands = layers.unwrap_or_default().saturating_sub(1);
            if usize::try_from(count).is_ok_and(|count| count > commands) {
                return Err(format!(
                    "{id} has only {commands} commands to undo; nothing changed. `abort` discards all of it."
                ));
            }
        }
        let count = count.to_string();
        let mut call = self.call([verb, &id, "-n", &count].map(Into::into).to_vec());
        call.report = true;
        let ended = self.start(call, cancelled).await?;
        let report = report_of(&ended)?;
        if report.exit_status != 0 {
            return Err(said(&report, &ended));
        }
        let changes = report.transaction.as_ref().and_then(|tx| tx.changes);
        let layers = report.transaction.map(|tx| tx.stack).unwrap_or_default();
        Ok(Json(Moved { id, changes, layers }))
    }

    /// What may be live.
    fn effects(&self) -> Vec<OsString> {
        let live = &self.policy.live;
        let strict = (!live.effects).then(|| "--strict".into());
        let alone = (!live.network).then(|| "--no-network".into());
        let excluded = live.exclude.iter().map(|glob| format!("--exclude={glob}").into());
        strict.into_iter().chain(alone).chain(excluded).collect()
    }

    /// What a command may use.
    fn bounds(&self) -> Vec<OsString> {
        let limits = &self.policy.limits;
        let bounds = [("max-bytes", limits.private_bytes), ("memory", limits.memory_bytes)];
        let given = bounds.iter().filter_map(|(name, bytes)| Some((name, (*bytes)?)));
        given.map(|(name, bytes)| format!("--{name}={bytes}").into()).collect()
    }

    fn call_of(&self, id: &str, args: &RunArgs, directory: Option<&Path>) -> Call {
        let shell = self.policy.shell.clone().into_os_string();
        let words = [shell, "-c".into(), args.command.clone().into()];
        let on_failure = args.on_failure.unwrap_or(self.policy.on_failure);
        let mut call = self.exec(id, on_failure, directory, words);
        call.input.clone_from(&args.stdin);
        call.time = Some(self.policy.time_of(args.timeout_seconds));
        call
    }

    async fn start(&self, call: Call, cancelled: &CancellationToken) -> Result<Ended, Failure> {
        if self.txos.shutdown.is_cancelled() {
            return Err(ENDS.into());
        }
        let directory = call.directory.clone();
        let ended = self.txos.run(call, cancelled).await.map_err(|error| {
            let workspace = self.policy.workspace();
            if directory.is_dir() {
                format!("txos can't be started: {error}; nothing was run")
            } else if !workspace.is_dir() {
                format!(
                    "the workspace {} is not there any more; nothing was run",
                    quoted(workspace)
                )
            } else {
                format!("{}: {error}; nothing was run", quoted(&directory))
            }
        })?;
        match ended.stopped {
            Some(Stopped::Cancelled) => Err(CANCELLED.into()),
            Some(Stopped::Shutdown) => Err(ENDS.into()),
            Some(Stopped::Time) | None => Ok(ended),
        }
    }

    /// Makes an empty pending transaction.
    async fn begin_new(
        &self,
        name: Option<String>,
        message: Option<String>,
        cancelled: &CancellationToken,
    ) -> Result<String, Failure> {
        let mut words: Vec<OsString> = vec!["run".into(), "--keep".into()];
        if self.policy.versioned == Versioned::Workspace {
            words.push("--scope".into());
            words.push(self.policy.workspace().into());
        }
        words.extend(self.effects());
        words.extend(name.map(|name| format!("--name={name}").into()));
        words.extend(message.map(|message| format!("--message={message}").into()));
        words.extend(["--", "true"].map(Into::into));
        let call = Call { report: true, time: Some(BEGIN), ..self.call(words) };
        let ended = self.start(call, cancelled).await?;
        let report = report_of(&ended)?;
        match (report.outcome.as_str(), &report.id) {
            ("kept", Some(id)) => Ok(id.clone()),
            _ => Err(said(&report, &ended)),
        }
    }

    /// The whole id of a pending transaction of this workspace.
    async fn resumable(&self, id: &str, cancelled: &CancellationToken) -> Result<String, Failure> {
        let here = self.workspace_text();
        let all = self.pending(cancelled).await?;
        let pending = || all.iter().filter(|tx| tx.state == "pending");
        let Some(tx) = pending().find(|tx| tx.id == id || tx.name.as_deref() == Some(id)) else {
            return Err(format!("{id}: there is no such pending transaction; `status` lists them"));
        };
        if tx.directory != here {
            return Err(format!("{id} was begun in {}, not in this workspace", tx.directory));
        }
        Ok(tx.id.clone())
    }

    async fn pending(&self, cancelled: &CancellationToken) -> Result<Vec<Transaction>, Failure> {
        let words = ["list", "--json"].map(Into::into);
        let list: List = self.txos.json(&words, Path::new("/"), cancelled).await?;
        Ok(list.transactions)
    }

    async fn changes(
        &self,
        id: &str,
        paths: &[String],
        cancelled: &CancellationToken,
    ) -> Result<Shown, Failure> {
        let words = ["diff", "--json", "--", id].map(Into::into).into_iter();
        let words: Vec<OsString> = words.chain(self.paths(paths)?).collect();
        self.txos.json(&words, Path::new("/"), cancelled).await
    }

    /// Why a person has to commit it, if that is so.
    fn needs_person(&self, shown: &Shown) -> Option<String> {
        if self.policy.commit == Decider::Person {
            return Some("the policy has a person commit".into());
        }
        let outside = summary::outside(shown, self.policy.workspace());
        outside.first().map(|first| {
            format!(
                "{} of the changed paths lie outside the workspace (the first is {}), and the policy lets \
                 the agent commit what lies in it only",
                outside.len(),
                first.path
            )
        })
    }

    /// The answer of `commit` if a person has to do it.
    fn person(&self, why: &str, id: &str) -> Decided {
        Decided {
            id: id.to_owned(),
            outcome: "needs-person".into(),
            counts: None,
            message: Some(format!("{why}; nothing is published, and {id} stays pending")),
            commands: summary::commands(&self.typed, id),
        }
    }

    /// The answer of `run`.
    async fn ran(
        &self,
        session: &mut Session,
        id: String,
        begun: bool,
        ended: Ended,
    ) -> Result<Ran, Failure> {
        let stopped = ended.stopped.map(|_| "time".to_owned());
        let report = report_of(&ended);
        let report = match report {
            Ok(report) => report,
            // It ignored SIGTERM and was killed, with its txos: what it changed is taken back by the next call.
            Err(_) if stopped.is_some() => Report {
                id: Some(id.clone()),
                outcome: "rolled-back".into(),
                exit_status: ended.status,
                message: None,
                counts: None,
                layer: None,
                warnings: Vec::new(),
                live: Vec::new(),
                conflicts: Vec::new(),
                transaction: None,
            },
            Err(failure) => return Err(failure),
        };
        let kept = report.outcome == "kept";
        if kept {
            session.commands += 1;
        }
        session.live.append(&mut report.live.clone());
        let mut message = (!kept).then(|| said(&report, &ended)).filter(|text| !text.is_empty());
        if report.outcome == "failed" {
            let pending = self.pending(&CancellationToken::new()).await?;
            if !pending.iter().any(|tx| tx.id == id) {
                *session = Session::default();
                let more = format!(
                    "{id} is not pending any more: a person has committed or aborted it; the next `run` \
                     begins a new transaction"
                );
                message = Some(message.map_or(more.clone(), |text| format!("{text}; {more}")));
            }
        }
        if stopped.is_some() {
            let time = ended.time.as_secs();
            let what =
                if kept { "what it had changed is kept" } else { "its changes are taken back" };
            message = Some(format!("stopped after {time} s; {what}"));
        }
        Ok(Ran {
            id,
            begun,
            exit_status: report.exit_status,
            kept,
            outcome: report.outcome,
            stopped,
            message,
            stdout: ended.stdout,
            stderr: ended.stderr,
            seconds: ended.time.as_secs_f64(),
            counts: report.layer,
            warnings: report.warnings,
            live: report.live,
            conflicts: report.conflicts,
        })
    }
}

/// Takes the formats out of a schema: those of numbers (`uint64`) are schemars's own, and validators that know the
/// standard ones alone complain of each.
fn without_formats(schema: &mut Arc<JsonObject>) {
    let mut all = Schema::from((**schema).clone());
    let strip = |part: &mut Schema| drop(part.remove("format"));
    RecursiveTransform(strip).transform(&mut all);
    if let Some(object) = all.as_object() {
        *schema = Arc::new(object.clone());
    }
}

/// With which a look at a file ends.
const LOOKED: i32 = 3;

/// How long the beginning of a transaction may take.
const BEGIN: Duration = Duration::from_secs(120);

const CANCELLED: &str =
    "the request was cancelled; what it ran was stopped, and its changes are taken back";
const ENDS: &str = "the server ends; what ran was stopped, and its changes are taken back";

fn open(session: &Session) -> Result<String, Failure> {
    session.id.clone().ok_or_else(|| {
        "no transaction is open; `run` begins one, and `begin` with `resume` goes on with a pending one"
            .to_owned()
    })
}

fn report_of(ended: &Ended) -> Result<Report, Failure> {
    serde_json::from_slice(&ended.report).map_err(|_| {
        let said = ended.stderr.text.trim();
        match ended.stopped {
            Some(_) => "it took too long and was stopped".to_owned(),
            None if said.is_empty() => {
                format!("txos ended with status {} and no report", ended.status)
            }
            None => said.to_owned(),
        }
    })
}

/// What txos says of a failure: in its report, or else on standard error.
fn said(report: &Report, ended: &Ended) -> String {
    if let Some(message) = &report.message {
        return message.clone();
    }
    let ours = ended.stderr.text.lines().filter_map(|line| line.strip_prefix("txos: "));
    ours.collect::<Vec<_>>().join("; ")
}

/// Why it was not done. `advice`: what to do about a conflict.
fn refused(report: &Report, ended: &Ended, advice: &str) -> Failure {
    let said = said(report, ended);
    match report.outcome.as_str() {
        "conflict" => format!("{said}\n{advice}"),
        _ => said,
    }
}

fn succeeded(ended: Ended) -> Result<Ended, Failure> {
    if ended.status == 0 {
        return Ok(ended);
    }
    let said = ended.stderr.text.trim();
    match said.is_empty() {
        true => Err(format!("txos ended with status {}", ended.status)),
        false => Err(said.to_owned()),
    }
}
