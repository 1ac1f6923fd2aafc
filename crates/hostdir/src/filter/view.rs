//! What readers see of one version of a redacted file.

use rustix::fs::Statx;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use thrufs::{Errno, LowerFile, Result};
use thrufs_redact::RedactionPlan;

/// Longer than a tick of the clock of file times (10 ms at 100 Hz).
const CLOCK_STEP_MAX: Duration = Duration::from_millis(20);

/// The same for file systems with whole seconds: one on ext4 with small inodes, two on FAT.
const FILE_SYSTEM_STEP_MAX: Duration = Duration::from_millis(2_100);

/// Changes with each change of a file: the change time cannot be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version {
    size: u64,
    pub(super) changed: Duration,
    /// The modification time, which a process can set.
    modified: (i64, u32),
}

impl Version {
    pub(super) fn of(stat: &Statx) -> Version {
        Version {
            size: stat.stx_size,
            changed: time_of_change(stat),
            modified: (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
        }
    }

    pub(super) fn is_empty(self) -> bool {
        self.size == 0
    }

    /// Whether the file was and is empty, and was not emptied in between.
    pub(super) fn is_empty_as(self, other: Version) -> bool {
        self.is_empty() && other.is_empty() && self.modified == other.modified
    }
}

/// Since 1970.
pub(crate) fn time_of_change(stat: &Statx) -> Duration {
    Duration::new(stat.stx_ctime.tv_sec.max(0) as u64, stat.stx_ctime.tv_nsec)
}

/// Whether a change now could leave the same times. Not with a change time in the future: a change now
/// would have another one.
pub(super) fn is_young(stat: &Statx) -> bool {
    let Ok(now) = SystemTime::now().duration_since(UNIX_EPOCH) else {
        return true;
    };
    let changed = time_of_change(stat);
    let step = match changed.subsec_nanos() {
        0 => FILE_SYSTEM_STEP_MAX,
        _ => CLOCK_STEP_MAX,
    };
    now.abs_diff(changed) < step
}

/// What readers see of one version of a file.
#[derive(Clone, Debug)]
pub(crate) enum View {
    /// All of it.
    Whole,
    Redacted(Arc<RedactionPlan>),
    /// Nothing: the file was not understood.
    Withheld(Errno),
}

impl View {
    pub(crate) fn read(&self, file: &LowerFile, buffer: &mut [u8], offset: u64) -> Result<usize> {
        if let View::Withheld(errno) = self {
            return Err(*errno);
        }
        let length = file.read_at(buffer, offset, true)?;
        if let View::Redacted(plan) = self {
            plan.apply(offset, &mut buffer[..length]);
        }
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat::stat_open;

    #[test]
    fn whole_second_times_need_a_longer_wait() {
        let file = tempfile::tempfile().unwrap();
        let is_young_with = |age: u64, nanoseconds: Option<u32>| {
            let mut stat = stat_open(&file).unwrap();
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            let changed = now - Duration::from_millis(age);
            stat.stx_ctime.tv_sec = changed.as_secs() as i64;
            stat.stx_ctime.tv_nsec = nanoseconds.unwrap_or(changed.subsec_nanos());
            is_young(&stat)
        };
        assert!(is_young_with(0, None) && is_young_with(1000, Some(0)));
        assert!(!is_young_with(1000, Some(1)) && !is_young_with(3200, Some(0)));
    }
}
