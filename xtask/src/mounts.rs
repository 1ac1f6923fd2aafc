//! Mounts in the namespace of a run.

use crate::failure::Failure;
use crate::project;
use crate::step::Step;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const TRACING: &str = "/sys/kernel/tracing";

/// The device of FUSE servers; its numbers never change.
const DEVICE: &str = "/dev/fuse";

/// Where the control sockets of root's mounts are.
const SOCKETS: &str = "/run/thrufs";

/// Mount points in the order of mounting, and whether each is a FUSE file system, or one on a loop device.
fn table() -> Result<Vec<(String, bool, bool)>, Failure> {
    let path = Path::new("/proc/self/mounts");
    let text = fs::read_to_string(path).map_err(Failure::of(path))?;
    let mount = |line: &str| {
        let mut words = line.split(' ');
        let (device, point, kind) = (words.next()?, words.next()?, words.next()?);
        let is_fuse = ["fuse", "fuseblk"].contains(&kind) || kind.starts_with("fuse.");
        Some((point.to_owned(), is_fuse, device.starts_with("/dev/loop")))
    };
    Ok(text.lines().filter_map(mount).collect())
}

/// Mount points that tests may have left.
pub(crate) fn of_tests() -> Result<Vec<String>, Failure> {
    let mounts = table()?.into_iter();
    let mounts = mounts.filter(|(_, is_fuse, is_on_loop)| *is_fuse || *is_on_loop);
    Ok(mounts.map(|(point, ..)| point).collect())
}

/// Prepares a namespace of our own, with control sockets of its own (they are named by numbers of devices
/// and processes), and the kernel's counters where a machine has not mounted them.
pub(crate) fn prepare() -> Result<(), Failure> {
    drop_copies()?;
    // As a mount would make it.
    let mkdir = Step::new("mkdir").args(["-p", "-m", "711", SOCKETS]);
    mkdir.quietly()?;
    mount(&["-t", "tmpfs", "-o", "mode=711", "tmpfs", SOCKETS]).quietly()?;
    let mode = fs::metadata(DEVICE).map_or(0o666, |device| device.mode());
    if mode & 0o006 != 0o006 {
        // As udev makes it. Otherwise each test of an ordinary user would need a namespace to have it so,
        // with copies of other tests' mounts.
        let own = std::env::temp_dir().join("fuse");
        let mknod = Step::new("mknod").args(["-m", "666"]).args([&own]);
        mknod.args(["c", "10", "229"]).quietly()?;
        mount(&["--bind"]).args([&own]).args([DEVICE]).quietly()?;
    }
    if !Path::new(TRACING).join("events").exists() {
        // Without them, tests skip.
        let _ = mount(&["-t", "tracefs", "tracefs", TRACING]).text();
    }
    Ok(())
}

fn mount(arguments: &[&str]) -> Step {
    Step::new("mount").args(arguments)
}

/// Unmounts the copies of other FUSE mounts, which would keep those alive after their owners have unmounted
/// them. What this project lies on stays.
fn drop_copies() -> Result<(), Failure> {
    let mut needed = vec![project::target(), project::tools(), std::env::temp_dir()];
    needed.push(project::root().to_owned());
    let homes = ["HOME", "CARGO_HOME"].into_iter();
    needed.extend(homes.filter_map(std::env::var_os).map(PathBuf::from));
    for (point, is_fuse, _) in table()?.iter().rev() {
        if *is_fuse && !needed.iter().any(|path| path.starts_with(point)) {
            // One that is gone, or covered by another, does no harm.
            let _ = Step::new("umount").args(["--lazy", point]).text();
        }
    }
    Ok(())
}
