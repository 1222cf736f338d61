//! Transactions, with the real library: `TXOS_LIB` names it.

// What a test can't do without it says by panicking.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{self, BufRead};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use txos::{Error, Transaction, transaction};

/// A directory that goes with the test.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let top = std::env::var_os("TXOS_TEST_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        let dir = top.join(format!("txos-test-rust-{}-{number}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        Place(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The names in it, as another process sees them.
    fn names(&self) -> String {
        let output = Command::new("ls").arg(&self.0).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Somebody else appends to a file.
    fn outsider(&self, name: &str) {
        let status = Command::new("sh")
            .args(["-c", "echo outsider >> \"$0\""])
            .arg(self.path(name))
            .status()
            .unwrap();
        assert!(status.success());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn ok_commits() {
    let place = Place::new();
    let value = transaction(|tx| -> io::Result<u32> {
        assert!(txos::in_transaction());
        fs::write(place.path("one"), "1")?;
        fs::create_dir(place.path("dir"))?;
        fs::write(place.path("dir/two"), "2")?;
        assert_eq!(tx.pause(|| place.names())?, "");
        Ok(7)
    });
    assert_eq!(value.unwrap(), 7);
    assert!(!txos::in_transaction());
    assert_eq!(place.names(), "dir\none\n");
    assert_eq!(fs::read_to_string(place.path("dir/two")).unwrap(), "2");
}

#[test]
fn an_error_aborts_and_is_passed_on() {
    let place = Place::new();
    fs::write(place.path("old"), "old").unwrap();
    let mut calls = 0;
    let result = transaction(|_| -> io::Result<()> {
        calls += 1;
        fs::write(place.path("old"), "new")?;
        fs::write(place.path("more"), "new")?;
        Err(io::Error::other("no good"))
    });
    assert_eq!(result.unwrap_err().to_string(), "no good");
    assert_eq!((calls, place.names()), (1, "old\n".into()));
    assert_eq!(fs::read_to_string(place.path("old")).unwrap(), "old");
}

#[test]
fn a_panic_aborts_and_goes_on() {
    let place = Place::new();
    let result = std::panic::catch_unwind(|| {
        transaction(|_| -> Result<(), Error> {
            fs::write(place.path("file"), "new").unwrap();
            std::panic::resume_unwind(Box::new("a panic"));
        })
    });
    assert_eq!(*result.unwrap_err().downcast::<&str>().unwrap(), "a panic");
    assert!(!txos::in_transaction());
    assert_eq!(place.names(), "");
}

#[test]
fn a_conflict_is_retried() {
    let place = Place::new();
    fs::write(place.path("file"), "old\n").unwrap();
    let (mut calls, mut changes) = (0, 0);
    let text = transaction(|tx| -> io::Result<String> {
        calls += 1;
        let text = fs::read_to_string(place.path("file"))?;
        if changes < 2 {
            tx.pause(|| place.outsider("file"))?;
            changes += 1;
        }
        fs::write(place.path("copy"), &text)?;
        Ok(text)
    });
    assert_eq!(text.unwrap(), "old\noutsider\noutsider\n");
    assert!(calls >= 3, "{calls}");
    assert_eq!(fs::read_to_string(place.path("copy")).unwrap(), "old\noutsider\noutsider\n");
}

#[test]
fn a_conflict_is_told_in_the_end() {
    let place = Place::new();
    fs::write(place.path("file"), "old\n").unwrap();
    let mut calls = 0;
    let result = Transaction::new().retry(2).run(|tx| -> io::Result<()> {
        calls += 1;
        let text = fs::read(place.path("file"))?;
        tx.pause(|| place.outsider("file"))?;
        fs::write(place.path("copy"), text)
    });
    let error = result.unwrap_err().downcast::<Error>().unwrap();
    assert!(error.is_conflict(), "{error:?}");
    let cause = error.cause().unwrap();
    assert_eq!(cause.path.as_deref(), Some(&*place.path("file")));
    assert!(error.to_string().contains("/file"), "{error}");
    assert_eq!((calls, place.names()), (3, "file\n".into()));
}

/// The closure's error is what it made of the conflict: the conflict counts.
#[test]
fn an_error_after_a_conflict_is_a_conflict() {
    let place = Place::new();
    fs::write(place.path("file"), "old\n").unwrap();
    let (mut calls, mut changed) = (0, false);
    let result = transaction(|tx| -> io::Result<String> {
        calls += 1;
        let _ = fs::metadata(place.path("file"))?;
        if !changed {
            tx.pause(|| place.outsider("file"))?;
            changed = true;
        }
        fs::read_to_string(place.path("file")).map_err(|_| io::Error::other("a consequence"))
    });
    assert_eq!(result.unwrap(), "old\noutsider\n");
    assert!(calls >= 2, "{calls}");
}

#[test]
fn strictness() {
    let place = Place::new();
    let work = |_: &txos::Tx| -> io::Result<()> {
        fs::write(place.path("file"), "new")?;
        Command::new("true").status().map(drop)
    };
    let error = Transaction::new().strict(true).run(work).unwrap_err().downcast::<Error>();
    assert!(matches!(error, Ok(Error::Unsupported(_))), "{error:?}");
    assert_eq!(place.names(), "");
    let before = txos::stats().unwrap();
    Transaction::new().durable(false).run(work).unwrap();
    let after = txos::stats().unwrap();
    assert_eq!(place.names(), "file\n");
    assert_eq!((after.begun - before.begun, after.committed - before.committed), (1, 1));
    assert!(after.unsupported > before.unsupported);
}

#[test]
fn nesting_is_flat() {
    let place = Place::new();
    let inner = |fails: bool| {
        transaction(|_| -> io::Result<()> {
            fs::write(place.path("inner"), "")?;
            if fails { Err(io::Error::other("no good")) } else { Ok(()) }
        })
    };
    let result = transaction(|_| -> Result<(), Error> {
        fs::write(place.path("outer"), "").unwrap();
        let _ = inner(true);
        Ok(())
    });
    assert_eq!(result, Err(Error::Aborted));
    assert_eq!(place.names(), "");
    transaction(|_| -> io::Result<()> {
        fs::write(place.path("outer"), "")?;
        inner(false)
    })
    .unwrap();
    assert_eq!(place.names(), "inner\nouter\n");
}

#[test]
fn pauses_end_with_a_panic() {
    let place = Place::new();
    transaction(|tx| -> io::Result<()> {
        fs::write(place.path("in"), "")?;
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            tx.pause(|| {
                transaction(|_| fs::write(place.path("out"), "")).unwrap();
                std::panic::resume_unwind(Box::new(()));
            })
        }));
        assert!(panicked.is_err() && txos::in_transaction());
        assert_eq!(tx.pause(|| place.names())?, "out\n");
        Ok(())
    })
    .unwrap();
    assert_eq!(place.names(), "in\nout\n");
}

#[test]
fn threads_don_t_lose_increments() {
    let place = Place::new();
    let counter = place.path("counter");
    fs::write(&counter, "0").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..25 {
                    Transaction::new()
                        .durable(false)
                        .retry(u32::MAX)
                        .run(|_| -> io::Result<()> {
                            let n: u32 = fs::read_to_string(&counter)?.parse().unwrap();
                            fs::write(&counter, (n + 1).to_string())
                        })
                        .unwrap();
                }
            });
        }
    });
    assert_eq!(fs::read_to_string(&counter).unwrap(), "100");
}

#[test]
fn threads_take_part() {
    let place = Place::new();
    fs::write(place.path("old"), "x").unwrap();
    transaction(|tx| -> Result<(), Box<dyn std::error::Error>> {
        fs::write(place.path("begun"), "x")?;
        let sum = tx.scope(|scope| {
            let threads = [1, 2, 3].map(|number| {
                let place = &place;
                scope.spawn(move |tx| -> io::Result<u32> {
                    assert!(txos::in_transaction());
                    assert_eq!(fs::read_to_string(place.path("begun"))?, "x");
                    if number == 2 {
                        fs::remove_file(place.path("old"))?;
                        tx.pause(|| fs::write(place.path("paused"), "x")).unwrap()?;
                    }
                    if number == 3 {
                        transaction(|_| fs::write(place.path("inner"), "x"))?;
                    }
                    fs::write(place.path(&format!("made{number}")), "x")?;
                    Ok(number)
                })
            });
            threads.map(|thread| thread.join().unwrap().unwrap().unwrap()).iter().sum::<u32>()
        })?;
        assert_eq!(sum, 6);
        assert_eq!(place.names(), "old\npaused\n");
        Ok(())
    })
    .unwrap();
    assert_eq!(place.names(), "begun\ninner\nmade1\nmade2\nmade3\npaused\n");
}

#[test]
fn what_fails_in_a_thread_aborts() {
    let place = Place::new();
    // A panic.
    let done = std::panic::catch_unwind(|| {
        transaction(|tx| -> Result<(), Error> {
            tx.scope(|scope| {
                scope.spawn(|_| {
                    fs::write(place.path("made"), "x").unwrap();
                    panic!("on purpose");
                });
            })
        })
    });
    assert!(done.is_err() && place.names().is_empty());
    // One that is caught.
    let done = transaction(|tx| -> Result<(), Error> {
        tx.scope(|scope| {
            let thread = scope.spawn(|_| {
                fs::write(place.path("made"), "x").unwrap();
                panic!("on purpose");
            });
            assert!(thread.join().is_err());
        })
    });
    assert!(matches!(done, Err(Error::Aborted)), "{done:?}");
    // A transaction within it.
    let done = transaction(|tx| -> Result<(), Error> {
        tx.scope(|scope| {
            let _ =
                scope.spawn(|_| transaction(|_| Err::<(), _>(io::Error::other("inner")))).join();
        })
    });
    assert!(matches!(done, Err(Error::Aborted)), "{done:?}");
    assert_eq!(place.names(), "");
    // And nothing is left behind.
    transaction(|_| fs::write(place.path("made"), "x")).unwrap();
    assert_eq!(place.names(), "made\n");
}

#[test]
fn the_library_says_its_version() {
    assert_eq!(txos::library_version().unwrap(), env!("CARGO_PKG_VERSION"));
}

#[test]
fn nonblock_does_not_wait() {
    let place = Place::new();
    fs::write(place.path("file"), "old").unwrap();
    transaction(|tx| -> io::Result<()> {
        fs::write(place.path("file"), "mine")?;
        let other = tx.pause(|| {
            let nonblock = Transaction::new().nonblock(true).retry(0);
            nonblock.run(|_| -> io::Result<()> { fs::write(place.path("file"), "other") })
        })?;
        let error = other.unwrap_err().downcast::<Error>().unwrap();
        assert!(error.is_conflict(), "{error}");
        assert_eq!(error.cause().unwrap().pid, Some(std::process::id()));
        Ok(())
    })
    .unwrap();
    assert_eq!(fs::read_to_string(place.path("file")).unwrap(), "mine");
}

#[test]
fn a_timeout_ends_a_closure_that_goes_on() {
    let place = Place::new();
    let short = Transaction::new().timeout(Duration::from_millis(50));
    let mut calls = 0;
    let error = short
        .run(|_| -> io::Result<()> {
            calls += 1;
            fs::write(place.path("file"), "new")?;
            loop {
                fs::metadata(place.path("file"))?;
            }
        })
        .unwrap_err();
    assert_eq!((error.kind(), calls), (io::ErrorKind::TimedOut, 1));
    assert_eq!(error.downcast::<Error>().unwrap(), Error::TimedOut);
    // One that has returned, but late.
    let late = short.run(|_| -> io::Result<()> {
        fs::write(place.path("file"), "new")?;
        std::thread::sleep(Duration::from_secs(2));
        Ok(())
    });
    assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut);
    assert_eq!(place.names(), "");
    // One that is in time.
    let long = Transaction::new().timeout(Duration::MAX).durable(false);
    long.run(|_| fs::write(place.path("file"), "new")).unwrap();
    assert_eq!(place.names(), "file\n");
}

#[test]
fn a_timeout_ends_a_wait() {
    let place = Place::new();
    fs::write(place.path("file"), "old").unwrap();
    transaction(|tx| -> io::Result<()> {
        fs::write(place.path("file"), "mine")?;
        let other = tx.pause(|| {
            let short = Transaction::new().timeout(Duration::from_millis(50)).retry(0);
            short.run(|_| -> io::Result<()> { fs::write(place.path("file"), "other") })
        })?;
        assert_eq!(other.unwrap_err().kind(), io::ErrorKind::TimedOut);
        Ok(())
    })
    .unwrap();
    assert_eq!(fs::read_to_string(place.path("file")).unwrap(), "mine");
}

#[test]
fn ordered_ones_come_in_their_order() {
    let place = Place::new();
    let append = |how: Transaction, text: &str| {
        how.run(|_| -> io::Result<()> {
            let before = fs::read_to_string(place.path("file")).unwrap_or_default();
            fs::write(place.path("file"), before + text)
        })
    };
    append(Transaction::new().ordered_from(9000), "1").unwrap();
    std::thread::scope(|scope| {
        // The later one waits for the other.
        scope.spawn(|| append(Transaction::new().ordered(9002).retry(u32::MAX), "3").unwrap());
        scope.spawn(|| append(Transaction::new().ordered(9001).retry(u32::MAX), "2").unwrap());
    });
    assert_eq!(fs::read_to_string(place.path("file")).unwrap(), "123");
}

#[test]
fn names_are_checked() {
    let long = "é".repeat(128);
    let invalid = |how: Transaction| match how.run(|_| -> Result<(), Error> { unreachable!() }) {
        Err(Error::Failed(cause)) => assert_eq!(cause.errno, 22, "{cause:?}"),
        other => panic!("{other:?}"),
    };
    for wrong in ["", "a\nb", &long] {
        invalid(Transaction::new().name(wrong));
        invalid(Transaction::new().after(&["a", wrong]));
    }
    invalid(Transaction::new().after(&["a"]).ordered(1));
    invalid(Transaction::new().keep_credentials(true).timeout(Duration::from_secs(1)));
    let place = Place::new();
    transaction(|_| -> io::Result<()> {
        invalid(Transaction::new().name("a"));
        invalid(Transaction::new().after(&["a"]));
        fs::write(place.path("file"), "outer")
    })
    .unwrap();
    assert_eq!(place.names(), "file\n");
}

#[test]
fn a_name_is_of_one_transaction() {
    let nothing = |_: &txos::Tx| -> Result<(), Error> { Ok(()) };
    Transaction::new().name("p").run(nothing).unwrap();
    for how in [Transaction::new().after(&["p"]), Transaction::new().after(&["p"]).name("p")] {
        match how.run(nothing) {
            Err(Error::NotProduced(cause)) => assert_eq!(cause.errno, 3, "{cause:?}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_closure_asks_to_be_called_again() {
    let place = Place::new();
    let mut calls = 0;
    transaction(|tx| -> io::Result<()> {
        calls += 1;
        fs::write(place.path("file"), calls.to_string())?;
        if calls < 3 { Err(tx.again("too early").into()) } else { Ok(()) }
    })
    .unwrap();
    assert_eq!(fs::read_to_string(place.path("file")).unwrap(), "3");
    let never = Transaction::new().retry(1).run(|tx| Err::<(), Error>(tx.again("too early")));
    let error = never.unwrap_err();
    assert!(error.is_conflict() && error.to_string().contains("too early"), "{error}");
}

#[test]
fn a_file_that_is_left_over_leads_nowhere() {
    let place = Place::new();
    let mut left = None;
    let refused: io::Result<()> = transaction(|_| {
        left = Some(fs::File::create(place.path("file"))?);
        Err(io::Error::other("no good"))
    });
    assert!(refused.is_err());
    let mut other = fs::File::create(place.path("other")).unwrap();
    let mut left = left.unwrap();
    let error = io::Write::write_all(&mut left, b"text").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(9), "{error}");
    drop(left);
    io::Write::write_all(&mut other, b"text").unwrap();
    assert_eq!(place.names(), "other\n");
}

#[test]
fn files_that_are_left_out() {
    use std::io::Read;
    let place = Place::new();
    let (kept, other) = (place.path("kept.data"), place.path("other"));
    for path in [&kept, &other] {
        fs::write(path, "1").unwrap();
    }
    assert_eq!(txos::leave_out(&place.0, ".data"), Ok(1));
    let mut left = None;
    let done = transaction(|tx| -> io::Result<()> {
        left = Some(fs::File::open(&kept)?);
        let inside = txos::leave_out(&place.0, "").unwrap_err();
        assert_eq!(inside.cause().unwrap().errno, 16, "{inside}");
        tx.pause(|| place.outsider("kept.data"))?;
        Err(io::Error::other("no good"))
    });
    assert!(done.is_err());
    // Its descriptor has outlived the abort.
    let mut text = String::new();
    left.unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "1outsider\n");
    let read_and_write = |name: &str| {
        Transaction::new().retry(0).run(|_| -> io::Result<()> {
            fs::read(place.path(name))?;
            place.outsider(name);
            fs::write(place.path("made"), "x")
        })
    };
    read_and_write("kept.data").unwrap();
    assert!(read_and_write("other").unwrap_err().downcast::<Error>().unwrap().is_conflict());
    let error = txos::leave_out(place.path("none"), "").unwrap_err();
    assert!(error.to_string().contains("none"), "{error}");
}

/// What the standard library makes, or opens, when it is first used, and keeps.
#[test]
fn first_uses_are_not_for_good() {
    let place = Place::new();
    fs::write(place.path("file"), "text").unwrap();
    let hashes = || {
        let map: std::collections::HashMap<u32, u32> = (0..100).map(|n| (n, n + 1)).collect();
        assert_eq!(map[&7], 8);
    };
    let network = || {
        use std::io::{Read, Write};
        use std::net::{TcpListener, TcpStream};
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(server.local_addr().unwrap()).unwrap();
        let (mut accepted, _) = server.accept().unwrap();
        client.write_all(b"x").unwrap();
        accepted.read_exact(&mut [0]).unwrap();
    };
    let processes = || {
        let output = Command::new("echo").arg("text").output().unwrap();
        assert_eq!(output.stdout, b"text\n");
    };
    let streams = || {
        use std::io::Write;
        io::stdout().flush().unwrap();
        io::stderr().write_all(b"").unwrap();
        assert!(io::stdin().lock().lines().next().is_none_or(|line| line.is_ok()));
    };
    let threads = || {
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::spawn(move || send.send(7).unwrap()).join().unwrap();
        assert_eq!(receive.recv(), Ok(7));
    };
    let times = || {
        std::thread::sleep(Duration::from_nanos(1));
        assert!(std::time::SystemTime::now().elapsed().is_ok());
        let panics = std::panic::catch_unwind(|| std::panic::resume_unwind(Box::new(7)));
        assert!(panics.is_err() && std::env::temp_dir().is_absolute());
    };
    let uses: [&(dyn Fn() + std::panic::RefUnwindSafe); 6] =
        [&hashes, &network, &processes, &streams, &threads, &times];
    for use_it in uses {
        for lost in [false, true] {
            let done = Transaction::new().durable(false).retry(0).run(|tx| -> io::Result<()> {
                if lost {
                    fs::read(place.path("file"))?;
                    tx.pause(|| {
                        fs::write(place.path("new"), "text")?;
                        fs::rename(place.path("new"), place.path("file"))
                    })??;
                    fs::read(place.path("file")).unwrap_err();
                }
                let used = std::panic::catch_unwind(use_it);
                assert!(lost || used.is_ok());
                Err(io::Error::other("no good"))
            });
            let error = done.unwrap_err();
            let conflict = error.downcast::<Error>().is_ok_and(|error| error.is_conflict());
            assert_eq!(conflict, lost);
            use_it();
        }
    }
}

/// Writes down what it is told.
struct Ledger {
    told: std::rc::Rc<std::cell::RefCell<String>>,
    answers: fn() -> io::Result<()>,
}

impl txos::Participant for Ledger {
    fn prepare(&mut self) -> io::Result<()> {
        assert!(!txos::in_transaction());
        self.told.borrow_mut().push('p');
        (self.answers)()
    }

    fn commit(&mut self) {
        self.told.borrow_mut().push('c');
    }

    fn abort(&mut self) {
        self.told.borrow_mut().push('a');
    }
}

#[test]
fn participants_decide() {
    let place = Place::new();
    let told = std::rc::Rc::new(std::cell::RefCell::new(String::new()));
    let good: fn() -> io::Result<()> = || Ok(());
    let change = |tx: &txos::Tx, all: &[fn() -> io::Result<()>]| -> io::Result<()> {
        for &answers in all {
            tx.enlist(Ledger { told: told.clone(), answers })?;
        }
        fs::write(place.path("made"), "text")
    };
    let heard = || std::mem::take(&mut *told.borrow_mut());
    transaction(|tx| change(tx, &[good, good])).unwrap();
    assert_eq!((heard(), place.names()), ("ppcc".into(), "made\n".into()));
    fs::remove_file(place.path("made")).unwrap();
    // Each way of not committing.
    let refused =
        transaction(|tx| change(tx, &[good, || Err(io::Error::from_raw_os_error(28)), good]))
            .unwrap_err();
    let refused: Error = *refused.into_inner().unwrap().downcast().unwrap();
    assert!(matches!(&refused, Error::Failed(cause) if cause.errno == 28), "{refused:?}");
    assert_eq!(heard(), "ppaaa");
    let error = transaction(|tx| {
        change(tx, &[good, good])?;
        Err::<(), _>(io::Error::other("changed its mind"))
    });
    assert_eq!((error.unwrap_err().to_string(), heard()), ("changed its mind".into(), "aa".into()));
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        transaction(|tx| change(tx, &[good, || panic!("it panics")]))
    }));
    assert!(panic.is_err());
    assert_eq!(heard(), "ppaa");
    assert_eq!(place.names(), "");
    // A conflict, of the transaction's own and of a participant's: the closure is called again.
    fs::write(place.path("other"), "").unwrap();
    let mut calls = 0;
    transaction(|tx| {
        fs::read(place.path("other"))?;
        calls += 1;
        if calls == 1 {
            place.outsider("other");
        }
        let busy: fn() -> io::Result<()> = || Err(io::ErrorKind::WouldBlock.into());
        change(tx, &[if calls == 2 { busy } else { good }])
    })
    .unwrap();
    assert_eq!((heard(), calls), ("apapc".into(), 3));
    // A transaction in a pause has its own.
    transaction(|tx| -> io::Result<()> {
        change(tx, &[good])?;
        tx.pause(|| transaction(|_| fs::write(place.path("paused"), "")))??;
        assert_eq!(heard(), "");
        Ok(())
    })
    .unwrap();
    assert_eq!(heard(), "pc");
    // A thread that takes part enlists none.
    transaction(|tx| -> io::Result<()> {
        tx.scope(|scope| {
            let part = scope.spawn(|tx| {
                let told = std::rc::Rc::new(std::cell::RefCell::new(String::new()));
                tx.enlist(Ledger { told, answers: || Ok(()) }).is_err()
            });
            assert!(part.join().unwrap().unwrap());
        })?;
        Ok(())
    })
    .unwrap();
}
