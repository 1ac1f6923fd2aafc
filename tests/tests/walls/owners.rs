//! The kernel above checks a caller by the owner, group and mode that it has cached. Each is changed
//! beneath here, after a stranger has opened what it needs; then the stranger tries what it could do
//! before, through the mount and beneath.

use rustix::fs::{AtFlags, FileType, Gid, IFlags, UTIME_NOW};
use rustix::io::{Errno, Result};
use std::fs::Permissions;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use thrufs_testing::user::{MEMBER, TEAM, User};
use thrufs_tests::prelude::*;
use thrufs_tests::property::timestamps;
use thrufs_tests::relayed::{Queues, Relayed};
use thrufs_tests::transport::Transport;

/// A change through a descriptor, reserved for the owner.
type Change = (&'static str, fn(&File) -> Result<()>);

fn set_times(file: &File, nanoseconds: i64) -> Result<()> {
    rustix::fs::futimens(file, &timestamps(1_000_000, nanoseconds))
}

const CHANGES: &[Change] = &[
    ("mode", |file| {
        rustix::fs::fchmod(file, Mode::from_raw_mode(0o777))
    }),
    ("set-user-id", |file| {
        rustix::fs::fchmod(file, Mode::from_raw_mode(0o4777))
    }),
    ("set-group-id", |file| {
        rustix::fs::fchmod(file, Mode::from_raw_mode(0o2777))
    }),
    ("group", |file| {
        rustix::fs::fchown(file, None, Some(Gid::from_raw(TEAM)))
    }),
    ("ACL", |file| {
        rustix::fs::fsetxattr(
            file,
            acl::NAME,
            &acl::List::ALL.value_with(&[]),
            XattrFlags::empty(),
        )
    }),
    ("times", |file| set_times(file, 5)),
    ("times to now", |file| set_times(file, UTIME_NOW)),
    ("flags", |file| {
        let flags = rustix::fs::ioctl_getflags(file)?;
        rustix::fs::ioctl_setflags(file, flags | IFlags::NODUMP)
    }),
];

/// A program that `MEMBER` made, and holds open for reading.
fn program_of_member(directory: &Path) -> File {
    MEMBER.run(|| {
        let path = directory.join("program");
        let new = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o755)
            .open(&path);
        // Earlier than now by any clock.
        set_times(&new.unwrap(), 1).unwrap();
        File::open(path).unwrap()
    })
}

/// What is protected.
fn state(path: &Path) -> (u32, u32, u32, Vec<i64>, IFlags) {
    let found = fs::metadata(path).unwrap();
    let times = vec![found.mtime(), found.mtime_nsec()];
    let flags = rustix::fs::ioctl_getflags(File::open(path).unwrap()).unwrap();
    (found.mode(), found.uid(), found.gid(), times, flags)
}

type Outcomes = Vec<(&'static str, Result<()>, bool)>;

/// The outcome of each change after `take` beneath, through `directory`.
fn tried(directory: &Path, beneath: &Path, take: fn(&Path)) -> Outcomes {
    let path = beneath.join("program");
    let tried = CHANGES.iter().map(|(name, change)| {
        let file = program_of_member(directory);
        take(&path);
        let before = state(&path);
        let answer = MEMBER.run(|| change(&file)).map_err(|error| match error {
            // Under writeback, setting the current time looks like any other.
            Errno::ACCESS if name.starts_with("times") => Errno::PERM,
            error => error,
        });
        let changed = state(&path) != before;
        fs::remove_file(&path).unwrap();
        (*name, answer, changed)
    });
    tried.collect()
}

/// Each once: the result does not depend on the transport.
fn options_over(transport: Transport) -> &'static [&'static str] {
    match transport {
        Transport::Dev => &["passthrough", "cache=never", "writeback"],
        Transport::Uring => &["cache=always", "nopassthrough"],
    }
}

type Taking = (&'static str, fn(&Path));

const TAKINGS: [Taking; 4] = [
    ("nothing", |_| ()),
    ("owner", |path| chown(path, Some(0), Some(0)).unwrap()),
    ("only the user", |path| {
        chown(path, Some(BOB.uid), None).unwrap();
    }),
    ("mode", |path| {
        fs::set_permissions(path, Permissions::from_mode(0o000)).unwrap();
    }),
];

/// After each of [`TAKINGS`], as beneath, where it is tried the first time.
fn changes_no_more(ground: &Ground, beneath: &mut Vec<Outcomes>, about: &str) {
    let all = Permissions::from_mode(0o777);
    fs::set_permissions(ground.source(), all.clone()).unwrap();
    if beneath.is_empty() {
        let native = ground.outside().join("native");
        fs::create_dir(&native).unwrap();
        fs::set_permissions(&native, all).unwrap();
        *beneath = TAKINGS
            .map(|(_, take)| tried(&native, &native, take))
            .into();
    }
    for ((name, take), beneath) in TAKINGS.iter().zip(beneath) {
        let above = tried(ground.mnt(), ground.source(), *take);
        assert_eq!(above, *beneath, "{name} taken, {about}");
    }
}

#[test]
fn a_former_owner_changes_the_file_no_more() {
    over_each(|transport| {
        let mut beneath = Vec::new();
        for options in options_over(transport) {
            let mounted = Mounted::start_on(Lower::Ext4, &transport.with(options)).unwrap();
            changes_no_more(mounted.ground(), &mut beneath, options);
        }
    });
}

#[test]
fn a_former_owner_in_a_guest_changes_the_file_no_more() {
    skip_if!(must_skip());
    let relayed = Relayed::start_on(Lower::Ext4, "", Queues::USUAL).unwrap();
    changes_no_more(relayed.ground(), &mut Vec::new(), "share");
}

/// The new owner has its rights, and root is never refused.
#[test]
fn a_new_owner_may_change_the_file() {
    over_each(|transport| {
        let mounted = Mounted::start_on(Lower::Ext4, &transport.with("acl")).unwrap();
        let all = Permissions::from_mode(0o777);
        fs::set_permissions(mounted.source(), all).unwrap();
        let path = mounted.mnt().join("program");
        for (name, change) in CHANGES.iter().filter(|(name, _)| *name != "group") {
            let file = program_of_member(mounted.mnt());
            chown(
                mounted.source().join("program"),
                Some(BOB.uid),
                Some(BOB.gid),
            )
            .unwrap();
            // So that the kernel above sees the new owner.
            rustix::fs::fchmod(&file, Mode::from_raw_mode(0o711)).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().uid(), BOB.uid);
            BOB.run(|| change(&file)).unwrap();
            let refused = MEMBER.run(|| change(&file)).unwrap_err();
            let expected = if *name == "times to now" {
                Errno::ACCESS
            } else {
                Errno::PERM
            };
            assert_eq!(refused, expected, "{name}");
            fs::remove_file(&path).unwrap();
        }
    });
}

/// Of a program that runs in its own group.
const IN_ITS_GROUP: u32 = 0o2755;

type Making = (&'static str, fn(&Path) -> Result<()>);

const MAKINGS: [Making; 3] = [
    ("create", |at| {
        let mode = Mode::from_raw_mode(IN_ITS_GROUP);
        rustix::fs::open(at.join("made"), OFlags::CREATE | OFlags::WRONLY, mode).map(drop)
    }),
    ("mknod", |at| {
        let mode = Mode::from_raw_mode(IN_ITS_GROUP);
        rustix::fs::mknodat(CWD, at.join("made"), FileType::RegularFile, mode, 0)
    }),
    ("tmpfile", |at| {
        let mode = Mode::from_raw_mode(IN_ITS_GROUP);
        let file = rustix::fs::open(at, OFlags::TMPFILE | OFlags::RDWR, mode)?;
        let file = format!("/proc/self/fd/{}", file.as_raw_fd());
        rustix::fs::linkat(CWD, file, CWD, at.join("made"), AtFlags::SYMLINK_FOLLOW)
    }),
];

/// In a directory whose group is another since the kernel above asked; its cache stays valid.
fn makes_no_program(ground: &Ground) {
    for (name, make) in MAKINGS {
        for (before, mode) in [(None, 0o777), (Some(MEMBER.gid), 0o2777)] {
            let group = ground.source().join(format!("{name} {mode:o}"));
            let above = ground.mnt().join(group.file_name().unwrap());
            fs::create_dir(&group).unwrap();
            let set = |gid, mode| {
                chown(&group, None, gid).unwrap();
                fs::set_permissions(&group, Permissions::from_mode(mode)).unwrap();
            };
            let mode_of_made = || {
                MEMBER.run(|| make(&above)).unwrap();
                let mode = fs::metadata(group.join("made")).unwrap().mode();
                fs::remove_file(above.join("made")).unwrap();
                mode & 0o7777
            };
            set(before, mode);
            assert_eq!(mode_of_made(), IN_ITS_GROUP, "{name} in the own group");
            fs::metadata(&above).unwrap();
            set(Some(BOB.gid), 0o2777);
            assert_eq!(mode_of_made(), 0o755, "{name}, before {mode:o}");
        }
    }
}

#[test]
fn a_user_outside_the_group_makes_no_set_group_id_program() {
    over_each(|transport| {
        let mounted = Mounted::start(&transport.with("cache=always"));
        makes_no_program(mounted.ground());
    });
}

#[test]
fn a_user_of_a_guest_outside_the_group_makes_no_set_group_id_program() {
    skip_if!(must_skip());
    let relayed = Relayed::start_on(Lower::Default, "cache=always", Queues::USUAL).unwrap();
    makes_no_program(relayed.ground());
}

/// [`MEMBER`] without further groups.
const MEMBER_ALONE: User = User {
    groups: &[],
    ..MEMBER
};

/// A worker has none of its starter's groups, which would let any caller set that bit.
#[test]
fn groups_of_the_starter_give_nothing() {
    over_each(|transport| {
        let in_thread = || {
            rustix::thread::set_thread_groups(&[Gid::from_raw(TEAM)]).unwrap();
            let mounted = Mounted::start(&transport.with(""));
            let all = Permissions::from_mode(0o777);
            fs::set_permissions(mounted.source(), all).unwrap();
            let beneath = mounted.source().join("program");
            let file = program_of_member(mounted.mnt());
            chown(&beneath, None, Some(TEAM)).unwrap();
            let set =
                || MEMBER_ALONE.run(|| rustix::fs::fchmod(&file, Mode::from_raw_mode(0o2755)));
            set().unwrap();
            assert_eq!(fs::metadata(&beneath).unwrap().mode() & 0o7777, 0o755);
        };
        thread::scope(|scope| scope.spawn(in_thread).join().unwrap());
    });
}

/// Natively the kernel looks at the mode, with `protected_hardlinks`.
#[test]
fn a_file_that_became_set_user_id_gets_no_link() {
    over_each(|transport| {
        let mounted = Mounted::start(&transport.with("cache=always"));
        let native = mounted.outside().join("native");
        fs::create_dir(&native).unwrap();
        let linked = |directory: &Path, beneath: &Path| {
            fs::set_permissions(beneath, Permissions::from_mode(0o777)).unwrap();
            fs::write(beneath.join("file"), "").unwrap();
            let set = |mode| {
                let mode = Permissions::from_mode(mode);
                fs::set_permissions(beneath.join("file"), mode).unwrap();
            };
            let link = |name| {
                let link = || fs::hard_link(directory.join("file"), directory.join(name));
                BOB.run(link).map_err(|error| error.raw_os_error())
            };
            set(0o666);
            let before = link("before");
            set(0o667);
            let other = link("other");
            set(0o4666);
            (before, other, link("set-id"))
        };
        let above = linked(mounted.mnt(), mounted.source());
        assert_eq!(above, linked(&native, &native));
    });
}
