import shutil
drafts, upper = place["drafts"], place["drafts"] + "/tree/upper"


@attempt
def list_the_drafts():
    return str(len(os.listdir(drafts)))


@attempt
def list_the_drafts_elsewhere():
    return str(len(os.listdir(place["elsewhere"])))


@attempt
def write_by_another_mount_of_the_tree():
    write(place["of_tree"] + "/by-mount", "")
    return str(os.path.exists(tree + "/by-mount"))


@attempt
def write_to_the_layer():
    write(upper + "/x", "")


@attempt
def make_a_draft():
    os.mkdir(drafts + "/another")


@attempt
def remove_the_drafts():
    os.rmdir(drafts)


@attempt
def move_the_drafts():
    os.rename(drafts, drafts + "-2")


@as_root
def uncover_the_drafts():
    umount(drafts, DETACH)


@as_root
def layer_by_process_1():
    os.listdir("/proc/1/root" + upper)


class Handle(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint), ("kind", ctypes.c_int), ("bytes", ctypes.c_ubyte * 128)]


def by_handle(at):
    kind, data = place["handle"][0], bytes.fromhex(place["handle"][1])
    known = Handle(len(data), kind, (ctypes.c_ubyte * 128)(*data))
    opened = call(libc.open_by_handle_at, os.open(at, os.O_RDONLY), ctypes.byref(known), os.O_RDONLY | os.O_DIRECTORY)
    return str(os.listdir(opened))


@as_root
def layer_by_handle():
    return by_handle(around)


@as_root
def layer_by_handle_in_a_copy_of_another():
    here = directory()
    mount(sibling, here, None, BIND)
    return by_handle(here)


@attempt
def make_a_whiteout():
    os.mknod(tree + "/whiteout", stat.S_IFCHR, os.makedev(0, 0))


@as_root
def make_a_whiteout_as_root():
    os.mknod(tree + "/whiteout", stat.S_IFCHR, os.makedev(0, 0))


@attempt
def leave_a_whiteout():
    write(tree + "/moved", "")
    call(libc.renameat2, AT_FDCWD, tree + "/moved", AT_FDCWD, tree + "/moved-2", 4)


@attempt
def redirect_a_directory():
    os.mkdir(tree + "/opaque")
    os.setxattr(tree + "/opaque", "user.overlay.redirect", b"/.git")
    os.setxattr(tree + "/.git", "user.overlay.redirect", b"/around")


@as_root
def redirect_a_directory_of_root():
    os.mkdir(tree + "/opaque-2")
    os.setxattr(tree + "/opaque-2", "trusted.overlay.redirect", b"/.git")


@attempt
def take_a_hidden_name():
    try:
        return secret()
    except FileNotFoundError:
        write(tree + "/.env", "mine")
    return secret()


@attempt
def link_a_hidden_name():
    os.link(tree + "/.env.local", tree + "/link")


@attempt
def remove_a_directory_with_a_hidden_name():
    shutil.rmtree(tree + "/with-hidden")
    os.mkdir(tree + "/with-hidden")
    return str(os.listdir(tree + "/with-hidden"))
