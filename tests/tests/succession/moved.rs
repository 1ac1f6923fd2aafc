//! Open files that the host moves, replaces or removes, before a worker dies and while there is none.

use crate::ground::{Server, Way, config_for, mounted};
use thrufs_hostdir::{Config, FileHandles};
use thrufs_tests::prelude::*;

const LOWERS: [(Lower, FileHandles); 3] = [
    (Lower::Default, FileHandles::Never),
    (Lower::Default, FileHandles::Prefer),
    (Lower::Overlay, FileHandles::Prefer),
];

/// What happens to each file, whose content is its name.
fn change(source: &Path) {
    let at = |name: &str| source.join(name);
    fs::rename(at("renamed"), at("elsewhere")).unwrap();
    fs::remove_file(at("removed")).unwrap();
    fs::write(at("other"), "other").unwrap();
    fs::rename(at("other"), at("replaced")).unwrap();
    fs::rename(at("dir"), at("moved")).unwrap();
    fs::hard_link(at("linked"), at("link")).unwrap();
    fs::remove_file(at("linked")).unwrap();
}

const FILES: [&str; 6] = [
    "renamed",
    "removed",
    "replaced",
    "dir/inside",
    "linked",
    "same",
];

#[test]
fn open_files_that_others_move_or_remove_survive_deaths() {
    for (lower, file_handles) in LOWERS {
        for is_before_death in [true, false] {
            let ground = Ground::prepare(lower).unwrap();
            let source = ground.source();
            fs::create_dir(source.join("dir")).unwrap();
            for file in FILES {
                fs::write(source.join(file), file).unwrap();
            }
            let config = config_for(Way::Death);
            let server = Server::new(
                source,
                Config {
                    file_handles,
                    ..config
                },
            );
            let client = mounted(&server);
            let root = client.root();
            let open = FILES.map(|file| {
                let node = root.walk(file).unwrap();
                (file, node, root.open(node, libc::O_RDWR).unwrap().fh)
            });
            server.wait_for_kept(FILES.len());
            if is_before_death {
                change(source);
                server.died();
            } else {
                server.died_while(|| change(source));
            }
            for _ in 0..2 {
                for (file, node, handle) in open {
                    let case = format!("{} {file_handles:?} {file}", lower.name());
                    let read = root.read(node, handle, 0, 99);
                    assert_eq!(read.as_deref(), Ok(file.as_bytes()), "{case}");
                    let size = root.getattr(node).map(|shown| shown.attr.size);
                    assert_eq!(size, Ok(file.len() as u64), "{case}");
                    assert_eq!(
                        root.write(node, handle, 0, file.as_bytes(), 0),
                        Ok(file.len() as u32)
                    );
                }
                server.died();
            }
            for (_, node, handle) in open {
                root.release(node, handle).unwrap();
            }
            // Of what is closed, nothing is stored, though the client still knows it.
            server.wait_for_kept(0);
        }
    }
}

#[test]
fn files_that_are_opened_again_are_stored_again() {
    let ground = Ground::prepare(Lower::Default).unwrap();
    let source = ground.source();
    fs::write(source.join("file"), "content").unwrap();
    let server = Server::new(source, config_for(Way::Death));
    let client = mounted(&server);
    let root = client.root();
    let node = root.walk("file").unwrap();
    for _ in 0..3 {
        let handles = [0; 2].map(|_| root.open(node, libc::O_RDONLY).unwrap().fh);
        server.wait_for_kept(1);
        root.release(node, handles[0]).unwrap();
        root.release(node, handles[1]).unwrap();
        server.wait_for_kept(0);
    }
    let handle = root.open(node, libc::O_RDONLY).unwrap().fh;
    server.wait_for_kept(1);
    root.forget(node, 1 << 20);
    server.wait_for_kept(0);
    root.release(node, handle).unwrap();
}

/// A caller that is killed while nobody serves does not wait for the answer to its OPEN, which the dead server has
/// carried out: no RELEASE follows.
#[test]
fn opens_that_nobody_releases_end_with_the_node() {
    let ground = Ground::prepare(Lower::Default).unwrap();
    let source = ground.source();
    fs::create_dir(source.join("dir")).unwrap();
    fs::write(source.join("file"), "content").unwrap();
    let server = Server::new(source, config_for(Way::Death));
    let client = mounted(&server);
    let root = client.root();
    let [file, dir] = ["file", "dir"].map(|name| root.walk(name).unwrap());
    let released = root.open(file, libc::O_RDWR).unwrap().fh;
    root.open(file, libc::O_RDWR).unwrap();
    root.opendir(dir).unwrap();
    server.died();
    root.release(file, released).unwrap();
    let open = || {
        let statistics = server.statistics();
        [statistics.open_files, statistics.open_directories]
    };
    assert_eq!(open(), [1, 1]);
    for node in [file, dir] {
        root.forget(node, 1);
    }
    assert_eq!(open(), [0, 0]);
    server.died();
    assert_eq!(open(), [0, 0], "nor in the record");
}
