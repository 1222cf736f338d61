//! A small Debian of its own on a tmpfs: the essential packages of this machine, as far as they are needed to
//! install, use and remove others. dpkg knows them, so that dependencies are the real ones.

use std::path::{Path, PathBuf};

use crate::process::{Done, Invocation};
use crate::{Lab, skip};

/// Copies them (`$1`: where to), with no document and no translation.
const MAKE: &str = r#"
set -e
root=$1
shift
mount -t tmpfs -o mode=755 debian "$root"
cd "$root"
mkdir -p usr/bin usr/sbin usr/lib usr/lib64 proc dev sys tmp run root etc srv var/log var/lib
mkdir -p var/lib/dpkg/info var/lib/dpkg/updates var/lib/dpkg/triggers
for dir in bin sbin lib lib64; do ln -s usr/$dir $dir; done
chmod 1777 tmp
mount -t proc proc proc
mount -t tmpfs -o mode=755 devices dev
for device in null zero random urandom; do
    touch dev/$device
    mount --bind /dev/$device dev/$device
done
mkdir dev/shm dev/pts
mount -t devpts -o newinstance,ptmxmode=666 terminals dev/pts
ln -s pts/ptmx dev/ptmx
cp /etc/passwd /etc/group etc/
echo 1 >var/lib/dpkg/info/format
packages=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' "$@" 2>/dev/null | sed -n 's/^ii  *//p' | sort -u)
# What they need is not asked for: not all of it is copied.
dpkg-query -s $packages | grep -Ev "^(Pre-Depends|Depends|Recommends): " >var/lib/dpkg/status
for package in $packages; do
    for list in /var/lib/dpkg/info/$package.list /var/lib/dpkg/info/$package:*.list; do
        [ ! -e "$list" ] || { cp "$list" var/lib/dpkg/info/; cat "$list"; }
    done
done | grep -Ev '^/usr/share/(doc|man|locale|info|i18n)|/gconv|^/usr/lib/locale' | sort -u |
    { tar -C / -c --no-recursion --ignore-failed-read -T - 2>/dev/null || true; } |
    tar -x --keep-directory-symlink
"#;

/// What a shell and dpkg need.
const PACKAGES: [&str; 36] = [
    "base-files",
    "base-passwd",
    "coreutils",
    "dash",
    "debianutils",
    "diffutils",
    "dpkg",
    "findutils",
    "gcc-12-base",
    "grep",
    "libacl1",
    "libattr1",
    "libblkid1",
    "libbz2-1.0",
    "libc-bin",
    "libc6",
    "libcap-ng0",
    "libcrypt1",
    "libgcc-s1",
    "libgmp10",
    "liblzma5",
    "libmd0",
    "libmount1",
    "libpcre2-8-0",
    "libselinux1",
    "libsmartcols1",
    "libtinfo6",
    "libuuid1",
    "libzstd1",
    "mount",
    "passwd",
    "sed",
    "tar",
    "util-linux",
    "zlib1g",
    "bash",
];

/// The directory.
#[derive(Debug)]
pub struct DebianRoot(PathBuf);

impl DebianRoot {
    /// Makes one in a lab, with more packages of this machine; none where there is no dpkg.
    #[must_use]
    pub fn new(lab: &Lab, more: &[&str]) -> Option<DebianRoot> {
        if !skip::has("dpkg-query") {
            return None;
        }
        let dir = lab.dir().join("debian");
        std::fs::create_dir(&dir).ok()?;
        let made = Invocation::shell(MAKE).arg("sh").arg(&dir).args(PACKAGES).args(more).run();
        let made = (made.code() == 0).then_some(DebianRoot(dir))?;
        (made.sh("dpkg --audit && flock --version").code() == 0).then_some(made)
    }

    /// Where it is.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.0
    }

    /// A path in it.
    #[must_use]
    pub fn path(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }

    /// A command in it, to be run.
    #[must_use]
    pub fn command(&self, words: &[&str]) -> Invocation {
        Invocation::new("chroot")
            .arg(&self.0)
            .args(["env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"])
            .args(["HOME=/root", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8"])
            .args(words)
    }

    /// Runs a script in it.
    #[must_use]
    pub fn sh(&self, script: &str) -> Done {
        self.command(&["sh", "-c", script]).run()
    }

    /// Puts a package of the test at its top.
    ///
    /// # Panics
    /// If it can't be copied.
    pub fn take(&self, deb: &Path) {
        let name = deb.file_name().expect("a file");
        std::fs::copy(deb, self.0.join(name)).expect("copying a package");
    }
}
