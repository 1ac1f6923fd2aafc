//! Nothing beneath a mount leads out of the source, however fast a directory and a symbolic link change
//! places beneath.
//!
//! The link points to `../outside`. Beneath, that is a directory with a secret. Through the mount the
//! client's kernel would resolve it above the mount point, where there is nothing: so the server led to the
//! secret what reaches it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use thrufs_tests::guard::StopAll;

use rustix::fs::{CWD, FileType, Mode, RenameFlags, XattrFlags};
use thrufs_tests::compare::{differences, snapshot};
use thrufs_tests::mounted::Mounted;
use thrufs_tests::transport::over_each;

const SECRET: &[u8] = b"the secret outside";

const HARMLESS: &[u8] = b"harmless content in";

const RUN_TIME: Duration = Duration::from_secs(1);

/// Fewer swaps and operations prove nothing: a busy machine gets the time for more.
const MOST_LITTLE: u64 = 100;

const PATIENCE: Duration = Duration::from_secs(60);

/// Times of everything outside, which show a change that was undone.
fn times(dir: &Path) -> Vec<(i64, i64, i64, i64)> {
    [".", "secret", "sub", "sub/secret"]
        .iter()
        .map(|name| {
            let metadata = fs::metadata(dir.join(name)).unwrap();
            (
                metadata.mtime(),
                metadata.mtime_nsec(),
                metadata.ctime(),
                metadata.ctime_nsec(),
            )
        })
        .collect()
}

/// The same names inside and outside, so that every operation would succeed outside too.
fn fill(dir: &Path, content: &[u8]) {
    fs::create_dir_all(dir.join("sub")).unwrap();
    for name in ["secret", "sub/secret"] {
        fs::write(dir.join(name), content).unwrap();
        rustix::fs::setxattr(dir.join(name), "user.content", content, XattrFlags::empty()).unwrap();
    }
    std::os::unix::fs::symlink(
        Path::new("leads").join(content_name(content)),
        dir.join("link"),
    )
    .unwrap();
}

fn content_name(content: &[u8]) -> String {
    String::from_utf8(content.to_vec()).unwrap()
}

fn read_secret(path: &Path) -> io::Result<()> {
    let mut content = Vec::new();
    File::open(path)?.read_to_end(&mut content)?;
    assert_ne!(
        content,
        SECRET,
        "the secret was read through {}",
        path.display()
    );
    Ok(())
}

fn read_attribute(path: &Path) -> io::Result<()> {
    let mut value = [0; 100];
    let len = rustix::fs::getxattr(path, "user.content", &mut value[..])?;
    assert_ne!(&value[..len], SECRET, "an attribute outside was read");
    Ok(())
}

fn read_link(path: &Path) -> io::Result<()> {
    let target = fs::read_link(path)?;
    assert!(!target.ends_with(content_name(SECRET)));
    Ok(())
}

fn list(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        assert_ne!(entry?.file_name(), "only-outside");
    }
    Ok(())
}

/// Looks for the name that exists only outside.
fn look(dir: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(dir.join("only-outside"));
    assert!(found.is_err(), "a name outside was looked up");
    fs::metadata(dir.join("secret")).map(drop)
}

fn truncate(path: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).truncate(true).open(path)?;
    fs::write(path, HARMLESS)
}

fn chmod(path: &Path) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o604))?;
    rustix::fs::chown(path, Some(rustix::process::Uid::from_raw(4001)), None)?;
    Ok(())
}

/// Everything that takes a path below the changing directory.
fn work(dir: &Path, worker: usize, round: u64) -> io::Result<()> {
    let own = dir.join(format!("own-{worker}-{}", round % 7));
    let other = dir.join(format!("other-{worker}"));
    match round % 19 {
        0 => read_secret(&dir.join("secret")),
        1 => read_secret(&dir.join("sub/secret")),
        2 => OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&own)
            .map(drop),
        3 => fs::create_dir(&other),
        4 => fs::rename(&own, dir.join(format!("renamed-{worker}"))),
        5 => fs::remove_file(dir.join(format!("renamed-{worker}"))),
        6 => fs::remove_dir(&other),
        7 => fs::hard_link(dir.join("secret"), &own),
        8 => std::os::unix::fs::symlink("nowhere", &own),
        9 => list(dir),
        10 => list(&dir.join("sub")),
        11 => look(dir),
        12 => read_attribute(&dir.join("secret")),
        13 => Ok(rustix::fs::setxattr(
            dir.join("secret"),
            "user.x",
            b"x",
            XattrFlags::empty(),
        )?),
        14 => truncate(&dir.join("secret")),
        15 => chmod(&dir.join("sub/secret")),
        16 => fs::remove_file(&own),
        17 => read_link(&dir.join("link")),
        _ => {
            rustix::fs::mknodat(CWD, &own, FileType::Fifo, Mode::RUSR, 0)?;
            fs::remove_file(&own)
        }
    }
}

/// The same for a name that is now a file, now a link to the secret.
fn work_on_file(path: &Path, round: u64) -> io::Result<()> {
    match round % 5 {
        0 => read_secret(path),
        1 => truncate(path),
        2 => chmod(path),
        3 => read_attribute(path),
        _ => Ok(rustix::fs::setxattr(
            path,
            "user.x",
            b"x",
            XattrFlags::empty(),
        )?),
    }
}

fn swap(one: &Path, two: &Path) {
    rustix::fs::renameat_with(CWD, one, CWD, two, RenameFlags::EXCHANGE).unwrap();
}

fn no_way_out(options: &str) {
    let mut mounted = Mounted::start(options);
    let (source, outside) = (mounted.source().to_owned(), mounted.outside().to_owned());
    fill(&source.join("dir"), HARMLESS);
    fill(&outside, SECRET);
    fs::write(outside.join("only-outside"), b"").unwrap();
    fs::write(source.join("file"), HARMLESS).unwrap();
    std::os::unix::fs::symlink("../outside", source.join("dir-link")).unwrap();
    std::os::unix::fs::symlink("../outside/secret", source.join("file-link")).unwrap();
    // Beneath, the links do lead to the secret.
    assert_eq!(fs::read(source.join("dir-link/secret")).unwrap(), SECRET);
    assert_eq!(fs::read(source.join("file-link")).unwrap(), SECRET);
    let before = (snapshot(&outside).unwrap(), times(&outside));

    let stop = AtomicBool::new(false);
    let (swaps, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let begun = Instant::now();
    let counts = || (swaps.load(Ordering::Relaxed), done.load(Ordering::Relaxed));
    let goes_on = || {
        let (swaps, done) = counts();
        let is_enough = swaps > MOST_LITTLE && done > MOST_LITTLE;
        begun.elapsed() < RUN_TIME || (!is_enough && begun.elapsed() < PATIENCE)
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let _stop = StopAll(&stop);
            while !stop.load(Ordering::Relaxed) && goes_on() {
                swap(&source.join("dir"), &source.join("dir-link"));
                swap(&source.join("file"), &source.join("file-link"));
                swaps.fetch_add(1, Ordering::Relaxed);
            }
        });
        for worker in 0..4 {
            let (stop, done, mnt) = (&stop, &done, mounted.mnt());
            scope.spawn(move || {
                let _stop = StopAll(stop);
                let mut round = worker as u64 * 5;
                while !stop.load(Ordering::Relaxed) {
                    // The name of the directory changes all the time: both are tried.
                    for dir in ["dir", "dir-link"] {
                        let worked = work(&mnt.join(dir), worker, round);
                        done.fetch_add(u64::from(worked.is_ok()), Ordering::Relaxed);
                    }
                    for file in ["file", "file-link"] {
                        let worked = work_on_file(&mnt.join(file), round);
                        done.fetch_add(u64::from(worked.is_ok()), Ordering::Relaxed);
                    }
                    round += 1;
                }
            });
        }
    });
    let (swaps, done) = (swaps.into_inner(), done.into_inner());
    eprintln!("options \"{options}\": {swaps} swaps, {done} operations succeeded");

    let after = (snapshot(&outside).unwrap(), times(&outside));
    let lines = differences(("before", &before.0), ("after", &after.0));
    assert!(
        lines.is_empty(),
        "outside has changed: {}",
        lines.join("\n")
    );
    assert_eq!(before.1, after.1);
    assert!(
        swaps > MOST_LITTLE && done > MOST_LITTLE,
        "{swaps} swaps and {done} operations prove nothing"
    );
    mounted.stop().unwrap();
}

#[test]
fn a_swapped_directory_leads_nowhere_with_cache_never() {
    over_each(|transport| no_way_out(&transport.with("cache=never")));
}

#[test]
fn a_swapped_directory_leads_nowhere_by_default() {
    over_each(|transport| no_way_out(&transport.with("")));
}
