//! How a file system is mounted, and what it asks of the kernel.

use crate::{InitFlags, Version};
use std::io;
use std::time::Duration;
use thrufs::{MountOptions, Negotiation};

/// The most bytes of a request.
const WRITE_BYTES_MAX: u32 = 16 << 20;

/// Who may use the mount.
#[derive(Default, Debug, Eq, PartialEq, Clone, Copy)]
pub enum SessionACL {
    /// Everybody (`allow_other`).
    All,
    /// Root and the user who mounts.
    RootAndOwner,
    /// The user who mounts.
    #[default]
    Owner,
}

/// How a session is mounted and served.
#[derive(Debug, Clone, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Config {
    /// Options of the mount.
    pub mount_options: Vec<MountOption>,
    /// Who may use it.
    pub acl: SessionACL,
    /// How many threads read requests. One, the default, calls one method at a time.
    pub n_threads: Option<usize>,
    /// Each thread has a descriptor of its own: always so here.
    pub clone_fd: bool,
}

/// An option of a mount (`mount(8)`, `mount.fuse3(8)`).
#[derive(Debug, Eq, PartialEq, Hash, Clone)]
#[allow(clippy::upper_case_acronyms)]
pub enum MountOption {
    /// The source in `/proc/mounts`.
    FSName(String),
    /// The subtype there.
    Subtype(String),
    /// Any other, as a word.
    CUSTOM(String),
    /// `fusermount3` unmounts when the process ends.
    AutoUnmount,
    /// The kernel checks permissions.
    DefaultPermissions,
    /// `dev`
    Dev,
    /// `nodev`
    NoDev,
    /// `suid`
    Suid,
    /// `nosuid`
    NoSuid,
    /// `ro`
    RO,
    /// `rw`
    RW,
    /// `exec`
    Exec,
    /// `noexec`
    NoExec,
    /// `atime`
    Atime,
    /// `noatime`
    NoAtime,
    /// `dirsync`: no effect on FUSE.
    DirSync,
    /// `sync`
    Sync,
    /// `async`
    Async,
}

impl MountOption {
    /// Its word in a list, and the word that it contradicts.
    fn words(&self) -> (&str, &'static str) {
        match self {
            MountOption::FSName(_) | MountOption::Subtype(_) | MountOption::DirSync => ("", ""),
            MountOption::CUSTOM(word) => (word, ""),
            MountOption::AutoUnmount => ("auto_unmount", ""),
            MountOption::DefaultPermissions => ("default_permissions", ""),
            MountOption::Dev => ("dev", "nodev"),
            MountOption::NoDev => ("nodev", "dev"),
            MountOption::Suid => ("suid", "nosuid"),
            MountOption::NoSuid => ("nosuid", "suid"),
            MountOption::RO => ("ro", "rw"),
            MountOption::RW => ("rw", "ro"),
            MountOption::Exec => ("exec", "noexec"),
            MountOption::NoExec => ("noexec", "exec"),
            MountOption::Atime => ("atime", "noatime"),
            MountOption::NoAtime => ("noatime", "atime"),
            MountOption::Sync => ("sync", "async"),
            MountOption::Async => ("async", "sync"),
        }
    }
}

impl Config {
    /// What is mounted with.
    ///
    /// # Errors
    /// `InvalidInput` for options that contradict each other or are not known.
    pub(crate) fn mount_options(&self) -> io::Result<MountOptions> {
        let refuse = |what: String| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        let mut options = MountOptions::new("fuse");
        options.default_permissions = false;
        options.allow_other = self.acl != SessionACL::Owner;
        for option in &self.mount_options {
            let (word, opposite) = option.words();
            let mut others = self.mount_options.iter();
            if !opposite.is_empty() && others.any(|other| other.words().0 == opposite) {
                return refuse(format!(
                    "the mount options {word} and {opposite} contradict each other"
                ));
            }
            match option {
                MountOption::FSName(name) => name.clone_into(&mut options.source),
                MountOption::Subtype(name) => options.subtype = Some(name.clone()),
                MountOption::DirSync => tracing::debug!("dirsync has no effect on FUSE"),
                _ => {
                    let unknown = options.set(word);
                    if !unknown.is_empty() {
                        return refuse(format!("unknown mount options: {}", unknown.join(",")));
                    }
                }
            }
        }
        if options.auto_unmount && !options.allow_other {
            return refuse("auto_unmount needs an acl other than Owner".to_owned());
        }
        Ok(options)
    }
}

/// What the kernel offers, and what the file system asks for.
///
/// The setters return the value before, or the nearest one that they accept as an error.
#[derive(Debug)]
pub struct KernelConfig {
    offered: InitFlags,
    requested: InitFlags,
    minor: u32,
    readahead_bytes_most: u32,
    readahead_bytes_max: u32,
    background_requests_max: u16,
    congestion_threshold: Option<u16>,
    write_bytes_max: u32,
    time_granularity: Duration,
    stack_depth_max: u32,
}

fn set<T>(place: &mut T, value: T) -> Result<T, T> {
    Ok(std::mem::replace(place, value))
}

impl KernelConfig {
    pub(crate) fn new(negotiation: &Negotiation) -> KernelConfig {
        let readahead_bytes_max = negotiation.readahead_bytes_max();
        KernelConfig {
            offered: InitFlags::from_bits_retain(negotiation.offered().bits()),
            requested: InitFlags::empty(),
            minor: negotiation.minor(),
            readahead_bytes_most: readahead_bytes_max,
            readahead_bytes_max,
            background_requests_max: 0,
            congestion_threshold: None,
            write_bytes_max: 0,
            time_granularity: Duration::from_nanos(1),
            stack_depth_max: 0,
        }
    }

    pub(crate) fn ask(&self, negotiation: &mut Negotiation) {
        let requested = thrufs::InitFlags::from_bits_retain(self.requested.bits());
        // The transport is the session's own.
        negotiation.want(requested - thrufs::InitFlags::OVER_IO_URING);
        negotiation.set_readahead_bytes_max(self.readahead_bytes_max);
        negotiation.set_time_granularity_ns(self.time_granularity.as_nanos() as u32);
        negotiation.set_stack_depth_max(self.stack_depth_max);
        if self.write_bytes_max > 0 {
            negotiation.set_write_bytes_max(self.write_bytes_max);
        }
        if self.background_requests_max > 0 {
            negotiation.set_background_requests_max(self.background_requests_max);
        }
    }

    /// How deep file systems may be stacked beneath passthrough; 0, the default, is none.
    ///
    /// # Errors
    /// More than 2.
    pub fn set_max_stack_depth(&mut self, value: u32) -> Result<u32, u32> {
        if value > 2 {
            return Err(2);
        }
        set(&mut self.stack_depth_max, value)
    }

    /// Granularity of time stamps: a power of ten of nanoseconds, at most a second.
    ///
    /// # Errors
    /// Any other.
    pub fn set_time_granularity(&mut self, value: Duration) -> Result<Duration, Duration> {
        let nanoseconds = value.as_nanos().clamp(1, 1_000_000_000);
        let nearest = Duration::from_nanos(10_u64.pow(nanoseconds.ilog10()));
        if value != nearest {
            return Err(nearest);
        }
        set(&mut self.time_granularity, value)
    }

    /// Most bytes of one WRITE. The library's default, and what the kernel usually allows, is 1 MiB.
    ///
    /// # Errors
    /// 0, or more than 16 MiB.
    pub fn set_max_write(&mut self, value: u32) -> Result<u32, u32> {
        let nearest = value.clamp(1, WRITE_BYTES_MAX);
        if value != nearest {
            return Err(nearest);
        }
        let before = set(&mut self.write_bytes_max, value)?;
        Ok(if before == 0 { WRITE_BYTES_MAX } else { before })
    }

    /// Most bytes that the kernel reads ahead.
    ///
    /// # Errors
    /// 0, or more than the kernel's own figure.
    pub fn set_max_readahead(&mut self, value: u32) -> Result<u32, u32> {
        let nearest = value.clamp(1, self.readahead_bytes_most.max(1));
        if value != nearest {
            return Err(nearest);
        }
        set(&mut self.readahead_bytes_max, value)
    }

    /// What the kernel offers.
    pub fn capabilities(&self) -> InitFlags {
        self.offered - InitFlags::FUSE_INIT_EXT
    }

    /// The protocol that is spoken.
    pub fn kernel_abi(&self) -> Version {
        Version(7, self.minor)
    }

    /// Asks for capabilities.
    ///
    /// # Errors
    /// Those of them that are not offered; nothing is asked for then.
    pub fn add_capabilities(&mut self, capabilities_to_add: InitFlags) -> Result<(), InitFlags> {
        let missing = capabilities_to_add - self.offered;
        if !missing.is_empty() {
            return Err(missing);
        }
        self.requested |= capabilities_to_add;
        Ok(())
    }

    /// Most requests in the background; 256 by default here.
    ///
    /// # Errors
    /// 0.
    pub fn set_max_background(&mut self, value: u16) -> Result<u16, u16> {
        if value == 0 {
            return Err(1);
        }
        let before = set(&mut self.background_requests_max, value)?;
        Ok(if before == 0 { 256 } else { before })
    }

    /// Has no effect: the kernel takes three quarters of the requests in the background.
    ///
    /// # Errors
    /// 0.
    pub fn set_congestion_threshold(&mut self, value: u16) -> Result<u16, u16> {
        if value == 0 {
            return Err(1);
        }
        tracing::debug!("the congestion threshold is the library's");
        let before = self.congestion_threshold.replace(value);
        Ok(before.unwrap_or(192))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(options: &[MountOption], acl: SessionACL) -> Config {
        let mount_options = options.to_vec();
        Config {
            mount_options,
            acl,
            ..Config::default()
        }
    }

    #[test]
    fn options_that_contradict_each_other_or_are_unknown_are_refused() {
        let custom = MountOption::CUSTOM("blksize=9".to_owned());
        for (options, said) in [
            (vec![MountOption::RO, MountOption::RW], "ro and rw"),
            (
                vec![MountOption::Sync, MountOption::Async],
                "sync and async",
            ),
            (vec![custom], "blksize=9"),
            (vec![MountOption::AutoUnmount], "acl"),
        ] {
            let refused = config(&options, SessionACL::Owner)
                .mount_options()
                .unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
            assert!(refused.to_string().contains(said), "{refused}");
        }
    }

    #[test]
    fn options_become_those_of_the_library() {
        let options = [
            MountOption::FSName("a,b".to_owned()),
            MountOption::Subtype("kind".to_owned()),
            MountOption::CUSTOM("max_read=65536,nodev".to_owned()),
            MountOption::RO,
            MountOption::DefaultPermissions,
            MountOption::DirSync,
            MountOption::AutoUnmount,
        ];
        let options = config(&options, SessionACL::All).mount_options().unwrap();
        assert_eq!(
            (&*options.source, options.subtype.as_deref()),
            ("a,b", Some("kind"))
        );
        assert_eq!(options.read_bytes_max, Some(65_536));
        assert!(options.is_read_only() && options.default_permissions && options.auto_unmount);
        assert!(options.allow_other);
    }

    #[test]
    fn the_kernel_is_asked_for_what_was_set() {
        let mut negotiation = Negotiation::new(41, thrufs::InitFlags::all(), 131_072);
        let mut kernel = KernelConfig::new(&negotiation);
        assert_eq!(
            kernel.set_time_granularity(Duration::from_nanos(250)),
            Err(Duration::from_nanos(100))
        );
        assert_eq!(
            kernel.set_time_granularity(Duration::from_secs(2)),
            Err(Duration::from_secs(1))
        );
        assert_eq!(kernel.set_max_readahead(1 << 20), Err(131_072));
        assert_eq!(kernel.set_max_write(0), Err(1));
        assert_eq!(kernel.set_max_stack_depth(3), Err(2));
        assert_eq!(kernel.set_max_write(65_536), Ok(16 << 20));
        assert_eq!(kernel.set_max_background(7), Ok(256));
        assert_eq!(kernel.kernel_abi().to_string(), "7.41");
        let unknown = InitFlags::from_bits_retain(1 << 63);
        assert_eq!(kernel.add_capabilities(unknown), Err(unknown));
        kernel
            .add_capabilities(InitFlags::FUSE_WRITEBACK_CACHE)
            .unwrap();
        kernel.ask(&mut negotiation);
        assert_eq!(
            kernel.capabilities() & InitFlags::FUSE_INIT_EXT,
            InitFlags::empty()
        );
    }
}
