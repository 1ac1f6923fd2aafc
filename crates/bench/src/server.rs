//! A server of the benchmark's own from our library that is slow in a known place, which a report has to find.

mod slow;

pub(crate) use slow::Delays;

use crate::Outcome;
use slow::Slowed;
use std::path::Path;
use thrufs::mount::MountOptions;
use thrufs::session::{SessionConfig, Transport};
use thrufs_hostdir::{Config, HostDir};

/// The one that sleeps; after it, and `:`, stands in what ([`Delays`]). Its options are otherwise the default
/// ones.
pub(crate) const SLOW: &str = "slow";

/// `serve CONTESTANT SOURCE MOUNTPOINT`: serves over `/dev/fuse` until it is unmounted.
pub(crate) fn serve_here(arguments: &[String]) -> Outcome<()> {
    let [contestant, source, point] = arguments else {
        return Err("serve CONTESTANT SOURCE MOUNTPOINT".to_owned());
    };
    let delays = contestant
        .strip_prefix(SLOW)
        .and_then(|rest| rest.strip_prefix(':'))
        .ok_or_else(|| format!("serve {contestant}: no such contestant"))?;
    let host = HostDir::open(Path::new(source), Config::default());
    let host = host.map_err(|error| error.to_string())?;
    let session = SessionConfig {
        transport: Transport::Dev,
        ..SessionConfig::default()
    };
    let options = MountOptions::new("thrufs-bench");
    let slowed = Slowed::new(host, Delays::parse(delays)?);
    let mounted = thrufs::mount(slowed, point, &options, session);
    let mounted = mounted.map_err(|error| error.to_string())?;
    mounted.join().map(drop).map_err(|error| error.to_string())
}
