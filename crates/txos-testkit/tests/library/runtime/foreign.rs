//! What suites of others have found: programs as they are answer in a command as natively, alone and beside another process.

use rustix::mount::{MountFlags, UnmountFlags};
use txos_testkit::{Lab, Tree, require, skip, system};

use super::decided::{expect_as_natively, run};

/// The program, not what may be found first: that may be a script, and so several processes.
const PYTHON: &str = "/usr/bin/python3";

/// Runs a script of Python's natively, in one process and beside a shell: it says the same, and leaves the same.
fn says_the_same(prepare: &str, script: &str) {
    let natively = {
        let lab = Lab::in_memory();
        let _ = lab.native(prepare);
        std::fs::write(lab.dir().join("script"), script).unwrap();
        (lab.native(&format!("{PYTHON} ../script")).expect(0).text(), Tree::of(lab.tree()))
    };
    for command in [format!("exec {PYTHON} ../script"), format!("{PYTHON} ../script; exit $?")] {
        let lab = Lab::in_memory();
        let _ = lab.native(prepare);
        std::fs::write(lab.dir().join("script"), script).unwrap();
        let done = run(&lab, &["--scope", "."], &command).run().expect(0);
        assert_eq!(done.text(), natively.0, "{command}");
        let names = |tree: &Tree| tree.nodes.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&Tree::of(lab.tree())), names(&natively.1), "{command}");
    }
}

/// Requests that only tell something, or are about the descriptor; and nothing but what the kernel writes is written.
#[test]
fn requests_to_files_and_directories() {
    require!(skip::has(PYTHON), "no {PYTHON}");
    let script = "
import fcntl, os
def tells(name, f):
    try: print(name, f())
    except OSError as e: print(name, e.errno)
def ask(fd, request):
    room = bytearray(b'\\xaa' * 300)
    fcntl.ioctl(fd, request, room)
    last = max((at for at, byte in enumerate(room) if byte != 0xaa), default=-1)
    return last
for fd in (os.open('f', os.O_RDWR), os.open('d', os.O_RDONLY), os.open('new', os.O_RDWR | os.O_CREAT)):
    tells('flags', lambda: ask(fd, 0x80086601))
    tells('block', lambda: ask(fd, 2))
    tells('xattr', lambda: ask(fd, 0x801c581f) <= 27)
    os.set_blocking(fd, False); print(os.get_blocking(fd))
    os.set_blocking(fd, True); print(os.get_blocking(fd))
    if os.path.isfile(fd): tells('clone', lambda: fcntl.ioctl(fd, 0x40049409, fd) * 0)
    tells('owner', lambda: fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid()) or fcntl.fcntl(fd, fcntl.F_GETOWN) == os.getpid())
    tells('signal', lambda: fcntl.fcntl(fd, 11))
    tells('terminal', lambda: os.isatty(fd))
fd = os.open('f', os.O_RDWR)
tells('write', lambda: os.pwritev(fd, [b'one', b'two'], 1, os.RWF_DSYNC | os.RWF_SYNC))
tells('read', lambda: os.preadv(fd, [bytearray(3), bytearray(9)], 0, os.RWF_HIPRI))
tells('closed', lambda: os.pwritev(os.open('f', os.O_RDONLY), [b'x'], 0, os.RWF_DSYNC))
";
    says_the_same("echo content > f; mkdir d", script);
}

/// What of a call is wrong is said, and not done: places before the beginning, sizes beyond all; and what the kernel only reads may
/// be in memory that can't be written to.
#[test]
fn vectors_and_locks() {
    require!(skip::has(PYTHON), "no {PYTHON}");
    let script = "
import ctypes, errno, fcntl, mmap, os, struct
libc = ctypes.CDLL(None, use_errno=True)
libc.preadv.argtypes = libc.pwritev.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_long]
libc.preadv2.argtypes = libc.pwritev2.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_int]
libc.readv.argtypes = libc.writev.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
fd = os.open('f', os.O_RDWR)
room = ctypes.create_string_buffer(64)
def vector(*sizes):
    words = [word for size in sizes for word in (ctypes.addressof(room), size)]
    return (ctypes.c_uint64 * len(words))(*[word & 0xffffffffffffffff for word in words])
def tells(name, answer):
    print(name, answer if answer >= 0 else errno.errorcode[ctypes.get_errno()])
r, w = os.pipe()
for name in ('preadv', 'pwritev'):
    call = getattr(libc, name)
    tells(name, call(fd, vector(3), 1, 0))
    tells(name, call(fd, vector(3), 1, -1))
    tells(name, call(fd, vector(3, -1), 2, 0))
    tells(name, getattr(libc, name + '2')(fd, vector(3), 1, -1, 0))
    tells(name, getattr(libc, name + '2')(fd, vector(3), 1, -2, 0))
    tells(name, getattr(libc, name + '2')(r if name == 'preadv' else w, vector(3), 1, 0, 0))
    tells(name, getattr(libc, name[1:])(fd, vector(-1), 1))
print(os.path.getsize('f'))
page = mmap.mmap(-1, 4096)
page[:32] = struct.pack('hhqqi', fcntl.F_WRLCK, 0, 0, 0, 0).ljust(32, bytes(1))
at = ctypes.addressof(ctypes.c_char.from_buffer(page))
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.mprotect(at, 4096, 1)
libc.fcntl.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
for command in (fcntl.F_SETLK, fcntl.F_SETLKW):
    tells('lock', libc.fcntl(fd, command, at))
os.sys.stdout.flush(); os._exit(0)
";
    says_the_same("seq 100 > f", script);
}

/// One of two paths, or both, by the descriptor of a directory that is not versioned.
#[test]
fn renames_and_links_to_what_is_not_versioned() {
    require!(skip::has(PYTHON), "no {PYTHON}");
    let script = "
import errno, os, tempfile
live = tempfile.mkdtemp(dir='/dev/shm', prefix='tmp-txos-test-')
d = os.open(live, os.O_RDONLY)
open(live + '/p', 'w').close()
def tells(name, f):
    try: print(name, f())
    except OSError as e: print(name, errno.errorcode[e.errno])
tells('path to descriptor', lambda: os.rename(live + '/p', 'x', dst_dir_fd=d))
tells('descriptor to path', lambda: os.rename('x', live + '/y', src_dir_fd=d))
tells('descriptors', lambda: os.rename('y', 'z', src_dir_fd=d, dst_dir_fd=d))
tells('versioned to descriptor', lambda: os.rename('f', 'x', dst_dir_fd=d))
tells('over', lambda: os.rename('f', 'z', dst_dir_fd=d))
tells('back', lambda: os.rename('z', 'g', src_dir_fd=d))
tells('link', lambda: os.link(live + '/z', 'w', dst_dir_fd=d))
tells('link of a versioned one', lambda: os.link('f', 'x', dst_dir_fd=d))
tells('link over', lambda: os.link('f', 'z', dst_dir_fd=d))
print(sorted(os.listdir(live)))
for name in os.listdir(live): os.unlink(name, dir_fd=d)
os.rmdir(live)
";
    says_the_same("echo content > f", script);
    // As mv(1) does it: then it copies.
    let lab = Lab::in_memory();
    let _ = lab.native("echo content > f; mkdir /dev/shm/tmp-txos-test-$$; echo /dev/shm/tmp-txos-test-$$ > ../live");
    let _ = run(&lab, &["--scope", "."], "mv f \"$(cat ../live)\"; test ! -e f").run().expect(0);
    let moved = lab.native("set -e; d=$(cat ../live); cat $d/f; rm -r $d; test ! -e f");
    assert_eq!(moved.expect(0).text(), "content\n");
}

/// A file that was empty is not all hole once something is written to it, and looking at it changes no time.
#[test]
fn sparse_archives_have_what_was_written() {
    let script = "set -e; exec 2>&1
        seq 200 >> empty; seq 30000 >> full; stat -c '%s %b' empty; du -s --apparent-size full | cut -f1
        for f in empty full; do touch -d @5 $f; tar -cSf t.tar $f; tar -xOf t.tar | cmp - $f; rm t.tar; done
        mkdir new; test $(stat -c %b new) = $(stat -c %b old)";
    // It looks up users.
    let _stable = system::stable();
    let lab = Lab::in_memory();
    let native = lab.nested("native");
    for place in [&lab, &native] {
        let _ = place.native("mkdir old; : > empty; seq 1000 > full");
    }
    let natively = native.native(script).expect(0).text();
    assert_eq!(run(&lab, &[], script).run().expect(0).text(), natively);
    expect_as_natively(&lab, &native);
}

/// What a command has made and removed again is gone, and what was linked with it has one name.
#[test]
fn what_was_removed_again_leaves_no_copies() {
    let change = "mkdir d; echo a > d/x; echo b > d/y; cp -al d e; rm -r d e/y; mkdir -p w/e/t; echo c > w/e/t/c; rm -r w";
    for options in [&[][..], &["--retry=0"], &["--keep", "-q"]] {
        let lab = Lab::in_memory();
        let done = run(&lab, options, change).run().expect(0);
        if options.contains(&"--keep") {
            let _ = lab.txos(["commit", done.stderr.trim()]).run().expect(0);
        }
        let left = lab.native(&format!(
            "stat -c '%h %n' e/x; find {} -path '*/new/*' -printf '%P\\n'",
            lab.store().display()
        ));
        assert_eq!(left.text(), "1 e/x\n", "{options:?}");
        let _ = lab.txos(["revert", "@"]).run().expect(0);
        lab.expect_clean();
    }
}

/// On an overlay file system a file of a lower layer is copied when it is opened for writing.
#[test]
fn files_of_a_lower_layer_are_changed_in_place() {
    let lab = Lab::new();
    let base = lab.dir().join("base");
    std::fs::create_dir(&base).unwrap();
    rustix::mount::mount("tmpfs", &base, "tmpfs", MountFlags::empty(), Some(c"mode=755")).unwrap();
    let of = |name: &str| {
        let dir = base.join(name);
        std::fs::create_dir_all(dir.join("d")).unwrap();
        dir.display().to_string()
    };
    let options = format!("lowerdir={},upperdir={},workdir={}", of("l"), of("u"), of("w"));
    for name in ["append", "moved", "patched", "kept", "alone", "linked", "d/deep"] {
        std::fs::write(base.join("l").join(name), "base\n").unwrap();
    }
    let options = std::ffi::CString::new(options).unwrap();
    rustix::mount::mount("overlay", lab.tree(), "overlay", MountFlags::empty(), Some(&*options))
        .unwrap();
    let ran = |options: &[&str], script: &str| {
        let _ = run(&lab, &[&["--scope", "."], options].concat(), script).run().expect(0);
    };
    ran(&[], "echo x >> append; echo x >> d/deep");
    ran(
        &["--retry", "0"],
        "mv moved m2; echo x >> m2; printf X | dd of=patched conv=notrunc status=none",
    );
    let _ = lab
        .txos([
            "run",
            "--in-process",
            "--",
            "dd",
            "of=alone",
            "conv=notrunc",
            "if=append",
            "status=none",
        ])
        .run()
        .expect(0);
    ran(&["--keep", "--name", "k"], "cat kept; echo x >> kept; ln linked l2; echo x >> l2");
    let _ = lab.txos(["commit", "k"]).run().expect(0);
    let all = "cat append d/deep m2 patched alone kept linked l2";
    let text = "base\nx\nbase\nx\nbase\nx\nXase\nbase\nx\nbase\nx\nbase\nx\nbase\nx\n";
    assert_eq!(lab.native(all).text(), text);
    let _ = lab.txos(["revert", "k"]).run().expect(0);
    assert_eq!(lab.native("cat kept linked; test ! -e l2").expect(0).text(), "base\nbase\n");
    // What somebody else has changed meanwhile is a conflict.
    let _ = run(&lab, &["--scope", ".", "--keep", "--name", "c"], "echo y >> kept").run().expect(0);
    let _ = lab.native("setfattr -n user.theirs -v 1 kept");
    let _ = lab.txos(["commit", "c"]).run().expect(75).says("kept");
    for dir in [lab.tree(), &base] {
        rustix::mount::unmount(dir, UnmountFlags::DETACH).unwrap();
    }
}

/// A process has files of the transaction open itself, as others have: offsets, flags and contents are the same for all, over
/// `fork`, `dup` and another program, and modes are what writes leave of them.
#[test]
fn what_was_looked_up_is_looked_up_again_after_a_change() {
    require!(skip::has(PYTHON), "no {PYTHON}");
    let script = r#"
import os, stat, subprocess, sys
ALL = ['.', '..', 'd', 'd/f', 'd/g', 'd/l', 'd/l/x', 'e', 'e/f', 'e/../d/f', 'd/sub/..', 'd/sub/deep', 'big', 'two', '/proc/self/cwd/d/f', 'cwd/f', 'cwd/d/f', 'fd/x', 'no/such']
def tried(f):
    try: return f()
    except OSError as e: return e.strerror
def shown(s): return (oct(s.st_mode), s.st_nlink if stat.S_ISREG(s.st_mode) else '', s.st_size if not stat.S_ISDIR(s.st_mode) else '')
def look(top, path):
    path = path if path.startswith('/') else top + path
    opened = lambda: os.close(os.open(path, os.O_RDONLY))
    return [tried(lambda: shown(os.stat(path))), tried(lambda: shown(os.lstat(path))), os.access(path, os.X_OK), tried(lambda: os.readlink(path)), tried(opened)]
def child(f):
    sys.stdout.flush(); pid = os.fork()
    if pid == 0: f(); sys.stdout.flush(); os._exit(0)
    os.waitpid(pid, 0)
here = os.getcwd() + '/'
def looks(what):
    print('---', what)
    def all(): [print(path, look(top, path)) for top in ['', here] for path in ALL]
    # Asked and answered by several processes, more than once each.
    all(); child(all); all()
def by_other(f): child(f)
looks('at first')
def change(what, f, other=False):
    (by_other if other else lambda f: f())(f); looks(what)
change('mkdir', lambda: os.mkdir('e'))
change('new file', lambda: open('e/f', 'w').write('new'), True)
change('longer', lambda: open('d/f', 'a').write('more'))
change('shorter', lambda: os.truncate('d/f', 2), True)
change('link', lambda: os.link('d/f', 'two'))
change('mode', lambda: os.chmod('d/f', 0o600), True)
change('closed', lambda: os.chmod('d', 0o600))
change('opened', lambda: os.chmod('d', 0o755))
change('symlink', lambda: os.symlink('sub', 'd/l'))
change('below', lambda: os.mkdir('d/sub/x'), True)
change('another one', lambda: (os.symlink('/nowhere', 'd/k'), os.rename('d/k', 'd/l')))
change('moved', lambda: os.rename('d/f', 'd/g'), True)
change('directory moved', lambda: os.rename('d', 'no'))
change('back', lambda: (os.rename('no', 'd'), os.rename('d/g', 'd/f')), True)
change('swapped', lambda: subprocess.run(['/bin/sh', '-c', 'mv d t; mv e d; mv t e']))
change('removed', lambda: os.unlink('two'))
change('truncated', lambda: os.close(os.open('big', os.O_WRONLY | os.O_TRUNC)), True)
change('appended', lambda: subprocess.run(['/bin/sh', '-c', 'echo line >> big']))
change('cwd', lambda: (os.symlink('/proc/self/cwd', 'cwd'), os.chdir('d')))
os.chdir('e' if os.path.exists('e') else '../e'); looks('elsewhere')
os.chdir('..')
change('tree removed', lambda: subprocess.run(['rm', '-r', 'd']), True)
fd = os.open('e', os.O_RDONLY | os.O_DIRECTORY)
change('below a descriptor', lambda: os.rename('e', 'f', src_dir_fd=os.open('.', 0)))
print(tried(lambda: shown(os.stat('f', dir_fd=fd))), tried(lambda: os.stat('e', dir_fd=fd)))
# What is open, as it is now.
a = os.open('small', os.O_RDONLY); b = os.open('small', os.O_RDONLY)
print(shown(os.fstat(a)), os.read(a, 2))
os.chmod('small', 0o640); print(shown(os.fstat(a)), shown(os.fstat(b)))
child(lambda: os.link('small', 'other')); print(shown(os.fstat(a)))
child(lambda: open('small', 'a').write('!')); print(shown(os.fstat(a)), os.read(a, 100), os.read(b, 100))
os.unlink('small'); os.unlink('other'); print(shown(os.fstat(a)), os.read(a, 1))
"#;
    let prepare =
        "mkdir -p d/sub; echo f > d/f; echo big > big; echo small file > small; chmod 777 . d";
    says_the_same(prepare, script);
}

#[test]
fn files_that_several_processes_read_may_be_changed_meanwhile() {
    require!(skip::has(PYTHON), "no {PYTHON}");
    let script = r#"
import fcntl, os, subprocess, sys, threading
# The offset is one for all readers, also while the file becomes another one inside: each byte is read once.
for n in range(60):
    name = 'f%d' % (n % 20)
    open(name, 'a').write('x') if n >= 20 else None
    size = os.stat(name).st_size
    fd = os.open(name, os.O_RDONLY); got = []
    def reads():
        while True:
            some = os.read(fd, 1)
            if not some: break
            got.append(some)
    readers = [threading.Thread(target=reads) for _ in range(2)]
    pid = os.fork()
    if pid == 0:
        w = os.open(name, os.O_WRONLY); os.pwrite(w, b'y', 1)
        if n % 2: os.ftruncate(w, size)
        os._exit(0)
    for r in readers: r.start()
    for r in readers: r.join()
    os.waitpid(pid, 0)
    print(n, len(got) == size, os.lseek(fd, 0, os.SEEK_CUR) == size, os.pread(fd, 3, 0)[1:2]); os.close(fd)
# A lock goes with the descriptor, although nothing else is done afterwards.
def held(lock, unlock):
    up, down = os.pipe(), os.pipe()
    sys.stdout.flush(); pid = os.fork()
    if pid == 0:
        fd = os.open('f1', os.O_RDONLY); os.read(fd, 1); lock(fd); os.write(up[1], b'1'); os.read(down[0], 1)
        unlock(fd); os.write(up[1], b'2'); os.read(down[0], 1); os._exit(0)
    os.read(up[0], 1)
    fd = os.open('f1', os.O_RDWR)
    def tries():
        try: (fcntl.flock if lock is by_flock else fcntl.lockf)(fd, fcntl.LOCK_EX | fcntl.LOCK_NB); return 'free'
        except OSError as e: return e.strerror
    print(tries()); os.write(down[1], b'1'); os.read(up[0], 1); print(tries()); os.close(fd)
    os.write(down[1], b'2'); os.waitpid(pid, 0)
def by_flock(fd): fcntl.flock(fd, fcntl.LOCK_SH)
def by_record(fd): fcntl.lockf(fd, fcntl.LOCK_SH)
def closes(fd): os.close(fd)
def closes_another(fd): os.close(os.open('f1', os.O_RDONLY))
held(by_flock, closes); held(by_record, closes); held(by_record, closes_another)
# Numbers that are used again, by this process and the next.
for n in range(5):
    fd = os.open('f2', os.O_RDONLY); os.read(fd, 1); os.close(fd)
    r, w = os.pipe(); os.write(w, b'p'); print(fd == r, os.read(r, 1)); os.close(r); os.close(w)
    fd = os.open('f2', os.O_RDONLY); more = os.dup(fd); os.close(fd); print(os.read(more, 1), os.dup2(more, fd) == fd)
    os.close(fd); print(subprocess.run(['/bin/sh', '-c', 'cat <&%d' % more], pass_fds=[more], capture_output=True).stdout); os.close(more)
    fd = os.open('f3', os.O_RDONLY); os.close(fd); os.closerange(3, 30)
    try: os.fstat(fd)
    except OSError as e: print(e.strerror)
"#;
    says_the_same(
        "for n in $(seq 0 19); do printf 0123456789abcdefghij > f$n; done; chmod 777 . f*",
        script,
    );
}

#[test]
fn open_files_are_shared_between_processes() {
    require!(skip::has(PYTHON), "no {PYTHON}");
    let script = "
import mmap, os, subprocess, sys
def child(f):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        f(); sys.stdout.flush(); os._exit(0)
    os.waitpid(pid, 0)
def at(fd): return os.lseek(fd, 0, os.SEEK_CUR)
new = os.open('new', os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
os.write(new, b'0123456789')
child(lambda: (os.write(new, b'child'), os.lseek(new, 2, os.SEEK_SET)))
print(at(new), os.read(new, 3), os.fstat(new).st_size)
other = os.dup2(new, 40); more = os.dup(new)
print(os.read(other, 2), at(new), at(more)); os.close(other)
subprocess.run(['/bin/sh', '-c', 'echo shell >&7; cat <&7'], pass_fds=[os.dup2(new, 7)])
print(at(new), os.pread(new, 100, 0))
log = os.open('log', os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
for n in range(3):
    os.write(log, b'own\\n'); child(lambda: os.write(log, b'childs\\n')); subprocess.run(['/bin/echo', 'program'], stdout=log)
print(open('log').read(), os.pwrite(log, b'end', 0))
try: os.read(log, 1)
except OSError as e: print(e)
# Changed by one while another one reads.
old = os.open('old', os.O_RDONLY); print(os.read(old, 4))
child(lambda: open('old', 'r+').write('NEW CONTENT THAT IS LONGER'))
print(os.read(old, 4), at(old), os.pread(old, 100, 0))
both = os.open('old', os.O_RDWR); os.lseek(both, 3, 0); child(lambda: print(os.read(both, 4)))
os.ftruncate(both, 5); print(at(both), os.read(both, 9), os.lseek(both, 0, os.SEEK_END))
os.unlink('new'); os.write(new, b'nameless'); print(os.pread(new, 8, at(new) - 8), os.fstat(new).st_nlink)
m = mmap.mmap(both, 5, mmap.MAP_PRIVATE); print(m[:]); os.pwrite(both, b'#', 0); m.close()
# Flags, as one sets them.
import fcntl
fcntl.fcntl(both, fcntl.F_SETFL, os.O_APPEND); os.lseek(both, 0, 0); child(lambda: os.write(both, b'appended'))
print(at(both), open('old').read())
# What a write takes.
tool = os.open('tool', os.O_RDWR | os.O_CREAT, 0o755); os.write(tool, b'x'); os.chmod('tool', 0o6755)
print(oct(os.fstat(tool).st_mode)); os.setegid(1); os.seteuid(1); os.write(tool, b'y'); print(oct(os.fstat(tool).st_mode))
";
    says_the_same("echo old content > old; chmod 666 old; chmod 777 .", script);
}
