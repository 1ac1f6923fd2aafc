"""Exchanges two names while a file is opened for the first time, before open(2) returns."""
import ctypes, os, struct, sys

CLASS_CONTENT, CLOEXEC, MARK_ADD = 4, 1, 1
OPEN_PERM, ONDIR = 0x10000, 0x40000000
ALLOW, EXCHANGE, HERE = 1, 2, -100
EVENT = struct.Struct("=IBBHQii")

libc = ctypes.CDLL(None, use_errno=True)
watched, one, other = (os.fsencode(path) for path in sys.argv[1:])
group = libc.fanotify_init(CLASS_CONTENT | CLOEXEC, os.O_RDONLY)
mask = ctypes.c_uint64(OPEN_PERM | ONDIR)
if group < 0 or libc.fanotify_mark(group, MARK_ADD, mask, HERE, watched) != 0:
    sys.exit(os.strerror(ctypes.get_errno()))
print("marked", flush=True)
exchanged = False
while True:
    for *_, file, _ in EVENT.iter_unpack(os.read(group, EVENT.size)):
        if not exchanged:
            exchanged = libc.renameat2(HERE, one, HERE, other, EXCHANGE) == 0
            print("exchanged", flush=True)
        os.write(group, struct.pack("iI", file, ALLOW))
        os.close(file)
