//! What a guest boots into: programs of this machine with the libraries that they need, the tests, and
//! the modules of the kernel. It is put together in a directory, of which cpio(1) makes an archive.

use super::compiler;
use crate::step::{Failure, Step};
use crate::tools;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Where programs of this machine are looked for. The `PATH` of whoever calls may have others of the
/// same names.
const PROGRAM_PATH: &[&str] = &["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"];

/// What every script may use.
const BASE: &str = "awk basename bash cat chmod chown cmp comm cp cut date dd diff dirname du env expr \
    false find getfacl getfattr grep head id install kill ln ls md5sum mkdir mkfifo mknod mktemp mount \
    mountpoint mv nproc paste printf ps readlink realpath rm rmdir sed seq sh sha256sum sleep sort stat \
    sync tail tee test timeout touch tr true truncate umount uname uniq wc xargs";

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

/// An image that is being put together.
pub(super) struct Image {
    directory: PathBuf,
    /// Whose libraries are wanted.
    programs: Vec<PathBuf>,
}

impl Image {
    /// Starts in `directory`, with what every script may use.
    pub(super) fn new(directory: PathBuf) -> Result<Self, Failure> {
        let image = Self {
            directory,
            programs: Vec::new(),
        };
        for name in [
            "dev",
            "etc",
            "proc",
            "root",
            "run",
            "sys",
            "tmp",
            "usr/bin",
            "usr/lib",
            "usr/lib64",
        ] {
            let path = image.directory.join(name);
            fs::create_dir_all(&path).map_err(Failure::of(&path))?;
        }
        // Whatever lies there on this machine lies below `usr` in the image.
        for (name, target) in [
            ("bin", "usr/bin"),
            ("sbin", "usr/bin"),
            ("usr/sbin", "bin"),
            ("lib", "usr/lib"),
            ("lib64", "usr/lib64"),
        ] {
            let path = image.directory.join(name);
            symlink(target, &path).map_err(Failure::of(&path))?;
        }
        image.write("etc/passwd", USERS)?;
        image.write("etc/group", GROUPS)?;
        BASE.split_whitespace().try_fold(image, |mut image, name| {
            image.program(name)?;
            Ok(image)
        })
    }

    /// A program of this machine by its name, with what it needs beside itself.
    pub(super) fn program(&mut self, name: &str) -> Result<(), Failure> {
        let mut usual = PROGRAM_PATH.iter().map(|place| Path::new(place).join(name));
        let found = match tools::installed(name)? {
            None => usual.find(|path| path.is_file()),
            own => own,
        };
        let found = found
            .ok_or_else(|| Failure::new(format!("no such program: {name} (cargo xtask setup)")))?;
        self.executable(&found, &format!("usr/bin/{name}"))?;
        for (_, programs, directories) in BESIDE.iter().filter(|beside| beside.0 == name) {
            programs
                .iter()
                .try_for_each(|program| self.program(program))?;
            directories
                .iter()
                .try_for_each(|directory| self.tree(directory))?;
        }
        if name == "gcc" {
            for path in compiler::programs()? {
                self.executable(&path, &place(&path))?;
            }
            compiler::files()?
                .iter()
                .try_for_each(|path| self.copy(path, &place(path)))?;
        }
        Ok(())
    }

    /// An executable file of this machine as `name` in the image.
    pub(super) fn executable(&mut self, path: &Path, name: &str) -> Result<(), Failure> {
        self.programs.push(path.to_owned());
        self.copy(path, name)
    }

    /// A directory of the repository, or of this machine, at the same place in the image.
    pub(super) fn tree(&self, directory: &str) -> Result<(), Failure> {
        let copy = Step::new("cp").args(["--recursive", "--dereference", "--parents", directory]);
        copy.args([&self.directory]).text().map(|_| ())
    }

    /// A module of a kernel, decompressed: the kernel need not be able to.
    pub(super) fn module(&self, number: usize, path: &Path) -> Result<(), Failure> {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        let name = format!("guest/modules/{number:02}-{file}");
        self.copy(path, &name)?;
        match name.ends_with(".xz") {
            true => Step::new("xz")
                .args(["-d"])
                .args([self.directory.join(name)])
                .text()
                .map(|_| ()),
            false => Ok(()),
        }
    }

    /// A file with content that is made here.
    pub(super) fn write(&self, name: &str, content: &str) -> Result<(), Failure> {
        let path = self.directory.join(name);
        fs::write(&path, content).map_err(Failure::of(&path))
    }

    /// Adds the libraries of every program.
    pub(super) fn add_libraries(&self) -> Result<(), Failure> {
        let libraries = libraries(&self.programs)?;
        libraries
            .iter()
            .try_for_each(|path| self.copy(path, &place(path)))
    }

    /// Makes the archive that a kernel unpacks.
    pub(super) fn pack(&self, archive: &Path) -> Result<(), Failure> {
        let pack = "find . | cpio --quiet --create --format=newc --owner=0:0 >\"$1\"";
        let step = Step::new("bash").args(["-c", pack, "pack"]).args([archive]);
        step.directory(&self.directory).quietly()
    }

    /// A file of this machine as `name` in the image, once.
    pub(super) fn copy(&self, path: &Path, name: &str) -> Result<(), Failure> {
        let copy = self.directory.join(name);
        if copy.exists() {
            return Ok(());
        }
        let made = copy.parent().map_or(Ok(()), fs::create_dir_all);
        made.and_then(|()| fs::copy(path, &copy))
            .map_err(Failure::of(path))?;
        Ok(())
    }
}

/// Where a file of this machine lies in the image.
fn place(path: &Path) -> String {
    path.to_string_lossy().trim_start_matches('/').to_owned()
}

/// The libraries that the dynamic linker would load for `programs`.
fn libraries(programs: &[PathBuf]) -> Result<BTreeSet<PathBuf>, Failure> {
    // It fails for a script among them and goes on with the others.
    let (_, said) = Step::new("ldd").args(programs).record()?;
    if let Some(missing) = said.lines().find(|line| line.ends_with("not found")) {
        return Err(Failure::new(format!("a library is missing: {missing}")));
    }
    let mut found: BTreeSet<PathBuf> = said.lines().filter_map(library).collect();
    let c_library = found.iter().find(|path| path.ends_with("libc.so.6"));
    let unnamed = c_library.map(|path| path.with_file_name(UNNAMED_LIBRARY));
    found.insert(unnamed.ok_or_else(|| Failure::new(format!("ldd names no C library:\n{said}")))?);
    Ok(found)
}

/// The path in a line of ldd: `NAME => PATH (ADDRESS)`, or `PATH (ADDRESS)` for the linker itself.
fn library(line: &str) -> Option<PathBuf> {
    let path = line.split_once(" => ").map_or(line, |(_, path)| path);
    let path = path.trim().rsplit_once(" (0x")?.0;
    path.starts_with('/').then(|| PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::library;
    use std::path::PathBuf;

    #[test]
    fn the_lines_of_ldd_are_understood() {
        let linker = library("\t/lib64/ld-linux-x86-64.so.2 (0x00007f)");
        assert_eq!(linker, Some(PathBuf::from("/lib64/ld-linux-x86-64.so.2")));
        let library = |line| library(line);
        assert_eq!(
            library("\tlibc.so.6 => /lib/x/libc.so.6 (0x00007f)"),
            Some(PathBuf::from("/lib/x/libc.so.6"))
        );
        assert_eq!(library("\tlinux-vdso.so.1 (0x00007ffd)"), None);
        assert_eq!(library("\tnot a dynamic executable"), None);
    }
}
