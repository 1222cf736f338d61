//! Files that grow, and files that get another name.

use super::*;

/// A commit of changes of `b`: `c` is moved to `d`, and another file is new.
fn several(top: &Path, number: u32) -> [Delta; 4] {
    let within = patch(top, "a", 10, b"one");
    let size = fs::metadata(top.join("b")).unwrap().len();
    [within, patch(top, "b", size - 2, b"tail"), renamed(top, "c", "d"), put(top, number, "n", "n")]
}

fn commit_all(home: &Home, top: &Path, deltas: &[Delta], durable: bool) -> Result<Option<Summary>> {
    let reads = ReadSet::new(Coverage::default());
    light(home, &grounds(top), deltas, &reads, None, &options(durable))
}

fn append(home: &Home, top: &Path, bytes: &[u8]) -> Result<Summary> {
    let size = fs::metadata(top.join("a")).unwrap().len();
    let done = commit_all(home, top, &[patch(top, "a", size, bytes)], true)?;
    Ok(done.expect("a light commit"))
}

#[test]
fn several_kinds_of_changes_are_one_commit() {
    let rig = Rig::new("grow-mixed");
    let top = rig.top();
    fs::write(top.join("c"), "moved").unwrap();
    let inode = version(&top.join("c")).id;
    let size = PAGES * PAGE as usize;
    let done = commit_all(&rig.home, &top, &several(&top, 1), false).unwrap().unwrap();
    assert_eq!(done.changes, 4);
    assert!(holds(&rig.home, done.id));
    assert_eq!(tree(&top), files(&[("d", "moved"), ("n", "n")]));
    assert_eq!(version(&top.join("d")).id, inode);
    assert_eq!(read(&top, "a", 9, 5), ".one.");
    assert_eq!(fs::metadata(top.join("b")).unwrap().len() as usize, size + 2);
    assert_eq!(read(&top, "b", size - 3, 5), ".tail");
}

/// An outsider is faster at any one of the changes: nothing of the commit is there.
#[test]
fn what_an_outsider_changed_is_a_conflict() {
    for case in 0..5 {
        let rig = Rig::new(&format!("grow-conflict-{case}"));
        let top = rig.top();
        fs::write(top.join("c"), "moved").unwrap();
        let deltas = several(&top, 1);
        let mut expected = vec![("c", "moved")];
        match case {
            0 => {
                use std::io::Write;
                let mut file = fs::OpenOptions::new().append(true).open(top.join("b")).unwrap();
                file.write_all(b"theirs").unwrap();
            }
            1 => {
                fs::write(top.join("d"), "theirs").unwrap();
                expected.push(("d", "theirs"));
            }
            2 => {
                fs::remove_file(top.join("c")).unwrap();
                expected.clear();
            }
            3 => {
                fs::rename(top.join("c"), top.join("e")).unwrap();
                fs::write(top.join("c"), "other").unwrap();
                expected = vec![("c", "other"), ("e", "moved")];
            }
            _ => {
                fs::write(top.join("n"), "theirs").unwrap();
                expected.push(("n", "theirs"));
            }
        }
        let [a, b] = ["a", "b"].map(|name| fs::read(top.join(name)).unwrap());
        let lost = commit_all(&rig.home, &top, &deltas, false);
        assert!(matches!(lost, Err(Error::Conflict(_))), "{case}: {lost:?}");
        assert_eq!(tree(&top), files(&expected), "{case}");
        assert_eq!([a, b], ["a", "b"].map(|name| fs::read(top.join(name)).unwrap()), "{case}");
        // What was called off is not redone.
        let mut rig = rig;
        rig.reboot();
        commit::recover(&rig.home, &Silent).unwrap();
        assert_eq!(tree(&top), files(&expected), "{case}");
    }
}

/// What an outsider appends between the look and the write stays, and what was appended is taken out again.
#[test]
fn what_was_appended_is_taken_out() {
    let rig = Rig::new("grow-out");
    let path = rig.top().join("f");
    let open = || fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    for (now, after) in [
        ("base", "base"),
        ("basetail", "base"),
        ("baseta", "base"),
        ("basetailtheirs", "basetheirs"),
        ("basetheirstail", "basetheirs"),
        ("basetheirs", "basetheirs"),
        ("ba", "ba"),
    ] {
        fs::write(&path, now).unwrap();
        replay::take_tail_back(&open().into(), 4, b"tail").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), after, "{now}");
    }
}

/// Every length that a power cut may have left of a file that was appended to, also with zeros in place of what was
/// not written: recovery makes it whole. What others have cut off or written over stays theirs.
#[test]
fn what_was_appended_is_redone_after_a_power_cut() {
    let mut rig = Rig::new("grow-cut");
    let top = rig.top();
    let size = PAGES * PAGE as usize;
    append(&rig.home, &top, b"first").unwrap();
    let within = patch(&top, "a", size as u64 + 1, b"I");
    commit_all(&rig.home, &top, &[within], true).unwrap().unwrap();
    append(&rig.home, &top, b"second").unwrap();
    let whole = fs::read(top.join("a")).unwrap();
    assert_eq!(&whole[size..], b"fIrstsecond");
    let log = fs::read(rig.dir.join("store/light")).unwrap();
    let file = fs::OpenOptions::new().write(true).open(top.join("a")).unwrap();
    let mut recovers = |tail: &[u8], length: usize| {
        file.set_len(length.min(size) as u64).unwrap();
        file.set_len(length as u64).unwrap();
        file.write_all_at(tail, size as u64).unwrap();
        fs::write(rig.dir.join("store/light"), &log).unwrap();
        rig.reboot();
        let notes = commit::recover(&rig.home, &Silent).unwrap().notes;
        let again = commit::recover(&rig.home, &Silent).unwrap();
        assert_eq!(again, Recovered::default());
        let now = fs::read(top.join("a")).unwrap();
        let same = now.len().min(size);
        assert!(now[..same] == whole[..same]);
        (now.len(), String::from_utf8_lossy(&now[same..]).into_owned(), notes.len())
    };
    let all = || (size + 11, "fIrstsecond".to_owned(), 0);
    for length in 0..=11 {
        for written in 0..=length {
            let found = recovers(&whole[size..size + written], size + length);
            assert_eq!(found, all(), "{length} {written}");
        }
    }
    // As the second record found it.
    assert_eq!(recovers(b"first", size + 5), all());
    // Theirs: cut off before the end that the first one found, something else, something more.
    for (tail, length) in [("theirs", size + 6), ("fIrsttheirs", size + 11), ("", size - 1)] {
        let found = recovers(tail.as_bytes(), length);
        assert_eq!(found, (length, tail.to_owned(), 1), "{length}");
    }
    fs::write(top.join("a"), &whole).unwrap();
    let more = "fIrstsecondmore";
    assert_eq!(recovers(more.as_bytes(), size + 15), (size + 15, more.to_owned(), 0));
}

/// What a durable commit appends to is flushed, unless durable commits of this process have made all of it.
#[test]
fn what_is_appended_to_is_flushed_once() {
    use std::io::Write;
    let rig = Rig::new("grow-settled");
    let top = rig.top();
    let flushes = || {
        let shared = rig.home.attached::<Shared>();
        shared.settled.flushes.load(std::sync::atomic::Ordering::Relaxed)
    };
    append(&rig.home, &top, b"1").unwrap();
    assert_eq!(flushes(), 1, "nothing is known at first");
    append(&rig.home, &top, b"2").unwrap();
    if !crate::version::multigrain() {
        return assert_eq!(flushes(), 2, "nothing ever is");
    }
    append(&rig.home, &top, b"3").unwrap();
    assert_eq!(flushes(), 1);
    let mut file = fs::OpenOptions::new().append(true).open(top.join("a")).unwrap();
    file.write_all(b"theirs").unwrap();
    append(&rig.home, &top, b"4").unwrap();
    append(&rig.home, &top, b"5").unwrap();
    assert_eq!(flushes(), 2, "somebody else appended");
    let size = fs::metadata(top.join("a")).unwrap().len();
    commit_all(&rig.home, &top, &[patch(&top, "a", size, b"6")], false).unwrap().unwrap();
    append(&rig.home, &top, b"7").unwrap();
    assert_eq!(flushes(), 3, "a commit that is not durable appended");
    let all = fs::read(top.join("a")).unwrap();
    assert_eq!(&all[PAGES * PAGE as usize..], b"123theirs4567");
}

/// What a successor finds of a dead process's move, and does: the table of [`moves`].
#[test]
fn a_dead_process_leaves_its_moves_done_or_undone() {
    for reached in [false, true] {
        for theirs in ["", "from", "to", "away"] {
            let rig = Rig::new(&format!("grow-dead-{reached}-{theirs}"));
            let top = rig.top();
            fs::write(top.join("c"), "moved").unwrap();
            let deltas = [put(&top, 1, "n", "n"), renamed(&top, "c", "d")];
            let names = name_targets(&top, &deltas[..1]);
            let moved = moves::target(&grounds(&top), &deltas[1]).unwrap();
            let record = Record {
                names: vec![names[0].record.clone()],
                moves: vec![moved.record()],
                ..Record::empty(1, TxId::from_bits(1))
            };
            names::publish(&names).unwrap();
            if reached {
                moves::publish(std::slice::from_ref(&moved)).unwrap();
            }
            let file = if reached { "d" } else { "c" };
            match theirs {
                "from" if reached => fs::write(top.join("c"), "theirs").unwrap(),
                "to" => {
                    let _ = fs::rename(top.join("d"), top.join("e"));
                    fs::write(top.join("d"), "theirs").unwrap();
                }
                "away" => fs::rename(top.join(file), top.join("e")).unwrap(),
                _ => {}
            }
            let fate = names::finish_or_undo(&record).unwrap();
            let now = tree(&top);
            let expected: &[(&str, &str)] = match (reached, theirs) {
                (false, "to") => &[("c", "moved"), ("d", "theirs")],
                (true, "to") => &[("d", "theirs"), ("e", "moved"), ("n", "n")],
                (true, "from") => &[("c", "theirs"), ("d", "moved"), ("n", "n")],
                (_, "away") => &[("e", "moved"), ("n", "n")],
                _ => &[("d", "moved"), ("n", "n")],
            };
            assert_eq!(now, files(expected), "{reached} {theirs}");
            let undone = !reached && theirs == "to";
            let missing = !reached && theirs != "away";
            let expected =
                if undone { names::Fate::Undone } else { names::Fate::Finished(missing) };
            assert_eq!(fate, expected, "{reached} {theirs}");
        }
    }
}

/// Of a dead process that was to append, somebody else has appended first: nothing of the commit is there.
#[test]
fn a_dead_process_that_somebody_was_faster_than_is_undone() {
    let rig = Rig::new("grow-outgrown");
    let top = rig.top();
    fs::write(top.join("c"), "moved").unwrap();
    let piece = |name: &str, at, old: &[u8], new: &[u8]| FileRecord {
        path: top.join(name).as_os_str().as_bytes().to_vec(),
        id: version(&top.join(name)).id,
        mtime: None,
        pieces: vec![(at, old.to_vec(), new.to_vec())],
    };
    let size = (PAGES as u64) * PAGE;
    let moved = moves::target(&grounds(&top), &renamed(&top, "c", "d")).unwrap();
    let record = Record {
        files: vec![piece("a", 0, b"...", b"one"), piece("b", size, b"", b"tail")],
        moves: vec![moved.record()],
        ..Record::empty(1, TxId::from_bits(1))
    };
    moves::publish(std::slice::from_ref(&moved)).unwrap();
    let [a, b] =
        ["a", "b"].map(|name| fs::OpenOptions::new().write(true).open(top.join(name)).unwrap());
    a.write_all_at(b"one", 0).unwrap();
    assert_eq!(names::finish_or_undo(&record).unwrap(), names::Fate::Finished(false));
    b.write_all_at(b"theirs", size).unwrap();
    assert_eq!(names::finish_or_undo(&record).unwrap(), names::Fate::Undone);
    replay::take_back(&record.files).unwrap();
    assert_eq!(tree(&top), files(&[("c", "moved")]));
    assert_eq!(read(&top, "a", 0, 4), "....");
    assert_eq!(read(&top, "b", size as usize, 6), "theirs");
}

/// A file that has durable bytes in the log is flushed before it is moved, and found at its new name.
#[test]
fn a_file_is_moved_after_durable_commits() {
    let mut rig = Rig::new("grow-moved");
    let top = rig.top();
    append(&rig.home, &top, b"tail").unwrap();
    commit_all(&rig.home, &top, &[renamed(&top, "a", "d")], false).unwrap().unwrap();
    let size = PAGES * PAGE as usize;
    let file = fs::OpenOptions::new().write(true).open(top.join("d")).unwrap();
    file.set_len(size as u64).unwrap();
    rig.reboot();
    let recovered = commit::recover(&rig.home, &Silent).unwrap();
    assert_eq!(recovered.notes, Vec::<String>::new());
    assert_eq!(read(&top, "d", size, 4), "tail");
    assert!(!top.join("a").exists());
}

/// Killed before and after every step: the next one finds all or nothing, and goes on.
#[test]
fn several_kinds_of_changes_killed_at_every_step() {
    for (durable, how) in
        [(false, "kill"), (false, "killafter"), (true, "kill"), (true, "killafter")]
    {
        let mut was_new = 0;
        for step in 1.. {
            let rig = Rig::new(&format!("grow-{how}-{durable}-{step}"));
            let top = rig.top();
            fs::write(top.join("c"), "moved").unwrap();
            let what = if durable { "grow" } else { "several" };
            let status = child(&rig, what, &format!("{how}@{step}")).status().unwrap();
            if step % 2 == 0 {
                commit_to(&rig.home, &top, "a", 3 * PAGE, b"next").unwrap().unwrap();
            } else {
                let recovered = commit::recover(&rig.home, &Silent).unwrap();
                assert_eq!(recovered.notes, Vec::<String>::new());
            }
            let size = PAGES * PAGE as usize;
            let grown = fs::metadata(top.join("b")).unwrap().len() as usize - size;
            let new = grown != 0;
            assert_eq!(read(&top, "b", size - 3, 3 + grown), if new { ".tail" } else { "..." });
            assert_eq!(read(&top, "a", 10, 3), if new { "one" } else { "..." });
            let (old, moved) = ([("c", "moved")], [("d", "moved"), ("n", "n")]);
            let moves = new && !durable;
            assert_eq!(tree(&top), if moves { files(&moved) } else { files(&old) }, "{step}");
            assert!(new || !status.success(), "step {step}: it said it was done");
            assert!(new || was_new == 0, "step {step}: earlier it was done already");
            was_new += usize::from(new);
            assert_eq!(commit::recover(&rig.home, &Silent).unwrap(), Recovered::default());
            if status.success() {
                assert!(step > 8, "{step} steps");
                break;
            }
        }
        assert!(was_new > 1, "{how}: {was_new}");
    }
}

/// What a child of [`several_kinds_of_changes_killed_at_every_step`] commits.
pub(super) fn as_a_child(home: &Home, top: &Path, durable: bool) {
    let deltas = several(top, 1);
    let deltas = if durable { &deltas[..2] } else { &deltas[..] };
    commit_all(home, top, deltas, durable).unwrap().unwrap();
}

/// Several threads append to one file, and rename others: nothing is lost.
#[test]
fn threads_that_append_lose_nothing() {
    let rig = Rig::new("grow-threads");
    let top = rig.top();
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let (rig, top) = (&rig, &top);
            scope.spawn(move || {
                let name = |round: u32| format!("file-{thread}-{round}");
                fs::write(top.join(name(0)), "").unwrap();
                let mut round = 0;
                while round < 50 {
                    let mut reads = ReadSet::new(Coverage::default());
                    let seen = version(&top.join("a"));
                    let dir = top.as_os_str().as_bytes();
                    let outcome = Outcome::Present(seen);
                    reads.note_seen(dir, version(top).id, b"a", outcome, Facets::WRITE);
                    let what = What::Patch {
                        base: seen,
                        writes: vec![(seen.size, vec![b'0' + thread])],
                        size: None,
                        attrs: Default::default(),
                    };
                    let appended = Delta { what, ..patch(top, "a", 0, b"") };
                    let moved = renamed(top, &name(round), &name(round + 1));
                    let deltas = [appended, moved];
                    let options = options(false);
                    match light(&rig.home, &grounds(top), &deltas, &reads, None, &options) {
                        Ok(Some(_)) => round += 1,
                        Err(Error::Conflict(_)) => {}
                        other => panic!("{other:?}"),
                    }
                }
            });
        }
    });
    let all = fs::read(top.join("a")).unwrap();
    let tail = &all[PAGES * PAGE as usize..];
    for thread in 0..4u8 {
        assert_eq!(tail.iter().filter(|&&b| b == b'0' + thread).count(), 50, "{thread}");
        assert!(top.join(format!("file-{thread}-50")).exists());
    }
    assert_eq!((tail.len(), tree(&top).len()), (200, 4));
}
