# Other mounts of the tree, by name: where the secret would be, and a file that all may read.
places = place["places"]
os.chdir(tree)


@attempt
def secrets():
    said = []
    for path, _ in places.values():
        try:
            said.append(read(path))
        except OSError as error:
            said.append(errno.errorcode[error.errno])
    return f"{len(said)} " + " ".join(sorted(set(said)))


@attempt
def files():
    return " ".join(sorted({read(path) for _, path in places.values() if path}))


@as_root
def unmount_them():
    said = set()
    for path in place["mounts"]:
        try:
            umount(path, DETACH)
            said.add("done")
        except OSError as error:
            said.add(errno.errorcode[error.errno])
    return " ".join(sorted(said))


@attempt
def another_proc():
    """Of the PID namespace outside."""
    said = set()
    for link in ["root" + tree + "/.env", "cwd/.env", "fd", "exe", "environ", "mem", "ns/mnt"]:
        try:
            os.open(f"{place['proc']}/{place['outside']}/{link}", os.O_RDONLY)
            said.add("opened " + link)
        except OSError as error:
            said.add(errno.errorcode[error.errno])
    return " ".join(sorted(said))


@attempt
def mounted_later():
    print("ready", flush=True)
    sys.stdin.readline()
    return read(place["later"] + "/.env")


@attempt
def mounted_later_in_the_tree():
    return read(tree + "/later/.env")
