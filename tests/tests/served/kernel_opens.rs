//! `opens=local`: the first OPEN is answered with ENOSYS, and the kernel above opens files by itself. Requests about
//! them come without a handle.

use super::following::FOLLOWED;
use super::handles::by_file;
use super::{ROOT, Served, config, connect, is_root, serve, serve_in, set, set_mode};
use rustix::fs::IFlags;
use thrufs_abi::layout::{FallocateIn, WriteIn};
use thrufs_abi::{InitFlags, LockOwner, SetattrValid, WriteFlags};
use thrufs_hostdir::{CacheMode, Config, FileHandles, HostDir, IdMap, Locks, OpenMode, Resources};
use thrufs_testing::{Client, InProcess, OFFERED_ON_DEV_FUSE, OFFERED_WITH_WINDOW};
use thrufs_tests::prelude::*;

type Change = fn(&mut Config);

/// Local opens, for root to write, and without what an in-process client does not know.
fn local(change: impl FnOnce(&mut Config)) -> Config {
    config(|it| {
        it.opens = OpenMode::Local;
        it.cache = CacheMode::Always;
        change(it);
    })
}

/// The names of files in a served directory that this process has open, but for their paths alone.
fn open_here(served: &Served) -> Vec<String> {
    let place = served.directory.path().canonicalize().unwrap();
    let mut open = Vec::new();
    for entry in fs::read_dir("/proc/self/fd").unwrap().flatten() {
        let info = entry.path().to_str().unwrap().replace("/fd/", "/fdinfo/");
        let info = fs::read_to_string(info).unwrap_or_default();
        let octal = info.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = i32::from_str_radix(octal.unwrap_or("0").trim(), 8).unwrap();
        let target = fs::read_link(entry.path()).unwrap_or_default();
        if target.parent() == Some(&place) && flags & libc::O_PATH == 0 {
            open.push(target.to_str().unwrap().to_owned());
        }
    }
    open
}

#[test]
fn requests_without_a_handle_open_the_file_for_themselves() {
    skip_if!(!is_root());
    let served = serve(local(|_| ()));
    let (root, file) = (served.root(), served.file("file", b"content"));
    assert_eq!(root.open(file, libc::O_RDWR).map(drop), Err(Errno::ENOSYS));
    for (operation, answer) in by_file(&served, file, 0) {
        let expected = match operation {
            "flush" => Err(Errno::ENOSYS),
            // They would end with the request.
            "getlk" | "setlk" | "setlkw" | "flock" => Err(Errno::EBADF),
            "ioctl" if answer == Err(Errno::ENOTTY) => answer,
            _ => Ok(()),
        };
        assert_eq!(answer, expected, "{operation}");
        assert_eq!(open_here(&served), [""; 0], "{operation}");
    }
    // Nothing of it ends with a RELEASE.
    root.release(file, 0).unwrap();
    assert_eq!(root.read(file, 0, 0, 7).unwrap(), b"Xontent");
    let (made, opened) = root.create(ROOT, b"new", libc::O_RDWR, 0o600).unwrap();
    assert_eq!((opened.fh, open_here(&served).len()), (0, 0));
    root.write(NodeId(made.nodeid), 0, 0, b"new", 0).unwrap();
    assert_eq!(fs::read(served.path("new")).unwrap(), b"new");
    // CREATE opens nothing that another has made, whatever its flags.
    for (flags, error) in [(0, Errno::ESTALE), (libc::O_EXCL, Errno::EEXIST)] {
        let again = root.create(ROOT, b"new", libc::O_RDWR | flags, 0o600);
        assert_eq!(again.map(drop), Err(error));
    }
    assert_eq!(served.statistics().open_files, 0);
    assert!(served.statistics().kernel_opens_files);
}

#[test]
fn what_is_no_regular_file_is_not_opened_without_a_handle() {
    skip_if!(!is_root());
    let served = serve(local(|_| ()));
    let root = served.root();
    fs::create_dir(served.path("dir")).unwrap();
    symlink("dir", served.path("link")).unwrap();
    root.mknod(ROOT, b"fifo", libc::S_IFIFO | 0o600, 0).unwrap();
    for (name, error) in [
        ("dir", Errno::EISDIR),
        ("fifo", Errno::ENXIO),
        ("link", Errno::ENXIO),
    ] {
        let node = root.walk(name).unwrap();
        assert_eq!(
            root.open(node, libc::O_RDONLY).map(drop),
            Err(error),
            "{name}"
        );
        for (operation, answer) in by_file(&served, node, 0) {
            // A directory answers it itself.
            let is_directorys = name == "dir" && operation == "ioctl";
            assert!(answer.is_err() || is_directorys, "{name}: {operation}");
        }
    }
    let read_only = connect(served.directory.path(), local(|it| it.read_only = true));
    let root = read_only.root();
    served.write("file", b"content");
    let file = root.walk("file").unwrap();
    assert_eq!(root.open(file, libc::O_RDWR).map(drop), Err(Errno::EROFS));
    assert_eq!(root.write(file, 0, 0, b"X", 0), Err(Errno::EROFS));
    assert_eq!(root.read(file, 0, 0, 7).unwrap(), b"content");
}

/// Those of a kernel that was not told to open files by itself.
#[test]
fn requests_without_a_handle_are_refused_in_other_sessions() {
    let served = serve(config(|it| it.opens = OpenMode::Server));
    let file = served.file("file", b"content");
    for (operation, answer) in by_file(&served, file, 0) {
        assert_eq!(answer, Err(Errno::EBADF), "{operation}");
    }
    let old = HostDir::open(served.directory.path(), local(|_| ()), Resources::default());
    let offered = OFFERED_ON_DEV_FUSE.difference(InitFlags::NO_OPEN_SUPPORT);
    let old = Client::connect_offering(Arc::new(old.unwrap()), 45, offered).unwrap();
    let file = old.root().walk("file").unwrap();
    assert_eq!(old.root().read(file, 0, 0, 7), Err(Errno::EBADF));
    let fh = old.root().open(file, libc::O_RDONLY).unwrap().fh;
    assert_eq!(old.root().flush(file, fh, LockOwner(1)), Ok(()));
}

#[test]
fn auto_is_local_where_nothing_is_lost_by_it() {
    let read_only = |it: &mut Config| {
        it.read_only = true;
        it.cache = CacheMode::Always;
    };
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("file"), "").unwrap();
    let is_local = |change: Change, offered: InitFlags| {
        let mut config = Config::default();
        read_only(&mut config);
        change(&mut config);
        let host = HostDir::open(place.path(), config, Resources::default()).unwrap();
        let client: Client<InProcess<HostDir>> =
            Client::connect_offering(Arc::new(host), 45, offered).unwrap();
        let file = client.root().walk("file").unwrap();
        let opened = client.root().open(file, libc::O_RDONLY);
        assert!(matches!(opened, Ok(_) | Err(Errno::ENOSYS)));
        let atomically = client.agreed().contains(InitFlags::ATOMIC_O_TRUNC);
        assert_eq!(atomically, opened.is_ok(), "an O_TRUNC would be lost");
        opened.is_err()
    };
    let cases: [(&str, bool, Change); 9] = [
        ("read-only", true, |_| ()),
        ("a share", true, |it| {
            it.callers_are_local = false;
            it.passthrough = false;
        }),
        ("written", false, |it| it.read_only = false),
        ("asked about", false, |it| it.opens = OpenMode::Server),
        ("not kept", false, |it| it.cache = CacheMode::Metadata),
        ("not followed", false, |it| {
            it.cache = CacheMode::Auto;
            it.callers_are_local = false;
        }),
        ("shared locks", false, |it| it.locks = Locks::Shared),
        ("unchecked", false, |it| {
            it.default_permissions = false;
            it.acl = false;
        }),
        ("of another kind", true, |it| it.uid_map = IdMap::Squash(5)),
    ];
    for (what, expected, change) in cases {
        let expected = expected && (is_root() || !what.starts_with("of another"));
        assert_eq!(is_local(change, OFFERED_ON_DEV_FUSE), expected, "{what}");
    }
    assert!(!is_local(|_| (), OFFERED_WITH_WINDOW), "it can map them");
    if is_root() {
        let with_passthrough = OFFERED_ON_DEV_FUSE | InitFlags::PASSTHROUGH;
        assert!(!is_local(|_| (), with_passthrough));
        assert!(is_local(|it| it.passthrough = false, with_passthrough));
    }
}

#[test]
fn what_local_opens_do_not_go_with_is_refused_with_a_reason() {
    let place = tempfile::tempdir().unwrap();
    let refused = |change: Change, resources: Resources| {
        let opened = HostDir::open(place.path(), local(change), resources);
        opened.err().map(|error| error.to_string())
    };
    let cases: [(Change, &str); 7] = [
        (|it| it.gid_map = IdMap::Squash(5), "mapped ids"),
        (|it| it.cache = CacheMode::Never, "cache=always"),
        (|it| it.cache = CacheMode::Metadata, "cache=always"),
        (
            |it| {
                it.cache = CacheMode::Auto;
                it.callers_are_local = false;
                it.read_only = true;
            },
            "followed",
        ),
        (|it| it.locks = Locks::Shared, "locks=local"),
        (|it| it.writeback = true, "writeback"),
        (|it| it.callers_are_local = false, "ro on a share"),
    ];
    for (change, part) in cases {
        let why = refused(change, Resources::default()).unwrap();
        assert!(why.contains("opens=local") && why.contains(part), "{why}");
    }
    let unchecked = |it: &mut Config| {
        it.default_permissions = false;
        it.acl = false;
    };
    let why = refused(unchecked, Resources::default()).unwrap();
    assert!(why.contains("default_permissions"), "{why}");
    let why = refused(|_| (), super::rules::with("")).unwrap();
    assert!(why.contains("policy"), "{why}");
    skip_if!(!is_root());
    assert_eq!(refused(|_| (), Resources::default()), None);
}

#[test]
fn only_a_server_of_roots_lets_the_kernel_open_files_for_writing() {
    skip_if!(!is_root());
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let refused = |read_only| {
        let config = local(|it| it.read_only = read_only);
        let opened = HostDir::open(place.path(), config, Resources::default());
        opened.err().map(|error| error.to_string())
    };
    let why = ALICE.run(|| refused(false)).unwrap();
    assert!(why.contains("a server of root's"), "{why}");
    assert_eq!(ALICE.run(|| refused(true)), None);
    assert_eq!(refused(false), None);
}

/// The kernel asks to drop the bits before a change, and to change no owner, by the same request. The change itself
/// drops them.
#[test]
fn set_id_bits_fall_by_a_change_alone() {
    skip_if!(!is_root());
    let served = serve(local(|_| ()));
    let (root, program) = (served.root(), served.file("program", b"content"));
    let user = served.user(ALICE.uid, ALICE.gid);
    let mode = || root.getattr(program).unwrap().attr.mode & 0o7777;
    root.setattr(program, &set_mode(0o6777)).unwrap();
    user.setattr(program, &set(SetattrValid::empty())).unwrap();
    assert_eq!(mode(), 0o6777);
    let kill = WriteFlags::KILL_SUIDGID.bits();
    user.write(program, 0, 0, b"C", kill).unwrap();
    assert_eq!(mode(), 0o777);
    root.setattr(program, &set_mode(0o6777)).unwrap();
    let allocate = FallocateIn {
        length: 100,
        ..FallocateIn::default()
    };
    user.fallocate(program, &allocate).unwrap();
    assert_eq!(mode(), 0o777);
    root.setattr(program, &set_mode(0o6777)).unwrap();
    root.setattr(program, &set(SetattrValid::empty())).unwrap();
    assert_eq!(mode(), 0o777, "by its owner");
}

/// Nobody tells the server that they are not open.
#[test]
fn removed_files_are_kept_until_they_are_forgotten() {
    skip_if!(!is_root());
    for file_handles in [FileHandles::Prefer, FileHandles::Never] {
        let served = serve(local(|it| it.file_handles = file_handles));
        let root = served.root();
        let [removed, replaced, linked] =
            ["removed", "replaced", "linked"].map(|name| served.file(name, name.as_bytes()));
        served.file("other", b"other");
        root.link(linked, ROOT, b"second").unwrap();
        root.unlink(ROOT, b"removed").unwrap();
        root.rename((ROOT, b"other"), (ROOT, b"replaced"), 0)
            .unwrap();
        for name in ["linked", "second"] {
            root.read(linked, 0, 0, 1).unwrap();
            root.unlink(ROOT, name.as_bytes()).unwrap();
        }
        let (made, opened) = root.tmpfile(ROOT, libc::O_RDWR, 0o600).unwrap();
        let unnamed = NodeId(made.nodeid);
        assert_eq!(opened.fh, 0);
        root.write(unnamed, 0, 0, b"unnamed", 0).unwrap();
        for _ in 0..2 {
            let content = |node| String::from_utf8(root.read(node, 0, 0, 100).unwrap()).unwrap();
            let contents = [removed, replaced, linked, unnamed].map(content);
            assert_eq!(contents, ["removed", "replaced", "linked", "unnamed"]);
        }
        root.write(removed, 0, 0, b"R", 0).unwrap();
        assert_eq!(root.read(removed, 0, 0, 7).unwrap(), b"Removed");
        root.link(unnamed, ROOT, b"named").unwrap();
        assert_eq!(fs::read(served.path("named")).unwrap(), b"unnamed");
        for node in [removed, replaced, linked, unnamed] {
            root.forget(node, 10);
            assert_eq!(root.read(node, 0, 0, 1), Err(Errno::ESTALE));
        }
        assert_eq!(deleted_here(&served), 0, "{file_handles:?}");
    }
}

/// How many removed files of a served directory this process has a descriptor of.
fn deleted_here(served: &Served) -> usize {
    let place = served.directory.path().canonicalize().unwrap();
    let fds = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let targets = fds.filter_map(|entry| fs::read_link(entry.path()).ok());
    let is_deleted = |target: &PathBuf| {
        target.starts_with(&place) && target.to_str().unwrap().ends_with(" (deleted)")
    };
    targets.filter(is_deleted).count()
}

#[test]
fn a_user_has_only_so_many_removed_files_kept() {
    skip_if!(!is_root());
    // Half of the least budget.
    const MOST: usize = 8;
    for file_handles in [FileHandles::Prefer, FileHandles::Never] {
        let served = serve(local(|it| {
            it.file_handles = file_handles;
            it.descriptor_budget = Some(1);
        }));
        let user = served.user(ALICE.uid, ALICE.gid);
        let nodes: Vec<NodeId> = (0..=MOST)
            .map(|number| {
                let name = number.to_string();
                let node = served.file(&name, b"content");
                user.unlink(ROOT, name.as_bytes()).unwrap();
                node
            })
            .collect();
        let read = |node| served.root().read(node, 0, 0, 7);
        for node in &nodes[..MOST] {
            assert_eq!(read(*node).unwrap(), b"content", "{file_handles:?}");
        }
        assert_eq!(read(nodes[MOST]), Err(Errno::ESTALE), "{file_handles:?}");
        assert_eq!(served.statistics().refused_to_users, 1);
    }
}

/// The kernel above does not know of it.
#[test]
fn an_append_only_file_is_appended_to_alone() {
    skip_if!(!is_root());
    let ground = match Ground::prepare(Lower::Ext4) {
        Ok(ground) => ground,
        Err(error) => return skipped(error),
    };
    let served = serve_in(
        tempfile::tempdir_in(ground.source()).unwrap(),
        local(|_| ()),
    );
    let (root, log) = (served.root(), served.file("log", b"log"));
    let beneath = File::open(served.path("log")).unwrap();
    rustix::fs::ioctl_setflags(&beneath, IFlags::APPEND).unwrap();
    let write = |offset, flags: i32| {
        let flags = flags.cast_unsigned();
        let arg = WriteIn {
            offset,
            flags,
            ..WriteIn::default()
        };
        root.write_as(log, arg, b"+")
    };
    assert_eq!(write(3, libc::O_WRONLY), Err(Errno::EPERM));
    assert_eq!(write(3, libc::O_WRONLY | libc::O_APPEND), Ok(1));
    assert_eq!(write(3, libc::O_WRONLY | libc::O_APPEND), Err(Errno::EPERM));
    rustix::fs::ioctl_setflags(&beneath, IFlags::empty()).unwrap();
    assert_eq!(fs::read(served.path("log")).unwrap(), b"log+");
}

const WAYS: [&str; 2] = ["opens=local", "opens=local,ro"];

fn followed(test: impl Fn(&Mounted)) {
    let options = WAYS.map(|way| format!("{way},{FOLLOWED}"));
    let options = options.each_ref().map(|it| &**it);
    on_each(Lower::Tmpfs, &options, |mounted, _| test(mounted));
}

/// Without an OPEN in which the server would look.
#[test]
fn what_changes_beneath_shows_in_open_files_and_at_opens() {
    followed(|mounted| {
        let [beneath, above] = [mounted.source(), mounted.mnt()].map(|it| it.join("file"));
        fs::write(&beneath, "old").unwrap();
        let open = File::open(&above).unwrap();
        let map = Mapping::new(&open, 4096, Sharing::Private).unwrap();
        let content = || {
            let mut bytes = [0; 6];
            let length = open.read_at(&mut bytes, 0).unwrap();
            let mapped = String::from_utf8(map.load(0, length)).unwrap();
            [mapped, fs::read_to_string(&above).unwrap()]
        };
        assert_eq!(content(), ["old"; 2]);
        for text in ["new", "longer", "l", "same"] {
            fs::write(&beneath, text).unwrap();
            wait_until(text, || content() == [text; 2]);
        }
        fs::write(beneath.with_extension("new"), "another").unwrap();
        fs::rename(beneath.with_extension("new"), &beneath).unwrap();
        wait_until("another", || {
            fs::read_to_string(&above).unwrap() == "another"
        });
        fs::remove_file(&beneath).unwrap();
        wait_until("gone", || File::open(&above).is_err());
    });
}

/// They give no event until the map is gone: the kernel keeps no such data for longer than a second.
#[test]
fn stores_beneath_show_after_a_second_and_after_the_last_unmap() {
    followed(|mounted| {
        let [beneath, above] = [mounted.source(), mounted.mnt()].map(|it| it.join("file"));
        fs::write(&beneath, [b'0'; 4096]).unwrap();
        let writer = OpenOptions::new().read(true).write(true).open(&beneath);
        let mut map = Mapping::new(writer.unwrap(), 4096, Sharing::Shared).unwrap();
        let first = || fs::read(&above).unwrap()[0];
        map.store(0, b"1");
        assert_eq!(first(), b'1');
        map.store(0, b"2");
        wait_until("stored", || first() == b'2');
        map.store(0, b"3");
        drop(map);
        wait_until("unmapped", || first() == b'3');
    });
}

/// Beyond `follow_marks`, nobody tells of it.
#[test]
fn data_that_are_not_followed_are_dropped_after_a_second() {
    let options = "opens=local,ro,follow=directories,follow_marks=1";
    on_each(Lower::Tmpfs, &[options], |mounted, _| {
        let [beneath, above] = [mounted.source(), mounted.mnt()].map(|it| it.join("dir/file"));
        fs::create_dir(beneath.parent().unwrap()).unwrap();
        fs::write(&beneath, "old").unwrap();
        let open = File::open(&above).unwrap();
        let map = Mapping::new(&open, 3, Sharing::Private).unwrap();
        assert_eq!(map.load(0, 3), b"old");
        fs::write(&beneath, "new").unwrap();
        wait_until("dropped", || map.load(0, 3) == b"new");
    });
}

/// A descriptor that is open for writing would keep a program from running, and a lease from being taken.
#[test]
fn after_a_write_nothing_has_the_file_open() {
    on_each(Lower::Tmpfs, &["opens=local"], |mounted, _| {
        let [beneath, above] = [mounted.source(), mounted.mnt()].map(|it| it.join("program"));
        for root in [&above, &beneath] {
            for _ in 0..20 {
                // By a process of its own: children that other tests start would keep the file open here.
                let copied = Command::new("cp").arg("/bin/true").arg(&above).status();
                assert!(copied.unwrap().success());
                let status = Command::new(root).status();
                assert!(status.unwrap().success());
            }
        }
        let open = OpenOptions::new().append(true).open(&above).unwrap();
        rustix::io::write(open.as_fd(), b"more").unwrap();
        let reader = File::open(&beneath).unwrap();
        assert_eq!(thrufs_sys::lease::has_writers(&reader), Ok(false));
    });
}
