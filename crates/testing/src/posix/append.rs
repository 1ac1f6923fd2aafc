//! O_APPEND.

use super::prelude::*;

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
    can_be_switched_on:
        "file file 12345; open @f file rw; write @f A; setfl @f append; write @f B; close @f;
         is file text A2345B",
    can_be_switched_off [AppendSwitchedOff]:
        "file file 12345; open @f file rw,append; write @f 6; setfl @f rw; pwrite @f 0 A;
         close @f; is file text A23456",
    large_appends:
        "open @f file w,creat,append; fill @f end 1300007 1; fill @f end 1300007 2;
         filled file 0 1300007 1; filled file 1300007 1300007 2",
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
