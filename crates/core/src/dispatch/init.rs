//! INIT: versions, capabilities and sizes, once per connection.

use super::init_failure::InitFailure;
use super::{Agreed, Dispatcher, Done, succession};
use crate::errno::{Errno, Result};
use crate::features::{Features, Negotiation};
use crate::file_system::FileSystem;
use crate::reply::put;
use crate::window::MAP_ALIGNMENT_LOG2;
use std::sync::atomic::Ordering;
use thrufs_abi::layout::{InitIn, InitOut};
use thrufs_abi::version::{Agreement, KERNEL_MINOR, KERNEL_VERSION, negotiate};
use thrufs_abi::{Dialect, Header, InitFlags};

impl<F: FileSystem> Dispatcher<F> {
    /// Why INIT failed, if it did.
    pub fn init_failure(&self) -> Option<InitFailure> {
        *self.init_failure.lock()
    }

    fn fail_init(&self, failure: InitFailure, errno: Errno) -> Errno {
        *self.init_failure.lock() = Some(failure);
        errno
    }

    pub(super) fn initialise(
        &self,
        header: &Header,
        arg: &InitIn,
        offered: InitFlags,
        body: &mut [u8],
    ) -> Result<Done> {
        let (major, minor) = (arg.major, arg.minor);
        let minor = match negotiate(major, minor) {
            Agreement::Speak { minor } => minor,
            // "If the major versions are different, the one with the larger uses the smaller's": the kernel
            // sends INIT once more.
            Agreement::AskAgain => {
                let (major, minor) = (KERNEL_VERSION, KERNEL_MINOR);
                let out = InitOut {
                    major,
                    minor,
                    ..InitOut::default()
                };
                return Ok(Done::Body(put(body, &out)?));
            }
            Agreement::TooOld => {
                let failure = InitFailure::Version { major, minor };
                return Err(self.fail_init(failure, Errno::EPROTO));
            }
        };
        let offered = offered.difference(self.withheld);
        let mut negotiation = Negotiation::new(minor, offered, arg.max_readahead);
        self.fs
            .init(&mut negotiation)
            .map_err(|errno| self.fail_init(InitFailure::Refused(errno), errno))?;
        // Agreeing without rings would make all callers wait for one.
        negotiation.forgo(InitFlags::OVER_IO_URING);
        if self.wants_ring.load(Ordering::Relaxed) && negotiation.offers(InitFlags::OVER_IO_URING) {
            negotiation.want(InitFlags::OVER_IO_URING);
        }
        let features = negotiation.settle();
        let written = put(body, &init_out(&features, &negotiation))?;
        let setxattr_ext = features.flags.contains(InitFlags::SETXATTR_EXT);
        let dialect = Dialect {
            minor,
            setxattr_ext,
        };
        // A second INIT does not come here; of two at once, the later loses.
        let first = self.agreed.set(Agreed {
            dialect,
            features,
            request: succession::init_request(header, arg),
        });
        first
            .map(|()| Done::Body(written))
            .map_err(|_| Errno::EINVAL)
    }
}

fn init_out(features: &Features, negotiation: &Negotiation) -> InitOut {
    let background = features.background_requests_max;
    let flags = features.flags.bits();
    InitOut {
        major: KERNEL_VERSION,
        minor: features.minor,
        max_readahead: features.readahead_bytes_max,
        flags: flags as u32,
        flags2: (flags >> 32) as u32,
        max_background: background,
        // The kernel's own default ratio.
        congestion_threshold: (u32::from(background) * 3 / 4).max(1) as u16,
        max_write: features.write_bytes_max,
        time_gran: negotiation.time_granularity_ns,
        // 16 MiB at most, hence 4096 pages.
        max_pages: (features.write_bytes_max / 4096) as u16,
        map_alignment: if features.flags.contains(InitFlags::MAP_ALIGNMENT) {
            MAP_ALIGNMENT_LOG2
        } else {
            0
        },
        max_stack_depth: if features.flags.contains(InitFlags::PASSTHROUGH) {
            negotiation.stack_depth_max
        } else {
            0
        },
        request_timeout: 0,
        ..InitOut::default()
    }
}
