//! Files that cost nothing to serve, and counters of the thread that serves them.

use crate::ground::{ALL_FEATURES, Guest, Serving, serve};
use std::sync::{Arc, Mutex};
use thrufs::{LowerFile, NoWait, Opcode, Result};
use thrufs_testing::memory::{File, Files, Settings};
use thrufs_virtio::DeviceConfig;

/// Node 2 has its data in a file, node 3 in memory.
const NAMES: [&str; 2] = ["a name", "data"];

pub struct Counts(Arc<Mutex<Result<(u64, u64)>>>);

impl Counts {
    /// Those of the thread that serves queue 1.
    pub fn of(&self, guest: &mut Guest) -> Result<(u64, u64)> {
        let request = guest.getattr(1);
        guest.tell_any(request);
        *self.0.lock().unwrap()
    }
}

/// `counts` are of the calling thread.
pub fn begin(counts: fn() -> Result<(u64, u64)>) -> (Serving, Guest, Counts) {
    let counted = Arc::new(Mutex::new(Ok((0, 0))));
    let noted = Arc::clone(&counted);
    let files = Files::new(Settings {
        hook: Some(Box::new(move |asked| {
            if asked.opcode == Opcode::Getattr {
                *noted.lock().unwrap() = counts();
            }
            Ok(())
        })),
        ..Settings::default()
    });
    let lower = tempfile::tempfile().unwrap();
    lower.set_len(1 << 20).unwrap();
    let lower = LowerFile::new(lower.into(), NoWait::Memory);
    let lower = Some(Arc::new(lower));
    files.put(
        NAMES[0],
        File {
            lower,
            ..File::with(b"")
        },
    );
    files.put(NAMES[1], File::with(&[7; 4096]));
    let make = move || Ok(Arc::new(files.serve_known(&NAMES)));
    let (_, serving, mut guest) = serve(make, DeviceConfig::default(), ALL_FEATURES);
    guest.init().unwrap();
    (serving, guest, Counts(counted))
}
