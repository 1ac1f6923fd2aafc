"""A direct autofs mount: autofs.py MOUNTPOINT HELPER ARGUMENT...

As systemd does for x-systemd.automount, runs the helper in the process group of the autofs mount when a program, which
waits until it has ended, looks at the mount point. Prints what that program reads."""

import ctypes, fcntl, os, subprocess, sys

READY, FAIL = 0x9360, 0x9361

mountpoint, helper = sys.argv[1], sys.argv[2:]
# A group without the programs that look at the mount point.
os.setpgid(0, 0)
requests, written = os.pipe()
options = f"fd={written},pgrp={os.getpgrp()},minproto=5,maxproto=5,direct"
libc = ctypes.CDLL(None, use_errno=True)
if libc.mount(b"test", mountpoint.encode(), b"autofs", 0, options.encode()):
    sys.exit("autofs: " + os.strerror(ctypes.get_errno()))
root = os.open(mountpoint, os.O_RDONLY)
user = subprocess.Popen(["cat", f"{mountpoint}/file"], start_new_session=True)
token = int.from_bytes(os.read(requests, 4096)[8:12], sys.byteorder)
try:
    status = subprocess.call(helper, timeout=100)
finally:
    fcntl.ioctl(root, READY, token)
user.wait()
os.close(root)
sys.exit(status)
