//! CPUs and scheduling classes of this process's threads and of callers.
//!
//! procfs tells where threads run. A session opens it before the process is confined: where permitted, a
//! private instance with processes only (`subset=pid`) that follows no symbolic link, so that the
//! descriptor leads to no other file. Otherwise `/proc`, unless it is that of another PID namespace.

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, OpenTreeFlags, fsconfig_create, fsconfig_set_string,
    fsmount, fsopen, open_tree,
};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fmt::Debug;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use thrufs_sys::sched::{Class, set_class};
use thrufs_sys::signal::ThreadId;

/// Finds callers for a process that does not see them, because it has a pid namespace of its own.
pub trait Callers: Debug + Send + Sync {
    /// The CPU that a caller runs on or last ran on. `caller` is the thread id in its requests.
    fn cpu(&self, caller: u32) -> Option<usize>;
}

/// procfs, for the threads of this process and for callers; or nothing, where it is not available.
#[derive(Debug)]
pub(crate) struct Processes {
    view: Option<OwnedFd>,
    callers: Option<Arc<dyn Callers>>,
}

impl Processes {
    /// Opens procfs. Without `callers`, it shows callers.
    pub(crate) fn open(callers: Option<Arc<dyn Callers>>) -> Processes {
        let view = mount_processes().or_else(|_| open_proc()).ok();
        Processes { view, callers }
    }

    pub(crate) fn show_callers(&self) -> bool {
        self.view.is_some() || self.callers.is_some()
    }

    /// As [`Callers::cpu`].
    pub(crate) fn cpu_of_caller(&self, caller: u32) -> Option<usize> {
        match &self.callers {
            Some(callers) => callers.cpu(caller),
            // A thread's own entry in its own task list is the cheapest to read.
            None => cpu_in_stat(&self.read(caller, caller, "stat")?),
        }
    }

    /// Whether a thread of this process runs or waits for a CPU. False where procfs does not tell.
    pub(crate) fn wants_cpu(&self, thread: ThreadId) -> bool {
        let stat = self.read_own(thread, "stat");
        stat.is_some_and(|stat| stat_field(&stat, 3) == Some("R"))
    }

    /// As [`times_in_schedstat`], for a thread of this process.
    pub(crate) fn times(&self, thread: ThreadId) -> Option<(Duration, Duration)> {
        times_in_schedstat(&self.read_own(thread, "schedstat")?)
    }

    fn read_own(&self, thread: ThreadId, file: &str) -> Option<Vec<u8>> {
        let thread = thread.as_raw().unsigned_abs();
        self.read(std::process::id(), thread, file)
    }

    /// A file about a thread of the process `process`.
    fn read(&self, process: u32, thread: u32, file: &str) -> Option<Vec<u8>> {
        let path = format!("{process}/task/{thread}/{file}");
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let descriptor = openat(self.view.as_ref()?, path, flags, Mode::empty()).ok()?;
        let mut bytes = vec![0; 1024];
        let length = rustix::io::read(&descriptor, &mut bytes).ok()?;
        bytes.truncate(length);
        Some(bytes)
    }
}

fn mount_processes() -> rustix::io::Result<OwnedFd> {
    let context = fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "subset", "pid")?;
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC
        | MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// As a mount with nothing above it, if possible. One of another PID namespace, in which this process has
/// another number, shows nothing of it, and to a confined process only what it must not reach.
fn open_proc() -> rustix::io::Result<OwnedFd> {
    let recursive = OpenTreeFlags::from_bits_retain(thrufs_sys::mount::AT_RECURSIVE);
    let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | recursive;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let proc = open_tree(CWD, "/proc", clone)
        .or_else(|_| rustix::fs::open("/proc", flags, Mode::empty()))?;
    let own = rustix::fs::readlinkat(&proc, "self", Vec::new())?;
    match own.to_bytes() == std::process::id().to_string().as_bytes() {
        true => Ok(proc),
        false => Err(rustix::io::Errno::SRCH),
    }
}

/// The CPU in a thread's `stat` of procfs: the one that it runs on or last ran on.
pub fn cpu_in_stat(stat: &[u8]) -> Option<usize> {
    stat_field(stat, 39)?.parse().ok()
}

/// A thread's time on a CPU and its time of waiting for one, since its start, from its `schedstat`.
pub fn times_in_schedstat(schedstat: &[u8]) -> Option<(Duration, Duration)> {
    let mut words = std::str::from_utf8(schedstat).ok()?.split_whitespace();
    let mut next = || Some(Duration::from_nanos(words.next()?.parse().ok()?));
    Some((next()?, next()?))
}

/// Field `number` of `stat`, counted from 1 as `proc_pid_stat(5)` does; from the third on. The name
/// in parentheses, before it, may hold any bytes.
fn stat_field(stat: &[u8], number: usize) -> Option<&str> {
    let end_of_name = stat.iter().rposition(|byte| *byte == b')')?;
    let fields = std::str::from_utf8(&stat[end_of_name + 1..]).ok()?;
    fields.split_whitespace().nth(number.checked_sub(3)?)
}

/// The CPUs that the calling thread may use; none if the kernel does not tell.
pub fn allowed_cpus() -> CpuSet {
    sched_getaffinity(None).unwrap_or_default()
}

/// Binds a thread to one CPU, in the class `SCHED_IDLE`.
///
/// # Errors
/// The system's; the thread is then as it was.
pub fn bind(thread: ThreadId, cpu: usize) -> rustix::io::Result<()> {
    move_to(thread, cpu)?;
    set_class(thread, Class::Idle)
}

/// Moves a bound thread to another CPU.
///
/// # Errors
/// EINVAL for a CPU that is offline or not allowed.
pub fn move_to(thread: ThreadId, cpu: usize) -> rustix::io::Result<()> {
    let mut only = CpuSet::new();
    if cpu >= CpuSet::MAX_CPU {
        return Err(rustix::io::Errno::INVAL);
    }
    only.set(cpu);
    sched_setaffinity(Pid::from_raw(thread.as_raw()), &only)
}

/// Returns a bound thread to the ordinary class and to all CPUs of `allowed`.
pub fn release(thread: ThreadId, allowed: &CpuSet) {
    let released = set_class(thread, Class::Prompt)
        .and_then(|()| sched_setaffinity(Pid::from_raw(thread.as_raw()), allowed));
    match released {
        // SRCH: the thread has ended.
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(error) => tracing::warn!(%error, "cannot unbind a reader from its CPU"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thrufs_sys::signal::current_thread_id;

    #[test]
    fn the_calling_thread_wants_a_cpu_and_has_one() {
        let of = |view| Processes {
            view,
            callers: None,
        };
        let me = current_thread_id();
        assert!(!of(None).wants_cpu(me));
        for processes in [Processes::open(None), of(Some(open_proc().unwrap()))] {
            assert!(processes.wants_cpu(me));
            let caller = me.as_raw().unsigned_abs();
            let cpu = processes.cpu_of_caller(caller).unwrap();
            assert!(allowed_cpus().is_set(cpu));
            let run = || processes.times(me).unwrap().0;
            let before = run();
            let start = std::time::Instant::now();
            while run() == before {
                assert!(start.elapsed() < Duration::from_secs(60), "it runs");
            }
            assert_eq!(processes.cpu_of_caller(u32::MAX), None);
        }
    }

    #[test]
    fn the_private_procfs_shows_processes_and_follows_no_link() {
        let Ok(processes) = mount_processes() else {
            return eprintln!("SKIPPED: this user may not mount a procfs");
        };
        let open = |path: &str| {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            openat(&processes, path, flags, Mode::empty()).map(drop)
        };
        let me = std::process::id();
        assert_eq!(open(&format!("{me}/stat")), Ok(()));
        assert_eq!(open("sys"), Err(rustix::io::Errno::NOENT));
        assert_eq!(open("../../sys/kernel"), Err(rustix::io::Errno::NOENT));
        for link in ["root", "cwd", "exe", "root/etc"] {
            let path = format!("{me}/{link}/.");
            assert_eq!(open(&path), Err(rustix::io::Errno::LOOP), "{link}");
        }
    }

    #[test]
    fn thread_names_with_parentheses_are_skipped() {
        let stat = b"7 (a ) R b) S 1 2 3";
        assert_eq!(stat_field(stat, 3), Some("S"));
        assert_eq!(stat_field(stat, 6), Some("3"));
        assert_eq!(stat_field(stat, 7), None);
        assert_eq!(stat_field(b"nothing", 3), None);
    }

    #[test]
    fn bound_and_released() {
        if !thrufs_sys::sched::may_leave_idle() {
            return eprintln!("SKIPPED: threads of this user cannot leave the idle class");
        }
        std::thread::spawn(|| {
            let allowed = allowed_cpus();
            let me = current_thread_id();
            let cpu = (0..CpuSet::MAX_CPU)
                .rfind(|cpu| allowed.is_set(*cpu))
                .unwrap();
            bind(me, cpu).unwrap();
            assert_eq!(allowed_cpus().count(), 1);
            assert_eq!(thrufs_sys::sched::current_cpu(), cpu);
            release(me, &allowed);
            assert_eq!(allowed_cpus(), allowed);
            assert!(move_to(me, usize::MAX).is_err());
        })
        .join()
        .unwrap();
    }
}
