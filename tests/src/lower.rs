//! The file system beneath: a private tmpfs or ramfs, one in an image file, an overlay, or a plain directory.

use std::ffi::{CStr, CString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use thrufs_testing::Tree;

/// Which file system lies beneath the tree under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lower {
    /// A private tmpfs of at most 512 MiB.
    Tmpfs,
    /// An ext4 in a sparse image file of 512 MiB, mounted through a loop device.
    Ext4,
    /// The same with XFS.
    Xfs,
    /// The same with btrfs.
    Btrfs,
    /// An overlay of two directories on a private tmpfs: without file handles.
    Overlay,
    /// A private ramfs: times that advance with the clock's ticks, on any kernel, and no file handles.
    Ramfs,
    Default,
}

impl Lower {
    pub fn name(self) -> &'static str {
        match self {
            Self::Tmpfs => "tmpfs",
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            Self::Overlay => "overlay",
            Self::Ramfs => "ramfs",
            Self::Default => "default",
        }
    }

    pub fn is_known(self) -> bool {
        let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
        self == Self::Default || known.split_whitespace().any(|word| word == self.name())
    }

    /// Whether it takes `FALLOC_FL_ZERO_RANGE`.
    pub fn has_zero_range(self) -> bool {
        !matches!(self, Self::Tmpfs | Self::Overlay)
    }

    /// Whether it takes `FALLOC_FL_COLLAPSE_RANGE` and `FALLOC_FL_INSERT_RANGE`.
    pub fn has_shift_range(self) -> bool {
        matches!(self, Self::Ext4 | Self::Xfs | Self::Default)
    }
}

/// Size of an image in bytes. Sparse: only what the cases write takes space.
const IMAGE_BYTES: u64 = 512 << 20;

/// The directories of one test: `source`, which is served, `outside`, on the same file system but never to
/// be reached through the mount, and `mnt`. Drop unmounts the lower file system, so a server of `source`
/// must stop first.
pub struct Ground {
    lower_dir: PathBuf,
    source: PathBuf,
    outside: PathBuf,
    mnt: PathBuf,
    /// How many file systems lie on `lower_dir`.
    mounts: usize,
    // Last: removed after the file system in it is unmounted.
    base: tempfile::TempDir,
}

impl Ground {
    /// Makes the directories, and the file system of `lower`.
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
            mounts: 0,
            base,
        };
        ground
            .fill(lower)
            .map_err(|error| format!("no {} to test on: {error}", lower.name()))?;
        Ok(ground)
    }

    fn fill(&mut self, lower: Lower) -> Result<(), String> {
        let text = |error: std::io::Error| error.to_string();
        // Unprivileged callers walk down to the tree.
        open_to_all(self.base.path()).map_err(text)?;
        fs::create_dir(&self.lower_dir).map_err(text)?;
        fs::create_dir(&self.mnt).map_err(text)?;
        match lower {
            Lower::Default => {}
            Lower::Tmpfs => self.mount_tmpfs()?,
            // 256-byte inodes have room for nanoseconds and the birth time; the defaults may not.
            Lower::Ext4 => {
                self.mount_image(lower, &["mkfs.ext4", "-q", "-F", "-b", "4096", "-I", "256"])?;
            }
            Lower::Xfs => self.mount_image(lower, &["mkfs.xfs", "-q", "-f"])?,
            Lower::Btrfs => self.mount_image(lower, &["mkfs.btrfs", "-q", "-f"])?,
            Lower::Overlay => self.mount_overlay()?,
            Lower::Ramfs => self.mount_lower("ramfs", c"mode=755")?,
        }
        if self.mounts > 0 {
            // As under systemd: later mounts beneath propagate to the server's namespace.
            let shared = MountPropagationFlags::SHARED;
            rustix::mount::mount_change(&self.lower_dir, shared)
                .map_err(|error| format!("propagation: {error}"))?;
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
        self.mount_lower("tmpfs", DATA)
    }

    fn mount_lower(&mut self, kind: &str, data: &CStr) -> Result<(), String> {
        let flags = MountFlags::empty();
        rustix::mount::mount("thrufs-test", &self.lower_dir, kind, flags, data)
            .map_err(|error| format!("mount of {kind}: {error}"))?;
        self.mounts += 1;
        Ok(())
    }

    /// Over a tmpfs that keeps its two layers: both are gone when the mounts are.
    fn mount_overlay(&mut self) -> Result<(), String> {
        self.mount_tmpfs()?;
        for layer in ["below", "above", "work"] {
            fs::create_dir(self.lower_dir.join(layer)).map_err(|error| error.to_string())?;
        }
        let at = self.lower_dir.display();
        let data = format!("lowerdir={at}/below,upperdir={at}/above,workdir={at}/work");
        let data = CString::new(data).map_err(|error| error.to_string())?;
        self.mount_lower("overlay", &data)
    }

    fn mount_image(&mut self, lower: Lower, make: &[&str]) -> Result<(), String> {
        let image = self.base.path().join("image");
        fs::File::create(&image)
            .and_then(|file| file.set_len(IMAGE_BYTES))
            .map_err(|error| format!("image file: {error}"))?;
        run(Command::new(make[0]).args(&make[1..]).arg(&image))?;
        run(Command::new("mount")
            .args(["-t", lower.name(), "-o", "loop"])
            .arg(&image)
            .arg(&self.lower_dir))?;
        self.mounts += 1;
        Ok(())
    }

    pub fn source(&self) -> &Path {
        &self.source
    }

    /// A sibling of the source on the same file system, which is not served.
    pub fn outside(&self) -> &Path {
        &self.outside
    }

    pub fn mnt(&self) -> &Path {
        &self.mnt
    }

    /// The root of the lower file system.
    pub fn lower(&self) -> &Path {
        &self.lower_dir
    }

    /// The directory that holds all the others, for logs.
    pub fn base(&self) -> &Path {
        self.base.path()
    }
}

/// As it is, without a server.
impl Tree for Ground {
    fn root(&self) -> &Path {
        &self.source
    }

    fn beneath(&self) -> &Path {
        &self.source
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        for _ in 0..self.mounts {
            if let Err(error) = rustix::mount::unmount(&self.lower_dir, UnmountFlags::DETACH) {
                eprintln!(
                    "thrufs-tests: {} stays mounted: {error}",
                    self.lower_dir.display()
                );
            }
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
