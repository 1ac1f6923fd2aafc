use super::*;

fn refused(line: &[u8]) -> String {
    Command::decode(line).unwrap_err().code
}

fn explain(path: &str) -> Result<Vec<CString>, Refusal> {
    let line = format!(r#"{{"version":1,"command":"explain","path":{path:?}}}"#);
    Command::decode(line.as_bytes()).map(|command| match command {
        Command::Explain { components } => components,
        other => panic!("{other:?}"),
    })
}

#[test]
fn requests_round_trip() {
    for names in [
        &[][..],
        &[c"file"],
        &[c"a b", c"100%", c"\xff\xfe", c"\xc3\xa4\"\\\n"],
    ] {
        let components = names.iter().map(|name| CString::from(*name)).collect();
        let command = Command::Explain { components };
        let line = command.encode();
        let body = line.strip_suffix('\n').unwrap();
        assert!(!body.contains('\n'), "{line}");
        assert_eq!(Command::decode(body.as_bytes()), Ok(command));
    }
    let level = "debug".to_owned();
    let others = [
        Command::Reload,
        Command::DropCaches { keeps_names: true },
        Command::LogLevel { level },
    ];
    for command in [Command::Statistics, Command::Settle, Command::Options]
        .into_iter()
        .chain(others)
    {
        let line = command.encode();
        assert_eq!(Command::decode(line.trim().as_bytes()), Ok(command));
    }
}

#[test]
fn bytes_are_escaped_and_text_is_not() {
    assert_eq!(escape("tä st".as_bytes()), "tä st");
    assert_eq!(escape(b"50%\xff/a"), "50%25%FF/a");
    assert_eq!(unescape("50%25%ff/a").unwrap(), b"50%\xff/a");
    for broken in ["%", "a%f", "%zz", "%+1", "%%25"] {
        assert_eq!(unescape(broken), None, "{broken}");
    }
}

#[test]
fn paths_that_escape_are_refused() {
    for path in [
        "/", "/a", "a/", "a//b", ".", "..", "a/../b", "a/.", "%2e%2e", "a%2f..", "a%00b",
    ] {
        assert!(explain(path).is_err(), "{path}");
    }
    assert_eq!(
        explain("a%2fb").unwrap(),
        [c"a".into(), c"b".into()] as [CString; 2]
    );
    assert_eq!(explain("...").unwrap(), [CString::from(c"...")]);
    assert!(explain(&"x".repeat(255)).is_ok());
    assert!(explain(&"x".repeat(256)).is_err());
}

#[test]
fn unknown_versions_and_commands_are_refused() {
    assert_eq!(refused(br#"{"version":2,"command":"explain"}"#), "version");
    assert_eq!(refused(br#"{"version":1,"command":"dance"}"#), "unknown");
    assert_eq!(
        refused(br#"{"version":1,"command":"explain"}"#),
        "malformed"
    );
    for line in [
        &b""[..],
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b"{\"version\":-1}",
        b"{}",
    ] {
        assert_eq!(refused(line), "malformed");
    }
    let added = br#"{"version":1,"command":"statistics","later":[1]}"#;
    assert!(Command::decode(added).is_ok(), "fields may be added");
}

#[test]
fn nesting_does_not_exhaust_the_stack() {
    let line = format!(r#"{{"version":1,"later":{}"#, "[".repeat(60_000));
    assert_eq!(refused(line.as_bytes()), "malformed");
}

#[test]
fn replies_round_trip() {
    let result = Reply::Result(serde_json::json!({"a": [1, "b"]}));
    let error = Reply::Error(Refusal::failed(2));
    for reply in [result, error] {
        let line = reply.clone().encode();
        assert_eq!(Reply::decode(line.trim_end().as_bytes()), Ok(reply));
    }
    for broken in ["", "{}", r#"{"version":1}"#, r#"{"version":7,"result":1}"#] {
        assert!(Reply::decode(broken.as_bytes()).is_err(), "{broken}");
    }
}
