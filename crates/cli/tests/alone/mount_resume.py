"""Programs on a mount whose servers are killed: each checks that all that it did was done, and once.

mount_resume.py DIRECTORY SECONDS SOURCE [PROGRAM...]"""

import ctypes
import fcntl
import mmap
import multiprocessing
import os
import random
import sys
import time
import traceback

end = time.monotonic() + float(sys.argv[2])
libc = ctypes.CDLL(None, use_errno=True)


def turns():
    turn = 0
    while time.monotonic() < end:
        yield turn
        turn += 1


def names(place):
    """Creating, linking, renaming and removing: twice would fail, or not at all."""
    for turn in turns():
        a, b, c = (f"{place}/{letter}{turn}" for letter in "abc")
        os.mkdir(a)
        os.rename(a, b)
        os.rmdir(b)
        file = os.open(a, os.O_CREAT | os.O_EXCL | os.O_RDWR)
        os.write(file, b"x" * 10)
        os.link(a, c)
        os.rename(a, b)
        assert os.fstat(file).st_nlink == 2
        os.setxattr(b, "user.k", b"v", os.XATTR_CREATE)
        os.removexattr(b, "user.k")
        os.unlink(b)
        os.pwrite(file, b"y", 5)
        os.unlink(c)
        assert os.pread(file, 20, 0) == b"xxxxxyxxxx", "an unlinked file"
        os.close(file)
        os.symlink("target", a)
        assert os.readlink(a) == "target"
        os.unlink(a)
        os.mknod(a, 0o600)
        os.unlink(a)
    assert os.listdir(place) == [], os.listdir(place)


def temporary(place):
    for turn in turns():
        file = os.open(place, os.O_TMPFILE | os.O_RDWR)
        os.write(file, b"temporary")
        name = f"{place}/{turn}"
        followed = 0x400
        source = b"/proc/self/fd/%d" % file
        if libc.linkat(-100, source, -100, name.encode(), followed):
            raise OSError(ctypes.get_errno(), "linkat")
        os.close(file)
        os.truncate(name, 4)
        os.chmod(name, 0o400)
        assert open(name, "rb").read() == b"temp"
        os.unlink(name)


def appends(place):
    log, count = f"{place}/log", 0
    file = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    for turn in turns():
        if turn % 7 == 0:
            os.close(file)
            file = os.open(log, os.O_APPEND | os.O_WRONLY)
        assert os.write(file, b"%08d\n" % turn) == 9
        count += 1
    written = open(log, "rb").read().split()
    assert written == [b"%08d" % turn for turn in range(count)], (len(written), count)


def data(place):
    name, size, draw = f"{place}/data", 1 << 20, random.Random(place)
    model = bytearray(size)
    file = os.open(name, os.O_CREAT | os.O_RDWR)
    os.ftruncate(file, size)
    memory = mmap.mmap(file, size)
    for turn in turns():
        at, length, kind = draw.randrange(size - 5000), draw.randrange(1, 5000), draw.randrange(4)
        if kind < 2:
            new = draw.randbytes(length)
            model[at : at + length] = new
            if kind == 0:
                os.pwrite(file, new, at)
            else:
                memory[at : at + length] = new
            continue
        other = os.open(name, os.O_RDONLY) if kind == 2 else file
        assert os.pread(other, length, at) == model[at : at + length], (at, length)
        if kind == 2:
            os.close(other)
        if turn % 500 == 0:
            os.fsync(file)
    memory.close()
    os.close(file)
    assert open(name, "rb").read() == model


def locks(place):
    """Two kinds of locks around a counter that two processes count."""
    file = os.open(f"{os.path.dirname(place)}/counter", os.O_CREAT | os.O_RDWR)
    own = 0
    for own, _ in enumerate(turns(), 1):
        fcntl.flock(file, fcntl.LOCK_EX)
        fcntl.lockf(file, fcntl.LOCK_EX)
        count = int(os.pread(file, 20, 0) or b"0")
        os.pwrite(file, b"%d" % (count + 1), 0)
        fcntl.lockf(file, fcntl.LOCK_UN)
        fcntl.flock(file, fcntl.LOCK_UN)
    return own


def lists(place):
    for number in range(700):
        open(f"{place}/{number:04}-{'z' * 60}", "w").close()
    all = sorted(f"{number:04}-{'z' * 60}" for number in range(700))
    for turn in turns():
        assert sorted(os.listdir(place)) == all, turn
        if turn % 5 == 0:
            for entry in os.scandir(place):
                entry.stat()


def beneath(place):
    """The host changes names in a directory in which a program changes others."""
    host = f"{sys.argv[3]}/{os.path.basename(place)}"
    if os.fork() == 0:
        for turn in turns():
            open(f"{host}/h{turn % 5}", "w").close()
            os.rename(f"{host}/h{turn % 5}", f"{host}/g{turn % 5}")
            os.unlink(f"{host}/g{turn % 5}")
        os._exit(0)
    for turn in turns():
        file = os.open(f"{place}/own", os.O_CREAT | os.O_EXCL)
        os.close(file)
        for number in range(5):
            os.path.exists(f"{place}/h{number}")
        assert "own" in os.listdir(place)
        os.unlink(f"{place}/own")
    os.wait()
    assert os.listdir(place) == [], os.listdir(place)


def run(program, place, said):
    try:
        os.mkdir(place)
        said.put((program.__name__, program(place), None))
    except BaseException:
        said.put((program.__name__, None, traceback.format_exc()))


programs = [names, names, temporary, appends, appends, data, data, locks, locks, lists, beneath]
if sys.argv[4:]:
    programs = [program for program in programs if program.__name__ in sys.argv[4:]]
said = multiprocessing.Queue()
for number, program in enumerate(programs):
    place = f"{sys.argv[1]}/{number}"
    multiprocessing.Process(target=run, args=(program, place, said), daemon=True).start()
counted, failed = 0, False
for _ in programs:
    program, count, error = said.get(timeout=float(sys.argv[2]) + 60)
    counted += count or 0
    if error:
        failed = True
        print(program, error, file=sys.stderr)
counter = int(open(f"{sys.argv[1]}/counter").read())
if not failed and counter != counted:
    failed = True
    print(f"counted to {counter}, by {counted} steps", file=sys.stderr)
sys.exit(failed)
