//! O_APPEND.

use super::prelude::*;
use crate::helper;
use crate::process::Process;

pub(super) const CASES: &[Case] = cases! {
    writes_at_the_end:
        "file file first; open @f file rw,creat,append; write @f , second; write @f , third;
         is file text first, second, third",
    ignores_the_offset_of_seek:
        "file file 12345; open @f file rw,append; seek @f 1; write @f 6; is file text 123456;
         seek @f 2; read @f 34",
    pwrite_appends_too:
        "file file 12345; open @f file rw,append; pwrite @f 0 6; is file text 123456",
    mixed_with_writes_at_offsets,
    after_truncate_by_path:
        "open @f file rw,creat,append; write @f a long beginning; truncate file 6; write @f !;
         is file text a long!; truncate file 0; write @f again; close @f; is file text again",
    after_truncate_by_another_descriptor:
        "open @f file rw,creat,append; open @g file w; write @f 0123456789; truncate @g 4;
         write @f X; truncate @g 8; write @f Y; close @{f,g}; is file text 0123X\\x00\\x00\\x00Y",
    two_descriptors_take_turns,
    can_be_switched_on:
        "file file 12345; open @f file rw; write @f A; setfl @f append; write @f B; close @f;
         is file text A2345B",
    can_be_switched_off [AppendSwitchedOff]:
        "file file 12345; open @f file rw,append; write @f 6; setfl @f rw; pwrite @f 0 A;
         close @f; is file text A23456",
    offset_after_an_append,
    large_appends,
    appends_of_two_processes_are_whole,
    append_with_truncating_open:
        "file file old content; open @f file w,append,trunc; write @f one;
         open @g file w,append,trunc; write @g two; write @f three; close @{f,g};
         is file text twothree",
    what_another_appends_beneath_is_kept [NoCache],
};

fn append(env: &Env, name: &str) -> File {
    env.open(name, OFlags::RDWR | OFlags::CREATE | OFlags::APPEND)
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
