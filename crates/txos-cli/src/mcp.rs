//! `txos mcp`: becomes the server for agents, which is a program of its own (`txos-mcp`), so that this one
//! stays small.

use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::app::App;
use crate::args::McpArgs;
use crate::exit::Failure;
use crate::runtime;

/// The server.
const SERVER: &str = "txos-mcp";

/// Becomes it.
pub fn serve(app: &App, args: &McpArgs) -> Result<u8, Failure> {
    let server = runtime::program(SERVER)?;
    let mut command = Command::new(&server);
    command.arg("--txos").arg(std::env::current_exe()?);
    if let Some(store) = app.store_option() {
        command.arg("--store").arg(store);
    }
    if let Some(policy) = &args.policy {
        command.arg("--policy").arg(policy);
    }
    if let Some(workspace) = &args.workspace {
        command.arg("--workspace").arg(workspace);
    }
    if args.print_policy {
        command.arg("--print-policy");
    }
    let error = command.exec();
    Err(Failure::new(format!(
        "{} can't be started: {error}; nothing was run",
        txos_engine::show::quoted(&server)
    )))
}
