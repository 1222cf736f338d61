//! `txos-mcp`: a Model Context Protocol server over standard input and output, with which an agent works in
//! transactions. `txos mcp` starts it.
//!
//! | module | what lives there |
//! |---|---|
//! | [`policy`] | what the agent may do, and what needs a person |
//! | [`lines`] | the client's messages, one a line |
//! | [`server`], [`answers`], [`summary`] | the tools, what they take and answer |
//! | [`names`] | paths in answers and arguments, commands for a person |
//! | [`txos`], [`documents`], [`capture`] | the command `txos` as a process, what it writes, what commands print |
//!
//! A program of its own, so that `txos` stays small and starts as fast as before.

mod answers;
mod capture;
mod documents;
mod lines;
mod names;
mod policy;
mod server;
mod summary;
mod txos;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::ExitCode;
use std::task::{Context, Poll};

use clap::Parser;
use rmcp::ServiceExt;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use txos_engine::store::{default_dir, usual_dir};

use crate::lines::Lines;
use crate::names::Typed;
use crate::policy::Policy;
use crate::server::Server;
use crate::txos::Txos;

/// The status of every failure of txos itself.
const FAILED: u8 = 125;

/// What `txos mcp` hands on.
#[derive(Debug, Parser)]
#[command(name = "txos-mcp", version)]
struct Args {
    /// The command txos
    #[arg(long)]
    txos: PathBuf,
    /// Its store
    #[arg(long)]
    store: Option<PathBuf>,
    /// The policy
    #[arg(long)]
    policy: Option<PathBuf>,
    /// The workspace
    #[arg(long)]
    workspace: Option<PathBuf>,
    /// Print the policy in force, and end
    #[arg(long)]
    print_policy: bool,
}

fn main() -> ExitCode {
    match serve(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            // If that can't be written, there is no other place for it.
            let _ = writeln!(std::io::stderr(), "txos: mcp: {message}");
            ExitCode::from(FAILED)
        }
    }
}

fn serve(args: Args) -> Result<(), String> {
    let policy = Policy::load(args.policy.as_deref(), args.workspace.as_deref())?;
    if args.print_policy {
        let text = toml::to_string(&policy).map_err(|e| e.to_string())?;
        let mut out = std::io::stdout();
        let written = write!(out, "{text}").and_then(|()| out.flush());
        return written.map_err(|e| format!("writing the policy: {e}"));
    }
    // One thread: what dies with its parent dies with the thread that started it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| format!("the runtime can't be started: {e}"))?;
    let typed = Typed::new(unusual(args.store.as_deref()).as_deref());
    let server = Server::new(policy, Txos::new(args.txos, args.store), typed);
    let served = runtime.block_on(converse(server));
    // A read of standard input may go on for ever.
    runtime.shutdown_background();
    served
}

/// The store that the server's transactions are in, where it is not the one that `txos` takes without a word.
fn unusual(named: Option<&Path>) -> Option<PathBuf> {
    let store = named.map(Path::to_owned).or_else(|| default_dir().ok())?;
    Some(store).filter(|store| usual_dir().ok().as_ref() != Some(store))
}

/// Serves one client, until it goes or the server is asked to end. Nothing runs afterwards.
async fn converse(server: Server) -> Result<(), String> {
    let gone = CancellationToken::new();
    let input = UntilGone { inner: tokio::io::stdin(), gone: gone.clone() };
    let mut terms = signal(SignalKind::terminate()).map_err(|e| e.to_string())?;
    let mut ints = signal(SignalKind::interrupt()).map_err(|e| e.to_string())?;
    let ours = server.clone();
    let service = async {
        match ours.serve(Lines::new(input, tokio::io::stdout())).await {
            Ok(running) => drop(running.waiting().await),
            // It went before it had said what it wants.
            Err(_) if gone.is_cancelled() => {}
            Err(error) => return Err(error.to_string()),
        }
        Ok(())
    };
    tokio::pin!(service);
    let served = tokio::select! {
        served = &mut service => served,
        () = gone.cancelled() => Ok(()),
        _ = terms.recv() => Ok(()),
        _ = ints.recv() => Ok(()),
    };
    server.end().await;
    served
}

/// Standard input, which says when it has ended: then nobody is there who waits for an answer.
struct UntilGone<R> {
    inner: R,
    gone: CancellationToken,
}

impl<R: AsyncRead + Unpin> AsyncRead for UntilGone<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buffer);
        let ended = match &polled {
            Poll::Ready(Ok(())) => buffer.filled().len() == before,
            Poll::Ready(Err(_)) => true,
            Poll::Pending => false,
        };
        if ended {
            self.gone.cancel();
        }
        polled
    }
}
