//! Imports of nearly every case.

pub(super) use std::fs::{self, File};
pub(super) use std::io::{Read, Write};
pub(super) use std::os::unix::fs::{FileExt, MetadataExt};
pub(super) use std::path::Path;

pub(super) use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
pub(super) use rustix::io::Errno;

pub(super) use super::env::{fails, mkdir, open, tick};
pub(super) use super::{Case, Env, cases};
pub(super) use crate::user::{ALICE, BOB, MEMBER};
