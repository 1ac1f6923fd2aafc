//! `follow=auto` by a kernel: names and attributes that are valid for an hour change with what is beneath. What
//! is mounted and unmounted there gives no event.

use rustix::fs::{Stat, chmod, fstat, renameat_with, stat};
use rustix::mount::unmount;
use std::io::ErrorKind;
use std::mem;
use std::os::unix::process::CommandExt;
use thrufs_sys::handle::{self, FileHandleBuf};
use thrufs_tests::machine::users_of_mount;
use thrufs_tests::mounted::on_each_path;
use thrufs_tests::prelude::*;

/// Without notifications, everything here would stay as it is.
pub const FOLLOWED: &str = "follow=auto,entry_timeout=3600,attr_timeout=3600,negative_timeout=3600";

/// With a mark on the file system, and with one on each directory; and where nobody asks at an open.
pub fn with_each_mark(test: impl Fn(&Mounted)) {
    let directories = FOLLOWED.replace("auto", "directories");
    let opens = format!("opens=local,{FOLLOWED}");
    on_each(
        Lower::Tmpfs,
        &[FOLLOWED, &directories, &opens],
        |mounted, _| {
            test(mounted);
        },
    );
}

/// The names in a directory, which are looked up. None while the kernel has a directory of a mount that is gone.
pub fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let looked_up = entries.inspect(|entry| drop(entry.metadata()));
    let mut names: Vec<String> = looked_up
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort_unstable();
    names
}

/// Waits until a directory has one entry, of this name: for an hour, if nothing told the kernel.
#[track_caller]
fn shows(directory: &Path, name: &str) {
    wait_until(name, || names(directory) == [name]);
}

/// Mounts a tmpfs with an empty file of this name.
fn tmpfs<'a>(at: &'a Path, name: &str) -> Detach<&'a Path> {
    let mounted = Detach::tmpfs(at);
    fs::write(at.join(name), "").unwrap();
    mounted
}

/// As soon as nothing above uses it.
#[track_caller]
pub fn unmount_idle(mounted: Detach<&Path>) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while let Err(error) = unmount(mounted.0, UnmountFlags::empty()) {
        let users = || users_of_mount(mounted.0);
        assert!(Instant::now() < deadline, "{error}: {:#?}", users());
        thread::sleep(Duration::from_millis(5));
    }
    // Its place may be another's next.
    mem::forget(mounted);
}

/// Whether a process has something open of the file system that is mounted here: in another mount namespace,
/// the mount has another number.
fn is_held(process: u32, on: &Path) -> bool {
    let device = stat(on).unwrap().st_dev;
    let open = fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    open.flatten()
        .any(|file| stat(file.path()).is_ok_and(|it| it.st_dev == device))
}

/// Changes in an empty directory show at once.
fn show_in(mounted: &Mounted, directory: &str) {
    let [beneath, above] = [mounted.source(), mounted.mnt()].map(|it| it.join(directory));
    assert!(names(&above).is_empty());
    assert!(fs::metadata(above.join("file")).is_err());
    fs::write(beneath.join("file"), "old").unwrap();
    shows(&above, "file");
    let read = || fs::read_to_string(above.join("file")).unwrap();
    assert_eq!(read(), "old");
    fs::write(beneath.join("file"), "longer").unwrap();
    wait_until("content", || read() == "longer");
    fs::rename(beneath.join("file"), beneath.join("renamed")).unwrap();
    shows(&above, "renamed");
    // One notification after the other.
    wait_until("gone", || fs::metadata(above.join("file")).is_err());
    fs::remove_file(beneath.join("renamed")).unwrap();
}

/// With a mark on the file system, with one on each directory, and where there is room for one mark alone.
#[test]
fn what_changes_beneath_shows_at_once() {
    for (marks, lowers) in [
        ("auto", &[Lower::Tmpfs][..]),
        ("directories", &[Lower::Tmpfs]),
        ("directories,opens=local", &[Lower::Tmpfs, Lower::Overlay]),
        ("auto,opens=local", &[Lower::Ext4]),
        (
            "filesystem,follow_marks=1",
            &[Lower::Tmpfs, Lower::Ext4, Lower::Xfs],
        ),
    ] {
        for lower in lowers {
            on_each(*lower, &[&FOLLOWED.replace("auto", marks)], |mounted, _| {
                for directory in ["dir", "dir/dir", "other"] {
                    fs::create_dir(mounted.source().join(directory)).unwrap();
                    show_in(mounted, directory);
                }
            });
        }
    }
}

/// A group of fanotify(7) has marks in one subvolume alone.
#[test]
fn what_changes_in_subvolumes_shows_at_once() {
    let options = ["directories", "filesystem"].map(|marks| FOLLOWED.replace("auto", marks));
    on_each(
        Lower::Btrfs,
        &options.each_ref().map(|it| &**it),
        |mounted, _| {
            for subvolume in ["one", "one/within", "two"] {
                let mut btrfs = Command::new("btrfs");
                btrfs.args(["-q", "subvolume", "create"]);
                let made = btrfs.arg(mounted.source().join(subvolume)).status();
                assert!(made.unwrap().success());
                show_in(mounted, subvolume);
            }
        },
    );
}

pub fn bind<'a>(from: &Path, at: &'a Path) -> Detach<&'a Path> {
    rustix::mount::mount_bind(from, at).unwrap();
    Detach(at)
}

/// The kernel above has an inode for each of the two mounts, and knows what it changes of the one.
#[test]
fn what_is_changed_above_shows_at_other_mounts_of_the_file_system() {
    on_each_path(Lower::Tmpfs, FOLLOWED, |mounted| {
        let beneath = ["directory", "bound"].map(|name| mounted.source().join(name));
        let [directory, bound] = ["directory", "bound"].map(|name| mounted.mnt().join(name));
        beneath.iter().for_each(|it| fs::create_dir(it).unwrap());
        fs::write(beneath[0].join("file"), "old").unwrap();
        let bind = bind(&beneath[0], &beneath[1]);
        shows(&bound, "file");
        let mut file = OpenOptions::new();
        let mut file = file.append(true).open(directory.join("file")).unwrap();
        let length = || stat(bound.join("file")).unwrap().st_size;
        mounted.settle();
        assert_eq!(length(), 3);
        file.write_all(b" and more").unwrap();
        wait_until("length", || length() == 12);
        drop(file);
        fs::rename(directory.join("file"), directory.join("renamed")).unwrap();
        shows(&bound, "renamed");
        unmount_idle(bind);
    });
}

/// The mark of the directory that has the name tells nothing of it.
#[test]
fn changes_of_a_file_that_is_mounted_on_a_name_show() {
    on_each(Lower::Tmpfs, &["follow=auto"], |mounted, _| {
        let file = mounted.outside().join("file");
        let name = mounted.source().join("name");
        fs::write(&file, "old").unwrap();
        fs::write(&name, "").unwrap();
        let bind = bind(&file, &name);
        let above = mounted.mnt().join("name");
        let length = || stat(&above).unwrap().st_size;
        wait_until("mounted", || length() == 3);
        // The table of mounts was read.
        mounted.settle();
        assert_eq!((length(), length()), (3, 3));
        fs::write(&file, "longer").unwrap();
        wait_until("length", || length() == 6);
        unmount_idle(bind);
    });
}

#[test]
fn what_is_mounted_beneath_shows_and_what_is_unmounted_goes() {
    with_each_mark(|mounted| {
        for name in ["on", "dir/on", "dir/with a \\ space/on"] {
            let (beneath, above) = (mounted.source().join(name), mounted.mnt().join(name));
            fs::create_dir_all(&beneath).unwrap();
            fs::write(beneath.join("covered"), "").unwrap();
            for _ in 0..3 {
                assert_eq!(names(&above), ["covered"]);
                let on = tmpfs(&beneath, "first");
                shows(&above, "first");
                // Changes on it are followed, too.
                assert!(fs::metadata(above.join("second")).is_err());
                fs::rename(beneath.join("first"), beneath.join("second")).unwrap();
                shows(&above, "second");
                unmount_idle(on);
                shows(&above, "covered");
            }
        }
    });
}

/// A thread that got ESTALE, and looked names up once more, keeps what it found last: the mount goes all the same
/// when the kernel above has forgotten its files, before anything of it was idle for long.
#[test]
fn a_mount_whose_files_were_forgotten_after_a_retry_can_be_unmounted() {
    on_each(
        Lower::Tmpfs,
        &["follow=no,entry_timeout=3600,attr_timeout=0"],
        |mounted, _| {
            let (beneath, above) = (mounted.source().join("on"), mounted.mnt().join("on"));
            fs::create_dir(&beneath).unwrap();
            let first = tmpfs(&beneath, "file");
            stat(above.join("file")).unwrap();
            unmount_idle(first);
            let second = tmpfs(&beneath, "file");
            // The name that the kernel keeps leads to the first mount.
            stat(above.join("file")).unwrap();
            shrink_dcache(mounted.mnt()).unwrap();
            unmount_idle(second);
        },
    );
}

/// The kernel uses their numbers again.
#[test]
fn a_mount_that_replaces_another_at_once_shows() {
    with_each_mark(|mounted| {
        let (beneath, above) = (mounted.source().join("on"), mounted.mnt().join("on"));
        fs::create_dir(&beneath).unwrap();
        let mut on = tmpfs(&beneath, "0");
        shows(&above, "0");
        for round in 1..10 {
            unmount_idle(on);
            on = tmpfs(&beneath, &round.to_string());
            shows(&above, &round.to_string());
        }
        // One on another, and in another.
        let over = tmpfs(&beneath, "over");
        shows(&above, "over");
        unmount_idle(over);
        shows(&above, "9");
        fs::create_dir(beneath.join("in")).unwrap();
        fs::remove_file(beneath.join("9")).unwrap();
        shows(&above, "in");
        assert!(names(&above.join("in")).is_empty());
        let inside = beneath.join("in");
        let inner = tmpfs(&inside, "inner");
        shows(&above.join("in"), "inner");
        drop((inner, on));
    });
}

/// Mounts file systems in file systems, looks at them, and unmounts all, one after another, as `umount -R` does.
/// Returns whether one was held.
fn unmount_at_a_stroke(mounted: &Mounted) -> Result<(), String> {
    let place = |index: usize| mounted.source().join(format!("on-{index}"));
    let outer: Vec<_> = (0..8).map(place).collect();
    let inner: Vec<_> = outer.iter().map(|on| on.join("in")).collect();
    let mut mounts = Vec::new();
    for (outer, inner) in outer.iter().zip(&inner) {
        fs::create_dir_all(outer).unwrap();
        mounts.push(Detach::tmpfs(outer.as_path()));
        fs::create_dir(inner).unwrap();
        mounts.push(tmpfs(inner, "file"));
    }
    for index in 0..8 {
        shows(&mounted.mnt().join(format!("on-{index}/in")), "file");
    }
    mounts.drain(..2).rev().for_each(unmount_idle);
    // What was just unmounted is looked at.
    mounted.settle();
    let left = outer.iter().zip(&inner).skip(1);
    for on in left.flat_map(|(outer, inner)| [inner, outer]) {
        wait_until("idle", || !is_held(mounted.worker_pid(), on));
    }
    for (outer, inner) in outer.iter().zip(&inner).skip(1) {
        for on in [inner, outer] {
            let unmounted = unmount(on, UnmountFlags::empty());
            unmounted.map_err(|error| format!("{}: {error}", on.display()))?;
            // The time of umount(8) between two of them.
            thread::sleep(Duration::from_micros(100));
        }
    }
    Ok(())
}

/// Following holds none of them while they go. Somebody else's mount gives a look at them meanwhile, so that one of
/// some strokes has to go through.
#[test]
fn mounts_in_mounts_can_be_unmounted_at_a_stroke() {
    with_each_mark(|mounted| {
        let mut held = Vec::new();
        while let Err(error) = unmount_at_a_stroke(mounted) {
            held.push(error);
            assert!(held.len() < 10, "{held:#?}");
        }
        for index in 0..8 {
            let above = mounted.mnt().join(format!("on-{index}"));
            wait_until("covered", || names(&above).is_empty());
        }
    });
}

/// Its mark comes with the second question. Until then no event reports what is in it.
#[test]
fn changes_in_a_directory_that_was_only_looked_up_show() {
    on_each(Lower::Tmpfs, &["follow=auto"], |mounted, _| {
        let paths = [mounted.source(), mounted.mnt()].map(|root| root.join("directory"));
        fs::create_dir(&paths[0]).unwrap();
        mounted.settle();
        // Not by statx(2) with the time of birth, for which the kernel always asks.
        stat(&paths[1]).unwrap();
        fs::write(paths[0].join("file"), "").unwrap();
        mounted.settle();
        let [beneath, above] = paths.map(|path| stat(path).unwrap());
        let shown = |stat: &Stat| (stat.st_size, stat.st_mtime, stat.st_mtime_nsec);
        assert_eq!(shown(&above), shown(&beneath));
    });
}

/// The mark of the directory that it was in tells nothing of it any more.
#[test]
fn changes_of_an_open_file_show_when_it_was_moved_to_where_nobody_looks() {
    on_each(
        Lower::Tmpfs,
        &[&FOLLOWED.replace("auto", "directories")],
        |mounted, _| {
            let [seen, hidden] = ["seen", "hidden"].map(|name| mounted.source().join(name));
            fs::create_dir(&seen).unwrap();
            fs::create_dir(&hidden).unwrap();
            fs::write(seen.join("file"), "").unwrap();
            let file = File::open(mounted.mnt().join("seen/file")).unwrap();
            let mode = || fstat(&file).unwrap().st_mode & 0o777;
            assert_eq!(mode(), 0o644);
            fs::rename(seen.join("file"), hidden.join("file")).unwrap();
            mounted.settle();
            // From now on, it has a mark of its own.
            assert_eq!(mode(), 0o644);
            chmod(hidden.join("file"), 0o604.into()).unwrap();
            mounted.settle();
            assert_eq!(mode(), 0o604);
        },
    );
}

/// Written by a name in a directory that nobody has looked at, which is gone by then: there is no event.
#[test]
fn an_open_shows_what_no_event_reported() {
    on_each_path(Lower::Tmpfs, "follow=directories", |mounted| {
        let hidden = mounted.source().join("hidden");
        fs::create_dir(&hidden).unwrap();
        let [beneath, above] = [mounted.source(), mounted.mnt()].map(|it| it.join("file"));
        fs::write(&beneath, "content").unwrap();
        assert_eq!(fs::read_to_string(&above).unwrap(), "content");
        let stray = hidden.join("link");
        fs::hard_link(&beneath, &stray).unwrap();
        let mut writer = OpenOptions::new().append(true).open(&stray).unwrap();
        fs::remove_file(&stray).unwrap();
        mounted.settle();
        fs::metadata(&above).unwrap();
        writer.write_all(b" and more").unwrap();
        mounted.settle();
        let mut file = File::open(&above).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 16);
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "content and more");
    });
}

/// A directory gets no event about a file whose name is not in memory when it is opened by its handle.
#[test]
fn changes_by_file_handle_show() {
    let options = ["follow=auto", "follow=auto,opens=local"];
    on_each(Lower::Ext4, &options, |mounted, _| {
        let [beneath, above] = [mounted.source(), mounted.mnt()].map(|it| it.join("file"));
        fs::write(&beneath, "old").unwrap();
        mounted.settle();
        assert_eq!(stat(&above).unwrap().st_size, 3);
        let source = File::open(mounted.source()).unwrap();
        let mut file = FileHandleBuf::new();
        handle::name_to_handle(&source, c"file", 0, &mut file).unwrap();
        // Names of files that are not in use leave memory.
        shrink_dcache(mounted.ground().lower()).unwrap();
        let file = handle::open_by_handle(source.as_fd(), &file, libc::O_RDWR).unwrap();
        let file = File::from(file);
        file.write_all_at(b"by handle", 0).unwrap();
        file.set_permissions(PermissionsExt::from_mode(0o604))
            .unwrap();
        mounted.settle();
        let now = stat(&above).unwrap();
        assert_eq!((now.st_size, now.st_mode & 0o777), (9, 0o604));
    });
}

/// By a name in a directory that nobody has looked at, and by a descriptor of it: there is no event.
#[test]
fn an_open_is_checked_by_what_no_event_reported() {
    const USER: u32 = 1000;
    type Taken = fn(&Path, &File);
    let acl = acl::List {
        group: 0,
        others: 0,
        mask: Some(6),
        user: Some((USER, 6)),
        other_group: None,
    };
    let taken: [(&str, Taken); 4] = [
        ("mode", |stray, _| chmod(stray, 0.into()).unwrap()),
        ("mode by a descriptor", |_, file| {
            file.set_permissions(PermissionsExt::from_mode(0o0))
                .unwrap();
        }),
        ("owner", |stray, _| {
            chmod(stray, 0o640.into()).unwrap();
            chown(stray, Some(0), Some(0)).unwrap();
        }),
        ("ACL", |stray, _| {
            rustix::fs::removexattr(stray, acl::NAME).unwrap();
            chmod(stray, 0o660.into()).unwrap();
        }),
    ];
    on_each_path(
        Lower::Tmpfs,
        "follow=directories,allow_other,acl",
        |mounted| {
            let hidden = mounted.source().join("hidden");
            fs::create_dir(&hidden).unwrap();
            for (what, take) in taken {
                let (beneath, above) = (mounted.source().join(what), mounted.mnt().join(what));
                fs::write(&beneath, what).unwrap();
                chown(&beneath, Some(USER), Some(USER)).unwrap();
                if what == "ACL" {
                    chown(&beneath, Some(0), Some(0)).unwrap();
                    acl.set(&beneath);
                }
                let reads = || {
                    let mut cat = Command::new("cat");
                    let cat = cat.arg(&above).uid(USER).gid(USER).output().unwrap();
                    let text = String::from_utf8(cat.stdout).unwrap();
                    cat.status.success().then_some(text)
                };
                assert_eq!(reads().as_deref(), Some(what));
                mounted.settle();
                let stray = hidden.join(what);
                fs::hard_link(&beneath, &stray).unwrap();
                mounted.settle();
                let file = File::open(&stray).unwrap();
                assert_eq!(reads().as_deref(), Some(what));
                take(&stray, &file);
                fs::write(&stray, "a secret").unwrap();
                assert_eq!(reads(), None, "{what}");
            }
        },
    );
}

type Replaced = fn(&Path);

/// What happens to `directory/file`, beside which `next/file` is prepared.
const REPLACED: [(&str, Replaced); 6] = [
    ("replaced", |place| {
        fs::rename(place.join("next/file"), place.join("directory/file")).unwrap();
    }),
    ("replaced, with another name", |place| {
        fs::hard_link(place.join("directory/file"), place.join("kept")).unwrap();
        fs::rename(place.join("next/file"), place.join("directory/file")).unwrap();
    }),
    ("made anew", |place| {
        fs::remove_file(place.join("directory/file")).unwrap();
        fs::write(place.join("directory/file"), "new").unwrap();
    }),
    ("moved away", |place| {
        fs::rename(place.join("directory/file"), place.join("kept")).unwrap();
        fs::rename(place.join("next/file"), place.join("directory/file")).unwrap();
    }),
    ("directories exchanged", |place| {
        let (one, other) = (place.join("directory"), place.join("next"));
        renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
    }),
    ("symbolic link replaced", |place| {
        fs::rename(place.join("next-link"), place.join("link")).unwrap();
    }),
];

/// The kernel above has the name as it was, and is told a moment later.
#[test]
fn an_open_just_after_a_name_changed_beneath_gets_the_file_of_now() {
    on_each_path(Lower::Tmpfs, "follow=auto", |mounted| {
        for ((what, replace), round) in REPLACED.iter().flat_map(|it| (0..5).map(move |n| (it, n)))
        {
            let name = format!("{what}-{round}");
            let (beneath, above) = (mounted.source().join(&name), mounted.mnt().join(&name));
            for (directory, content) in [("directory", "old"), ("next", "new")] {
                fs::create_dir_all(beneath.join(directory)).unwrap();
                fs::write(beneath.join(directory).join("file"), content).unwrap();
            }
            symlink("directory", beneath.join("link")).unwrap();
            symlink("next", beneath.join("next-link")).unwrap();
            let read = || {
                let ways = ["directory", "link"].map(|way| above.join(way).join("file"));
                let way = usize::from(what.starts_with("symbolic"));
                fs::read_to_string(&ways[way]).unwrap()
            };
            mounted.settle();
            assert_eq!(read(), "old", "{what}");
            mounted.settle();
            replace(&beneath);
            assert_eq!(read(), "new", "{what}");
        }
    });
}

/// By another name, in a directory that nobody has looked at: there is no event. Root may execute what anybody may.
#[test]
fn root_executes_nothing_that_nobody_may() {
    on_each_path(Lower::Tmpfs, "follow=directories", |mounted| {
        let hidden = mounted.source().join("hidden");
        fs::create_dir(&hidden).unwrap();
        let (beneath, stray) = (mounted.source().join("true"), hidden.join("true"));
        fs::copy("/bin/true", &beneath).unwrap();
        let runs = || Command::new(mounted.mnt().join("true")).status();
        assert!(runs().unwrap().success());
        mounted.settle();
        fs::hard_link(&beneath, &stray).unwrap();
        mounted.settle();
        assert!(runs().unwrap().success());
        chmod(&stray, 0o644.into()).unwrap();
        let refused = runs().map_err(|error| error.kind());
        assert_eq!(refused.unwrap_err(), ErrorKind::PermissionDenied);
    });
}

/// What was read ahead for a listing is shown to no other: not to those that begin after a change, by the same
/// thread or another, whoever else lists the directory at the same time.
#[test]
fn a_listing_that_is_left_unfinished_is_shown_to_nobody_else() {
    const NAMES: usize = 2000;
    on_each(
        Lower::Tmpfs,
        &["follow=auto", "follow=no", "cache=always"],
        |mounted, options| {
            for (looks_up, is_changed_above) in
                [(false, false), (false, true), (true, false), (true, true)]
            {
                if !is_changed_above && options == "cache=always" {
                    continue;
                }
                let name = format!("{looks_up}-{is_changed_above}");
                let (beneath, above) = (mounted.source().join(&name), mounted.mnt().join(&name));
                fs::create_dir(&beneath).unwrap();
                for number in 0..NAMES {
                    fs::write(beneath.join(format!("some-name-{number:04}")), "").unwrap();
                }
                // In what the server has read, but has not returned.
                let order = fs::read_dir(&beneath).unwrap();
                let order: Vec<_> = order.map(|entry| entry.unwrap().file_name()).collect();
                let removed = order[300..800].iter().step_by(2);
                let look = |entry: fs::DirEntry| {
                    if looks_up {
                        drop(entry.metadata());
                    }
                };
                let begin = || {
                    let mut listing = fs::read_dir(&above).unwrap();
                    listing.by_ref().take(3).for_each(|it| look(it.unwrap()));
                    listing
                };
                // One that goes on later, and others that do not.
                let goes_on = begin();
                drop(begin());
                thread::scope(|scope| drop(scope.spawn(|| drop(begin()))));
                let changed = if is_changed_above { &above } else { &beneath };
                removed.for_each(|name| fs::remove_file(changed.join(name)).unwrap());
                if options == "follow=auto" {
                    mounted.settle();
                }
                let expected = names(&beneath);
                let shown = || {
                    let entries = fs::read_dir(&above).unwrap();
                    let names = entries.map(|it| it.unwrap().file_name().into_string().unwrap());
                    let mut shown: Vec<_> = names.collect();
                    shown.sort_unstable();
                    shown
                };
                assert!(shown() == expected, "{name}, the same thread");
                let other = thread::scope(|scope| scope.spawn(shown).join().unwrap());
                assert!(other == expected, "{name}, another thread");
                goes_on.for_each(|entry| look(entry.unwrap()));
                assert!(shown() == expected, "{name}, after one that went on");
            }
        },
    );
}

/// One of the numbers that `thrufs ctl MOUNT statistics` prints.
pub fn figure(mounted: &Mounted, name: &str) -> u64 {
    let statistics = mounted.ctl("statistics");
    let mut figures = statistics.split_whitespace();
    let found = figures.find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    found.unwrap().parse().unwrap()
}

/// Events about what the kernel writes itself have the process ids of its callers.
#[test]
fn what_is_written_above_is_no_change_beneath() {
    on_each_path(Lower::Tmpfs, "follow=auto", |mounted| {
        let [beneath, above] = [mounted.source(), mounted.mnt()].map(|it| it.join("file"));
        let events = || figure(mounted, "follow_events");
        fs::write(&above, "content").unwrap();
        mounted.settle();
        let before = events();
        let append = OpenOptions::new().append(true).clone();
        let mut writer = append.open(&above).unwrap();
        writer.write_all(b" above").unwrap();
        mounted.settle();
        assert_eq!(events(), before);
        assert_eq!(stat(&above).unwrap().st_size, 13);
        let mut other = append.open(&beneath).unwrap();
        other.write_all(b" and beneath").unwrap();
        mounted.settle();
        assert!(events() > before);
        assert_eq!(stat(&above).unwrap().st_size, 25);
    });
}
