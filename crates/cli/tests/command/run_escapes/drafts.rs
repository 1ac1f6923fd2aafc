//! The layer of a draft: the command writes to it by the tree alone, and by it nothing that is hidden shows.

use super::elsewhere::Mounts;
use super::mounts::handle;
use super::{Expected, assert_inside, grounds, inside};
use crate::ground::{run, stderr, succeeded};
use crate::run_ground::{EVERYONE, SECRET};
use serde_json::json;
use std::fs;
use std::path::Path;

const ATTEMPTS: &str = include_str!("drafts.py");

const EXPECTED: &[Expected<'_>] = &[
    ("list_the_drafts", "0", ""),
    ("list_the_drafts_elsewhere", "0", ""),
    ("write_by_another_mount_of_the_tree", "True", ""),
    ("write_to_the_layer", "ENOENT", ""),
    ("make_a_draft", "EROFS|EACCES", ""),
    ("remove_the_drafts", "EBUSY|EACCES", ""),
    ("move_the_drafts", "EBUSY|EACCES", ""),
    ("uncover_the_drafts", "EINVAL", ""),
    ("layer_by_process_1", "EACCES", ""),
    // Before Linux 6.11, EPERM.
    ("layer_by_handle", "EPERM", ""),
    ("layer_by_handle_in_a_copy_of_another", "ESTALE|EPERM", ""),
    ("make_a_whiteout", "EPERM", ""),
    ("make_a_whiteout_as_root", "EPERM", ""),
    ("leave_a_whiteout", "EINVAL", ""),
    ("redirect_a_directory", "done", ""),
    ("redirect_a_directory_of_root", "EPERM", ""),
    ("take_a_hidden_name", "mine", ""),
    ("link_a_hidden_name", "ENOENT", ""),
    ("remove_a_directory_with_a_hidden_name", "[]", ""),
];

fn attributes(path: &Path) -> String {
    let mut list = [0; 1024];
    let length = rustix::fs::llistxattr(path, &mut list).unwrap();
    String::from_utf8_lossy(&list[..length]).into_owned()
}

#[test]
fn layer_of_a_draft_is_written_by_the_tree_alone() {
    for ground in grounds(EVERYONE) {
        let (option, drafts) = ground.drafts();
        let mut mounts = Mounts::default();
        let elsewhere = ground.path().join("elsewhere");
        mounts.bind(ground.path(), &elsewhere);
        let of_tree = ground.path().join("of-tree");
        mounts.bind(&ground.tree, &of_tree);
        ground.make_directory(&ground.tree.join("with-hidden"));
        for name in [".env.local", "with-hidden/.env", "with-hidden/shown"] {
            ground.write(&ground.tree.join(name), SECRET);
        }
        let place = ground.path().to_str().unwrap();
        let options = ["--draft=tree", &option, "--also-write", place];
        // Begins it, so that there is a layer.
        succeeded(&ground.shell(&options[..2], "echo first >file"));
        let layer = drafts.join("tree/upper");
        let more = [
            ("drafts", json!(drafts)),
            ("elsewhere", json!(elsewhere.join("drafts"))),
            ("handle", handle(&layer)),
            ("of_tree", json!(of_tree)),
        ];
        let output = run(&mut inside(&ground, &options, ATTEMPTS, &more));
        assert_inside(ground.who, &output, EXPECTED);
        for name in ["opaque", ".git"] {
            let found = attributes(&layer.join(name));
            assert!(found.contains("user.overlay.overlay.redirect"), "{found}");
            assert!(!found.contains("user.overlay.redirect"), "{found}");
        }
        let tree = &ground.tree;
        for (name, content) in [
            (".env", SECRET),
            ("with-hidden/.env", SECRET),
            ("file", "content"),
        ] {
            assert_eq!(fs::read_to_string(tree.join(name)).unwrap(), content);
        }
        for name in ["opaque", "by-mount"] {
            assert!(!tree.join(name).exists(), "{}", stderr(&output));
        }
    }
}
