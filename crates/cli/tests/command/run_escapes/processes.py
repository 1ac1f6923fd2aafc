# Process 1 of the sandbox; outside, a process of the same user.
target = place["target"]
at_target = f"/proc/{target}/"
signal.signal(signal.SIGUSR1, signal.SIG_IGN)


@attempt
def root_of_the_target():
    return read(at_target + "root" + tree + "/.env")


@attempt
def working_directory_of_the_target():
    return read(at_target + "cwd/.env")


@attempt
def descriptors_of_the_target():
    return os.listdir(at_target + "fd") and "done"


@attempt
def mapped_files_of_the_target():
    return os.listdir(at_target + "map_files") and "done"


@attempt
def program_of_the_target():
    os.open(at_target + "exe", os.O_RDONLY)


@attempt
def environment_of_the_target():
    return read(at_target + "environ") and "done"


@attempt
def memory_of_the_target():
    os.open(at_target + "mem", os.O_RDWR)


@attempt
def own_memory():
    os.open("/proc/self/mem", os.O_RDWR)


@attempt
def processes():
    """All that are seen, and none of them leads beneath the tree."""
    if is_control:
        return
    names, found = set(), ""
    for process in filter(str.isdigit, os.listdir("/proc")):
        names.add(read(f"/proc/{process}/comm").strip())
        for link in ["root" + tree, "cwd"]:
            try:
                found += read(f"/proc/{process}/{link}/.env")
            except OSError as error:
                assert error.errno in (errno.ENOENT, errno.EACCES), error
        tasks = os.listdir(f"/proc/{process}/task")
        assert len(tasks) == 1 or process == str(os.getpid()), tasks
    return " ".join(sorted(names)) + found


@attempt
def trace():
    call(libc.ptrace, 0x4206, target, 0, 0)


@attempt
def read_memory():
    buffer = ctypes.create_string_buffer(8)
    ours = struct.pack("PN", ctypes.addressof(buffer), 8)
    theirs = struct.pack("PN", place["address"], 8)
    call(libc.process_vm_readv, target, ours, 1, theirs, 1, 0)


@attempt
def take_a_descriptor():
    system(PIDFD_GETFD, os.pidfd_open(target), 0, 0)


@attempt
def enter_namespaces():
    call(libc.setns, os.pidfd_open(target), NEWNS | NEWUSER)


@as_root
def enter_namespaces_as_root():
    call(libc.setns, os.pidfd_open(target), NEWNS | NEWUSER)


@attempt
def signal_by_number_outside():
    os.kill(place["outside"], 0)


@attempt
def signal_all():
    if not is_control:
        os.kill(-1, signal.SIGUSR1)


@attempt
def signal_the_process_group():
    os.kill(0, signal.SIGUSR1)


@attempt
def kill_a_cgroup():
    write(place["cgroup"] + "/cgroup.kill", "1")


@attempt
def start_in_another_cgroup():
    """clone3(2), here without arguments."""
    system(435, None, 0)


@attempt
def mount_the_own_cgroup():
    become_root(NEWCGROUP)
    mount("none", directory(), "cgroup2")


@attempt
def write_to_sys():
    """Whether any mount in /sys is writable."""
    with open("/proc/self/mounts") as mounts:
        fields = [line.split() for line in mounts]
    writable = [it[1] for it in fields if it[1].startswith("/sys") and "ro" not in it[3].split(",")]
    return writable[0] if writable and not is_control else "none"


@attempt
def kill_the_target():
    """The kernel ignores signals of a PID namespace to its process 1."""
    os.kill(target, signal.SIGKILL)
    time.sleep(0.05)
    os.kill(target, 0)
    with open(at_target + "stat") as file:
        return file.read().rsplit(")")[1].split()[0]
