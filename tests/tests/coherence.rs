//! Changes beneath a mount are seen through it as soon as the cache mode promises: at once with
//! `cache=never`, within a second by default, and for data at the next open. Over each transport, with
//! passthrough and without.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

use rustix::io::Errno;
use thrufs_testing::steps::Steps;
use thrufs_tests::mounted::on_each_path;
use thrufs_tests::prelude::*;

/// The default timeout of a second, and a little for the clock ticks of the kernel.
const TIMEOUT: Duration = Duration::from_millis(1100);

/// More than a page, so that old and new data can be mixed up.
fn data(fill: u8) -> Vec<u8> {
    vec![fill; 10_000]
}

const OLD: &str = "file file; fill file 0 10000 111";
const IS_OLD: &str = "cat file 0 2 = oo; cat file 5000 2 = oo; cat file 9990 20 = oooooooooo";
const IS_NEW: &str = "cat file 0 2 = nn; cat file 5000 2 = nn; cat file 9990 20 = nnnnnnnnnn";

/// Changes made beneath, in blocks of lines: what changes; then calls of [`Steps`], with what they answer behind `=`: what
/// makes the old state beneath, what caches it through the mount, the change beneath, and what is seen then through the
/// mount. What is opened on a side stays open there.
const CHANGES: &str = include_str!("coherence.txt");

/// The name and the calls of each change.
fn changes() -> Vec<(&'static str, [String; 4])> {
    let block = |block: &'static str| {
        let (name, calls) = block.split_once('\n').unwrap();
        let calls: Vec<String> = calls.lines().map(written_out).collect();
        (name, calls.try_into().unwrap())
    };
    CHANGES.trim_end().split("\n\n").map(block).collect()
}

fn written_out(calls: &str) -> String {
    match calls {
        "-" => String::new(),
        "OLD" => OLD.to_owned(),
        "IS_OLD" => IS_OLD.to_owned(),
        "IS_NEW" => IS_NEW.to_owned(),
        calls => calls.replace("\\0", "\0"),
    }
}

/// Makes calls.
fn play(calls: &mut Steps, steps: &str) {
    for step in steps.split(';').filter(|step| !step.is_empty()) {
        let (call, expected) = step.split_once(" = ").unwrap_or((step, ""));
        let words: Vec<&str> = call.split_whitespace().collect();
        let found = match calls.call(&words) {
            Err(Errno::NOENT) => "ENOENT".to_owned(),
            found => String::from_utf8(found.unwrap()).unwrap(),
        };
        let is_so = expected.is_empty() || found.replace('\n', " ") == expected;
        assert!(is_so, "{step}: {found}");
    }
}

/// All changes, each in a directory of its own, with one wait for all.
fn see_all_changes(mounted: &Mounted, delay: Duration) {
    let changes = changes();
    let check = |((name, steps), calls): (&(&str, [String; 4]), &mut Steps)| {
        eprintln!("{name}");
        play(calls, &steps[3]);
    };
    let mut sides = Vec::new();
    for (at, change) in changes.iter().enumerate() {
        let places = [mounted.source(), mounted.mnt()].map(|it| it.join(at.to_string()));
        fs::create_dir(&places[0]).unwrap();
        let [mut beneath, mut through] = places.map(|it| Steps::new(it.clone(), it));
        let [prepare, warm, make, _] = &change.1;
        play(&mut beneath, prepare);
        play(&mut through, warm);
        play(&mut beneath, make);
        if delay.is_zero() {
            check((change, &mut through));
        }
        sides.push((beneath, through));
    }
    if !delay.is_zero() {
        thread::sleep(delay);
        let through = sides.iter_mut().map(|(_, through)| through);
        changes.iter().zip(through).for_each(check);
    }
}

#[test]
fn never_sees_changes_at_once() {
    on_each_path(Lower::Default, "cache=never", |mounted| {
        see_all_changes(mounted, Duration::ZERO);
    });
}

/// With passthrough, the server has no part in data; with `opens=local`, it sees no open.
#[test]
fn auto_sees_changes_within_its_timeout() {
    let options = ["passthrough", "nopassthrough", "opens=local"];
    on_each(Lower::Default, &options, |mounted, _| {
        see_all_changes(mounted, TIMEOUT);
    });
}

#[test]
fn auto_with_timeouts_of_zero_sees_changes_at_once() {
    let options = "entry_timeout=0,attr_timeout=0,negative_timeout=0,nopassthrough";
    on_each(Lower::Default, &[options], |mounted, _| {
        see_all_changes(mounted, Duration::ZERO);
    });
}

/// A reader has the file open, and so its pages cached, during a change beneath.
#[test]
fn new_data_are_read_at_once_after_an_open() {
    let options = ["cache=never,nopassthrough", "passthrough", "nopassthrough"];
    on_each(Lower::Default, &options, |mounted, _| {
        let [beneath, through] = [mounted.source(), mounted.mnt()].map(|it| it.join("file"));
        fs::write(&beneath, data(b'o')).unwrap();
        let early = File::open(&through).unwrap();
        let mut same = vec![0; 10_000];
        early.read_exact_at(&mut same, 0).unwrap();
        assert_eq!(same, data(b'o'));
        for round in b'0'..b'5' {
            // Old kernels stamp files with the clock tick; two changes within one look the same.
            thread::sleep(Duration::from_millis(20));
            fs::write(&beneath, data(round)).unwrap();
            assert!(
                fs::read(&through).unwrap() == data(round),
                "old data after an open"
            );
            early.read_exact_at(&mut same, 0).unwrap();
            assert!(same == data(round), "an older descriptor");
        }
    });
}

/// Opens and reads without asking for attributes: changed ones would make the kernel drop old data.
fn read_anew(options: &OpenOptions, path: &Path) -> Vec<u8> {
    let mut file = options.open(path).unwrap();
    let (mut content, mut buffer) = (Vec::new(), vec![0; 1 << 17]);
    loop {
        match file.read(&mut buffer).unwrap() {
            0 => return content,
            count => content.extend_from_slice(&buffer[..count]),
        }
    }
}

fn to_read() -> OpenOptions {
    OpenOptions::new().read(true).clone()
}

/// Although the size that the kernel has is valid for a second. An open for writing makes the kernel ask for it again,
/// as one for reading does.
#[test]
fn auto_reads_what_was_appended_before_an_open() {
    for options in [to_read(), to_read().write(true).clone()] {
        on_each_path(Lower::Default, "", |mounted| {
            let [beneath, through] = [mounted.source(), mounted.mnt()].map(|it| it.join("file"));
            let mut expected = data(b'o');
            fs::write(&beneath, &expected).unwrap();
            for round in 0..20 {
                assert!(read_anew(&options, &through) == expected, "{round}");
                let mut file = OpenOptions::new().append(true).open(&beneath).unwrap();
                file.write_all(&data(b'n')).unwrap();
                expected.extend(data(b'n'));
            }
        });
    }
}

/// A file system sets the time of a write before it copies: a reader meanwhile sees the last version of the
/// file with old data. Two guards detect that, the age of a version and the lease.
#[test]
fn auto_reads_what_was_written_before_an_open() {
    on_each_path(Lower::Default, "", rewrite_while_others_read);
}

fn rewrite_while_others_read(mounted: &Mounted) {
    const BYTES: usize = 8 << 20;
    const ROUNDS: usize = 50;
    let (beneath, through) = (mounted.source().join("file"), mounted.mnt().join("file"));
    // What is copied last, and without asking for attributes.
    let read_end = || {
        let mut end = [0; 100];
        let file = File::open(&through).unwrap();
        file.read_exact_at(&mut end, BYTES as u64 - 100).unwrap();
        end[99]
    };
    fs::write(&beneath, vec![0; BYTES]).unwrap();
    for round in 1..=ROUNDS {
        let content = vec![round as u8; BYTES];
        let file = OpenOptions::new().write(true).open(&beneath).unwrap();
        while_repeating([|| _ = read_end()], || {
            file.write_all_at(&content, 0).unwrap();
        });
        drop(file);
        assert_eq!(read_end(), round as u8, "old data after an open");
    }
}

/// The writer has closed, and writes again within a tick of the clock: the file looks the same, and only
/// the age of what was read shows that it may differ.
#[test]
fn auto_reads_what_was_written_within_a_tick() {
    on_each_path(Lower::Ramfs, "", |mounted| {
        let (beneath, through) = (mounted.source().join("file"), mounted.mnt().join("file"));
        for round in 0..200 {
            fs::write(&beneath, [round]).unwrap();
            assert_eq!(read_anew(&to_read(), &through), [round]);
        }
    });
}

/// Stores through a map leave the times as they are, once they are set. So the age of a version does not
/// show that it is the last; only the lease does, which is refused.
#[test]
fn auto_reads_what_was_stored_before_an_open() {
    on_each_path(Lower::Default, "", |mounted| {
        let (beneath, through) = (mounted.source().join("file"), mounted.mnt().join("file"));
        fs::write(&beneath, data(b'o')).unwrap();
        let read = || read_anew(&to_read(), &through);
        let file = to_read().write(true).open(&beneath).unwrap();
        let mut map = Mapping::new(&file, 10_000, Sharing::Shared).unwrap();
        drop(file);
        map.store(0, b"s");
        // Longer than the age at which a version counts.
        thread::sleep(Duration::from_millis(2_500));
        assert_eq!(read()[..2], *b"so");
        assert_eq!(read()[..2], *b"so");
        map.store(0, b"n");
        drop(map);
        assert_eq!(read()[..2], *b"no", "old stores");
    });
}

/// Without waiting for a notification or for the timeout of attributes.
#[test]
fn a_lock_shows_what_was_written_beneath_before() {
    use rustix::fs::{FlockOperation, fcntl_lock, flock};
    on_each_path(Lower::Default, "follow=no,attr_timeout=3600", |mounted| {
        let beneath = mounted.source().join("file");
        fs::write(&beneath, "old").unwrap();
        let above = mounted.mnt().join("file");
        let above = to_read().write(true).open(above).unwrap();
        let shown = || {
            let mut bytes = vec![0; above.metadata().unwrap().len() as usize];
            above.read_exact_at(&mut bytes, 0).unwrap();
            String::from_utf8(bytes).unwrap()
        };
        assert_eq!(shown(), "old");
        fs::write(&beneath, "longer").unwrap();
        fcntl_lock(&above, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert_eq!(shown(), "longer");
        fs::write(&beneath, "others").unwrap();
        flock(&above, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert_eq!(shown(), "others");
    });
}
