//! Whether a machine monitor is here that maps files for a separate server (`thrufs share --dax-window`).

use super::finding::Finding;
use super::kernel;
use crate::task::Task;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The first with VHOST_USER_PROTOCOL_F_SHMEM.
const OLDEST: (u32, u32) = (11, 1);

/// Where distributions have it that do not have it in PATH.
const FIXED: &str = "/usr/libexec/qemu-kvm";

/// For a program on a slow disk.
const TIMEOUT: Duration = Duration::from_secs(5);

const LINE_BYTES_MAX: u64 = 1024;

pub(super) fn look() -> Finding {
    let Some(program) = qemu() else {
        return Finding::note(
            "no QEMU was found; QEMU 11.1 has one for shares, and crosvm and alioth by their sources",
        );
    };
    let line = first_line(Command::new(&program).arg("--version"), TIMEOUT);
    judge(&program, line)
}

fn qemu() -> Option<PathBuf> {
    let name = format!("qemu-system-{}", std::env::consts::ARCH);
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(&name))
        .chain([FIXED.into()])
        .find(|candidate| candidate.is_file())
}

/// `line` is as in `QEMU emulator version 11.1.3 (Debian 1:11.1.3+ds-1)`.
fn judge(program: &Path, line: io::Result<String>) -> Finding {
    let program = program.display();
    let line = match line {
        Ok(line) => line,
        Err(error) => {
            return Finding::note(format!("the version of {program} is not known: {error}"));
        }
    };
    let version = line.strip_prefix("QEMU emulator version ");
    let version = version.and_then(|version| version.split([' ', '\n']).next());
    let Some((version, number)) = version.and_then(|it| Some((it, kernel::version(it)?))) else {
        return Finding::note(format!("the version of {program} is not known: no QEMU"));
    };
    if number < OLDEST {
        return Finding::note(format!("{program} is {version}: QEMU has one from 11.1 on"));
    }
    Finding::good(format!(
        "{program} is {version}: with -device vhost-user-test-device-pci, for files of whole pages that \
         --dax names"
    ))
}

/// The first line that a program prints, which is then ended.
fn first_line(command: &mut Command, timeout: Duration) -> io::Result<String> {
    let command = command.stdin(Stdio::null()).stderr(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let reading = Task::start(move || {
        let mut line = Vec::new();
        let read = BufReader::new(output.take(LINE_BYTES_MAX)).read_until(b'\n', &mut line);
        read.map(|_| String::from_utf8_lossy(&line).into_owned())
    });
    let late = || Err(io::Error::other("it does not answer --version"));
    let line = reading.and_then(|it| it.finish_within(timeout).unwrap_or_else(late));
    child.kill()?;
    child.wait()?;
    line
}

#[cfg(test)]
mod tests {
    use super::super::finding::FindingState;
    use super::*;

    fn judged(line: &str) -> (FindingState, String) {
        let finding = judge(Path::new("/bin/q"), Ok(line.to_owned()));
        (finding.state, finding.detail)
    }

    #[test]
    fn the_window_depends_on_the_version_of_qemu() {
        for (version, part) in [
            (
                "11.1.3 (Debian 1:11.1.3+ds-1~bpo13+1)",
                "/bin/q is 11.1.3: with -device",
            ),
            ("12.0.0\nCopyright", "is 12.0.0: with"),
            (
                "10.0.8 (qemu-kvm-10.0.8)\n",
                "is 10.0.8: QEMU has one from 11.1",
            ),
            ("11.0.93", "is 11.0.93: QEMU has one from 11.1"),
            ("new", "not known: no QEMU"),
        ] {
            let (found, detail) = judged(&format!("QEMU emulator version {version}"));
            assert_eq!(
                found == FindingState::Good,
                part.contains(": with"),
                "{detail}"
            );
            assert!(detail.contains(part), "{detail}");
        }
        for other in ["", "echo (GNU coreutils) 9.7"] {
            assert!(judged(other).1.contains("not known"), "{other}");
        }
    }

    #[test]
    fn a_program_is_read_to_the_end_of_its_first_line() {
        let line =
            |script: &str, timeout| first_line(Command::new("sh").args(["-c", script]), timeout);
        assert_eq!(line("printf abc", TIMEOUT).unwrap(), "abc");
        let endless = line("exec yes", TIMEOUT).unwrap();
        assert!(endless.starts_with("y\n"), "{endless}");
        let zeroes = line("exec cat /dev/zero", TIMEOUT).unwrap();
        assert!((zeroes.len() as u64) < 2 * LINE_BYTES_MAX);
        let silent = line("exec sleep 1000", Duration::from_millis(1));
        assert!(silent.unwrap_err().to_string().contains("does not answer"));
        let absent = first_line(&mut Command::new("/no/such/program"), TIMEOUT);
        assert!(
            judge(Path::new("/bin/q"), absent)
                .detail
                .contains("No such file")
        );
    }
}
