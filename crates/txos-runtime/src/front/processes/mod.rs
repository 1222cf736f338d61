//! A transaction of several processes.
//!
//! A command that is one transaction (`txos run --in-process`) has it in its own process, until it makes its first
//! child or thread, or runs another program. Then the transaction moves to a process of its own, the [`server`]: a
//! copy of the command's, which has the transaction by that. From there on the command, its children and theirs are
//! alike. Each has a socket and a
//! window of memory in common with the server ([`wire`]), sends the calls that are the transaction's, and makes all
//! others itself (`calls`). What it has open of the transaction's is open at the server. In its own table a
//! *placeholder* keeps the number, so that numbers, inheritance and close-on-exec are the kernel's affair.
//!
//! | event | what happens |
//! |---|---|
//! | a child is made | the server copies the parent's numbers; the child has a connection of its own |
//! | a program is run | the library is preloaded into it, and goes on with the connection |
//! | a process ends | the server closes its numbers; what it did stays part of the transaction |
//! | the command ends | it waits until the others have ended; the server commits or aborts |
//! | the transaction is lost | the server kills the children; the command ends with the status for that |
//! | the server dies | nothing was published, or recovery finishes it; the processes end |
//!
//! The server makes one call after the other, so each is atomic for the others, and a process that is killed at any
//! instant has made a call or not. It has the command's user, groups and capabilities. A call of a process that has others
//! is made with those (`identities`).
//!
//! | module | what lives there |
//! |---|---|
//! | `answers` | what the server has answered, and any of them may repeat |
//! | [`client`] | processes come and go |
//! | [`decided`] | signals that are held until another process has decided about the transaction |
//! | [`host`] | the same in a program's own transaction, which stays where it is |
//! | [`joining`] | processes that run already enter it |
//! | [`link`] | what a process has of its transaction |
//! | `calls`, `descriptors`, `paths` | a call: sent, or made by the process itself |
//! | `closing` | numbers that the server closes with a process's next request |
//! | `images` | small stable files that processes read by themselves |
//! | `mailbox` | requests that the server looks for, without a message |
//! | `lent` | open files of the transaction that the process has as well, and reads and writes itself |
//! | `programs` | another program in a process |
//! | `signalling` | signals: sent at once, or held until the commit |
//! | `sockets` | addresses of sockets that are paths |
//! | `vforked` | what a child that its parent waits for changes of the parent's stack |
//! | [`wire`] | messages, windows, and which arguments of a call are what |
//! | [`server`], `locks` | the process that has the transaction |
//! | `identities` | who the processes are |

mod answers;
mod calls;
pub mod client;
mod closing;
pub mod decided;
mod descriptors;
pub mod host;
pub mod identities;
mod images;
pub mod joining;
mod lent;
pub mod link;
mod locks;
mod mailbox;
mod paths;
mod programs;
pub mod server;
mod signalling;
mod sockets;
mod vforked;
pub mod wire;

pub use calls::{dispatch, takes_rights};
