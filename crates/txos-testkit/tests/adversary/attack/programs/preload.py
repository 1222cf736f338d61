import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
NEWNS, NEWUSER, BIND, REC, PRIVATE = 0x20000, 0x10000000, 4096, 16384, 1 << 18
here, secret, how = os.getcwd(), sys.argv[1], sys.argv[2]
uid, gid = os.getuid(), os.getgid()
def must(r):
    if r != 0: raise OSError(ctypes.get_errno(), 'failed')
def write(path, text):
    with open(path, 'w') as f: f.write(text)
if how != 'plain':
    must(libc.unshare(NEWUSER | (NEWNS if 'mount' in how else 0)))
    write('/proc/self/setgroups', 'deny'); write('/proc/self/uid_map', f'0 {uid} 1'); write('/proc/self/gid_map', f'0 {gid} 1')
new = here + '/root'
os.makedirs(new + '/etc', exist_ok=True); os.makedirs(new + '/all', exist_ok=True)
try: os.unlink(new + '/etc/ld.so.preload')
except FileNotFoundError: pass
if 'mount' in how:
    must(libc.mount(b'/', (new + '/all').encode(), None, BIND | REC, None))
    os.symlink('/all' + secret, new + '/etc/ld.so.preload')
else:
    os.symlink(os.path.relpath(secret, new + '/etc'), new + '/etc/ld.so.preload')
if how != 'plain': os.chroot(new); os.chdir('/')
for program in ['/nowhere', '/etc/ld.so.preload', '/etc']:
    for look in range(2):
        if look == 0:
            try: os.execv(program, ['x'])
            except OSError: pass
        os.access('/etc/ld.so.preload', os.R_OK)
        try:
            fd = os.open('/etc/ld.so.preload', os.O_RDONLY | os.O_CLOEXEC)
            print('read', os.read(fd, 65536)); os.close(fd)
        except OSError as e: print(e.strerror)
