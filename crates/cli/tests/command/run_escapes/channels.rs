//! Descriptors, sockets, keys, shared memory and terminals outside.

use super::{
    Expected, PRELUDE, assert_inside, assert_outside, grounds, inside, known, outside, words,
};
use crate::ground::prelude::*;
use crate::run_ground::{EVERYONE, PYTHON, RunGround, Who};
use serde_json::json;

const ATTEMPTS: &str = include_str!("channels.py");
const STARTER: &str = include_str!("starter.py");
const TERMINAL: &str = include_str!("terminal.py");
const PTY: &str = include_str!("pty.py");

const EXPECTED: &[Expected<'_>] = &[
    ("descriptors", "none", "some"),
    ("directory_of_the_starter", "EBADF", "SECRET"),
    ("file_of_the_starter", "EBADF", "SECRET"),
    ("socket_in_tmp", "ENOENT", "done"),
    ("socket_in_var_tmp", "ENOENT", "done"),
    ("abstract_socket", "EPERM", "done"),
    ("abstract_socket_by_datagram", "EPERM", "done"),
    (
        "list_run",
        "empty|systemd|NetworkManager|resolvconf|connman",
        "*",
    ),
    ("key_of_the_session", "ENOSYS", "KEY|ENOKEY|ENOSYS"),
    ("key_of_the_user", "ENOSYS", "*"),
    // Possession of the keyring permits to read it.
    ("key_of_the_user_by_a_link", "ENOSYS", "KEY|EINVAL|ENOSYS"),
    ("add_a_key", "ENOSYS", "*"),
    ("request_a_key", "ENOSYS", "*"),
    ("shared_memory_segment", "ENOENT", "done"),
    ("message_queue", "ENOENT", "done"),
    ("shared_memory_file", "ENOENT", "done"),
    (
        "devices",
        "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero\
         |fd full null ptmx pts random shm stderr stdin stdout urandom zero\
         |console fd full null ptmx pts random shm stderr stdin stdout tty urandom zero",
        "*",
    ),
    ("disks_and_memory", "done", "done"),
];

const OF_TERMINAL: &[Expected<'_>] = &[
    // Outside, since Linux 6.2 with `dev.tty.legacy_tiocsti=0`, EIO.
    ("type_into_the_terminal", "EPERM", "done|EIO"),
    ("type_by_a_call_of_x32", "EPERM", "done|EIO|ENOSYS"),
    ("paste_into_the_console", "EPERM", "*"),
    ("type_by_a_call_of_32_bits", "EPERM", "*"),
    ("keys_by_a_call_of_32_bits", "ENOSYS|EPERM", "*"),
    ("other_terminal", "ENOENT", "done"),
    ("own_terminal", "terminal", "terminal"),
];

/// The name of what the starter makes, and the number of its shared memory; removed on drop.
struct Made {
    name: String,
    number: u32,
}

impl Made {
    fn new() -> Made {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        Made {
            name: format!("thrufs-run-{}-{number}", std::process::id()),
            number: std::process::id() * 16 + number,
        }
    }

    fn more(&self) -> [(&'static str, Value); 2] {
        [("name", json!(self.name)), ("number", json!(self.number))]
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for directory in ["/tmp", "/var/tmp", "/dev/shm"] {
            let _ = fs::remove_file(format!("{directory}/{}", self.name));
        }
        let script = "import ctypes, sys; libc = ctypes.CDLL(None); \
                      libc.mq_unlink(sys.argv[1].encode()); \
                      libc.shmctl(libc.shmget(int(sys.argv[2]), 0, 0), 0, None)";
        let mut python = Command::new(PYTHON);
        python.args(["-c", script, &format!("/{}", self.name)]);
        let _ = python.arg(self.number.to_string()).output();
    }
}

/// The command, executed by another program of Python.
fn executed_by(program: &str, ground: &RunGround, made: &Made, command: &Command) -> Output {
    let mut starter = ground.starter(PYTHON.as_ref());
    starter.args(["-c", &format!("{PRELUDE}\n{program}")]);
    starter.arg(known(ground, false, &made.more()));
    run(starter.args(words(command)))
}

fn assert_not_reached(starter: &str, attempts: &str, expected: &[Expected<'_>]) {
    for ground in grounds(EVERYONE) {
        let made = Made::new();
        let command = inside(&ground, &[], attempts, &made.more());
        let output = executed_by(starter, &ground, &made, &command);
        assert_inside(ground.who, &output, expected);
        if ground.who == Who::User {
            let made = Made::new();
            let command = outside(&ground, attempts, &made.more());
            let output = executed_by(starter, &ground, &made, &command);
            assert_outside(&output, expected);
        }
    }
}

#[test]
fn nothing_that_the_starter_holds_is_reached() {
    assert_not_reached(STARTER, ATTEMPTS, EXPECTED);
}

#[test]
fn nothing_is_typed_into_the_terminal() {
    assert_not_reached(PTY, TERMINAL, OF_TERMINAL);
}

/// By openat(2) it would lead beneath the tree.
#[test]
fn directory_as_a_standard_file_is_refused() {
    for ground in grounds([Who::User, Who::RootOnTreeOfRoot]) {
        let said = ground.path().join("said");
        for number in 0..3 {
            let mut command = ground.thrufs_run(&[]);
            command.args(["sh", "-c", "echo started >&2"]);
            let file = |at, other: Stdio| match at == number {
                true => Stdio::from(File::open(&ground.tree).unwrap()),
                false => other,
            };
            command
                .stdin(file(0, Stdio::null()))
                .stdout(file(1, Stdio::null()));
            command.stderr(file(2, File::create(&said).unwrap().into()));
            assert_eq!(command.status().unwrap().code(), Some(125), "{number}");
            let said = fs::read_to_string(&said).unwrap();
            assert_eq!(said.contains("directory"), number != 2, "{said}");
            assert!(!said.contains("started"), "{said}");
        }
    }
}
