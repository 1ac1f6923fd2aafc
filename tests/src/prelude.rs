//! Imports of nearly every test.

pub use std::fs::{self, File, OpenOptions};
pub use std::io::{self, Read, Write};
pub use std::os::fd::AsFd;
pub use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
pub use std::path::{Path, PathBuf};
pub use std::process::Command;
pub use std::sync::Arc;
pub use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
pub use std::thread;
pub use std::time::{Duration, Instant};

pub use rustix::fs::{CWD, FlockOperation, Mode, OFlags, RenameFlags, XattrFlags};
pub use rustix::mount::UnmountFlags;
pub use rustix::process::Signal;
pub use thrufs::{Errno, NodeId, Opcode};
pub use thrufs_test_report::{is_full, skipped};
pub use thrufs_testing::fence::mapping::{Mapping, Sharing};
pub use thrufs_testing::process::Process;
pub use thrufs_testing::user::{ALICE, BOB};
pub use thrufs_testing::{Random, while_repeating};

pub use crate::guard::{Detach, is_root};
pub use crate::lower::{Ground, Lower};
pub use crate::machine::{cpus, on_cpu};
pub use crate::mount_point::{is_mounted, must_skip, shrink_dcache};
pub use crate::mounted::{Mounted, on_each};
pub use crate::server::{Server, kill_process};
pub use crate::tracer::Tracer;
pub use crate::transport::{must_skip_ring, over_each};
pub use crate::{acl, programs, skip_if, wait_until};
