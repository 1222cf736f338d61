//! Small durable commits: the engine's light commits against SQLite and LMDB, on the same directory.
//!
//! Each thread updates 100 bytes of its own, over and over, each time durably: in a page of one common
//! file (engine), a row of one table (SQLite, write-ahead log, `synchronous=FULL`), a value of one
//! database (LMDB). None of them does anything between two commits. The rivals are compiled in with
//! `--features rivals` only; with `LIBSQLITE3_FLAGS=-DHAVE_FDATASYNC=1` at the build, SQLite flushes by
//! `fdatasync` as distributions build it, else by `fsync`.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD};
use txos_engine::changeset::{AttrChange, Delta, What};
use txos_engine::commit::{self, Options};
use txos_engine::object::Facets;
use txos_engine::readset::{Coverage, Outcome, PAGE, ReadSet, page_digest};
use txos_engine::store::Home;
use txos_engine::version::stat_at;

use super::{at, remove, thousands};
use crate::bench::Bench;
use crate::measure::Stats;

/// Threads that commit at a time.
const THREADS: [usize; 4] = [1, 2, 4, 8];
/// Bytes of one update.
const BYTES: usize = 100;

/// One who can make an update durable; used by one thread.
type Update<'a> = Box<dyn FnMut(u64) -> Result<(), String> + Send + 'a>;

/// A store of updates, and how a thread gets at it.
trait Keeper: Sync {
    fn name(&self) -> &'static str;
    fn update(&self, thread: usize) -> Result<Update<'_>, String>;
}

/// Measures all of it; Markdown.
pub fn durable(bench: &Bench) -> Result<String, String> {
    let dir = bench.at("durable");
    remove(&dir)?;
    at(&dir, fs::create_dir_all(&dir))?;
    let keepers = keepers(&dir)?;
    let time = Duration::from_millis(if bench.quick() { 300 } else { 1500 });
    let rounds = bench.pairs();
    let mut text = String::new();
    let names: Vec<&str> = keepers.iter().map(|k| k.name()).collect();
    let _ = writeln!(
        text,
        "Durable updates of {BYTES} bytes a second, each thread its own bytes of one common file or \
         database on {}; {rounds} rounds of {} ms, by turns, medians. In brackets: the engine's as a \
         multiple, with its spread over the rounds.\n",
        bench.file_system(),
        time.as_millis()
    );
    if keepers.len() == 1 {
        let _ = writeln!(text, "SQLite and LMDB: not compiled in (`--features rivals`).\n");
    }
    let _ =
        writeln!(text, "| threads | {} |\n|---|{}", names.join(" | "), "---|".repeat(names.len()));
    for threads in THREADS {
        let mut rates: Vec<Vec<f64>> = vec![Vec::new(); keepers.len()];
        for round in 0..rounds {
            eprintln!("durable: {threads} threads, round {} of {rounds}", round + 1);
            for n in 0..keepers.len() {
                // Not always in the same order.
                let n = (n + round) % keepers.len();
                let (Some(keeper), Some(rates)) = (keepers.get(n), rates.get_mut(n)) else {
                    continue;
                };
                bench.flush()?;
                rates.push(rate(&**keeper, threads, time)?);
            }
        }
        let cells: Vec<String> = rates
            .iter()
            .enumerate()
            .map(|(n, theirs)| {
                let median = thousands(Stats::of(theirs.iter().copied()).median as u64);
                if n == 0 {
                    return median;
                }
                let ours = rates.first().map_or(&[][..], |r| &r[..]);
                let ratio = Stats::of(ours.iter().zip(theirs).map(|(a, b)| a / b));
                format!("{median} ({:.2}×, {:.2}× … {:.2}×)", ratio.median, ratio.min, ratio.max)
            })
            .collect();
        let _ = writeln!(text, "| {threads} | {} |", cells.join(" | "));
    }
    text.push('\n');
    drop(keepers);
    remove(&dir)?;
    Ok(text)
}

/// Commits a second of so many threads.
fn rate(keeper: &dyn Keeper, threads: usize, time: Duration) -> Result<f64, String> {
    let barrier = Barrier::new(threads);
    let counts: Result<Vec<(u64, Duration)>, String> = std::thread::scope(|scope| {
        let members: Vec<_> = (0..threads)
            .map(|thread| {
                let barrier = &barrier;
                scope.spawn(move || {
                    let update = keeper.update(thread);
                    barrier.wait();
                    let (mut update, start) = (update?, Instant::now());
                    let mut count = 0;
                    while start.elapsed() < time {
                        count += 1;
                        update(count).map_err(|e| format!("{}: {e}", keeper.name()))?;
                    }
                    Ok((count, start.elapsed()))
                })
            })
            .collect();
        members
            .into_iter()
            .map(|m| m.join().unwrap_or_else(|_| Err("a thread panicked".into())))
            .collect()
    });
    Ok(counts?.into_iter().map(|(n, time)| n as f64 / time.as_secs_f64()).sum())
}

/// 100 bytes that are other each time.
fn content(n: u64) -> [u8; BYTES] {
    let mut bytes = [b'.'; BYTES];
    for (to, from) in bytes.iter_mut().zip(n.to_string().bytes()) {
        *to = from;
    }
    bytes
}

/// The engine's light commits.
struct Engine {
    home: Home,
    top: PathBuf,
}

impl Engine {
    fn new(dir: &Path) -> Result<Self, String> {
        let top = dir.join("tree");
        at(&top, fs::create_dir_all(&top))?;
        let file = top.join("file");
        at(&file, fs::write(&file, vec![b'.'; 8 * PAGE as usize]))?;
        let home = Home::open(&dir.join("store")).map_err(|e| e.to_string())?;
        Ok(Engine { home, top })
    }
}

impl Keeper for Engine {
    fn name(&self) -> &'static str {
        "TxOS engine"
    }

    /// As an in-process transaction does it: looks at the file, reads its page, changes some bytes.
    fn update(&self, thread: usize) -> Result<Update<'_>, String> {
        use std::os::unix::ffi::OsStrExt;
        use std::os::unix::fs::FileExt;
        let dir = self.top.as_os_str().as_bytes();
        let path = self.top.join("file");
        let failed = |e: rustix::io::Errno| e.to_string();
        let dir_id = stat_at(CWD, dir, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?.id;
        let file = at(&path, fs::File::open(&path))?;
        let grounds = [commit::Ground { root: self.top.clone(), copies: None }];
        let options = Options::default();
        let number = thread as u64;
        Ok(Box::new(move |n| {
            let path_bytes = path.as_os_str().as_bytes();
            let base = stat_at(CWD, path_bytes, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
            let mut page = [0u8; PAGE as usize];
            at(&path, file.read_exact_at(&mut page, number * PAGE))?;
            let mut reads = ReadSet::new(Coverage::default());
            reads.note_seen(dir, dir_id, b"file", Outcome::Present(base), Facets::WRITE);
            reads.note_pages(dir, b"file", &[(number, page_digest(&page))]);
            let delta = Delta {
                layer: 0,
                path: b"file".to_vec(),
                stable_path: b"file".to_vec(),
                nameless: false,
                what: What::Patch {
                    base,
                    writes: vec![(number * PAGE, content(n).to_vec())],
                    size: None,
                    attrs: AttrChange::default(),
                },
            };
            match commit::light(&self.home, &grounds, &[delta], &reads, None, &options) {
                Ok(Some(_)) => Ok(()),
                Ok(None) => Err("it was no light commit".into()),
                Err(e) => Err(e.to_string()),
            }
        }))
    }
}

#[cfg(not(feature = "rivals"))]
fn keepers(dir: &Path) -> Result<Vec<Box<dyn Keeper>>, String> {
    Ok(vec![Box::new(Engine::new(dir)?)])
}

#[cfg(feature = "rivals")]
fn keepers(dir: &Path) -> Result<Vec<Box<dyn Keeper>>, String> {
    let sqlite = rivals::Sqlite::new(dir)?;
    Ok(vec![Box::new(Engine::new(dir)?), Box::new(sqlite), Box::new(rivals::Lmdb::new(dir)?)])
}

#[cfg(feature = "rivals")]
mod rivals {
    //! # Safety
    //!
    //! The one unsafe block opens LMDB's environment, which maps a file that nobody else uses.
    #![allow(unsafe_code)]

    use super::*;

    /// SQLite: a connection a thread, as it is meant to be used.
    pub struct Sqlite {
        path: PathBuf,
    }

    impl Sqlite {
        pub fn new(dir: &Path) -> Result<Self, String> {
            let sqlite = Sqlite { path: dir.join("sqlite.db") };
            let connection = sqlite.open().map_err(|e| e.to_string())?;
            let fill = || -> rusqlite::Result<()> {
                connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v BLOB)", [])?;
                for id in 0..8 {
                    connection.execute("INSERT INTO t VALUES (?1, ?2)", (id, content(0)))?;
                }
                Ok(())
            };
            fill().map_err(|e| e.to_string())?;
            Ok(sqlite)
        }

        fn open(&self) -> rusqlite::Result<rusqlite::Connection> {
            let connection = rusqlite::Connection::open(&self.path)?;
            connection.busy_timeout(Duration::from_secs(60))?;
            connection.pragma_update(None, "journal_mode", "WAL")?;
            connection.pragma_update(None, "synchronous", "FULL")?;
            Ok(connection)
        }
    }

    impl Keeper for Sqlite {
        fn name(&self) -> &'static str {
            "SQLite (WAL, FULL)"
        }

        fn update(&self, thread: usize) -> Result<Update<'_>, String> {
            let connection = self.open().map_err(|e| e.to_string())?;
            Ok(Box::new(move |n| {
                let update = || {
                    connection
                        .prepare_cached("UPDATE t SET v = ?1 WHERE id = ?2")?
                        .execute((content(n), thread as i64))
                };
                match update() {
                    Ok(1) => Ok(()),
                    Ok(n) => Err(format!("{n} rows")),
                    Err(e) => Err(e.to_string()),
                }
            }))
        }
    }

    /// LMDB: one environment for all threads; a writer waits for the one before.
    pub struct Lmdb {
        env: heed::Env,
        database: heed::Database<heed::types::Bytes, heed::types::Bytes>,
    }

    impl Lmdb {
        pub fn new(dir: &Path) -> Result<Self, String> {
            let path = dir.join("lmdb");
            at(&path, fs::create_dir_all(&path))?;
            let failed = |e: heed::Error| e.to_string();
            let mut options = heed::EnvOpenOptions::new();
            options.map_size(64 << 20);
            // SAFETY: the directory is this benchmark's own: nobody changes the mapped file but LMDB.
            let env = unsafe { options.open(&path) }.map_err(failed)?;
            let mut write = env.write_txn().map_err(failed)?;
            let database = env.create_database(&mut write, None).map_err(failed)?;
            write.commit().map_err(failed)?;
            Ok(Lmdb { env, database })
        }
    }

    impl Keeper for Lmdb {
        fn name(&self) -> &'static str {
            "LMDB"
        }

        fn update(&self, thread: usize) -> Result<Update<'_>, String> {
            let key = (thread as u64).to_be_bytes();
            Ok(Box::new(move |n| {
                let update = || {
                    let mut write = self.env.write_txn()?;
                    self.database.put(&mut write, &key, &content(n))?;
                    write.commit()
                };
                update().map_err(|e: heed::Error| e.to_string())
            }))
        }
    }
}
