//! Trees for `thrufs run`, of root and of an ordinary user.

use super::{Ground, copied_program, skipped};
use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

pub const USER: u32 = 65_534;

/// A tree, the user who owns it and starts `thrufs run` in it, and a home directory.
pub struct Tree {
    ground: Ground,
    pub root: PathBuf,
    pub program: PathBuf,
    pub home: PathBuf,
    pub user: u32,
}

impl Tree {
    /// `None`, and a report, where sandboxes are not possible.
    pub fn of(user: u32) -> Option<Tree> {
        let ground = Ground::new()?;
        let is_closed =
            fs::metadata("/dev/fuse").is_ok_and(|device| device.mode() & 0o006 != 0o006);
        if user != 0 && is_closed {
            skipped("sandboxes of users: /dev/fuse is closed to them");
            return None;
        }
        let tree = Tree {
            root: ground.src.clone(),
            home: ground.path().join("home"),
            program: copied_program(ground.path()),
            ground,
            user,
        };
        fs::create_dir(&tree.home).unwrap();
        for path in [&tree.root, &tree.home, &tree.root.join("file")] {
            chown(path, Some(user), Some(user)).unwrap();
        }
        Some(tree)
    }

    pub fn both() -> impl Iterator<Item = Tree> {
        [USER, 0].into_iter().filter_map(Tree::of)
    }

    /// Beside the tree; as all of /tmp, not visible inside.
    pub fn outside(&self) -> &std::path::Path {
        self.ground.path()
    }

    /// A program outside, started in the tree by its user. `$THRUFS` is the command.
    pub fn on_the_host(&self, program: &str) -> Command {
        let mut command = Command::new("env");
        // A shell starts what runs in the background with INT and QUIT ignored, nohup with HUP.
        command.args(["--default-signal", program]);
        if self.user != 0 {
            command.uid(self.user).gid(self.user);
        }
        command.current_dir(&self.root);
        let variables = [("HOME", &self.home), ("THRUFS", &self.program)];
        command.envs(variables).env("LANG", "C.UTF-8");
        // tmux starts the account's otherwise, which for a system account is nologin.
        command.env("SHELL", "/bin/sh");
        command
    }

    /// `thrufs run -- PROGRAM`.
    pub fn inside(&self, program: &str) -> Command {
        let mut command = self.on_the_host(self.program.to_str().unwrap());
        command.args(["run", "--", program]);
        command
    }
}
