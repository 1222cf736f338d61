//! What of the file tree can be versioned: the one policy of both front doors.
//!
//! A front door asks for the tree first ([`is_never`]), then for the kind of file system ([`versions_kind`],
//! [`versions_magic`]). What can't be versioned is *live*. The doors differ where an overlay needs more than a
//! shadow object:
//!
//! | what | `txos run` | a thread's transaction | why |
//! |---|---|---|---|
//! | a read-only mount | live | versioned; changes fail with EROFS | an overlay has its store on the mount from the start; a thread makes a private copy only for a change |
//! | a mount on a file | live | versioned | an overlay covers directories only |
//! | devtmpfs elsewhere than on `/dev` | live | versioned | `statfs(2)` gives it the number of tmpfs |
//! | an overlay | live | versioned | an overlay can't keep the private copies of another one |
//! | trees outside of `--scope`, below `--exclude` | live | live in a command ([`Scope`]), – in a program's own transaction | only `txos run` has these options |

use crate::mounts::Mount;
use crate::path::is_at_or_below;

/// What `--scope` and `--exclude` leave of the tree for a command: absolute, canonical paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Only these trees are versioned, if any.
    pub only: Vec<Vec<u8>>,
    /// These are not.
    pub without: Vec<Vec<u8>>,
}

impl Scope {
    /// Whether everything is versioned that can be.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.only.is_empty() && self.without.is_empty()
    }

    /// Whether what is at a path is not to be versioned.
    #[must_use]
    pub fn leaves_out(&self, path: &[u8]) -> bool {
        let is_in = |trees: &[Vec<u8>]| trees.iter().any(|tree| is_at_or_below(path, tree));
        is_in(&self.without) || !self.only.is_empty() && !is_in(&self.only)
    }

    /// Whether a path that is left out leads to a tree that is versioned, or is the top of one.
    #[must_use]
    pub fn leads_to_one(&self, path: &[u8]) -> bool {
        !path.is_empty() && self.only.iter().any(|tree| is_at_or_below(tree, path))
    }

    /// Whether a path is the top of a tree that is named, or leads there: it can't be removed or renamed, as no mount point can.
    #[must_use]
    pub fn is_fixed(&self, path: &[u8]) -> bool {
        self.leads_to_one(path) || self.without.iter().any(|tree| tree == path)
    }
}

/// Paths as one text: each begins with a slash and has no empty name, so that two slashes tell where the next begins.
#[must_use]
pub fn joined(paths: &[Vec<u8>]) -> Vec<u8> {
    paths.join(&b'/')
}

/// The paths of a text that [`joined`] has made.
#[must_use]
pub fn split(text: &[u8]) -> Vec<Vec<u8>> {
    let mut paths: Vec<Vec<u8>> = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.windows(2).position(|two| two == b"//").unwrap_or(rest.len());
        paths.push(rest[..end].to_vec());
        rest = rest.get(end + 1..).unwrap_or_default();
    }
    paths
}

/// A kind of file system that can be versioned. It can exchange two names in one step, keeps a private copy on
/// the mount of the original, can be the upper layer of an overlay, and gives each change a time of its own.
struct Kind {
    /// As the mount table names it.
    name: &'static str,
    /// `f_type` of `statfs(2)`.
    magic: i64,
}

const KINDS: [Kind; 9] = [
    Kind { name: "ext4", magic: 0xef53 },
    Kind { name: "ext3", magic: 0xef53 },
    Kind { name: "ext2", magic: 0xef53 },
    Kind { name: "xfs", magic: 0x5846_5342 },
    Kind { name: "btrfs", magic: 0x9123_683e },
    Kind { name: "f2fs", magic: 0xf2f5_2010 },
    Kind { name: "bcachefs", magic: 0xca45_1a4e },
    Kind { name: "zfs", magic: 0x2fc1_2fc1 },
    Kind { name: "tmpfs", magic: 0x0102_1994 },
];

/// Trees that are never versioned, whatever file system they are on: state of the running system. Other
/// processes must see a device, a lock, a socket or shared memory at once.
pub const NEVER: [&str; 4] = ["/proc", "/sys", "/dev", "/run"];

/// Whether an absolute, canonical path is in a tree that is never versioned.
#[must_use]
pub fn is_never(path: &[u8]) -> bool {
    NEVER.iter().any(|never| is_at_or_below(path, never.as_bytes()))
}

/// Whether a kind of file system can be versioned, by its name in the mount table.
#[must_use]
pub fn versions_kind(name: &str) -> bool {
    KINDS.iter().any(|kind| kind.name == name)
}

/// [`versions_kind`], by `f_type` of `statfs(2)`.
#[must_use]
pub fn versions_magic(magic: i64) -> bool {
    KINDS.iter().any(|kind| kind.magic == magic)
}

/// Whether a thread's transaction versions a file system, by `f_type` of `statfs(2)`: also an overlay, such as the root
/// directory of a container, which can't be a layer of another one.
#[must_use]
pub fn versions_magic_in_a_thread(magic: i64) -> bool {
    const OVERLAY: i64 = 0x794c_7630;
    versions_magic(magic) || magic == OVERLAY
}

/// Whether a mount can have a layer of `txos run`: an overlay whose private copies are on the mount itself.
#[must_use]
pub fn can_be_layer(mount: &Mount) -> bool {
    versions_kind(&mount.kind) && mount.is_writable() && mount.point.is_dir()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_names_of_a_kind_mean_the_same() {
        for kind in KINDS {
            assert!(versions_kind(kind.name) && versions_magic(kind.magic), "{}", kind.name);
        }
        assert!(!versions_kind("overlay") && !versions_magic(0x794c_7630));
        assert!(!versions_kind("nfs4") && !versions_magic(0x6969));
        assert!(!versions_kind("proc") && !versions_magic(0x9fa0));
    }

    /// The names and numbers are the kernel's.
    #[test]
    fn each_mount_of_this_machine_has_the_number_of_its_kind() {
        for mount in crate::mounts::visible().unwrap() {
            let Ok(found) = rustix::fs::statfs(&mount.point) else { continue };
            let by_magic = versions_magic(found.f_type) && mount.kind != "devtmpfs";
            assert_eq!(by_magic, versions_kind(&mount.kind), "{mount:?}");
        }
    }

    #[test]
    fn a_scope_is_trees() {
        let paths = |all: &[&str]| all.iter().map(|path| path.as_bytes().to_vec()).collect();
        let scope = Scope { only: paths(&["/a/b", "/c"]), without: paths(&["/a/b/x"]) };
        for (path, out, leads) in [
            ("/", true, true),
            ("/a", true, true),
            ("/a/b", false, true),
            ("/a/b/c", false, false),
            ("/a/bc", true, false),
            ("/a/b/x", true, false),
            ("/a/b/x/y", true, false),
            ("/c/d", false, false),
            ("/d", true, false),
            ("", true, false),
        ] {
            assert_eq!(scope.leaves_out(path.as_bytes()), out, "{path}");
            assert_eq!(scope.leads_to_one(path.as_bytes()), leads, "{path}");
        }
        for (path, fixed) in
            [("/", true), ("/c", true), ("/a/b/x", true), ("/c/d", false), ("/d", false)]
        {
            assert_eq!(scope.is_fixed(path.as_bytes()), fixed, "{path}");
        }
        assert!(Scope::default().is_none() && !Scope::default().leaves_out(b"/"));
        let without = Scope { only: Vec::new(), ..scope };
        assert!(!without.leaves_out(b"/") && without.leaves_out(b"/a/b/x"));
    }

    #[test]
    fn paths_are_joined_and_split() {
        for paths in [&[][..], &["/"], &["/a"], &["/a/b", "/c:d e", "/f\ng"], &["/a", "/b", "/c/d"]]
        {
            let paths: Vec<Vec<u8>> = paths.iter().map(|path| path.as_bytes().to_vec()).collect();
            assert_eq!(split(&joined(&paths)), paths);
        }
    }

    #[test]
    fn only_whole_names_are_below_a_tree() {
        for path in ["/run", "/run/x", "/dev/shm/x", "/proc/self"] {
            assert!(is_never(path.as_bytes()), "{path}");
        }
        for path in ["/", "/running", "/var/run", "/home/run", "/devices"] {
            assert!(!is_never(path.as_bytes()), "{path}");
        }
    }
}
