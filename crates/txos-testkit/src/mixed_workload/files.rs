//! Carrying out a step with a few plain calls: the same, whether within a transaction or without.
//! They are made through the C library or past it, because a program's own transactions meet the two
//! in different places.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};

use crate::history::Op;

use super::keys::{self, Kind, TORN};
use super::plan::{How, Step, of_name};

/// Where new files are made that then take the place of others.
pub const MAKING: &str = "making";

/// The room of a cell. They lie so that some share a page and some do not.
const CELL: u64 = 16;
const CELL_EVERY: u64 = 1536;

/// Lines of the longest register.
const COPIES_MAX: u64 = 300;

/// A tree, for one thread.
#[derive(Debug)]
pub struct Files {
    tree: PathBuf,
    /// Past the C library.
    pub raw: bool,
    /// The cells, open for writing all the time: so they stay the same file.
    cells: Option<File>,
    /// Nothing but what is one change, or a look at one thing.
    plain: bool,
}

fn line(value: u64) -> String {
    format!("{value:016x}\n")
}

fn torn<T>() -> io::Result<T> {
    Err(io::Error::new(ErrorKind::InvalidData, "torn"))
}

/// What a register's file has.
#[must_use]
pub fn register(value: u64) -> String {
    line(value).repeat((1 + value % COPIES_MAX) as usize)
}

fn parse_register(bytes: &[u8]) -> u64 {
    let values = parse_list(bytes);
    let first = values.first().copied().unwrap_or(TORN);
    let whole = values.len() as u64 == 1 + first % COPIES_MAX && values.iter().all(|v| *v == first);
    if whole { first } else { TORN }
}

/// The values of a list; [`TORN`] where a line is none.
#[must_use]
pub fn parse_list(bytes: &[u8]) -> Vec<u64> {
    let value = |line: &[u8]| {
        let text = std::str::from_utf8(line).ok()?.strip_suffix('\n')?;
        u64::from_str_radix(text, 16).ok()
    };
    bytes.chunks(17).map(|line| value(line).unwrap_or(TORN)).collect()
}

/// The bytes of a cell.
fn cell(value: u64) -> [u8; CELL as usize] {
    let mut bytes = [0; CELL as usize];
    bytes[..8].copy_from_slice(&value.to_le_bytes());
    bytes[8..].copy_from_slice(&(!value).to_le_bytes());
    bytes
}

fn parse_cell(bytes: [u8; CELL as usize]) -> u64 {
    let word = |at: usize| bytes[at..].first_chunk().map_or(0, |w| u64::from_le_bytes(*w));
    if bytes == [0; CELL as usize] {
        0
    } else if word(0) == !word(8) {
        word(0)
    } else {
        TORN
    }
}

fn missing<T>(answer: io::Result<T>) -> io::Result<Option<T>> {
    match answer {
        Ok(there) => Ok(Some(there)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

impl Files {
    /// For an outsider, or for transactions.
    #[must_use]
    pub fn new(tree: &Path, plain: bool) -> Files {
        Files { tree: tree.to_owned(), raw: false, cells: None, plain }
    }

    /// Keeps the cells open from here on.
    ///
    /// # Errors
    /// If they can't be opened.
    pub fn keep_cells(&mut self) -> io::Result<()> {
        let open = OpenOptions::new().read(true).write(true).open(self.tree.join("cells"))?;
        self.cells = Some(open);
        Ok(())
    }

    /// What was opened in a transaction that did not commit is closed already.
    pub fn forget_cells(&mut self) {
        let _ = self.cells.take().map(std::os::fd::IntoRawFd::into_raw_fd);
    }

    fn at(&self, key: u64) -> PathBuf {
        self.tree.join(keys::path(key))
    }

    fn open(&self, path: &Path, flags: i32) -> io::Result<File> {
        if self.raw {
            let flags = OFlags::from_bits_retain(flags.cast_unsigned()) | OFlags::CLOEXEC;
            return Ok(rustix::fs::open(path, flags, Mode::from_raw_mode(0o644))?.into());
        }
        let mode = flags & libc::O_ACCMODE;
        OpenOptions::new()
            .read(mode != libc::O_WRONLY)
            .write(mode != libc::O_RDONLY)
            .create(flags & libc::O_CREAT != 0 && flags & libc::O_EXCL == 0)
            .create_new(flags & libc::O_EXCL != 0)
            .truncate(flags & libc::O_TRUNC != 0)
            .custom_flags(flags & libc::O_APPEND)
            .mode(0o644)
            .open(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        if self.raw {
            return Ok(rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::empty())?);
        }
        std::fs::rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        if self.raw {
            return Ok(rustix::fs::unlinkat(CWD, path, AtFlags::empty())?);
        }
        std::fs::remove_file(path)
    }

    /// All of a file; nothing, if it is not there.
    fn content(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        let Some(mut file) = missing(self.open(path, libc::O_RDONLY))? else { return Ok(None) };
        let mut bytes = Vec::with_capacity(8192);
        file.read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    fn names(&self, path: &Path) -> io::Result<Vec<u64>> {
        let mut names = Vec::new();
        if self.raw {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let opened = rustix::fs::open(path, flags, Mode::empty()).map_err(io::Error::from);
            let Some(dir) = missing(opened)? else { return Ok(names) };
            for entry in rustix::fs::Dir::new(dir)? {
                let entry = entry?;
                if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                    names.push(keys::value_of(entry.file_name().to_bytes()));
                }
            }
        } else {
            let Some(entries) = missing(std::fs::read_dir(path))? else { return Ok(names) };
            for entry in entries {
                names.push(keys::value_of(entry?.file_name().as_encoded_bytes()));
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn with_cells<T>(&self, f: impl FnOnce(&File) -> io::Result<T>) -> io::Result<T> {
        match &self.cells {
            Some(open) => f(open),
            None => f(&self.open(&self.tree.join("cells"), libc::O_RDWR)?),
        }
    }

    /// A new file with a content, in the place of another.
    fn replace(&self, path: &Path, value: u64, content: &[u8]) -> io::Result<()> {
        let new = self.tree.join(MAKING).join(keys::name(value));
        self.open(&new, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL)?.write_all(content)?;
        self.rename(&new, path)
    }

    fn token(&self, key: u64) -> io::Result<u64> {
        let names = self.names(&self.at(key))?;
        Ok(match names.as_slice() {
            [] if !self.plain => 0,
            [one] => *one,
            _ => TORN,
        })
    }

    fn read(&self, key: u64) -> io::Result<Op> {
        let path = self.at(key);
        let value = match keys::kind(key) {
            Some(Kind::Register) => self.content(&path)?.map_or(0, |bytes| parse_register(&bytes)),
            Some(Kind::Cell) => {
                let mut bytes = [0; CELL as usize];
                let at = keys::number(key) * CELL_EVERY;
                self.with_cells(|cells| cells.read_exact_at(&mut bytes, at))?;
                parse_cell(bytes)
            }
            Some(Kind::Token) => self.token(key)?,
            Some(Kind::List) => {
                let values = self.content(&path)?.map_or_else(Vec::new, |b| parse_list(&b));
                return Ok(Op::ReadList { key, values });
            }
            Some(Kind::Set) => return Ok(Op::ReadList { key, values: self.names(&path)? }),
            Some(Kind::Name) | None => return Err(io::Error::from(ErrorKind::InvalidInput)),
        };
        Ok(Op::ReadRegister { key, value })
    }

    fn write(&self, key: u64, value: u64, how: How, ops: &mut Vec<Op>) -> io::Result<()> {
        let path = self.at(key);
        match keys::kind(key) {
            Some(Kind::Register) if how == How::Replace => {
                self.replace(&path, value, register(value).as_bytes())?;
            }
            Some(Kind::Register) => {
                let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC;
                self.open(&path, flags)?.write_all(register(value).as_bytes())?;
            }
            Some(Kind::Cell) => {
                let at = keys::number(key) * CELL_EVERY;
                self.with_cells(|cells| cells.write_all_at(&cell(value), at))?;
            }
            Some(Kind::Token) => {
                let now = self.token(key)?;
                let new = path.join(keys::name(value));
                match now {
                    0 => drop(self.open(&new, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL)?),
                    TORN => return torn(),
                    old => self.rename(&path.join(keys::name(old)), &new)?,
                }
                ops.push(Op::ReadRegister { key, value: now });
            }
            Some(Kind::List) => self.append(key, value, how, ops)?,
            Some(Kind::Set) => {
                let new = path.join(keys::name(value));
                let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL;
                if missing(self.open(&new, flags))?.is_none() {
                    match rustix::fs::mkdir(&path, Mode::from_raw_mode(0o755)) {
                        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                        Err(error) => return Err(error.into()),
                    }
                    self.open(&new, flags)?;
                }
            }
            Some(Kind::Name) | None => return Err(io::Error::from(ErrorKind::InvalidInput)),
        }
        Step::Write(key, value, how).writes(ops);
        Ok(())
    }

    fn append(&self, key: u64, value: u64, how: How, ops: &mut Vec<Op>) -> io::Result<()> {
        let path = self.at(key);
        match how {
            How::Plain => {
                let mut file = self.open(&path, libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND)?;
                return file.write_all(line(value).as_bytes());
            }
            How::AtEnd => {
                let file = self.open(&path, libc::O_RDWR | libc::O_CREAT)?;
                let mut bytes = Vec::new();
                (&file).read_to_end(&mut bytes)?;
                file.write_all_at(line(value).as_bytes(), bytes.len() as u64)?;
                ops.push(Op::ReadList { key, values: parse_list(&bytes) });
            }
            How::Replace => {
                let mut bytes = self.content(&path)?.unwrap_or_default();
                ops.push(Op::ReadList { key, values: parse_list(&bytes) });
                bytes.extend_from_slice(line(value).as_bytes());
                self.replace(&path, value, &bytes)?;
            }
        }
        Ok(())
    }

    /// Carries out a step, and adds what it did and found.
    ///
    /// # Errors
    /// Those of its calls: within a transaction that has lost, or has seen what can't go together.
    pub fn perform(&self, step: &Step, ops: &mut Vec<Op>) -> io::Result<()> {
        let name = |set: u64, value: u64| self.at(set).join(keys::name(value));
        let absent = |value| Op::ReadRegister { key: of_name(value), value: 0 };
        match *step {
            Step::Read(key) => ops.push(self.read(key)?),
            Step::Write(key, value, how) => self.write(key, value, how, ops)?,
            Step::Look(set, value) => {
                let path = name(set, value);
                let found = if self.raw {
                    rustix::fs::access(&path, rustix::fs::Access::EXISTS).map_err(io::Error::from)
                } else {
                    std::fs::symlink_metadata(&path).map(drop)
                };
                ops.push(match missing(found)? {
                    Some(()) => Op::ReadRegister { key: of_name(value), value: 1 },
                    None => absent(value),
                });
            }
            Step::Remove(set, value, _) => match missing(self.unlink(&name(set, value)))? {
                Some(()) => {
                    ops.push(Op::ReadRegister { key: of_name(value), value: 1 });
                    step.writes(ops);
                }
                None => ops.push(absent(value)),
            },
            Step::Move([from, to], [old, new], _) => {
                match missing(self.rename(&name(from, old), &name(to, new)))? {
                    Some(()) => {
                        ops.push(Op::ReadRegister { key: of_name(old), value: 1 });
                        step.writes(ops);
                    }
                    // Unless it is the other directory that is not there.
                    None if missing(std::fs::symlink_metadata(self.at(to)))?.is_none() => {
                        return Err(io::Error::from(ErrorKind::NotFound));
                    }
                    None => ops.push(absent(old)),
                }
            }
        }
        Ok(())
    }

    /// Carries out a plan.
    ///
    /// # Errors
    /// As [`Files::perform`].
    pub fn perform_all(&self, plan: &[Step]) -> io::Result<Vec<Op>> {
        let mut ops = Vec::new();
        for step in plan {
            self.perform(step, &mut ops)?;
        }
        Ok(ops)
    }
}

/// Makes what is there before anybody begins, and tells what that is.
///
/// # Errors
/// If it can't be made.
pub fn prepare(tree: &Path, first: u64) -> io::Result<Vec<Op>> {
    std::fs::create_dir_all(tree.join(MAKING))?;
    File::create(tree.join("cells"))?.set_len(keys::CELLS * CELL_EVERY)?;
    let mut ops = Vec::new();
    for n in 0..keys::TOKENS {
        let key = keys::key(Kind::Token, n);
        std::fs::create_dir(tree.join(keys::path(key)))?;
        File::create(tree.join(keys::path(key)).join(keys::name(first + n)))?;
        ops.push(Op::Write { key, value: first + n });
    }
    Ok(ops)
}
