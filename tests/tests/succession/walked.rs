//! A tree walked, files open, renamed, unlinked; and then another server.

use crate::ground::{Session, WAYS, Way, config, config_for};
use thrufs_hostdir::{
    CacheMode, Config, Locks, Migration, MigrationMode, MigrationOnError, OpenMode,
};
use thrufs_tests::prelude::*;

const ROOT: NodeId = NodeId::ROOT;

/// On file systems with handles, and on one without.
fn over_lowers(test: impl Fn(Ground, Way)) {
    for lower in [Lower::Default, Lower::Tmpfs, Lower::Overlay] {
        for way in WAYS {
            let ground = Ground::prepare(lower).unwrap();
            eprintln!("{} {way:?}", lower.name());
            test(ground, way);
        }
    }
}

fn filled(source: &Path) {
    fs::create_dir_all(source.join("a/b/c")).unwrap();
    fs::create_dir(source.join("a-b")).unwrap();
    fs::write(source.join("a/b/c/deep"), "deep").unwrap();
    fs::write(source.join("a/file"), "content").unwrap();
    fs::write(source.join("a-b/other"), "other").unwrap();
    symlink("a/file", source.join("link")).unwrap();
}

#[test]
fn nodes_and_open_files_go_on_under_their_numbers() {
    over_lowers(|ground, way| {
        let source = ground.source();
        filled(source);
        let session = Session::on(ground, config_for(way));
        let (source, server, root) = session.parts();
        let paths = [
            "a",
            "a/b",
            "a/b/c",
            "a/b/c/deep",
            "a/file",
            "a-b",
            "a-b/other",
        ];
        let nodes = paths.map(|path| root.walk(path).unwrap());
        let link = root.walk("link").unwrap();
        let file = nodes[4];
        let fh = root.open(file, libc::O_RDWR | libc::O_APPEND).unwrap().fh;
        let gone = [(); 3].map(|()| {
            let gone = root.open(nodes[6], libc::O_RDONLY).unwrap().fh;
            root.release(nodes[6], gone).unwrap();
            gone
        });
        let listing = root.opendir(nodes[1]).unwrap().fh;

        server.passed_on(way);

        for (path, node) in paths.iter().zip(nodes) {
            let beneath = fs::symlink_metadata(source.join(path)).unwrap();
            let shown = root.getattr(node).unwrap().attr;
            assert_eq!(shown.ino, MetadataExt::ino(&beneath), "{path}");
            // Another lookup gives the same node, whose count continues.
            assert_eq!(root.walk(path).unwrap(), node, "{path}");
        }
        assert_eq!(root.readlink(link).unwrap(), b"a/file");
        assert_eq!(root.read(file, fh, 0, 100).unwrap(), b"content");
        assert_eq!(root.write(file, fh, 7, b"!", 0).unwrap(), 1);
        assert_eq!(fs::read(source.join("a/file")).unwrap(), b"content!");
        let names = root.readdir(nodes[1], listing, 0, 4096, false).unwrap();
        assert!(names.iter().any(|it| it.name == b"c"));
        // New numbers are unused ones.
        let (made, opened) = root.create(ROOT, b"new", libc::O_RDWR, 0o644).unwrap();
        assert!(!nodes.contains(&NodeId(made.nodeid)) && opened.fh != fh);
        assert!(!gone.contains(&opened.fh), "{gone:?} {:?}", opened.fh);
        assert_eq!(
            root.getattr(nodes[0]).unwrap().attr.mode & libc::S_IFMT,
            libc::S_IFDIR
        );
        assert_eq!(root.read(nodes[6], gone[2], 0, 1), Err(Errno::EBADF));

        // Everything can be released. A walk counts every directory on its way.
        root.release(file, fh).unwrap();
        root.release(NodeId(made.nodeid), opened.fh).unwrap();
        root.releasedir(nodes[1], listing).unwrap();
        for node in nodes.into_iter().chain([link, NodeId(made.nodeid)]) {
            root.forget(node, 1 << 20);
        }
        let left = server.statistics();
        assert_eq!(
            (left.inodes, left.open_files, left.open_directories),
            (1, 0, 0)
        );
    });
}

/// A server that would not have begun so refuses the session.
#[test]
fn files_that_the_kernel_opens_stay_so() {
    for way in WAYS {
        let ground = Ground::prepare(Lower::Default).unwrap();
        let source = ground.source();
        fs::write(source.join("file"), "content").unwrap();
        let config = Config {
            opens: OpenMode::Local,
            cache: CacheMode::Always,
            locks: Locks::Local,
            read_only: true,
            ..config_for(way)
        };
        let session = Session::on(ground, config);
        let (_, server, root) = session.parts();
        let node = root.walk("file").unwrap();
        server.configure(|it| it.opens = OpenMode::Server);
        let refused = server.restored(Migration::default(), &server.saved().unwrap());
        assert!(refused.unwrap_err().to_string().contains("INIT"));
        server.configure(|it| it.opens = OpenMode::Local);
        server.passed_on(way);
        assert_eq!(root.read(node, 0, 0, 100).unwrap(), b"content", "{way:?}");
        assert_eq!(
            root.open(node, libc::O_RDONLY).map(drop),
            Err(Errno::ENOSYS)
        );
        assert_eq!(root.write(node, 0, 0, b"X", 0), Err(Errno::EROFS));
    }
}

#[test]
fn lookups_are_counted_on() {
    for way in WAYS {
        let ground = Ground::prepare(Lower::Default).unwrap();
        let source = ground.source();
        fs::write(source.join("file"), "").unwrap();
        let session = Session::on(ground, config_for(way));
        let (_, server, root) = session.parts();
        let node = root.walk("file").unwrap();
        for _ in 0..4 {
            assert_eq!(root.walk("file").unwrap(), node);
        }
        root.forget(node, 2);
        server.passed_on(way);
        root.forget(node, 2);
        assert!(root.getattr(node).is_ok(), "{way:?}: one lookup is left");
        root.forget(node, 1);
        assert_eq!(root.getattr(node).map(drop), Err(Errno::ESTALE), "{way:?}");
        // The number of a forgotten node is not reused, before and after.
        server.passed_on(way);
        let again = root.walk("file").unwrap();
        assert_ne!(again, node, "{way:?}");
    }
}

/// By handle, and beneath a server that lives on, files without names are found.
#[test]
fn open_files_without_names_survive_a_death() {
    for lower in [Lower::Default, Lower::Tmpfs, Lower::Overlay] {
        let ground = Ground::prepare(lower).unwrap();
        let source = ground.source();
        fs::write(source.join("unlinked"), "unlinked").unwrap();
        fs::write(source.join("replaced"), "replaced").unwrap();
        fs::write(source.join("new"), "new").unwrap();
        let session = Session::on(ground, config_for(Way::Death));
        let (_, server, root) = session.parts();
        let unlinked = root.walk("unlinked").unwrap();
        let replaced = root.walk("replaced").unwrap();
        let one = root.open(unlinked, libc::O_RDWR).unwrap().fh;
        let other = root.open(replaced, libc::O_RDWR).unwrap().fh;
        root.unlink(ROOT, b"unlinked").unwrap();
        root.rename((ROOT, b"new"), (ROOT, b"replaced"), 0).unwrap();
        let mut expected = 2;
        let unnamed = root.tmpfile(ROOT, libc::O_RDWR, 0o600);
        if let Ok((entry, opened)) = &unnamed {
            root.write(NodeId(entry.nodeid), opened.fh, 0, b"unnamed", 0)
                .unwrap();
            expected += 1;
        }
        server.wait_for_kept(expected);
        for _ in 0..2 {
            server.died();
            assert_eq!(root.read(unlinked, one, 0, 99).unwrap(), b"unlinked");
            assert_eq!(root.read(replaced, other, 0, 99).unwrap(), b"replaced");
            assert_eq!(root.getattr(unlinked).unwrap().attr.nlink, 0);
            if let Ok((entry, opened)) = &unnamed {
                let read = root.read(NodeId(entry.nodeid), opened.fh, 0, 99);
                assert_eq!(read.unwrap(), b"unnamed");
            }
        }
        assert_eq!(root.write(unlinked, one, 0, b"UN", 0).unwrap(), 2);
        assert_eq!(root.read(unlinked, one, 0, 99).unwrap(), b"UNlinked");
        root.release(unlinked, one).unwrap();
        root.release(replaced, other).unwrap();
        let mut nodes = vec![unlinked, replaced];
        if let Ok((entry, opened)) = &unnamed {
            root.release(NodeId(entry.nodeid), opened.fh).unwrap();
            nodes.push(NodeId(entry.nodeid));
        }
        for node in nodes {
            root.forget(node, 1);
        }
        // Nothing is kept for ever.
        server.wait_for_kept(0);
    }
}

#[test]
fn files_without_a_known_name_are_searched_for() {
    let session = Session::new(filled, config(MigrationMode::FindPaths));
    let (source, server, root) = session.parts();
    let deep = root.walk("a/b/c/deep").unwrap();
    let hard = fs::hard_link(source.join("a/b/c/deep"), source.join("a-b/hard"));
    hard.unwrap();
    fs::remove_file(source.join("a/b/c/deep")).unwrap();
    server.passed_on(Way::Paths);
    assert_eq!(root.walk("a-b/hard").unwrap(), deep);
}

#[test]
fn what_cannot_be_found_ends_it_or_is_an_error_of_the_guest() {
    let session = Session::new(filled, config(MigrationMode::FindPaths));
    let (source, server, root) = session.parts();
    let (file, other) = (
        root.walk("a/file").unwrap(),
        root.walk("a-b/other").unwrap(),
    );
    let directory = root.walk("a/b/c").unwrap();
    let gone = root.walk("link").unwrap();
    let fh = root.open(file, libc::O_RDONLY).unwrap().fh;
    let listing = root.opendir(directory).unwrap().fh;
    root.unlink(root.walk("a").unwrap(), b"file").unwrap();
    fs::remove_file(source.join("a/b/c/deep")).unwrap();
    fs::remove_dir(source.join("a/b/c")).unwrap();
    // Not open.
    fs::remove_file(source.join("link")).unwrap();
    let state = server.saved().unwrap();
    let refused = server.restored(Migration::default(), &state);
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("cannot be had here"), "{refused}");
    // The session still works.
    assert_eq!(root.read(file, fh, 0, 99).unwrap(), b"content");

    let tolerant = Migration {
        on_error: MigrationOnError::GuestError,
        ..Migration::default()
    };
    server.restored(tolerant, &state).unwrap();
    assert_eq!(root.getattr(file).map(drop), Err(Errno::ESTALE));
    assert_eq!(root.read(file, fh, 0, 1), Err(Errno::ESTALE));
    let listed = root.readdir(directory, listing, 0, 4096, false);
    assert_eq!(listed.map(drop), Err(Errno::ESTALE));
    assert!(root.getattr(other).is_ok());
    assert_eq!(root.getattr(gone).map(drop), Err(Errno::ESTALE));
    root.release(file, fh).unwrap();
    root.releasedir(directory, listing).unwrap();
    root.forget(file, 1);
    root.forget(directory, 1);
    assert_eq!(root.getattr(file).map(drop), Err(Errno::ESTALE));
    let left = server.statistics();
    assert_eq!((left.open_files, left.open_directories), (0, 0));
}

#[test]
fn a_copy_of_the_tree_will_do_unless_handles_are_to_be_the_same() {
    let (here, there) = (
        Ground::prepare(Lower::Tmpfs).unwrap(),
        Ground::prepare(Lower::Tmpfs).unwrap(),
    );
    filled(here.source());
    filled(there.source());
    for name in 0..300 {
        fs::write(here.source().join(format!("a-b/{name}")), "").unwrap();
        // Listed in the order in which they were made.
        fs::write(there.source().join(format!("a-b/{}", 299 - name)), "").unwrap();
    }
    let mut config = config(MigrationMode::FindPaths);
    config.migration.verify_handles = true;
    config.migration.confirm_paths = true;
    let session = Session::on(here, config);
    let (_, server, root) = session.parts();
    let file = root.walk("a/file").unwrap();
    let fh = root.open(file, libc::O_RDONLY).unwrap().fh;
    let many = root.walk("a-b").unwrap();
    let listing = root.opendir(many).unwrap().fh;
    let first = root.readdir(many, listing, 0, 2048, false).unwrap();
    let state = server.saved().unwrap();
    let refused = server.restored_in(there.source(), Migration::default(), &state);
    assert!(refused.is_err(), "they are other files");
    server.restored(Migration::default(), &state).unwrap();
    // Without handles. However the listing goes on, nothing is left out.
    server.passed_on(Way::Paths);
    let state = server.saved().unwrap();
    server
        .restored_in(there.source(), Migration::default(), &state)
        .unwrap();
    fs::write(there.source().join("a/file"), "copied").unwrap();
    assert_eq!(root.read(file, fh, 0, 99).unwrap(), b"copied");
    let mut seen: Vec<_> = first.iter().map(|it| it.name.clone()).collect();
    let mut at = first.last().unwrap().offset;
    loop {
        let more = root.readdir(many, listing, at, 4096, false).unwrap();
        let Some(last) = more.last() else { break };
        at = last.offset;
        seen.extend(more.into_iter().map(|it| it.name));
    }
    for name in 0..300 {
        assert!(seen.contains(&format!("{name}").into_bytes()), "{name}");
    }
}

#[test]
fn a_listing_goes_on_where_it_was() {
    for way in WAYS {
        let ground = Ground::prepare(Lower::Default).unwrap();
        for name in 0..500 {
            fs::write(ground.source().join(format!("file-{name}")), "").unwrap();
        }
        let session = Session::on(ground, config_for(way));
        let (_, server, root) = session.parts();
        let fh = root.opendir(ROOT).unwrap().fh;
        let (mut seen, mut at) = (Vec::new(), 0);
        loop {
            let more = root.readdir(ROOT, fh, at, 1024, false).unwrap();
            let Some(last) = more.last() else { break };
            at = last.offset;
            seen.extend(more.into_iter().map(|it| it.name));
            if seen.len() % 3 == 0 {
                server.passed_on(way);
            }
        }
        assert_eq!(seen.len(), 502, "{way:?}: each name once");
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 502, "{way:?}");
    }
}

#[test]
fn mounts_beneath_are_entered_again() {
    for way in WAYS {
        let ground = Ground::prepare(Lower::Tmpfs).unwrap();
        let source = ground.source();
        fs::create_dir_all(source.join("dir/on")).unwrap();
        let on = source.join("dir/on");
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("thrufs-test", &on, "tmpfs", flags, Some(c"size=1m")).unwrap();
        fs::write(on.join("file"), "beneath").unwrap();
        let session = Session::on(ground, config_for(way));
        let (_, server, root) = session.parts();
        let (dir, file) = (
            root.walk("dir/on").unwrap(),
            root.walk("dir/on/file").unwrap(),
        );
        let ino = root.getattr(file).unwrap().attr.ino;
        let fh = root.open(file, libc::O_RDONLY).unwrap().fh;
        if way != Way::Death {
            // Nor does the client know what it is mounted in. The number is free for the next lookup.
            root.forget(root.walk("dir").unwrap(), 1 << 20);
        }
        server.passed_on(way);
        assert_eq!(root.read(file, fh, 0, 99).unwrap(), b"beneath", "{way:?}");
        assert_eq!(root.walk("dir/on").unwrap(), dir, "{way:?}");
        assert_eq!(root.walk("dir/on/file").unwrap(), file, "{way:?}");
        assert_eq!(root.getattr(file).unwrap().attr.ino, ino, "{way:?}");
        rustix::mount::unmount(&on, UnmountFlags::DETACH).unwrap();
    }
}

#[test]
fn a_file_in_the_place_of_another_is_not_taken_for_it() {
    for lower in [Lower::Default, Lower::Overlay] {
        let ground = Ground::prepare(lower).unwrap();
        let source = ground.source();
        filled(source);
        let session = Session::on(ground, config(MigrationMode::FindPaths));
        let (source, server, root) = session.parts();
        let file = root.walk("a/file").unwrap();
        let fh = root.open(file, libc::O_RDONLY).unwrap().fh;
        fs::rename(source.join("a/file"), source.join("a-b/elsewhere")).unwrap();
        fs::write(source.join("a/file"), "another").unwrap();
        server.passed_on(Way::Paths);
        assert_eq!(root.read(file, fh, 0, 99).unwrap(), b"content");
        assert_eq!(
            root.walk("a-b/elsewhere").unwrap(),
            file,
            "{}",
            lower.name()
        );
        assert_ne!(root.walk("a/file").unwrap(), file, "{}", lower.name());
    }
}

#[test]
fn a_running_program_stays_one() {
    const FMODE_EXEC: i32 = 0x20;
    over_lowers(|ground, way| {
        let source = ground.source();
        fs::write(source.join("program"), "content").unwrap();
        let session = Session::on(ground, config_for(way));
        let (_, server, root) = session.parts();
        let program = root.walk("program").unwrap();
        let running = root.open(program, FMODE_EXEC).unwrap().fh;

        server.passed_on(way);

        let truncated = || root.open(program, libc::O_RDONLY | libc::O_TRUNC);
        assert_eq!(truncated().map(drop), Err(Errno::ETXTBSY));
        root.release(program, running).unwrap();
        truncated().unwrap();
    });
}
