read_only = place["read_only"]
if is_control:
    # One namespace: an empty directory over the tree, and a read-only mount.
    call(libc.unshare, NEWUSER | NEWNS)
    write("/proc/self/setgroups", "deny")
    write("/proc/self/uid_map", f"0 {place['uid']} 1")
    write("/proc/self/gid_map", f"0 {place['uid']} 1")
    mount(None, "/", None, REC | PRIVATE)
    mount("none", "/tmp", "tmpfs")
    mount(directory("empty"), tree, None, BIND)
    mount(read_only, read_only, None, BIND)
    mount(None, read_only, None, BIND | REMOUNT | RDONLY)


def every(paths, function):
    said = set()
    for path in paths:
        try:
            function(path)
            said.add("done")
        except OSError as error:
            said.add(errno.errorcode[error.errno])
    return " ".join(sorted(said))


@attempt
def umount_as_the_user():
    if is_control:
        become_root()
    umount(tree)


@as_root
def umount_tree():
    umount(tree)
    return secret()


@as_root
def umount_tree_lazily():
    umount(tree, DETACH)
    return secret()


@as_root
def umount_tree_by_force():
    umount(tree, FORCE)
    return secret()


@as_root
def umount_tree_when_unused():
    umount(tree, EXPIRE)
    return secret()


@as_root
def umount_others():
    places = ["/proc", "/tmp", "/var/tmp", "/run", "/dev", "/dev/pts", "/dev/shm", "/dev/null"]
    return every(places, lambda path: umount(path, DETACH))


@as_root
def bind_around():
    here = directory()
    mount(around, here, None, BIND)
    return read(here + "/tree/.env")


@as_root
def bind_around_with_its_mounts():
    here = directory()
    mount(around, here, None, BIND | REC)
    umount(here + "/tree", DETACH)
    return read(here + "/tree/.env")


@as_root
def detach_around_and_look_by_a_descriptor():
    here = directory()
    mount(around, here, None, BIND | REC)
    held = os.open(here, os.O_RDONLY)
    umount(here, DETACH)
    return read("tree/.env", held)


@as_root
def clone_around():
    clone = system(OPEN_TREE, AT_FDCWD, around, 1)
    return read("tree/.env", clone)


@as_root
def clone_around_with_its_mounts():
    clone = system(OPEN_TREE, AT_FDCWD, around, 1 | AT_RECURSIVE)
    here = directory()
    system(MOVE_MOUNT, clone, "", AT_FDCWD, here, 4)
    umount(here + "/tree", DETACH)
    return read(here + "/tree/.env")


@as_root
def move_tree():
    mount(tree, directory(), None, MOVE)
    return secret()


@as_root
def move_tree_by_move_mount():
    system(MOVE_MOUNT, AT_FDCWD, tree, AT_FDCWD, directory(), 0)
    return secret()


@as_root
def mount_beneath_the_tree():
    empty = directory()
    mount("none", empty, "tmpfs")
    system(MOVE_MOUNT, AT_FDCWD, empty, AT_FDCWD, tree, 0x200)


def leave_all_mounts():
    """Returns a descriptor of the directory around."""
    held = os.open(around, os.O_RDONLY)
    new = directory()
    mount("none", new, "tmpfs")
    os.chdir(new)
    system(PIVOT_ROOT, ".", ".")
    umount(".", DETACH)
    return held


@as_root
def pivot_root_and_look_by_a_descriptor():
    held = leave_all_mounts()
    return read("tree/.env", held)


@as_root
def overlay_of_around():
    here, other = directory(), directory("y")
    mount("overlay", here, "overlay", 0, f"lowerdir={around}:{other}")
    return read(here + "/tree/.env")


@as_root
def overlay_of_tree():
    here, other = directory(), directory("y")
    mount("overlay", here, "overlay", 0, f"lowerdir={tree}:{other}")
    return read(here + "/.env")


@as_root
def change_root_and_leave():
    held = os.open("/", os.O_RDONLY)
    os.chroot(around)
    os.fchdir(held)
    for _ in range(20):
        os.chdir("..")
    return read(tree[1:] + "/.env")


@as_root
def write_to_read_only():
    write(read_only + "/file", "")


@as_root
def remount_read_only_writable():
    mount(None, read_only, None, BIND | REMOUNT)
    write(read_only + "/new", "")
    os.unlink(read_only + "/new")


@as_root
def remount_read_only_by_mount_setattr():
    system(MOUNT_SETATTR, AT_FDCWD, read_only, 0, struct.pack("QQQQ", 0, RDONLY, 0, 0), 32)
    write(read_only + "/new", "")
    os.unlink(read_only + "/new")


@as_root
def let_the_tree_have_set_user_id_programs():
    system(MOUNT_SETATTR, AT_FDCWD, tree, 0, struct.pack("QQQQ", 0, NOSUID, 0, 0), 32)


@as_root
def reconfigure_the_tree():
    picked = system(FSPICK, AT_FDCWD, tree, 0)
    system(FSCONFIG, picked, 7, None, None, 0)


@as_root
def open_a_disk_file_system():
    context = system(FSOPEN, "ext4", 0)
    system(FSCONFIG, context, 6, None, None, 0)


@as_root
def mount_fuse():
    device = os.open("/dev/fuse", os.O_RDWR)


@attempt
def mount_proc():
    become_root(NEWPID)
    child = os.fork()
    if child == 0:
        here = directory()
        mount("proc", here, "proc")
        print("mount_proc_shows:", sum(name.isdigit() for name in os.listdir(here)), "process")
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)


@attempt
def mount_sys_writable():
    become_root(NEWNET)
    mount("sysfs", directory(), "sysfs")


@as_root
def make_a_device():
    os.mknod(directory() + "/kmem", 0o600 | stat.S_IFCHR, os.makedev(1, 1))


class Handle(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint), ("kind", ctypes.c_int), ("bytes", ctypes.c_ubyte * 128)]


def handle(kind, data):
    return Handle(len(data), kind, (ctypes.c_ubyte * 128)(*data))


def open_handle(at, handle, flags=0):
    return call(libc.open_by_handle_at, at, ctypes.byref(handle), os.O_RDONLY | flags)


def secret_by_handle(at):
    """Without CAP_DAC_READ_SEARCH outside, handles open directories alone (Linux 6.11)."""
    of_tree = handle(place["tree_handle"][0], bytes.fromhex(place["tree_handle"][1]))
    return read(".env", open_handle(os.open(at, os.O_RDONLY), of_tree, os.O_DIRECTORY))


def file_by_handle():
    of_file = handle(place["handle"][0], bytes.fromhex(place["handle"][1]))
    return open_handle(os.open(around, os.O_RDONLY), of_file)


@attempt
def open_by_handle_as_the_user():
    return file_by_handle()


@as_root
def open_by_handle():
    return file_by_handle()


@as_root
def open_directory_by_handle():
    return secret_by_handle(around)


@as_root
def open_directory_by_handle_in_a_copy_of_around():
    here = directory()
    mount(around, here, None, BIND)
    return secret_by_handle(here)


@as_root
def open_directory_by_handle_in_a_copy_of_another():
    here = directory()
    mount(sibling, here, None, BIND)
    return secret_by_handle(here)


@as_root
def guess_handles_of_the_tree():
    at = os.open(tree, os.O_RDONLY)
    known = handle(0, bytes(128))
    known.size = 128
    mount_id = ctypes.c_int()
    call(libc.name_to_handle_at, AT_FDCWD, tree + "/file", ctypes.byref(known), ctypes.byref(mount_id), 0)
    for node in range(1, 64):
        for word in range(known.size // 4):
            guess = handle(known.kind, bytes(known.bytes[:known.size]))
            guess.bytes[word * 4] = node
            try:
                if b"SECRET" in os.read(open_handle(at, guess), 100):
                    return "SECRET"
            except OSError:
                pass
    return "none"


@attempt
def namespaces_of_process_1():
    return every(["mnt", "user", "pid", "net", "ipc"], lambda name: os.open("/proc/1/ns/" + name, os.O_RDONLY))


@as_root
def namespaces_around():
    names = [("user", 0xB702), ("pid", 0xB702), ("net", 0xB701), ("uts", 0xB701)]
    def ask(pair):
        file = os.open("/proc/self/ns/" + pair[0], os.O_RDONLY)
        namespace = fcntl.ioctl(file, pair[1])
        # The second namespace of the sandbox is the parent of this one.
        fcntl.ioctl(namespace, 0xB702)
    return every(names, ask)


@as_root
def rename_the_directory_around():
    other = around + "2"
    os.rename(around, other)
    try:
        return read(other + "/tree/.env")
    finally:
        os.rename(other, around)


@as_root
def remove_the_tree_from_a_namespace_without_it():
    os.rmdir("tree", dir_fd=leave_all_mounts())


@attempt
def exchange_the_tree_from_a_namespace_without_it():
    """Its mount follows it."""
    names = ["tree", "sibling"]
    def exchange():
        child = os.fork()
        if child == 0:
            become_root()
            held = leave_all_mounts()
            call(libc.renameat2, held, names[0], held, names[1], 2)
            try:
                print("secret_by_a_descriptor:", read("sibling/.env", held), flush=True)
            except OSError as error:
                os._exit(error.errno)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if is_control:
        return
    exchange()
    try:
        return read(sibling + "/.env")
    finally:
        exchange()
