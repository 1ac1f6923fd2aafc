//! What lies beneath: a private tmpfs, or ext4 on a loop image.

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A lower file system, unmounted when dropped.
pub(crate) struct Lower {
    path: PathBuf,
}

impl Lower {
    /// Mounts one of this kind on `directory/lower`.
    pub(crate) fn mount(kind: &str, directory: &Path) -> Result<Lower, Box<dyn Error>> {
        let path = directory.join("lower");
        std::fs::create_dir(&path)?;
        match kind {
            "tmpfs" => mount("bench", &path, "tmpfs", MountFlags::empty(), c"size=2g")?,
            "ext4" => {
                let image = directory.join("image");
                std::fs::File::create(&image)?.set_len(2 << 30)?;
                run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image))?;
                run(Command::new("mount")
                    .args(["-o", "loop"])
                    .args([&image, &path]))?;
            }
            other => return Err(format!("no such lower file system: {other}").into()),
        }
        Ok(Lower { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

fn run(command: &mut Command) -> Result<(), Box<dyn Error>> {
    let status = command.status()?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{command:?} failed: {status}").into())
    }
}

impl Drop for Lower {
    fn drop(&mut self) {
        let _ = unmount(&self.path, UnmountFlags::DETACH);
    }
}
