//! Prints what one notification costs for a path that was seen before, in microseconds: a command
//! that looks at one file many times, inside a transaction and outside.
//!
//! ```text
//! cargo run --release -p txos-run --example notify_cost
//! ```
//!
//! The program calls itself as the command. Needs root, or user namespaces.

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use txos_engine::store::Home;
use txos_run::RunOptions;

/// Look-ups in one measurement.
const LOOKS: u32 = 200_000;

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().nth(1).as_deref() == Some("look") {
        look();
        return Ok(());
    }
    let me = std::env::current_exe()?;
    println!("native:");
    std::process::Command::new(&me).arg("look").status()?;
    let dir = Path::new("/var/tmp").join(format!("txos-notify-{}", std::process::id()));
    let home = Home::open(&dir)?;
    let options = RunOptions { command: vec![me.into(), "look".into()], ..RunOptions::default() };
    let mut tx = txos_run::begin(&home, &options)?;
    let reads = txos_run::new_reads(&home, &tx, &options)?;
    println!("in a transaction:");
    let ran = txos_run::run(&home, &mut tx, reads, &options, None)?;
    println!("{:?}, {} reads recorded", ran.status, ran.reads.len());
    home.discard(tx)?;
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}

fn look() {
    let time = |what: &str, f: &dyn Fn()| {
        f();
        let begin = Instant::now();
        for _ in 0..LOOKS {
            f();
        }
        let ns = begin.elapsed().as_nanos() / u128::from(LOOKS);
        println!("  {what:<32} {}.{:02} µs", ns / 1000, ns % 1000 / 10);
    };
    time("stat of an absolute path", &|| {
        let _ = rustix::fs::stat(c"/etc/passwd");
    });
    time("stat of a missing path", &|| {
        let _ = rustix::fs::stat(c"/etc/no-such-file");
    });
    let _ = rustix::process::chdir(c"/etc");
    time("stat relative to the directory", &|| {
        let _ = rustix::fs::stat(c"passwd");
    });
    if let Ok(dir) = rustix::fs::open(c"/etc", rustix::fs::OFlags::PATH, rustix::fs::Mode::empty())
    {
        time("stat relative to a descriptor", &|| {
            let _ = rustix::fs::statat(&dir, c"passwd", rustix::fs::AtFlags::empty());
        });
    }
    if let Ok(file) =
        rustix::fs::open(c"/etc/passwd", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty())
    {
        time("fstat as the C library does it", &|| {
            let _ = rustix::fs::statat(&file, c"", rustix::fs::AtFlags::EMPTY_PATH);
        });
    }
    time("open and close", &|| {
        let _ =
            rustix::fs::open(c"/etc/passwd", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty());
    });
}
