//! The process that builds the sandbox (see [`Role::Sandbox`](crate::process::Role::Sandbox)).
//!
//! It makes a mount namespace, for an ordinary user within a user namespace, mounts FUSE over the tree, hides
//! what leads out, and starts [process 1](super::init) of a PID namespace. That enters a second user
//! namespace, in which all these mounts are locked (mount_namespaces(7)). This process stays in the PID
//! namespace of the runner, whose numbers requests therefore carry, and ends with its child.
//!
//! Mounts that appear later outside do not appear here: they could show the tree. Those that go
//! [go here](super::host_mounts), for root.

use super::elsewhere::{self, Covers, Elsewhere, Part};
use super::error::{Failure, failed_to};
use super::host_mounts::{self, Copies, HostMounts};
use super::overlay;
use super::plan::{EMPTY, SandboxPlan, Shown};
use super::refused;
use super::sockets;
use super::user::RunUser;
use crate::channel::{Notice, Order, ToParent};
use crate::config::MountConfig;
use crate::confinement::{clone_tree, set_attributes};
use crate::lookup::{self, open_resolved as open};
use crate::mount_table::{self, Mount};
use crate::mounting;
use crate::output::report;
use crate::process;
use rustix::fs::{FileType, Mode, OFlags, fstat};
use rustix::io::Errno;
use rustix::mount::{
    MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags, UnmountFlags, mount,
    mount_change, move_mount,
};
use rustix::process::{Signal, kill_process};
use rustix::thread::CapabilitySet;
use std::ffi::{CString, OsString};
use std::fs;
use std::io;
use std::mem;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use thrufs_sys::cred;

/// At the mounts of the host, while what they show is covered.
const LOOKS_MAX: usize = 100;

/// The device nodes of the sandbox.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// The process. Signals of the terminal are blocked, by the runner.
pub(crate) fn main(arguments: &[OsString]) -> ExitCode {
    perform(arguments, build)
}

/// Does the work of a process of the sandbox, and reports its failure to the runner. The arguments are the number
/// of its channel, `--`, and the command.
pub(super) fn perform(
    arguments: &[OsString],
    work: fn(&ToParent, &[OsString]) -> Result<(), Failure>,
) -> ExitCode {
    let Some((runner, command)) = super::inherited(arguments) else {
        return ExitCode::FAILURE;
    };
    match work(&runner, command) {
        Ok(()) => ExitCode::SUCCESS,
        Err((step, error)) => {
            let why = format!("cannot {step}: {error}{}", refused::hint(&step, &error));
            let _ = runner.send(&Notice::Failed(why));
            ExitCode::FAILURE
        }
    }
}

fn build(runner: &ToParent, command: &[OsString]) -> Result<(), Failure> {
    let _ = rustix::thread::set_name(c"thrufs-sandbox");
    let orders = Orders::receive(runner)?;
    let served = orders.enter()?.hide(runner)?.serve(runner)?;
    served.overlay()?.cover()?.start(runner, command)
}

fn gone() -> Failure {
    failed_to("receive from the runner")(io::Error::from(io::ErrorKind::BrokenPipe))
}

// Each stage is made by the step before, which consumes the one before: another order does not compile.

struct Orders {
    /// The tree, and then others.
    directories: Vec<Directory>,
    plan: SandboxPlan,
    /// The draft's directory, and its lock, held until the end.
    draft: Vec<OwnedFd>,
}

/// A directory that is served at its own path.
struct Directory {
    config: Box<MountConfig>,
    source: OwnedFd,
    /// Of the mounts that were there, what shows it.
    parts: Vec<Part>,
}

impl Directory {
    fn path(&self) -> &Path {
        &self.config.mountpoint
    }
}

/// In namespaces of its own, which still show everything.
struct Entered {
    orders: Orders,
    /// The draft's directory.
    draft: Option<OwnedFd>,
    outside: Outside,
}

struct Outside {
    host: Option<HostMounts>,
    /// The mounts that were there.
    mounts: Vec<Mount>,
    /// Of programs outside, where there is to be no network.
    sockets: Vec<PathBuf>,
}

/// What leads out is hidden. For each directory, a device and what it is mounted on.
struct Hidden(View, Option<OwnedFd>, Vec<(OwnedFd, OwnedFd)>);

/// The workers serve the directories.
struct Served(View, Option<OwnedFd>);

/// What the command writes goes to the draft, if there is one.
struct Layered(View);

/// What these three have in common.
struct View {
    orders: Orders,
    outside: Outside,
    hidden: host_mounts::Beneath,
    empty: Empty,
}

/// Nothing shows the directories but their mounts, and the audit log, the drafts and the empty home are not shown anywhere.
struct Covered {
    orders: Orders,
    host: Option<HostMounts>,
    covers: Covers,
}

impl Orders {
    fn receive(runner: &ToParent) -> Result<Orders, Failure> {
        let (mut directories, mut draft) = (Vec::new(), Vec::new());
        loop {
            match runner.receive() {
                Ok(Some(Order::Serve(config, descriptors))) => {
                    let mut descriptors = descriptors.into_iter();
                    directories.push(Directory {
                        config,
                        source: descriptors.next().ok_or_else(gone)?,
                        parts: Vec::new(),
                    });
                    draft.extend(descriptors);
                }
                Ok(Some(Order::Sandbox(plan))) if !directories.is_empty() => {
                    let plan = serde_json::from_value(plan).map_err(|_| gone())?;
                    return Ok(Orders {
                        directories,
                        plan,
                        draft,
                    });
                }
                _ => return Err(gone()),
            }
        }
    }

    fn tree(&self) -> &Path {
        self.directories[0].path()
    }

    /// The draft's directory, as this mount namespace has it.
    fn find_draft(&self, mounts: &[Mount]) -> Result<Option<OwnedFd>, Failure> {
        let Some((path, directory)) = self.plan.draft.as_ref().zip(self.draft.first()) else {
            return Ok(None);
        };
        let path = Path::new(path);
        let is_in = |place: &Elsewhere| path.starts_with(&place.path);
        for it in &self.directories {
            let mut places = elsewhere::places(mounts, &it.parts, it.path()).into_iter();
            if path.starts_with(it.path()) || places.any(|place| is_in(&place)) {
                let why = "they are in what is served: say where else, with --draft-dir DIR";
                return Err(failed_to("use the drafts")(io::Error::other(why)));
            }
        }
        overlay::find(path, directory).map(Some)
    }

    fn enter(mut self) -> Result<Entered, Failure> {
        let host = HostMounts::open(&self.plan).map_err(failed_to("read the mount table"))?;
        enter(&self.plan.user)?;
        cred::die_with_parent().map_err(failed_to("follow the runner"))?;
        let mounts = mounts()?;
        for directory in &mut self.directories {
            directory.parts = elsewhere::parts(&mounts, directory.path());
        }
        let paths = || self.directories.iter().map(Directory::path);
        for directory in &self.directories {
            let (parts, path) = (&directory.parts, directory.path());
            let mut places = elsewhere::places(&mounts, parts, path).into_iter();
            let in_another = places.find(|it| paths().any(|other| it.path.starts_with(other)));
            let in_it = elsewhere::shown_twice(&mounts, path).map(Path::to_owned);
            let Some(place) = in_it.or(in_another.map(|it| it.path)) else {
                continue;
            };
            let why = format!(
                "{} shows a part of it again, or a directory around it: unmount that first",
                place.display()
            );
            return Err(failed_to(format!("serve {}", path.display()))(
                io::Error::other(why),
            ));
        }
        let sockets = match self.plan.no_network {
            true => sockets::bound_outside(self.tree()),
            false => Ok(Vec::new()),
        };
        let sockets = sockets.map_err(failed_to("list the Unix sockets"))?;
        let draft = self.find_draft(&mounts)?;
        Ok(Entered {
            orders: self,
            draft,
            outside: Outside {
                host,
                mounts,
                sockets,
            },
        })
    }
}

impl Entered {
    fn hide(self, runner: &ToParent) -> Result<Hidden, Failure> {
        let (plan, all) = (&self.orders.plan, &self.orders.directories);
        let open = |directory: &Directory| {
            let opened = thrufs::mount::open_device();
            let (device, _) = opened.map_err(failed_to_mount(directory.path()))?;
            let copy = device.try_clone();
            let copy = copy.map_err(failed_to("duplicate the device"))?;
            let sent = runner.send(&Notice::Device(vec![copy]));
            sent.map_err(failed_to("send the device"))?;
            Ok(device)
        };
        let devices: Vec<OwnedFd> = all.iter().map(open).collect::<Result<_, Failure>>()?;
        // The command must reach what is created on the way to the tree.
        let umask = cred::set_umask(0o022);
        let hidden = host_mounts::Beneath::open(&self.outside.mounts, &plan.empty());
        hide(plan)?;
        let empty = Empty::new()?;
        let place = |it: &Directory| place_of(it.path(), &it.source, plan);
        let places: Vec<OwnedFd> = all.iter().map(place).collect::<Result<_, _>>()?;
        let _ = cred::set_umask(umask);
        let mounts = devices.into_iter().zip(places).collect();
        let view = View {
            orders: self.orders,
            outside: self.outside,
            hidden,
            empty,
        };
        Ok(Hidden(view, self.draft, mounts))
    }
}

impl Outside {
    /// Where other mounts show what is hidden, whose parts are added to `all`.
    fn places(&self, hidden: &Path, all: &mut Vec<Part>) -> Result<Vec<Elsewhere>, Failure> {
        let parts = elsewhere::parts(&self.mounts, hidden);
        let places = elsewhere::places(&mounts()?, &parts, hidden);
        all.extend(parts);
        Ok(places)
    }
}

impl Hidden {
    fn serve(self, runner: &ToParent) -> Result<Served, Failure> {
        let Hidden(view, draft, mounts) = self;
        for (directory, (device, place)) in view.orders.directories.iter().zip(mounts) {
            let mounted = mounting::mount(&directory.config, device, place);
            mounted.map_err(failed_to_mount(directory.path()))?;
        }
        match runner.receive() {
            Ok(Some(Order::Served)) => Ok(Served(view, draft)),
            _ => Err(gone()),
        }
    }
}

impl Served {
    fn overlay(self) -> Result<Layered, Failure> {
        let Served(view, draft) = self;
        if let Some(draft) = draft {
            let tree = open(view.orders.tree()).map_err(failed_to("open the view"))?;
            overlay::mount(tree, draft, &view.orders.plan.user)?;
        }
        Ok(Layered(view))
    }
}

impl Layered {
    fn cover(self) -> Result<Covered, Failure> {
        let Layered(View {
            orders,
            outside,
            hidden: beneath,
            empty,
        }) = self;
        let (plan, tree) = (&orders.plan, orders.tree());
        let mut covers = Covers::default();
        for hidden in plan.empty_home.iter().chain(&plan.covered).map(Path::new) {
            let find = || outside.places(hidden, &mut covers.hidden);
            cover_all(find, |place| empty.cover(&place.path))?;
        }
        let hidden = EMPTY.iter().chain(&["/dev", "/sys"]);
        for hidden in hidden.filter_map(|it| fs::canonicalize(it).ok()) {
            let find = || outside.places(&hidden, &mut covers.hidden);
            cover_all(find, |place| {
                if tree.starts_with(&place.path) {
                    let (place, hidden) = (place.path.display(), hidden.display());
                    report(format_args!(
                        "thrufs: the command sees all of {hidden} at {place}, where the tree is"
                    ));
                } else if !plan.shows_in(&place.path) {
                    empty.cover_if_reached(&place.path)?;
                }
                Ok(())
            })?;
        }
        for directory in &orders.directories {
            cover_elsewhere(directory, &empty)?;
        }
        // They are absent where the sandbox is empty.
        let covered = plan.covered.iter().map(Path::new);
        for covered in covered.filter(|it| it.exists()) {
            empty.cover(covered)?;
        }
        covers.hidden.extend(cover_sockets(plan, &outside, &empty)?);
        empty.remove()?;
        beneath.unmount();
        let of_directories = orders.directories.iter().flat_map(|it| &it.parts);
        covers.served.extend(of_directories.cloned());
        Ok(Covered {
            host: outside.host,
            covers,
            orders,
        })
    }
}

impl Covered {
    /// Starts process 1, and ends with it.
    fn start(self, runner: &ToParent, command: &[OsString]) -> Result<(), Failure> {
        let orders = &self.orders;
        let (tree, directory) = (orders.tree(), Path::new(&orders.plan.directory));
        if change_directory(directory).is_err() {
            let (directory, shown) = (directory.display(), tree.display());
            report(format_args!(
                "thrufs: the sandbox does not show {directory}: starting in {shown}"
            ));
            change_directory(tree).map_err(failed_to("enter the tree"))?;
        }
        // With its own of this name, process 1 gets slaves of these mounts.
        let shared = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
        mount_change("/", shared).map_err(failed_to("share the mounts with process 1"))?;
        let copies = Copies::open().map_err(failed_to("open the mount table"))?;
        if orders.plan.draft.is_some() {
            overlay::look_again(tree).map_err(failed_to("keep the overlay up to date"))?;
        }
        cred::unshare_process_namespace().map_err(failed_to("create a PID namespace"))?;
        let child = process::start_inheriting(process::Role::SandboxInit, runner, command);
        let mut child = child.map_err(failed_to("start process 1 of the sandbox"))?;
        if let Some(host) = self.host {
            let served: Vec<_> = orders.directories.iter().map(Directory::path).collect();
            host.follow(&copies, &self.covers, &served, &child)?;
        }
        // Its own report is what counts.
        let waited = child.wait().map(drop);
        // Stopped with the command, it would not see its end.
        if let Some(runner) = rustix::process::getppid() {
            let _ = kill_process(runner, Signal::CONT);
        }
        waited.map_err(failed_to("wait for process 1 of the sandbox"))
    }
}

fn failed_to_mount(tree: &Path) -> impl FnOnce(thrufs::MountError) -> Failure {
    let step = format!("mount on {}", tree.display());
    move |error| (step, io::Error::other(error))
}

/// Enters the namespaces in which it may mount.
fn enter(user: &RunUser) -> Result<(), Failure> {
    if user.change.is_none() {
        cred::unshare_user_namespace().map_err(failed_to("create a user namespace"))?;
        cred::map_own_ids((user.uid, user.uid), (user.gid, user.gid))
            .map_err(failed_to("map the ids of the user namespace"))?;
        // Process 1, another program, mounts /proc.
        cred::keep_on_exec(CapabilitySet::SYS_ADMIN).map_err(failed_to("keep CAP_SYS_ADMIN"))?;
    }
    cred::unshare_mount_namespace().map_err(failed_to("create a mount namespace"))?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).map_err(failed_to("make the mounts private"))
}

/// The mount point: the directory that is served, or a new one where the sandbox is empty.
fn place_of(tree: &Path, source: &OwnedFd, plan: &SandboxPlan) -> Result<OwnedFd, Failure> {
    let step = || failed_to(format!("find {} in the sandbox", tree.display()));
    let place = make(tree, true).map_err(step())?;
    let is_served = lookup::is_same(
        fstat(&place).map_err(step())?,
        fstat(source).map_err(step())?,
    );
    match is_served || plan.empty().iter().any(|it| tree.starts_with(it)) {
        true => Ok(place),
        false => Err(failed_to("mount")(io::Error::other(format!(
            "{} was moved meanwhile",
            tree.display()
        )))),
    }
}

/// Opens a path, which is made where the sandbox is empty.
fn make(path: &Path, is_directory: bool) -> rustix::io::Result<OwnedFd> {
    let (parent, name) = match (open(path), path.parent(), path.file_name()) {
        (Err(Errno::NOENT), Some(parent), Some(name)) => (make(parent, true)?, name),
        (opened, ..) => return opened,
    };
    if is_directory {
        rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o777))?;
    } else {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        rustix::fs::openat(&parent, name, flags, Mode::from_raw_mode(0o666))?;
    }
    open(path)
}

fn change_directory(path: &Path) -> rustix::io::Result<()> {
    rustix::process::fchdir(open(path)?)
}

fn mounts() -> Result<Vec<Mount>, Failure> {
    mount_table::all().map_err(failed_to("read the mount table"))
}

/// An empty directory and an empty file, for covers. They are mounted while the sandbox is built: before Linux
/// 6.15, a detached mount cannot be cloned.
struct Empty(PathBuf);

impl Empty {
    fn new() -> Result<Empty, Failure> {
        let place = PathBuf::from("/dev/empty");
        let step = || failed_to("prepare an empty directory");
        fs::create_dir(&place).map_err(step())?;
        tmpfs(&place, "mode=755,size=4k")?;
        fs::create_dir(place.join("directory")).map_err(step())?;
        fs::write(place.join("file"), "").map_err(step())?;
        Ok(Empty(place))
    }

    fn cover(&self, path: &Path) -> Result<(), Failure> {
        let name = if path.is_dir() { "directory" } else { "file" };
        let cover = || -> rustix::io::Result<()> {
            let clone = clone_mount(&self.0.join(name))?;
            make_read_only(&clone)?;
            attach(&clone, path)
        };
        cover().map_err(failed_to(format!("cover {}", path.display())))
    }

    /// What this process cannot reach, nor can the command, which has the same user and fewer capabilities.
    fn cover_if_reached(&self, path: &Path) -> Result<(), Failure> {
        match open(path) {
            Err(Errno::ACCESS) => Ok(()),
            _ => self.cover(path),
        }
    }

    fn remove(self) -> Result<(), Failure> {
        let unmounted = rustix::mount::unmount(&self.0, UnmountFlags::DETACH);
        let removed = unmounted
            .map_err(io::Error::from)
            .and_then(|()| fs::remove_dir(&self.0));
        removed.map_err(failed_to("remove the empty directory"))
    }
}

fn make_read_only(tree: &OwnedFd) -> rustix::io::Result<()> {
    let (read_only, same) = (
        MountAttrFlags::MOUNT_ATTR_RDONLY,
        MountPropagationFlags::empty(),
    );
    set_attributes(tree, read_only, same)
}

fn attach(mount: &OwnedFd, path: &Path) -> rustix::io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(mount, "", open(path)?, "", flags)
}

fn tmpfs(path: &Path, options: &str) -> Result<(), Failure> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    let options = CString::new(options).map_err(failed_to("write the options of a tmpfs"))?;
    let step = || failed_to(format!("mount a tmpfs on {}", path.display()));
    let place = open(path).map_err(step())?;
    let place = lookup::descriptor_path(&place);
    mount("tmpfs", place, "tmpfs", flags, options.as_c_str()).map_err(step())
}

/// Mounts empty directories over what leads out, and brings back what is to be seen there.
fn hide(plan: &SandboxPlan) -> Result<(), Failure> {
    let kept = plan.shown.iter().map(Kept::open);
    let kept: Vec<Kept> = kept.collect::<Result<_, _>>()?;
    let dev = Path::new("/dev");
    let nodes = DEVICES.map(|name| (dev.join(name), dev.join(name)));
    let terminal = plan.terminal.as_ref().map(PathBuf::from);
    let console = terminal.map(|terminal| (dev.join("console"), terminal));
    let devices = nodes.into_iter().chain(console);
    let devices = devices.filter_map(|(path, node)| Some((path, clone_mount(&node).ok()?)));
    let devices: Vec<(PathBuf, OwnedFd)> = devices.collect();
    for path in EMPTY
        .into_iter()
        .filter_map(|path| fs::canonicalize(path).ok())
    {
        let mode = if path == Path::new("/run") {
            "mode=755"
        } else {
            "mode=1777"
        };
        tmpfs(&path, mode)?;
    }
    if let Some(home) = plan.empty_home.as_ref().map(Path::new) {
        let user = &plan.user;
        // It may be in a directory that is empty now.
        make(home, true).map_err(failed_to(format!("create {}", home.display())))?;
        tmpfs(home, &format!("mode=700,uid={},gid={}", user.uid, user.gid))?;
    }
    make_devices(devices)?;
    for kept in kept {
        kept.restore()?;
    }
    write_protect_sys()
}

/// A user may write to files there that end processes outside: `cgroup.kill` of a delegated cgroup, `abort`
/// of its FUSE connections.
fn write_protect_sys() -> Result<(), Failure> {
    let path = Path::new("/sys");
    if !mounts()?.iter().any(|mount| mount.path == path) {
        return Ok(());
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
        .and_then(|sys| make_read_only(&sys))
        .map_err(failed_to("make /sys read-only"))
}

fn clone_mount(path: &Path) -> rustix::io::Result<OwnedFd> {
    clone_tree(open(path)?)
}

/// `/dev` without the devices of the machine and without the terminals of other programs.
fn make_devices(devices: Vec<(PathBuf, OwnedFd)>) -> Result<(), Failure> {
    let dev = Path::new("/dev");
    let step = || failed_to("make /dev");
    tmpfs(dev, "mode=755")?;
    for (path, node) in devices {
        fs::write(&path, "").map_err(step())?;
        attach(&node, &path).map_err(failed_to(format!("bind {}", path.display())))?;
    }
    fs::create_dir(dev.join("shm")).map_err(step())?;
    tmpfs(&dev.join("shm"), "mode=1777")?;
    let terminals = dev.join("pts");
    fs::create_dir(&terminals).map_err(step())?;
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    let options = c"newinstance,ptmxmode=0666,mode=620";
    let mounted = mount("devpts", &terminals, "devpts", flags, options);
    mounted.map_err(failed_to("mount /dev/pts"))?;
    for (name, target) in [
        ("ptmx", "pts/ptmx"),
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ] {
        symlink(target, dev.join(name)).map_err(step())?;
    }
    Ok(())
}

/// A file or directory that stays visible.
struct Kept {
    path: PathBuf,
    mount: OwnedFd,
    is_directory: bool,
}

impl Kept {
    fn open(shown: &Shown) -> Result<Kept, Failure> {
        let path = PathBuf::from(&shown.path);
        let step = |errno| failed_to(format!("show {}", path.display()))(errno);
        let place = open(&path).map_err(step)?;
        let stat = fstat(&place).map_err(step)?;
        let mount = clone_tree(&place).map_err(step)?;
        if !shown.writable {
            make_read_only(&mount).map_err(step)?;
        }
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        Ok(Kept {
            mount,
            is_directory,
            path: path.clone(),
        })
    }

    fn restore(&self) -> Result<(), Failure> {
        let step = || failed_to(format!("show {}", self.path.display()));
        make(&self.path, self.is_directory).map_err(step())?;
        attach(&self.mount, &self.path).map_err(step())
    }
}

/// Covers all places that are found. Meanwhile the host may unmount them, or rename directories above them.
fn cover_all(
    mut find: impl FnMut() -> Result<Vec<Elsewhere>, Failure>,
    mut cover: impl FnMut(&Elsewhere) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut absent = Vec::new();
    for _ in 0..LOOKS_MAX {
        let before = mem::take(&mut absent);
        for place in find()? {
            match cover(&place) {
                Err((_, error)) if error.kind() == io::ErrorKind::NotFound => absent.push(place),
                covered => covered?,
            }
        }
        if absent == before {
            return Ok(());
        }
    }
    let why = io::Error::other("other mounts of it keep changing");
    Err(failed_to("cover what the command must not see")(why))
}

/// Other mounts of a directory show what its policy decides, too.
fn cover_elsewhere(directory: &Directory, empty: &Empty) -> Result<(), Failure> {
    let path = directory.path();
    let find = || Ok(elsewhere::places(&mounts()?, &directory.parts, path));
    cover_all(find, |place| {
        refuse_file(&place.path)?;
        match clone_mount(&path.join(&place.shows)) {
            Ok(view) => attach(&view, &place.path)
                .map_err(failed_to(format!("cover {}", place.path.display()))),
            _ => empty.cover(&place.path),
        }
    })
}

/// But for those that were named, to be seen. Returns the parts that are covered.
fn cover_sockets(
    plan: &SandboxPlan,
    outside: &Outside,
    empty: &Empty,
) -> Result<Vec<Part>, Failure> {
    let mut parts = Vec::new();
    let is_named = |path: &&PathBuf| plan.shown.iter().any(|shown| shown.path == ***path);
    for socket in outside.sockets.iter().filter(|it| !is_named(it)) {
        let own = || Elsewhere {
            path: socket.clone(),
            shows: PathBuf::new(),
        };
        let find = || {
            let mut places = outside.places(socket, &mut parts)?;
            places.push(own());
            Ok(places)
        };
        cover_all(find, |place| empty.cover_if_reached(&place.path))?;
    }
    Ok(parts)
}

/// A cover on a file's mount is on the file itself, and goes when the command removes the file from the tree:
/// what the policy redacts would be seen.
fn refuse_file(place: &Path) -> Result<(), Failure> {
    let is_mount = mounts()?.iter().any(|mount| mount.path == place);
    if !is_mount || place.is_dir() || !place.exists() {
        return Ok(());
    }
    let why = io::Error::other("it is a mount of a single file of the tree: unmount it first");
    Err(failed_to(format!("cover {}", place.display()))(why))
}
