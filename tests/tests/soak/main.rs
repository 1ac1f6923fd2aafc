//! Soak of following: random changes beneath of every kind, readers above whose questions are delayed, and a
//! comparison of everything whenever all changes have been reported. Timeouts are a day, so that what is
//! stale stays so.
//!
//! The trials that are not ignored take a minute in all, with a fixed seed. The ignored ones take
//! `THRUFS_SOAK_SECONDS` each (60), with a seed of their own or `THRUFS_SEED`.
//!
//! What directory marks cannot report is left out: second names in directories that the kernel above does not know,
//! which one mark on the file system reports. There another mount makes changes as well.
//!
//! `cargo xtask vm-test follow` runs the first in a guest; with `THRUFS_SOAK_SECONDS`, those on tmpfs and overlayfs.
//!
//! This program is its own server, because a server hears nothing of what its own process changes.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

mod changes;
mod compare;
mod readers;
mod served;
mod soak;

use libtest_mimic::{Arguments, Failed, Trial};
use served::{ORDER, Order};
use soak::{Outcome, SOAK, Soak};
use std::os::unix::process::CommandExt;
use std::process::ExitCode;
use thrufs_hostdir::{FileHandles, FollowMode};
use thrufs_tests::prelude::*;

/// An ordinary user that has a name (`nobody`), which fusermount3 wants.
const USER: u32 = 65_534;

const FIXED_SEED: u64 = 29;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Root,
    /// Root, with one mark on the file system.
    Whole,
    /// Root, without file handles: what an ordinary user's server does.
    NoHandles,
    User,
}

#[derive(Clone, Copy, Debug)]
struct Setting {
    lower: Lower,
    ring: bool,
    passthrough: bool,
    by: By,
}

impl Setting {
    fn name(&self) -> String {
        format!(
            "{}_{}_{}_{}",
            self.lower.name(),
            if self.ring { "uring" } else { "dev" },
            if self.passthrough {
                "passthrough"
            } else {
                "cached"
            },
            format!("{:?}", self.by).to_lowercase()
        )
    }

    fn all() -> Vec<Setting> {
        use Lower::{Btrfs, Ext4, Overlay, Tmpfs, Xfs};
        let mut all = Vec::new();
        for lower in [Tmpfs, Ext4, Xfs, Btrfs, Overlay] {
            for ring in [false, true] {
                for (passthrough, by) in [
                    (false, By::Root),
                    (true, By::Root),
                    (true, By::Whole),
                    (false, By::NoHandles),
                    (false, By::User),
                ] {
                    all.push(Setting {
                        lower,
                        ring,
                        passthrough,
                        by,
                    });
                }
            }
        }
        all
    }

    fn run(self, seed: u64, time: Duration) -> Result<(), Failed> {
        let ground = match Ground::prepare(self.lower) {
            Ok(ground) => ground,
            Err(why) => {
                thrufs_test_report::skipped_in(&self.name(), why);
                return Ok(());
            }
        };
        let has_subvolumes = self.lower == Lower::Btrfs;
        if has_subvolumes {
            // Empty ones can be removed as directories are.
            for name in ["c", "i"] {
                let mut command = Command::new("btrfs");
                command.args(["-q", "subvolume", "create"]);
                let made = command.arg(ground.source().join(name)).status();
                if !made.is_ok_and(|status| status.success()) {
                    return Err("cannot make a btrfs subvolume".into());
                }
            }
        }
        if self.by == By::User {
            for path in [ground.source(), ground.outside(), ground.mnt()] {
                chown(path, Some(USER), Some(USER))?;
            }
        }
        let takes_one_mark = !matches!(self.lower, Lower::Btrfs | Lower::Overlay);
        let is_whole = self.by == By::Whole && takes_one_mark;
        // Another mount of root's changes files by their handles, which directories do not tell.
        let other = is_whole.then(|| other_mount(&ground)).transpose()?;
        let soak = Soak {
            order: Order {
                source: ground.source().to_owned(),
                mnt: ground.mnt().to_owned(),
                ring: self.ring,
                passthrough: self.passthrough,
                file_handles: match self.by {
                    By::Root | By::Whole => FileHandles::Prefer,
                    By::NoHandles | By::User => FileHandles::Never,
                },
                follow: match self.by {
                    By::Whole => FollowMode::Filesystem,
                    _ => FollowMode::Directories,
                },
                seed,
            },
            outside: ground.outside().to_owned(),
            writable: other.iter().map(|(_, place)| place.clone()).collect(),
            time,
            has_stray_links: is_whole,
            has_subvolumes,
        };
        let outcome = if self.by == By::User {
            run_as_user(&soak)?
        } else {
            soak.run()
        };
        eprintln!("{}: {outcome:?}", self.name());
        if outcome.stale > 0 {
            return Err(format!("{outcome:?} with the seed {seed}").into());
        }
        Ok(())
    }
}

/// Another mount of the source, by the `thrufs` command, and its place.
fn other_mount(ground: &Ground) -> Result<(Server, PathBuf), Failed> {
    let place = ground.base().join("other");
    fs::create_dir(&place)?;
    let server = Server::try_start_at(ground, &place, "descriptors=16,nopassthrough")?;
    Ok((server, place))
}

/// In a process of its own, as a user is one of a process.
fn run_as_user(soak: &Soak) -> Result<Outcome, Failed> {
    let output = Command::new(std::env::current_exe()?)
        .env(SOAK, serde_json::to_string(soak)?)
        .uid(USER)
        .gid(USER)
        .stderr(std::process::Stdio::inherit())
        .output()?;
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn users_cannot_mount() -> Option<String> {
    let device = fs::metadata("/dev/fuse").map_or(0, |found| found.permissions().mode());
    if device & 0o006 != 0o006 {
        return Some("users may not open /dev/fuse (udev makes it 0666)".to_owned());
    }
    let program = std::env::current_exe().unwrap();
    let mut user = Command::new(program);
    let listed = user.arg("--list").uid(USER).gid(USER).output();
    if !listed.is_ok_and(|output| output.status.success()) {
        return Some("users may not run this program where it is".to_owned());
    }
    let mut helper = Command::new("fusermount3");
    let missing = helper.arg("--version").output().is_err();
    missing.then(|| "no fusermount3 (package fuse3)".to_owned())
}

fn main() -> ExitCode {
    if let Ok(order) = std::env::var(ORDER) {
        return served::serve(&order);
    }
    if let Ok(soak) = std::env::var(SOAK) {
        let soak: Soak = serde_json::from_str(&soak).unwrap();
        println!("{}", serde_json::to_string(&soak.run()).unwrap());
        return ExitCode::SUCCESS;
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let mut trials = Vec::new();
    let skips = |setting: &Setting| {
        let why = thrufs_tests::mount_point::cannot_mount();
        let why = why.or_else(|| thrufs_tests::transport::no_ring().filter(|_| setting.ring));
        let why = why.or_else(|| users_cannot_mount().filter(|_| setting.by == By::User));
        why.map(|why| thrufs_test_report::skipped_in(&setting.name(), why))
            .is_some()
    };
    let seed = std::env::var("THRUFS_SEED").map_or_else(
        |_| u64::from(std::process::id()) << 8,
        |text| text.parse().unwrap(),
    );
    let seconds = std::env::var("THRUFS_SOAK_SECONDS").map_or(60, |text| text.parse().unwrap());
    for setting in Setting::all() {
        if matches!(setting.lower, Lower::Tmpfs) {
            trials.push(Trial::test(setting.name(), move || {
                if skips(&setting) {
                    return Ok(());
                }
                setting.run(FIXED_SEED, Duration::from_secs(6))
            }));
        }
        let long = Trial::test(format!("long_{}", setting.name()), move || {
            if skips(&setting) {
                return Ok(());
            }
            setting.run(seed, Duration::from_secs(seconds))
        });
        trials.push(long.with_ignored_flag(true));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
