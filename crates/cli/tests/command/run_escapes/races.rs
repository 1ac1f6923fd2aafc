//! Secrets that are renamed, or appear, while the command looks for them.

use super::{Expected, Talk, assert_inside, ground, inside};
use crate::ground::prelude::*;
use crate::run_ground::{RunGround, SECRET, USER, Who};
use thrufs_testing::while_repeating;

const ATTEMPTS: &str = include_str!("races.py");

const EXPECTED: &[Expected<'_>] = &[
    ("secrets_that_appear", "never", ""),
    ("hidden_in_a_directory_that_is_renamed", "never", ""),
    ("file_that_gets_a_hidden_name", "ENOENT", ""),
];

/// A secret of the user, by writing a temporary file elsewhere and renaming it.
fn place(ground: &RunGround, name: &Path, content: &str) {
    let temporary = ground.path().join("temporary");
    fs::write(&temporary, content).unwrap();
    chown(&temporary, Some(USER), Some(USER)).unwrap();
    fs::rename(&temporary, name).unwrap();
}

#[test]
fn secrets_that_move_or_appear_are_never_read() {
    let Some(ground) = ground(Who::User) else {
        return;
    };
    let tree = &ground.tree;
    for directory in ["a", "x", "x/vault"] {
        ground.make_directory(&tree.join(directory));
    }
    ground.write(&tree.join("x/vault/key"), SECRET);
    ground.write(&tree.join("temporary"), "public");
    let options = ["--profile=workspace", "--hide=**/vault/key"];
    let mut talk = Talk::start(&mut inside(&ground, &options, ATTEMPTS, &[]));
    talk.wait_for("ready");
    let names = [tree.join("appears.pem"), tree.join("a/.env")];
    let appear = || {
        for name in &names {
            place(&ground, name, SECRET);
        }
        for name in &names {
            fs::remove_file(name).unwrap();
        }
    };
    while_repeating([appear], || talk.wait_for("rename"));
    fs::rename(tree.join("temporary"), tree.join("temporary.pem")).unwrap();
    assert_inside(ground.who, &talk.end(), EXPECTED);
}
