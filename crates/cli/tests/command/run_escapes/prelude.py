"""Attempts to escape: each is a function, which runs in a process of its own. What it returns, or the name of
the error, is printed after its name."""
import array, ctypes, errno, fcntl, json, mmap, os, signal, socket, stat, struct, sys, threading, time

place = json.loads(sys.argv[1])
tree, around, sibling = place["tree"], place["around"], place["sibling"]
# Outside of the sandbox, with what the attempts need.
is_control = place["control"]
libc = ctypes.CDLL(None, use_errno=True)
PIVOT_ROOT, KEYCTL = {"x86_64": (155, 250), "aarch64": (41, 219)}[os.uname().machine]
OPEN_TREE, MOVE_MOUNT, FSOPEN, FSCONFIG, FSPICK = 428, 429, 430, 431, 433
PIDFD_GETFD, MOUNT_SETATTR = 438, 442
NEWNS, NEWCGROUP, NEWUSER, NEWPID, NEWNET = 0x20000, 0x2000000, 0x10000000, 0x20000000, 0x40000000
RDONLY, NOSUID, REMOUNT, BIND, MOVE, REC, PRIVATE = 1, 2, 32, 4096, 8192, 16384, 1 << 18
FORCE, DETACH, EXPIRE = 1, 2, 4
AT_FDCWD, AT_RECURSIVE, AT_EMPTY_PATH = -100, 0x8000, 0x1000


def call(function, *args):
    args = [os.fsencode(it) if isinstance(it, str) else it for it in args]
    args = [ctypes.c_long(it) if isinstance(it, int) else it for it in args]
    result = function(*args)
    if result == -1:
        raise OSError(ctypes.get_errno(), "call")
    return result


def system(number, *args):
    return call(libc.syscall, number, *args)


def call_of_32_bits(number, first, second, third):
    if os.uname().machine != "x86_64":
        raise OSError(errno.EPERM, "")
    page = mmap.mmap(-1, 4096, prot=7)
    # push %rbx; mov …, %eax; mov …, %ebx; mov …, %ecx; mov …, %edx; int $0x80; pop %rbx; ret
    page.write(struct.pack("<BBIBIBIBI4B", 0x53, 0xB8, number, 0xBB, first, 0xB9, second, 0xBA, third,
                           0xCD, 0x80, 0x5B, 0xC3))
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    result = ctypes.CFUNCTYPE(ctypes.c_int)(address)()
    if result < 0:
        raise OSError(-result, "")


def mount(source, target, kind, flags=0, data=None):
    call(libc.mount, source, target, kind, flags, data)


def umount(path, flags=0):
    call(libc.umount2, path, flags)


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def read(path, at=None):
    file = os.open(path, os.O_RDONLY, dir_fd=at)
    return os.read(file, 1000).decode()


def secret(at=None):
    return read(tree + "/.env") if at is None else read(".env", at)


def become_root(more=0):
    """Root of a new user namespace, with mounts of its own; outside, of the namespace that it has."""
    uid, gid = os.getuid(), os.getgid()
    call(libc.unshare, NEWNS | more | (0 if is_control else NEWUSER))
    try:
        if not is_control:
            write("/proc/self/setgroups", "deny")
            write("/proc/self/uid_map", f"0 {uid} 1")
            write("/proc/self/gid_map", f"0 {gid} 1")
    except PermissionError:
        # The id 0 of the sandbox cannot be mapped (user_namespaces(7)). It has the capabilities all the same.
        assert uid == 0
    mount(None, "/", None, REC | PRIVATE)


def directory(name="x"):
    path = f"/tmp/{name}-{os.getpid()}"
    os.mkdir(path)
    return path


def attempt(function):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            said = function()
        except OSError as error:
            said = errno.errorcode.get(error.errno, error)
        except BaseException as error:
            said = repr(error)
        print(f"{function.__name__}: {said or 'done'}", flush=True)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        print(f"{function.__name__}: killed by {os.WTERMSIG(status)}", flush=True)


def as_root(function):
    """The same as root of a user namespace."""
    def attempted():
        become_root()
        return function()
    attempted.__name__ = function.__name__
    return attempt(attempted)
