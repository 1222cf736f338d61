//! `txos config`: how to compile and link a program that uses transactions.

use std::io::Write;
use std::path::Path;

use crate::args::ConfigArgs;
use crate::exit::Failure;
use crate::runtime;

/// What a static library of Rust needs of the compiler and the system.
const STATIC_NEEDS: &str = "-lpthread -ldl -lm -lgcc_eh -lgcc -lc";

/// Prints it.
pub fn config(args: &ConfigArgs) -> Result<u8, Failure> {
    let mut words = Vec::new();
    if args.version {
        words.push(env!("CARGO_PKG_VERSION").to_owned());
    }
    if args.cflags {
        words.push(format!("-I{}", plain(&runtime::include()?)?));
    }
    if args.libs {
        let library = runtime::library(runtime::SHARED)?;
        let dir = plain(library.parent().unwrap_or(Path::new("/")))?;
        words.push(format!("-L{dir} -ltxos -Wl,-rpath,{dir}"));
    }
    if args.static_libs {
        let library = runtime::library(runtime::STATIC)?;
        words.push(format!("{} {STATIC_NEEDS}", plain(&library)?));
    }
    writeln!(std::io::stdout(), "{}", words.join(" "))?;
    Ok(0)
}

/// A path that a shell takes as one word without quotes, as `$(txos config …)` has none.
fn plain(path: &Path) -> Result<&str, Failure> {
    let plain =
        |text: &&str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._-+@%".contains(&b));
    path.to_str().filter(plain).ok_or_else(|| {
        Failure::new(format!(
            "{}: this path has characters that a shell or a compiler would take apart",
            txos_engine::show::quoted(path)
        ))
    })
}
