# On a terminal (pty.py).
import termios

TIOCLINUX = 0x541C
settings = termios.tcgetattr(0)
settings[3] &= ~termios.ECHO
termios.tcsetattr(0, termios.TCSANOW, settings)


@attempt
def type_into_the_terminal():
    fcntl.ioctl(0, termios.TIOCSTI, b"x")


@attempt
def type_by_a_call_of_x32():
    system(0x40000000 + 16, 0, termios.TIOCSTI, b"x")


@attempt
def paste_into_the_console():
    fcntl.ioctl(0, TIOCLINUX, b"\3")


@attempt
def type_by_a_call_of_32_bits():
    call_of_32_bits(54, 0, termios.TIOCSTI, 0)


@attempt
def keys_by_a_call_of_32_bits():
    call_of_32_bits(288, 0, (-3) & 0xFFFFFFFF, 0)


@attempt
def other_terminal():
    os.open(os.environ["OTHER_TERMINAL"], os.O_RDWR | os.O_NOCTTY)


@attempt
def own_terminal():
    return "terminal" if os.isatty(0) and os.open("/dev/tty", os.O_RDWR) else "none"
