//! The options of a mount, and those of them that FUSE itself reads.

use rustix::mount::MountAttrFlags;
use rustix::process::{getgid, getuid};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Mount options.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// The source in `/proc/mounts`.
    pub source: String,
    /// The subtype: `/proc/mounts` shows the type `fuse.SUBTYPE`.
    pub subtype: Option<String>,
    /// `ro`, `nosuid`, `nodev`, `noexec`, the family of `atime`, `nosymfollow`.
    pub attributes: MountAttrFlags,
    /// Users other than the mounting one may use it.
    pub allow_other: bool,
    /// The kernel checks permissions by mode and ACL.
    pub default_permissions: bool,
    /// Writes are on the disk when they return (`sync`). Root only.
    pub synchronous: bool,
    /// Most bytes in one READ; the kernel's own limit when none.
    pub read_bytes_max: Option<u32>,
    /// Unmounts also when the serving process is killed: `fusermount3` mounts, also for root, and stays.
    /// Without it, the mount answers ENOTCONN until it is unmounted, which keeps programs from writing to the
    /// directory beneath. For [`mount`](crate::mount()) only.
    pub auto_unmount: bool,
}

impl MountOptions {
    /// With permissions checked by the kernel, and for the mounting user only.
    pub fn new(source: impl Into<String>) -> MountOptions {
        MountOptions {
            source: source.into(),
            subtype: None,
            attributes: MountAttrFlags::empty(),
            allow_other: false,
            default_permissions: true,
            synchronous: false,
            read_bytes_max: None,
            auto_unmount: false,
        }
    }

    /// Sets options by a list as of `mount -o`: `ro,nodev,allow_other,fsname=NAME`, a comma or a backslash in a value
    /// being escaped by a backslash. Returns the words that it does not know.
    ///
    /// It knows `ro`, `nosuid`, `nodev`, `noexec`, `noatime`, `nodiratime`, `nosymfollow`, `sync` and their
    /// opposites, `relatime`, `strictatime`, `allow_other`, `default_permissions`, `auto_unmount`,
    /// `max_read=BYTES`, `fsname=NAME` and `subtype=NAME`.
    pub fn set(&mut self, list: &str) -> Vec<String> {
        let mut unknown = split(list);
        unknown.retain(|word| !word.is_empty() && !self.set_one(word));
        unknown
    }

    /// False for one that is not known.
    fn set_one(&mut self, word: &str) -> bool {
        if let Some(flag) = flag(word) {
            let (bits, is_set) = flag;
            // Times of access are a number of its own.
            if MountAttrFlags::MOUNT_ATTR__ATIME.contains(bits) {
                self.attributes -= MountAttrFlags::MOUNT_ATTR__ATIME;
            }
            self.attributes.set(bits, is_set);
            return true;
        }
        match word.split_once('=') {
            None if word == "sync" => self.synchronous = true,
            None if word == "async" => self.synchronous = false,
            None if word == "allow_other" => self.allow_other = true,
            None if word == "default_permissions" => self.default_permissions = true,
            None if word == "auto_unmount" => self.auto_unmount = true,
            Some(("fsname", name)) => name.clone_into(&mut self.source),
            Some(("subtype", name)) => self.subtype = Some(name.to_owned()),
            Some(("max_read", bytes)) => match bytes.parse() {
                Ok(bytes) => self.read_bytes_max = Some(bytes),
                Err(_) => return false,
            },
            _ => return false,
        }
        true
    }

    /// Whether the mount is read-only.
    pub fn is_read_only(&self) -> bool {
        self.attributes.contains(MountAttrFlags::MOUNT_ATTR_RDONLY)
    }
}

/// The words of a list, without their escapes.
fn split(list: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut characters = list.chars();
    while let Some(character) = characters.next() {
        let word = words.last_mut().expect("it begins with one");
        match character {
            ',' => words.push(String::new()),
            '\\' => word.extend(characters.next()),
            other => word.push(other),
        }
    }
    words
}

/// The attribute that an option of mount(8) sets or clears.
fn flag(word: &str) -> Option<(MountAttrFlags, bool)> {
    use MountAttrFlags as Flag;
    Some(match word {
        "ro" => (Flag::MOUNT_ATTR_RDONLY, true),
        "rw" => (Flag::MOUNT_ATTR_RDONLY, false),
        "nosuid" => (Flag::MOUNT_ATTR_NOSUID, true),
        "suid" => (Flag::MOUNT_ATTR_NOSUID, false),
        "nodev" => (Flag::MOUNT_ATTR_NODEV, true),
        "dev" => (Flag::MOUNT_ATTR_NODEV, false),
        "noexec" => (Flag::MOUNT_ATTR_NOEXEC, true),
        "exec" => (Flag::MOUNT_ATTR_NOEXEC, false),
        "noatime" => (Flag::MOUNT_ATTR_NOATIME, true),
        "strictatime" => (Flag::MOUNT_ATTR_STRICTATIME, true),
        "atime" | "relatime" => (Flag::MOUNT_ATTR_NOATIME, false),
        "nodiratime" => (Flag::MOUNT_ATTR_NODIRATIME, true),
        "diratime" => (Flag::MOUNT_ATTR_NODIRATIME, false),
        "nosymfollow" => (Flag::MOUNT_ATTR_NOSYMFOLLOW, true),
        "symfollow" => (Flag::MOUNT_ATTR_NOSYMFOLLOW, false),
        _ => return None,
    })
}

/// The FUSE options of a mount, besides its source, its type and the general flags.
pub(super) fn parameters(
    device: BorrowedFd<'_>,
    options: &MountOptions,
) -> Vec<(&'static str, Option<String>)> {
    let mut parameters = vec![
        ("fd", Some(device.as_raw_fd().to_string())),
        ("rootmode", Some("40000".to_owned())),
        ("user_id", Some(getuid().as_raw().to_string())),
        ("group_id", Some(getgid().as_raw().to_string())),
    ];
    if options.default_permissions {
        parameters.push(("default_permissions", None));
    }
    if options.allow_other {
        parameters.push(("allow_other", None));
    }
    if let Some(bytes) = options.read_bytes_max {
        parameters.push(("max_read", Some(bytes.to_string())));
    }
    parameters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_sets_options_and_returns_what_it_does_not_know() {
        let mut options = MountOptions::new("before");
        options.default_permissions = false;
        let list = "ro,nodev,,noatime,sync,allow_other,fsname=a\\,b\\\\c,subtype=s,max_read=65536,colour=red,max_read=x";
        assert_eq!(options.set(list), ["colour=red", "max_read=x"]);
        assert!(options.is_read_only() && options.synchronous && options.allow_other);
        assert!(!options.default_permissions && !options.auto_unmount);
        assert_eq!(
            (&*options.source, options.subtype.as_deref()),
            ("a,b\\c", Some("s"))
        );
        assert_eq!(options.read_bytes_max, Some(65_536));
        let set = |bits| options.attributes.contains(bits);
        assert!(set(MountAttrFlags::MOUNT_ATTR_NODEV) && set(MountAttrFlags::MOUNT_ATTR_NOATIME));
    }

    #[test]
    fn a_later_word_wins() {
        let mut options = MountOptions::new("");
        assert!(options.set("ro,nosuid,sync,noatime").is_empty());
        assert!(options.set("rw,suid,async,strictatime").is_empty());
        assert_eq!(options.attributes, MountAttrFlags::MOUNT_ATTR_STRICTATIME);
        assert!(!options.synchronous);
        assert!(
            options
                .set("relatime,default_permissions,auto_unmount")
                .is_empty()
        );
        assert!(options.attributes.is_empty() && options.auto_unmount);
    }
}
