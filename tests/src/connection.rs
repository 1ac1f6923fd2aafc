//! A connection as the kernel's control file system shows it.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::guard::{Detach, of_kernel};

/// The connection of one mount. Its control file system is mounted for it where the machine has none.
pub struct Connection {
    directory: PathBuf,
    _mounted: Option<Detach<TempDir>>,
}

impl Connection {
    /// The connection of the mount at `mnt`, from the mount table: the mount itself may hang.
    #[track_caller]
    pub fn of(mnt: &Path) -> Self {
        let number = device_number(mnt).expect("a mount in the table");
        let usual = Path::new("/sys/fs/fuse/connections");
        let (place, mounted) = of_kernel("fusectl", usual, &number).unwrap();
        Self {
            directory: place.join(number),
            _mounted: mounted,
        }
    }

    /// How many requests the kernel has that are not answered.
    #[track_caller]
    pub fn waiting(&self) -> u32 {
        let waiting = fs::read_to_string(self.directory.join("waiting")).unwrap();
        waiting.trim().parse().unwrap()
    }

    /// Aborts it: every call into the mount returns with an error. Nothing happens when it has ended.
    pub fn abort(&self) {
        let _ = fs::write(self.directory.join("abort"), "1");
    }
}

/// Aborts the connection when the test fails, so that processes stuck in it can be killed.
pub struct AbortOnPanic(pub Connection);

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.abort();
        }
    }
}

/// The minor number of the device, which names the connection.
fn device_number(mnt: &Path) -> Option<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let line = table.lines().rfind(|line| {
        let point = line.split(' ').nth(4);
        point.is_some_and(|point| Path::new(point) == mnt)
    })?;
    let (_, minor) = line.split(' ').nth(2)?.split_once(':')?;
    Some(minor.to_owned())
}
