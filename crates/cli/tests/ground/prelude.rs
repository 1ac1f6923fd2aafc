//! Imports of nearly every test.
#![allow(unused_imports, reason = "each test program uses its own part")]

pub use std::fs::{self, File};
pub use std::io::{Read, Write};
pub use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
pub use std::os::unix::net::UnixStream;
pub use std::os::unix::process::CommandExt;
pub use std::path::{Path, PathBuf};
pub use std::process::{Command, Output, Stdio};
pub use std::sync::atomic::{AtomicBool, Ordering};
pub use std::time::Duration;

pub use rustix::process::{Pid, Signal, kill_process};
pub use serde_json::Value;
pub use tempfile::TempDir;
pub use thrufs::{Errno, NodeId};
pub use thrufs_client::{Client, FrontEnd, FrontEndConfig};

pub(crate) use super::thrufs;
pub use super::{
    Foreground, Ground, LIMIT, THRUFS, detach, fails, mount_tmpfs, run, skipped, status, stderr,
    stdout, succeeded, wait_for,
};
pub(crate) use crate::ground;
