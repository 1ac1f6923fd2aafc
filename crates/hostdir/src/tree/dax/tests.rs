//! Which files are mapped, by a window as QEMU's.

use super::super::Tree;
use super::*;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use thrufs_abi::NodeId;

/// As QEMU maps: whole pages within a file, and only what is open for writing.
#[derive(Debug)]
struct WithinFiles {
    covered: Option<u64>,
}

impl WindowCoverage for WithinFiles {
    fn maps_beyond_end(&self) -> bool {
        false
    }

    fn maps_read_only(&self) -> bool {
        false
    }

    fn mappings(&self, _: NodeId) -> usize {
        0
    }

    fn covered(&self, _: NodeId) -> Option<u64> {
        self.covered
    }

    fn withdraw(&self, _: NodeId) {}
}

fn serve(place: &Path, covered: Option<u64>) -> Tree {
    serve_with(place, covered, Config::default())
}

fn serve_with(place: &Path, covered: Option<u64>, more: Config) -> Tree {
    let config = Config {
        dax: vec!["*.img".to_owned()],
        dax_bytes_min: 2 * PAGE_BYTES,
        ..more
    };
    let source = fs::File::open(place).unwrap();
    let tree = Tree::new(source.into(), &config, None, None, false).unwrap();
    tree.dax.begin(Arc::new(WithinFiles { covered }));
    tree
}

fn make(place: &Path, name: &str, bytes: u64) {
    let file = fs::File::create(place.join(name)).unwrap();
    file.set_len(bytes).unwrap();
}

fn conditions(is_mount_read_only: &dyn Fn() -> bool) -> MapConditions<'_> {
    MapConditions {
        lasting_access: &|| Some(Access::Change),
        is_mount_read_only,
    }
}

/// A lookup by the guest, and whether it is told to map the file.
fn look_up(tree: &Tree, name: &CStr) -> (Arc<Inode>, bool) {
    let (inode, _) = tree.lookup_name(&tree.root, name).unwrap();
    tree.dax.note_name(&inode, name);
    let is_mapped = is_mapped(tree, &inode);
    (inode, is_mapped)
}

fn is_mapped(tree: &Tree, inode: &Arc<Inode>) -> bool {
    let stat = tree.stat(inode).unwrap();
    let flags = tree.dax.flags(inode, &stat, &conditions(&|| false));
    let may_map = tree.dax.may_map(inode, false);
    assert_eq!(may_map.is_ok(), flags != 0, "{may_map:?}");
    flags != 0
}

#[test]
fn only_files_are_mapped_that_the_monitor_can_map_for_writing_to_their_end() {
    let place = tempfile::tempdir().unwrap();
    for (name, bytes) in [
        ("whole.img", 2 * PAGE_BYTES),
        ("odd.img", 2 * PAGE_BYTES + 1),
        ("small.img", PAGE_BYTES),
        ("program.img", 2 * PAGE_BYTES),
        ("other", 2 * PAGE_BYTES),
    ] {
        make(place.path(), name, bytes);
    }
    let program = place.path().join("program.img");
    fs::set_permissions(program, Permissions::from_mode(0o755)).unwrap();
    let tree = serve(place.path(), None);
    assert!(look_up(&tree, c"whole.img").1);
    for name in [c"odd.img", c"small.img", c"program.img", c"other"] {
        assert!(!look_up(&tree, name).1, "{name:?}");
    }
    let on_read_only_mount = serve(place.path(), None);
    let (inode, stat) = on_read_only_mount
        .lookup_name(&on_read_only_mount.root, c"whole.img")
        .unwrap();
    on_read_only_mount.dax.note_name(&inode, c"whole.img");
    let flags = on_read_only_mount
        .dax
        .flags(&inode, &stat, &conditions(&|| true));
    assert_eq!(flags, 0);
}

#[test]
fn a_file_is_mapped_or_not_until_the_guest_forgets_it() {
    // An exported inode outlives its last lookup.
    for export in [false, true] {
        let place = tempfile::tempdir().unwrap();
        make(place.path(), "grows.img", 0);
        let more = Config {
            export,
            ..Config::default()
        };
        let tree = serve_with(place.path(), None, more);
        let (inode, is_first_mapped) = look_up(&tree, c"grows.img");
        assert!(!is_first_mapped);
        make(place.path(), "grows.img", 2 * PAGE_BYTES);
        assert!(!is_mapped(&tree, &inode));
        assert!(!look_up(&tree, c"grows.img").1);
        tree.dax.may_resize(&inode).unwrap();
        tree.forget(inode.node(), 2);
        drop(inode);
        let (inode, is_mapped_anew) = look_up(&tree, c"grows.img");
        assert!(is_mapped_anew);
        assert_eq!(tree.dax.may_resize(&inode), Err(Errno::EPERM));
        make(place.path(), "grows.img", PAGE_BYTES + 1);
        assert!(is_mapped(&tree, &inode));
    }
}

#[test]
fn of_a_mapped_file_that_the_host_has_grown_the_guest_is_told_whole_pages() {
    let place = tempfile::tempdir().unwrap();
    make(place.path(), "a.img", 2 * PAGE_BYTES);
    make(place.path(), "other", 2 * PAGE_BYTES);
    let size = 3 * PAGE_BYTES + 100;
    for (covered, told) in [
        (None, 3 * PAGE_BYTES),
        (Some(2 * PAGE_BYTES), 2 * PAGE_BYTES),
    ] {
        let tree = serve(place.path(), covered);
        let (mapped, _) = look_up(&tree, c"a.img");
        assert_eq!(tree.dax.size(&mapped, size), told);
        // What lies beyond is as if the guest made the file larger.
        let write_to = |end| tree.dax.may_write_to(&mapped, end, || Ok(size));
        assert_eq!(
            (write_to(told), write_to(told + 1)),
            (Ok(()), Err(Errno::EPERM))
        );
        let resize = |wanted| tree.dax.may_set_size(&mapped, wanted, || Ok(size));
        assert_eq!((resize(told), resize(size)), (Ok(()), Err(Errno::EPERM)));
    }
    let tree = serve(place.path(), None);
    let (other, _) = look_up(&tree, c"other");
    assert_eq!(tree.dax.size(&other, size), size);
}
