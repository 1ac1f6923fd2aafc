//! Podman's command of docs/workspaces.md. Only with `--full`, as its packages are.

use crate::ground::prelude::*;
use crate::workspace::{PAGE, REFUSED, USER, Workspace};

/// What the machine that runs the tests may forbid or lack: cgroups of version 2 that can be written, limits
/// that can be raised, a network, overlays.
const CONFIGURATION: &str = r#"
[containers]
cgroups = "disabled"
default_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]
netns = "none"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
"#;

/// For root in namespaces of its own: the rest of what it may lack (a shared root mount, ids for the users of
/// containers, no cgroups of version 1), and empty directories for what podman leaves.
const PREPARE: &str = r#"
    mount --make-rshared /
    if [ ! -e /sys/fs/cgroup/cgroup.controllers ]; then
        mount -t cgroup2 none /sys/fs/cgroup
    fi
    echo "$ID:100000:65536" >"$PLACE/ids"
    mount --bind "$PLACE/ids" /etc/subuid
    mount --bind "$PLACE/ids" /etc/subgid
    mount -t tmpfs none /run
    mount -t tmpfs none /var/lib
"#;

const IMPORT: &str =
    r#"podman import --quiet "$PLACE/image.tar" localhost/image >"$HOME/imported""#;

const IMAGE: &str = r#"
    mkdir -p image/bin
    cp "$(command -v busybox)" image/bin/busybox
    for name in cat id ln ls mkdir mv rm sh true umount; do ln -s busybox image/bin/$name; done
    tar -C image -cf image.tar bin
"#;

struct Podman {
    workspace: Workspace,
    /// The page's, with the view, the image and what it runs of the test.
    command: String,
}

impl Podman {
    /// `None` without `--full`. `None`, and a report, where podman is missing or runs no container.
    fn new() -> Option<Podman> {
        if !thrufs_test_report::is_full() {
            return None;
        }
        for program in ["podman", "crun", "newuidmap", "busybox"] {
            if !PathBuf::from("/usr/bin").join(program).exists() {
                skipped(&format!("no {program} (cargo xtask setup)"));
                return None;
            }
        }
        let workspace = Workspace::new()?;
        let place = workspace.ground.path();
        let mut shell = Command::new("sh");
        succeeded(&run(shell.args(["-ec", IMAGE]).current_dir(place)));
        fs::write(place.join("containers.conf"), CONFIGURATION).unwrap();
        succeeded(&workspace.on_the_host("mkdir -m 700 \"$HOME/run\""));
        let line = PAGE.lines().find(|line| line.starts_with("$ podman run "));
        let mut command = line.unwrap()[2..].to_owned();
        for (from, to) in [
            ("\"$XDG_RUNTIME_DIR/view:", "\"$VIEW:"),
            (" IMAGE npm install", " localhost/image sh -c \"$SCRIPT\""),
        ] {
            assert!(command.contains(from), "{from} in {command}");
            command = command.replace(from, to);
        }
        let podman = Podman { workspace, command };
        let tried = podman.podman(false, "podman run --rm localhost/image true", "");
        if !tried.status.success() {
            skipped(&format!("podman: {}", stderr(&tried)));
            return None;
        }
        Some(podman)
    }

    /// Runs a script by the page's command as the user, or as root, with more options.
    fn run(&self, is_root: bool, options: &str, script: &str) -> Output {
        let command = self.command.replacen("run", &format!("run {options}"), 1);
        self.podman(is_root, &command, script)
    }

    /// Runs a command of podman, in namespaces that end with it.
    fn podman(&self, is_root: bool, command: &str, script: &str) -> Output {
        let Workspace { ground, home, .. } = &self.workspace;
        let (to_user, home) = match is_root {
            true => (String::new(), PathBuf::from("/run")),
            false => {
                let ids = format!("--reuid {USER} --regid {USER} --clear-groups");
                (format!("setpriv {ids}"), home.clone())
            }
        };
        let others = ground::WITHOUT_OTHERS;
        let outside = format!("{others}\n{PREPARE}\nexec {to_user} sh -ec \"$INSIDE\"");
        let mut shell = Command::new("unshare");
        shell.args(["--mount", "--propagation", "private", "--pid", "--fork"]);
        shell.args(["--kill-child", "--mount-proc", "sh", "-ec", &outside, "sh"]);
        shell.arg(&ground.mnt).current_dir("/").env_clear();
        shell.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        shell.env("XDG_RUNTIME_DIR", home.join("run"));
        shell.env("CONTAINERS_CONF", ground.path().join("containers.conf"));
        shell.env("STORAGE_DRIVER", "vfs").env("HOME", home);
        shell
            .env("ID", USER.to_string())
            .env("PLACE", ground.path());
        // With the number of a process of an earlier PID namespace, whose user namespace it would enter.
        let forget = "rm -rf \"$XDG_RUNTIME_DIR/libpod\"";
        shell.env("INSIDE", format!("{forget}\n{IMPORT}\n{command}"));
        shell.env("SCRIPT", script).env("VIEW", &ground.mnt);
        run(&mut shell)
    }

    /// The view in a container, where the process has this user id.
    fn assert_guarded(&self, is_root: bool, options: &str, id: u32) {
        let beneath = format!("ls {}", self.workspace.ground.src.display());
        let own = [
            (beneath.as_str(), "No such file"),
            ("umount /work", "Operation not permitted"),
        ];
        let refused: Vec<_> = own.iter().chain(REFUSED).collect();
        // Of this run alone: the kernel knows a name for a second after the file is removed beneath.
        let new = format!("new-{is_root}-{id}");
        let mut script = format!("id -u; ls -A1; echo new >{new}; echo BEGIN\n");
        for (command, _) in &refused {
            script += &format!(
                "if said=$(sh -c '{command}' 2>&1); then echo DONE; else echo $said; fi\n"
            );
        }
        let output = self.run(is_root, options, &script);
        succeeded(&output);
        let said = stdout(&output).replace('\r', "");
        let (seen, answers) = said.split_once("BEGIN\n").expect(&said);
        assert_eq!(seen, format!("{id}\n.docker\n.git\n.gitignore\nfile\n"));
        assert_eq!(answers.lines().count(), refused.len(), "{answers}");
        for (answer, (command, error)) in answers.lines().zip(refused) {
            assert!(answer.contains(error), "{error} in {answer} of {command}");
        }
        let new = self.workspace.ground.src.join(new);
        assert_eq!(fs::read(&new).unwrap(), b"new\n");
        assert_eq!(fs::metadata(&new).unwrap().uid(), USER);
        fs::remove_file(new).unwrap();
    }
}

#[test]
fn podman_on_a_mount_of_its_user_has_no_secrets() {
    let Some(podman) = Podman::new() else {
        return;
    };
    let test = "podman::podman_on_a_mount_of_its_user_has_no_secrets";
    if !ground::users_can_mount(podman.workspace.ground.path(), test) {
        return;
    }
    podman.workspace.mount_as_user();
    podman.assert_guarded(false, "", 0);
    // As the page says: by the kernel, only the user itself can enter.
    let kept = podman.run(false, "--userns=keep-id", "ls");
    fails(&kept, 126, "Permission denied");
    let other = podman.run(false, "--user=5", "cat file");
    assert!(stdout(&other).contains("Permission denied"), "{other:?}");
    podman.workspace.unmount_as_user();
}

#[test]
fn podman_on_a_mount_of_root_has_no_secrets() {
    let Some(podman) = Podman::new() else {
        return;
    };
    podman.workspace.mount_as_root();
    podman.assert_guarded(false, "", 0);
    podman.assert_guarded(false, "--userns=keep-id", USER);
    podman.assert_guarded(true, &format!("--user={USER}:{USER}"), USER);
    podman.workspace.unmount_as_root();
}
