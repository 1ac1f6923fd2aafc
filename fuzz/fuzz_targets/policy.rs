//! Policies of any text: a fault has a place in the text. A valid policy gives a file the same data path
//! and visibility for every caller, and no passthrough to a file that it could redact.
//!
//! The bytes after the first NUL are the beginning of a file, those before it the policy.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thrufs_policy::{
    Accounts, AttributeSource, Attributes, Caller, ContentType, DataPath, FileType, HEAD_BYTES,
    Policy, Subject, Visibility,
};

struct File<'a> {
    size: u64,
    head: &'a [u8],
}

impl AttributeSource for File<'_> {
    fn attributes(&self) -> Option<Attributes> {
        let (uid, gid, mode, size) = (0, 50, 0o644, self.size);
        Some(Attributes {
            uid,
            gid,
            mode,
            size,
        })
    }

    fn head(&self, buffer: &mut [u8; HEAD_BYTES]) -> Option<usize> {
        let length = self.head.len().min(HEAD_BYTES);
        buffer[..length].copy_from_slice(&self.head[..length]);
        Some(length)
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut parts = bytes.splitn(2, |&byte| byte == 0);
    let (text, head) = (
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default(),
    );
    let _ = ContentType::of(head).name();
    let accounts = Accounts::parse(b"root:x:0:0::/:\n", head);
    let policy = match Policy::parse(text, &accounts) {
        Ok(policy) => policy,
        Err(error) => {
            let lines = text.iter().filter(|&&byte| byte == b'\n').count() + 1;
            assert!((1..=lines).contains(&error.line), "{error}");
            assert!((1..=text.len() + 1).contains(&error.column), "{error}");
            assert!(!error.message.is_empty());
            return;
        }
    };
    for path in [&b""[..], b"a", b"d/a.jpg", &head[..head.len().min(64)]] {
        ask(&policy, path, head);
    }
});

fn ask(policy: &Policy, path: &[u8], head: &[u8]) {
    let (full, empty) = (
        File {
            size: head.len() as u64,
            head,
        },
        File { size: 0, head: b"" },
    );
    let subject = |source| Subject {
        path,
        file_type: FileType::RegularFile,
        source,
    };
    let (now, before) = (subject(&full), subject(&empty));
    let path = policy.file_path(&now);
    for (uid, known) in [(0, true), (7, false)] {
        let executable = || known.then(|| b"/usr/bin/cat".to_vec());
        let caller = Caller {
            uid,
            gid: uid,
            executable: &executable,
        };
        let decision = policy.decide(&now, &caller);
        assert_eq!(decision.file, path);
        let hidden = decision
            .hidden
            .map_or(Visibility::Visible, Visibility::Hidden);
        assert_eq!(policy.visibility(&now), hidden);
        assert_eq!(decision.stricter(decision), decision);
        let earlier = policy.decide(&before, &caller);
        assert_eq!(decision.stricter(earlier), earlier.stricter(decision));
    }
    if path.redaction.is_some() {
        assert!(policy.file_path(&before).data != DataPath::Passthrough);
    }
}
