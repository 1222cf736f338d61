//! The directory of a graph: `v/` with a file for each vertex, and `state`, which says which block was the last.
//!
//! The executor works in `v/`.

use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::forest::Forest;
use crate::merkle::Merkle;
use crate::vertex::{Hash, Vertex, name};

/// Where the state is, seen from the vertices.
const STATE: &str = "../state";

/// A hash in hexadecimal.
pub fn hex(hash: &Hash) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// After a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The last block that is whole.
    pub height: u32,
    /// Number of vertices.
    pub vertices: u32,
    /// Of the graph after it, in hexadecimal.
    pub hash: String,
    /// The machine's start in which it was written.
    pub boot: String,
}

/// Which start of the machine this is: what was not made durable may be gone in part after another one.
pub fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

impl State {
    /// Reads it; `None` if there is none.
    ///
    /// # Errors
    /// The file's, or that it is damaged.
    pub fn read() -> io::Result<Option<State>> {
        let text = match fs::read_to_string(STATE) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        let state = match words[..] {
            [height, vertices, hash, boot] => {
                height.parse().ok().zip(vertices.parse().ok()).map(|(height, vertices)| State {
                    height,
                    vertices,
                    hash: hash.to_owned(),
                    boot: boot.to_owned(),
                })
            }
            _ => None,
        };
        state.map(Some).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "the file `state` is damaged")
        })
    }

    /// Writes it in place.
    ///
    /// # Errors
    /// The file's.
    pub fn write(&self) -> io::Result<()> {
        let State { height, vertices, hash, boot } = self;
        // (Always of one length, and written in place: a small change.)
        let file = fs::OpenOptions::new().write(true).create(true).truncate(false).open(STATE)?;
        file.write_all_at(format!("{height:010} {vertices:010} {hash} {boot}\n").as_bytes(), 0)
    }
}

/// Makes a graph in a directory that is empty or missing, and goes into it.
///
/// # Errors
/// The files'.
pub fn make(dir: &Path, forest: &Forest) -> io::Result<()> {
    let inside = dir.join("v");
    fs::create_dir_all(&inside)?;
    std::env::set_current_dir(&inside)?;
    let mut hashes = Vec::new();
    for (vertex, neighbours) in (0..).zip(forest.grow()) {
        let vertex_file = Vertex::new(neighbours);
        vertex_file.create(vertex)?;
        hashes.push(vertex_file.hash());
    }
    let hash = hex(&Merkle::new(&hashes).root());
    State { height: 0, vertices: forest.vertices, hash, boot: boot() }.write()
}

/// Takes back what blocks above a height have done to the vertices, in the working directory: each thread its part of them, in one
/// transaction, which also completes or undoes what a killed executor was publishing. What an interruption leaves is taken back the
/// next time. The vertices' hashes then, and how many were taken back.
///
/// # Errors
/// The files', or a transaction's.
pub fn take_back(vertices: u32, height: u32, threads: usize) -> io::Result<(Vec<Hash>, u32)> {
    let look = |vertex, buffer: &mut Vec<u8>| {
        let before = Vertex::read(vertex, buffer)?;
        let mut after = before.clone();
        let changed = after.take_back(height);
        if changed {
            after.write(vertex, &before)?;
        }
        Ok((after.hash(), changed))
    };
    let all = in_parts(vertices, threads, |part| {
        txos::Transaction::new().durable(false).run(|_| each(part.clone(), look))
    })?;
    let taken_back = all.iter().filter(|(_, changed)| *changed).count() as u32;
    Ok((all.into_iter().map(|(hash, _)| hash).collect(), taken_back))
}

/// The hashes of all vertices as they are, read in so many threads from the working directory.
///
/// # Errors
/// The files'.
pub fn hashes(vertices: u32, threads: usize) -> io::Result<Vec<Hash>> {
    let look = |vertex, buffer: &mut Vec<u8>| Ok(Vertex::read(vertex, buffer)?.hash());
    in_parts(vertices, threads, |part| each(part, look))
}

/// What a function makes of each of these vertices.
fn each<T>(
    vertices: Range<u32>,
    look: impl Fn(u32, &mut Vec<u8>) -> io::Result<T>,
) -> io::Result<Vec<T>> {
    let mut buffer = Vec::new();
    vertices.map(|vertex| look(vertex, &mut buffer)).collect()
}

/// What a function makes of all vertices, in so many threads of which each has a part of them; in the order of the vertices.
fn in_parts<T: Send>(
    vertices: u32,
    threads: usize,
    make: impl Fn(Range<u32>) -> io::Result<Vec<T>> + Sync,
) -> io::Result<Vec<T>> {
    let threads = u32::try_from(threads).unwrap_or(u32::MAX).clamp(1, vertices.max(1));
    if threads == 1 {
        return make(0..vertices);
    }
    let size = vertices.div_ceil(threads);
    std::thread::scope(|scope| {
        let started: Vec<_> = (0..threads)
            .map(|n| {
                let (from, to) = (n.saturating_mul(size), (n + 1).saturating_mul(size));
                let (part, make) = (from.min(vertices)..to.min(vertices), &make);
                std::thread::Builder::new().spawn_scoped(scope, move || make(part))
            })
            .collect::<io::Result<_>>()?;
        let mut all = Vec::with_capacity(vertices as usize);
        for thread in started {
            let ended = || io::Error::other("a thread of the executor has ended");
            all.extend(thread.join().map_err(|_| ended())??);
        }
        Ok(all)
    })
}

/// Whether the directory has files of vertices.
pub fn has_vertices(dir: &Path) -> bool {
    dir.join("v").join(name(0)).exists()
}
