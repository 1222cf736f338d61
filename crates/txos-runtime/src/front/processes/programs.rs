//! Running another program in a process of a transaction.
#![allow(unsafe_code)] // the program's memory, execve

use std::ffi::{CStr, CString};
use std::sync::atomic::Ordering;

use txos_engine::program::{self, Kind};

use super::calls::working_directory;
use super::client::VARIABLE;
use super::link::{Link, Process};
use super::paths::look_up;
use super::wire::{self, Ask, How, Loads, Request};
use super::{answers, vforked};
use crate::call::Call;
use crate::front::session::Next;
use crate::front::thread::Thread;
use crate::front::{in_process, loader, signals};
use crate::raw::{self, Errno, Sys, check, syscall};
use crate::tx::kernel::{self, OwnedFd};
use crate::user::UserPtr;

/// A program that is to be run.
enum Found {
    /// By the name that was given, or a path of the stable tree.
    At(CString),
    /// A private copy, or a stable program to which no path leads the process.
    Copy(OwnedFd),
}

/// As many scripts interpreting each other as the kernel takes.
const SCRIPTS_MAX: usize = 5;

pub fn exec(thread: &mut Thread, process: &Process, call: &Call) -> Next {
    let mut link = process.link();
    if let Err(errno) = link.hand_over_all() {
        return Next::Answer(raw::answer(Err(errno)));
    }
    match prepare(&link, call) {
        Ok(image) => Next::Answer(image.run(&link, thread, call)),
        // The kernel needs no descriptor to run a program.
        Err(Stop::Errno(Errno::MFILE)) => {
            link.fail_for_descriptors();
            Next::Answer(-i64::from(libc::EMFILE))
        }
        Err(Stop::Errno(errno)) => Next::Answer(raw::answer(Err(errno))),
        Err(Stop::Cannot(what)) => {
            link.fail(&what);
            Next::Answer(-i64::from(libc::EACCES))
        }
    }
}

enum Stop {
    Errno(Errno),
    /// The transaction can't go on.
    Cannot(String),
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Stop {
        Stop::Errno(errno)
    }
}

/// What the kernel is asked to run.
struct Image {
    path: CString,
    /// The arguments in front of those that were given from the second on; `None`: those that were given.
    arguments: Option<Vec<CString>>,
    copy: Option<OwnedFd>,
    /// What the library is to load, if that is what the kernel runs.
    beside: Option<Beside>,
}

/// A program into which the library can't be preloaded, or that would have other libraries then: the library loads it
/// ([`loader`]).
struct Beside {
    program: OwnedFd,
    linker: Option<OwnedFd>,
    /// What it is called.
    name: Vec<u8>,
    /// Where it was found.
    file: Vec<u8>,
}

/// Whether the library can be loaded into any program that this process runs.
fn can_load() -> Result<(), Stop> {
    if in_process::library().is_empty() {
        let why = "a process of the transaction runs another program, into which libtxos.so can't be loaded: the library \
                   is part of the program that began it, or its path has a colon or a space";
        return Err(Stop::Cannot(why.into()));
    }
    if !kernel::Credentials::now().is_own_user() {
        let why = "a process that has another effective user or group than its real one runs a program: the dynamic linker \
                   loads no library into it";
        return Err(Stop::Cannot(why.into()));
    }
    Ok(())
}

fn prepare(link: &Link, call: &Call) -> Result<Image, Stop> {
    can_load()?;
    let at = usize::from(call.number() == libc::SYS_execveat);
    let (dir, flags) = if at == 1 { (call.int(0), call.int(4)) } else { (libc::AT_FDCWD, 0) };
    let given = call.path(at)?;
    // What it is called: where it is given as a descriptor, as by the kernel.
    let mut name = match given.is_empty() {
        true => format!("/dev/fd/{dir}").into_bytes(),
        false => given.clone(),
    };
    let is_below = dir != libc::AT_FDCWD && !name.starts_with(b"/");
    let called = match is_below {
        true => [format!("/dev/fd/{dir}/").as_bytes(), &name].concat(),
        false => name.clone(),
    };
    let mut other_libraries = None;
    let mut found = match loader::program_at(dir, &given) {
        Some((number, path)) => {
            name = path;
            Found::Copy(OwnedFd::of(kernel::copy_high(number)?))
        }
        None => find(link, dir, &given, flags, &mut other_libraries)?,
    };
    let first = match &found {
        Found::At(path) => Some(path.clone()),
        Found::Copy(_) => None,
    };
    let mut arguments: Vec<CString> = Vec::new();
    let mut all_stable = first.is_some();
    for _ in 0..=SCRIPTS_MAX {
        let opened;
        let fd = match &found {
            Found::Copy(fd) => fd.number(),
            Found::At(path) => {
                let flags = libc::O_RDONLY | libc::O_CLOEXEC;
                opened = OwnedFd::open(path.to_bytes(), flags).map_err(|errno| match errno {
                    Errno::ACCESS if can_be_run(path.to_bytes()) => Stop::Cannot(format!(
                        "{} can be run but not read: the library can't be loaded into it",
                        String::from_utf8_lossy(&name)
                    )),
                    errno => Stop::Errno(errno),
                })?;
                opened.number()
            }
        };
        let kind = in_process::kind_of(fd);
        let rights = in_process::gains_rights(fd);
        let shown = String::from_utf8_lossy(&name).into_owned();
        if rights {
            return Err(Stop::Cannot(format!(
                "{shown} runs with other rights, so that it can't be part of the transaction"
            )));
        }
        match kind {
            Kind::Sanitized(linker) if program::can_be_accompanied() => {
                return load(link, found, &name, Some(linker), called, arguments);
            }
            Kind::Dynamic(linker)
                if asks_only(call, at)? || has_other_libraries(link, other_libraries) =>
            {
                return load(link, found, &name, Some(linker), called, arguments);
            }
            Kind::Dynamic(_) | Kind::Sanitized(_) => {
                return Ok(match (all_stable, first, found) {
                    (true, Some(path), _) => {
                        Image { path, arguments: None, copy: None, beside: None }
                    }
                    (_, _, Found::At(path)) => Image {
                        path,
                        arguments: (!arguments.is_empty()).then_some(arguments),
                        copy: None,
                        beside: None,
                    },
                    (_, _, Found::Copy(fd)) => {
                        let path = CString::new(kernel::magic_path(fd.number()));
                        Image {
                            path: path.map_err(|_| Errno::INVAL)?,
                            arguments: (!arguments.is_empty()).then_some(arguments),
                            copy: Some(fd),
                            beside: None,
                        }
                    }
                });
            }
            Kind::Script(interpreter, argument) => {
                // The program's own name is the last that the interpreter gets.
                let text = |bytes: &[u8]| CString::new(bytes).map_err(|_| Errno::NOEXEC);
                if arguments.is_empty() {
                    arguments.push(text(&called)?);
                    // The kernel would call it by the path that it runs, and there may be something else in the transaction.
                    all_stable &= first.as_ref().is_some_and(|path| path.to_bytes() == given);
                }
                let mut before = vec![text(&interpreter)?];
                if !argument.is_empty() {
                    before.push(text(&argument)?);
                }
                arguments.splice(0..0, before);
                name = interpreter;
                found = find(link, libc::AT_FDCWD, &name, 0, &mut other_libraries)?;
                all_stable &= matches!(&found, Found::At(path) if path.to_bytes() == name);
            }
            Kind::Alone(linker) => {
                if !program::can_be_accompanied() {
                    return Err(Stop::Cannot(format!(
                        "{shown} is statically linked, or of another C library: on this machine the library can't be loaded \
                         beside it (FSGSBASE)"
                    )));
                }
                return load(link, found, &name, linker, called, arguments);
            }
            Kind::Foreign => {
                return Err(Stop::Cannot(format!(
                    "{shown} is not a 64-bit program: the library can't be loaded into it"
                )));
            }
            Kind::Unknown => return Err(Errno::NOEXEC.into()),
        }
    }
    Err(Errno::LOOP.into())
}

/// Whether a process may run a file. One on the way to which a directory is closed it can't look at.
fn can_be_run(path: &[u8]) -> bool {
    kernel::access_at(libc::AT_FDCWD, path, libc::X_OK as u32, libc::AT_EACCESS).is_ok()
}

/// Whether a dynamic linker is only to say what the program needs, as for `ldd(1)`: it loads nothing then. (Where the library
/// can't load a program it is preloaded.)
fn asks_only(call: &Call, at: usize) -> Result<bool, Stop> {
    const ASKS: &str = "LD_TRACE_LOADED_OBJECTS";
    if !program::can_be_accompanied() {
        return Ok(false);
    }
    for address in strings(call.word(at + 2))? {
        let mut start = [0; ASKS.len() + 2];
        for (place, byte) in (address..).zip(&mut start) {
            // SAFETY: the program has given it for this call.
            *byte = unsafe { UserPtr::<u8>::new(place) }.read()?;
            let place = (place - address) as usize;
            if *byte == 0 || ASKS.as_bytes().get(place).is_some_and(|expected| expected != byte) {
                break;
            }
        }
        if program::value(&start, ASKS).is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether the kernel, and the dynamic linker that it starts before the library is there, would find other libraries outside of
/// the transaction than the program is to have. (Where the library can't load a program, it has those.) Or the library is of a
/// C library that the program does not have. `told`: what the server has said of it.
fn has_other_libraries(link: &Link, told: Option<bool>) -> bool {
    let asked = || link.ask_plainly(&Request::new(Ask::Libraries, 0)) == 1;
    in_process::has_linker() || program::can_be_accompanied() && told.unwrap_or_else(asked)
}

/// The library as the program, which is to load one that was found by a name, with its dynamic linker.
fn load(
    link: &Link,
    found: Found,
    name: &[u8],
    linker: Option<Vec<u8>>,
    called: Vec<u8>,
    arguments: Vec<CString>,
) -> Result<Image, Stop> {
    let (program, file) = open_to_load(link, found, name)?;
    loader::image::check(program.number())?;
    let linker = match linker {
        Some(path) => {
            let found = find(link, libc::AT_FDCWD, &path, 0, &mut None)?;
            let (linker, _) = open_to_load(link, found, &path)?;
            loader::image::check(linker.number())?;
            Some(linker)
        }
        None => None,
    };
    Ok(Image {
        path: in_process::library().to_owned(),
        arguments: (!arguments.is_empty()).then_some(arguments),
        copy: None,
        beside: Some(Beside { program, linker, name: called, file }),
    })
}

/// Opens a program, or its dynamic linker, that is to be loaded, as the kernel does for one that is to be run; where it is.
fn open_to_load(link: &Link, found: Found, name: &[u8]) -> Result<(OwnedFd, Vec<u8>), Stop> {
    let (fd, is_copy) = match found {
        Found::Copy(fd) => (fd, true),
        Found::At(path) => {
            let flags = libc::O_RDONLY | libc::O_CLOEXEC;
            let fd = OwnedFd::open(path.to_bytes(), flags).map_err(|errno| match errno {
                Errno::ACCESS => Stop::Cannot(format!(
                    "{} can be run but not read: the library can't load it",
                    String::from_utf8_lossy(name)
                )),
                errno => Stop::Errno(errno),
            })?;
            (fd, false)
        }
    };
    let path = kernel::magic_path(fd.number());
    // One that is open already has no name perhaps.
    let is_copy = is_copy && !name.starts_with(b"/dev/fd/");
    kernel::access_at(libc::AT_FDCWD, &path, libc::X_OK as u32, libc::AT_EACCESS)?;
    let file = match is_copy {
        // Asked for when it is wanted: it may be renamed.
        false => Vec::new(),
        true if name.starts_with(b"/") => name.to_vec(),
        true => {
            let mut path = working_directory(link).unwrap_or_default();
            path.push(b'/');
            path.extend(name.strip_prefix(b"./").unwrap_or(name));
            path
        }
    };
    Ok((OwnedFd::of(kernel::set_aside(fd.into_number())), file))
}

/// Where a program is, and whether programs have other libraries, if the server was asked.
fn find(
    link: &Link,
    dir: i32,
    path: &[u8],
    flags: i32,
    other_libraries: &mut Option<bool>,
) -> Result<Found, Stop> {
    let given = || CString::new(path).map_err(|_| Stop::Errno(Errno::INVAL));
    if path.is_empty() && !link.is_ours(dir) {
        if flags & libc::AT_EMPTY_PATH == 0 {
            return Err(Errno::NOENT.into());
        }
        kernel::status_flags(dir)?;
        return CString::new(kernel::magic_path(dir))
            .map(Found::At)
            .map_err(|_| Errno::INVAL.into());
    }
    let Some((seen_from, mut text)) = look_up(link, 0, dir, path.to_vec()) else {
        return given().map(Found::At);
    };
    if seen_from == libc::AT_FDCWD
        && let Some(known) = answers::find_program(link, flags, &text)
    {
        *other_libraries = Some(false);
        return stable(dir, path, flags, known?);
    }
    text.push(0);
    let place = link.put(&mut wire::Layout::default(), &text)?;
    let mut request = Request::new(Ask::Program, 0);
    request.words = [seen_from as u64, place as u64, flags as u64, 0, 0, 0];
    let (answer, beside) = link.ask(&request);
    check(answer.answer)?;
    *other_libraries = answer.more[1].checked_sub(1).map(|has| has != 0);
    match (answer.how(), beside) {
        (Some(How::WithDescriptors), [Some(fd), _]) => {
            let fd = OwnedFd::of(fd);
            // From the working directory the process may reach what the path from the root does not lead it to.
            let there = kernel::look_fd(fd.number())?.id;
            let is_it = kernel::statx(dir, path, flags).is_ok_and(|stat| stat.id == there);
            if is_it && dir == libc::AT_FDCWD {
                return given().map(Found::At);
            }
            Ok(Found::Copy(fd))
        }
        (Some(How::Yourself), _) => stable(dir, path, flags, link.path(answer.more[0])),
        _ => given().map(Found::At),
    }
}

/// A program of the stable tree, given by a path, and where it is. The name that was given is seen in the process: it is kept where it leads there.
fn stable(dir: i32, path: &[u8], flags: i32, place: Vec<u8>) -> Result<Found, Stop> {
    let same = kernel::statx(dir, path, flags).map(|stat| stat.id)
        == kernel::look(&place).map(|stat| stat.id);
    let name = if same && dir == libc::AT_FDCWD { path.to_vec() } else { place };
    CString::new(name).map(Found::At).map_err(|_| Stop::Errno(Errno::INVAL))
}

impl Image {
    /// Runs it in place of the present program; comes back if that fails.
    fn run(self, link: &Link, thread: &Thread, call: &Call) -> i64 {
        let answer = self.try_run(link, thread, call);
        drop((self.copy, self.beside));
        raw::answer(answer)
    }

    fn try_run(&self, link: &Link, thread: &Thread, call: &Call) -> Sys<u64> {
        let at = usize::from(call.number() == libc::SYS_execveat);
        let given = strings(call.word(at + 1))?;
        let mut arguments: Vec<u64> = match &self.arguments {
            None => given,
            Some(front) => {
                let front = front.iter().map(|text| text.as_ptr() as u64);
                front.chain(given.into_iter().skip(1)).collect()
            }
        };
        arguments.push(0);
        let environment = strings(call.word(at + 2))?;
        let library = in_process::library();
        let member =
            CString::new(format!("{VARIABLE}={}", link.socket)).map_err(|_| Errno::INVAL)?;
        let (mut kept, mut own) = (Vec::new(), Vec::new());
        match &self.beside {
            None => {
                let (others, preload) = split_environment(&environment)?;
                let mut list = b"LD_PRELOAD=".to_vec();
                list.extend(library.to_bytes());
                if !preload.is_empty() {
                    list.push(b':');
                    list.extend(preload);
                }
                kept.extend(others);
                own.push(CString::new(list).map_err(|_| Errno::INVAL)?);
            }
            Some(beside) => (kept, own) = beside.environment(&environment)?,
        }
        kept.extend(own.iter().map(|text| text.as_ptr() as u64));
        kept.extend([member.as_ptr() as u64, 0]);
        if let Some(beside) = &self.beside {
            beside.is_kept()?;
        }
        kernel::set_close_on_exec(link.socket, false)?;
        // SAFETY: the window is mapped as long as the process is in the transaction.
        if unsafe { wire::is_heard(link.window) }.load(Ordering::Acquire) == 0 {
            // How the program ends can only be learned of a process that is known by then.
            link.ask_plainly(&Request::new(Ask::IsMember, 0));
        }
        let loads = if can_be_loaded(library) { Loads::Surely } else { Loads::Perhaps };
        // SAFETY: the window is mapped as long as the process is in the transaction.
        let becomes = unsafe { wire::becomes(link.window) };
        becomes.store(loads as u32, Ordering::SeqCst);
        vforked::hand_back();
        let mask = thread.session.as_ref().map_or(0, |session| session.masks.programs);
        let blocked = signals::set_mask(mask);
        let linker = self.beside.as_ref().and_then(|_| in_process::linker_of_library());
        let mut path = self.path.as_ptr() as u64;
        if let Some((linker, before, library)) = &linker {
            path = linker.as_ptr() as u64;
            let name = arguments[0];
            let name = if name == 0 { c"".as_ptr() as u64 } else { name };
            let [directory_is, directory, name_is] =
                before.each_ref().map(|text| text.as_ptr() as u64);
            let front = [path, directory_is, directory, name_is, name, library.as_ptr() as u64];
            arguments.splice(0..1.min(arguments.len() - 1), front);
        }
        let words = [path, arguments.as_ptr() as u64, kept.as_ptr() as u64, 0, 0, 0];
        // SAFETY: all strings and lists live until the answer; if it succeeds nothing of this is left.
        let answer = unsafe { syscall(libc::SYS_execve, words) };
        signals::set_mask(blocked);
        becomes.store(0, Ordering::SeqCst);
        kernel::set_close_on_exec(link.socket, true)?;
        let answer = check(answer);
        if let (Err(Errno::NOENT | Errno::ACCESS), Some(beside)) = (answer, &self.beside) {
            // The program is there: it is the library that isn't, or what that needs.
            link.fail(&format!(
                "{} can't be loaded: {} can't be run where the process is, or has no dynamic linker of the GNU C library \
                 there",
                String::from_utf8_lossy(&beside.name),
                library.to_string_lossy(),
            ));
            return Err(Errno::ACCESS);
        }
        answer
    }
}

impl Beside {
    /// The environment for the library, which has the dynamic linker read none of the program's variables: what of it stays as it
    /// is, and what is new.
    fn environment(&self, all: &[u64]) -> Sys<(Vec<u64>, Vec<CString>)> {
        let (mut kept, mut new) = (Vec::new(), Vec::new());
        let own = [loader::PROGRAM, loader::FILE, program::FIRST, VARIABLE];
        for &address in all {
            // SAFETY: the program has given it for this call.
            let text = unsafe { UserPtr::<u8>::new(address) }.text(usize::MAX, Errno::TOOBIG)?;
            if own.iter().any(|name| program::value(&text, name).is_some()) {
                continue;
            }
            if program::is_hidden(&text) {
                let hidden = [program::HIDDEN.as_bytes(), &text].concat();
                new.push(CString::new(hidden).map_err(|_| Errno::INVAL)?);
            } else {
                kept.push(address);
            }
        }
        let linker = self.linker.as_ref().map_or(-1, OwnedFd::number);
        let start = format!("{}={}:{linker}:", loader::PROGRAM, self.program.number());
        for text in [
            [start.as_bytes(), &self.name].concat(),
            [loader::FILE.as_bytes(), b"=", &self.file].concat(),
        ] {
            new.push(CString::new(text).map_err(|_| Errno::INVAL)?);
        }
        Ok((kept, new))
    }

    /// Its files are open in the library's process. (If that is not run after all, they are closed.)
    fn is_kept(&self) -> Sys<()> {
        kernel::set_close_on_exec(self.program.number(), false)?;
        if let Some(linker) = &self.linker {
            kernel::set_close_on_exec(linker.number(), false)?;
        }
        Ok(())
    }
}

/// Whether the dynamic linker will surely find and map the library: it goes on without one that it can't. A security
/// module could have it load none.
fn can_be_loaded(library: &CStr) -> bool {
    let opened = OwnedFd::open(library.to_bytes(), libc::O_RDONLY | libc::O_CLOEXEC);
    opened.is_ok() && kernel::has_endless_memory() && kernel::is_unconfined()
}

/// The addresses in a list of strings that ends with a zero.
fn strings(list: u64) -> Sys<Vec<u64>> {
    /// More than the kernel takes.
    const MAX: u64 = 1 << 20;
    let mut all = Vec::new();
    if list == 0 {
        return Ok(all);
    }
    // SAFETY: the program has given it for this call.
    let list = unsafe { UserPtr::<u64>::new(list) };
    for at in 0..MAX {
        match list.item(at).read()? {
            0 => return Ok(all),
            address => all.push(address),
        }
    }
    Err(Errno::TOOBIG)
}

/// The environment without what the library adds to it, and what is to be preloaded.
fn split_environment(all: &[u64]) -> Sys<(Vec<u64>, Vec<u8>)> {
    const PRELOAD: &[u8] = b"LD_PRELOAD=";
    let member = format!("{VARIABLE}=");
    let (mut kept, mut preload) = (Vec::new(), Vec::new());
    for &address in all {
        let mut start = [0; 16];
        for (at, byte) in start.iter_mut().enumerate() {
            // SAFETY: the program has given it for this call.
            *byte = unsafe { UserPtr::<u8>::new(address + at as u64) }.read()?;
            if *byte == 0 {
                break;
            }
        }
        if start.starts_with(PRELOAD) {
            // SAFETY: as above; it was found to be there.
            preload = unsafe { CStr::from_ptr(address as *const libc::c_char) }.to_bytes()
                [PRELOAD.len()..]
                .to_vec();
        } else if !start.starts_with(member.as_bytes()) {
            kept.push(address);
        }
    }
    Ok((kept, preload))
}
