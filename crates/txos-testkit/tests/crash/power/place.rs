//! What the machines of these tests start from.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use txos_testkit::power::kernel::Kernel;
use txos_testkit::power::machine::{Machine, QEMU};
use txos_testkit::power::{disk::Disk, image};
use txos_testkit::skip;

/// Modules that every machine loads, besides those of its data disk.
const MODULES: &[&str] = &["virtio_pci", "virtio_blk", "overlay", "fuse"];

/// Large enough for the binaries and for what is done.
const ROOT_MIB: u64 = 192;
/// xfs wants as much.
const DATA_MIB: u64 = 320;

/// What is made once for all tests.
#[derive(Debug)]
pub struct Parts {
    pub kernel: Kernel,
    busybox: PathBuf,
    /// The root disk that all begin with; it has no name.
    root: File,
    dir: PathBuf,
}

/// Makes them, or says why that can't be done here.
pub fn parts() -> Result<&'static Parts, &'static str> {
    static PARTS: OnceLock<Result<Parts, String>> = OnceLock::new();
    PARTS.get_or_init(make).as_ref().map_err(String::as_str)
}

fn make() -> Result<Parts, String> {
    for (program, package) in
        [(QEMU, "qemu-system-x86"), ("mkfs.ext4", "e2fsprogs"), ("ldd", "libc-bin")]
    {
        if !skip::has(program) {
            return Err(format!("there is no {program} (package {package})"));
        }
    }
    let busybox = ["/bin/busybox", "/usr/bin/busybox"].into_iter().map(PathBuf::from);
    let busybox = busybox.into_iter().find(|path| image::is_static(path));
    let busybox = busybox.ok_or("there is no static busybox (package busybox-static)")?;
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("power");
    let kernel = Kernel::debian(&dir)?;
    let (root, scratch) = (dir.join(format!("root-{}", std::process::id())), dir.join("tree"));
    let scratch = scratch.with_extension(std::process::id().to_string());
    image::root_disk(Path::new(env!("CARGO_BIN_EXE_power-guest")), &scratch, ROOT_MIB, &root);
    let named = root;
    let root = File::open(&named).map_err(|e| e.to_string())?;
    std::fs::remove_file(&named).map_err(|e| e.to_string())?;
    Ok(Parts { kernel, busybox, root, dir })
}

/// A machine that can be switched on and off: its disks, and what it starts with.
#[derive(Debug)]
pub struct Place {
    parts: &'static Parts,
    files: Vec<PathBuf>,
    pub disks: [Disk; 2],
    kind: &'static str,
}

impl Place {
    /// With fresh disks: the root on ext4, another one of a kind.
    pub fn new(parts: &'static Parts, kind: &'static str, name: &str) -> Place {
        let file = |what: &str| parts.dir.join(format!("{name}-{what}-{}", std::process::id()));
        let files = vec![file("root"), file("data"), file("initramfs")];
        let root = format!("/proc/self/fd/{}", parts.root.as_raw_fd());
        std::fs::copy(root, &files[0]).unwrap();
        image::data_disk(kind, DATA_MIB, &files[1]);
        let modules = [MODULES, &[kind]].concat();
        image::initramfs(&parts.kernel, &modules, &parts.busybox, &files[2]);
        let disks = [Disk::open(&files[0]), Disk::open(&files[1])];
        Place { parts, files, disks, kind }
    }

    /// Switches it on.
    pub fn boot(&mut self, tell: &str) -> Machine {
        let [root, data] = &mut self.disks;
        let tell = format!("guest.data={} {tell}", self.kind);
        Machine::boot(&self.parts.kernel, &self.files[2], &mut [root, data], &tell)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for file in &self.files {
            let _ = std::fs::remove_file(file);
        }
    }
}
