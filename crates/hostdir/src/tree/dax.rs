//! Which files a guest maps from the host's page cache (DAX), by their names and what the machine monitor can map.
//!
//! Where the monitor maps whole pages within the file alone, the guest would read zeroes in the last one, and in
//! all that is added while it is mapped. There, only files of whole pages are mapped, and their size stays: the
//! guest cannot change it, and is told no larger one than its mappings cover.

use super::inode::Inode;
use crate::config::{Config, compile};
use globset::GlobSet;
use rustix::fs::{Statx, StatxAttributes};
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, OnceLock};
use thrufs::{Errno, Result, WindowCoverage};
use thrufs_abi::AttrFlags;

/// What is mapped, in bytes.
const PAGE_BYTES: u64 = 4096;

#[derive(Debug, Default)]
pub(crate) struct Dax {
    /// Named by the operator.
    names: GlobSet,
    bytes_min: u64,
    read_only: bool,
    /// Set by INIT, if files are to be mapped.
    window: OnceLock<Arc<dyn WindowCoverage>>,
}

impl Dax {
    /// A configuration that was checked.
    pub(crate) fn new(config: &Config) -> Dax {
        Dax {
            names: compile(&config.dax).unwrap_or_default(),
            bytes_min: config.dax_bytes_min,
            read_only: config.read_only,
            window: OnceLock::new(),
        }
    }

    pub(crate) fn begin(&self, window: Arc<dyn WindowCoverage>) {
        let _ = self.window.set(window);
    }

    /// The window, if there is one.
    pub(crate) fn window(&self) -> Option<&dyn WindowCoverage> {
        self.window.get().map(|window| &**window)
    }

    /// A window into which the monitor maps within files alone.
    fn strict_window(&self) -> Option<&dyn WindowCoverage> {
        self.window().filter(|window| !window.maps_beyond_end())
    }

    /// Notes a file that was looked up by this name.
    pub(crate) fn note_name(&self, inode: &Inode, name: &CStr) {
        let Some(window) = self.window().filter(|_| inode.is_regular()) else {
            return;
        };
        let is_all = self.names.is_empty() && window.maps_beyond_end();
        if is_all || self.names.is_match(OsStr::from_bytes(name.to_bytes())) {
            inode.dax().name();
        }
    }

    /// The same of a session that is resumed. What the guest was told of a file that it has not mapped is guessed
    /// from the file as it is now.
    pub(crate) fn resume(&self, inode: &Inode, name: &CStr, stat: impl FnOnce() -> Result<Statx>) {
        self.note_name(inode, name);
        if self
            .window()
            .is_some_and(|window| window.has_mapped(inode.node()))
        {
            inode.dax().report();
            return;
        }
        match inode.dax().is_named().then(stat) {
            Some(Ok(stat)) => {
                self.flags(inode, &stat, || false);
            }
            _ => inode.dax().decline(),
        }
    }

    /// The flag of a file that the guest is to map. The same until the guest forgets the file, as it looks at the
    /// first only: a file that it makes itself, and that would be large enough some time, can have any size.
    ///
    /// A monitor that maps only what is open for writing gets no file that cannot be opened so: by its attributes, or
    /// as `is_mount_read_only` says. Nor a program, which could not be executed on the host meanwhile (`ETXTBSY`).
    pub(crate) fn flags(
        &self,
        inode: &Inode,
        stat: &Statx,
        is_mount_read_only: impl FnOnce() -> bool,
    ) -> u32 {
        let Some(window) = self.window().filter(|_| inode.is_regular()) else {
            return 0;
        };
        let dax = inode.dax();
        if !dax.is_decided() {
            let is_of_pages = stat.stx_size.is_multiple_of(PAGE_BYTES) && stat.stx_size > 0;
            let is_mapped = dax.is_named()
                && (window.maps_beyond_end() || is_of_pages)
                && stat.stx_size >= self.bytes_min
                && (window.maps_read_only()
                    || !self.read_only && is_writable(stat) && !is_mount_read_only());
            match is_mapped {
                true => dax.report(),
                false => dax.decline(),
            }
        }
        match dax.is_reported() {
            true => AttrFlags::DAX.bits(),
            false => 0,
        }
    }

    /// Whether the guest may map the file. It asks for all of them when it is mounted with `dax=always`.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` for one of which the monitor would not map the end.
    pub(crate) fn may_map(&self, inode: &Inode) -> Result<()> {
        match self.strict_window() {
            Some(_) if !inode.dax().is_reported() => Err(Errno::EOPNOTSUPP),
            _ => Ok(()),
        }
    }

    /// The size that the guest is told: of a file that it maps, whole pages, also after the host has added to it.
    pub(crate) fn size(&self, inode: &Inode, size: u64) -> u64 {
        let Some(window) = self.strict_window().filter(|_| inode.dax().is_reported()) else {
            return size;
        };
        let mappable = size / PAGE_BYTES * PAGE_BYTES;
        let covered = window.covered(inode.node());
        covered.map_or(mappable, |covered| mappable.min(covered))
    }

    /// Whether the guest may give the file another size than it was told.
    ///
    /// # Errors
    ///
    /// `EPERM`.
    pub(crate) fn may_resize(&self, inode: &Inode) -> Result<()> {
        match self.strict_window() {
            Some(_) if inode.dax().is_reported() => Err(Errno::EPERM),
            _ => Ok(()),
        }
    }

    /// The same for a change to `wanted`, of a file that `size` returns the size of.
    pub(crate) fn may_set_size(
        &self,
        inode: &Inode,
        wanted: u64,
        size: impl FnOnce() -> Result<u64>,
    ) -> Result<()> {
        match self.may_resize(inode) {
            Err(error) if wanted != self.size(inode, size()?) => Err(error),
            _ => Ok(()),
        }
    }

    /// The same for a change up to `end`, of a file that `size` returns the size of.
    pub(crate) fn may_write_to(
        &self,
        inode: &Inode,
        end: u64,
        size: impl FnOnce() -> Result<u64>,
    ) -> Result<()> {
        match self.may_resize(inode) {
            Err(error) if end > self.size(inode, size()?) => Err(error),
            _ => Ok(()),
        }
    }
}

/// Whether a process with all capabilities can open the file for writing, and none executes it.
fn is_writable(stat: &Statx) -> bool {
    let forbids = StatxAttributes::IMMUTABLE | StatxAttributes::APPEND;
    !stat.stx_attributes.intersects(forbids) && stat.stx_mode & 0o111 == 0
}

#[cfg(test)]
mod tests {
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

        fn has_mapped(&self, _: NodeId) -> bool {
            self.covered.is_some()
        }

        fn covered(&self, _: NodeId) -> Option<u64> {
            self.covered
        }
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

    /// A lookup by the guest, and whether it is told to map the file.
    fn look_up(tree: &Tree, name: &CStr) -> (Arc<Inode>, bool) {
        let (inode, _) = tree.lookup_name(&tree.root, name).unwrap();
        tree.dax.note_name(&inode, name);
        let is_mapped = is_mapped(tree, &inode);
        (inode, is_mapped)
    }

    fn is_mapped(tree: &Tree, inode: &Arc<Inode>) -> bool {
        let stat = tree.stat(inode).unwrap();
        let flags = tree.dax.flags(inode, &stat, || false);
        let may_map = tree.dax.may_map(inode);
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
        assert_eq!(on_read_only_mount.dax.flags(&inode, &stat, || true), 0);
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
}
