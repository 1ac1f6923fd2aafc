//! Negotiation at INIT: what the kernel offers, what a file system asks for ([`Negotiation`]), and what is
//! in force ([`Features`]). Without I/O.

use std::fmt;
use thrufs_abi::InitFlags;

/// What one connection negotiated.
#[derive(Clone, Debug)]
pub struct Features {
    /// Minor version of protocol 7 that is spoken.
    pub minor: u32,
    /// The capabilities in force.
    pub flags: InitFlags,
    /// Most bytes of data in one WRITE (and, by `max_pages`, in one READ).
    pub write_bytes_max: u32,
    /// Most bytes that the kernel reads ahead in one request.
    pub readahead_bytes_max: u32,
    /// Most requests in the background (readahead, RELEASE, asynchronous direct I/O).
    pub background_requests_max: u16,
    /// See [`Negotiation::set_prompt`].
    pub prompt: bool,
    /// Capabilities that were asked for and are not in force.
    pub refused: Vec<Refusal>,
}

/// A capability that was asked for and is not in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The capability, by its name in the kernel's header.
    pub what: InitFlags,
    /// Why not, and what to do about it.
    pub why: &'static str,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.what.iter_names().map(|(name, _)| name).collect();
        write!(f, "FUSE_{}: {}", names.join("|"), self.why)
    }
}

/// What the kernel offers, and what the file system asks for in
/// [`FileSystem::init`](crate::FileSystem::init).
#[derive(Debug)]
pub struct Negotiation {
    offered: InitFlags,
    /// With the capabilities that are wanted.
    asked: Features,
    pub(crate) time_granularity_ns: u32,
    pub(crate) stack_depth_max: u32,
}

/// Capabilities that are useful to every file system.
const ALWAYS: InitFlags = InitFlags::ASYNC_READ
    .union(InitFlags::BIG_WRITES)
    .union(InitFlags::MAX_PAGES)
    .union(InitFlags::PARALLEL_DIROPS)
    .union(InitFlags::ASYNC_DIO)
    .union(InitFlags::ABORT_ERROR)
    .union(InitFlags::INIT_EXT);

/// 1 MiB: the default of `fs.fuse.max_pages_limit`.
pub(crate) const DATA_BYTES_MAX_DEFAULT: u32 = 1 << 20;

/// Most data of a request, whatever the kernel allows.
pub(crate) const DATA_BYTES_MAX: u32 = 16 << 20;

impl Negotiation {
    /// The kernel's offer. `readahead_bytes_max` is the most it will read ahead.
    pub fn new(minor: u32, offered: InitFlags, readahead_bytes_max: u32) -> Negotiation {
        let asked = Features {
            minor,
            flags: ALWAYS & offered,
            write_bytes_max: DATA_BYTES_MAX_DEFAULT,
            readahead_bytes_max,
            background_requests_max: 256,
            prompt: false,
            refused: Vec::new(),
        };
        Negotiation {
            offered,
            asked,
            time_granularity_ns: 1,
            stack_depth_max: 0,
        }
    }

    /// Minor version of protocol 7 that will be spoken.
    pub fn minor(&self) -> u32 {
        self.asked.minor
    }

    /// Whether the kernel offers all of these.
    pub fn offers(&self, flags: InitFlags) -> bool {
        self.offered.contains(flags)
    }

    /// What is offered.
    pub fn offered(&self) -> InitFlags {
        self.offered
    }

    /// Asks for capabilities. Those not offered end up in [`Features::refused`].
    pub fn want(&mut self, flags: InitFlags) {
        self.asked.flags |= flags;
    }

    /// Withdraws what was asked for.
    pub fn forgo(&mut self, flags: InitFlags) {
        self.asked.flags -= flags;
    }

    /// Most bytes in one READ or WRITE: rounded down to pages, between 4 KiB and 16 MiB. The kernel caps
    /// it by `fs.fuse.max_pages_limit` (default: 1 MiB).
    pub fn set_write_bytes_max(&mut self, bytes: u32) {
        self.asked.write_bytes_max = bytes.clamp(4096, DATA_BYTES_MAX) & !4095;
    }

    /// Most bytes that are read ahead: the kernel's own figure, unless [less](Self::set_readahead_bytes_max) was set.
    pub fn readahead_bytes_max(&self) -> u32 {
        self.asked.readahead_bytes_max
    }

    /// Most bytes to read ahead, up to the kernel's own figure.
    pub fn set_readahead_bytes_max(&mut self, bytes: u32) {
        let granted = &mut self.asked.readahead_bytes_max;
        *granted = (*granted).min(bytes);
    }

    /// Most requests in the background.
    pub fn set_background_requests_max(&mut self, requests: u16) {
        self.asked.background_requests_max = requests.max(1);
    }

    /// Granularity of time stamps in nanoseconds (1 to 1,000,000,000).
    pub fn set_time_granularity_ns(&mut self, nanoseconds: u32) {
        self.time_granularity_ns = nanoseconds.clamp(1, 1_000_000_000);
    }

    /// How deep file systems may be stacked beneath passthrough (1 or 2); see `PASSTHROUGH`.
    pub fn set_stack_depth_max(&mut self, depth: u32) {
        self.stack_depth_max = depth.min(2);
    }

    /// Promises that no method sleeps unless [`Context::may_block`](crate::Context::may_block) is true:
    /// everything is in memory. Over io_uring, a thread then takes several requests at once.
    pub fn set_prompt(&mut self, prompt: bool) {
        self.asked.prompt = prompt;
    }

    pub(crate) fn settle(&self) -> Features {
        let mut refused = Vec::new();
        let mut flags = self.asked.flags;
        let mut refuse = |flags: &mut InitFlags, what: InitFlags, why| {
            *flags -= what;
            refused.push(Refusal { what, why });
        };
        for &(other, gives_way, why) in CONFLICTS {
            if flags.contains(other | gives_way) {
                refuse(&mut flags, gives_way, why);
            }
        }
        if flags.contains(InitFlags::PASSTHROUGH) && self.stack_depth_max == 0 {
            let why = "passthrough needs a stack depth of 1 or 2";
            refuse(&mut flags, InitFlags::PASSTHROUGH, why);
        }
        let missing = flags - self.offered;
        for what in missing.iter() {
            refused.push(Refusal {
                what,
                why: not_offered(what),
            });
        }
        Features {
            flags: flags & self.offered,
            refused,
            ..self.asked
        }
    }
}

/// Combinations that the kernel refuses or silently turns off: with what, what is dropped, and why.
const CONFLICTS: &[(InitFlags, InitFlags, &str)] = &[
    (
        InitFlags::WRITEBACK_CACHE,
        InitFlags::PASSTHROUGH,
        "the kernel has no passthrough together with the writeback cache; turn writeback off",
    ),
    (
        InitFlags::EXPORT_SUPPORT,
        InitFlags::NO_EXPORT_SUPPORT,
        "file handles are either exported or not",
    ),
    (
        InitFlags::AUTO_INVAL_DATA,
        InitFlags::EXPLICIT_INVAL_DATA,
        "automatic invalidation of cached data was asked for as well, and the kernel prefers it",
    ),
    (
        InitFlags::HANDLE_KILLPRIV_V2,
        InitFlags::HANDLE_KILLPRIV,
        "the second version of it was asked for as well",
    ),
];

fn not_offered(what: InitFlags) -> &'static str {
    if what == InitFlags::OVER_IO_URING {
        "the kernel does not offer it; write Y to /sys/module/fuse/parameters/enable_uring (6.14)"
    } else if what == InitFlags::PASSTHROUGH {
        "the kernel does not offer it; it needs Linux 6.9 with CONFIG_FUSE_PASSTHROUGH"
    } else if what == InitFlags::HANDLE_KILLPRIV_V2 {
        "the kernel does not offer it; small writes will cost a GETXATTR each (needs Linux 5.12)"
    } else {
        "the kernel does not offer it"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_that_are_not_offered_are_refused_with_a_reason() {
        let mut negotiation = Negotiation::new(45, InitFlags::ASYNC_READ, 131_072);
        negotiation.want(InitFlags::HANDLE_KILLPRIV_V2);
        let features = negotiation.settle();
        assert_eq!(features.flags, InitFlags::ASYNC_READ);
        assert_eq!(features.refused.len(), 1);
        assert!(features.refused[0].to_string().contains("GETXATTR"));
    }

    #[test]
    fn passthrough_is_dropped_for_writeback() {
        let mut negotiation = Negotiation::new(45, InitFlags::all(), 0);
        negotiation.set_stack_depth_max(1);
        negotiation.want(InitFlags::PASSTHROUGH | InitFlags::WRITEBACK_CACHE);
        let features = negotiation.settle();
        assert!(!features.flags.contains(InitFlags::PASSTHROUGH));
        assert!(features.flags.contains(InitFlags::WRITEBACK_CACHE));
        let mut refused = features.refused.iter();
        assert!(refused.any(|r| r.what == InitFlags::PASSTHROUGH));
    }

    #[test]
    fn sizes_are_clamped_to_pages() {
        let mut negotiation = Negotiation::new(45, InitFlags::empty(), 131_072);
        negotiation.set_write_bytes_max(5000);
        negotiation.set_readahead_bytes_max(1 << 30);
        let features = negotiation.settle();
        assert_eq!(features.write_bytes_max, 4096);
        assert_eq!(features.readahead_bytes_max, 131_072);
    }
}
