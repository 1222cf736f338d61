//! The directory of a graph: `v/` with a file for each vertex, and `state`, which says which block was the last.
//!
//! The executor works in `v/`.

use std::fs;
use std::io;
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

/// Reads all vertices, from the working directory.
///
/// # Errors
/// The files'.
pub fn hashes(vertices: u32) -> io::Result<Vec<Hash>> {
    let mut buffer = Vec::new();
    (0..vertices).map(|v| Ok(Vertex::read(v, &mut buffer)?.hash())).collect()
}

/// Takes back what blocks above a height have done to the vertices; how many that were. Each vertex is taken back by
/// itself: what an interruption leaves is taken back the next time.
///
/// # Errors
/// The files', or a transaction's.
pub fn take_back(vertices: u32, height: u32) -> io::Result<u32> {
    let mut buffer = Vec::new();
    let mut count = 0;
    for v in 0..vertices {
        let before = Vertex::read(v, &mut buffer)?;
        let mut after = before.clone();
        if after.take_back(height) {
            txos::Transaction::new().durable(false).run(|_| after.write(v, &before))?;
            count += 1;
        }
    }
    Ok(count)
}

/// Whether the directory has files of vertices.
pub fn has_vertices(dir: &Path) -> bool {
    dir.join("v").join(name(0)).exists()
}
