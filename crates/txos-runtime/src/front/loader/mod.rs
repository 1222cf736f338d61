//! Programs that no library can be preloaded into: statically linked ones, and those of another C library.
//!
//! To run one, a process of a transaction runs this library as its program. The kernel and the dynamic linker of the GNU C
//! library map it as ever, and it goes on in the transaction as one that was preloaded. Then, in place of a `main`, it maps the
//! program ([`image`]), and its own dynamic linker if it has one, builds a stack as the kernel would ([`start`]), and jumps to it.
//! From there on the program's system calls come by Syscall User Dispatch, each and every one.
//!
//! Two C libraries in one thread have one thing in common: the register that leads to thread-local memory. It is the
//! program's while that runs, and the library's in the library's code ([`memory`]). And what belongs to a process once is the
//! program's: the end of the heap (`brk`, which is the kernel's for the library), the name, `/proc/self/exe`.
//!
//! | what | as natively | not |
//! |---|---|---|
//! | arguments, environment, auxiliary vector | to the program | `/proc/PID/environ` has a few more variables |
//! | `/proc/PID/exe` | to the process itself | to others it is this library |
//! | addresses | fixed ones are where they are to be | others lie elsewhere than the kernel would put them |

pub mod image;
pub mod memory;
pub mod start;

pub use start::{FILE, PROGRAM, call, is_program, is_programs, makes_way, program_at};
