os.chdir(tree)
HIDDEN = [".env", ".ENV", "new.pem", "a/.env", ".netrc"]
if not os.path.isdir("a"):
    os.mkdir("a")


def open_for_reading(path):
    os.open(path, os.O_RDONLY)


def remove(path):
    try:
        os.rmdir(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
    except FileNotFoundError:
        pass


def made(function):
    """What comes of making each hidden name."""
    said = set()
    for name in HIDDEN:
        if is_control:
            remove(name)
        try:
            function(name)
            said.add("done")
        except OSError as error:
            said.add(errno.errorcode[error.errno])
        if is_control:
            remove(name)
    return " ".join(sorted(said))


def spare():
    write("spare", "x")
    return "spare"


def link_unnamed(name):
    file = os.open(".", os.O_TMPFILE | os.O_WRONLY)
    call(libc.linkat, AT_FDCWD, f"/proc/self/fd/{file}", AT_FDCWD, name, 0x400)


def exchange(first, second):
    call(libc.renameat2, AT_FDCWD, first, AT_FDCWD, second, 2)


@attempt
def look_at_hidden():
    if is_control:
        return
    said = set()
    for look in [os.stat, os.lstat, os.listdir, os.readlink, os.listxattr, open_for_reading,
                 lambda it: os.open(it, os.O_PATH), lambda it: os.truncate(it, 0),
                 lambda it: os.chmod(it, 0o777), lambda it: os.utime(it), lambda it: os.unlink(it),
                 lambda it: os.rename(it, "x"), lambda it: os.link(it, "x")]:
        for name in [".env", "./a/../.env", "/proc/self/cwd/.env", f"/proc/self/root{tree}/.env"]:
            try:
                look(name)
                said.add(f"{name} is there")
            except OSError as error:
                said.add(errno.errorcode[error.errno])
    return " ".join(sorted(said))


@attempt
def list_hidden():
    return " ".join(sorted(name for name in os.listdir(".") if "env" in name)) or "none"


@attempt
def hidden_by_a_symbolic_link_in_the_tree():
    remove("link")
    os.symlink(".env", "link")
    return read("link")


@attempt
def hidden_by_a_symbolic_link_from_outside():
    remove("/tmp/link")
    os.symlink(tree + "/.env", "/tmp/link")
    return read("/tmp/link")


@attempt
def link_file_out():
    os.link("file", sibling + "/linked")


@attempt
def link_file_in():
    os.link(sibling + "/file", "linked")


@attempt
def rename_file_out():
    os.rename(spare(), sibling + "/renamed")


@attempt
def rename_file_in():
    os.rename(sibling + "/renamed" if is_control else sibling + "/file", "renamed")


@attempt
def write_hidden():
    return made(lambda name: write(name, ""))


@attempt
def make_hidden_directory():
    return made(os.mkdir)


@attempt
def make_hidden_fifo():
    return made(os.mkfifo)


@attempt
def bind_hidden_socket():
    return made(lambda name: socket.socket(socket.AF_UNIX).bind(name))


@attempt
def make_hidden_symbolic_link():
    return made(lambda name: os.symlink("file", name))


@attempt
def link_hidden():
    return made(lambda name: os.link("file", name))


@attempt
def link_unnamed_as_hidden():
    return made(link_unnamed)


@attempt
def rename_to_hidden():
    return made(lambda name: os.rename(spare(), name))


@attempt
def rename_directory_to_hidden():
    def rename(name):
        os.makedirs("directory", exist_ok=True)
        os.rename("directory", name)
    return made(rename)


@attempt
def exchange_with_hidden():
    spare()
    return made(lambda name: (write(name, "") if is_control else None, exchange("spare", name)))


def guarded(*functions):
    said = set()
    for function in functions:
        try:
            function()
            said.add("done")
        except OSError as error:
            said.add(errno.errorcode[error.errno])
    return " ".join(sorted(said))


def attributes_of(path):
    return [
        lambda: os.chmod(path, 0o700),
        lambda: os.utime(path),
        lambda: os.setxattr(path, "user.x", b""),
        lambda: os.chown(path, os.getuid(), os.getgid()),
    ]


@attempt
def write_git_config():
    return guarded(
        lambda: write(".git/config", "x"),
        lambda: os.open(".git/config", os.O_RDWR),
        lambda: os.truncate(".git/config", 0),
        lambda: os.rename(spare(), ".git/config"),
        lambda: exchange(spare(), ".git/config"),
        lambda: os.rename(".git/config", "x") if not is_control else None,
        lambda: os.unlink(".git/config"),
        *(attributes_of(".git/config") if not is_control else []),
    )


@attempt
def write_git_hooks():
    return guarded(
        lambda: write(".git/hooks/pre-commit", "x"),
        lambda: write(".git/hooks/new", "x"),
        lambda: os.rename(spare(), ".git/hooks/pre-push"),
        lambda: os.link("file", ".git/hooks/linked"),
        lambda: os.symlink("../../file", ".git/hooks/symlinked"),
        lambda: os.mkdir(".git/hooks/directory"),
        *(attributes_of(".git/hooks/pre-commit")),
        *(attributes_of(".git/hooks") if not is_control else []),
    )


@attempt
def replace_git_hooks():
    if is_control:
        os.mkdir("hooks")
        exchange("hooks", ".git/hooks")
        exchange("hooks", ".git/hooks")
        os.rename(".git", "git")
        os.rename("git", ".git")
        return
    os.makedirs("a/hooks", exist_ok=True)
    return guarded(
        lambda: exchange("a/hooks", ".git/hooks"),
        lambda: os.rename(".git/hooks", "x"),
        lambda: os.rename(".git", "x"),
        lambda: exchange("a", ".git"),
        lambda: os.rename("a", ".git"),
        lambda: write(".git/commondir", "../a"),
        lambda: os.rmdir(".git/hooks"),
    )


@attempt
def change_git_by_a_map():
    """A writable map of a file that was opened for reading."""
    import mmap
    with open(".git/config") as file:
        mmap.mmap(file.fileno(), 1, prot=mmap.PROT_READ | mmap.PROT_WRITE)


@as_root
def change_git_as_root():
    write(".git/hooks/pre-commit", "x")


def write_settings():
    names = ["kernel/core_pattern", "vm/overcommit_memory", "fs/suid_dumpable"]
    return guarded(*[lambda name=name: os.open("/proc/sys/" + name, os.O_WRONLY) for name in names])


@attempt
def write_settings_of_the_kernel():
    return write_settings()


@as_root
def write_settings_of_the_kernel_as_root():
    return write_settings()


@attempt
def replace_the_tree():
    if not is_control:
        return guarded(
            lambda: os.rmdir(tree),
            lambda: os.rename(tree, around + "/old"),
            lambda: exchange(tree, sibling),
        )
    exchange(tree, sibling)
    exchange(tree, sibling)


def identity(path):
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(theirs, 1)
        os.execv(path, ["id", "-u"])
    os.close(theirs)
    os.waitpid(child, 0)
    said = os.read(ours, 100).decode().strip()
    return "as before" if said == str(os.getuid()) else "other user"


@attempt
def program_of_another_user():
    return identity(place["program"])


@attempt
def program_of_another_user_in_the_tree():
    return identity(place["program_in_tree"])


@attempt
def make_program_of_root():
    """Set-id bits on a file of root, on a tree of root."""
    def create():
        remove("created")
        os.umask(0)
        os.close(os.open("created", os.O_CREAT | os.O_WRONLY, 0o4755))
    if os.stat(".").st_uid != 0 or os.getuid() != 0:
        return "none of root"
    return guarded(
        create,
        lambda: os.mknod("made", 0o4755),
        lambda: os.chmod(spare(), 0o4755),
        lambda: os.chmod(spare(), 0o2755),
    )


@attempt
def write_to_program_of_another_user():
    """Its content changes, the bits go."""
    path = place["program_in_tree"]
    try:
        with open(path, "r+b") as file:
            file.write(b"x")
    except PermissionError:
        return "no bits"
    return "bits" if os.stat(path).st_mode & 0o6000 else "no bits"


@as_root
def give_capabilities():
    """Of the initial user namespace, root of which is none of the users here."""
    data = struct.pack("<IIIIII", 0x3000001, 0xFFFFFFFF, 0, 0xFFFFFFFF, 0, 0)
    os.setxattr(spare(), "security.capability", data)
