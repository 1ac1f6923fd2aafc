//! `thrufs install` and `thrufs uninstall`: this program, and all that belongs to it ([`table`]), at the places where
//! mount(8), man(1), shells, systemd and libvirt look. Packages are made by it too.
//!
//! Each file is written beside its place and renamed to it: a program that runs can be replaced, and nobody reads half
//! of a file.

mod table;

use crate::error::{CommandError, FAILURE, StartupError, USAGE, system_at};
use crate::output::{print, report};
use clap::{CommandFactory, Parser, ValueHint};
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use table::{Completions, Content, Row, rows};

/// Install this program with its manual pages, completions, units and mount helpers
#[derive(Parser)]
#[command(name = "install")]
pub(crate) struct InstallArguments {
    /// Where programs and their files go; what has to be elsewhere needs root
    #[arg(long, value_name = "DIR", default_value = "/usr/local", value_hint = ValueHint::DirPath)]
    prefix: PathBuf,
    /// The system to install into, if not this one: a directory, as of a package or of an image
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    destdir: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum InstallError {
    #[error("bad value `{0}` for --prefix: it must be an absolute path without `..`")]
    Prefix(PathBuf),
    #[error("{0} may not be written: install as root, or with `--prefix ~/.local`")]
    Denied(PathBuf),
    #[error(transparent)]
    Startup(#[from] StartupError),
}

impl CommandError for InstallError {
    fn status(&self) -> u8 {
        match self {
            InstallError::Prefix(_) => USAGE,
            InstallError::Denied(_) => FAILURE,
            InstallError::Startup(error) => error.status(),
        }
    }
}

pub(crate) fn uninstall_command() -> clap::Command {
    let command = InstallArguments::command().name("uninstall");
    command.about("Remove what `thrufs install` with the same options has installed")
}

/// Installs every row, and prints its path.
pub(crate) fn install(
    arguments: InstallArguments,
    completions: Completions,
) -> Result<(), InstallError> {
    for (row, path) in arguments.places(completions)? {
        let shown = path.display();
        match directory_of(&path).and_then(|()| row.content.write(&path)) {
            Ok(true) => print(format!("{shown}\n")),
            Ok(false) => report(format_args!(
                "thrufs: {shown} is left out: it is not beside this program"
            )),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return Err(InstallError::Denied(path));
            }
            Err(error) => return Err(system_at("install", &path)(error).into()),
        }
    }
    Ok(())
}

/// Removes every row that is there, and prints its path. A link that leads elsewhere is another's.
pub(crate) fn uninstall(
    arguments: InstallArguments,
    completions: Completions,
) -> Result<(), InstallError> {
    for (row, path) in arguments.places(completions)? {
        let removed = match &row.content {
            Content::Link(target) if fs::read_link(&path).ok().as_ref() != Some(target) => continue,
            _ => fs::remove_file(&path),
        };
        match removed {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            removed => removed.map_err(system_at("remove", &path))?,
        }
        print(format!("{}\n", path.display()));
        remove_own_directories(&path);
    }
    Ok(())
}

impl InstallArguments {
    /// The rows, each with its path in the file system. Without root, those outside of the prefix are left out.
    fn places(&self, completions: Completions) -> Result<Vec<(Row, PathBuf)>, InstallError> {
        let is_plain = |part| matches!(part, Component::RootDir | Component::Normal(_));
        if !self.prefix.is_absolute() || !self.prefix.components().all(is_plain) {
            return Err(InstallError::Prefix(self.prefix.clone()));
        }
        // Without a slash at the end, or two in the middle.
        let prefix: PathBuf = self.prefix.components().collect();
        let may_all = self.destdir.is_some() || rustix::process::geteuid().is_root();
        let mut places = Vec::new();
        for row in rows(&prefix, completions) {
            if !may_all && !row.path.starts_with(&prefix) {
                let path = row.path.display();
                report(format_args!("thrufs: {path} is left out: it needs root"));
                continue;
            }
            let path = match &self.destdir {
                Some(top) => top.join(row.path.strip_prefix("/").unwrap_or(&row.path)),
                None => row.path.clone(),
            };
            places.push((row, path));
        }
        Ok(places)
    }
}

impl Content {
    /// Whether there was something to write.
    fn write(&self, path: &Path) -> io::Result<bool> {
        let name = format!(".thrufs-install-{}", std::process::id());
        let temporary = path.with_file_name(name);
        let written = match self {
            Content::Program(name) => match program(name) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
                program => program.and_then(|mut program| file(&temporary, 0o755, &mut program)),
            },
            Content::Text(text) => file(&temporary, 0o644, &mut text.as_bytes()),
            Content::Link(target) => symlink(target, &temporary),
        };
        let placed = written.and_then(|()| fs::rename(&temporary, path));
        if placed.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        placed.map(|()| true)
    }
}

/// This program, even if its file was replaced, or one beside it.
fn program(name: &str) -> io::Result<File> {
    match name == table::PROGRAMS[0] {
        true => File::open("/proc/self/exe"),
        false => File::open(std::env::current_exe()?.with_file_name(name)),
    }
}

/// Whatever the umask is.
fn file(path: &Path, mode: u32, content: &mut impl io::Read) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    io::copy(content, &mut file)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    file.flush()
}

/// Makes the directory of a path; what is missing of it is mode 755, whatever the umask is.
fn directory_of(path: &Path) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    if directory.is_dir() {
        return Ok(());
    }
    directory_of(directory)?;
    fs::create_dir(directory)?;
    fs::set_permissions(directory, Permissions::from_mode(0o755))
}

/// Removes the empty directories above a path that are named for this program.
fn remove_own_directories(path: &Path) {
    for directory in path.ancestors().skip(1) {
        let mut parts = directory.components().rev().take(3);
        let is_own = parts.any(|part| part.as_os_str() == "thrufs");
        if !is_own || fs::remove_dir(directory).is_err() {
            return;
        }
    }
}
