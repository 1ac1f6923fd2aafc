//! The control socket of a mount: `thrufs explain` and `thrufs ctl`.

use crate::ground::mount_line;
use crate::ground::prelude::*;
use rustix::mount::mount_bind;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;

/// The usual control socket of the topmost mount at this path.
fn socket_of(mountpoint: &Path) -> PathBuf {
    let line = mount_line(mountpoint);
    let device = line.split(' ').nth(2).expect("it is mounted");
    PathBuf::from(format!("/run/thrufs/{}.socket", device.replace(':', "-")))
}

struct Mounted {
    ground: Ground,
    server: Foreground,
    socket: PathBuf,
}

impl Deref for Mounted {
    type Target = Ground;

    fn deref(&self) -> &Ground {
        &self.ground
    }
}

impl Mounted {
    fn ends(self) {
        let said = self.server.ends_by(Signal::TERM);
        for word in ["panicked", "WARN", "not filtered"] {
            assert!(!said.contains(word), "{said}");
        }
    }
}

fn mounted(arguments: &[&str]) -> Option<Mounted> {
    Some(mounted_on(Ground::new()?, arguments))
}

fn mounted_on(ground: Ground, arguments: &[&str]) -> Mounted {
    let server = ground.mount_in_foreground(arguments);
    let socket = socket_of(&ground.mnt);
    if !arguments.concat().contains("control") {
        wait_for("the socket", || socket.exists());
    }
    Mounted {
        ground,
        server,
        socket,
    }
}

fn explain(path: &Path) -> Value {
    let output = thrufs!("explain", "--json", path);
    succeeded(&output);
    let mut array: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(array.len(), 1);
    array.remove(0)
}

fn refused(path: &Path, part: &str) -> String {
    fails(&thrufs!("explain", path), 1, part)
}

fn opens(path: &Path) -> (u64, u64) {
    let explained = explain(path);
    let number = |name: &str| explained["opens"][name].as_u64().unwrap();
    (number("total"), number("writable"))
}

/// Sends an explain request as another program would.
fn ask(socket: &Path, path: &str) -> String {
    let request = format!("{{\"version\":1,\"command\":\"explain\",\"path\":\"{path}\"}}\n");
    let mut stream = UnixStream::connect(socket).unwrap();
    let patience = Some(LIMIT);
    stream.set_read_timeout(patience).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line
}

#[test]
fn files_are_explained_while_open_and_after() {
    for (options, path, why) in [
        (&[][..], "passthrough", "the kernel reads and writes"),
        (&["--nopassthrough"], "cached", "data are cached"),
    ] {
        let Some(ground) = mounted(options) else {
            return;
        };
        assert_explained_while_open_and_after(&ground, path, why);
        ground.ends();
    }
}

fn assert_explained_while_open_and_after(ground: &Ground, data_path: &str, why: &str) {
    let file = ground.mnt.join("file");
    let ino = fs::metadata(ground.src.join("file")).unwrap().ino();
    let open = [
        File::open(&file).unwrap(),
        fs::OpenOptions::new().append(true).open(&file).unwrap(),
    ];
    let explained = explain(&file);
    assert_eq!(explained["kind"], "regular");
    assert_eq!(explained["ino"], ino);
    assert_eq!(explained["data_path"], data_path);
    let has_backing = explained["backing"].as_u64().is_some();
    assert_eq!(has_backing, data_path == "passthrough", "{explained}");
    assert_eq!(explained["cache"]["mode"], "auto");
    // Events do not tell of what the kernel writes itself.
    let (followed, seconds) = match data_path {
        "passthrough" => (false, 1.0),
        _ => (true, 3600.0),
    };
    assert_eq!(explained["cache"]["followed"], followed);
    assert_eq!(explained["cache"]["entry_timeout_s"], seconds);
    assert_eq!(opens(&file), (2, 1));
    assert_eq!(explained["mountpoint"], ground.mnt.to_str().unwrap());

    let moved = ground.mnt.join("moved");
    fs::rename(&file, &moved).unwrap();
    assert_eq!(opens(&moved), (2, 1), "the same file by another name");
    refused(&file, "No such file");
    drop(open);
    wait_for("RELEASE", || opens(&moved) == (0, 0));

    let text = stdout(&thrufs!("explain", &moved, &ground.mnt));
    let line = format!("data path   {data_path}: not open; it would be: {why}");
    assert!(text.contains(&line), "{line} in {text}");
    fs::rename(&moved, &file).unwrap();
}

#[test]
fn explain_says_how_long_and_for_which_maps_the_first_open_will_be_good() {
    let Some(ground) = mounted(&["--nopassthrough"]) else {
        return;
    };
    let file = ground.mnt.join("unknown");
    let mut append = fs::OpenOptions::new();
    append.append(true).create(true);
    let writer = append.open(ground.src.join("unknown")).unwrap();
    let explained = explain(&file);
    assert_eq!(explained["node"], Value::Null);
    assert_eq!(explained["cache"]["followed"], true);
    for timeout in ["entry_timeout_s", "attr_timeout_s", "negative_timeout_s"] {
        assert_eq!(explained["cache"][timeout], 3600.0, "{timeout}");
    }
    assert_eq!(explained["maps_refused"], true);
    drop(writer);
    assert_eq!(explain(&file)["maps_refused"], false);
    // The mount's own writer is none on the host.
    let above = append.open(&file).unwrap();
    assert_eq!(explain(&file)["maps_refused"], false);
    drop(above);
    ground.ends();
}

#[test]
fn explain_handles_directories_symlinks_and_any_bytes() {
    let Some(ground) = mounted(&[]) else { return };
    let odd = OsStr::from_bytes(b"not \xff utf8 \xc3\xa4 100%\n");
    fs::create_dir(ground.src.join(odd)).unwrap();
    fs::write(ground.src.join(odd).join("inner"), "").unwrap();
    symlink("file", ground.src.join("link")).unwrap();
    symlink(&ground.mnt, ground.path().join("way")).unwrap();

    assert_eq!(explain(&ground.mnt.join(odd))["kind"], "directory");
    let explained = explain(&ground.mnt.join(odd).join("inner"));
    assert_eq!(explained["kind"], "regular");
    let path = explained["path"].as_str().unwrap();
    assert!(path.ends_with("not %FF utf8 ä 100%25\n/inner"), "{path}");

    assert_eq!(explain(&ground.mnt.join("link"))["kind"], "symbolic_link");
    let way = ground.path().join("way");
    assert_eq!(explain(&way.join("file"))["kind"], "regular");
    let error = refused(&way, "not on a thrufs mount");
    assert!(error.contains("target of the symbolic link"), "{error}");
    // With a trailing slash, a link to a directory is followed.
    assert_eq!(explain(&way.join(""))["node"]["id"], 1);
    ground.ends();
}

#[test]
fn explain_refuses_paths_on_other_mounts() {
    let Some(ground) = mounted(&[]) else { return };
    let no_mount = "is not on a thrufs mount, but on /";
    refused(&ground.src.join("file"), no_mount);
    refused(Path::new("/proc/version"), "of type proc");
    let missing = "No such file or directory";
    refused(Path::new("/no/such/place"), missing);
    // The other paths are explained.
    let output = thrufs!("explain", "/proc/version", ground.mnt.join("file"));
    fails(&output, 1, "of type proc");
    assert!(stdout(&output).contains("regular file"));
    ground.ends();
}

#[test]
fn a_mount_is_found_however_it_is_reached() {
    let Some(ground) = mounted(&[]) else { return };
    fs::create_dir_all(ground.src.join("deep/er")).unwrap();
    fs::write(ground.src.join("deep/er/inner"), "").unwrap();
    let inner = fs::metadata(ground.src.join("deep/er/inner"));
    let ino = inner.unwrap().ino();
    let bound = ground.path().join("bound");
    fs::create_dir(&bound).unwrap();
    mount_bind(ground.mnt.join("deep"), &bound).unwrap();
    assert_eq!(explain(&bound.join("er/inner"))["ino"], ino);
    let explained = explain(&bound);
    assert_eq!(explained["kind"], "directory");
    let id = &explained["node"]["id"];
    assert_ne!(*id, 1, "a directory that was bound is no root");
    // The kernel above drops a name that is moved beneath, and shows its bind mount as deleted.
    let (deep, moved) = (ground.src.join("deep"), ground.src.join("moved"));
    fs::rename(&deep, &moved).unwrap();
    fs::rename(&moved, &deep).unwrap();
    wait_for("the kernel to drop the name", || {
        mount_line(&bound).contains("//deleted")
    });
    assert_eq!(explain(&bound)["node"]["id"], *id);
    assert_eq!(explain(&bound.join("er/inner"))["ino"], ino);
    // A bind mount of a single file.
    let file = ground.path().join("one");
    fs::write(&file, "beneath").unwrap();
    mount_bind(ground.mnt.join("deep/er/inner"), &file).unwrap();
    assert_eq!(explain(&file)["ino"], ino);
    let output = run(Command::new(THRUFS)
        .args(["explain", "--json", "../er/inner"])
        .current_dir(ground.mnt.join("deep/er")));
    succeeded(&output);
    assert!(stdout(&output).contains(&ino.to_string()));
    for path in [&bound, &file] {
        detach(path);
    }
    ground.ends();
}

#[test]
fn stacked_mounts_are_queried_by_their_own_files() {
    let Some(lower) = mounted(&["--cache=never"]) else {
        return;
    };
    let beneath = lower.mnt.clone();
    let other = lower.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("file"), "content").unwrap();
    let open = File::open(&beneath).unwrap();
    succeeded(&thrufs!("mount", "--cache=always", &other, &beneath));
    assert_ne!(socket_of(&beneath), lower.socket);
    assert_eq!(explain(&beneath.join("file"))["cache"]["mode"], "always");
    // A process whose working directory is on the covered mount.
    let fd = open.as_raw_fd();
    let below = run(Command::new("sh")
        .args(["-c", "cd \"$1\" && exec \"$2\" explain --json file", "sh"])
        .arg(format!("/proc/{}/fd/{fd}", std::process::id()))
        .arg(THRUFS));
    succeeded(&below);
    let explained: Value = serde_json::from_slice(&below.stdout).unwrap();
    assert_eq!(explained[0]["cache"]["mode"], "never");
    drop(open);
    ground::unmount(&beneath);
    assert_eq!(explain(&beneath.join("file"))["cache"]["mode"], "never");
    lower.ends();
}

#[test]
fn mounts_in_the_source_are_explained_after_a_lookup() {
    let Some(ground) = Ground::new() else { return };
    let ground = mounted_on(ground.propagating(), &[]);
    let inside = ground.src.join("inside");
    fs::create_dir(&inside).unwrap();
    mount_tmpfs(&inside);
    fs::write(inside.join("file"), "").unwrap();
    let elsewhere = format!("\"errno\":{}", libc::EXDEV);
    let reply = ask(&ground.socket, "inside/file");
    assert!(reply.contains(&elsewhere), "{reply}");
    let explained = explain(&ground.mnt.join("inside/file"));
    assert_eq!(explained["lower"]["file_system"], "tmpfs");
    assert_eq!(explained["lower"]["memory"], true);
    // The mount, bound into its own source, is not entered.
    let own = ground.src.join("own");
    fs::create_dir(&own).unwrap();
    mount_bind(&ground.mnt, &own).unwrap();
    let reply = ask(&ground.socket, "own/file");
    assert!(reply.contains(&elsewhere), "{reply}");
    ground.assert_serves();
    for path in [&own, &inside] {
        detach(path);
    }
    ground.ends();
}

#[test]
fn only_its_user_and_root_may_ask() {
    let Some(ground) = mounted(&["--allow-other"]) else {
        return;
    };
    let socket = ground.socket.clone();
    let metadata = fs::symlink_metadata(&socket).unwrap();
    assert!(metadata.file_type().is_socket());
    assert_eq!((metadata.mode() & 0o7777, metadata.uid()), (0o600, 0));
    let directory = fs::metadata("/run/thrufs").unwrap();
    assert_eq!((directory.mode() & 0o022, directory.uid()), (0, 0));

    let program = ground::copied_program(ground.path());
    let as_other_user = || {
        let mut command = Command::new(&program);
        command.arg("explain").arg(ground.mnt.join("file"));
        run(command.current_dir("/").uid(65_534).gid(65_534))
    };
    let error = fails(&as_other_user(), 1, "only user 0");
    assert!(error.contains("root"), "{error}");

    // The server checks the peer's user, independent of the mode.
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).unwrap();
    fails(&as_other_user(), 1, "");
    ground.ends();
}

#[test]
fn mount_of_an_ordinary_user_is_queried_by_that_user_and_root() {
    const USER: u32 = 65_534;
    let Some(ground) = Ground::new() else { return };
    let test = "control::mount_of_an_ordinary_user_is_queried_by_that_user_and_root";
    if !ground::users_can_mount(ground.path(), test) {
        return;
    }
    let program = ground::copied_program(ground.path());
    let runtime = ground.path().join("runtime");
    fs::create_dir(&runtime).unwrap();
    for directory in [&ground.src, &ground.mnt, &runtime] {
        chown(directory, Some(USER), Some(USER)).unwrap();
    }
    let user = |runtime: Option<&Path>, arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.env_remove("XDG_RUNTIME_DIR");
        command.envs(runtime.map(|path| ("XDG_RUNTIME_DIR", path)));
        run(command.args(arguments).current_dir("/").uid(USER).gid(USER))
    };
    let [src, mnt] = [&ground.src, &ground.mnt].map(|path| path.to_str().unwrap());
    let (mount, unmount) = (["mount", src, mnt], ["unmount", mnt]);
    let file = ground.mnt.join("file");
    let ask = ["explain", file.to_str().unwrap()];

    succeeded(&user(Some(&runtime), &mount));
    let names = fs::read_dir(runtime.join("thrufs")).unwrap();
    let socket = names.map(|name| name.unwrap().path()).next().unwrap();
    let mode = |path: &Path| fs::symlink_metadata(path).unwrap().mode() & 0o7777;
    assert_eq!(
        (mode(&runtime.join("thrufs")), mode(&socket)),
        (0o700, 0o600)
    );
    let output = user(Some(&runtime), &ask);
    succeeded(&output);
    assert!(stdout(&output).contains("regular file"));
    // Root may not access the mount, but may query its server.
    let output = thrufs!("ctl", "--control", &socket, &ground.mnt, "statistics");
    succeeded(&output);
    kill_process(ground.process("--supervisor"), Signal::TERM).unwrap();
    ground.wait_gone();
    wait_for("the socket to go", || !socket.exists());

    // Without a runtime directory, as under su(1) and cron(8).
    let private = Path::new("/tmp/thrufs-65534");
    // It stays, empty, after the user's last mount.
    let _ = fs::remove_dir(private);
    if Path::new("/run/user/65534").exists() || private.exists() {
        return skipped("a user without a runtime directory: this one has one");
    }
    let output = user(None, &mount);
    succeeded(&output);
    let said = stderr(&output);
    assert!(
        said.lines().count() == 1 && said.contains("passthrough is off"),
        "{said}"
    );
    assert_eq!(mode(private), 0o700);
    // Whoever asks may have one.
    for runtime in [None, Some(&*runtime)] {
        succeeded(&user(runtime, &ask));
    }
    succeeded(&thrufs!("ctl", &ground.mnt, "statistics"));
    ground::unmounts(|| user(None, &unmount));
    ground.wait_gone();
    // What another user has made there is not used.
    fs::remove_dir(private).unwrap();
    symlink(&runtime, private).unwrap();
    fails(&user(None, &mount), 0, "no control socket");
    fails(&user(None, &ask), 1, "no control socket");
    ground::unmounts(|| user(None, &unmount));
    fs::remove_file(private).unwrap();
    // Nor is a directory of another user, which su(1) leaves in the variable.
    succeeded(&user(Some(ground.path()), &mount));
    succeeded(&user(None, &ask));
    ground::unmounts(|| user(None, &unmount));
    ground.wait_gone();
    fs::remove_dir(private).unwrap();
}

#[test]
fn hostile_clients_block_neither_the_mount_nor_others() {
    let Some(ground) = mounted(&["--cache=never"]) else {
        return;
    };
    let socket = ground.socket.clone();
    // Idle clients beyond the limit. More: `control::server::tests`.
    let connect = || UnixStream::connect(&socket).unwrap();
    let silent: Vec<UnixStream> = (0..100).map(|_| connect()).collect();
    assert_eq!(opens(&ground.mnt.join("file")), (0, 0));
    // Paths that escape the source.
    symlink("/", ground.src.join("out")).unwrap();
    for path in ".. ../etc/passwd /etc/passwd out/etc %2e%2e a%00".split(' ') {
        let reply = ask(&socket, path);
        assert!(reply.contains("\"error\""), "{path}: {reply}");
    }
    ground.assert_serves();
    wait_for("RELEASE", || opens(&ground.mnt.join("file")) == (0, 0));
    drop(silent);
    ground.ends();
}

#[test]
fn query_of_a_mount_without_control_socket_names_the_option() {
    let Some(ground) = mounted(&["--control=none"]) else {
        return;
    };
    // One of a mount that was killed may be there.
    UnixStream::connect(&ground.socket).unwrap_err();
    refused(&ground.mnt.join("file"), "control=none");
    ground.ends();
}

#[test]
fn control_option_sets_the_path_of_the_socket() {
    let Some(ground) = Ground::new() else { return };
    let place = ground.path().join("my socket");
    let control = format!("--control={}", place.display());
    fs::write(&place, "a file").unwrap();
    let output = ground.mount(&[&control]);
    fails(&output, 1, "not a stale socket");
    assert!(!ground.is_mounted());
    fs::remove_file(&place).unwrap();

    succeeded(&ground.mount(&[&control]));
    assert!(place.exists(), "and no other");
    let file = ground.mnt.join("file");
    refused(&file, "use --control PATH");
    succeeded(&thrufs!("explain", "--control", &place, &file));
    ground::unmount_by_command(&ground.mnt);
    assert!(!place.exists());
}

#[test]
fn control_socket_is_removed_however_the_mount_ends() {
    for end in ["unmount", "signal", "worker"] {
        let Some(ground) = Ground::new() else { return };
        succeeded(&ground.mount(&["-o", "auto_unmount"]));
        let socket = socket_of(&ground.mnt);
        assert!(socket.exists(), "when the mount is there");
        let kill = |role, signal| kill_process(ground.process(role), signal).unwrap();
        match end {
            "unmount" => ground::unmount(&ground.mnt),
            "signal" => kill("--supervisor", Signal::TERM),
            _ => kill("--worker", Signal::KILL),
        }
        ground.wait_gone();
        // Another mount may reuse the number: its socket has a listener.
        wait_for(&format!("the socket to go ({end})"), || {
            !socket.exists() || UnixStream::connect(&socket).is_ok()
        });
    }
}

#[test]
fn stale_control_socket_is_recognised_and_removed() {
    let Some(ground) = mounted(&["--control=none"]) else {
        return;
    };
    let socket = ground.socket.clone();
    // A stale socket, as of a killed supervisor. Mounts of other tests may remove it.
    wait_for("an answer about a socket that was left", || {
        drop(UnixListener::bind(&socket));
        let refused = refused(&ground.mnt.join("file"), "");
        refused.contains("no server listens at")
    });
    let other = ground.path().join("other");
    fs::create_dir(&other).unwrap();
    succeeded(&thrufs!("mount", &ground.src, &other));
    assert!(!socket.exists(), "the next one to make a socket sweeps");
    ground::unmount_by_command(&other);
    ground.ends();
}
