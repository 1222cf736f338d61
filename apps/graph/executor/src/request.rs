//! What clients ask, and the answers.

use std::fmt;
use std::io;

use crate::vertex::{Change, Hash, Vertex};

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Add an edge.
    Add(u32, u32),
    /// Delete an edge.
    Delete(u32, u32),
    /// Is there an edge?
    Exists(u32, u32),
    /// A shortest path.
    Path(u32, u32),
}

impl Request {
    /// From its text, such as `add 4 17`; an error says what is wrong.
    ///
    /// # Errors
    /// Words for the client.
    pub fn parse(text: &str, vertices: u32) -> Result<Request, &'static str> {
        let mut words = text.split(' ');
        let (verb, from, to) = (words.next(), words.next(), words.next());
        let number = |word: Option<&str>| {
            word.filter(|w| w.bytes().all(|b| b.is_ascii_digit()))?.parse().ok()
        };
        let (Some(from), Some(to), None) = (number(from), number(to), words.next()) else {
            return Err("a request is a word and two vertices");
        };
        if from >= vertices || to >= vertices {
            return Err("there is no such vertex");
        }
        match verb {
            Some("add" | "delete") if from == to => Err("an edge has two ends"),
            Some("add") => Ok(Request::Add(from, to)),
            Some("delete") => Ok(Request::Delete(from, to)),
            Some("exists") => Ok(Request::Exists(from, to)),
            Some("path") => Ok(Request::Path(from, to)),
            _ => Err("a request is add, delete, exists or path"),
        }
    }

    /// Whether it may change the graph.
    pub fn is_write(self) -> bool {
        matches!(self, Request::Add(..) | Request::Delete(..))
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (verb, from, to) = match self {
            Request::Add(a, b) => ("add", a, b),
            Request::Delete(a, b) => ("delete", a, b),
            Request::Exists(a, b) => ("exists", a, b),
            Request::Path(a, b) => ("path", a, b),
        };
        write!(f, "{verb} {from} {to}")
    }
}

/// What carrying out a request has given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What the client is told; the same on all replicas.
    pub text: String,
    /// The vertices that were changed, and their hashes now.
    pub changed: Vec<(u32, Hash)>,
}

/// What a search needs, kept from one to the next.
#[derive(Debug, Default)]
pub struct Scratch {
    buffer: Vec<u8>,
    sides: [Side; 2],
    search: u64,
}

/// What was found from one end of a path.
#[derive(Debug, Default)]
struct Side {
    /// By which vertex each was found, and in which search.
    reached: Vec<(u32, u64)>,
    /// What was found last, and is to be looked at.
    level: Vec<u32>,
}

/// Carries out a request on the files in the working directory.
///
/// # Errors
/// Those of files.
pub fn carry_out(
    request: Request,
    height: u32,
    vertices: u32,
    scratch: &mut Scratch,
) -> io::Result<Answer> {
    let none = Vec::new();
    match request {
        Request::Add(a, b) => change(a, b, height, true, scratch),
        Request::Delete(a, b) => change(a, b, height, false, scratch),
        Request::Exists(a, b) => {
            let there = Vertex::read(a, &mut scratch.buffer)?.neighbours.binary_search(&b).is_ok();
            Ok(Answer { text: if there { "yes" } else { "no" }.into(), changed: none })
        }
        Request::Path(a, b) => Ok(Answer { text: path(a, b, vertices, scratch)?, changed: none }),
    }
}

/// Looks first, and does no more if nothing is to be done, as the paper's server.
fn change(a: u32, b: u32, height: u32, added: bool, scratch: &mut Scratch) -> io::Result<Answer> {
    let before = Vertex::read(a, &mut scratch.buffer)?;
    let mut after = before.clone();
    if !after.change(Change { height, neighbour: b, added }) {
        let text = if added { "there already" } else { "not there" };
        return Ok(Answer { text: text.into(), changed: Vec::new() });
    }
    let other = Vertex::read(b, &mut scratch.buffer)?;
    let mut other_after = other.clone();
    if !other_after.change(Change { height, neighbour: a, added }) {
        let what = format!("vertices {a} and {b} do not agree whether there is an edge");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    after.write(a, &before)?;
    other_after.write(b, &other)?;
    let text = if added { "added" } else { "deleted" };
    Ok(Answer { text: text.into(), changed: vec![(a, after.hash()), (b, other_after.hash())] })
}

/// Breadth first from both ends, a level at a time, always where fewer vertices are to be looked at. Vertices are taken in the
/// order in which they were found, neighbours ascending: all replicas find the same of several shortest paths.
///
/// When a vertex is found from both ends for the first time, the two ends have met on a shortest path: a shorter one
/// would have been found with an earlier level.
fn path(from: u32, to: u32, vertices: u32, scratch: &mut Scratch) -> io::Result<String> {
    let Scratch { buffer, sides, search } = scratch;
    *search += 1;
    for (side, start) in sides.iter_mut().zip([from, to]) {
        side.reached.resize(vertices as usize, (0, 0));
        side.reached[start as usize] = (start, *search);
        side.level.clear();
        side.level.push(start);
    }
    let [ahead, back] = sides;
    let mut middle = (from == to).then_some((from, from));
    while middle.is_none() {
        if ahead.level.is_empty() || back.level.is_empty() {
            return Ok("no path".into());
        }
        middle = if ahead.level.len() <= back.level.len() {
            ahead.advance(back, *search, buffer)?
        } else {
            back.advance(ahead, *search, buffer)?.map(|(near, far)| (far, near))
        };
    }
    let (near, far) = middle.unwrap_or((from, to));
    let mut steps = ahead.way(near);
    steps.reverse();
    // (Without the vertex that both have, if they began with one.)
    steps.extend(back.way(far).into_iter().filter(|_| near != far));
    let steps: Vec<String> = steps.iter().map(u32::to_string).collect();
    Ok(format!("path {}", steps.join(" ")))
}

impl Side {
    /// Looks at a level. If one of its vertices has a neighbour that was found from the other end: the two of them.
    fn advance(
        &mut self,
        other: &Side,
        search: u64,
        buffer: &mut Vec<u8>,
    ) -> io::Result<Option<(u32, u32)>> {
        let level = std::mem::take(&mut self.level);
        for &at in &level {
            for neighbour in Vertex::read(at, buffer)?.neighbours {
                let (Some(mark), Some(theirs)) = (
                    self.reached.get_mut(neighbour as usize),
                    other.reached.get(neighbour as usize),
                ) else {
                    let what = format!("vertex {at} has a neighbour {neighbour}, which is none");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, what));
                };
                if theirs.1 == search {
                    return Ok(Some((at, neighbour)));
                }
                if mark.1 != search {
                    *mark = (at, search);
                    self.level.push(neighbour);
                }
            }
        }
        Ok(None)
    }

    /// The vertices from one back to this end.
    fn way(&self, from: u32) -> Vec<u32> {
        let mut way = vec![from];
        let mut at = from;
        while let Some(&(before, _)) = self.reached.get(at as usize).filter(|mark| mark.0 != at) {
            at = before;
            way.push(at);
        }
        way
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_words() {
        for text in ["add 1 2", "delete 0 9", "exists 3 3", "path 9 0"] {
            assert_eq!(Request::parse(text, 10).map(|r| r.to_string()).as_deref(), Ok(text));
        }
        for text in [
            "",
            "add",
            "add 1",
            "add 1 2 3",
            "add 1 1",
            "add 1 10",
            "add +1 2",
            "add -1 2",
            "path  1 2",
            "find 1 2",
            "add 1 99999999999",
        ] {
            assert!(Request::parse(text, 10).is_err(), "{text}");
        }
    }
}
