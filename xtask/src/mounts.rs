//! What is mounted, to see that nothing stays behind.

use crate::project;
use crate::run;
use crate::step::{Failure, Step};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where tracefs is.
const TRACING: &str = "/sys/kernel/tracing";

/// What FUSE servers open; its numbers never change.
const DEVICE: &str = "/dev/fuse";

/// Where the control sockets of root's mounts are.
const SOCKETS: &str = "/run/thrufs";

/// Mount points of FUSE file systems and of file systems on loop devices that are this run's: all in
/// namespaces of its own, else those beneath its directory.
pub(crate) fn own() -> Result<Vec<String>, Failure> {
    let place = std::env::temp_dir();
    let everywhere = Path::new("/");
    let beneath = if run::has_namespaces() {
        everywhere
    } else {
        &place
    };
    Ok(tested(&table()?, beneath))
}

fn table() -> Result<String, Failure> {
    std::fs::read_to_string("/proc/self/mounts")
        .map_err(|error| Failure::new(format!("cannot read the table of mounts: {error}")))
}

/// Those beneath `place` that tests may have mounted.
fn tested(table: &str, place: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for line in table.lines() {
        let mut words = line.split(' ');
        let (Some(device), Some(point), Some(kind)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let is_tests = is_fuse(kind) || device.starts_with("/dev/loop");
        if is_tests && Path::new(point).starts_with(place) {
            found.push(point.to_owned());
        }
    }
    found
}

fn is_fuse(kind: &str) -> bool {
    kind == "fuse" || kind == "fuseblk" || kind.starts_with("fuse.")
}

/// Prepares a namespace of our own: see [`drop_copies`]. Control sockets, which are named by numbers of
/// devices and processes, are its own too, and the kernel's counters are there where a machine has not
/// mounted them.
pub(crate) fn prepare() -> Result<(), Failure> {
    if !run::has_namespaces() {
        return Ok(());
    }
    drop_copies()?;
    // As a mount would make it.
    Step::new("mkdir")
        .args(["-p", "-m", "711", SOCKETS])
        .quietly()?;
    Step::new("mount")
        .args(["-t", "tmpfs", "-o", "mode=711", "tmpfs", SOCKETS])
        .quietly()?;
    let mode = std::fs::metadata(DEVICE).map_or(0o666, |device| device.mode());
    if mode & 0o006 != 0o006 {
        // As udev makes it. Else each test of an ordinary user would need a namespace to have it so,
        // with copies of whatever other tests have mounted.
        let own = std::env::temp_dir().join("fuse");
        let numbers = ["c", "10", "229"];
        let mknod = Step::new("mknod").args(["-m", "666"]).args([&own]);
        mknod.args(numbers).quietly()?;
        let mount = Step::new("mount").args(["--bind"]).args([&own]);
        mount.args([DEVICE]).quietly()?;
    }
    if !Path::new(TRACING).join("events").exists() {
        // Without them, tests say what they skip.
        let _ = Step::new("mount")
            .args(["-t", "tracefs", "tracefs", TRACING])
            .capture();
    }
    Ok(())
}

/// In a namespace of its own, takes away the copies of others' FUSE mounts, which would keep those
/// alive after their owners have unmounted them. What this project lies on stays.
fn drop_copies() -> Result<(), Failure> {
    let needed: Vec<PathBuf> = [project::root().to_owned(), project::target()]
        .into_iter()
        .chain([project::tools(), std::env::temp_dir()])
        .chain(std::env::var_os("HOME").map(PathBuf::from))
        .chain(std::env::var_os("CARGO_HOME").map(PathBuf::from))
        .collect();
    for line in table()?.lines().rev() {
        let mut words = line.split(' ').skip(1);
        let (Some(point), Some(kind)) = (words.next(), words.next()) else {
            continue;
        };
        if is_fuse(kind) && !needed.iter().any(|path| path.starts_with(point)) {
            // One that is gone already, or hidden by another, does no harm.
            let _ = Step::new("umount").args(["--lazy", point]).capture();
        }
    }
    Ok(())
}

/// Takes away whatever is mounted beneath a directory, the innermost first.
pub(crate) fn take_away_beneath(directory: &Path) {
    let table = table().unwrap_or_default();
    let points = table.lines().filter_map(|line| line.split(' ').nth(1));
    let mut points: Vec<&str> = points
        .filter(|point| Path::new(point).starts_with(directory))
        .collect();
    points.sort_unstable();
    for point in points.into_iter().rev() {
        println!("xtask: unmounting what was left behind: {point}");
        let by_root = Step::new("umount").args(["--lazy", point]).capture();
        if !matches!(by_root, Ok((true, ..))) {
            let _ = Step::new("fusermount3").args(["-uz", point]).capture();
        }
    }
}

/// Fails when something of this run is mounted that was not there `before`.
pub(crate) fn nothing_left(before: &[String]) -> Result<(), Failure> {
    let left: Vec<_> = own()?
        .into_iter()
        .filter(|point| !before.contains(point))
        .collect();
    if left.is_empty() {
        Ok(())
    } else {
        Err(Failure::new(format!(
            "mounts left behind: {}",
            left.join(", ")
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::tested;
    use std::path::Path;

    const TABLE: &str = "/src /mnt/a fuse.thrufs rw 0 0\n/dev/loop3 /tmp/run.1/b ext4 rw 0 0\n\
                         /src /tmp/run.1/c fuse.thrufs rw 0 0\n/src /tmp/run.11/c fuse rw 0 0\n\
                         tmpfs /tmp tmpfs rw 0 0\nfusectl /sys/fs/fuse/connections fusectl rw 0 0\n";

    #[test]
    fn fuse_and_loop_mounts_are_found_and_others_are_not() {
        let found = tested(TABLE, Path::new("/"));
        assert_eq!(
            found,
            ["/mnt/a", "/tmp/run.1/b", "/tmp/run.1/c", "/tmp/run.11/c"]
        );
    }

    #[test]
    fn what_others_mount_is_not_counted() {
        let found = tested(TABLE, Path::new("/tmp/run.1"));
        assert_eq!(found, ["/tmp/run.1/b", "/tmp/run.1/c"]);
    }
}
