//! The kernel's release and features.

use super::finding::Finding;
use rustix::thread::CapabilitySet;
use thrufs_sys::cred;

/// The oldest supported.
const OLDEST: (u32, u32) = (5, 12);

const PASSTHROUGH: (u32, u32) = (6, 9);

const PAGES_LIMIT: &str = "/proc/sys/fs/fuse/max_pages_limit";

/// Most pages in a request without the sysctl (`FUSE_DEFAULT_MAX_PAGES_LIMIT`).
const PAGES_MAX: u64 = 256;

pub(super) fn release() -> Finding {
    let release = of_this_kernel();
    let detail = format!("Linux {release}");
    match version(&release) {
        Some(version) if version < OLDEST => Finding::bad(detail, "use Linux 5.12 or newer"),
        Some(_) => Finding::good(detail),
        None => Finding::note(format!("{detail}: unknown version")),
    }
}

fn of_this_kernel() -> String {
    let names = rustix::system::uname();
    names.release().to_string_lossy().into_owned()
}

pub(super) fn passthrough() -> Finding {
    let release = of_this_kernel();
    if version(&release).is_some_and(|version| version < PASSTHROUGH) {
        return Finding::bad(
            "not supported by this kernel: files are read and written by the server",
            "use Linux 6.9 or newer, built with CONFIG_FUSE_PASSTHROUGH",
        );
    }
    if !(is_admin() && is_initial_namespace()) {
        return Finding::bad(
            "no CAP_SYS_ADMIN in the initial user namespace: files are read and written by the server",
            "mount as root, outside of containers and user namespaces",
        );
    }
    let detail = "open files are read, written and mapped by the kernel itself";
    Finding::good(detail)
}

/// Whether this thread has CAP_SYS_ADMIN, perhaps in a user namespace.
pub(super) fn is_admin() -> bool {
    cred::thread_effective().is_ok_and(|set| set.contains(CapabilitySet::SYS_ADMIN))
}

/// Only the initial user namespace maps all ids to themselves.
fn is_initial_namespace() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

pub(super) fn request_size() -> Finding {
    let limit = std::fs::read_to_string(PAGES_LIMIT).ok();
    let limit = limit.and_then(|limit| limit.trim().parse::<u64>().ok());
    let Some(pages) = limit else {
        let size = size(PAGES_MAX);
        return Finding::note(format!("at most {size}: no fs.fuse.max_pages_limit here"));
    };
    let detail = format!(
        "at most {}: fs.fuse.max_pages_limit is {pages}",
        size(pages)
    );
    if pages < PAGES_MAX {
        Finding::bad(detail, "as root: sysctl fs.fuse.max_pages_limit=256")
    } else {
        Finding::good(detail)
    }
}

fn size(pages: u64) -> String {
    let kibibytes = pages * rustix::param::page_size() as u64 / 1024;
    match kibibytes % 1024 {
        0 => format!("{}M", kibibytes / 1024),
        _ => format!("{kibibytes}K"),
    }
}

/// `6.18.44-1` is 6, 18.
pub(super) fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        assert_eq!(version("6.18.44-1-amd64"), Some((6, 18)));
        assert_eq!(version("5.9"), Some((5, 9)));
        assert_eq!(version("6.1-rc3"), Some((6, 1)));
        assert!(version("5.9") < Some(OLDEST));
        assert_eq!(version("unknown"), None);
    }

    #[test]
    fn sizes_are_shown_as_for_max_write() {
        let page = rustix::param::page_size() as u64;
        assert_eq!(size((1 << 20) / page), "1M");
        assert_eq!(size((64 << 10) / page), "64K");
    }
}
