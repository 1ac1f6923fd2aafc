//! Mounts that show the served tree at other places.
//!
//! A file system can be mounted several times, as a whole or in part (bind mounts). The mounts are compared
//! by device number and by the directory of the file system that each shows (proc_pid_mountinfo(5)). Layers
//! of an overlay, and network file systems that are mounted twice, have other device numbers: they are not
//! found.
//!
//! Who removes a directory on which something is mounted elsewhere has it unmounted in every mount namespace. The number
//! of its device is that of the next one then, which may be mounted by the sandbox: such parts have ended.

use super::plan::EMPTY;
use crate::mount_table::{DeviceNumber, Mount, holding};
use std::path::{Path, PathBuf};

/// A directory of a file system that is in the tree: the tree's own, and one for each mount beneath it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Of the mount.
    id: u64,
    path: PathBuf,
    device: DeviceNumber,
    /// Within the file system.
    root: PathBuf,
    /// Where it is in the tree, relative.
    place: PathBuf,
}

/// A place outside of the tree that shows a part of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Elsewhere {
    pub(super) path: PathBuf,
    /// What it shows, relative to the tree.
    pub(super) shows: PathBuf,
}

/// The parts of `tree`, an absolute path without symbolic links.
pub(super) fn parts(mounts: &[Mount], tree: &Path) -> Vec<Part> {
    let part = |mount: &Mount, root, place: &Path| Part {
        id: mount.id,
        path: mount.path.clone(),
        device: mount.device,
        root,
        place: place.into(),
    };
    let own = holding(mounts, tree).into_iter().filter_map(|mount| {
        let root = join(&mount.root, tree.strip_prefix(&mount.path).ok()?);
        Some(part(mount, root, Path::new("")))
    });
    let beneath = mounts.iter().filter_map(|mount| {
        let place = mount.path.strip_prefix(tree).ok()?;
        let is_beneath = !place.as_os_str().is_empty();
        is_beneath.then(|| part(mount, mount.root.clone(), place))
    });
    own.chain(beneath).collect()
}

/// The places in `mounts` that show a part and can be reached by path.
pub(super) fn places(mounts: &[Mount], parts: &[Part], tree: &Path) -> Vec<Elsewhere> {
    let mut found = Vec::new();
    let is_there = |part: &&Part| {
        let mut mounts = mounts.iter();
        mounts.any(|it| it.id == part.id && it.path == part.path && it.device == part.device)
    };
    for part in parts.iter().filter(is_there) {
        let same = mounts.iter().filter(|mount| mount.device == part.device);
        for mount in same {
            let (path, shows) = if let Ok(rest) = part.root.strip_prefix(&mount.root) {
                (join(&mount.path, rest), part.place.clone())
            } else if let Ok(rest) = mount.root.strip_prefix(&part.root) {
                (mount.path.clone(), join(&part.place, rest))
            } else {
                continue;
            };
            let on_top = holding(mounts, &path).is_some_and(|top| top.id == mount.id);
            let place = Elsewhere { path, shows };
            if on_top && !place.path.starts_with(tree) && !found.contains(&place) {
                found.push(place);
            }
        }
    }
    found
}

/// What is covered, and must stay so.
#[derive(Default)]
pub(super) struct Covers {
    pub(super) served: Vec<Part>,
    pub(super) hidden: Vec<Part>,
}

impl Covers {
    /// Whether what is beneath this mount could show a part, at a place that is covered by nothing but this mount.
    /// Where the part itself is, it is covered, also after directories were renamed. Of what is served, no directory
    /// of the file system may show, since directories can be renamed.
    pub(super) fn need(&self, mounts: &[Mount], mount: &Mount) -> bool {
        let Some(beneath) = mounts.iter().find(|it| it.id == mount.parent) else {
            return true;
        };
        let rest = mount.path.strip_prefix(&beneath.path);
        let place = beneath.root.join(rest.unwrap_or(Path::new("")));
        let is_there = |part: &&Part| part.device == beneath.device && part.id != beneath.id;
        let overlaps = |part: &Part| part.root.starts_with(&place) || place.starts_with(&part.root);
        let mut hidden = self.hidden.iter().filter(is_there);
        self.served.iter().any(|part| is_there(&part)) || hidden.any(overlaps)
    }
}

/// The first mount in the tree that shows a part of it at another path, or a directory around it: rules by path would
/// hold for one of the two. Root directories of containers may each have the devices and the kernel's file systems of
/// this machine, which the sandbox does not show.
pub(super) fn shown_twice<'a>(mounts: &'a [Mount], tree: &Path) -> Option<&'a Path> {
    let own = holding(mounts, tree).map(|it| it.device);
    let is_empty = |mount: &&Mount| {
        let mut empty = EMPTY.iter().chain(&["/dev", "/proc", "/sys"]);
        empty.any(|it| mount.path.starts_with(it)) && !mount.path.starts_with(tree)
    };
    let empty: Vec<&Mount> = mounts.iter().filter(is_empty).collect();
    let is_hidden = |part: &Part| {
        let shows = |it: &&Mount| it.device == part.device && part.root.starts_with(&it.root);
        Some(part.device) != own && empty.iter().any(shows)
    };
    let mut parts = parts(mounts, tree);
    parts.retain(|part| !is_hidden(part));
    let beneath = |mount: &&Mount| mount.path != tree && mount.path.starts_with(tree);
    let shows = |mount: &Mount, part: &Part| {
        let (one, other) = (&mount.root, &part.root);
        mount.path != part.path
            && mount.device == part.device
            && (one.starts_with(other) || other.starts_with(one))
    };
    let again = |mount: &&Mount| parts.iter().any(|part| shows(mount, part));
    let is_on_top =
        |mount: &&Mount| holding(mounts, &mount.path).is_some_and(|it| it.id == mount.id);
    let mut found = mounts.iter().filter(beneath).filter(is_on_top);
    Some(&found.find(again)?.path)
}

/// Without the slash that an empty `rest` would add.
fn join(path: &Path, rest: &Path) -> PathBuf {
    match rest.as_os_str().is_empty() {
        true => path.into(),
        false => path.join(rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(id: u64, minor: u32, root: &str, path: &str) -> Mount {
        Mount {
            id,
            parent: 1,
            device: DeviceNumber { major: 8, minor },
            path: path.into(),
            root: root.into(),
            is_shared: false,
            source: "source".into(),
            kind: "ext4".into(),
            user: None,
        }
    }

    fn found(mounts: &[Mount], tree: &str) -> Vec<(String, String)> {
        let tree = Path::new(tree);
        let places = places(mounts, &parts(mounts, tree), tree);
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        let both = places.into_iter();
        both.map(|it| (text(it.path), text(it.shows))).collect()
    }

    #[test]
    fn mounts_on_another_mount_of_the_tree_s_file_system_uncover() {
        let on = |parent, mount| Mount { parent, ..mount };
        let mounts = [
            mount(1, 1, "/", "/"),
            mount(2, 1, "/", "/mnt/whole"),
            on(1, mount(3, 2, "/", "/mnt/disk")),
            on(2, mount(4, 2, "/", "/mnt/whole/home")),
            on(2, mount(5, 2, "/", "/mnt/whole/srv")),
            on(9, mount(6, 2, "/", "/mnt/disk")),
        ];
        let tree = Path::new("/home/tree");
        let needed = |served: &[Part], hidden: &[Part]| {
            let [served, hidden] = [served.to_vec(), hidden.to_vec()];
            let covers = Covers { served, hidden };
            mounts[2..]
                .iter()
                .map(|it| covers.need(&mounts, it))
                .collect::<Vec<_>>()
        };
        let parts = parts(&mounts, tree);
        assert_eq!(needed(&parts, &[]), [false, true, true, true]);
        assert_eq!(needed(&[], &parts), [false, true, false, true]);
    }

    #[test]
    fn other_mounts_of_the_tree_or_of_directories_around_and_in_it_are_found() {
        let mounts = [
            mount(1, 1, "/", "/"),
            mount(2, 2, "/", "/home"),
            mount(3, 2, "/", "/mnt/whole"),
            mount(4, 2, "/ann", "/mnt/around"),
            mount(5, 2, "/ann/tree/secrets", "/mnt/inside"),
            mount(6, 2, "/ann/tree2", "/mnt/other"),
            mount(7, 1, "/ann/tree", "/mnt/other-file-system"),
        ];
        let expected = [
            ("/mnt/whole/ann/tree", ""),
            ("/mnt/around/tree", ""),
            ("/mnt/inside", "secrets"),
        ];
        let expected = expected.map(|(path, shows)| (path.to_owned(), shows.to_owned()));
        assert_eq!(found(&mounts, "/home/ann/tree"), expected);
    }

    #[test]
    fn mounts_in_the_tree_are_found_elsewhere_too() {
        let mounts = [
            mount(1, 1, "/", "/"),
            mount(2, 3, "/", "/tree/data"),
            mount(3, 3, "/keys", "/srv/keys"),
            mount(4, 1, "/outside", "/tree/bound"),
        ];
        let expected = [("/srv/keys", "data/keys"), ("/outside", "bound")];
        let expected = expected.map(|(path, shows)| (path.to_owned(), shows.to_owned()));
        assert_eq!(found(&mounts, "/tree"), expected);
    }

    #[test]
    fn mounts_of_the_tree_in_itself_are_found() {
        let outside = [mount(1, 1, "/", "/"), mount(2, 2, "/keys", "/mnt")];
        for (mounts, found) in [
            (vec![mount(3, 1, "/tree/secrets", "/tree/pub")], true),
            (vec![mount(3, 1, "/", "/tree/chroot")], true),
            (
                vec![
                    mount(3, 1, "/other", "/tree/other"),
                    mount(4, 2, "/", "/tree/data"),
                ],
                false,
            ),
            (
                vec![mount(3, 2, "/", "/tree/data"), mount(4, 2, "/x", "/tree/x")],
                true,
            ),
            (
                vec![
                    mount(3, 4, "/", "/proc"),
                    mount(4, 4, "/", "/tree/a/proc"),
                    mount(5, 4, "/", "/tree/b/proc"),
                ],
                false,
            ),
        ] {
            let mounts = [&outside[..], &mounts].concat();
            assert_eq!(
                shown_twice(&mounts, Path::new("/tree")).is_some(),
                found,
                "{mounts:?}"
            );
        }
    }

    #[test]
    fn number_of_a_device_that_has_gone_leads_nowhere() {
        let before = [mount(1, 1, "/", "/"), mount(2, 2, "/", "/tmp/removed")];
        let parts = parts(&before, Path::new("/tmp"));
        let after = [mount(1, 1, "/", "/"), mount(2, 2, "/", "/dev/empty")];
        assert_eq!(places(&after, &parts, Path::new("/tmp")), []);
        let after = [&before[..], &[mount(3, 2, "/", "/mnt")]].concat();
        assert_eq!(places(&after, &parts, Path::new("/tmp")).len(), 1);
    }

    #[test]
    fn places_that_another_mount_covers_are_not_reached() {
        let mounts = [
            mount(1, 1, "/", "/"),
            mount(2, 1, "/", "/mnt"),
            mount(3, 9, "/", "/mnt"),
            mount(4, 1, "/", "/srv"),
            mount(5, 9, "/", "/srv/tree"),
        ];
        assert_eq!(found(&mounts, "/tree"), []);
    }
}
