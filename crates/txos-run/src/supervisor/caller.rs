//! On whose behalf the supervisor acts.
//!
//! The supervisor may be root's while a process in its transaction is another user's. So whatever it
//! opens, connects or asks because of a call, it does through [`AsCaller`]: with the caller's
//! credentials, below the caller's root directory. [`Supervisor::caller`] is the only way to get one.
//!
//! | the caller | then |
//! |---|---|
//! | has the supervisor's credentials | the supervisor acts itself |
//! | has others (`su`, a daemon that gave up rights, root without a capability) | a thread acts that has taken them |
//! | is in another user or mount namespace than the view's | nothing is done: the kernel decides alone |
//!
//! # Invariants
//!
//! - A thread that has taken credentials does nothing else any more: no error on the way leaves it with
//!   rights that the caller does not have.
//! - What may wait for another process is waited for with a bound: the file system in which something is
//!   opened may be one that a process of the transaction serves (FUSE).
//! - What is known of a caller was known while its call waited ([`crate::sys::seccomp::Listener::still_waits`]): the process
//!   with that number was the caller.
//! - As long as no process was told to take other credentials ([`Supervisor::identities_differ`]) all have
//!   the supervisor's, and nobody is asked for them.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};
use txos_engine::mounts::mount_of;
use txos_engine::patience::{self, PATIENCE};

use super::Supervisor;
use super::process::{Link, Processes, RootDirectory, Status};
use crate::error::{Result, Step};
use crate::sys::creds::{self, Credentials};
use crate::sys::seccomp::Call;
use crate::warning::WarningKind;

/// For how many identities a thread is kept.
const HELPERS_MAX: usize = 4;

/// What every process of the transaction has in common, unless it changed it.
#[derive(Debug)]
pub struct View {
    root: RootDirectory,
    directory: Arc<OwnedFd>,
    /// The number of the root's mount, if the kernel alone serves its file system.
    local: Option<u64>,
    user_namespace: u64,
    mount_namespace: u64,
    own: Credentials,
}

impl View {
    /// That of a process which lives in it. `root_is_local`: the kernel alone serves the file system of its
    /// root.
    ///
    /// # Errors
    /// If it can't be looked at.
    pub fn of(reaper: Pid, root_is_local: bool) -> Result<View> {
        let pid = reaper.as_raw_nonzero().get().cast_unsigned();
        let mut processes = Processes::default();
        let lost = |e: Errno| std::io::Error::from(e);
        let mut namespace = |name| processes.namespace(pid, name).ok_or(Errno::SRCH).map_err(lost);
        let user_namespace = namespace("ns/user").step("looking at the view's user namespace")?;
        let mount_namespace = namespace("ns/mnt").step("looking at the view's mount namespace")?;
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let opened = processes.file(pid, "root", flags).map_err(lost);
        let directory = opened.step("opening the view's root")?;
        Ok(View {
            root: processes.root(pid).map_err(lost).step("looking at the view's root")?,
            local: if root_is_local { mount_of(&directory) } else { None },
            directory: Arc::new(directory),
            user_namespace,
            mount_namespace,
            own: Status::of_this_thread().step("reading our credentials")?.credentials,
        })
    }

    /// The supervisor's own.
    pub(super) fn own(&self) -> &Credentials {
        &self.own
    }
}

/// Somebody on whose behalf something is done.
#[derive(Clone, Debug)]
pub struct AsCaller {
    root: Arc<OwnedFd>,
    /// Where its root is in the view; empty: that of the view.
    below: Vec<u8>,
    /// As in [`View`]; none for another root.
    local: Option<u64>,
    other: Option<Arc<Helper>>,
}

/// A thread that has taken somebody's credentials.
#[derive(Debug)]
struct Helper {
    credentials: Credentials,
    work: Sender<Box<dyn FnOnce() + Send>>,
}

impl Helper {
    fn start(credentials: &Credentials) -> std::io::Result<Helper> {
        let (work, orders) = channel::<Box<dyn FnOnce() + Send>>();
        let theirs = credentials.clone();
        std::thread::Builder::new().name("txos-caller".into()).spawn(move || {
            if creds::assume(&theirs).is_ok() {
                orders.into_iter().for_each(|work| work());
            }
        })?;
        Ok(Helper { credentials: credentials.clone(), work })
    }
}

/// How often a path is looked up again while somebody moves or mounts something.
const RACES_MAX: u32 = 1000;

impl AsCaller {
    /// Whether it has the supervisor's own credentials, and the view's root.
    pub fn is_like_us(&self) -> bool {
        self.other.is_none() && self.below.is_empty()
    }

    /// Whether its root is the view's.
    pub fn sees_the_view(&self) -> bool {
        self.below.is_empty()
    }

    /// A path of the caller's as one of the view.
    pub fn in_the_view(&self, path: &[u8]) -> Vec<u8> {
        [&self.below, path].concat()
    }

    /// Does something as the caller.
    ///
    /// # Errors
    /// Its own; `EPERM` if the credentials can't be taken, `ETIMEDOUT` if it takes too long.
    pub fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> std::result::Result<T, Errno> + Send + 'static,
    ) -> std::result::Result<T, Errno> {
        let Some(helper) = &self.other else { return patience::run(work) };
        let (answer, outcome) = channel();
        let work = Box::new(move || {
            // Nobody waits any more if it took too long.
            let _ = answer.send(work());
        });
        helper.work.send(work).map_err(|_| Errno::PERM)?;
        outcome.recv_timeout(PATIENCE).map_err(|e| match e {
            std::sync::mpsc::RecvTimeoutError::Timeout => Errno::TIMEDOUT,
            std::sync::mpsc::RecvTimeoutError::Disconnected => Errno::PERM,
        })?
    }

    /// Does something as the caller that may take as long as it likes, on a thread of its own.
    ///
    /// # Errors
    /// If there is no thread. `work` is told if the credentials can't be taken.
    pub fn run_apart(
        &self,
        work: impl FnOnce(std::result::Result<(), Errno>) + Send + 'static,
    ) -> std::io::Result<()> {
        let theirs = self.other.as_ref().map(|helper| helper.credentials.clone());
        std::thread::Builder::new().name("txos-for-caller".into()).spawn(move || {
            work(theirs.map_or(Ok(()), |theirs| creds::assume(&theirs)));
        })?;
        Ok(())
    }

    /// Finds what a path of the view leads to for the caller: `O_PATH`, so that nothing happens by it.
    ///
    /// # Errors
    /// What the caller would be told; `EXDEV` for what is not below its root.
    pub fn find(
        &self,
        path: &[u8],
        flags: OFlags,
        resolve: ResolveFlags,
    ) -> std::result::Result<OwnedFd, Errno> {
        let path = path.strip_prefix(&self.below[..]).ok_or(Errno::XDEV)?;
        let path = match path.iter().position(|&b| b != b'/') {
            Some(start) if start > 0 => path.get(start..).unwrap_or_default().to_vec(),
            None => b".".to_vec(),
            Some(_) => return Err(Errno::XDEV), // The root's name is only part of one.
        };
        let root = Arc::clone(&self.root);
        let flags = flags | OFlags::PATH | OFlags::CLOEXEC;
        let resolve = resolve | ResolveFlags::IN_ROOT;
        if self.other.is_none() {
            // What the kernel knows needs no thread.
            let cached = resolve | ResolveFlags::CACHED;
            match rustix::fs::openat2(&*root, &path[..], flags, Mode::empty(), cached) {
                Err(Errno::AGAIN | Errno::INVAL) => {}
                known => return known,
            }
            // What the kernel serves alone needs none either, and a path that stays in the root's mount meets
            // nothing else.
            if self.local.is_some() {
                let here = resolve | ResolveFlags::NO_XDEV;
                match rustix::fs::openat2(&*root, &path[..], flags, Mode::empty(), here) {
                    Err(Errno::AGAIN | Errno::XDEV) => {}
                    known => return known,
                }
            }
        }
        self.run(move || {
            for _ in 0..RACES_MAX {
                // Behind "..", the kernel asks for another try if anything was moved or mounted meanwhile.
                match rustix::fs::openat2(&*root, &path[..], flags, Mode::empty(), resolve) {
                    Err(Errno::AGAIN) => std::thread::yield_now(),
                    other => return other,
                }
            }
            Err(Errno::AGAIN)
        })
    }

    /// What was found, with its attributes, if it is a regular file.
    ///
    /// # Errors
    /// `EINVAL` for what is not.
    pub fn regular(&self, found: OwnedFd) -> std::result::Result<(OwnedFd, Stat), Errno> {
        if self.other.is_none() && self.local.is_some() && mount_of(&found) == self.local {
            return regular(&found).map(|stat| (found, stat));
        }
        self.run(move || regular(&found).map(|stat| (found, stat)))
    }

    /// Opens a regular file that was found; of anything else nothing is opened.
    ///
    /// # Errors
    /// What the caller would be told; `EINVAL` for what is not a regular file.
    pub fn open(&self, found: OwnedFd, flags: OFlags) -> std::result::Result<OwnedFd, Errno> {
        self.open_and(found, flags, Ok)
    }

    /// Opens a regular file that was found, and does something with it.
    ///
    /// # Errors
    /// As of [`AsCaller::open`]; what `work` gives.
    pub fn open_and<T: Send + 'static>(
        &self,
        found: OwnedFd,
        flags: OFlags,
        work: impl FnOnce(OwnedFd) -> std::result::Result<T, Errno> + Send + 'static,
    ) -> std::result::Result<T, Errno> {
        self.run(move || {
            regular(&found)?;
            let link = format!("/proc/self/fd/{}", found.as_raw_fd());
            work(rustix::fs::openat(CWD, link, flags | OFlags::CLOEXEC, Mode::empty())?)
        })
    }
}

/// The attributes of a regular file. Its file system may be asked: see [`AsCaller::run`].
///
/// # Errors
/// `EINVAL` for anything else.
fn regular(found: &OwnedFd) -> std::result::Result<Stat, Errno> {
    let stat = rustix::fs::fstat(found)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(stat),
        _ => Err(Errno::INVAL),
    }
}

/// A caller that is held fast: nobody who has its number later is taken for it.
#[derive(Debug)]
pub struct Pinned {
    /// Its process.
    pub process: OwnedFd,
    /// Its credentials, without capabilities if they are of another user namespace.
    pub credentials: Credentials,
}

impl Supervisor {
    /// The caller, for what is done on its behalf; `None` for one for which nothing is.
    pub(super) fn caller(&mut self, call: &Call) -> Option<AsCaller> {
        let root = self.processes.root(call.pid).ok()?;
        let here = self.processes.namespace(call.pid, "ns/user")? == self.view.user_namespace;
        let sees_the_view = root == self.view.root;
        if !here || !sees_the_view && !self.is_of_the_views_mounts(call.pid) {
            self.warn_foreign(call);
            return None;
        }
        let (root, below) = if sees_the_view {
            (Arc::clone(&self.view.directory), Vec::new())
        } else {
            let mut below = Vec::new();
            self.processes.link(call.pid, Link::Root, &mut below).ok()?;
            let opened = self.processes.file(call.pid, "root", OFlags::PATH | OFlags::DIRECTORY);
            (Arc::new(opened.ok()?), below)
        };
        let other = if self.identities_differ && self.view.own.can_switch() {
            let credentials = self.processes.status(call.pid)?.credentials;
            let other = !credentials.acts_like(&self.view.own);
            other.then(|| self.helper(&credentials)).transpose().ok()?
        } else {
            None
        };
        let certain = sees_the_view && !self.identities_differ;
        let local = self.view.local.filter(|_| sees_the_view);
        (certain || self.listener.still_waits(call.id)).then_some(AsCaller {
            root,
            below,
            local,
            other,
        })
    }

    /// Whether the process is in the mount namespace of the view.
    fn is_of_the_views_mounts(&mut self, pid: u32) -> bool {
        self.processes.namespace(pid, "ns/mnt") == Some(self.view.mount_namespace)
    }

    fn helper(&mut self, credentials: &Credentials) -> std::io::Result<Arc<Helper>> {
        let known = self.helpers.0.iter().position(|h| h.credentials == *credentials);
        let helper = match known {
            Some(at) => self.helpers.0.remove(at),
            None => Arc::new(Helper::start(credentials)?),
        };
        self.helpers.0.truncate(HELPERS_MAX - 1);
        self.helpers.0.insert(0, Arc::clone(&helper));
        Ok(helper)
    }

    /// The caller's process and credentials, for what is done to others in its name.
    ///
    /// # Errors
    /// `ESRCH` if it is gone.
    pub(super) fn pin(&mut self, call: &Call) -> std::result::Result<Pinned, Errno> {
        let status = self.processes.status(call.pid).ok_or(Errno::SRCH)?;
        let group = Pid::from_raw(status.group.cast_signed()).ok_or(Errno::SRCH)?;
        let process = rustix::process::pidfd_open(group, PidfdFlags::empty())?;
        let mut credentials = status.credentials;
        if self.processes.namespace(call.pid, "ns/user") != Some(self.view.user_namespace) {
            credentials.capabilities = 0;
        }
        if !self.listener.still_waits(call.id) {
            return Err(Errno::SRCH);
        }
        Ok(Pinned { process, credentials })
    }

    /// Asks something of the live tree with the caller's credentials; what it is told decides only about a
    /// message.
    pub(super) fn asks(
        &mut self,
        call: &Call,
        question: impl FnOnce() -> bool + Send + 'static,
    ) -> bool {
        if !self.identities_differ || !self.view.own.can_switch() {
            return patience::run(move || Ok(question())).unwrap_or(false);
        }
        let Ok(pinned) = self.pin(call) else { return false };
        if pinned.credentials.acts_like(&self.view.own) {
            return patience::run(move || Ok(question())).unwrap_or(false);
        }
        let Ok(helper) = self.helper(&pinned.credentials) else { return false };
        let (root, below) = (Arc::clone(&self.view.directory), Vec::new());
        let caller = AsCaller { root, below, local: None, other: Some(helper) };
        caller.run(move || Ok(question())).unwrap_or(false)
    }

    /// A process takes other credentials, or may: from now on each caller is asked for its own.
    pub(super) fn somebody_differs(&mut self) {
        self.identities_differ = true;
    }

    fn warn_foreign(&mut self, call: &Call) {
        self.reads.misses_replacements();
        if self.strict || !self.warnings.has(WarningKind::Unrecorded) {
            self.foreign = Some(call.pid);
        }
    }

    /// What is told of a caller for which nothing is done.
    pub(super) fn foreign_text(pid: u32) -> String {
        let name = crate::session::tree::name(pid.cast_signed());
        format!(
            "process {pid} ({name}) has a user or mount namespace of its own; what it reads there is recorded by \
             its paths only"
        )
    }
}

/// The threads that act for others.
#[derive(Debug, Default)]
pub struct Helpers(Vec<Arc<Helper>>);

#[cfg(test)]
mod tests {
    use super::*;

    fn me() -> AsCaller {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let root = rustix::fs::open("/", flags, Mode::empty()).unwrap();
        AsCaller { root: Arc::new(root), below: Vec::new(), local: None, other: None }
    }

    #[test]
    fn only_regular_files_are_opened() {
        let me = me();
        let find = |path: &str| me.find(path.as_bytes(), OFlags::empty(), ResolveFlags::empty());
        let exe = std::env::current_exe().unwrap();
        assert!(me.open(find(exe.to_str().unwrap()).unwrap(), OFlags::RDONLY).is_ok());
        assert_eq!(me.open(find("/dev/null").unwrap(), OFlags::RDONLY).unwrap_err(), Errno::INVAL);
        assert_eq!(me.open(find("/").unwrap(), OFlags::RDONLY).unwrap_err(), Errno::INVAL);
    }

    /// The text of a function of this directory, without what comes after.
    fn text_of<'a>(source: &'a str, function: &str) -> &'a str {
        let from = source.find(function).expect(function);
        let text = &source[from..];
        text.split_once("\n    }\n").expect("its end").0
    }

    /// Who has the caller's number is the caller as long as its call waits. So what is known of a process is
    /// asked for first, then whether the call still waits, and only then is it used.
    #[test]
    fn a_caller_is_held_fast_before_it_is_certain_and_certain_before_it_is_used() {
        let in_order = |text: &str, steps: &[&str]| {
            let mut at = 0;
            for step in steps {
                let found = text.get(at..).and_then(|rest| rest.find(step));
                at += found.unwrap_or_else(|| panic!("{step} is not where it was expected")) + 1;
            }
        };
        let (caller, sockets, held) = (
            include_str!("caller.rs"),
            include_str!("sockets.rs"),
            include_str!("deferred_signals.rs"),
        );
        let steps = ["pidfd_open(", "still_waits(call.id)", "Ok(Pinned {"];
        in_order(text_of(caller, "pub(super) fn pin("), &steps);
        let steps = ["status(call.pid)", "still_waits(call.id)", "Some(AsCaller {"];
        in_order(text_of(caller, "pub(super) fn caller("), &steps[..1]);
        in_order(text_of(caller, "pub(super) fn caller("), &steps[1..2]);
        in_order(text_of(sockets, "fn connect_ourselves("), &["self.pin(call)", "pidfd_getfd("]);
        in_order(text_of(held, "fn send_inside("), &["self.sender(call)", "signals::send("]);
        in_order(
            text_of(held, "fn hold("),
            &["self.sender(call)", "may_signal(", "deferred.push("],
        );
        assert!(text_of(held, "fn sender(").contains("self.pin(call)"));
    }

    #[test]
    fn paths_below_another_root() {
        let mut inside = me();
        inside.below = b"/dev".to_vec();
        let find =
            |path: &str| inside.find(path.as_bytes(), OFlags::empty(), ResolveFlags::empty());
        // The root that it has is opened; here it is that of the machine.
        assert!(find("/dev/bin").is_ok() && find("/dev").is_ok());
        assert_eq!(find("/device").unwrap_err(), Errno::XDEV);
        assert_eq!(find("/bin").unwrap_err(), Errno::XDEV);
        assert_eq!(inside.in_the_view(b"/x"), b"/dev/x");
    }
}
