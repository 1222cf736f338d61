//! Entry points for fuzzing, as `txos_engine::fuzzing`: what the supervisor reads of the programs in
//! a transaction, which may be anything.

use txos_engine::fuzzing::{Input, Target};
use txos_engine::path::lexically_normal;

use crate::session::channel::{News, Order};
use crate::supervisor::process::Status;
use crate::supervisor::{execute, sockets};

/// Every target of this crate.
pub const TARGETS: &[Target] = &[
    Target { name: "execute", run: run_execute, seeds: execute_seeds },
    Target { name: "supervisor", run: run_supervisor, seeds: supervisor_seeds },
    Target { name: "channel", run: run_channel, seeds: channel_seeds },
];

/// A program's first bytes, and bytes at any place that they name.
fn run_execute(bytes: &[u8]) {
    let read = |at: u64, len: usize| {
        let start = usize::try_from(at).ok()?;
        let end = start.saturating_add(len.min(4096)).min(bytes.len());
        bytes.get(start..end).map(<[u8]>::to_vec)
    };
    let head = bytes.get(..bytes.len().min(4096)).unwrap_or_default();
    let _ = execute::parse(head, read);
}

fn execute_seeds() -> Vec<Vec<u8>> {
    let elf = |class: u8, size: usize| {
        let mut elf = vec![0u8; 200];
        let mut put = |at: usize, bytes: &[u8]| {
            if let Some(to) = elf.get_mut(at..at + bytes.len()) {
                to.copy_from_slice(bytes);
            }
        };
        put(0, b"\x7fELF");
        put(4, &[class]);
        let (table, entry, count) = if class == 2 { (32, 54, 56) } else { (28, 42, 44) };
        put(table, &[64]);
        put(entry, &[size as u8]);
        put(count, &[1]);
        put(64, &[3]);
        put(if class == 2 { 72 } else { 68 }, &[150]);
        put(if class == 2 { 96 } else { 80 }, &[8]);
        put(150, b"/lib/ld\0");
        elf
    };
    vec![b"#! /bin/sh -e\n".to_vec(), elf(2, 56), elf(1, 32)]
}

/// Addresses of sockets, `/proc/PID/status`, `/proc/PID/stat`, paths.
fn run_supervisor(bytes: &[u8]) {
    let mut input = Input(bytes);
    let which = input.byte();
    let rest = input.rest();
    match which % 4 {
        0 => drop(sockets::parse(rest)),
        1 => drop(Status::parse(&String::from_utf8_lossy(rest))),
        2 => drop(crate::session::tree::parse_stat(1, rest)),
        _ => {
            let path = lexically_normal(rest);
            assert!(path.starts_with(b"/") && lexically_normal(&path) == path);
            assert!(!path.split(|b| *b == b'/').any(|part| part == b".." || part == b"."));
        }
    }
}

fn supervisor_seeds() -> Vec<Vec<u8>> {
    [
        &b"\x00\x01\x00/run/socket\0"[..],
        b"\x00\x02\x00\x00\x50\x0a\x00\x00\x01",
        b"\x00\x0a\x00\x00\x50\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x02",
        b"\x01Name:\tx\nTgid:\t7\nUid:\t1\t2\t3\t4\nGid:\t1\t2\t3\t4\nGroups:\t5 6 \nCapEff:\t1f\n",
        b"\x0242 (a) R (b)) S 1 42 42 0 -1",
        b"\x03/a/./b//../c/",
    ]
    .map(<[u8]>::to_vec)
    .into()
}

/// What monitor and reaper report to each other.
fn run_channel(bytes: &[u8]) {
    let mut input = Input(bytes);
    let which = input.byte();
    let rest = input.rest();
    if which & 1 == 0 {
        if let Ok(news) = serde_json::from_slice::<News>(rest) {
            let again = serde_json::to_vec(&news).unwrap_or_default();
            assert!(serde_json::from_slice::<News>(&again).is_ok());
        }
    } else {
        let _ = serde_json::from_slice::<Order>(rest);
    }
}

fn channel_seeds() -> Vec<Vec<u8>> {
    [
        &br#"0{"Ready":{"mount_namespace":1,"left_live":[["/a","why"]]}}"#[..],
        br#"0{"NotPrepared":{"step":"x","errno":1}}"#,
        br#"0{"Exited":{"status":9}}"#,
        br#"1{"Signal":15}"#,
    ]
    .map(<[u8]>::to_vec)
    .into()
}
