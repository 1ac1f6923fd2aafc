//! Nothing beneath a mount leads out of the source, however fast a directory and a symbolic link change
//! places beneath.
//!
//! The link points to `../outside`. Beneath, that is a directory with a secret. Through the mount the
//! client's kernel would resolve it above the mount point, where there is nothing: so the server led to the
//! secret what reaches it.

use thrufs_testing::StopAll;
use thrufs_testing::steps::Steps;
use thrufs_tests::compare::{differences, snapshot};
use thrufs_tests::prelude::*;

const SECRET: &str = "the secret outside";

const HARMLESS: &str = "harmless content in";

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
fn fill(dir: &Path, content: &str) {
    fs::create_dir_all(dir.join("sub")).unwrap();
    for name in ["secret", "sub/secret"] {
        fs::write(dir.join(name), content).unwrap();
        let (value, none) = (content.as_bytes(), XattrFlags::empty());
        rustix::fs::setxattr(dir.join(name), "user.content", value, none).unwrap();
    }
    let link = Path::new("leads").join(content);
    symlink(link, dir.join("link")).unwrap();
}

/// Calls of [`Steps`] for everything that takes a path: below DIR, which is now a directory and now a link
/// to the one outside, or of FILE, now a file and now a link to the secret. OWN is the worker's.
const CALLS: &[&str] = &[
    "cat DIR/secret",
    "cat DIR/sub/secret",
    "cat FILE",
    "open DIR/OWN w,creat,excl",
    "file FILE harmless content in",
    "dir DIR/other-OWN",
    "rename DIR/OWN DIR/renamed-OWN",
    "unlink DIR/renamed-OWN",
    "chmod FILE 604",
    "rmdir DIR/other-OWN",
    "link DIR/secret DIR/OWN",
    "unlink DIR/OWN",
    "symlink nowhere DIR/OWN",
    "chown FILE 4001 -",
    "list DIR",
    "list DIR/sub",
    "stat DIR/only-outside",
    "stat DIR/secret",
    "getxattr FILE user.content",
    "getxattr DIR/secret user.content",
    "setxattr DIR/secret user.x x",
    "setxattr FILE user.x x",
    "file DIR/secret harmless content in",
    "truncate FILE 100",
    "chmod DIR/sub/secret 604",
    "chown DIR/sub/secret 4001 -",
    "readlink DIR/link",
    "unlink DIR/OWN",
    "node DIR/OWN fifo 400",
    "unlink DIR/OWN",
];

/// Whether it succeeds. What it returns is of inside.
fn succeeds(steps: &mut Steps, call: &str) -> bool {
    let answer = steps.call(&call.split(' ').collect::<Vec<_>>());
    let found = String::from_utf8_lossy(answer.as_deref().unwrap_or_default());
    let is_outside = found.contains(SECRET) || found.contains("only-outside");
    let is_known = answer.is_ok() && call.contains("only-outside");
    assert!(!is_outside && !is_known, "{call} leads outside: {found}");
    answer.is_ok()
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
    symlink("../outside", source.join("dir-link")).unwrap();
    symlink("../outside/secret", source.join("file-link")).unwrap();
    // Beneath, the links do lead to the secret.
    assert_eq!(
        fs::read_to_string(source.join("dir-link/secret")).unwrap(),
        SECRET
    );
    assert_eq!(
        fs::read_to_string(source.join("file-link")).unwrap(),
        SECRET
    );
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
                let mut steps = Steps::new(mnt.to_owned(), mnt.to_owned());
                let own = format!("own-{worker}");
                for call in CALLS.iter().cycle().skip(7 * worker) {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    // The names change all the time: both are tried.
                    for (dir, file) in [("dir", "file"), ("dir-link", "file-link")] {
                        let call = call.replace("DIR", dir).replace("FILE", file);
                        let is_done = succeeds(&mut steps, &call.replace("OWN", &own));
                        done.fetch_add(u64::from(is_done), Ordering::Relaxed);
                    }
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
