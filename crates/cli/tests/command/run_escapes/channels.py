# What the starter (starter.py) holds: descriptors, sockets, keys, shared memory.
keys = json.loads(os.environ["KEYS"])


def connect(address, kind=socket.SOCK_STREAM):
    socket.socket(socket.AF_UNIX, kind).connect(address)


@attempt
def descriptors():
    numbers = [int(name) for name in os.listdir("/proc/self/fd")]
    # The last one is that of the list.
    return "some" if [it for it in sorted(numbers)[:-1] if it > 2] else "none"


@attempt
def directory_of_the_starter():
    return secret(3)


@attempt
def file_of_the_starter():
    return os.pread(4, 100, 0).decode()


@attempt
def socket_in_tmp():
    connect(os.environ["SSH_AUTH_SOCK"])


@attempt
def socket_in_var_tmp():
    connect("/var" + os.environ["SSH_AUTH_SOCK"])


@attempt
def abstract_socket():
    connect("\0" + place["name"])


@attempt
def abstract_socket_by_datagram():
    sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sender.sendto(b"x", "\0" + place["name"] + "-datagram")


@attempt
def list_run():
    return " ".join(os.listdir("/run")) or "empty"


def read_key(serial):
    buffer = ctypes.create_string_buffer(100)
    length = system(KEYCTL, 11, serial, buffer, 100)
    return buffer.raw[:length].decode()


@attempt
def key_of_the_session():
    return read_key(keys["session"])


@attempt
def key_of_the_user():
    return read_key(keys["user"])


@attempt
def key_of_the_user_by_a_link():
    system(KEYCTL, 8, keys["keyring"], -3)
    return read_key(keys["user"])


@attempt
def add_a_key():
    system(KEYCTL - 2, b"user", b"thrufs", b"x", 1, -3)


@attempt
def request_a_key():
    system(KEYCTL - 1, b"user", place["name"], None, -3)


@attempt
def shared_memory_segment():
    call(libc.shmget, place["number"], 0, 0)


@attempt
def message_queue():
    call(libc.mq_open, "/" + place["name"], os.O_RDONLY)


@attempt
def shared_memory_file():
    os.open("/dev/shm/" + place["name"], os.O_RDONLY)


@attempt
def devices():
    return " ".join(sorted(os.listdir("/dev")))


@attempt
def disks_and_memory():
    for name in ["mem", "kmem", "port", "sda", "vda", "nvme0n1", "kvm", "uinput", "loop-control", "fuse"]:
        assert not os.path.exists("/dev/" + name) or is_control
