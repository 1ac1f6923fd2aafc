//! `thrufs run` on a terminal: its keys, job control, the terminal's name and size.

use crate::ground::prelude::*;
use crate::ground::terminal;
use crate::run_ground::{RunGround, of_both};
use rustix::fs::OFlags;
use rustix::termios::{Winsize, tcsetwinsize};
use std::os::unix::fs::fchown;
use std::process::Child;
use std::time::Instant;

const CTRL_C: &str = "\x03";
const CTRL_Z: &str = "\x1a";

/// An interactive bash in the tree, on a terminal of its own.
struct Terminal {
    controller: File,
    shell: Child,
    /// What was not yet expected.
    said: String,
}

impl Terminal {
    fn of(ground: &RunGround) -> Option<Terminal> {
        if Command::new("bash").arg("--version").output().is_err() {
            skipped("job control: no bash");
            return None;
        }
        let (controller, end) = terminal();
        fchown(&end, Some(ground.user()), None).unwrap();
        rustix::fs::fcntl_setfl(&controller, OFlags::RDWR | OFlags::NONBLOCK).unwrap();
        let mut shell = ground.on_the_host("setsid");
        shell.args(["--ctty", "bash", "--norc", "--noediting", "-i"]);
        shell.env("PS1", "out> ").env("TERM", "dumb");
        shell.stdin(end.try_clone().unwrap());
        shell.stdout(end.try_clone().unwrap()).stderr(end);
        let mut terminal = Terminal {
            controller,
            shell: shell.spawn().unwrap(),
            said: String::new(),
        };
        terminal.expect("out> ");
        terminal.line("stty -echo", "out> ");
        Some(terminal)
    }

    fn both() -> impl Iterator<Item = (RunGround, Terminal)> {
        of_both().filter_map(|ground| {
            let terminal = Terminal::of(&ground)?;
            Some((ground, terminal))
        })
    }

    fn send(&mut self, keys: &str) {
        self.controller.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for this text; returns what came before it.
    fn expect(&mut self, text: &str) -> String {
        self.expect_within(text, LIMIT)
            .unwrap_or_else(|| panic!("{text:?} in {:?}", self.said))
    }

    fn expect_within(&mut self, text: &str, time: Duration) -> Option<String> {
        let deadline = Instant::now() + time;
        loop {
            if let Some((before, after)) = self.said.split_once(text) {
                let before = before.to_owned();
                self.said = after.to_owned();
                return Some(before);
            }
            if Instant::now() >= deadline {
                return None;
            }
            let mut bytes = [0; 4096];
            match self.controller.read(&mut bytes) {
                Ok(length) => self.said += &String::from_utf8_lossy(&bytes[..length]),
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    /// Enters a line, and waits for this text.
    fn line(&mut self, line: &str, text: &str) -> String {
        self.send(&format!("{line}\n"));
        self.expect(text)
    }

    /// Presses Ctrl-C until a shell's prompt is there. `fg` says which job it is before that has the terminal.
    fn interrupt(&mut self, prompt: &str) {
        let deadline = Instant::now() + LIMIT;
        loop {
            self.send(CTRL_C);
            let seen = self.expect_within(prompt, Duration::from_secs(1));
            if seen.is_some() {
                return;
            }
            assert!(Instant::now() < deadline, "no {prompt:?}");
        }
    }

    /// Waits until the shell with this prompt reports a stopped job.
    fn expect_stopped(&mut self, prompt: &str) {
        self.expect("Stopped");
        self.expect(prompt);
    }

    /// The status of the last command.
    fn assert_status(&mut self, expected: i32) {
        self.line("echo \"status=$?.\"", &format!("status={expected}."));
    }

    /// The shell's jobs become these.
    fn assert_no_jobs(&mut self) {
        let jobs = self.line("jobs; echo end", "end");
        assert!(!jobs.contains("thrufs"), "{jobs}");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

#[test]
fn keys_end_the_command_of_run_as_without() {
    for (_ground, mut terminal) in Terminal::both() {
        let run = "$THRUFS run -- sh -c 'echo up; exec sleep 300'";
        for (key, status) in [(CTRL_C, 130), ("\x1c", 131)] {
            terminal.line(run, "up");
            terminal.send(key);
            terminal.expect("out> ");
            terminal.assert_status(status);
        }
        // A script ends if its command ended by SIGINT, not if that handled it.
        let script = |command: &str| format!("bash -c \"$THRUFS run -- {command}; echo next\"");
        terminal.line(&script("sh -c 'echo up; exec sleep 300'"), "up");
        terminal.send(CTRL_C);
        let said = terminal.expect("out> ");
        assert!(!said.contains("next"), "{said}");
        // Not sh: dash loses signals that arrive while it starts a program. bash handles such a one when that
        // program ends.
        let handler = "bash -c 'trap \\\"exit 3\\\" INT; echo up; while :; do sleep 0.1; done'";
        terminal.line(&script(handler), "up");
        terminal.send(CTRL_C);
        terminal.expect("next");
        terminal.assert_no_jobs();
    }
}

#[test]
fn run_stops_and_continues_as_a_job() {
    for (_ground, mut terminal) in Terminal::both() {
        terminal.line("$THRUFS run -- sh -c 'echo up; read line; exit 7'", "up");
        terminal.send(CTRL_Z);
        terminal.expect_stopped("out> ");
        terminal.line("fg", "read line");
        terminal.line("", "out> ");
        terminal.assert_status(7);
        // As editors do.
        terminal.send("$THRUFS run -- sh -c 'kill -TSTP 0; echo back; exit 8'\n");
        terminal.expect_stopped("out> ");
        terminal.line("fg", "back\r\n");
        terminal.assert_status(8);
        // In the background, it stops when it reads.
        terminal.line("$THRUFS run -- sh -c 'read line; echo =$line' &", "out> ");
        let stopped = "while [ -z \"$(jobs -s)\" ]; do sleep 0.1; done; echo stopped";
        terminal.line(stopped, "stopped\r\n");
        terminal.line("fg >/dev/null\ntext", "=text");
        terminal.assert_no_jobs();
    }
}

#[test]
fn shell_in_run_has_job_control() {
    for (_ground, mut terminal) in Terminal::both() {
        let said = terminal.line(
            "PS1='in> ' $THRUFS run -- bash --norc --noediting -i",
            "in> ",
        );
        assert!(!said.contains("job control"), "{said}");
        terminal.line("sh -c 'echo up; exec sleep 300'", "up");
        terminal.send(CTRL_Z);
        terminal.expect_stopped("in> ");
        terminal.line("bg; jobs", "Running");
        terminal.line("fg", "sleep 300'\r\n");
        terminal.interrupt("in> ");
        terminal.assert_status(130);
        terminal.send("suspend\n");
        terminal.expect_stopped("out> ");
        terminal.line("fg", "run -- bash");
        terminal.line("echo back", "back\r\n");
        terminal.line("exit 5", "out> ");
        terminal.assert_status(5);
        terminal.assert_no_jobs();
    }
}

/// The shell in the sandbox leaves its own process group in the foreground.
#[test]
fn terminal_belongs_to_the_script_again_after_a_shell_in_run() {
    for (_ground, mut terminal) in Terminal::both() {
        let script =
            "bash -c '$THRUFS run -- bash --norc -ic \"echo up\"; read line; echo \"=$line\"'";
        terminal.line(script, "up");
        terminal.line("text", "=text");
        terminal.assert_no_jobs();
    }
}

#[test]
fn command_of_run_has_the_terminal() {
    for (ground, mut terminal) in Terminal::both() {
        let size = |rows| Winsize {
            ws_row: rows,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&terminal.controller, size(31)).unwrap();
        terminal.line(
            "$THRUFS run -- sh -c 'tty; stty size; echo text >/dev/tty'",
            "/dev/console",
        );
        terminal.expect("31 80");
        terminal.expect("text");
        let resized = "trap 'stty size; exit' WINCH; echo up; while :; do sleep 0.1; done";
        terminal.line(&format!("$THRUFS run -- bash -c \"{resized}\""), "up");
        tcsetwinsize(&terminal.controller, size(32)).unwrap();
        terminal.expect("32 80");
        terminal.expect("out> ");
        if Command::new("tmux").arg("-V").output().is_err() {
            skipped("a terminal multiplexer in a sandbox: no tmux");
            continue;
        }
        // A server, its socket and terminals, and a client on the terminal.
        let multiplexer = "TERM=xterm $THRUFS run -- tmux -f /dev/null new-session \
                           'echo inside >made; tty >>made'";
        terminal.line(multiplexer, "[exited]");
        let made = fs::read_to_string(ground.tree.join("made")).unwrap();
        assert_eq!(made, "inside\n/dev/pts/0\n");
    }
}
