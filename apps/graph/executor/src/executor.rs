//! Executes blocks: their requests at the same time, each an ordered transaction, so that they commit in the order of the block.
//!
//! A request that has looked at what an earlier one changes is aborted and carried out again. The request whose turn it is
//! can't lose, so each block comes to its end. Which answers come out, and which files, does not depend on the
//! number of threads.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use txos::Transaction;

use crate::merkle::Merkle;
use crate::request::{Answer, Request, Scratch, carry_out};
use crate::state::{self, State, hex};

/// How requests are carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// One after the other, by plain calls: what is compared with. A kill may leave half of a request.
    Plain,
    /// As ordered transactions, in so many threads.
    Threads(usize),
}

/// What a request was answered, and what it took.
#[derive(Clone, Debug)]
struct Done {
    index: usize,
    answer: Answer,
    aborts: u64,
    began: Instant,
    took: Duration,
}

/// A block, as the threads see it.
#[derive(Debug)]
struct Work {
    height: u32,
    requests: Vec<Request>,
    /// The sequence number of the first.
    base: u64,
    next: AtomicUsize,
}

#[derive(Debug)]
struct Pool {
    blocks: Vec<Sender<Arc<Work>>>,
    done: Receiver<io::Result<Vec<Done>>>,
}

/// What was measured since the beginning.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Attempts that were aborted by a conflict.
    pub aborts: u64,
    /// How long each request was being carried out, from the beginning of its first attempt to its commit.
    pub took: Vec<Duration>,
    /// From the beginning of its block to its commit.
    pub waited: Vec<Duration>,
}

/// An executor, in the directory of its graph.
pub struct Executor {
    vertices: u32,
    height: u32,
    merkle: Merkle,
    pool: Option<Pool>,
    sequence: u64,
    durable: bool,
    scratch: Scratch,
    taken_back: u32,
    /// What was measured.
    pub figures: Figures,
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor").field("height", &self.height).finish_non_exhaustive()
    }
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl Executor {
    /// Goes into a directory, and takes back what a block that did not come to its end has done.
    ///
    /// # Errors
    /// There is no graph; it is damaged; or the files'.
    pub fn open(dir: &Path, how: How, durable: bool) -> io::Result<Executor> {
        std::env::set_current_dir(dir.join("v"))?;
        // A killed executor's publish may be half done. A commit that changes something completes all that is in the log of
        // light commits, whichever files it is about; so what is read by plain calls from then on stays.
        let state = Transaction::new().durable(false).run(|_| {
            let state = State::read()?;
            state.iter().try_for_each(State::write)?;
            Ok::<_, io::Error>(state)
        })?;
        let state = state.ok_or_else(|| {
            damaged("there is no file `state`: the graph was not made to its end")
        })?;
        if !durable && state.boot != state::boot() {
            return Err(damaged(
                "the machine was started again, and the graph was not made durable: make it anew and replay all blocks",
            ));
        }
        let threads = match how {
            How::Plain => 1,
            How::Threads(threads) => threads.max(1),
        };
        let mut taken_back = 0;
        let mut merkle = Merkle::new(&state::hashes(state.vertices, threads)?);
        if hex(&merkle.root()) != state.hash {
            let (hashes, count) = state::take_back(state.vertices, state.height, threads)?;
            (merkle, taken_back) = (Merkle::new(&hashes), count);
        }
        if hex(&merkle.root()) != state.hash {
            return Err(damaged(
                "the vertices are not those of the last block: files were damaged or changed by others",
            ));
        }
        let pool = match how {
            How::Plain => None,
            How::Threads(_) => {
                // The order is the process group's, which may have had one before.
                Transaction::new()
                    .durable(false)
                    .ordered_from(0)
                    .run(|_| Ok::<_, io::Error>(()))?;
                Some(Pool::start(threads, state.vertices, durable)?)
            }
        };
        Ok(Executor {
            vertices: state.vertices,
            height: state.height,
            merkle,
            pool,
            sequence: 1,
            durable,
            scratch: Scratch::default(),
            taken_back,
            figures: Figures::default(),
        })
    }

    /// The last block that was committed.
    pub fn height(&self) -> u32 {
        self.height
    }

    /// Number of vertices.
    pub fn vertices(&self) -> u32 {
        self.vertices
    }

    /// How many vertices were taken back to the last whole block when it was opened.
    pub fn taken_back(&self) -> u32 {
        self.taken_back
    }

    /// The hash of the graph.
    pub fn hash(&self) -> String {
        hex(&self.merkle.root())
    }

    /// Executes a block. The answers are in its order; `Err` ones are of requests that are none.
    ///
    /// # Errors
    /// Those of files and transactions: then the executor can't go on, and its state is that in the middle of a block.
    pub fn execute(&mut self, texts: &[String]) -> io::Result<Vec<Result<String, &'static str>>> {
        let height = self.height + 1;
        let parsed: Vec<_> = texts.iter().map(|text| Request::parse(text, self.vertices)).collect();
        let requests: Vec<Request> = parsed.iter().filter_map(|r| r.ok()).collect();
        let started = Instant::now();
        let mut done = match &self.pool {
            None => {
                let carry = |(index, &request): (usize, &Request)| {
                    let began = Instant::now();
                    let answer = carry_out(request, height, self.vertices, &mut self.scratch)?;
                    Ok(Done { index, answer, aborts: 0, began, took: began.elapsed() })
                };
                requests.iter().enumerate().map(carry).collect::<io::Result<Vec<_>>>()?
            }
            Some(pool) => pool.execute(Work {
                height,
                requests,
                base: self.sequence,
                next: AtomicUsize::new(0),
            })?,
        };
        self.sequence += done.len() as u64;
        done.sort_unstable_by_key(|done| done.index);
        self.height = height;
        self.merkle.set(done.iter().flat_map(|done| done.answer.changed.iter().copied()));
        for done in &done {
            self.figures.aborts += done.aborts;
            self.figures.took.push(done.took);
            self.figures.waited.push(done.began + done.took - started);
        }
        let mut answers = done.into_iter().map(|done| done.answer.text);
        Ok(parsed
            .into_iter()
            .map(|parsed| parsed.map(|_| answers.next().unwrap_or_default()))
            .collect())
    }

    /// The block that was executed is done: a restart goes on after it.
    ///
    /// # Errors
    /// The file's, or the transaction's.
    pub fn commit(&mut self) -> io::Result<()> {
        let state = State {
            height: self.height,
            vertices: self.vertices,
            hash: self.hash(),
            boot: state::boot(),
        };
        match &self.pool {
            None => state.write(),
            Some(_) => Transaction::new().durable(self.durable).run(|_| state.write()),
        }
    }
}

impl Pool {
    fn start(threads: usize, vertices: u32, durable: bool) -> io::Result<Pool> {
        let (results, done) = channel();
        let mut blocks = Vec::new();
        for _ in 0..threads {
            let (sender, receiver) = channel::<Arc<Work>>();
            let results = results.clone();
            std::thread::Builder::new().name("executor".into()).spawn(move || {
                let mut scratch = Scratch::default();
                for work in receiver {
                    if results.send(work.take_part(vertices, durable, &mut scratch)).is_err() {
                        return;
                    }
                }
            })?;
            blocks.push(sender);
        }
        Ok(Pool { blocks, done })
    }

    fn execute(&self, work: Work) -> io::Result<Vec<Done>> {
        let work = Arc::new(work);
        let gone = |_| io::Error::other("a thread of the executor has ended");
        for thread in &self.blocks {
            thread
                .send(work.clone())
                .map_err(|_| io::Error::other("a thread of the executor has ended"))?;
        }
        let mut all = Vec::new();
        for _ in &self.blocks {
            // (At the first that fails: the others wait for its turn.)
            all.append(&mut self.done.recv().map_err(gone)??);
        }
        Ok(all)
    }
}

impl Work {
    /// Takes requests until there is none left. They are taken in their order: so the one whose turn it is is being carried out.
    fn take_part(
        &self,
        vertices: u32,
        durable: bool,
        scratch: &mut Scratch,
    ) -> io::Result<Vec<Done>> {
        let mut done = Vec::new();
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(&request) = self.requests.get(index) else { return Ok(done) };
            let transaction =
                Transaction::new().durable(durable).ordered(self.base + index as u64).retry(0);
            let (began, mut aborts) = (Instant::now(), 0);
            let answer = loop {
                match transaction
                    .run(|_| Ok::<_, Failed>(carry_out(request, self.height, vertices, scratch)?))
                {
                    Ok(answer) => break answer,
                    // At once: it has lost to an earlier one, which goes on.
                    Err(Failed::Transaction(error)) if error.is_conflict() => aborts += 1,
                    Err(Failed::Transaction(error)) => return Err(error.into()),
                    Err(Failed::File(error)) => return Err(error),
                }
            };
            done.push(Done { index, answer, aborts, began, took: began.elapsed() });
        }
    }
}

enum Failed {
    Transaction(txos::Error),
    File(io::Error),
}

impl From<txos::Error> for Failed {
    fn from(error: txos::Error) -> Self {
        Failed::Transaction(error)
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Failed::File(error)
    }
}
