//! What this machine can do, and which setting to change where it can't.

use std::path::{Path, PathBuf};

use rustix::thread::CapabilitySet;
use txos_engine::rights::{Rights, has, is_privileged};
use txos_engine::scope;
use txos_engine::version::kernel_at_least;

use crate::sys::{probe, seccomp};
use crate::view::mounts;

/// The oldest kernel that has everything needed (overlayfs in user namespaces came last).
pub const KERNEL_MIN: (u32, u32) = (5, 11);

/// One thing looked at.
#[derive(Clone, Debug)]
pub struct Check {
    /// What.
    pub name: &'static str,
    /// Whether it is as it should be.
    pub ok: bool,
    /// What was found.
    pub detail: String,
    /// What to do, if something should be done.
    pub advice: Option<String>,
}

impl Check {
    fn good(name: &'static str, detail: impl Into<String>) -> Self {
        Check { name, ok: true, detail: detail.into(), advice: None }
    }

    fn bad(name: &'static str, detail: impl Into<String>, advice: impl Into<String>) -> Self {
        Check { name, ok: false, detail: detail.into(), advice: Some(advice.into()) }
    }
}

/// Looks at everything that transactions need.
#[must_use]
pub fn doctor() -> Vec<Check> {
    let root = is_privileged();
    let chosen = Chosen::now();
    let mut checks = vec![kernel(), overlay(), supervision(), wake_up()];
    checks.extend(kind_of_root());
    checks.push(namespaces(root, &chosen));
    checks.push(view(&chosen));
    if let Some(check) = tracing() {
        checks.push(check);
    }
    if root {
        checks.push(gate());
    }
    checks.push(root_directory(root, &chosen));
    checks
}

/// The view that `txos run` takes without being asked for one.
#[derive(Debug)]
enum Chosen {
    /// An overlay's.
    Overlay,
    /// The library's, as no namespaces are to be had.
    NoNamespaces(std::io::Error),
    /// The library's, as the root directory is an overlay itself.
    OnOverlay,
}

impl Chosen {
    fn now() -> Chosen {
        match refuses_views() {
            Some(error) => Chosen::NoNamespaces(error),
            None if is_on_overlay(&[]) => Chosen::OnOverlay,
            None => Chosen::Overlay,
        }
    }
}

/// Why no overlay can be mounted for a command: the kernel refuses this process the namespaces.
#[must_use]
pub fn refuses_views() -> Option<std::io::Error> {
    probe::namespaces(!is_privileged()).err()
}

/// Whether one of these trees, or, without any, the root directory, is on an overlay, as in a container: overlayfs can't be
/// stacked on it as it would have to.
#[must_use]
pub fn is_on_overlay(scope: &[PathBuf]) -> bool {
    const OVERLAYFS_SUPER_MAGIC: i64 = 0x794c_7630;
    let is_one = |tree: &Path| {
        rustix::fs::statfs(tree).is_ok_and(|stat| stat.f_type == OVERLAYFS_SUPER_MAGIC)
    };
    if scope.is_empty() { is_one(Path::new("/")) } else { scope.iter().any(|tree| is_one(tree)) }
}

/// In which view `txos run` runs a command.
fn view(chosen: &Chosen) -> Check {
    let name = "view";
    let library = "the library's, in the command's programs (docs/runtime.md)";
    let detail = match chosen {
        Chosen::Overlay => return Check::good(name, "an overlay's"),
        Chosen::NoNamespaces(error) => {
            format!("{library}: no namespaces are to be had ({error})")
        }
        Chosen::OnOverlay => format!(
            "{library}: the root directory is an overlay; with --scope for trees on other file systems, an overlay's"
        ),
    };
    let advice =
        format!("It can't hold {}: `txos run` refuses those.", ONLY_WITH_OVERLAY.join(" "));
    Check { advice: Some(advice), ..Check::good(name, detail) }
}

/// What `txos run` does in an overlay's view only.
const ONLY_WITH_OVERLAY: [&str; 5] =
    ["--hide", "--keep-inode", "--memory", "--no-network", "--no-preload"];

fn kernel() -> Check {
    let name = "kernel";
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let (major, minor) = KERNEL_MIN;
    if !kernel_at_least(major, minor) {
        let advice = format!("Use Linux {major}.{minor} or later.");
        return Check::bad(name, format!("Linux {release} is too old"), advice);
    }
    let stamps = if txos_engine::version::multigrain() {
        "changes of files get distinct time stamps on ext4, xfs, btrfs and tmpfs"
    } else {
        "time stamps move with the timer tick, so that fresh files are looked at twice (Linux 6.13 does without)"
    };
    Check::good(name, format!("Linux {release}; {stamps}"))
}

fn overlay() -> Check {
    let name = "overlayfs";
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let module = Path::new("/lib/modules").join(release).join("kernel/fs/overlayfs");
    if known.lines().any(|l| l.split_whitespace().last() == Some("overlay")) {
        Check::good(name, "available")
    } else if module.is_dir() {
        Check::good(name, "available as a module")
    } else {
        let advice = "Load it with `modprobe overlay`, or use a kernel with CONFIG_OVERLAY_FS.";
        Check::bad(name, "not known to this kernel", advice)
    }
}

fn supervision() -> Check {
    let name = "seccomp notification";
    if seccomp::available() {
        Check::good(name, "available")
    } else {
        let advice = "Use a kernel with CONFIG_SECCOMP_FILTER; in a container, allow the seccomp system call.";
        Check::bad(name, "not available", advice)
    }
}

fn wake_up() -> Check {
    let name = "fast notification";
    if kernel_at_least(6, 6) {
        Check::good(name, "available")
    } else {
        let detail =
            "not available before Linux 6.6: recording a look-up costs some 50 µs instead of 6";
        Check { name, ok: true, detail: detail.into(), advice: None }
    }
}

/// Without them there is another view.
fn namespaces(root: bool, chosen: &Chosen) -> Check {
    let name = if root { "mount namespaces" } else { "user namespaces" };
    match chosen {
        Chosen::NoNamespaces(error) => {
            let why = cause_of_refusal(!root, Asker::now());
            let detail = format!("not available ({error}), so that there is no overlay's view");
            let advice = Some(why.trim_start_matches(['.', ' ']).to_owned());
            Check { advice, ..Check::good(name, detail) }
        }
        Chosen::Overlay | Chosen::OnOverlay => Check::good(name, "available"),
    }
}

/// Of a root who is not the machine's: what that means.
fn kind_of_root() -> Option<Check> {
    let missing = Rights::now().missing()?;
    Some(Check::good(
        "root",
        format!(
            "this is {missing}: transactions run in a user namespace, as an ordinary user's do, and have no gate"
        ),
    ))
}

/// Who asks for namespaces, as it was before it has any.
#[derive(Clone, Copy, Debug)]
pub struct Asker {
    rights: Rights,
    may_map_root: bool,
}

impl Asker {
    /// This process.
    #[must_use]
    pub fn now() -> Asker {
        Asker { rights: Rights::now(), may_map_root: has(CapabilitySet::SETFCAP) }
    }
}

/// What to do when the kernel refuses namespaces; starts with a full stop to follow an error.
#[must_use]
pub fn namespace_advice(rootless: bool, asker: Asker) -> String {
    let cause = cause_of_refusal(rootless, asker);
    format!("{cause}. Or run the command with --view library, which needs no namespaces")
}

fn cause_of_refusal(rootless: bool, asker: Asker) -> String {
    if !rootless {
        return ". This needs the capability CAP_SYS_ADMIN: in a container, start it privileged"
            .into();
    }
    let missing = asker.rights.missing();
    if missing.is_some() && !asker.may_map_root {
        return ". Root needs the capability CAP_SETFCAP to have its number in a user namespace: in a container, add it".into();
    }
    let setting = |path: &str| {
        std::fs::read_to_string(Path::new("/proc/sys").join(path)).map(|t| t.trim().to_owned()).ok()
    };
    let is = |path: &str, value: &str| setting(path).as_deref() == Some(value);
    if is("kernel/unprivileged_userns_clone", "0") {
        return ". User namespaces are turned off for ordinary users: `sysctl kernel.unprivileged_userns_clone=1` (as root) allows them".into();
    }
    if is("user/max_user_namespaces", "0") {
        return ". No user namespaces are allowed: `sysctl user.max_user_namespaces=10000` (as root) allows them".into();
    }
    if is("kernel/apparmor_restrict_unprivileged_userns", "1") {
        return ". AppArmor restricts user namespaces of ordinary users: `sysctl kernel.apparmor_restrict_unprivileged_userns=0` (as root) lifts that, or give txos an AppArmor profile with `userns,`".into();
    }
    if let Some(missing) = missing {
        return format!(
            ". This is {missing}, whose transactions need a user namespace; this environment (a container's seccomp or security policy?) refuses one: allow it, or be the machine's root (in a container, start it privileged)"
        );
    }
    ". User namespaces are refused by this environment (a container's seccomp or security policy?): run as root, or outside it".into()
}

/// Yama can forbid looking at other processes altogether.
fn tracing() -> Option<Check> {
    let name = "looking at processes";
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok()?;
    let root = is_privileged();
    match scope.trim() {
        "3" => Some(Check::bad(
            name,
            "forbidden (kernel.yama.ptrace_scope is 3)",
            "Boot with another setting: 3 can't be changed back.",
        )),
        "2" if !root => Some(Check::bad(
            name,
            "allowed to root only (kernel.yama.ptrace_scope is 2)",
            "`sysctl kernel.yama.ptrace_scope=1` (as root) allows it for one's own children.",
        )),
        scope => Some(Check::good(name, format!("allowed (ptrace_scope {scope})"))),
    }
}

fn gate() -> Check {
    let name = "root gate";
    match probe::fanotify_permission() {
        Ok(()) => Check::good(name, "fanotify permission events are available"),
        Err(e) => Check::bad(
            name,
            format!("no fanotify permission events: {e}"),
            "Use a kernel with CONFIG_FANOTIFY_ACCESS_PERMISSIONS; without it, publishing is not gated.",
        ),
    }
}

fn root_directory(root: bool, chosen: &Chosen) -> Check {
    let name = "root file system";
    let is_known = || {
        is_on_overlay(&[])
            || rustix::fs::statfs("/").is_ok_and(|stat| scope::versions_magic(stat.f_type))
    };
    // Nothing is mounted over it: it need not be a mount, nor a layer.
    if !matches!(chosen, Chosen::Overlay) && is_known() {
        let how = "versioned whole in the library's view, but for";
        return Check::good(name, format!("{how} {}", scope::NEVER.join(" ")));
    }
    let Ok(mounts) = mounts::visible() else {
        return Check::bad(name, "the mount table can't be read", "Mount /proc.");
    };
    let Some(mount) = mounts.iter().find(|m| m.point == Path::new("/")) else {
        return Check::bad(
            name,
            "the root directory is not a mount (a chroot?)",
            "Use --scope, or bind-mount the root directory onto itself before the chroot.",
        );
    };
    if !scope::can_be_layer(mount) {
        return Check::bad(
            name,
            format!("{} ({}) can't hold private copies", mount.kind, mount.options),
            "Use --scope with directories on ext4, xfs, btrfs, f2fs or tmpfs; in a container, mount a volume or tmpfs there.",
        );
    }
    let how = if root { "versioned whole" } else { "versioned by directories" };
    Check::good(name, format!("{}: {how}, but for {}", mount.kind, scope::NEVER.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_that_fails_says_what_to_do() {
        let checks = doctor();
        assert!(checks.iter().all(|c| c.ok || c.advice.as_ref().is_some_and(|a| !a.is_empty())));
        assert!(checks.iter().any(|c| c.name == "kernel"));
    }
}
