//! Programs and kernels on the machine: instructions as QEMU executes them, Linux and TxLinux with the workloads.
//!
//! What these tests need is not installed for them: without a cross compiler, QEMU or the kernel's source they are counted as
//! skipped. With `TXOS_TEST_LONG=metatm` all workloads run, on both kernels and with each policy.

#![expect(clippy::expect_used, reason = "helpers of tests")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use txos_skip::{has, long, require};

fn here() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn metatm(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_metatm")).args(args).output().expect("metatm starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Where this test program keeps what it builds.
fn place(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&dir).expect("a directory");
    dir
}

const COMPILER: &str = "riscv64-linux-gnu-gcc";

/// Compiles a program that runs without a kernel.
fn bare(source: &str) -> PathBuf {
    let dir = place("bare");
    let (elf, flat) = (dir.join(format!("{source}.elf")), dir.join(source));
    let guest = here().join("guest");
    let script = guest.join("bare.ld");
    let flags = "-O1 -mcmodel=medany -march=rv64gc -mabi=lp64d -ffreestanding -fno-pic -no-pie -nostdlib -static -Wall -Werror \
                 -Wl,--no-warn-rwx-segments,--build-id=none -T";
    let built = Command::new(COMPILER)
        .args(flags.split_whitespace())
        .arg(&script)
        .arg("-o")
        .arg(&elf)
        .args([guest.join("start.S"), guest.join(source)])
        .output()
        .expect("the compiler starts");
    assert!(built.status.success(), "{}", text(&built.stderr));
    let copied = Command::new("riscv64-linux-gnu-objcopy")
        .args(["-O", "binary"])
        .args([&elf, &flat])
        .status()
        .expect("objcopy starts");
    assert!(copied.success());
    flat
}

/// Builds a kernel and the initial file system; where they are.
fn images(kernels: &[&str]) -> PathBuf {
    let dir = place("images");
    let built = Command::new(here().join("build"))
        .arg(&dir)
        .args(kernels)
        .output()
        .expect("the script starts");
    assert!(built.status.success(), "{}", text(&built.stderr));
    dir
}

fn can_build() -> bool {
    [COMPILER, "bc", "bison", "flex", "cpio", "xz"].iter().all(|t| has(t))
        && Path::new("/usr/src/linux-source-6.1.tar.xz").exists()
}

#[test]
fn instructions_do_what_they_do_under_qemu() {
    require!(has(COMPILER), "{COMPILER} is missing");
    require!(has("qemu-system-riscv64"), "qemu-system-riscv64 is missing");
    let program = bare("vectors.c");
    let lines = |output: &[u8]| -> Vec<String> {
        let is_hash = |l: &&str| {
            l.rsplit(' ')
                .next()
                .is_some_and(|h| h.len() == 16 && u64::from_str_radix(h, 16).is_ok())
        };
        text(output).replace('\r', "").lines().filter(is_hash).map(str::to_owned).collect()
    };
    let qemu = Command::new("qemu-system-riscv64")
        .args(["-M", "virt", "-m", "128", "-nographic", "-kernel"])
        .arg(&program)
        .stdin(std::process::Stdio::null())
        .output()
        .expect("QEMU starts");
    let ours = metatm(&["run", program.to_str().expect("UTF-8"), "--harts", "1", "--fast"]);
    assert!(ours.status.success(), "{}", text(&ours.stderr));
    let (wanted, got) = (lines(&qemu.stdout), lines(&ours.stdout));
    assert!(wanted.len() >= 250, "QEMU gave {} hashes", wanted.len());
    assert_eq!(got, wanted);
}

#[test]
fn transactions_of_two_harts_without_a_kernel() {
    require!(has(COMPILER), "{COMPILER} is missing");
    let program = bare("tm.c");
    let program = program.to_str().expect("UTF-8");
    let policies = [
        "polite",
        "karma",
        "eruption",
        "kindergarten",
        "timestamp",
        "polka",
        "size-matters",
        "os-priority",
    ];
    for policy in policies {
        for granularity in ["1", "64"] {
            let args =
                ["run", program, "--harts", "2", "--policy", policy, "--granularity", granularity];
            let ran = metatm(&args);
            assert!(ran.status.success(), "{policy}: {}", text(&ran.stderr));
            assert_eq!(text(&ran.stdout), "held 17\n", "{policy}, {granularity} bytes");
            assert_eq!(metatm(&args).stdout, ran.stdout);
        }
    }
}

#[test]
fn the_same_run_twice_is_the_same_cycle_by_cycle() {
    require!(has(COMPILER), "{COMPILER} is missing");
    let program = bare("tm.c");
    let run = |seed: &str| {
        let ran = metatm(&[
            "run",
            program.to_str().expect("UTF-8"),
            "--harts",
            "2",
            "--json",
            "--trace",
            "--seed",
            seed,
        ]);
        (text(&ran.stdout), text(&ran.stderr).split(';').nth(1).unwrap_or_default().to_owned())
    };
    let first = run("5");
    assert!(first.0.contains("\"conflicts\"") && first.1.contains("cycles"), "{first:?}");
    assert_eq!(first, run("5"));
    assert_ne!(first.1, run("6").1, "what is drawn follows the seed");
}

#[test]
fn what_is_no_kernel_or_hangs_is_told() {
    let dir = place("bad");
    let write = |name: &str, bytes: &[u8]| {
        let path = dir.join(name);
        std::fs::write(&path, bytes).expect("a file");
        path.to_str().expect("UTF-8").to_owned()
    };
    let empty = write("empty", b"");
    let ran = metatm(&["run", &empty]);
    assert_eq!(ran.status.code(), Some(2));
    assert!(text(&ran.stderr).contains("no RISC-V Image"), "{}", text(&ran.stderr));
    // A header, and then nothing that is an instruction: it traps to address 0 for ever.
    let mut image = vec![0; 256];
    image[16..24].copy_from_slice(&256u64.to_le_bytes());
    image[0x38..0x3c].copy_from_slice(b"RSC\x05");
    let hangs = write("hangs", &image);
    let ran = metatm(&["run", &hangs, "--harts", "1", "--cycles", "100000"]);
    assert_eq!(ran.status.code(), Some(3));
    assert!(text(&ran.stderr).contains("stopped after --cycles 100000"), "{}", text(&ran.stderr));
    // wfi without anything that wakes: addi x0, x0, 0 twice 16 bits are c.nop; then wfi and a jump to it.
    image[0..8].copy_from_slice(&[0x73, 0x00, 0x50, 0x10, 0xf5, 0xbf, 0x01, 0x00]);
    let sleeps = write("sleeps", &image);
    let ran = metatm(&["run", &sleeps, "--harts", "1"]);
    assert_eq!(ran.status.code(), Some(3));
    assert!(text(&ran.stderr).contains("nothing will wake one"), "{}", text(&ran.stderr));
    for (args, what) in [
        (vec!["--harts", "33"], "1 to 32 harts"),
        (vec!["--memory", "1"], "16 MiB to 64 GiB"),
        (vec!["--granularity", "7"], "1 or 64 bytes"),
        (vec!["--l1-ways", "0"], "at least one set"),
        (vec!["--l2-bytes", "64"], "at least one set"),
    ] {
        let ran = metatm(&[vec!["run", hangs.as_str()], args].concat());
        assert_eq!(ran.status.code(), Some(2));
        assert!(text(&ran.stderr).contains(what), "{}", text(&ran.stderr));
    }
    let ran = metatm(&["run", "/nonexistent/Image"]);
    assert!(
        text(&ran.stderr).contains("/nonexistent/Image: No such file"),
        "{}",
        text(&ran.stderr)
    );
}

#[test]
fn txlinux_boots_and_counts_right() {
    require!(
        can_build(),
        "the cross compiler, the kernel's source or a tool to build it is missing"
    );
    let images = images(&["txlinux"]);
    let image = |name: &str| images.join(name).to_str().expect("UTF-8").to_owned();
    let workloads: &[&str] = if long("metatm") {
        &["counter", "pmake", "netcat", "mab", "configure", "find", "dpunish"]
    } else {
        &["counter", "find"]
    };
    for workload in workloads {
        let line = format!("console=ttyS0 quiet workload={workload} size=1");
        let ran = metatm(&[
            "run",
            &image("Image.txlinux"),
            "--initrd",
            &image("initrd.cpio"),
            "--harts",
            "4",
            "--append",
            &line,
            "--json",
        ]);
        let out = text(&ran.stdout);
        assert!(
            ran.status.success() && out.contains(&format!("END {workload} ")),
            "{out}\n{}",
            text(&ran.stderr)
        );
        let committed = out.lines().find_map(|l| {
            l.trim().strip_prefix("\"committed\": ")?.strip_suffix(',')?.parse::<u64>().ok()
        });
        assert!(committed.is_some_and(|n| n > 1000), "{out}");
    }
}

#[test]
fn an_unmodified_linux_boots_and_the_evaluation_runs() {
    require!(long("metatm"), "it builds two more kernels: ./test --long metatm");
    require!(
        can_build(),
        "the cross compiler, the kernel's source or a tool to build it is missing"
    );
    let images = images(&["unmodified", "linux", "txlinux"]);
    let image = |name: &str| images.join(name).to_str().expect("UTF-8").to_owned();
    for harts in ["1", "4", "32"] {
        let ran = metatm(&[
            "run",
            &image("Image.unmodified"),
            "--initrd",
            &image("initrd.cpio"),
            "--harts",
            harts,
            "--fast",
        ]);
        let wanted = format!("up with {harts} processors");
        assert!(
            ran.status.success() && text(&ran.stdout).contains(&wanted),
            "{}",
            text(&ran.stdout)
        );
    }
    let report = place("report");
    let ran = metatm(&[
        "evaluate",
        images.to_str().expect("UTF-8"),
        "--report",
        report.to_str().expect("UTF-8"),
    ]);
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    let page = std::fs::read_to_string(report.join("index.html")).expect("the page");
    for part in ["Table 2", "Table 3", "Figure 1", "Figure 2", "<td>netcat"] {
        assert!(page.contains(part), "{part}");
    }
}
