use super::*;
use crate::config::{FilterAction, Sandbox, ShareConfig};
use crate::options::resolve_share;
use crate::share::listener::ListenAddress;
use std::collections::HashSet;
use std::error::Error;
use thrufs_hostdir::{CacheMode, Config, FileHandles, MigrationMode, MigrationOnError};

/// From the help of 1.14.
const OF_1_14: &str = "\
    --shared-dir --tag --socket --socket-path --socket-group --fd --thread-pool-size --xattr \
    --posix-acl --xattrmap --sandbox --readonly --seccomp --announce-submounts \
    --no-announce-submounts --inode-file-handles --cache --allow-mmap --no-readdirplus \
    --writeback --allow-direct-io --print-capabilities --modcaps --log-level --syslog \
    --rlimit-nofile -o -d --no-killpriv-v2 --killpriv-v2 -f --security-label --uid-map --gid-map \
    --translate-uid --translate-gid --preserve-noatime --migration-mode --migration-on-error \
    --migration-verify-handles --migration-confirm-paths";

/// Of a list after `-o`.
const IN_LISTS: &str = "\
    xattrmap=:ok:all::: cache=auto cache=always cache=none cache=metadata loglevel=debug \
    loglevel=info loglevel=warn loglevel=err sandbox=namespace sandbox=chroot source=/d \
    modcaps=+sys_admin xattr no_xattr readdirplus no_readdirplus writeback no_writeback \
    allow_direct_io no_allow_direct_io announce_submounts killpriv_v2 no_killpriv_v2 posix_acl \
    no_posix_acl security_label no_security_label no_posix_lock no_flock";

fn asked(arguments: &str) -> Result<ShareArguments, Box<dyn Error>> {
    let words = arguments.split_whitespace().map(OsString::from);
    let matches = command(NAME)
        .no_binary_name(true)
        .try_get_matches_from(words)?;
    Ok(share_arguments(&matches)?)
}

fn config(arguments: &str) -> ShareConfig {
    let asked = asked(&format!("--shared-dir /d --socket-path /s {arguments}")).unwrap();
    resolve_share(&asked.settings).unwrap()
}

fn refused(arguments: &str) -> String {
    asked(&format!("--shared-dir /d --socket-path /s {arguments}"))
        .unwrap_err()
        .to_string()
}

#[test]
fn clap_debug_assert_passes() {
    command(NAME).debug_assert();
}

#[test]
fn virtiofsd_is_recognised_by_name() {
    let called = |words: &[&str]| {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        arguments(&words).map(|arguments| arguments.len())
    };
    assert_eq!(called(&["/usr/libexec/virtiofsd", "--fd", "3"]), Some(3));
    assert_eq!(called(&["thrufs", "virtiofsd", "--fd=3"]), Some(2));
    assert_eq!(called(&["thrufs", "mount"]), None);
    assert_eq!(called(&["virtiofsd-old"]), None);
}

#[test]
fn every_option_of_virtiofsd_is_accepted() {
    let options = table::options();
    let ours: HashSet<String> = options.iter().map(table::VirtiofsdOption::shown).collect();
    let theirs: HashSet<String> = OF_1_14.split(' ').map(str::to_owned).collect();
    assert_eq!(ours, theirs);
    assert_eq!(options.len(), theirs.len(), "none twice");
    let help = command(NAME).render_long_help().to_string();
    for option in options {
        assert!(help.contains(&option.shown()), "{}", option.shown());
        let words = option.argument.get_possible_values();
        let value = match option.name() {
            _ if !option.takes_value() || option.argument.is_require_equals_set() => String::new(),
            _ if let Some(word) = words.last() => format!("={}", word.get_name()),
            "fd" | "thread-pool-size" | "rlimit-nofile" | "socket-group" => "=7".to_owned(),
            "translate-uid" | "translate-gid" => "=map:0:1:1".to_owned(),
            "uid-map" => "=:0:1:1: --gid-map=:0:1:1:".to_owned(),
            "gid-map" => "=:0:1:1: --uid-map=:0:1:1:".to_owned(),
            "xattrmap" => "=:ok:all:::".to_owned(),
            "modcaps" => "=-chown".to_owned(),
            "options" => "xattr".to_owned(),
            _ => "=x".to_owned(),
        };
        let said = format!("{}{value}", option.shown());
        let outcome = asked(&format!("--shared-dir /d --socket-path /s {said}"));
        let asked = outcome.unwrap_or_else(|error| panic!("{said}: {error}"));
        let settings = &asked.settings;
        let resolved = resolve_share(settings);
        assert!(resolved.is_ok(), "{said}: {resolved:?}");
    }
}

#[test]
fn every_list_option_of_virtiofsd_is_accepted() {
    for word in IN_LISTS.split(' ') {
        let outcome = asked(&format!("--socket-path /s -o source=/d -o {word}"));
        match outcome {
            Ok(asked) => assert_eq!(asked.source, Path::new("/d")),
            Err(error) => panic!("{word}: {error}"),
        }
    }
    for (list, part) in [
        ("cache=never", "none, metadata"),
        ("loglevel=loud", "err, warn"),
        ("sandbox=none", "namespace or chroot"),
        ("flock", "`-o flock`"),
        ("timeout=3", "`-o timeout=3`"),
        ("xattr,", "`-o `"),
    ] {
        let error = refused(&format!("-o {list}"));
        assert!(error.contains(part), "{list}: {error}");
    }
}

/// Those of virtiofsd 1.14 but two, by which a server that was taken over has less in reach, and one that makes
/// an unexpected system call goes on: there, `prefer` and `kill`.
#[test]
fn defaults_are_those_of_virtiofsd_but_handles_and_seccomp() {
    let config = config("");
    assert_eq!(config.serving.file_handles, FileHandles::Never);
    assert_eq!(config.filter, FilterAction::Fail);
    let serving = config.serving;
    assert!(!serving.xattr && !serving.acl && !serving.killpriv && !serving.writeback);
    assert!(serving.announce_submounts && serving.readdirplus && !serving.read_only);
    assert_eq!(serving.cache, CacheMode::Auto);
    let asked = asked("--shared-dir /d --socket-path /s").unwrap();
    assert!(asked.once, "it ends with its front end");
    let listening = ListenAddress::At {
        path: "/s".into(),
        group: None,
        pid_file: true,
    };
    assert_eq!(asked.listening, listening);
}

#[test]
fn virtiofsd_arguments_are_translated() {
    let check = |arguments: &str, is_so: fn(&Config) -> bool| {
        assert!(is_so(&config(arguments).serving), "{arguments}");
    };
    check("--posix-acl", |it| it.acl);
    check("--posix-acl=auto", |it| it.xattr);
    check("--posix-acl=never", |it| !it.acl);
    check("--xattrmap=:map::user.v.:", |it| it.xattr_map.is_some());
    check("--security-label", |it| it.security_label);
    check("--security-label=auto", |it| it.xattr);
    check("--security-label=never", |it| !it.security_label);
    check("--readonly", |it| it.read_only);
    check("--killpriv-v2", |it| it.killpriv);
    check("--killpriv-v2 --no-killpriv-v2", |it| !it.killpriv);
    check("--no-killpriv-v2 --killpriv-v2", |it| it.killpriv);
    let last = "--announce-submounts --no-announce-submounts";
    check(last, |it| !it.announce_submounts);
    let last = "--no-announce-submounts --announce-submounts";
    check(last, |it| it.announce_submounts);
    check("--cache metadata", |it| it.cache == CacheMode::Metadata);
    // The list has the last word.
    check("--cache=always -o cache=none", |it| {
        it.cache == CacheMode::Never
    });
    assert_eq!(config("--sandbox=chroot").sandbox, Sandbox::Chroot);
    assert!(config("--syslog").server.syslog);
    assert_eq!(config("-d").server.log.as_deref(), Some("debug"));
    assert_eq!(config("--log-level off").server.log.as_deref(), Some("off"));
    let ids = config("--translate-uid map:0:1000:1 --translate-uid=squash-guest:1:7:9");
    assert_eq!(ids.serving.uid_map.to_host(0), Some(1000));
    assert_eq!(ids.serving.uid_map.to_host(3), Some(7));
    let mapped = config("--uid-map /0/100000/10/ --uid-map :10:7:1: --gid-map :0:100000:10:");
    assert_eq!(mapped.namespace_uids.to_host(3), Some(100_003));
    assert_eq!(mapped.namespace_uids.to_host(10), Some(7));
    let migration = config(
        "--migration-mode=file-handles --migration-on-error=guest-error --migration-verify-handles \
         --migration-confirm-paths",
    );
    let migration = migration.serving.migration;
    assert_eq!(migration.mode, MigrationMode::FileHandles);
    assert_eq!(migration.on_error, MigrationOnError::GuestError);
    assert!(migration.verify_handles && migration.confirm_paths && migration.accept_handles);
    let inherited = asked("--fd 5 -o source=/d").unwrap();
    assert_eq!(inherited.listening, ListenAddress::Inherited(5));
    for (value, expected) in [
        ("never", FileHandles::Never),
        ("prefer", FileHandles::Prefer),
        ("fallback", FileHandles::Prefer),
        ("mandatory", FileHandles::Mandatory),
    ] {
        let config = config(&format!("--inode-file-handles={value}"));
        assert_eq!(config.serving.file_handles, expected);
    }
}

#[test]
fn missing_and_unsupported_arguments_are_errors() {
    let error = asked("--fd 3").unwrap_err().to_string();
    assert!(error.contains("--shared-dir"), "{error}");
    let error = asked("--shared-dir /d").unwrap_err().to_string();
    assert!(error.contains("--socket-path"), "{error}");
    for (arguments, part) in [
        ("--uid-map 0:1:1", ":0:100000:65536:"),
        ("--uid-map :0:1:", "CLIENT:HOST:COUNT"),
        ("--migration-mode=by-name", "find-paths"),
        ("--inode-file-handles=always", "mandatory"),
        ("--fd=x", "a number"),
        ("--cache=none", "never, metadata"),
        ("--frobnicate", "--frobnicate"),
    ] {
        let error = refused(arguments);
        assert!(error.contains(part), "{arguments}: {error}");
    }
}
