//! What a machine starts from: an initramfs that loads modules and goes on with the root disk, and
//! that root disk, with the binaries under test and the few programs that they need.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::kernel::Kernel;
use crate::Invocation;

/// Programs of this machine that the guest has as well.
const PROGRAMS: &[&str] = &["sh", "cat", "cp", "ln", "ls", "mkdir", "mv", "rm", "sed", "touch"];

/// A file of an initramfs.
struct Entry {
    name: String,
    mode: u32,
    bytes: Vec<u8>,
}

/// Writes an initramfs that loads these modules, mounts `/dev/vda`, and goes on with `/guest` there.
/// The static busybox of this machine is in it.
///
/// # Panics
/// If it can't be made.
pub fn initramfs(kernel: &Kernel, modules: &[&str], busybox: &Path, to: &Path) {
    let mut script = String::from("#!/bin/busybox sh\n/bin/busybox mount -t devtmpfs dev /dev\n");
    let mut entries: Vec<Entry> = ["bin", "dev", "modules", "new"]
        .iter()
        .map(|name| Entry { name: (*name).into(), mode: 0o040_755, bytes: Vec::new() })
        .collect();
    for module in kernel.modules(modules) {
        let name = module.file_name().expect("a name").to_string_lossy().into_owned();
        script.push_str(&format!("/bin/busybox insmod /modules/{name}\n"));
        let bytes = std::fs::read(&module).expect("reading a module");
        entries.push(Entry { name: format!("modules/{name}"), mode: 0o100_644, bytes });
    }
    script.push_str(
        "/bin/busybox mount -t ext4 /dev/vda /new\nexec /bin/busybox switch_root /new /guest\n",
    );
    let busybox = std::fs::read(busybox).expect("reading busybox");
    entries.push(Entry { name: "bin/busybox".into(), mode: 0o100_755, bytes: busybox });
    entries.push(Entry { name: "init".into(), mode: 0o100_755, bytes: script.into_bytes() });
    std::fs::write(to, archive(&entries)).expect("writing an initramfs");
}

/// A cpio archive in the format `newc`.
fn archive(entries: &[Entry]) -> Vec<u8> {
    let mut out = Vec::new();
    let end = Entry { name: "TRAILER!!!".into(), mode: 0, bytes: Vec::new() };
    for (number, entry) in entries.iter().chain([&end]).enumerate() {
        let (size, name) = (entry.bytes.len(), entry.name.len() + 1);
        // ino, mode, uid, gid, nlink, mtime, filesize, devmajor, devminor, rdevmajor, rdevminor,
        // namesize, check
        let fields = [number, entry.mode as usize, 0, 0, 1, 0, size, 0, 0, 0, 0, name, 0];
        out.extend_from_slice(b"070701");
        for field in fields {
            out.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        out.extend_from_slice(entry.name.as_bytes());
        out.push(0);
        out.resize(out.len().next_multiple_of(4), 0);
        out.extend_from_slice(&entry.bytes);
        out.resize(out.len().next_multiple_of(4), 0);
    }
    out
}

/// Makes an ext4 file system with the guest's program as `/guest`, the binaries under test, and what
/// they need.
///
/// # Panics
/// If it can't be made.
pub fn root_disk(guest: &Path, scratch: &Path, mib: u64, to: &Path) {
    let _ = std::fs::remove_dir_all(scratch);
    for dir in ["dev", "proc", "sys", "run", "tmp", "work", "data", "var/lib", "etc", "root"] {
        std::fs::create_dir_all(scratch.join(dir)).expect("making a directory");
    }
    for dir in ["bin", "sbin", "lib", "lib64"] {
        std::fs::create_dir_all(scratch.join("usr").join(dir)).expect("making a directory");
        symlink(format!("usr/{dir}"), scratch.join(dir)).expect("making a link");
    }
    std::fs::write(scratch.join("etc/passwd"), "root:x:0:0::/root:/bin/sh\n").expect("writing");
    let mut libraries: Vec<PathBuf> = Vec::new();
    let mut add = |from: &Path, name: &str| {
        let to = scratch.join(name);
        // Debug builds are large.
        let mut strip = Command::new("strip");
        let stripped = strip.arg("-o").arg(&to).arg(from).stderr(Stdio::null()).status();
        if !stripped.is_ok_and(|status| status.success()) {
            std::fs::copy(from, &to).expect("copying a program");
        }
        std::fs::set_permissions(&to, PermissionsExt::from_mode(0o755)).expect("chmod");
        libraries.extend(libraries_of(from));
    };
    add(guest, "guest");
    add(crate::binary::txos(), "usr/bin/txos");
    add(crate::binary::library(), "usr/lib/libtxos.so");
    for program in PROGRAMS {
        add(&Path::new("/bin").join(program), &format!("usr/bin/{program}"));
    }
    libraries.sort();
    libraries.dedup();
    for library in libraries {
        // /lib and /lib64 are links here, whatever they are on this machine.
        let below = library.strip_prefix("/").unwrap_or(&library);
        let to = scratch.join(below);
        std::fs::create_dir_all(to.parent().unwrap_or(scratch)).expect("making a directory");
        std::fs::copy(&library, &to).expect("copying a library");
    }
    let disk = File::create(to).expect("making a disk");
    disk.set_len(mib << 20).expect("sizing a disk");
    let options = ["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", "-d"];
    let _ = Invocation::new("mkfs.ext4").args(options).arg(scratch).arg(to).run().expect(0);
    let _ = std::fs::remove_dir_all(scratch);
}

/// Makes an empty file system.
///
/// # Panics
/// If it can't be made.
pub fn data_disk(kind: &str, mib: u64, to: &Path) {
    let mut disk = File::create(to).expect("making a disk");
    disk.set_len(mib << 20).and_then(|()| disk.flush()).expect("sizing a disk");
    let options: &[&str] = match kind {
        "ext4" => &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
        _ => &["-q", "-f"],
    };
    let _ = Invocation::new(format!("mkfs.{kind}")).args(options).arg(to).run().expect(0);
}

/// Whether a program needs nothing else to run.
#[must_use]
pub fn is_static(program: &Path) -> bool {
    program.exists() && libraries_of(program).is_empty()
}

fn libraries_of(program: &Path) -> Vec<PathBuf> {
    let text = Invocation::new("ldd").arg(program).run().text();
    text.lines()
        .flat_map(|line| line.split_whitespace())
        .filter(|word| word.starts_with('/'))
        .map(PathBuf::from)
        .collect()
}
