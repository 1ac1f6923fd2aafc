//! What is done now and then: letting go of mounts beneath that nobody uses.

use crate::host::Host;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often to look. A look at a tree of one mount costs a lock and nothing else.
const INTERVAL: Duration = Duration::from_secs(2);

/// A submount that was not used for so long is let go, so that it can be unmounted beneath.
const IDLE_MS: u64 = 5_000;

/// Starts the housekeeper of `host`; it ends by itself when `host` is gone.
pub(crate) fn start(host: &Arc<Host>) {
    let host = Arc::downgrade(host);
    let started = std::thread::Builder::new()
        .name("housekeeper".into())
        .spawn(move || keep_house(&host));
    if let Err(error) = started {
        tracing::warn!(
            "no thread for housekeeping: mounts beneath stay busy until unmount: {error}"
        );
    }
}

fn keep_house(host: &Weak<Host>) {
    loop {
        std::thread::sleep(INTERVAL);
        let Some(host) = host.upgrade() else { return };
        if host.mounts.len() > 1 {
            for mount in host.mounts.sweep(IDLE_MS) {
                host.descriptors.release_mount(mount);
            }
        }
    }
}
