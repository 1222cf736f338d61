//! File systems in image files, mounted in the test's own namespace. The loop device detaches
//! itself with the last mount, and the mount goes with the namespace: nothing is left, however the
//! test ends.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::Lab;
use crate::process::Invocation;

/// A mounted file system.
#[derive(Debug)]
pub struct Image {
    /// Where it is mounted.
    pub point: PathBuf,
}

impl Image {
    /// Makes and mounts one; `None` if this machine can't (its tools or its kernel).
    ///
    /// # Panics
    /// If the image file can't be made.
    #[must_use]
    pub fn mount(lab: &Lab, kind: &str, mib: u64, name: &str) -> Option<Image> {
        Self::mount_with(lab, kind, &[], mib, name)
    }

    /// An overlay as container engines mount one for the root directory, on a file system of this kind. What `prepare`,
    /// a shell script, makes is in the lower layer.
    ///
    /// # Panics
    /// If a directory can't be made, or the script fails.
    #[must_use]
    pub fn overlay(lab: &Lab, kind: &str, mib: u64, prepare: &str) -> Option<Overlay> {
        Self::overlay_over(lab, kind, mib, prepare, "")
    }

    /// The same over further layers, in the words of overlayfs: the lowest last.
    ///
    /// # Panics
    /// As [`Image::overlay`].
    #[must_use]
    pub fn overlay_over(
        lab: &Lab,
        kind: &str,
        mib: u64,
        prepare: &str,
        below: &str,
    ) -> Option<Overlay> {
        let disk = Image::mount(lab, kind, mib, "disk")?;
        make_layers(&disk.point, &["lower", "upper", "work"]);
        let _ = Invocation::shell(format!("set -e; {prepare}"))
            .dir(disk.point.join("lower"))
            .run()
            .expect(0);
        let below = if below.is_empty() { String::new() } else { format!(":{below}") };
        let point = lab.dir().join("overlay");
        std::fs::create_dir_all(&point).expect("making a mount point");
        let overlay = Overlay { top: Image { point }, disk, below };
        overlay.attach().then_some(overlay)
    }

    /// The same, made with further options.
    ///
    /// # Panics
    /// If the image file can't be made.
    #[must_use]
    pub fn mount_with(lab: &Lab, kind: &str, more: &[&str], mib: u64, name: &str) -> Option<Image> {
        let file = lab.dir().join(format!("{name}.img"));
        File::create(&file).and_then(|f| f.set_len(mib << 20)).expect("making an image");
        let options: &[&str] = match kind {
            "ext4" => &["-q", "-F", "-m0", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
            "xfs" | "btrfs" => &["-q", "-f"],
            _ => &[],
        };
        let made = Invocation::shell("exec \"$@\" 2>&1")
            .args(["sh", &format!("mkfs.{kind}")])
            .args(options)
            .args(more)
            .arg(&file)
            .run();
        if made.code() != 0 {
            eprintln!("mkfs.{kind}: {made:?}");
            return None;
        }
        let point = lab.dir().join(name);
        std::fs::create_dir_all(&point).expect("making a mount point");
        let image = Image { point };
        image.attach(&file, kind).then_some(image)
    }

    fn attach(&self, file: &Path, kind: &str) -> bool {
        let done = Invocation::new("mount")
            .args(["-o", "loop", "-t", kind])
            .arg(file)
            .arg(&self.point)
            .run();
        if done.code() != 0 {
            eprintln!("{done:?}");
        }
        done.code() == 0
    }

    /// Mounts it again with other options.
    ///
    /// # Panics
    /// If that fails.
    pub fn remount(&self, options: &str) {
        let _ = Invocation::new("mount")
            .args(["-o", &format!("remount,{options}")])
            .arg(&self.point)
            .run()
            .expect(0);
    }

    /// Free bytes.
    ///
    /// # Panics
    /// If the kernel does not tell.
    #[must_use]
    pub fn free(&self) -> u64 {
        let stat = rustix::fs::statvfs(&self.point).expect("statvfs");
        stat.f_bavail * stat.f_frsize
    }
}

/// An overlay and the file system below it.
#[derive(Debug)]
pub struct Overlay {
    /// The overlay: it goes first.
    pub top: Image,
    disk: Image,
    /// Further layers, behind a colon.
    below: String,
}

impl Overlay {
    fn attach(&self) -> bool {
        let (at, below) = (self.disk.point.display(), &self.below);
        let options = format!(
            "lowerdir={at}/lower{below},upperdir={at}/upper,workdir={at}/work,redirect_dir=off,index=off,xino=off"
        );
        let mut mount = Invocation::new("mount").args(["-t", "overlay", "-o", &options, "overlay"]);
        mount = mount.arg(&self.top.point);
        mount.run().code() == 0
    }

    /// Empties all layers.
    ///
    /// # Panics
    /// If that fails.
    pub fn clear(&self) {
        self.again(|disk| {
            for layer in ["lower", "upper", "work"] {
                std::fs::remove_dir_all(disk.join(layer)).expect("removing a layer");
            }
            make_layers(disk, &["lower", "upper", "work"]);
        });
    }

    /// Makes what is in the upper layer the lower one, as an image is made of a container.
    ///
    /// # Panics
    /// If that fails.
    pub fn sink(&self) {
        self.again(|disk| {
            for layer in ["lower", "work"] {
                std::fs::remove_dir_all(disk.join(layer)).expect("removing a layer");
            }
            std::fs::rename(disk.join("upper"), disk.join("lower")).expect("renaming a layer");
            make_layers(disk, &["upper", "work"]);
        });
    }

    fn again(&self, change: impl FnOnce(&Path)) {
        crate::lab::unmount_below(&self.top.point);
        change(&self.disk.point);
        assert!(self.attach(), "mounting the overlay again");
    }
}

fn make_layers(disk: &Path, layers: &[&str]) {
    for layer in layers {
        std::fs::create_dir(disk.join(layer)).expect("making a layer");
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        crate::lab::unmount_below(&self.point);
    }
}
