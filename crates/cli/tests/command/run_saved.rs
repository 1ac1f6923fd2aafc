//! `thrufs run`: options that are saved for a tree.

use crate::ground::prelude::*;
use crate::run_ground::{RunGround, Who, of_both};

/// Its `run.toml`, with this content.
fn saved(ground: &RunGround, content: &str) -> PathBuf {
    let directory = ground.home.join(".config/thrufs");
    if !directory.exists() {
        ground.make_directory(directory.parent().unwrap());
        ground.make_directory(&directory);
    }
    let file = directory.join("run.toml");
    ground.write(&file, content);
    file
}

fn shown(ground: &RunGround, options: &[&str]) -> Output {
    let mut command = ground.starter(&ground.program);
    run(command
        .args(["run", "--show"])
        .args(options)
        .arg(&ground.tree))
}

#[test]
fn saved_options_hold_for_the_tree_and_what_is_given_is_added() {
    for ground in of_both() {
        ground.write(&ground.tree.join("other"), "other");
        let output = ground.shell(&["--hide", "file", "--save"], "! test -e file");
        succeeded(&output);
        succeeded(&ground.shell(&[], "! test -e file; test -e other"));
        succeeded(&ground.shell(&["--hide=other"], "! test -e file; ! test -e other"));
        succeeded(&ground.shell(&["--no-saved"], "test -e file"));
        let file = ground.home.join(".config/thrufs/run.toml");
        let text = fs::read_to_string(&file).unwrap();
        let tree = ground.tree.display();
        assert_eq!(
            text,
            format!("[[tree]]\npath = \"{tree}\"\nhide = [\"file\"]\n")
        );
        let output = shown(&ground, &[]);
        let first = format!("# {}, line 1: --hide=file\n\n", file.display());
        assert!(stdout(&output).starts_with(&first), "{output:?}");
        // Without a command, and instead of what was saved.
        let mut command = ground.starter(&ground.program);
        let options = ["run", "--report", "--also=.", "-o", "log=error", "--save"];
        succeeded(&run(command.args(options).arg(&ground.tree)));
        let text = fs::read_to_string(&file).unwrap();
        let expected = "also = [\"/\"]\nreport = true\noptions = [\"log=error\"]\n";
        assert!(text.ends_with(expected), "{text}");
    }
}

#[test]
fn the_deepest_entry_counts_and_the_rest_of_the_file_is_kept() {
    let Some(ground) = RunGround::new(Who::User) else {
        return;
    };
    let (log, other) = (ground.home.join("log"), ground.home.join("other"));
    let content = format!(
        "# First.\n[[tree]]\npath = {:?} # around\nhide = \"file\"\n\n# Second.\n[[tree]]\npath = {:?}\n\
         audit = \"~/log\"\nonly = false\n\n# Third.\n[[tree]]\npath = \"/\"\nonly = true\n",
        ground.around, ground.tree
    );
    let file = saved(&ground, &content);
    succeeded(&ground.shell(&[], "test -e file; test -e ~/.config"));
    assert!(log.exists());
    let given = format!("--audit={}", other.display());
    succeeded(&ground.shell(&[&given], "true"));
    assert!(other.exists());
    succeeded(&ground.shell(&["--deny=file", "--save"], "! cat file"));
    let text = fs::read_to_string(&file).unwrap();
    let second = "audit = \"~/log\"\nonly = false\n";
    assert_eq!(text, content.replace(second, "deny = [\"file\"]\n"));
}

#[test]
fn saved_options_that_are_wrong_or_of_others_are_refused() {
    let Some(ground) = RunGround::new(Who::User) else {
        return;
    };
    let entry = |keys: &str| format!("[[tree]]\npath = \"/\"\n{keys}\n");
    // The file, or what follows the path of an entry, and the message.
    let cases = "\
tree = 1 > run.toml: line 1: only [[tree]] is known here
[[tree] > run.toml: line 1:
[[tree]];only = true > line 1: `path` is missing
  hidden = 1 > line 3: `hidden` is no option that can be saved
  show = true > line 3: `show` is no option
  ;hide = [1] > line 4: `hide` is a text, or a list of texts
  only = ['x'] > line 3: unexpected value 'x' for '--only'
  only = 1 > line 3: `only` is true or false
  also = 'here' > line 3: `here` must begin with / or ~/
  profile = 'x' > line 3: invalid value 'x' for '--profile <NAME>'";
    for case in cases.lines() {
        let (content, expected) = case.split_once(" > ").unwrap();
        let content = content.replace(';', "\n");
        let keys = content.strip_prefix("  ").map(entry);
        let content = keys.unwrap_or(content);
        saved(&ground, &content);
        fails(&ground.shell(&[], "true"), 125, expected);
    }
    let file = saved(&ground, &entry("only = true"));
    let all = fs::Permissions::from_mode(0o666);
    fs::set_permissions(&file, all).unwrap();
    fails(
        &ground.shell(&[], "true"),
        125,
        "others must not write to it",
    );
    let mut command = ground.thrufs_run(&[]);
    ground.make_directory(&ground.tree.join("thrufs"));
    ground.write(&ground.tree.join("thrufs/run.toml"), "");
    command.env("XDG_CONFIG_HOME", &ground.tree).arg("true");
    fails(&run(&mut command), 125, "it is in the tree");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    chown(&file, Some(1), None).unwrap();
    fails(&ground.shell(&[], "true"), 125, "must belong to the user");
}

#[test]
fn command_cannot_change_saved_options_unnoticed() {
    let Some(ground) = RunGround::new(Who::User) else {
        return;
    };
    let said = "run.toml, the saved options, was changed";
    let none = ground.shell(
        &[],
        "mkdir -p ~/.config/thrufs; echo >~/.config/thrufs/run.toml",
    );
    assert!(stderr(&none).contains(said), "{none:?}");
    fs::remove_dir_all(ground.home.join(".config")).unwrap();
    saved(&ground, "");
    let tried = ground.shell(
        &[],
        "! echo >>~/.config/thrufs/run.toml; ! rm -f ~/.config/thrufs/run.toml",
    );
    succeeded(&tried);
    assert!(stderr(&tried).contains("Read-only file system"));
    assert!(!stderr(&tried).contains(said));
    let config = format!("--also-write={}", ground.home.join(".config").display());
    succeeded(&ground.shell(&["--only", &config], "! rm -f ~/.config/thrufs/run.toml"));
    // Also where a link leads.
    let (file, target) = (
        ground.home.join(".config/thrufs/run.toml"),
        ground.home.join("dotfiles.toml"),
    );
    fs::rename(&file, &target).unwrap();
    symlink(&target, &file).unwrap();
    let script = "! echo >>~/dotfiles.toml; ! rm -f ~/dotfiles.toml";
    let tried = ground.shell(&[], script);
    assert!(
        stderr(&tried).contains("Read-only file system"),
        "{tried:?}"
    );
    assert_eq!(fs::read_to_string(&target).unwrap(), "");
    fs::rename(&target, &file).unwrap();
    let moved = "mv ~/.config ~/old; mkdir -p ~/.config/thrufs; echo >~/.config/thrufs/run.toml";
    assert!(stderr(&ground.shell(&[], moved)).contains(said));
}
