//! Who takes part: the sets of contestants.

use crate::Outcome;
use crate::contestant::{self, Contestant, Transport};
use std::path::Path;

/// A set of contestants.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contest {
    /// Native, ours, libfuse's; and libfuse's that hands reads and writes to the kernel.
    Usual { with_passthrough: bool },
    /// Native, ours and libfuse's over each transport, and the floor.
    Transports,
    /// Native, and the floor over `/dev/fuse` and over io_uring with each choice of flags.
    RingSetups,
}

impl Contest {
    /// Whether the kernel has to offer io_uring.
    pub(crate) fn needs_ring(self) -> bool {
        !matches!(self, Contest::Usual { .. })
    }

    /// Starts them all, for up to `jobs` clients at once.
    pub(crate) fn start(
        self,
        jobs: usize,
        beneath: &Path,
        work: &Path,
    ) -> Outcome<Vec<Contestant>> {
        let mut all = vec![Contestant::native(beneath)?];
        match self {
            Contest::Usual { with_passthrough } => {
                all.push(Contestant::thrufs(beneath, work)?);
                all.push(Contestant::libfuse(beneath, work)?);
                if with_passthrough {
                    all.push(Contestant::libfuse_passthrough(beneath, work)?);
                }
            }
            Contest::Transports => {
                all.push(Contestant::thrufs_over(Transport::Dev, beneath, work)?);
                all.push(Contestant::thrufs_over(Transport::Uring, beneath, work)?);
                all.push(Contestant::libfuse(beneath, work)?);
                all.push(Contestant::libfuse_uring(beneath, work)?);
                all.push(Contestant::floor("floor-dev", jobs, beneath, work)?);
                all.push(Contestant::floor("floor-uring", jobs, beneath, work)?);
            }
            Contest::RingSetups => {
                for name in contestant::FLOORS {
                    all.push(Contestant::floor(name, jobs, beneath, work)?);
                }
            }
        }
        Ok(all)
    }
}
