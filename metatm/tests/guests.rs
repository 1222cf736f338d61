//! Programs and kernels on the machine: instructions as QEMU executes them, Linux and TxLinux with the workloads.
//!
//! Without a cross compiler, QEMU or the kernel's source they are counted as skipped. With `TXOS_TEST_LONG=metatm` all workloads
//! run, on both kernels, and the sweeps with one of them.

#![expect(clippy::expect_used, reason = "helpers of tests")]

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use txos_skip::{has, long, require, require_some};

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
    let guest = here().join("guest");
    bare_of(source, &[guest.join("start.S"), guest.join(source)], &[])
}

fn bare_of(name: &str, sources: &[PathBuf], options: &[&str]) -> PathBuf {
    let dir = place("bare");
    let (elf, flat) = (dir.join(format!("{name}.elf")), dir.join(name));
    let guest = here().join("guest");
    let flags = "-O1 -mcmodel=medany -march=rv64gc -mabi=lp64d -ffreestanding -fno-pic -no-pie -nostdlib -static -Wall -Werror \
                 -Wl,--no-warn-rwx-segments,--build-id=none";
    let built = Command::new(COMPILER)
        .args(flags.split_whitespace())
        .args(options)
        .arg("-I")
        .arg(&guest)
        .arg("-T")
        .arg(guest.join("bare.ld"))
        .arg("-o")
        .arg(&elf)
        .args(sources)
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
    [COMPILER, "bc", "bison", "flex", "cpio", "mke2fs", "xz"].iter().all(|t| has(t))
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
    assert!(wanted.len() >= 285, "QEMU gave {} hashes", wanted.len());
    assert_eq!(got, wanted);
}

#[test]
fn the_official_tests_of_instructions_pass() {
    let sources = std::env::var_os("METATM_RISCV_TESTS");
    let sources = require_some!(sources, "METATM_RISCV_TESTS names no sources of riscv-tests");
    require!(has(COMPILER), "{COMPILER} is missing");
    let isa = PathBuf::from(sources).join("isa");
    let macros = isa.join("macros/scalar");
    let macros = ["-march=rv64g", "-I", macros.to_str().expect("UTF-8")];
    let mut passed = 0;
    for set in ["rv64ui", "rv64um", "rv64ua", "rv64uf", "rv64ud", "rv64uc"] {
        for entry in std::fs::read_dir(isa.join(set)).expect("a directory of riscv-tests") {
            let source = entry.expect("an entry").path();
            if source.extension().is_none_or(|e| e != "S") {
                continue;
            }
            let name = format!("{set}-{}", source.file_stem().unwrap_or_default().display());
            let program = bare_of(&name, &[source], &macros);
            let program = program.to_str().expect("UTF-8");
            let options = ["--harts", "1", "--memory", "64", "--cycles", "50000000"];
            let ran = metatm(&[&["run", program], &options[..]].concat());
            assert!(ran.status.success(), "{name}: {}", text(&ran.stderr));
            passed += 1;
        }
    }
    assert!(passed >= 100, "there were {passed} tests");
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
            assert_eq!(text(&ran.stdout), "held 21\n", "{policy}, {granularity} bytes");
            assert_eq!(metatm(&args).stdout, ran.stdout);
        }
    }
}

/// A figure of what `--json` prints.
fn figure(out: &str, name: &str) -> Option<u64> {
    let key = format!("\"{name}\": ");
    out.lines().find_map(|l| l.trim().strip_prefix(&key)?.trim_end_matches(',').parse().ok())
}

#[test]
fn an_interrupt_spares_the_stack_of_a_transaction_and_releases_what_is_dead() {
    require!(has(COMPILER), "{COMPILER} is missing");
    let program = bare("stack.c");
    let program = program.to_str().expect("UTF-8");
    for traps in ["hardware", "software"] {
        let run = |option: &[&str]| {
            let args = ["run", program, "--harts", "1", "--json", "--traps", traps];
            let ran = metatm(&[&args, option].concat());
            assert!(ran.status.success(), "{traps}, {option:?}: {}", text(&ran.stderr));
            let out = text(&ran.stdout);
            let counted = ["live_stack", "released_bytes", "interrupted"]
                .map(|name| figure(&out, name).expect("a figure"));
            (out.lines().next().unwrap_or_default().to_owned(), counted)
        };
        let said = |live: u64, dead: u64| {
            format!(
                "interrupts 40, restarted 20, live stack overwritten {live:02}, restarted for dead stack {dead:02}"
            )
        };
        let (line, [live, released, interrupted]) = run(&[]);
        assert_eq!(line, said(0, 0), "{traps}");
        assert!(live == 20 && released >= 20 * 512 && interrupted == 40, "{live} {released}");
        // Commits and restarts cost what they are said to: there are 40 transactions.
        let cycles = |option: &str, figure: &str| {
            let args = ["run", program, "--harts", "1", "--traps", traps, option, figure];
            let said = text(&metatm(&args).stderr);
            let cycles = said.split(' ').find_map(|word| word.parse::<u64>().ok());
            cycles.expect("cycles")
        };
        let free = cycles("--commit-cycles", "0");
        let committing = cycles("--commit-cycles", "5000") - free;
        assert!((40 * 5000..41 * 5000).contains(&committing), "{committing}");
        let restarting = cycles("--abort-cycles", "5000") - free;
        assert!((20 * 5000..21 * 5000).contains(&restarting), "{restarting}");
        // Each is there for a reason.
        let (line, [live, ..]) = run(&["--no-live-stack"]);
        assert_eq!((line, live), (said(20, 0), 20), "{traps}");
        let (line, [_, released, _]) = run(&["--no-early-release"]);
        assert_eq!((line, released), (said(0, 20), 0), "{traps}");
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
fn the_trace_has_the_last_conflicts() {
    require!(has(COMPILER), "{COMPILER} is missing");
    let program = bare("tm.c");
    let trace = |option: &str| -> (Vec<String>, String) {
        let ran = metatm(&["run", program.to_str().expect("UTF-8"), "--harts", "2", option]);
        let out = text(&ran.stdout);
        let (events, rest) = out.split_once("\n\n").expect("events, and what comes after them");
        // The console and a line of headings stand above the events.
        (events.lines().skip(2).map(str::to_owned).collect(), rest.to_owned())
    };
    let (all, _) = trace("--trace");
    let (few, rest) = trace("--trace=7");
    assert!(all.len() > 7 && few.len() == 7, "{} and {}", all.len(), few.len());
    assert_eq!(few, all[all.len() - 7..]);
    let wanted = format!("{} conflicts, of which the last 7 are above", all.len());
    assert!(rest.contains(&wanted) && rest.contains("region of the holder"), "{rest}");
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
    let ran = metatm(&["run", &hangs, "--harts", "1", "--seconds", "0"]);
    assert_eq!(ran.status.code(), Some(3));
    assert!(text(&ran.stderr).contains("stopped after --seconds 0"), "{}", text(&ran.stderr));
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
        (vec!["--mhz", "1"], "10 to 100,000 MHz"),
        (vec!["--backoff-doublings", "80"], "a latency is at most"),
        (vec!["--disk-us", "18446744073709551615"], "a latency is at most"),
        (vec!["--stack-bytes", "0"], "stacks are powers of two"),
    ] {
        let ran = metatm(&[vec!["run", hangs.as_str()], args].concat());
        assert_eq!(ran.status.code(), Some(2));
        assert!(text(&ran.stderr).contains(what), "{}", text(&ran.stderr));
    }
    let large = write("large", &vec![0; 20 << 20]);
    let ran = metatm(&["run", &sleeps, "--memory", "16", "--initrd", &large]);
    assert!(text(&ran.stderr).contains("don't fit into memory"), "{}", text(&ran.stderr));
    let ran = metatm(&["run", &sleeps, "--gdb", "nowhere"]);
    assert!(text(&ran.stderr).contains("--gdb nowhere: "), "{}", text(&ran.stderr));
    let place = dir.to_str().expect("UTF-8");
    let ran = metatm(&["evaluate", "/nonexistent"]);
    assert_eq!(ran.status.code(), Some(2));
    assert!(text(&ran.stderr).contains("System.map.linux: No such file"), "{}", text(&ran.stderr));
    // Kernels that are none: every run is told of, and the report says so.
    for kernel in ["linux", "txlinux"] {
        write(&format!("Image.{kernel}"), &image);
        write(&format!("System.map.{kernel}"), b"nonsense");
    }
    write("initrd.cpio", b"");
    write("disk.ext2", b"");
    let report = dir.join("report");
    let args = ["evaluate", place, "--tables", "--report", report.to_str().expect("UTF-8")];
    let ran = metatm(&[&args[..], &["--only", "find"]].concat());
    assert_eq!(ran.status.code(), Some(2));
    assert!(text(&ran.stderr).contains("3 runs came to no end"), "{}", text(&ran.stderr));
    let page = std::fs::read_to_string(report.join("index.html")).expect("the page");
    assert!(
        page.contains("Runs without an end") && page.contains("did not end (Asleep)"),
        "{page}"
    );
    // What there is no time for is not begun, and the report says so.
    let ran = metatm(&[&args[..], &["--only", "mab", "--minutes", "0"]].concat());
    assert!(text(&ran.stderr).contains("3 runs were not begun"), "{}", text(&ran.stderr));
    let page = std::fs::read_to_string(report.join("index.html")).expect("the page");
    assert!(page.contains("3 runs were not begun"), "{page}");
    // What the report has of other images is not taken for this machine's.
    let ran = metatm(&[&args[..], &["--only", "find", "--resume", "--harts", "2"]].concat());
    assert!(
        text(&ran.stderr).contains("of other images, another machine"),
        "{}",
        text(&ran.stderr)
    );
    let ran = metatm(&[&args[..], &["--only", "nonsense"]].concat());
    assert!(text(&ran.stderr).contains("there is no workload nonsense"), "{}", text(&ran.stderr));
    let ran = metatm(&["run", "/nonexistent/Image"]);
    assert!(
        text(&ran.stderr).contains("/nonexistent/Image: No such file"),
        "{}",
        text(&ran.stderr)
    );
}

#[test]
fn what_a_program_must_not_do_is_an_exception() {
    require!(has(COMPILER), "{COMPILER} is missing");
    let program = bare("traps.c");
    let ran = metatm(&["run", program.to_str().expect("UTF-8"), "--harts", "1"]);
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    // A = says that `stval` is the address, or 0. Illegal instructions, a breakpoint, accesses to nothing, what is not aligned, a jump to nowhere.
    assert_eq!(text(&ran.stdout), "02=02 02=02=02 02 02 03 05=07=06=04=01=\n");
}

/// A client of the debugger's protocol.
struct Gdb {
    stream: std::net::TcpStream,
}

impl Gdb {
    /// Sends a packet; the data of the answer.
    fn ask(&mut self, packet: &str) -> String {
        let sum = packet.bytes().fold(0u8, u8::wrapping_add);
        write!(self.stream, "${packet}#{sum:02x}").expect("it is sent");
        let mut byte = || {
            let mut one = [0];
            self.stream.read_exact(&mut one).expect("an answer");
            one[0]
        };
        assert_eq!(byte(), b'+', "{packet} is taken");
        assert_eq!(byte(), b'$', "{packet} is answered");
        let answer: Vec<u8> = std::iter::from_fn(|| Some(byte()).filter(|b| *b != b'#')).collect();
        let sum = [byte(), byte()];
        let right = answer.iter().copied().fold(0u8, u8::wrapping_add);
        assert_eq!(text(&sum), format!("{right:02x}"));
        text(&answer)
    }

    fn pc(&mut self) -> u64 {
        let bytes = self.ask("p20");
        u64::from_str_radix(&bytes, 16).expect("a register").swap_bytes()
    }
}

#[test]
fn a_debugger_stops_harts_and_changes_nothing_by_that() {
    require!(has(COMPILER), "{COMPILER} is missing");
    let program = bare("tm.c");
    let symbols = Command::new("riscv64-linux-gnu-nm")
        .arg(program.with_file_name("tm.c.elf"))
        .output()
        .expect("nm starts");
    let symbols = text(&symbols.stdout);
    let at = |name: &str| {
        let line = symbols.lines().find(|l| l.ends_with(&format!(" {name}"))).expect("a symbol");
        line.split(' ').next().expect("an address").to_owned()
    };
    let program = program.to_str().expect("UTF-8");
    let args = ["run", program, "--harts", "2"];
    let cycles = |said: &str| said.split(';').nth(1).unwrap_or_default().to_owned();
    let alone = metatm(&args);

    let mut child = Command::new(env!("CARGO_BIN_EXE_metatm"))
        .args(args)
        .args(["--gdb", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("metatm starts");
    let mut said = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut line = String::new();
    said.read_line(&mut line).expect("a line");
    let address = line.trim().rsplit(' ').next().expect("an address");
    let mut gdb = Gdb { stream: std::net::TcpStream::connect(address).expect("a connection") };
    assert!(gdb.ask("qSupported:swbreak+").contains("vContSupported+"));
    assert_eq!(gdb.ask("qfThreadInfo"), "m1,2");
    assert_eq!(gdb.ask("?"), "T05thread:1;");
    assert_eq!(gdb.ask("vMustReplyEmpty"), "");
    assert_eq!(gdb.pc(), 0x8020_0000);
    let (main, other) = (at("main"), at("other"));
    // The second hart starts in another function than the first.
    assert_eq!(gdb.ask(&format!("Z0,{main},2")), "OK");
    assert_eq!(gdb.ask(&format!("Z0,{other},2")), "OK");
    assert_eq!(gdb.ask("vCont;c"), "T05thread:1;");
    assert_eq!(format!("{:016x}", gdb.pc()), main);
    assert_eq!(gdb.ask(&format!("z0,{main},2")), "OK");
    assert_eq!(gdb.ask("c"), "T05thread:2;");
    assert_eq!(format!("{:016x}", gdb.pc()), other);
    assert_eq!(gdb.ask("vCont;s:2"), "T05thread:2;");
    let after = gdb.pc() - u64::from_str_radix(&other, 16).expect("an address");
    assert!((2..=4).contains(&after), "a step of {after} bytes");
    // Memory is read, written and read; what is not there is refused.
    let held = at("held");
    assert_ne!(gdb.ask(&format!("m{held},4")), "00000000", "the first hart has checked something");
    assert_eq!(gdb.ask(&format!("m{},8", at("ready"))), "0000000000000000");
    let (scratch, word) = (at("stack"), "78563412");
    assert_eq!(gdb.ask(&format!("M{scratch},4:{word}")), "OK");
    assert_eq!(gdb.ask(&format!("m{scratch},4")), word);
    assert_eq!(gdb.ask("m10,4"), "E14");
    assert_eq!(gdb.ask("Z2,80000000,4"), "", "there are no watchpoints");
    for nonsense in ["m", "mzz,1", "G123", "P999=00", "Z0,", "T99", "vCont;", "p", "é"] {
        assert!(gdb.ask(nonsense).len() <= 12, "{nonsense}");
    }
    assert_eq!(gdb.ask("g").len(), 33 * 16);
    let registers = gdb.ask("g");
    assert_eq!(gdb.ask(&format!("G{registers}")), "OK");
    assert_eq!(gdb.ask(&format!("z0,{other},2")), "OK");
    assert_eq!(gdb.ask("c"), "W00");
    let mut rest = String::new();
    said.read_to_string(&mut rest).expect("the rest");
    let ended = child.wait_with_output().expect("it ends");
    assert!(ended.status.success(), "{rest}");
    assert_eq!(ended.stdout, alone.stdout);
    assert_eq!(cycles(&rest), cycles(&text(&alone.stderr)), "the run is the same with a debugger");
}

#[test]
fn txlinux_boots_and_counts_right() {
    require!(
        can_build(),
        "the cross compiler, the kernel's source or a tool to build it is missing"
    );
    let images = images(&["txlinux"]);
    let image = |name: &str| images.join(name).to_str().expect("UTF-8").to_owned();
    let (kernel, initrd, disk) = (image("Image.txlinux"), image("initrd.cpio"), image("disk.ext2"));
    let run_on = |harts: &str, workload: &str, mode: &str, more: &[&str]| {
        let line = format!("console=ttyS0 quiet workload={workload} size=1 txlinux={mode}");
        let args = ["run", &kernel, "--initrd", &initrd, "--harts", harts, "--append", &line];
        metatm(&[&args[..], &["--json"], more].concat())
    };
    let run = |workload: &str, mode: &str, more: &[&str]| run_on("4", workload, mode, more);
    let (disk, software) = (["--disk", &disk], ["--traps", "software"]);
    let mut runs = vec![
        ("4", "counter", "cx", false),
        ("4", "counter", "all", true),
        ("4", "pmake", "cx", false),
        ("4", "find", "ss", true),
        ("4", "bonnie", "cx", false),
        ("1", "find", "cx", false),
        ("32", "find", "cx", false),
    ];
    if long("metatm") {
        for workload in ["pmake", "netcat", "mab", "configure", "find", "bonnie", "dpunish"] {
            runs.extend(["cx", "all", "ss"].map(|mode| ("4", workload, mode, true)));
        }
    }
    for (harts, workload, mode, in_software) in runs {
        let traps: &[&str] = if in_software { &software } else { &[] };
        let ran = run_on(harts, workload, mode, &[&disk[..], traps].concat());
        let out = text(&ran.stdout);
        let what = format!("{workload} with {harts} harts, txlinux={mode} and {traps:?}");
        assert!(
            ran.status.success() && out.contains(&format!("END {workload} ")),
            "{what}: {out}\n{}",
            text(&ran.stderr)
        );
        let committed = figure(&out, "committed");
        assert!(committed.is_some_and(|n| n > 1000), "{what}: {committed:?}");
    }
    // The same run twice is the same. Those who find the lock taken, because one conflict is enough to take it, are told of.
    let map = images.join("System.map.txlinux");
    let options = ["--profile", "--map", map.to_str().expect("UTF-8")];
    let mode = "cx txlinux_conflicts=1";
    let [first, second] = [1, 2].map(|_| text(&run("counter", mode, &options).stdout));
    assert_eq!(first, second);
    let (_, waited) = first.split_once("region that waited for its lock").expect("the table");
    let most = waited.lines().nth(1).unwrap_or_default();
    assert!(most.contains("txcounter_write+"), "{most}");
    // Random numbers have a source: without one, each of them takes a lock.
    let talks = metatm(&["run", &kernel, "--initrd", &initrd, "--append", "console=ttyS0"]);
    assert!(text(&talks.stdout).contains("random: crng init done"), "{}", text(&talks.stdout));
    // The compiler of pmake, as the cross compiler built it, compiles itself; the result compiles it to the same bytes.
    let ran = run("bootstrap", "cx", &[]);
    let out = text(&ran.stdout);
    assert!(out.contains("END bootstrap ") && !out.contains("FAILED"), "{out}");
    // A device that the workload needs and that is not there.
    let ran = run("bonnie", "cx", &[]);
    let out = text(&ran.stdout);
    assert!(
        out.contains("needs a disk with an ext2 file system") && out.contains("FAILED"),
        "{out}"
    );
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
    let evaluate = |options: &[&str]| {
        let args = ["evaluate", images.to_str().expect("UTF-8"), "--jobs", "2", "--report"];
        let ran = metatm(&[&args[..], &[report.to_str().expect("UTF-8")], options].concat());
        assert!(ran.status.success(), "{}", text(&ran.stderr));
        std::fs::read_to_string(report.join("index.html")).expect("the page")
    };
    let page = evaluate(&["--tables"]);
    for part in ["Table 2", "Table 3: transactions of TxLinux-ss", "<td>netcat", "<td>bonnie"] {
        assert!(page.contains(part), "{part}");
    }
    let page = evaluate(&["--only", "find"]);
    for part in ["Figure 1", "Figure 2", "16 harts", "backoff", "cost of a commit", "<td>find"] {
        assert!(page.contains(part), "{part}");
    }
}
