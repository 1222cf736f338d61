//! Small files that processes of a command read by themselves are what they are natively, whatever is done with them.

use txos_testkit::{Lab, Rendezvous, require, skip};

use super::decided::run;

const PYTHON: &str = "/usr/bin/python3";

/// What a script of Python's prints natively, and in a transaction of several processes.
fn both(prepare: &str, script: &str) -> [String; 2] {
    said_by(PYTHON, prepare, script)
}

/// What a script prints that a program runs, natively and in the library's view.
pub fn said_by(program: &str, prepare: &str, script: &str) -> [String; 2] {
    [true, false].map(|native| {
        let lab = Lab::in_memory();
        let _ = lab.native(prepare);
        std::fs::write(lab.dir().join("script"), script).unwrap();
        let command = format!("{program} ../script; exit $?");
        match native {
            true => lab.native(&command).expect(0).text(),
            false => run(&lab, &["--scope", "."], &command).run().expect(0).text(),
        }
    })
}

/// What the scripts begin with: `opened` gives a number of a file that was read and opened before, as often as it takes.
const BEGINS: &str = r#"
import ctypes, errno, fcntl, mmap, os, select, socket, struct, subprocess, sys
if os.fork() == 0: os._exit(0)
os.wait()
def opened(path, flags=0):
    n = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags); os.read(n, 9)
    if os.fstat(n).st_size: mmap.mmap(n, 0, mmap.MAP_PRIVATE, mmap.PROT_READ).close()
    os.close(n)
    for _ in range(3): os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags))
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
def tried(what, *words):
    try: return what(*words)
    except OSError as e: return errno.errorcode[e.errno]
def child(f):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try: f()
        finally: sys.stdout.flush(); os._exit(0)
    os.waitpid(pid, 0)
"#;

#[test]
fn every_call_on_them_answers_as_natively() {
    require!(skip::has(PYTHON), "no {PYTHON}");
    let script = r#"
size = os.stat('file').st_size
def looks(n):
    print(os.read(n, 5), os.lseek(n, 0, 1), os.pread(n, 4, 10), tried(os.pread, n, 4, size), tried(os.pread, n, 4, -1), os.read(n, 3))
    print(os.lseek(n, -4, 2), os.read(n, 100), os.read(n, 100), os.lseek(n, 100, 2), os.read(n, 1), os.lseek(n, 0, 0), tried(os.lseek, n, -1, 0), tried(os.lseek, n, 0, 7))
    print(tried(os.lseek, n, 3, os.SEEK_DATA), tried(os.lseek, n, 3, os.SEEK_HOLE), tried(os.lseek, n, size, os.SEEK_DATA), os.lseek(n, 2, 0))
looks(opened('file'))
n = opened('file'); os.read(n, 2); print(os.readv(n, [bytearray(3), bytearray(4)]), os.preadv(n, [bytearray(9)], 1), os.read(n, 2))
n = opened('file'); os.read(n, 2); print(os.fstat(n).st_size, os.fstat(n) == os.stat('file'), fcntl.fcntl(n, fcntl.F_GETFL) & os.O_ACCMODE, fcntl.fcntl(n, fcntl.F_GETFD), os.read(n, 2))
n = opened('file'); os.read(n, 2); m = os.dup(n); print(os.read(m, 2), os.read(n, 2), os.lseek(m, 0, 1))
n = opened('file'); os.read(n, 2); m = fcntl.fcntl(n, fcntl.F_DUPFD_CLOEXEC, 50); print(m, os.read(m, 2), os.read(n, 2))
n = opened('file'); m = opened('other'); os.read(n, 3); os.dup2(n, m); print(os.read(m, 4), os.read(n, 4))
n = opened('file'); print(tried(os.write, n, b'x'), tried(os.ftruncate, n, 0), tried(os.listdir, n), tried(os.fchdir, n), tried(os.fsync, n), tried(os.posix_fadvise, n, 0, 0, 0))
n = opened('file'); os.read(n, 3); print(os.readlink(f'/proc/self/fd/{n}').endswith('/file'), os.read(os.open(f'/dev/fd/{n}', 0), 4), os.read(os.open(f'/proc/self/fd/{n}', 0), 4), os.read(n, 4))
os.symlink(f'/proc/self/fd/{opened("file")}', 'link'); print(os.read(os.open('link', 0), 4))
n = opened('file'); os.read(n, 3); to = os.open('copy', os.O_RDWR | os.O_CREAT | os.O_TRUNC); print(os.sendfile(to, n, None, 5), os.copy_file_range(n, to, 6), os.pread(to, 50, 0), os.read(n, 4))
n = opened('file'); print(select.select([n], [], [], 0) == ([n], [], []), [e for _, e in select.poll().poll(0)]); p = select.epoll(); print(tried(p.register, n))
n = opened('file'); os.read(n, 1); m = mmap.mmap(n, 9, mmap.MAP_PRIVATE, mmap.PROT_READ); print(m[:], os.read(n, 3)); os.close(n); print(m[2:5])
n = opened('file'); m = mmap.mmap(n, 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE); m[0:3] = b'XYZ'; print(m[:9], os.read(n, 9), len(m)); m2 = mmap.mmap(n, 9, mmap.MAP_SHARED, mmap.PROT_READ); print(m2[:])
n = opened('pages'); m = mmap.mmap(n, 4096, mmap.MAP_PRIVATE, mmap.PROT_READ, offset=8192); print(m[:4], m[-4:], tried(mmap.mmap, n, 4096, mmap.MAP_PRIVATE, mmap.PROT_WRITE | mmap.PROT_READ | mmap.PROT_EXEC) and 'mapped')
libc = ctypes.CDLL(None, use_errno=True)
n = opened('named'); print(os.readlink(f'/proc/self/fd/{n}')[-6:], os.readlink(f'/proc/self/fd/{opened("name2")}')[-6:])
n = opened('file'); print(libc.read(n, ctypes.c_void_p(8), 5), errno.errorcode[ctypes.get_errno()], os.read(n, 2), libc.read(n, None, 0))
n = opened('file'); os.close(n); print(tried(os.read, n, 1), tried(os.close, n))
n = opened('file'); os.closerange(n, n + 5); print(tried(os.read, n, 1))
n = opened('empty'); print(os.read(n, 1), os.lseek(n, 0, 2))
print(tried(opened, 'file/'), tried(opened, 'none'), tried(opened, 'file', os.O_DIRECTORY), os.read(opened('file', os.O_NOFOLLOW), 3), os.read(opened('to-file'), 3), tried(opened, 'to-file', os.O_NOFOLLOW))
n = opened('file'); print(tried(fcntl.flock, n, fcntl.LOCK_EX), tried(fcntl.lockf, n, fcntl.LOCK_SH | fcntl.LOCK_NB), os.read(n, 2))
n = opened('file'); os.unlink('file'); print(os.read(n, 3), os.fstat(n).st_nlink, tried(os.open, 'file', 0)); m = os.dup(n); print(os.read(m, 3))
"#;
    let prepare = "seq 20 > file; ln -s file to-file; seq 100 > other; : > empty; seq -w 9999 > pages; echo named > named; ln named name2";
    let [native, inside] = both(prepare, &format!("{BEGINS}{script}"));
    assert_eq!(inside, native);
    assert!(native.lines().count() > 25, "{native}");
}

#[test]
fn offsets_are_shared_where_they_are_natively() {
    require!(skip::has(PYTHON), "no {PYTHON}");
    let script = r#"
n = opened('file'); os.read(n, 3)
child(lambda: print('child', os.read(n, 3)))
print(os.read(n, 3))
n = opened('file'); os.read(n, 2); os.set_inheritable(n, True); sys.stdout.flush()
print(subprocess.run(['dd', 'bs=3', 'count=1'], stdin=n, capture_output=True).stdout, os.read(n, 3))
print(subprocess.run(['sh', '-c', f'head -c 4 <&{n}'], pass_fds=[n], capture_output=True).stdout, os.lseek(n, 0, 1))
n = opened('file'); print(subprocess.run(['sh', '-c', f'cat <&{n}'], capture_output=True, close_fds=False).stdout, os.read(n, 3))
n = opened('file'); os.read(n, 3); os.posix_spawn('/bin/cat', ['cat'], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, n, 0)]); print(os.wait()[1], os.read(n, 3))
a, b = socket.socketpair()
def threads():
    import threading
    n = opened('file'); got = []
    all = [threading.Thread(target=lambda: [got.append(os.read(n, 1)) for _ in range(10)]) for _ in range(4)]
    [t.start() for t in all]; [t.join() for t in all]
    print(sorted(got) == sorted(bytes([c]) for c in open('file', 'rb').read(40)), os.lseek(n, 0, 1))
threads()
n = opened('program'); sys.stdout.flush()
child(lambda: os.execve(n, ['sh'], os.environ))
"#;
    let prepare = "seq 20 > file; printf '#!/bin/sh\\necho ran\\n' > program; chmod +x program";
    let [native, inside] = both(prepare, &format!("{BEGINS}{script}"));
    assert_eq!(inside, native);
    assert!(native.contains("child b'\\n3\\n'"), "{native}");
}

#[test]
fn what_others_change_is_seen() {
    require!(skip::has(PYTHON), "no {PYTHON}");
    let script = r#"
def writes(path, text, flags=os.O_WRONLY):
    child(lambda: os.write(os.open(path, flags, 0o644), text))
for at, (flags, text) in enumerate([(os.O_WRONLY, b'AB'), (os.O_WRONLY | os.O_TRUNC, b'XYZ'), (os.O_WRONLY | os.O_APPEND, b'end'), (os.O_RDWR | os.O_CREAT, b'CD')]):
    path = f'file{at}'
    n = opened(path); print(os.read(n, 3))
    writes(path, text, flags)
    print(os.read(n, 4), os.pread(n, 9, 0), os.fstat(n).st_size, os.read(os.open(path, 0), 50))
n = opened('file4'); child(lambda: os.truncate('file4', 4)); print(os.read(n, 50), os.fstat(n).st_size)
n = opened('file5'); child(lambda: os.rename('new', 'file5')); print(os.read(n, 50), os.read(opened('file5'), 50), os.fstat(n).st_nlink)
n = opened('file6'); child(lambda: os.chmod('file6', 0)); print(os.read(n, 5), os.fstat(n).st_mode); child(lambda: os.chmod('file6', 0o644)); print(os.read(n, 5))
n = opened('file7'); child(lambda: os.link('file7', 'name7')); print(os.read(n, 5), os.fstat(n).st_nlink)
writes('name7', b'by another name'); print(os.read(n, 9), os.read(os.open('file7', 0), 50))
n = opened('file8'); w = os.open('file8', os.O_WRONLY)
child(lambda: os.write(w, b'late')); print(os.read(n, 5)); print(os.read(os.open('file8', 0), 9))
def maps():
    m = mmap.mmap(os.open('file9', os.O_RDWR), 9); m[0:4] = b'mmap'
n = opened('file9'); child(maps); print(os.read(n, 9), os.read(os.open('file9', 0), 9))
n = opened('dir/file'); child(lambda: os.rename('dir', 'moved')); print(os.read(n, 5), tried(os.open, 'dir/file', 0), os.read(opened('moved/file'), 5)); child(lambda: (os.mkdir('dir'), writes('dir/file', b'another', os.O_CREAT | os.O_WRONLY))); print(os.read(opened('dir/file'), 9), os.read(n, 5))
"#;
    let prepare = "for n in 0 1 2 3 4 5 6 7 8 9; do seq 20 > file$n; done; echo new > new; mkdir dir; seq 9 > dir/file";
    let [native, inside] = both(prepare, &format!("{BEGINS}{script}"));
    assert_eq!(inside, native);
    assert!(native.contains("b'late"), "{native}");
}

/// Closing a file lets go of what the process has locked of it, by whichever number.
#[test]
fn closing_one_lets_its_locks_go() {
    require!(skip::has(PYTHON), "no {PYTHON}");
    let script = r#"
def is_locked():
    child(lambda: print(tried(fcntl.lockf, os.open('file', os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB)))
n = opened('file'); m = opened('file')
w = os.open('file', os.O_RDWR); fcntl.lockf(w, fcntl.LOCK_EX); is_locked()
os.close(n); is_locked()
fcntl.lockf(w, fcntl.LOCK_EX); is_locked(); os.dup2(0, m); is_locked()
fcntl.lockf(w, fcntl.LOCK_EX); n = opened('file'); is_locked(); os.close(n); is_locked()
"#;
    let [native, inside] = both("seq 20 > file", &format!("{BEGINS}{script}"));
    assert_eq!(inside, native);
    assert_eq!(native.matches("EAGAIN").count(), 2, "{native}");
}

/// A mapping has nothing of other files behind its own pages, however long it is made.
#[test]
fn a_mapping_has_nothing_of_others() {
    require!(skip::has(PYTHON), "no {PYTHON}");
    let script = r#"
os.close(opened('secret'))
n = opened('file'); os.close(opened('secret')); os.close(opened('secret2'))
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
m = libc.mmap(None, ctypes.c_size_t(4096), 1, 2, n, ctypes.c_long(0))
print(ctypes.string_at(m, 4)); sys.stdout.flush()
pid = os.fork()
if pid == 0:
    more = libc.mremap(ctypes.c_void_p(m), ctypes.c_size_t(4096), ctypes.c_size_t(1 << 20), 1)
    memory = ctypes.string_at(more, 1 << 20)
    os._exit(3 if b'secret' in memory or b'hidden' in memory else 0)
status = os.waitpid(pid, 0)[1]
print(os.WIFSIGNALED(status) or status == 0, tried(os.open, 'secret', 0))
"#;
    let lab = Lab::in_memory();
    let _ = lab.native("seq 20 > file; echo secret > secret; echo hidden > secret2; chmod 600 secret*; chmod 755 . ..");
    std::fs::write(lab.dir().join("script"), format!("{BEGINS}{script}")).unwrap();
    let done = run(&lab, &["--scope", "."], &format!("{PYTHON} ../script; exit $?")).run();
    assert_eq!(done.expect(0).text(), "b'1\\n2\\n'\nTrue EACCES\n");
}

/// What was closed, and the server closes later, takes no descriptor from anybody.
#[test]
fn closed_files_take_no_room() {
    require!(skip::has(PYTHON), "no {PYTHON}");
    let script = r#"
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
ready, wait = os.pipe(), os.pipe()
for _ in range(7):
    if os.fork() == 0:
        all = [os.open(f'big{n}', os.O_RDONLY) for n in range(30)]
        [os.close(n) for n in all]
        os.write(ready[1], b'x'); os.close(wait[1]); os.read(wait[0], 1); os._exit(0)
for _ in range(7): os.read(ready[0], 1)
all = [os.open(f'big{n % 30}', os.O_RDONLY) for n in range(60)]
print(len(all)); os.close(wait[1])
"#;
    let prepare = "for n in $(seq 0 29); do head -c 100000 /dev/zero > big$n; done";
    let [native, inside] = both(prepare, &format!("{BEGINS}{script}"));
    assert_eq!(inside, native);
}

/// The content of what one reads is of the transaction's view; that another changed it is found at the commit.
#[test]
fn what_outsiders_change_is_a_conflict_and_not_seen() {
    require!(skip::has(PYTHON), "no {PYTHON}");
    let lab = Lab::in_memory();
    let _ = lab.native("seq 20 > file");
    let script = r#"
n = opened('file'); first = os.read(n, 100)
os.write(8, b'\n'); os.read(9, 1)
print(os.pread(n, 100, 0) == first, os.read(opened('file'), 100) == first)
open('result', 'w').write('done')
"#;
    std::fs::write(lab.dir().join("script"), format!("{BEGINS}{script}")).unwrap();
    let mut outside = Rendezvous::new();
    let command = format!("{PYTHON} ../script; exit $?");
    let started = run(&lab, &["--scope", "."], &command).meeting(&mut outside).start();
    assert!(outside.arrived());
    let _ = lab.native("echo changed > file");
    outside.go();
    let done = started.wait();
    assert_eq!((done.code(), done.text()), (75, "True True\n".to_owned()));
    assert_eq!(lab.native("ls; cat file").expect(0).text(), "file\nchanged\n");
}
