//! What another process can do beneath directly after a close through the mount. It runs in a process
//! without threads: a child that another thread forks would hold the file open.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::fence::lease::{give_up_lease, take_write_lease};

/// How long to wait for a late success.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    Write,
    /// Read, which makes the kernel read ahead, and written in place.
    Change,
    Read,
}

impl Usage {
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "write" => Self::Write,
            "change" => Self::Change,
            "read" => Self::Read,
            _ => return None,
        })
    }

    fn on(self, path: &Path, content: &[u8]) -> io::Result<()> {
        let mut begin = [0; 4096];
        match self {
            Self::Write => {
                let mut options = OpenOptions::new();
                options.write(true).create(true).truncate(true).mode(0o755);
                options.open(path)?.write_all(content)
            }
            Self::Change => {
                let mut file = OpenOptions::new().read(true).write(true).open(path)?;
                let count = file.read(&mut begin)?;
                file.write_all(content.get(count..count + 100).unwrap_or_default())
            }
            Self::Read => File::open(path)?.read(&mut begin).map(drop),
        }
    }
}

/// Uses a file through the mount, closes it and acts beneath, `count` times. Returns the sorted delays from
/// the close to success; 0 is at once.
fn rounds(
    count: usize,
    mut use_it: impl FnMut() -> io::Result<()>,
    mut attempt: impl FnMut() -> io::Result<()>,
) -> io::Result<Vec<Duration>> {
    let mut late = Vec::new();
    for _ in 0..count {
        use_it()?;
        let closed = Instant::now();
        let mut outcome = attempt();
        let mut after = Duration::ZERO;
        while let Err(error) = outcome {
            if closed.elapsed() > PATIENCE {
                return Err(error);
            }
            outcome = attempt();
            after = closed.elapsed();
        }
        late.push(after);
    }
    late.sort();
    Ok(late)
}

/// Makes a program through the mount and executes it from beneath.
pub fn execute(
    count: usize,
    usage: Usage,
    through: &Path,
    beneath: &Path,
) -> io::Result<Vec<Duration>> {
    let program = fs::read("/bin/true")?;
    fs::write(through, &program)?;
    fs::set_permissions(through, fs::Permissions::from_mode(0o755))?;
    let run = || {
        let mut command = Command::new(beneath);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .map(drop)
    };
    let use_it = || {
        let begun = Instant::now();
        loop {
            match usage.on(through, &program) {
                // A reader of /proc keeps the memory of an ended process, and so the program.
                Err(error)
                    if error.kind() == io::ErrorKind::ExecutableFileBusy
                        && begun.elapsed() < PATIENCE => {}
                used => return used,
            }
        }
    };
    rounds(count, use_it, run)
}

/// Takes a lease beneath, which is granted only while no other descriptor of the file is open.
pub fn lease(
    count: usize,
    usage: Usage,
    through: &Path,
    beneath: &Path,
) -> io::Result<Vec<Duration>> {
    let content = vec![b'x'; 300_000];
    fs::write(through, &content)?;
    let take = || {
        let file = File::open(beneath)?;
        take_write_lease(&file)?;
        give_up_lease(&file)
    };
    rounds(count, || usage.on(through, &content), take)
}
