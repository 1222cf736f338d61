"""A file system that a user serves: mounted as fusermount does it, for all to see, then served as that user.

served.py POINT UID HOW LOG, where HOW is
  silent   nobody who looks into it is answered
  stuck    there are `file` and `dir`; who looks for a name that begins with `stuck` waits for ever
Each request is a line of LOG: the number of the operation, the node, and the name if there is one.
"""
import ctypes, os, stat, struct, sys

point, uid, mode = sys.argv[1], int(sys.argv[2]), sys.argv[3]
device = os.open("/dev/fuse", os.O_RDWR)
libc = ctypes.CDLL(None, use_errno=True)
data = f"fd={device},rootmode=40000,user_id={uid},group_id={uid},allow_other".encode()
if libc.mount(b"txos-attack", point.encode(), b"fuse", 6, data):
    sys.exit("mount: " + os.strerror(ctypes.get_errno()))
os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)

def attributes(node):
    kind = (stat.S_IFREG | 0o4755) if node == 2 else (stat.S_IFDIR | 0o755)
    owner = 0 if node == 2 else uid
    return struct.pack("<QQQQQQIIIIIIIIII", node, 4, 1, 1, 1, 1, 0, 0, 0, kind, 1, owner, owner, 0, 4096, 0)

def answer(opcode, node, body):
    if opcode == 26: # INIT
        return struct.pack("<IIIIHHIIHHI", 7, 31, 0, 0, 16, 8, 1 << 16, 1, 0, 0, 0) + bytes(28)
    if mode == "silent":
        return None
    if opcode == 1: # LOOKUP
        name = body.split(b"\0")[0]
        if name.startswith(b"stuck"):
            return None
        found = {b"file": 2, b"dir": 3}.get(name)
        if found is None:
            return -2
        return struct.pack("<QQQQII", found, 0, 0, 0, 0, 0) + attributes(found)
    if opcode == 3: # GETATTR
        return struct.pack("<QII", 0, 0, 0) + attributes(node)
    if opcode in (14, 27): # OPEN, OPENDIR
        return struct.pack("<QII", 0, 1, 0)
    if opcode == 15: # READ
        return b"#!/x" if body[8:16] == bytes(8) else b""
    if opcode == 28: # READDIR
        return b""
    if opcode == 17: # STATFS
        return struct.pack("<QQQQQIIII", 1, 1, 1, 1, 1, 4096, 255, 4096, 0) + bytes(24)
    if opcode in (18, 25, 29): # RELEASE, FLUSH, RELEASEDIR
        return b""
    if opcode in (2, 36, 42): # FORGET, INTERRUPT, BATCH_FORGET
        return None
    return -38

print("serving", flush=True)
while True:
    try:
        request = os.read(device, 1 << 17 | 4096)
    except OSError as e:
        if e.errno in (2, 4): continue
        break
    _, opcode, unique, node = struct.unpack_from("<IIQQ", request)
    with open(sys.argv[4], "a") as log:
        print(opcode, node, request[40:60], file=log)
    said = answer(opcode, node, request[40:])
    if said is None: continue
    if isinstance(said, int): out = struct.pack("<IiQ", 16, said, unique)
    else: out = struct.pack("<IiQ", 16 + len(said), 0, unique) + said
    try: os.write(device, out)
    except OSError: pass
