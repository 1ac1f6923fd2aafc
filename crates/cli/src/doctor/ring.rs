//! FUSE over io_uring: its requirements, and the transport that a mount selects.

use super::finding::Finding;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::path::Path;
use thrufs::session::ring_availability;
use thrufs::{Carrier, SessionConfig, UringRefusal};
use thrufs_sys::fuse_ring::FuseRing;

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";
/// Exists for loaded modules, not for built-in ones.
const LOADED: &str = "/sys/module/fuse/initstate";
const DISABLED: &str = "/proc/sys/kernel/io_uring_disabled";
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";

/// The findings that a remedy names.
const OFFER: &str = "enable_uring";
const RINGS: &str = "io_uring";

pub(super) fn look(has_device: bool) -> [Finding; 4] {
    let verdict = if has_device {
        judge(ring_availability(&SessionConfig::default()))
    } else {
        Finding::bad("not available without /dev/fuse", "see /dev/fuse")
    };
    [
        offer().called(OFFER),
        rings().called(RINGS),
        processors().called("processors"),
        verdict.called("transport"),
    ]
}

fn offer() -> Finding {
    match read(PARAMETER).as_deref() {
        Some("Y") => Finding::good(format!("{PARAMETER} is Y")),
        Some(other) => {
            let detail =
                format!("{PARAMETER} is {other}: the kernel does not offer FUSE over io_uring");
            Finding::bad(detail, how_to_offer(Path::new(LOADED).exists()))
        }
        None => Finding::bad(
            format!("there is no {PARAMETER}"),
            "use Linux 6.14 or newer, built with CONFIG_FUSE_IO_URING",
        ),
    }
}

/// For now, and permanently.
fn how_to_offer(is_module: bool) -> String {
    let lasting = if is_module {
        "a line `options fuse enable_uring=Y` in /etc/modprobe.d/fuse.conf"
    } else {
        "`fuse.enable_uring=Y` on the kernel's command line"
    };
    format!("as root: echo Y > {PARAMETER}, for mounts made after it; for good, {lasting}")
}

fn rings() -> Finding {
    let disabled = read(DISABLED);
    let shown = match &disabled {
        Some(value) => format!("kernel.io_uring_disabled is {value}"),
        None => "no sysctl kernel.io_uring_disabled here".to_owned(),
    };
    match try_ring() {
        Ok(()) => Finding::good(format!("this process may create rings ({shown})")),
        Err(errno) => {
            let detail = format!("this process cannot create a ring: {errno} ({shown})");
            Finding::bad(detail, how_to_get_rings(errno, disabled.as_deref()))
        }
    }
}

/// Creates a ring as the transport does, for an eventfd, as there may be no `/dev/fuse`.
fn try_ring() -> rustix::io::Result<()> {
    let event = eventfd(0, EventfdFlags::CLOEXEC)?;
    FuseRing::<()>::new(event.as_fd(), 1).map(drop)
}

fn how_to_get_rings(errno: Errno, disabled: Option<&str>) -> &'static str {
    match (errno, disabled) {
        (Errno::PERM | Errno::ACCESS, Some("1" | "2")) => {
            "as root: sysctl kernel.io_uring_disabled=0 (1 permits root and kernel.io_uring_group)"
        }
        (Errno::PERM | Errno::ACCESS | Errno::NOSYS, _) => {
            "have the container's seccomp profile allow io_uring_setup, _enter and _register; else \
             use a kernel built with CONFIG_IO_URING"
        }
        (Errno::INVAL, _) => "use a newer kernel: rings of this kind need Linux 6.6",
        _ => "raise the limits on open files and locked memory (ulimit -n, ulimit -l)",
    }
}

fn processors() -> Finding {
    let own = rustix::thread::sched_getaffinity(None).map_or(0, |set| set.count());
    let possible = match read(POSSIBLE).and_then(|list| count(&list)) {
        Some(possible) => format!("{possible} possible, each with a queue"),
        None => format!("the number of possible processors is unknown ({POSSIBLE})"),
    };
    let detail = format!("{possible}; this process may run on {own}");
    Finding::note(detail)
}

/// As a mount logs it.
fn judge(availability: Result<usize, UringRefusal>) -> Finding {
    let refusal = match availability {
        Ok(queues) => {
            let detail = format!("transport=auto selects io_uring: {queues} queues");
            return Finding::good(detail);
        }
        Err(refusal) => refusal,
    };
    let above = match refusal {
        UringRefusal::NotOffered => Some(OFFER),
        UringRefusal::Forbidden(_) | UringRefusal::NoRing(_) => Some(RINGS),
        _ => None,
    };
    let carrier = Carrier::Dev(Some(refusal));
    let detail = format!("transport=auto selects {carrier}");
    match above {
        Some(above) => Finding::bad(detail, format!("see {above}")),
        None => Finding::note(detail),
    }
}

/// The number of CPUs in a list such as `0-3,8`.
fn count(list: &str) -> Option<u32> {
    let lengths = list.split(',').map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    });
    lengths.sum()
}

fn read(path: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::finding::FindingState;
    use super::*;

    #[test]
    fn transport_finding_matches_the_log_of_a_mount() {
        let finding = judge(Ok(3));
        assert_eq!(finding.state, FindingState::Good);
        assert_eq!(finding.detail, "transport=auto selects io_uring: 3 queues");
        for (refusal, remedy) in [
            (UringRefusal::NotOffered, Some("see enable_uring")),
            (UringRefusal::Forbidden(Errno::PERM), Some("see io_uring")),
            (UringRefusal::NoRing(Errno::MFILE), Some("see io_uring")),
            (UringRefusal::OneCpu, None),
        ] {
            let log = Carrier::Dev(Some(refusal.clone())).to_string();
            let finding = judge(Err(refusal));
            assert_eq!(finding.detail, format!("transport=auto selects {log}"));
            let state = remedy.map_or(FindingState::Note, |_| FindingState::Bad);
            assert_eq!((finding.state, finding.remedy.as_deref()), (state, remedy));
        }
        let [.., verdict] = look(false);
        assert_eq!(verdict.remedy.as_deref(), Some("see /dev/fuse"));
    }

    #[test]
    fn remedy_depends_on_the_cause() {
        assert!(how_to_offer(true).contains("modprobe.d"));
        assert!(how_to_offer(false).contains("command line"));
        assert!(how_to_get_rings(Errno::PERM, Some("2")).contains("sysctl"));
        assert!(how_to_get_rings(Errno::PERM, Some("0")).contains("container"));
        assert!(how_to_get_rings(Errno::NOSYS, None).contains("CONFIG_IO_URING"));
        assert!(how_to_get_rings(Errno::MFILE, Some("0")).contains("ulimit"));
    }

    #[test]
    fn cpu_lists_are_counted() {
        assert_eq!(count("0-3,8"), Some(5));
        assert_eq!(count("0"), Some(1));
        assert_eq!(count(""), None);
        assert_eq!(count("3-1"), None);
    }
}
