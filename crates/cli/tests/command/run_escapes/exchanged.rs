//! Root's `thrufs run` on paths that a user controls: whoever may write to a directory above exchanges a name and a
//! symbolic link at any moment, or puts the link there before.

use super::{Talk, ground};
use crate::ground::prelude::*;
use crate::run_ground::{PYTHON, RunGround, SECRET, USER, Who};
use rustix::mount::{UnmountFlags, unmount};
use std::os::unix::fs::lchown;

const EXCHANGE: &str = include_str!("exchange.py");

/// Tries what only the owner of the victim may do, in all that the names lead to.
const COMMAND: &str = "for place in $PLACES; do
    cat $place/secret && : >$place/made
done 2>/dev/null; echo user $(id -u)";

/// A user's directory with a tree and a link to root's own.
struct Exchanged {
    ground: RunGround,
    link: PathBuf,
    victim: PathBuf,
}

impl Exchanged {
    fn new() -> Option<Exchanged> {
        let ground = ground(Who::RootOnTreeOfUser)?;
        let [link, victim] = [ground.around.join("link"), ground.path().join("victim")];
        fs::create_dir(&victim).unwrap();
        fs::set_permissions(&victim, fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(victim.join("secret"), SECRET).unwrap();
        led(&victim, &link);
        Some(Exchanged {
            ground,
            link,
            victim,
        })
    }

    /// Exchanges tree and link while `watched` is opened.
    fn while_opening(&self, watched: &Path) -> Talk {
        let mut exchange = Command::new(PYTHON);
        exchange.args(["-c", EXCHANGE]);
        let mut talk = Talk::start(exchange.args([watched, &self.ground.tree, &self.link]));
        talk.wait_for("marked");
        talk
    }

    fn command(&self, options: &[&str]) -> Command {
        let mut command = self.ground.thrufs_run(options);
        let places = [&self.ground.tree, &self.link, &self.victim];
        let places: Vec<&str> = places.iter().map(|it| it.to_str().unwrap()).collect();
        command.env("PLACES", places.join(" "));
        command.args(["sh", "-c", COMMAND]);
        command
    }

    /// Returns the command's output, and the errors.
    fn run(&self, options: &[&str]) -> (String, String) {
        let output = run(&mut self.command(options));
        let said = (stdout(&output), stderr(&output));
        assert!(!said.0.contains(SECRET), "{said:?}");
        self.assert_untouched(&said.1);
        said
    }

    fn assert_untouched(&self, what: &str) {
        let left = fs::read_dir(&self.victim).unwrap().count();
        let secret = fs::read_to_string(self.victim.join("secret")).unwrap();
        assert_eq!((left, secret.as_str()), (1, SECRET), "{what}");
    }
}

/// A link of the user's.
fn led(to: &Path, link: &Path) {
    symlink(to, link).unwrap();
    lchown(link, Some(USER), Some(USER)).unwrap();
}

#[test]
fn served_directory_and_its_mount_point_are_one() {
    let Some(it) = Exchanged::new() else { return };
    let tree = &it.ground.tree;
    chown(tree, Some(0), Some(0)).unwrap();
    // A name that leads to the victim when it is opened, and to the tree afterwards.
    fs::rename(&it.link, it.ground.around.join("aside")).unwrap();
    fs::rename(tree, &it.link).unwrap();
    fs::rename(it.ground.around.join("aside"), tree).unwrap();
    let mut exchange = it.while_opening(&it.victim);
    let (_, errors) = it.run(&["--profile=none"]);
    exchange.wait_for("exchanged");
    assert!(errors.contains("a symbolic link that user"), "{errors}");
}

#[test]
fn user_of_the_command_is_the_owner_of_the_served_directory() {
    let Some(it) = Exchanged::new() else { return };
    let mut exchange = it.while_opening(&it.ground.tree);
    let said = it.run(&["--profile=none"]);
    exchange.wait_for("exchanged");
    assert_eq!(said.0, format!("user {USER}\n"), "{said:?}");
}

#[test]
fn directory_that_is_moved_before_it_is_mounted_on_is_refused() {
    let Some(it) = Exchanged::new() else { return };
    // Opened after the tree, before the sandbox.
    let policy = it.ground.path().join("policy.toml");
    it.ground.write(&policy, "");
    let mut exchange = it.while_opening(&policy);
    let option = format!("--policy={}", policy.display());
    let (said, errors) = it.run(&["--profile=none", &option]);
    exchange.wait_for("exchanged");
    assert_eq!(said, "", "{errors}");
    assert!(errors.contains("in the sandbox"), "{errors}");
}

#[test]
fn links_of_a_user_lead_to_nothing_of_another_s() {
    let Some(it) = Exchanged::new() else { return };
    let place = it.ground.around.join("led");
    led(&it.victim, &place);
    led(&it.victim.join("log"), &it.ground.around.join("log"));
    led(&it.victim.join("secret"), &it.ground.around.join("file"));
    let named = |option: &str, name: &str| {
        let path = it.ground.around.join(name);
        format!("--{option}={}", path.display())
    };
    for (option, name) in [
        ("audit", "file"),
        ("audit", "log"),
        ("audit", "led/log"),
        ("also", "led"),
        ("also-write", "file"),
        ("policy", "file"),
    ] {
        let option = named(option, name);
        let (said, errors) = it.run(&["--profile=none", &option]);
        assert_eq!(said, "", "{option}: {errors}");
        let led_astray = errors.contains("a symbolic link that user");
        assert!(led_astray, "{option}: {errors}");
        it.assert_untouched(&option);
    }
    // Among files of the user's own they are followed.
    led(&it.ground.tree, &it.ground.around.join("own"));
    led(
        &it.ground.path().join("own-log"),
        &it.ground.around.join("log2"),
    );
    it.ground.write(&it.ground.path().join("own-log"), "");
    let option = named("audit", "log2");
    let mut command = it.ground.starter(Path::new(THRUFS));
    command.args(["run", "--profile=none", &option]);
    command.arg(it.ground.around.join("own"));
    let output = run(command.args(["--", "id", "-u"]));
    assert_eq!(stdout(&output), format!("{USER}\n"), "{}", stderr(&output));
}

#[test]
fn mounts_and_shares_follow_no_link_of_a_user_to_another_s() {
    let Some(it) = Exchanged::new() else { return };
    let around = &it.ground.around;
    led(&it.victim.join("log"), &around.join("log"));
    let own = it.ground.path().join("mountpoint");
    fs::create_dir(&own).unwrap();
    let (tree, link) = (it.ground.tree.as_path(), it.link.as_path());
    let log = format!("log_file={}", around.join("log").display());
    let socket = link.join("socket");
    let socket = format!("--socket={}", socket.display());
    let refused = |command: &mut Command| {
        let errors = stderr(&run(command));
        for place in [&own, &it.victim] {
            let _ = unmount(place, UnmountFlags::DETACH);
        }
        let led_astray = errors.contains("a symbolic link that user");
        assert!(led_astray, "{command:?}: {errors}");
        it.assert_untouched(&format!("{command:?}"));
    };
    let mount = |options: &[&str], source: &Path, mountpoint: &Path| {
        let mut command = Command::new(THRUFS);
        command.arg("mount").args(options);
        refused(command.args([source, mountpoint]));
    };
    mount(&[], link, &own);
    mount(&[], &it.ground.sibling, link);
    mount(&["-o", &log], tree, &own);
    let policy = format!("policy={}", around.join("policy").display());
    led(&it.victim.join("secret"), &around.join("policy"));
    mount(&["-o", &policy], tree, &own);
    let mut check = Command::new(THRUFS);
    refused(check.args(["policy", "check"]).arg(around.join("policy")));
    let mounted = it.ground.path().join("mounted");
    fs::create_dir(&mounted).unwrap();
    succeeded(&thrufs!("mount", &it.victim, &mounted));
    led(&mounted, &around.join("to-mount"));
    led(it.ground.path(), &around.join("above"));
    for path in ["to-mount", "above/mounted"] {
        refused(Command::new(THRUFS).arg("unmount").arg(around.join(path)));
    }
    succeeded(&thrufs!("unmount", &mounted));
    refused(Command::new(THRUFS).args(["share", &socket]).arg(tree));
    let socket = format!("--socket={}", own.join("s").display());
    refused(Command::new(THRUFS).args(["share", &socket]).arg(link));
}
