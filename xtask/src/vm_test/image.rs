//! What a guest boots into: programs of this machine with the libraries that they need, the tests,
//! and the modules of the kernel, as one archive.

use super::compiler;
use super::cpio::Archive;
use crate::step::{Failure, Step};
use crate::tools;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Where programs of this machine are looked for. The `PATH` of whoever calls may have others of the
/// same names.
const PROGRAM_PATH: &[&str] = &["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"];

/// What every script may use.
const BASE: &[&str] = &[
    "awk",
    "basename",
    "bash",
    "cat",
    "chmod",
    "chown",
    "cmp",
    "comm",
    "cp",
    "cut",
    "date",
    "dd",
    "diff",
    "dirname",
    "du",
    "env",
    "expr",
    "false",
    "find",
    "getfacl",
    "getfattr",
    "grep",
    "head",
    "id",
    "install",
    "kill",
    "ln",
    "ls",
    "md5sum",
    "mkdir",
    "mkfifo",
    "mknod",
    "mktemp",
    "mount",
    "mountpoint",
    "mv",
    "nproc",
    "paste",
    "printf",
    "ps",
    "readlink",
    "realpath",
    "rm",
    "rmdir",
    "sed",
    "seq",
    "sh",
    "sha256sum",
    "sleep",
    "sort",
    "stat",
    "sync",
    "tail",
    "tee",
    "test",
    "timeout",
    "touch",
    "tr",
    "true",
    "truncate",
    "umount",
    "uname",
    "uniq",
    "wc",
    "xargs",
];

/// What a program needs beside itself: other programs, and directories of data.
const BESIDE: &[(&str, &[&str], &[&str])] = &[
    (
        "git",
        &["git-receive-pack", "git-upload-pack"],
        &["/usr/share/git-core/templates"],
    ),
    ("dbench", &[], &["/usr/share/dbench"]),
    ("gcc", &["ar", "as", "cc", "ld"], &[]),
];

/// Loaded when it is needed, so that no program names it: by a thread that ends.
const UNNAMED_LIBRARY: &str = "libgcc_s.so.1";

const USERS: &str = "root:x:0:0:root:/root:/usr/bin/bash\n\
    daemon:x:1:1:daemon:/:/usr/bin/false\n\
    nobody:x:65534:65534:nobody:/:/usr/bin/false\n";
const GROUPS: &str = "root:x:0:\ndaemon:x:1:\nnogroup:x:65534:\n";

/// An image that is being written.
pub(super) struct Image {
    archive: Archive<BufWriter<File>>,
    path: PathBuf,
    /// Whose libraries are wanted.
    programs: Vec<PathBuf>,
}

impl Image {
    /// Starts an image at `path`, with the directories of a system and what every script may use.
    pub(super) fn new(path: PathBuf) -> Result<Self, Failure> {
        let file = File::create(&path).map_err(|error| failure(&path, &error))?;
        let mut image = Self {
            archive: Archive::new(BufWriter::new(file)),
            path,
            programs: Vec::new(),
        };
        image
            .skeleton()
            .map_err(|error| failure(&image.path, &error))?;
        for name in BASE {
            image.program(name)?;
        }
        Ok(image)
    }

    fn skeleton(&mut self) -> io::Result<()> {
        for path in [
            "dev", "etc", "proc", "root", "run", "sys", "tmp", "usr/bin", "usr/lib",
        ] {
            self.archive.directory(path)?;
        }
        for name in ["bin", "sbin", "usr/sbin"] {
            let target = if name.contains('/') { "bin" } else { "usr/bin" };
            self.archive.symlink(name, target)?;
        }
        self.archive.directory("usr/lib64")?;
        self.archive.symlink("lib", "usr/lib")?;
        self.archive.symlink("lib64", "usr/lib64")?;
        // The first process writes there before it can mount anything.
        self.archive
            .character_device("dev/console", 0o600, (5, 1))?;
        self.archive.file("etc/passwd", 0o644, USERS.as_bytes())?;
        self.archive.file("etc/group", 0o644, GROUPS.as_bytes())
    }

    /// A program of this machine by its name, with what it needs beside itself.
    pub(super) fn program(&mut self, name: &str) -> Result<(), Failure> {
        let found = PROGRAM_PATH.iter().map(|place| Path::new(place).join(name));
        let own = tools::search_path();
        let own: Vec<_> = std::env::split_paths(&own)
            .map(|place| place.join(name))
            .collect();
        let path = found
            .chain(own)
            .find(|path| path.is_file())
            .ok_or_else(|| Failure::new(format!("no such program: {name} (cargo xtask setup)")))?;
        self.executable(&path, &format!("usr/bin/{name}"))?;
        for (_, programs, directories) in BESIDE.iter().filter(|beside| beside.0 == name) {
            for program in *programs {
                self.program(program)?;
            }
            for directory in *directories {
                self.tree(Path::new(directory))?;
            }
        }
        if name == "gcc" {
            for path in compiler::programs()? {
                let name = place(&path);
                self.executable(&path, &name)?;
            }
            for path in compiler::files()? {
                self.same(&path)?;
            }
        }
        Ok(())
    }

    /// An executable file of this machine as `name` in the image, once.
    pub(super) fn executable(&mut self, path: &Path, name: &str) -> Result<(), Failure> {
        if self.archive.has(name) {
            return Ok(());
        }
        let path = path.canonicalize().map_err(|error| failure(path, &error))?;
        self.copy(&path, name)?;
        self.programs.push(path);
        Ok(())
    }

    /// A file of this machine at the same place in the image, once.
    fn same(&mut self, path: &Path) -> Result<(), Failure> {
        let name = place(path);
        match self.archive.has(&name) {
            true => Ok(()),
            false => self.copy(path, &name),
        }
    }

    /// A file with content that is made here.
    pub(super) fn made(&mut self, name: &str, content: &[u8]) -> Result<(), Failure> {
        let written = self.archive.file(name, 0o644, content);
        written.map_err(|error| failure(&self.path, &error))
    }

    /// A directory with all that is in it, at the same place in the image.
    pub(super) fn tree(&mut self, directory: &Path) -> Result<(), Failure> {
        self.tree_as(directory, &place(directory))
    }

    /// A directory with all that is in it, as `name` in the image.
    pub(super) fn tree_as(&mut self, directory: &Path, name: &str) -> Result<(), Failure> {
        let unreadable = |error: &io::Error| failure(directory, error);
        let mut entries = fs::read_dir(directory)
            .and_then(Iterator::collect::<io::Result<Vec<_>>>)
            .map_err(|error| unreadable(&error))?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            let name = format!("{name}/{}", entry.file_name().to_string_lossy());
            let kind = entry.file_type().map_err(|error| unreadable(&error))?;
            if kind.is_dir() {
                self.tree_as(&path, &name)?;
            } else {
                self.copy(&path, &name)?;
            }
        }
        Ok(())
    }

    /// Adds the libraries of every program and the end.
    pub(super) fn finish(mut self) -> Result<(), Failure> {
        for library in libraries(&self.programs)? {
            self.same(&library)?;
        }
        let path = self.path;
        self.archive
            .finish()
            .map_err(|error| failure(&path, &error))?;
        Ok(())
    }

    fn copy(&mut self, path: &Path, name: &str) -> Result<(), Failure> {
        let copied = fs::read(path).and_then(|content| {
            let mode = fs::metadata(path)?.permissions().mode() & 0o777;
            self.archive.file(name, mode, &content)
        });
        copied.map_err(|error| failure(path, &error))
    }
}

fn failure(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("{}: {error}", path.display()))
}

/// Where a file of this machine lies in the image: libraries are below `usr`, wherever a path says
/// that they are.
fn place(path: &Path) -> String {
    let path = path.to_string_lossy();
    let path = path.trim_start_matches('/');
    if path.starts_with("lib") {
        format!("usr/{path}")
    } else {
        path.to_owned()
    }
}

/// The libraries that the dynamic linker would load for `programs`.
fn libraries(programs: &[PathBuf]) -> Result<BTreeSet<PathBuf>, Failure> {
    // It fails for a script among them and goes on with the others.
    let (_, output, errors) = Step::new("ldd").args(programs).capture()?;
    let found: BTreeSet<PathBuf> = output.lines().filter_map(library).collect();
    if let Some(missing) = output.lines().find(|line| line.ends_with("not found")) {
        return Err(Failure::new(format!("a library is missing: {missing}")));
    }
    let Some(c_library) = found.iter().find(|path| path.ends_with("libc.so.6")) else {
        return Err(Failure::new(format!(
            "ldd names no C library:\n{output}{errors}"
        )));
    };
    let unnamed = c_library.with_file_name(UNNAMED_LIBRARY);
    Ok(found.iter().cloned().chain([unnamed]).collect())
}

/// The path in a line of ldd: `NAME => PATH (ADDRESS)`, or `PATH (ADDRESS)` for the linker itself.
fn library(line: &str) -> Option<PathBuf> {
    let path = line.split_once(" => ").map_or(line, |(_, path)| path);
    let path = path.trim().rsplit_once(" (0x")?.0;
    path.starts_with('/').then(|| PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::{library, place};
    use std::path::{Path, PathBuf};

    #[test]
    fn the_lines_of_ldd_are_understood() {
        let path = |line| library(line);
        assert_eq!(
            path("\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)"),
            Some(PathBuf::from("/lib/x86_64-linux-gnu/libc.so.6"))
        );
        assert_eq!(
            path("\t/lib64/ld-linux-x86-64.so.2 (0x00007f)"),
            Some(PathBuf::from("/lib64/ld-linux-x86-64.so.2"))
        );
        assert_eq!(path("\tlinux-vdso.so.1 (0x00007ffd)"), None);
        assert_eq!(path("/usr/bin/git:"), None);
        assert_eq!(path("\tnot a dynamic executable"), None);
    }

    #[test]
    fn libraries_lie_below_usr_whether_or_not_a_path_says_so() {
        assert_eq!(place(Path::new("/lib64/ld.so")), "usr/lib64/ld.so");
        assert_eq!(place(Path::new("/usr/lib/a/b.so")), "usr/lib/a/b.so");
        assert_eq!(place(Path::new("/usr/share/x")), "usr/share/x");
    }
}
