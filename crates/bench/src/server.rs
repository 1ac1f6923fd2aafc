//! Servers of the benchmark's own from our library, for what `thrufs mount` does not offer to its users:
//! doing without KILLPRIV_V2, by which the kernel does not have to ask for a file's capabilities before it
//! writes to it; and being slow in a known place, which a report has to find.

mod slow;

pub(crate) use slow::Delays;

use crate::Outcome;
use slow::Slowed;
use std::path::Path;
use thrufs::FileSystem;
use thrufs::mount::MountOptions;
use thrufs::session::{SessionConfig, Transport};
use thrufs_hostdir::{CacheMode, Config, HostDir};

/// The contestants: with KILLPRIV_V2 and without, data by the server and past it.
pub(crate) const KILLPRIV: &str = "v2";
pub(crate) const NO_KILLPRIV: &str = "no-v2";
pub(crate) const KILLPRIV_THROUGH: &str = "v2+pt";
pub(crate) const NO_KILLPRIV_THROUGH: &str = "no-v2+pt";
/// The one that sleeps; after it, and `:`, stands in what ([`Delays`]). Its options are otherwise the default
/// ones.
pub(crate) const SLOW: &str = "slow";

/// `serve CONTESTANT SOURCE MOUNTPOINT`: serves over `/dev/fuse` until it is unmounted.
pub(crate) fn serve_here(arguments: &[String]) -> Outcome<()> {
    let [contestant, source, point] = arguments else {
        return Err("serve CONTESTANT SOURCE MOUNTPOINT".to_owned());
    };
    let slow = contestant
        .strip_prefix(SLOW)
        .and_then(|rest| rest.strip_prefix(':'));
    if let Some(delays) = slow {
        let delays = Delays::parse(delays)?;
        let host = host(source, Config::default())?;
        return serve(Slowed::new(host, delays), contestant, true, point);
    }
    let (killpriv, passthrough) = match contestant.as_str() {
        KILLPRIV => (true, false),
        NO_KILLPRIV => (false, false),
        KILLPRIV_THROUGH => (true, true),
        NO_KILLPRIV_THROUGH => (false, true),
        _ => return Err(format!("serve {contestant}: no such contestant")),
    };
    let config = Config {
        cache: CacheMode::Always,
        killpriv,
        passthrough,
        ..Config::default()
    };
    serve(host(source, config)?, contestant, killpriv, point)
}

fn host(source: &str, config: Config) -> Outcome<HostDir> {
    HostDir::open(Path::new(source), config).map_err(|error| error.to_string())
}

/// Makes sure that the kernel has agreed to what was to be.
fn serve(
    file_system: impl FileSystem,
    contestant: &str,
    killpriv: bool,
    point: &str,
) -> Outcome<()> {
    let session = SessionConfig {
        transport: Transport::Dev,
        ..SessionConfig::default()
    };
    let options = MountOptions::new("thrufs-bench");
    let mounted = thrufs::mount(file_system, point, &options, session);
    let mounted = mounted.map_err(|error| error.to_string())?;
    let asked_for = mounted.handle().features().map(|features| {
        features
            .flags
            .contains(thrufs_abi::InitFlags::HANDLE_KILLPRIV_V2)
    });
    if asked_for != Some(killpriv) {
        return Err(format!("{contestant}: KILLPRIV_V2 is {asked_for:?}"));
    }
    mounted.join().map(drop).map_err(|error| error.to_string())
}
