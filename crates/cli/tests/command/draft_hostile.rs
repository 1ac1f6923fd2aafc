//! `thrufs draft apply`, of layers and on trees that lead elsewhere.

use crate::draft_apply::Trees;
use crate::ground;
use crate::run_ground::{EVERYONE, PYTHON, SECRET, Who, grounds};
use std::fs;
use std::os::unix::fs::{MetadataExt, lchown, symlink};
use std::path::Path;
use std::process::Command;

/// What is in a layer may be anything: here it is changed past overlayfs.
#[test]
fn layers_that_lie_reach_nothing_outside_of_the_tree() {
    for ground in grounds(EVERYONE) {
        let trees = Trees::new(ground);
        let tree = trees.ground.tree.clone();
        let who = trees.ground.who;
        trees.outside(&tree, "mkdir conf swapped linked; echo keep >conf/.env; echo 1 >conf/x; echo s >swapped/f; echo l >linked/f");
        trees.draft(
            &[],
            "echo draft >swapped/f; echo draft >linked/f; rm file; mkdir conf.new",
        );
        let outside = trees.ground.sibling.join("file");
        let layer = "rm -r swapped; ln -s ../../../around/sibling swapped; mkfifo pipe; ln -s /etc/passwd link; \
            ln -s /etc etc; rmdir conf.new; mkdir conf; mkdir -p a/b .git/hooks; echo evil >.git/hooks/pre-commit; \
            echo secret >.env; mkdir -p .aws; echo key >.aws/credentials; \
            echo x >\"$(printf 'es\\033[31mc\\n')\"; python3 -c '
import os
os.setxattr(\"conf\", \"user.overlay.opaque\", b\"y\")
for _ in range(300):
    os.mkdir(\"d\" * 200); os.chdir(\"d\" * 200)
os.close(os.open(\"far\", os.O_CREAT))
for _ in range(100):
    os.mkdir(\"d\" * 250); os.chdir(\"d\" * 250)
'";
        let mut shell = Command::new("sh");
        shell.args(["-ec", layer]).current_dir(trees.upper());
        ground::succeeded(&ground::run(&mut shell));
        let device = || rustix::fs::makedev(1, 3);
        let null = trees.upper().join("null");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            null,
            rustix::fs::FileType::CharacterDevice,
            0o666.into(),
            device(),
        )
        .unwrap();
        // Whiteouts of what is hidden.
        for name in ["conf/.env", ".git/config"] {
            let name = trees.upper().join(name);
            rustix::fs::mknodat(
                rustix::fs::CWD,
                name,
                rustix::fs::FileType::CharacterDevice,
                0.into(),
                0,
            )
            .unwrap();
        }
        let owner = fs::metadata(trees.upper()).unwrap().uid();
        ground::succeeded(&ground::run(
            Command::new("chown")
                .args(["-hR", &format!("{owner}:{owner}")])
                .arg(trees.upper()),
        ));
        // The tree leads out, too.
        fs::remove_dir_all(tree.join("linked")).unwrap();
        symlink(&trees.ground.sibling, tree.join("linked")).unwrap();
        let of_tree = fs::metadata(&tree).unwrap().uid();
        lchown(tree.join("linked"), Some(of_tree), Some(of_tree)).unwrap();
        let said = ground::stderr(&trees.run("apply", &["--force"]));
        let read = |path: &str| fs::read_to_string(tree.join(path)).ok();
        assert_eq!(
            fs::read_to_string(&outside).unwrap(),
            "sibling",
            "{who:?}: {said}"
        );
        assert_eq!(
            fs::read_dir(&trees.ground.sibling).unwrap().count(),
            1,
            "{who:?}"
        );
        assert_eq!(read(".env").as_deref(), Some(SECRET), "{who:?}");
        assert_eq!(read("conf/.env").as_deref(), Some("keep\n"), "{who:?}");
        assert_eq!(read("conf/x"), None, "{who:?}: {said}");
        assert_eq!(
            read(".git/hooks/pre-commit").as_deref(),
            Some("#!/bin/sh\n"),
            "{who:?}"
        );
        assert!(
            tree.join(".git/config").exists()
                && !tree.join("null").exists()
                && !tree.join("file").exists()
        );
        for (name, target) in [
            ("link", "/etc/passwd"),
            ("etc", "/etc"),
            ("swapped", "../../../around/sibling"),
        ] {
            assert_eq!(
                fs::read_link(tree.join(name)).unwrap(),
                Path::new(target),
                "{who:?}: {said}"
            );
        }
        assert_eq!(
            read("linked/f").as_deref(),
            Some("draft\n"),
            "{who:?}: {said}"
        );
        assert!(
            !fs::symlink_metadata(tree.join("linked"))
                .unwrap()
                .is_symlink()
        );
        for refused in [
            "\nthrufs: .env: ",
            ".git/hooks/pre-commit: ",
            "null: not applied: a device",
            "\nthrufs: what is refused is in ",
            "cannot be read",
        ] {
            assert!(said.contains(refused), "{who:?}: {refused:?} in {said}");
        }
        assert!(
            !said.contains("conf/.env") && !said.contains('\x1b'),
            "{said}"
        );
        let names = fs::read_dir(&tree).unwrap().filter(|it| {
            it.as_ref()
                .unwrap()
                .path()
                .to_string_lossy()
                .contains("thrufs-apply")
        });
        assert_eq!(names.count(), 0);
        let far = "import os\nfor _ in range(300): os.chdir('d' * 200)\nos.stat('far')";
        let mut python = Command::new(PYTHON);
        ground::succeeded(&ground::run(python.args(["-c", far]).current_dir(&tree)));
    }
}

/// A directory of the tree and a link out of it are exchanged all the time.
#[test]
fn apply_follows_no_link_that_takes_the_place_of_a_directory() {
    for ground in grounds([Who::User, Who::RootOnTreeOfUser]) {
        let trees = Trees::new(ground);
        let tree = trees.ground.tree.clone();
        let sibling = trees.ground.sibling.clone();
        let change =
            "mkdir -p d; for i in $(seq 30); do echo draft >d/f$i; done; rm -f d/file d/old";
        for _ in 0..10 {
            trees.outside(
                &tree,
                "rm -rf d link; mkdir d; echo tree >d/file; echo old >d/old; ln -s ../sibling link",
            );
            trees.draft(&["--profile", "none"], change);
            let (from, to) = (tree.join("d"), tree.join("link"));
            let exchange = || {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                let _ =
                    rustix::fs::renameat_with(rustix::fs::CWD, &from, rustix::fs::CWD, &to, flags);
            };
            thrufs_testing::while_repeating([exchange], || trees.run("apply", &["--force"]));
            let names = fs::read_dir(&sibling).unwrap();
            let names: Vec<_> = names.map(|it| it.unwrap().file_name()).collect();
            assert_eq!(names, ["file"], "{:?}", trees.ground.who);
            assert_eq!(fs::read_to_string(sibling.join("file")).unwrap(), "sibling");
            if !trees.is_gone() {
                ground::succeeded(&trees.run_bare(&["discard", "t"]));
            }
        }
    }
}
