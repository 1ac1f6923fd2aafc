# What the test listens on, outside.
def connect(address, family=socket.AF_UNIX):
    socket.socket(family).connect(address)


def listen(address, family=socket.AF_UNIX):
    listener = socket.socket(family)
    listener.bind(address)
    listener.listen()
    connect(listener.getsockname(), family)


@attempt
def interfaces():
    with open("/proc/net/dev") as table:
        return " ".join(line.split(":")[0].strip() for line in table if ":" in line)


@attempt
def loopback_of_the_host():
    connect(("127.0.0.1", place["port"]), socket.AF_INET)


@attempt
def own_loopback():
    listen(("127.0.0.1", 0), socket.AF_INET)


@attempt
def own_loopback_of_ipv6():
    listen(("::1", 0), socket.AF_INET6)


@attempt
def own_interfaces():
    socket.if_nameindex()
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)


@attempt
def host_of_a_virtual_machine():
    socket.socket(socket.AF_VSOCK)


@attempt
def host_by_a_call_of_32_bits():
    call_of_32_bits(359, socket.AF_VSOCK, socket.SOCK_STREAM, 0)


@attempt
def host_by_socketcall():
    call_of_32_bits(102, 1, 0, 0)


@attempt
def ring():
    system(425, 1, ctypes.create_string_buffer(120))


@attempt
def abstract_socket():
    connect("\0" + place["name"])


@attempt
def socket_of_a_program():
    connect(place["socket"])


@attempt
def socket_by_another_mount():
    connect(place["mounted"])


@attempt
def socket_in_tmp_by_another_mount():
    connect(place["alias"])


@attempt
def socket_in_the_tree():
    connect(tree + "/socket")


@attempt
def socket_that_is_named():
    connect(place["named"])


@attempt
def own_sockets():
    for path in ["/tmp/own", tree + "/own"]:
        listen(path)
        os.unlink(path)
    # Python's start method `forkserver` passes descriptors.
    one, other = socket.socketpair()
    socket.send_fds(one, [b"x"], [0])


@attempt
def network_of_a_further_namespace():
    become_root(NEWNET)
    connect(("127.0.0.1", place["port"]), socket.AF_INET)
