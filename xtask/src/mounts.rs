//! What is mounted, to see that nothing stays behind.

use crate::step::Failure;

/// Mount points of FUSE file systems and of file systems on loop devices.
pub(crate) fn fuse_mounts() -> Result<Vec<String>, Failure> {
    let table = std::fs::read_to_string("/proc/self/mounts")
        .map_err(|error| Failure::new(format!("cannot read the table of mounts: {error}")))?;
    Ok(ours(&table))
}

fn ours(table: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in table.lines() {
        let mut words = line.split(' ');
        let (Some(device), Some(point), Some(kind)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let is_fuse = kind == "fuse" || kind == "fuseblk" || kind.starts_with("fuse.");
        if is_fuse || device.starts_with("/dev/loop") {
            found.push(point.to_owned());
        }
    }
    found
}

/// Fails when something is mounted that was not there `before`.
pub(crate) fn nothing_left(before: &[String]) -> Result<(), Failure> {
    let left: Vec<_> = fuse_mounts()?
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
    use super::ours;

    #[test]
    fn fuse_and_loop_mounts_are_found_and_others_are_not() {
        let table = "/src /mnt/a fuse.thrufs rw 0 0\n/dev/loop3 /mnt/b ext4 rw 0 0\n\
                     tmpfs /tmp tmpfs rw 0 0\nfusectl /sys/fs/fuse/connections fusectl rw 0 0\n";
        assert_eq!(ours(table), ["/mnt/a", "/mnt/b"]);
    }
}
