//! A serving thread that panics. Panics of a file system are caught where it is called; this one comes from
//! the subscriber of its log message, which a program has once.

use crate::ground::{Mount, files_with, is_destroyed, is_mounted, plain};
use std::sync::atomic::{AtomicBool, Ordering};
use thrufs::SessionError;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

static ARMED: AtomicBool = AtomicBool::new(false);

/// Panics at the first logged error, once.
struct Fragile;

impl Subscriber for Fragile {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::ERROR
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        assert!(!ARMED.swap(false, Ordering::SeqCst), "as the test wants it");
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn a_thread_that_panics_ends_the_session_and_the_mount_gives_enotconn() {
    tracing::subscriber::set_global_default(Fragile).unwrap();
    let files = files_with(b"content");
    let Some(mut mount) = Mount::new(&files, plain()) else {
        return;
    };
    ARMED.store(true, Ordering::SeqCst);
    let asked = std::fs::File::open(mount.path("panics"));
    assert!(asked.is_err(), "and it does not wait for ever");
    assert!(!ARMED.load(Ordering::SeqCst), "the thread has panicked");
    let ended = mount.session.take().unwrap().join();
    assert!(matches!(ended, Err(SessionError::Device(_))), "{ended:?}");
    let dead = std::fs::metadata(mount.path("other")).unwrap_err();
    assert_eq!(dead.raw_os_error(), Some(libc::ENOTCONN));
    assert!(
        is_mounted(mount.root()),
        "the directory beneath stays hidden"
    );
    assert!(is_destroyed(&files));
}
