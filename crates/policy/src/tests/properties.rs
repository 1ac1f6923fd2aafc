//! Properties of all policies: random rules over a few names.

use super::{JPEG, Sample, file, policy};
use crate::{Access, Caller, DataPath, Decision, Policy, Subject, Visibility};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

const PATHS: &[&str] = &["", "a", "a.jpg", "d/a.jpg", "d/e/b"];

fn rule() -> impl Strategy<Value = String> {
    let common = vec(
        select(vec![
            "path = '**/*.jpg'",
            "path = ['d/**', '!d/e/**']",
            "path = 'a'",
            "type = 'file'",
            "path = '!a'",
        ]),
        1..3,
    );
    let action = prop_oneof![
        select(vec!["action = 'hide'", "owner = 0\naction = 'hide'"]),
        select(vec![
            "action = 'passthrough'",
            "action = 'cached'",
            "content = 'text/*'\naction = 'passthrough'",
            "owner = 0\naction = 'cached'",
            "action = 'direct'",
            "action = 'redact'\nredact = 'gps'",
            "type = '!fifo'\naction = 'redact'\nredact = 'gps'\non-error = 'deny'",
            "content = 'image/*'\naction = 'redact'\nredact = 'gps'\nerrno = 'EIO'",
        ]),
        select(vec![
            "action = 'deny'",
            "caller-uid = 7\naction = 'deny'",
            "size = '>2'\naction = 'deny'",
            "mode = 'o+r'\naction = 'read-only'",
            "caller-exe = '/bin/x'\naction = 'deny'\nerrno = 'EIO'",
            "content = 'image/*'\ncaller-gid = '!7'\naction = 'read-only'",
            "action = 'read-only'",
            "action = 'audit'",
        ]),
    ];
    (common, action).prop_map(|(matchers, action)| {
        let mut lines: Vec<&str> = matchers.into_iter().chain(action.lines()).collect();
        // Each key once, the first of them.
        let mut keys = std::collections::HashSet::new();
        lines.retain(|line| keys.insert(line.split(' ').next()));
        format!("[[rule]]\n{}\n", lines.join("\n"))
    })
}

fn any_policy() -> impl Strategy<Value = Policy> {
    vec(rule(), 0..8).prop_map(|rules| policy(&rules.concat()))
}

fn any_file() -> impl Strategy<Value = (&'static str, Sample)> {
    let head = select(vec![&b""[..], b"text", JPEG, b"\0\0"]);
    (
        select(PATHS),
        0..2_u32,
        select(vec![0o600, 0o644]),
        0..5_u64,
        head,
    )
        .prop_map(|(path, uid, mode, size, head)| (path, Sample::new(uid, mode, size, head)))
}

fn caller(uid: u32, known: bool) -> Caller<'static> {
    Caller {
        uid,
        gid: uid,
        executable: if known {
            &|| Some(b"/bin/x".to_vec())
        } else {
            &|| None
        },
    }
}

fn decide(policy: &Policy, (path, sample): &(&str, Sample), uid: u32) -> Decision {
    policy.decide(&file(path, sample), &caller(uid, uid == 8))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn data_path_is_the_same_for_every_caller(policy in any_policy(), of in any_file(), uid in 6..9_u32) {
        let subject = file(of.0, &of.1);
        prop_assert_eq!(decide(&policy, &of, uid).file, policy.file_path(&subject));
    }

    /// A file that is redacted with later attributes is redacted with the present ones.
    #[test]
    fn redacted_file_stays_redacted(
        policy in any_policy(),
        now in any_file(),
        later in any_file(),
    ) {
        let later = (now.0, later.1);
        let decisions = [decide(&policy, &now, 0), decide(&policy, &later, 0)];
        let [now, later] = decisions.map(|decision| decision.file.redaction);
        prop_assert_eq!(now, later);
    }

    #[test]
    fn decide_and_visibility_agree(policy in any_policy(), of in any_file(), uid in 6..9_u32) {
        let subject: Subject<'_> = file(of.0, &of.1);
        let decision = decide(&policy, &of, uid);
        let expected = decision.hidden.map_or(Visibility::Visible, Visibility::Hidden);
        prop_assert_eq!(policy.visibility(&subject), expected);
    }

    #[test]
    fn joining_is_commutative_and_not_less_strict(
        policy in any_policy(),
        files in (any_file(), any_file(), any_file()),
        uid in 6..9_u32,
    ) {
        let [a, b, c] = [&files.0, &files.1, &files.2].map(|of| decide(&policy, of, uid));
        prop_assert_eq!(a.stricter(a), a);
        prop_assert_eq!(a.stricter(b), b.stricter(a));
        prop_assert_eq!(a.stricter(b).stricter(c), a.stricter(b.stricter(c)));
        let joined = a.stricter(b);
        for one in [a, b].into_iter().filter(|one| one.hidden.is_none()) {
            for access in [Access::Read, Access::Change] {
                prop_assert!(one.check(access).is_ok() || joined.check(access).is_err());
            }
            prop_assert!(one.audit.is_none() || joined.audit.is_some());
            prop_assert!(one.file.redaction.is_none() || joined.file.redaction.is_some());
            let passed = |decision: Decision| decision.file.data == DataPath::Passthrough;
            prop_assert!(passed(one) || !passed(joined));
        }
    }
}
