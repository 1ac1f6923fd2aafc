//! The first process of a guest: mounts the system's file systems and the two shares, runs the job,
//! unmounts the shares, prints the exit code, and turns the machine off, or restarts it if the job ended
//! with 121 or 122.
//!
//! The console is the only output. The job's lies between the lines `thrufs-guest: begin` and
//! `thrufs-guest: exit CODE`; the rest is the kernel's.

#![forbid(unsafe_code)]

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::symlink;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process::{Pid, WaitOptions};
use rustix::system::RebootCommand;
use thrufs_tests::guest::{BENEATH, SHARED};

/// Kernel modules of the image, named in the order of loading.
const MODULES: &str = "/guest/modules";

const JOB: &str = "/guest/job.sh";

const DEVICE_TIMEOUT: Duration = Duration::from_secs(5);

/// Which kernel messages go to the console.
const CONSOLE_LEVEL: &str = "/proc/sys/kernel/printk";

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The exit code when there is no job; no shell uses it.
const NO_JOB: i32 = 120;

/// Exit codes by which a job asks for a restart: an orderly one, and one without unmounting and syncing, as
/// by a reset button.
const REBOOT: i32 = 121;
const RESET: i32 = 122;

/// Type, mount point and options.
const SYSTEM: &[(&str, &str, &str)] = &[
    ("devtmpfs", "/dev", "mode=755"),
    ("proc", "/proc", ""),
    ("sysfs", "/sys", ""),
    ("devpts", "/dev/pts", "ptmxmode=666"),
    ("tmpfs", "/dev/shm", "mode=1777"),
    ("tmpfs", "/tmp", "mode=1777"),
    ("tmpfs", "/run", "mode=755"),
];

fn main() -> ExitCode {
    if rustix::process::getpid() != Pid::INIT {
        eprintln!("thrufs-guest-init: this is for the first process of a guest: it turns it off");
        return ExitCode::from(2);
    }
    let code = prepare().and_then(|()| {
        say("begin");
        let code = run_job();
        if code == Ok(RESET) {
            return Ok(RESET);
        }
        let taken_down = take_down();
        code.and_then(|code| taken_down.map(|()| code))
    });
    let command = match code {
        Ok(REBOOT | RESET) => RebootCommand::Restart,
        _ => RebootCommand::PowerOff,
    };
    match code {
        Ok(REBOOT) => say("reboot"),
        Ok(RESET) => say("reset"),
        Ok(code) => say(&format!("exit {code}")),
        Err(ref error) => {
            say(&format!("failed: {error}"));
            say(&format!("exit {NO_JOB}"));
        }
    }
    if code != Ok(RESET) {
        rustix::fs::sync();
    }
    let error = rustix::system::reboot(command).err();
    say(&format!("does not turn off: {error:?}"));
    // The kernel panics when its first process ends, which ends the machine.
    ExitCode::FAILURE
}

fn say(what: &str) {
    let mut stdout = io::stdout().lock();
    // A failure of the console cannot be reported.
    let _ = writeln!(stdout, "thrufs-guest: {what}");
    let _ = stdout.flush();
}

fn prepare() -> Result<(), String> {
    for (kind, place, options) in SYSTEM {
        mount(kind, kind, place, options)?;
    }
    // Where the kernel does not make them itself.
    for (target, link) in [
        ("/proc/self/fd", "/dev/fd"),
        ("/proc/self/fd/0", "/dev/stdin"),
        ("/proc/self/fd/1", "/dev/stdout"),
        ("/proc/self/fd/2", "/dev/stderr"),
        ("/proc/self/mounts", "/etc/mtab"),
    ] {
        symlink(target, link).map_err(|error| format!("{link}: {error}"))?;
    }
    // The boot was quiet. From here on, the kernel's messages show what hangs.
    fs::write(CONSOLE_LEVEL, "7").map_err(|error| format!("{CONSOLE_LEVEL}: {error}"))?;
    load_modules()?;
    for place in [SHARED, BENEATH] {
        mount_share(place)?;
    }
    Ok(())
}

fn mount(source: &str, kind: &str, place: &str, options: &str) -> Result<(), String> {
    let failed = |error: io::Error| format!("mount of {kind} at {place}: {error}");
    fs::create_dir_all(place).map_err(failed)?;
    let options = std::ffi::CString::new(options).map_err(|error| failed(error.into()))?;
    rustix::mount::mount(source, place, kind, MountFlags::empty(), options.as_c_str())
        .map_err(|errno| failed(errno.into()))
}

/// The tag of a share is its mount point without the slash. Waits for the device to appear.
fn mount_share(place: &str) -> Result<(), String> {
    let deadline = Instant::now() + DEVICE_TIMEOUT;
    loop {
        match mount(place.trim_start_matches('/'), "virtiofs", place, "") {
            Err(_) if Instant::now() < deadline => thread::sleep(POLL_INTERVAL),
            outcome => return outcome,
        }
    }
}

fn load_modules() -> Result<(), String> {
    let Ok(entries) = fs::read_dir(MODULES) else {
        return Ok(());
    };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let failed = |error: io::Error| format!("{}: {error}", path.display());
        let module = File::open(&path).map_err(failed)?;
        match rustix::system::finit_module(&module, c"", 0) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed(errno.into())),
        }
    }
    Ok(())
}

/// Runs the job to its end, and reaps orphans meanwhile.
fn run_job() -> Result<i32, String> {
    let job = Command::new("/bin/bash")
        .arg(JOB)
        .env_clear()
        .env("PATH", "/usr/bin")
        .env("HOME", "/root")
        .env("LC_ALL", "C")
        .current_dir("/root")
        .spawn()
        .map_err(|error| format!("{JOB}: {error}"))?;
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid.as_raw_pid().unsigned_abs() == job.id() => {
                return status
                    .exit_status()
                    .ok_or_else(|| format!("{JOB} was killed: {status:?}"));
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(format!("waiting for {JOB}: {errno}")),
        }
    }
}

/// Unmounts the shares, so that the servers see the end of their sessions.
fn take_down() -> Result<(), String> {
    for place in [SHARED, BENEATH] {
        rustix::mount::unmount(place, UnmountFlags::empty())
            .map_err(|errno| format!("{place} cannot be unmounted: {errno}"))?;
    }
    Ok(())
}
