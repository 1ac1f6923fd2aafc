//! O_APPEND.

use super::prelude::*;
use crate::fence::truncate::truncate;
use crate::helper;
use crate::process::Process;

pub(super) const CASES: &[Case] = cases! {
    writes_at_the_end,
    ignores_the_offset_of_seek,
    pwrite_appends_too,
    mixed_with_writes_at_offsets,
    after_truncate_by_path,
    after_truncate_by_another_descriptor,
    two_descriptors_take_turns,
    can_be_switched_on,
    can_be_switched_off [AppendSwitchedOff],
    offset_after_an_append,
    large_appends,
    appends_of_two_processes_are_whole,
    append_with_truncating_open,
    what_another_appends_beneath_is_kept [NoCache],
};

fn append(env: &Env, name: &str) -> File {
    env.open(name, OFlags::RDWR | OFlags::CREATE | OFlags::APPEND)
}

fn writes_at_the_end(env: &Env) {
    env.file("file", "first");
    let mut file = append(env, "file");
    file.write_all(b" second").unwrap();
    file.write_all(b" third").unwrap();
    assert_eq!(env.read("file"), b"first second third");
    drop(file);
    env.agree("file");
}

fn ignores_the_offset_of_seek(env: &Env) {
    env.file("file", "12345");
    let mut file = append(env, "file");
    file.seek(SeekFrom::Start(1)).unwrap();
    file.write_all(b"6").unwrap();
    assert_eq!(env.read("file"), b"123456");
    // Reads honour it.
    file.seek(SeekFrom::Start(2)).unwrap();
    let mut buffer = [0; 2];
    file.read_exact(&mut buffer).unwrap();
    assert_eq!(&buffer, b"34");
}

fn pwrite_appends_too(env: &Env) {
    // Linux appends whatever offset pwrite names (pwrite(2), BUGS).
    env.file("file", "12345");
    append(env, "file").write_all_at(b"6", 0).unwrap();
    assert_eq!(env.read("file"), b"123456");
    env.agree("file");
}

fn mixed_with_writes_at_offsets(env: &Env) {
    let plain = env.create("file");
    let mut end = append(env, "file");
    let mut model: Vec<u8> = Vec::new();
    for round in 0..200u32 {
        let text = format!("[{round}]");
        if round % 3 == 0 {
            let at = (round as usize * 7) % (model.len() + 5);
            plain.write_all_at(text.as_bytes(), at as u64).unwrap();
            model.resize(model.len().max(at + text.len()), 0);
            model[at..at + text.len()].copy_from_slice(text.as_bytes());
        } else {
            end.write_all(text.as_bytes()).unwrap();
            model.extend_from_slice(text.as_bytes());
        }
    }
    drop((plain, end));
    assert!(env.read("file") == model);
    env.agree("file");
}

fn after_truncate_by_path(env: &Env) {
    let mut file = append(env, "file");
    file.write_all(b"a long beginning").unwrap();
    let path = env.open("file", OFlags::PATH);
    drop(path);
    truncate(&env.path("file"), 6).unwrap();
    file.write_all(b"!").unwrap();
    assert_eq!(env.read("file"), b"a long!");
    truncate(&env.path("file"), 0).unwrap();
    file.write_all(b"again").unwrap();
    drop(file);
    assert_eq!(env.read("file"), b"again");
    env.agree("file");
}

fn after_truncate_by_another_descriptor(env: &Env) {
    let mut file = append(env, "file");
    let other = env.open("file", OFlags::WRONLY);
    file.write_all(b"0123456789").unwrap();
    other.set_len(4).unwrap();
    file.write_all(b"X").unwrap();
    other.set_len(8).unwrap();
    file.write_all(b"Y").unwrap();
    drop((file, other));
    assert_eq!(env.read("file"), b"0123X\0\0\0Y");
    env.agree("file");
}

fn two_descriptors_take_turns(env: &Env) {
    let (mut a, mut b) = (append(env, "file"), append(env, "file"));
    let mut expected = Vec::new();
    for round in 0..100 {
        let text = format!("{round},");
        if round % 2 == 0 { &mut a } else { &mut b }
            .write_all(text.as_bytes())
            .unwrap();
        expected.extend_from_slice(text.as_bytes());
    }
    drop((a, b));
    assert!(env.read("file") == expected);
    env.agree("file");
}

fn can_be_switched_on(env: &Env) {
    env.file("file", "12345");
    let mut file = env.open("file", OFlags::RDWR);
    file.write_all(b"A").unwrap();
    rustix::fs::fcntl_setfl(&file, OFlags::APPEND).unwrap();
    file.write_all(b"B").unwrap();
    drop(file);
    assert_eq!(env.read("file"), b"A2345B");
    env.agree("file");
}

fn can_be_switched_off(env: &Env) {
    // Written at the end of the lower file, opened with O_APPEND.
    env.file("file", "12345");
    let mut file = append(env, "file");
    file.write_all(b"6").unwrap();
    rustix::fs::fcntl_setfl(&file, OFlags::empty()).unwrap();
    file.write_all_at(b"A", 0).unwrap();
    drop(file);
    assert_eq!(env.read("file"), b"A23456");
    env.agree("file");
}

fn offset_after_an_append(env: &Env) {
    env.file("file", "12345");
    let mut file = append(env, "file");
    file.write_all(b"678").unwrap();
    assert_eq!(file.stream_position().unwrap(), 8);
}

fn large_appends(env: &Env) {
    let mut file = append(env, "file");
    let mut expected = Vec::new();
    for byte in 0..6u8 {
        // Never a multiple of a page, and more than one request.
        let chunk = vec![byte + 1; 1_300_007];
        file.write_all(&chunk).unwrap();
        expected.extend_from_slice(&chunk);
    }
    drop(file);
    assert!(env.read("file") == expected);
    env.agree("file");
}

fn appends_of_two_processes_are_whole(env: &Env) {
    let path = env.file("file", "");
    let path = path.to_str().unwrap();
    let workers: Vec<Process> = ["aaaaaaaaaa", "bbbbbbbbbbbbbbbbb", "c"]
        .iter()
        .map(|text| helper::start(&["append", path, text, "300"]))
        .collect();
    workers.into_iter().for_each(Process::finish);
    let content = String::from_utf8(env.read("file")).unwrap();
    for text in ["aaaaaaaaaa", "bbbbbbbbbbbbbbbbb", "c"] {
        assert_eq!(
            content.lines().filter(|line| *line == text).count(),
            300,
            "lines of {text}"
        );
    }
    assert_eq!(content.lines().count(), 900);
    env.agree("file");
}

fn append_with_truncating_open(env: &Env) {
    env.file("file", "old content");
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::TRUNC;
    let mut file = env.open("file", flags);
    file.write_all(b"one").unwrap();
    let mut second = env.open("file", flags);
    second.write_all(b"two").unwrap();
    file.write_all(b"three").unwrap();
    drop((file, second));
    assert_eq!(env.read("file"), b"twothree");
    env.agree("file");
}

fn what_another_appends_beneath_is_kept(env: &Env) {
    // Each append through the tree follows one in the lower tree, of which the kernel may not know yet.
    env.file("file", "");
    let mut expected = String::new();
    for round in 0..20 {
        let mut below = fs::OpenOptions::new()
            .append(true)
            .open(env.beneath("file"))
            .unwrap();
        writeln!(below, "beneath {round}").unwrap();
        expected += &format!("beneath {round}\n");
        drop(below);
        let mut above = append(env, "file");
        writeln!(above, "above {round}").unwrap();
        expected += &format!("above {round}\n");
    }
    assert_eq!(fs::read_to_string(env.beneath("file")).unwrap(), expected);
}
