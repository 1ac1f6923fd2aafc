//! Who takes part: the sets of contestants.

use crate::Outcome;
use crate::contestant::{self, Contestant, Data, Transport};
use crate::row::Row;
use crate::{peers, ring_parameter, server};
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
    /// Native, ours with passthrough over each transport, libfuse's with it; and both without, which
    /// take most of the time, unless only those that go straight through are asked for.
    Passthrough { through_only: bool },
    /// Native, ours over each transport as it is by default; and libfuse's that hands reads and
    /// writes to the kernel.
    Builds { with_passthrough: bool },
    /// Native, and our library with and without KILLPRIV_V2, with and without passthrough.
    KillPriv,
}

impl Contest {
    /// Whether the kernel has to offer io_uring.
    pub(crate) fn needs_ring(self) -> bool {
        !matches!(self, Contest::Usual { .. } | Contest::KillPriv)
    }

    /// The same without those whose data go through a server.
    pub(crate) fn through_only(self) -> Outcome<Contest> {
        match self {
            Contest::Passthrough { .. } => Ok(Contest::Passthrough { through_only: true }),
            _ => Err("--through-only goes with --passthrough".to_owned()),
        }
    }

    /// The rows, and by how many processes at once, unless others are asked for.
    pub(crate) fn usual(self) -> (&'static str, &'static [usize]) {
        match self {
            Contest::Usual { .. } => ("usual", &[1]),
            Contest::Transports | Contest::RingSetups => ("transports", &[1]),
            Contest::Passthrough { .. } => ("passthrough", &[1, 2]),
            Contest::Builds { .. } => ("builds", &[1]),
            Contest::KillPriv => ("killpriv", &[1]),
        }
    }

    /// Gets everything that has to be there before anybody is started: programs and sources, and
    /// the kernel's switch.
    pub(crate) fn fetch(self, rows: &[&Row]) -> Outcome<()> {
        let without_libfuse = Contest::Builds {
            with_passthrough: false,
        };
        if self != Contest::KillPriv && self != without_libfuse {
            peers::passthrough_hp()?;
        }
        if self.needs_ring() {
            ring_parameter::switch_on()?;
        }
        rows.iter().try_for_each(|row| row.fetch())?;
        Ok(())
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
            Contest::Passthrough { through_only } => {
                for transport in [Transport::Dev, Transport::Uring] {
                    all.push(Contestant::thrufs_through(transport, beneath, work)?);
                }
                if !through_only {
                    all.push(Contestant::thrufs_over(Transport::Dev, beneath, work)?);
                    all.push(Contestant::libfuse(beneath, work)?);
                }
                all.push(Contestant::libfuse_passthrough(beneath, work)?);
            }
            Contest::Builds { with_passthrough } => {
                for transport in [Transport::Dev, Transport::Uring] {
                    all.push(Contestant::thrufs_by_default(transport, beneath, work)?);
                }
                if with_passthrough {
                    all.push(Contestant::libfuse_passthrough(beneath, work)?);
                }
            }
            Contest::KillPriv => {
                for (name, data) in [
                    (server::KILLPRIV, Data::Served),
                    (server::NO_KILLPRIV, Data::Served),
                    (server::KILLPRIV_THROUGH, Data::Through),
                    (server::NO_KILLPRIV_THROUGH, Data::Through),
                ] {
                    all.push(Contestant::served_here(name, data, beneath, work)?);
                }
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
