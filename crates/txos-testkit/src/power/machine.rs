//! The machine: QEMU without KVM. What the guest says on its serial line can be read as it comes.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::disk::Disk;
use super::kernel::Kernel;
use crate::process::{Invocation, Running};

/// How long a guest may take for one thing: software emulation, on a machine that has other things
/// to do.
const PATIENCE: Duration = Duration::from_secs(300);

/// How often it is looked whether the guest has said something.
const PAUSE: Duration = Duration::from_millis(2);

/// The program.
pub const QEMU: &str = "qemu-system-x86_64";

/// The first descriptor of a disk.
const DISK_FD: i32 = 40;

/// A running machine; switched off when it is dropped.
#[derive(Debug)]
pub struct Machine {
    qemu: Running,
}

impl Machine {
    /// Switches it on.
    ///
    /// # Panics
    /// If QEMU can't be started.
    #[must_use]
    pub fn boot(kernel: &Kernel, initramfs: &Path, disks: &mut [&mut Disk], tell: &str) -> Self {
        // On a busy machine the timer interrupts of an emulated one come too late for the check.
        let append = format!("console=ttyS0 quiet panic=-1 no_timer_check {tell}");
        let mut qemu = Invocation::new(QEMU)
            .args(["-machine", "q35", "-accel", "tcg", "-m", "512M", "-display", "none"])
            .args(["-nodefaults", "-no-reboot", "-serial", "stdio", "-kernel"])
            .arg(&kernel.image)
            .arg("-initrd")
            .arg(initramfs)
            .args(["-append", &append]);
        for (index, disk) in disks.iter_mut().enumerate() {
            let fd = DISK_FD + i32::try_from(index).expect("few disks");
            let drive = format!(
                "driver=nbd,server.type=fd,server.str={fd},node-name=d{index},cache.direct=on"
            );
            let device = format!("virtio-blk-pci,drive=d{index},write-cache=on");
            qemu = qemu.args(["-blockdev", &drive, "-device", &device]).fd(disk.connect(), fd);
        }
        Machine { qemu: qemu.start() }
    }

    /// The lines that the guest has said by now; the last one may be on its way still.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let text = self.qemu.stdout();
        let whole = text.rfind('\n').map_or("", |end| text.get(..end).unwrap_or_default());
        whole.lines().map(|line| line.trim_end_matches('\r').to_owned()).collect()
    }

    /// Waits until the guest has said something.
    ///
    /// # Panics
    /// If the machine ends before, or the guest says nothing of the kind in time.
    #[track_caller]
    pub fn wait_for(&mut self, what: &str, mut said: impl FnMut(&[String]) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let ended = self.qemu.ended();
            if said(&self.lines()) {
                return;
            }
            assert!(
                !ended && Instant::now() < deadline,
                "waited in vain: {what}\n{}",
                self.story()
            );
            std::thread::sleep(PAUSE);
        }
    }

    /// Waits until it has switched itself off; gives what the guest has said.
    ///
    /// # Panics
    /// If it does not.
    #[must_use]
    #[track_caller]
    pub fn shut_down(mut self) -> Vec<String> {
        let deadline = Instant::now() + PATIENCE;
        while !self.qemu.ended() {
            assert!(Instant::now() < deadline, "it does not switch itself off\n{}", self.story());
            std::thread::sleep(PAUSE);
        }
        self.lines()
    }

    /// Cuts the power; gives what the guest had said.
    #[must_use]
    pub fn cut(mut self) -> Vec<String> {
        self.qemu.signal(Signal::KILL);
        while !self.qemu.ended() {
            std::thread::sleep(PAUSE);
        }
        self.lines()
    }

    /// Everything that was said, for a message.
    #[must_use]
    pub fn story(&self) -> String {
        format!("{}\n{}", self.qemu.stdout(), self.qemu.stderr())
    }
}
