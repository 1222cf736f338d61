"""A process in a user namespace whose identifiers are several ranges, as newuidmap writes them.

ranges.py SECRET PID...: root of that namespace, and its user 1000, read SECRET and signal each process.
"""
import ctypes, os, signal, sys

secret, targets = sys.argv[1], [int(pid) for pid in sys.argv[2:]]
libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000

told, tell = os.pipe()
go_read, go = os.pipe()
child = os.fork()
if child == 0:
    if libc.unshare(CLONE_NEWUSER | CLONE_NEWNS):
        print("unshare:", os.strerror(ctypes.get_errno()), flush=True)
        os._exit(1)
    os.write(tell, b"x")
    os.read(go_read, 1)
    for inside in (0, 1000):
        pid = os.fork()
        if pid == 0:
            os.setgroups([]); os.setresgid(inside, inside, inside); os.setresuid(inside, inside, inside)
            try: print(inside, open(secret).read().strip())
            except OSError as e: print(inside, e.strerror)
            for number, target in enumerate(targets):
                try: os.kill(target, signal.SIGUSR1); print(inside, number, "signalled")
                except OSError as e: print(inside, number, e.strerror)
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(pid, 0)
    os._exit(0)
os.read(told, 1)
for name in ("uid_map", "gid_map"):
    with open(f"/proc/{child}/{name}", "w") as out:
        out.write("0 100000 1000\n1000 1000 1\n")
os.write(go, b"x")
sys.exit(os.waitpid(child, 0)[1] >> 8)
