//! Trees for `thrufs run`, and commands in it as several users.

use crate::ground::prelude::*;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout};

/// An ordinary user, with an entry in passwd(5).
pub const USER: u32 = 65_534;

/// The Python of the system, which every user can execute.
pub const PYTHON: &str = "/usr/bin/python3";

/// What the tree's hidden file contains.
pub const SECRET: &str = "SECRET";

/// Who runs `thrufs run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    User,
    RootOnTreeOfUser,
    RootOnTreeOfRoot,
}

pub const EVERYONE: [Who; 3] = [Who::User, Who::RootOnTreeOfUser, Who::RootOnTreeOfRoot];

/// On a tree of a user, whose policy and sandbox are the same.
pub const ON_TREE_OF_USER: [Who; 2] = [Who::User, Who::RootOnTreeOfUser];

/// A tree for each; none, and a report, where sandboxes are not possible.
pub fn grounds<const N: usize>(all: [Who; N]) -> impl Iterator<Item = RunGround> {
    all.into_iter().filter_map(RunGround::new)
}

/// A tree of an ordinary user, who runs the command, and one of root.
pub fn of_both() -> impl Iterator<Item = RunGround> {
    grounds([Who::User, Who::RootOnTreeOfRoot])
}

/// A tree with a hidden file, a directory around it, and one beside it.
///
/// It is neither in /tmp nor in /run, which are empty in the sandbox.
pub struct RunGround {
    place: TempDir,
    pub who: Who,
    pub program: PathBuf,
    pub around: PathBuf,
    pub tree: PathBuf,
    pub sibling: PathBuf,
    pub home: PathBuf,
}

impl RunGround {
    /// `None`, and a report, where sandboxes are not possible.
    pub fn new(who: Who) -> Option<RunGround> {
        if !rustix::process::geteuid().is_root() {
            skipped("trees of several users need root");
            return None;
        }
        let open = |file: &mut Command| file.uid(USER).gid(USER).output();
        let mut namespaces = Command::new("unshare");
        namespaces.args(["--user", "--mount", "true"]);
        let mut device = Command::new("sh");
        device.args(["-c", "exec 3<>/dev/fuse"]);
        for needed in [&mut namespaces, &mut device] {
            match open(needed) {
                Ok(output) if output.status.success() => {}
                other => {
                    skipped(&format!("{needed:?} as a user: {other:?}"));
                    return None;
                }
            }
        }
        let place = TempDir::with_prefix_in("thrufs-run-", "/srv").unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let around = place.path().join("around");
        let ground = RunGround {
            who,
            program: ground::copied_program(place.path()),
            tree: around.join("tree"),
            sibling: around.join("sibling"),
            home: place.path().join("home"),
            around,
            place,
        };
        for directory in [&ground.home, &ground.sibling] {
            fs::create_dir_all(directory).unwrap();
        }
        make_tree(&ground.tree);
        fs::write(ground.sibling.join("file"), "sibling").unwrap();
        if who != Who::RootOnTreeOfRoot {
            let mut owner = Command::new("chown");
            owner.args(["-R", &format!("{USER}:{USER}")]);
            let paths = [&ground.around, &ground.home];
            succeeded(&run(owner.args(paths)));
            chown(ground.path(), Some(USER), Some(USER)).unwrap();
        }
        Some(ground)
    }

    pub fn path(&self) -> &Path {
        self.place.path()
    }

    /// Who runs `thrufs run`.
    pub fn user(&self) -> u32 {
        if self.who == Who::User { USER } else { 0 }
    }

    /// The option for drafts in a directory of whoever runs `thrufs run`, which is made, and that directory.
    pub fn drafts(&self) -> (String, PathBuf) {
        let drafts = self.path().join("drafts");
        if !drafts.exists() {
            fs::create_dir(&drafts).unwrap();
            chown(&drafts, Some(self.user()), Some(self.user())).unwrap();
        }
        (format!("--draft-dir={}", drafts.display()), drafts)
    }

    /// Makes a file of the tree's owner.
    pub fn write(&self, path: &Path, content: &str) {
        fs::write(path, content).unwrap();
        if self.who != Who::RootOnTreeOfRoot {
            chown(path, Some(USER), Some(USER)).unwrap();
        }
    }

    pub fn make_directory(&self, path: &Path) {
        fs::create_dir(path).unwrap();
        if self.who != Who::RootOnTreeOfRoot {
            chown(path, Some(USER), Some(USER)).unwrap();
        }
    }

    /// A program as whoever runs `thrufs run`.
    pub fn starter(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        if self.who == Who::User {
            command.uid(USER).gid(USER);
        }
        command.current_dir("/").env("HOME", &self.home);
        command.env_remove("XDG_CONFIG_HOME");
        command
    }

    /// A program as the tree's owner, outside of the sandbox.
    pub fn outside(&self, program: &str) -> Command {
        let mut command = self.starter(Path::new(program));
        if self.who == Who::RootOnTreeOfUser {
            command.uid(USER).gid(USER);
        }
        command
    }

    /// A program outside, started in the tree by whoever runs `thrufs run`. `$THRUFS` is the command.
    pub fn on_the_host(&self, program: &str) -> Command {
        let mut command = self.starter("env".as_ref());
        // A shell starts what runs in the background with INT and QUIT ignored, nohup with HUP.
        command.args(["--default-signal", program]);
        command.current_dir(&self.tree).env("THRUFS", &self.program);
        // tmux starts the account's otherwise, which for a system account is nologin.
        command.env("LANG", "C.UTF-8").env("SHELL", "/bin/sh");
        command
    }

    /// `thrufs run -- PROGRAM` in the tree.
    pub fn inside(&self, program: &str) -> Command {
        let mut command = self.on_the_host(self.program.to_str().unwrap());
        command.args(["run", "--", program]);
        command
    }

    /// `thrufs run`; the command is to follow.
    pub fn thrufs_run(&self, options: &[&str]) -> Command {
        let program = match self.who {
            Who::User => self.program.as_path(),
            _ => Path::new(THRUFS),
        };
        let mut command = self.starter(program);
        command.arg("run").args(options).arg(&self.tree).arg("--");
        command
    }

    /// Runs a shell script in the sandbox.
    pub fn shell(&self, options: &[&str], script: &str) -> Output {
        let mut command = self.thrufs_run(options);
        let tree = self.tree.as_path();
        run(command.args(["sh", "-ec", script]).current_dir(tree))
    }
}

/// A repository with a secret.
pub fn make_tree(tree: &Path) {
    fs::create_dir_all(tree.join(".git/hooks")).unwrap();
    fs::write(tree.join(".git/config"), "[core]\n").unwrap();
    fs::write(tree.join(".git/hooks/pre-commit"), "#!/bin/sh\n").unwrap();
    fs::write(tree.join("file"), "content").unwrap();
    fs::write(tree.join(".env"), SECRET).unwrap();
}

/// A command whose output is read while it runs, killed on drop.
pub struct Talk {
    child: Child,
    out: BufReader<ChildStdout>,
    said: String,
}

impl Talk {
    pub fn start(command: &mut Command) -> Talk {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.stderr(Stdio::piped()).spawn().unwrap();
        Talk {
            out: BufReader::new(child.stdout.take().unwrap()),
            said: String::new(),
            child,
        }
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Reads until this line, which is no part of the output.
    pub fn wait_for(&mut self, expected: &str) {
        loop {
            let mut line = String::new();
            if self.out.read_line(&mut line).unwrap() == 0 {
                let mut errors = String::new();
                let stderr = self.child.stderr.as_mut().unwrap();
                stderr.read_to_string(&mut errors).unwrap();
                panic!("ended before {expected}: {} {errors}", self.said);
            }
            if line.trim_end() == expected {
                return;
            }
            self.said.push_str(&line);
        }
    }

    /// Sends a line, unless the command has ended.
    pub fn say(&mut self, line: &str) {
        let _ = writeln!(self.child.stdin.as_ref().unwrap(), "{line}");
    }

    pub fn end(mut self) -> Output {
        self.child.stdin.take();
        self.out.read_to_string(&mut self.said).unwrap();
        let mut stderr = Vec::new();
        let errors = self.child.stderr.as_mut().unwrap();
        errors.read_to_end(&mut stderr).unwrap();
        Output {
            status: self.child.wait().unwrap(),
            stdout: std::mem::take(&mut self.said).into_bytes(),
            stderr,
        }
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
