//! A share with a DAX window: a guest's loads and stores beside what the host has, and workers that are killed
//! meanwhile.

mod policy;
mod set_ids;
mod set_ups;

use crate::ground::copied_program;
use crate::ground::prelude::*;
use crate::ground::share::Place;
use crate::resume::{kill, replace};
use std::sync::atomic::AtomicU64;
use thrufs_abi::layout::{FallocateIn, RemovemappingOne, SetattrIn, SetupmappingIn};
use thrufs_abi::{AttrFlags, SetattrValid};
use thrufs_client::{
    Caller, DAX_RANGE_BYTES, DaxClient, DaxError, SETUPMAPPING_READ, SETUPMAPPING_WRITE, Window,
    WindowBehaviour, WindowConfig,
};

const RANGE: usize = DAX_RANGE_BYTES as usize;
const WINDOW_RANGES: usize = 8;
const READ_WRITE: i32 = libc::O_RDWR;

const BOTH: [WindowConfig; 2] = [WindowConfig::as_specified(), WindowConfig::as_qemu()];

type Root<'a> = Caller<'a, FrontEnd>;

fn options(ranges: usize, more: &str) -> String {
    let bytes = ranges * RANGE;
    format!("control=none,dax_window={bytes},dax=*.img,dax_min_size=1{more}")
}

fn mount(place: &Place, window: WindowConfig) -> Client<FrontEnd> {
    let config = FrontEndConfig {
        request_queues: 4,
        window: Some(window),
        time_limit: Some(Duration::from_secs(60)),
        ..FrontEndConfig::default()
    };
    let front_end = FrontEnd::connect(&place.socket, &config).unwrap();
    Client::mount_with_window(front_end).unwrap()
}

/// A share with a window, and a guest that has mounted it.
struct Mounted {
    share: Foreground,
    client: Client<FrontEnd>,
    window: Window,
}

impl Mounted {
    /// With `more` options.
    fn new(place: &Place, more: &str, window: WindowConfig) -> Mounted {
        Mounted::with_ranges(place, WINDOW_RANGES, more, window)
    }

    fn with_ranges(place: &Place, ranges: usize, more: &str, window: WindowConfig) -> Mounted {
        let share = place.share_with_log(&options(ranges, more));
        let client = mount(place, window);
        Mounted {
            share,
            window: client.carrier().window().unwrap().clone(),
            client,
        }
    }

    fn root(&self) -> Root<'_> {
        self.client.root()
    }

    fn dax(&self) -> DaxClient<'_, FrontEnd> {
        DaxClient::new(self.root(), &self.window)
    }

    /// Unmounts, and ends the share.
    fn end(self) {
        self.client.unmount();
        self.share.ends_by(Signal::TERM);
    }
}

/// Aperiodic content.
fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 + at / 251) as u8).collect()
}

fn put(place: &Place, name: &str, bytes: usize) -> (PathBuf, Vec<u8>) {
    let (path, content) = (place.dir.join(name), content(bytes));
    fs::write(&path, &content).unwrap();
    (path, content)
}

/// Looks a file up, and opens it: whether it is a DAX file.
fn open(root: &Root<'_>, name: &str, flags: i32) -> (NodeId, u64, bool) {
    let entry = root.lookup(NodeId::ROOT, name.as_bytes()).unwrap();
    let node = NodeId(entry.nodeid);
    let is_dax = entry.attr.flags & AttrFlags::DAX.bits() != 0;
    (node, root.open(node, flags).unwrap().fh, is_dax)
}

/// Maps the beginning of a file into a range of the window.
fn map(root: &Root<'_>, node: NodeId, range: u64, flags: u64) -> Result<(), Errno> {
    map_part(root, node, (0, range), flags)
}

/// Maps a range of a file into one of the window.
fn map_part(
    root: &Root<'_>,
    node: NodeId,
    (part, range): (u64, u64),
    flags: u64,
) -> Result<(), Errno> {
    let arg = SetupmappingIn {
        fh: u64::MAX,
        foffset: part * DAX_RANGE_BYTES,
        len: DAX_RANGE_BYTES,
        flags,
        moffset: range * DAX_RANGE_BYTES,
    };
    root.setup_mapping(node, &arg)
}

#[test]
fn a_guest_s_loads_and_stores_go_to_the_host_s_file() {
    let sizes = [
        1,
        4095,
        4096,
        4097,
        RANGE - 1,
        RANGE,
        RANGE + 1,
        RANGE + 4096,
        3 * RANGE,
    ];
    for config in BOTH {
        let place = Place::new();
        let files = sizes.map(|bytes| put(&place, &format!("{bytes}.img"), bytes));
        let mounted = Mounted::new(&place, "", config);
        let root = mounted.root();
        let dax = mounted.dax();
        for (size, (path, content)) in sizes.into_iter().zip(files) {
            let (node, fh, is_dax) = open(&root, &format!("{size}.img"), READ_WRITE);
            let maps_it = config.behaviour == WindowBehaviour::AsSpecified || size % 4096 == 0;
            assert_eq!(is_dax, maps_it, "{size} {:?}", config.behaviour);
            if !is_dax {
                continue;
            }
            let mut seen = vec![0; size];
            dax.read(node, 0, &mut seen).unwrap();
            assert!(seen == content, "{size}: what the guest reads");
            let host = File::options().write(true).open(&path).unwrap();
            host.write_all_at(b"HOST", (size as u64).saturating_sub(4))
                .unwrap();
            dax.read(node, 0, &mut seen).unwrap();
            let now = fs::read(&path).unwrap();
            assert!(now.starts_with(&seen), "{size}: what the host wrote");
            dax.write(node, 0, b"G").unwrap();
            dax.write(node, size as u64 / 2, b"g").unwrap();
            let now = fs::read(&path).unwrap();
            assert_eq!((now[size / 2], now[0] == b'G' || size < 2), (b'g', true));
            root.release(node, fh).unwrap();
        }
        assert_eq!(mounted.window.counts().announcements_failed, 0);
        mounted.end();
    }
}

#[test]
fn where_the_monitor_maps_beyond_the_end_a_mapped_file_grows() {
    let place = Place::new();
    let (path, mut expected) = put(&place, "a.img", 4097);
    let mounted = Mounted::new(&place, "", WindowConfig::as_specified());
    let (root, window) = (mounted.root(), &mounted.window);
    let tried = window.counts().maps;
    let dax = mounted.dax();
    let (node, fh, _) = open(&root, "a.img", READ_WRITE);
    dax.write(node, 0, b"x").unwrap();
    expected[0] = b'x';
    for step in 1..40_usize {
        let more = content(step * 997);
        root.write(node, fh, expected.len() as u64, &more, 0)
            .unwrap();
        expected.extend(more);
        let mut seen = vec![0; expected.len()];
        dax.read(node, 0, &mut seen).unwrap();
        assert!(seen == expected, "after {step} writes");
    }
    File::options()
        .append(true)
        .open(&path)
        .unwrap()
        .set_len(5000)
        .unwrap();
    assert_eq!(root.getattr(node).unwrap().attr.size, 5000);
    let mut seen = vec![0; 5000];
    dax.read(node, 0, &mut seen).unwrap();
    assert!(seen == expected[..5000]);
    let beyond = dax.read(node, 8192, &mut seen[..1]);
    assert!(
        matches!(beyond, Err(DaxError::Window(_))),
        "an error, and no dead process"
    );
    assert_eq!(window.counts().maps - tried, 1);
    mounted.end();
}

#[test]
fn where_the_monitor_maps_whole_pages_alone_the_size_of_a_mapped_file_stays() {
    let place = Place::new();
    let (path, _) = put(&place, "a.img", 8192);
    put(&place, "other", 8192);
    let mounted = Mounted::new(&place, "", WindowConfig::as_qemu());
    let root = mounted.root();
    let dax = mounted.dax();
    let (node, fh, is_dax) = open(&root, "a.img", READ_WRITE);
    assert!(is_dax);
    dax.write(node, 4096, b"y").unwrap();
    let size = |bytes: u64| SetattrIn {
        valid: (SetattrValid::SIZE | SetattrValid::FH).bits(),
        fh,
        size: bytes,
        ..SetattrIn::default()
    };
    let allocate = |length: u64, mode: u32| {
        let arg = FallocateIn {
            fh,
            length,
            mode,
            ..FallocateIn::default()
        };
        root.fallocate(node, &arg)
    };
    for _ in 0..2 {
        assert_eq!(root.write(node, fh, 8190, b"12", 0), Ok(2));
        assert_eq!(root.write(node, fh, 8190, b"123", 0), Err(Errno::EPERM));
        assert_eq!(root.setattr(node, &size(4096)).map(drop), Err(Errno::EPERM));
        assert_eq!(
            root.setattr(node, &size(12_288)).map(drop),
            Err(Errno::EPERM)
        );
        assert!(root.setattr(node, &size(8192)).is_ok());
        assert_eq!(allocate(8193, 0), Err(Errno::EPERM));
        assert_eq!(allocate(8192, 0), Ok(()));
        let truncating = root.open(node, READ_WRITE | libc::O_TRUNC);
        assert_eq!(truncating.map(drop), Err(Errno::EPERM));
        // The same with the next worker, which knows the file by its name.
        assert!(kill(&place));
    }
    assert_eq!(fs::metadata(&path).unwrap().len(), 8192);
    // What the host adds is not told while the end is mapped.
    let host = File::options().write(true).open(&path).unwrap();
    host.write_all_at(b"more", 8192).unwrap();
    assert_eq!(root.getattr(node).unwrap().attr.size, 8192);
    dax.remove(node).unwrap();
    assert_eq!(root.getattr(node).unwrap().attr.size, 8192, "whole pages");
    let (other, other_fh, is_dax) = open(&root, "other", READ_WRITE);
    assert!(!is_dax, "it is not named");
    assert_eq!(root.write(other, other_fh, 8190, b"123", 0), Ok(3));
    mounted.end();
}

#[test]
fn only_open_files_are_mapped_and_as_they_may_be_written() {
    let place = Place::new();
    let (path, _) = put(&place, "a.img", RANGE);
    let (program, _) = put(&place, "program.img", RANGE);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(place.dir.join("d.img")).unwrap();
    let mounted = Mounted::new(&place, "", WindowConfig::as_specified());
    let (root, window) = (mounted.root(), &mounted.window);
    let entry = root.lookup(NodeId::ROOT, b"a.img").unwrap();
    let node = NodeId(entry.nodeid);
    assert_eq!(map(&root, node, 0, SETUPMAPPING_READ), Err(Errno::EBADF));
    let directory = NodeId(root.lookup(NodeId::ROOT, b"d.img").unwrap().nodeid);
    assert_eq!(
        map(&root, directory, 0, SETUPMAPPING_READ),
        Err(Errno::EBADF)
    );
    let fh = root.open(node, libc::O_RDONLY).unwrap().fh;
    map(&root, node, 0, SETUPMAPPING_READ).unwrap();
    assert!(window.mappings()[0].writable, "it may come to be written");
    root.release(node, fh).unwrap();
    assert_eq!(
        map(&root, node, 1, SETUPMAPPING_READ),
        Err(Errno::EBADF),
        "closed"
    );

    let (node, fh, _) = open(&root, "program.img", libc::O_RDONLY);
    map(&root, node, 2, SETUPMAPPING_READ).unwrap();
    assert!(!window.mappings()[1].writable);
    fs::write(&program, content(RANGE)).expect("no writer is in the way of the host");
    let error = map(&root, node, 3, SETUPMAPPING_READ | SETUPMAPPING_WRITE);
    assert_eq!(error, Err(Errno::EACCES));
    root.open(node, READ_WRITE).unwrap();
    map(&root, node, 3, SETUPMAPPING_READ | SETUPMAPPING_WRITE).unwrap();
    assert!(window.mappings()[2].writable);
    root.release(node, fh).unwrap();
    mounted.end();

    let mounted = Mounted::new(&place, ",ro", WindowConfig::as_specified());
    let (root, window) = (mounted.root(), &mounted.window);
    let (node, _, is_dax) = open(&root, "a.img", libc::O_RDONLY);
    assert!(is_dax);
    map(&root, node, 0, SETUPMAPPING_READ).unwrap();
    assert!(!window.mappings()[0].writable);
    let error = map(&root, node, 1, SETUPMAPPING_WRITE);
    assert_eq!(error, Err(Errno::EROFS));
    assert!(window.write(0, b"x").is_err());
    assert_eq!(fs::read(&path).unwrap()[0], content(1)[0]);
    mounted.end();

    let mounted = Mounted::new(&place, ",ro", WindowConfig::as_qemu());
    let root = mounted.root();
    let (node, _, is_dax) = open(&root, "a.img", libc::O_RDONLY);
    assert!(!is_dax, "this monitor maps for writing alone");
    let error = map(&root, node, 0, SETUPMAPPING_READ);
    assert_eq!(error, Err(Errno::EOPNOTSUPP));
    mounted.end();
}

/// One thread of the guest uses each file, and knows what is in it.
fn mappings_stay_right(times: usize, disturb: impl Fn(&Place, &Path, usize)) {
    const PAGES: u64 = 3 * DAX_RANGE_BYTES / 4096;
    for config in BOTH {
        let place = Place::new();
        for file in 0..4 {
            put(&place, &format!("{file}.img"), 3 * RANGE);
        }
        let control = place.path("control");
        let more = format!(",resume=1000,control={}", control.display());
        let mounted = Mounted::new(&place, &more, config);
        let (stop, steps) = (AtomicBool::new(false), AtomicU64::new(0));
        let dax = mounted.dax();
        std::thread::scope(|scope| {
            for file in 0..4_u64 {
                let (dax, mounted, stop, steps) = (&dax, &mounted, &stop, &steps);
                scope.spawn(move || {
                    let stops = thrufs_testing::StopAll(stop);
                    let (node, _, _) = open(&mounted.root(), &format!("{file}.img"), READ_WRITE);
                    let mut written = std::collections::HashMap::new();
                    let mut random = file + 1;
                    while !stop.load(Ordering::SeqCst) {
                        random = random
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1);
                        let page = (random >> 33) % PAGES;
                        let value = random.to_le_bytes();
                        dax.write(node, page * 4096, &value).unwrap();
                        written.insert(page, value);
                        let other = (random >> 13) % PAGES;
                        let mut seen = [0; 8];
                        dax.read(node, other * 4096, &mut seen).unwrap();
                        if let Some(value) = written.get(&other) {
                            assert_eq!(seen, *value, "page {other} of {file}");
                        }
                        steps.fetch_add(1, Ordering::SeqCst);
                    }
                    std::mem::forget(stops);
                });
            }
            let _stop = thrufs_testing::StopAll(&stop);
            for count in 0..times {
                let before = steps.load(Ordering::SeqCst);
                wait_for("progress", || {
                    stop.load(Ordering::SeqCst) || steps.load(Ordering::SeqCst) > before + 50
                });
                disturb(&place, &control, count);
            }
        });
        assert_eq!(mounted.window.counts().announcements_failed, 0);
        mounted.end();
    }
}

#[test]
fn mappings_stay_right_when_workers_are_killed() {
    mappings_stay_right(12, |place, _, _| {
        kill(place);
    });
}

#[test]
fn mappings_stay_right_when_the_share_is_upgraded() {
    let beside = TempDir::new().unwrap();
    let programs = [copied_program(beside.path()), THRUFS.into()];
    mappings_stay_right(6, |place, control, count| {
        let mut upgrade = Command::new(&programs[count % 2]);
        upgrade.arg("upgrade").arg("--control").arg(control);
        succeeded(&run(upgrade.arg(&place.socket)));
    });
}

#[test]
fn a_window_of_gigabytes_is_mapped_to_its_end() {
    const PLACES: [u64; 4] = [0, 600 << 20, 5 << 30, (8 << 30) - DAX_RANGE_BYTES];
    for config in BOTH {
        let place = Place::new();
        let (path, content) = put(&place, "a.img", 2 * RANGE);
        let mounted = Mounted::with_ranges(&place, 4096, ",dax_window_force", config);
        let (root, window) = (mounted.root(), &mounted.window);
        assert_eq!(window.size(), 8 << 30);
        let (node, ..) = open(&root, "a.img", READ_WRITE);
        for at in PLACES {
            map(&root, node, at / DAX_RANGE_BYTES, SETUPMAPPING_WRITE).unwrap();
        }
        for (number, at) in PLACES.into_iter().enumerate() {
            let mut seen = [0; 4096];
            window.read(at + 4096, &mut seen).unwrap();
            assert!(seen == content[4096..8192], "{at}");
            window.write(at + number as u64, b"!").unwrap();
        }
        assert_eq!(fs::read(&path).unwrap()[..4], *b"!!!!");
        let beyond = map(&root, node, 4096, SETUPMAPPING_READ);
        assert_eq!(beyond, Err(Errno::EINVAL));
        // The next worker has the same mappings.
        replace(&place);
        let all = PLACES.map(|moffset| RemovemappingOne {
            moffset,
            len: DAX_RANGE_BYTES,
        });
        root.remove_mapping(node, &all).unwrap();
        // QEMU answers before it unmaps.
        assert!(window.wait_until(LIMIT, |counts| counts.live == 0));
        mounted.end();
    }
}

#[test]
fn explain_and_statistics_say_which_files_are_mapped() {
    let place = Place::new();
    let control = place.path("control");
    for (name, bytes) in [("a.img", RANGE), ("small.img", 4096), ("b", RANGE)] {
        put(&place, name, bytes);
    }
    let options = format!("control={},dax_window=16M,dax=*.img", control.display());
    let share = place.share(&options);
    let client = mount(&place, WindowConfig::as_qemu());
    let root = client.root();
    let (node, ..) = open(&root, "a.img", READ_WRITE);
    map(&root, node, 3, SETUPMAPPING_READ).unwrap();
    open(&root, "small.img", READ_WRITE);
    let said = stdout(&thrufs!(
        "explain",
        "--control",
        &control,
        "--share",
        &place.socket,
        "a.img",
        "small.img",
        "b"
    ));
    for line in [
        "window      mapped, 1 range: it is a DAX file",
        "window      not mapped: it is too small (dax_min_size=)",
        "window      not mapped: the guest has not looked it up; it would not map it: it is none of the files that are to be mapped (dax=)",
    ] {
        assert!(said.contains(line), "{said}");
    }
    assert!(map(&root, node, 100, SETUPMAPPING_READ).is_err());
    let statistics = thrufs!("ctl", "--control", &control, &place.socket, "statistics");
    let said = stdout(&statistics);
    for figure in [
        "dax_maps_beyond_end=false",
        "dax_files=1",
        "dax_too_small=1",
        "window refused range",
    ] {
        assert!(said.contains(figure), "{said}");
    }
    client.unmount();
    share.ends_by(Signal::TERM);
}
