//! The file system beneath: a private tmpfs, an ext4 in an image file, or a plain directory.

use std::ffi::CStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::mount::{MountFlags, UnmountFlags};

/// Which file system lies beneath the tree under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lower {
    /// A private tmpfs of at most 512 MiB.
    Tmpfs,
    /// An ext4 in a sparse image file of 512 MiB, mounted through a loop device.
    Ext4,
    /// A plain directory where temporary files go.
    Default,
}

impl Lower {
    /// The name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tmpfs => "tmpfs",
            Self::Ext4 => "ext4",
            Self::Default => "default",
        }
    }
}

/// Size of the ext4 image in bytes. Sparse: only what the cases write takes space.
const IMAGE_BYTES: u64 = 512 << 20;

/// The directories of one test: `source`, which is served, `outside`, which must never be reached
/// through the mount although it is on the same file system, and `mnt`.
///
/// Unmounts the lower file system when dropped, so whoever serves `source` must stop first.
pub struct Ground {
    lower_dir: PathBuf,
    source: PathBuf,
    outside: PathBuf,
    mnt: PathBuf,
    mounted: bool,
    // Last, so that the directory goes after the file system in it was unmounted.
    base: tempfile::TempDir,
}

impl Ground {
    /// Makes the directories, and the file system where `lower` asks for one.
    ///
    /// # Errors
    ///
    /// What was missing, as text.
    pub fn prepare(lower: Lower) -> Result<Self, String> {
        let base = tempfile::Builder::new()
            .prefix("thrufs-test-")
            .tempdir()
            .map_err(|error| format!("no temporary directory: {error}"))?;
        let lower_dir = base.path().join("lower");
        let mut ground = Self {
            source: lower_dir.join("source"),
            outside: lower_dir.join("outside"),
            mnt: base.path().join("mnt"),
            lower_dir,
            mounted: false,
            base,
        };
        ground
            .fill(lower)
            .map_err(|error| format!("no {} to test on: {error}", lower.name()))?;
        Ok(ground)
    }

    fn fill(&mut self, lower: Lower) -> Result<(), String> {
        let text = |error: std::io::Error| error.to_string();
        // Callers without privilege must be able to walk down to the tree.
        open_to_all(self.base.path()).map_err(text)?;
        fs::create_dir(&self.lower_dir).map_err(text)?;
        fs::create_dir(&self.mnt).map_err(text)?;
        match lower {
            Lower::Default => {}
            Lower::Tmpfs => self.mount_tmpfs()?,
            Lower::Ext4 => self.mount_ext4()?,
        }
        open_to_all(&self.lower_dir).map_err(text)?;
        for dir in [&self.source, &self.outside] {
            fs::create_dir(dir).map_err(text)?;
            open_to_all(dir).map_err(text)?;
        }
        Ok(())
    }

    fn mount_tmpfs(&mut self) -> Result<(), String> {
        const DATA: &CStr = c"size=512m,mode=755";
        rustix::mount::mount(
            "thrufs-test",
            &self.lower_dir,
            "tmpfs",
            MountFlags::empty(),
            DATA,
        )
        .map_err(|error| format!("mount of tmpfs: {error}"))?;
        self.mounted = true;
        Ok(())
    }

    fn mount_ext4(&mut self) -> Result<(), String> {
        let image = self.base.path().join("ext4.image");
        fs::File::create(&image)
            .and_then(|file| file.set_len(IMAGE_BYTES))
            .map_err(|error| format!("image file: {error}"))?;
        // 256-byte inodes have room for nanoseconds and the birth time; the defaults may not.
        run(Command::new("mkfs.ext4")
            .args(["-q", "-F", "-b", "4096", "-I", "256"])
            .arg(&image))?;
        run(Command::new("mount")
            .args(["-t", "ext4", "-o", "loop"])
            .arg(&image)
            .arg(&self.lower_dir))?;
        self.mounted = true;
        Ok(())
    }

    /// The directory that is served.
    pub fn source(&self) -> &Path {
        &self.source
    }

    /// A sibling of the source on the same file system, which is not served.
    pub fn outside(&self) -> &Path {
        &self.outside
    }

    /// The empty directory to mount on.
    pub fn mnt(&self) -> &Path {
        &self.mnt
    }

    /// The directory that holds all the others, for logs.
    pub fn base(&self) -> &Path {
        self.base.path()
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        if self.mounted
            && let Err(error) = rustix::mount::unmount(&self.lower_dir, UnmountFlags::DETACH)
        {
            eprintln!(
                "thrufs-tests: {} stays mounted: {error}",
                self.lower_dir.display()
            );
        }
    }
}

fn open_to_all(dir: &Path) -> std::io::Result<()> {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755))
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command
        .output()
        .map_err(|error| format!("{:?}: {error}", command.get_program()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!(
        "{:?} failed: {}",
        command.get_program(),
        String::from_utf8_lossy(&output.stderr).trim()
    ))
}
