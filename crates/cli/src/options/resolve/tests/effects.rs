//! What each option changes in the configuration, and that it changes nothing else.

use super::Use::{self, Both, Mount, Share};
use super::{resolve_mount, resolve_share};
use crate::options::{self, MountOption, OPTIONS, Setting, Value};
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};

/// Where it is an option, what is set before it, the option with another value than its default, and what it
/// changes: fields of the configuration, with their values. A share is always in the foreground.
const EFFECTS: &str = r#"
mount |  | allow_other | serving.allow_other=true
mount | no_default_permissions | default_permissions | serving.acl=true serving.default_permissions=true
mount |  | no_default_permissions | serving.acl=false serving.default_permissions=false
both  |  | uid=5 | serving.uid_map.Squash=5
both  |  | gid=5 | serving.gid_map.Squash=5
both  |  | uidmap=0:1:2 | serving.uid_map.Ranges=[{"client":0,"count":2,"host":1}]
both  |  | gidmap=0:1:2 | serving.gid_map.Ranges=[{"client":0,"count":2,"host":1}]
mount |  | ro | attributes="RDONLY+NOSUID+NODEV" serving.read_only=true
share |  | ro | serving.read_only=true
mount | ro | rw | attributes="NOSUID+NODEV" serving.read_only=false
share | ro | rw | serving.read_only=false
mount | suid | nosuid | attributes="NOSUID+NODEV"
mount |  | suid | attributes="NODEV"
mount | dev | nodev | attributes="NOSUID+NODEV"
mount |  | dev | attributes="NOSUID"
mount |  | noexec | attributes="NOSUID+NODEV+NOEXEC"
mount | noexec | exec | attributes="NOSUID+NODEV"
mount |  | nosymfollow | attributes="NOSUID+NODEV+NOSYMFOLLOW"
mount | nosymfollow | symfollow | attributes="NOSUID+NODEV"
mount |  | noatime | attributes="NOSUID+NODEV+NOATIME" sets_atime=true
mount | noatime | atime | attributes="NOSUID+NODEV" sets_atime=false
mount | strictatime | relatime | attributes="NOSUID+NODEV"
mount |  | relatime | sets_atime=true
mount |  | strictatime | attributes="NOSUID+NODEV+STRICTATIME" sets_atime=true
mount |  | nodiratime | attributes="NOSUID+NODEV+NODIRATIME"
mount | nodiratime | diratime | attributes="NOSUID+NODEV"
mount |  | sync | synchronous=true
mount | sync | async | synchronous=false
both  |  | cache=never | serving.cache="never"
both  |  | cache=metadata | serving.cache="metadata"
both  |  | cache=always | serving.cache="always"
mount |  | follow=directories | serving.follow="directories"
mount |  | follow=filesystem | serving.follow="filesystem"
mount |  | follow=no | serving.follow="no"
mount |  | follow_timeout=5 | serving.follow_timeout.secs=5
mount |  | follow_marks=1 | serving.follow_marks=1
both  |  | entry_timeout=5 | serving.entry_timeout.nanos=0 serving.entry_timeout.secs=5
both  |  | attr_timeout=5 | serving.attr_timeout.nanos=0 serving.attr_timeout.secs=5
both  |  | negative_timeout=5 | serving.negative_timeout.nanos=0 serving.negative_timeout.secs=5
both  |  | writeback | serving.writeback=true
both  | writeback | nowriteback | serving.writeback=false
mount | nopassthrough | passthrough | serving.passthrough=true
mount |  | nopassthrough | serving.passthrough=false
mount |  | opens=local | serving.locks="local" serving.opens="local"
share |  | opens=local | serving.opens="local"
both  |  | opens=server | serving.opens="server"
both  |  | policy=x | server.policy.Unix=[120]
both  | noxattr | xattr | serving.acl=true serving.xattr=true
both  |  | noxattr | serving.acl=false serving.xattr=false
both  | noacl | acl | serving.acl=true
both  |  | noacl | serving.acl=false
both  | locks=shared | locks=local | serving.locks="local"
both  | locks=local | locks=shared | serving.locks="shared"
both  |  | export | serving.export=true
both  | export | noexport | serving.export=false
share |  | tag=x | tag="x"
share |  | queues=63 | request_queues=63
share |  | queue_size=16 | queue_size_max=16
share |  | queue_threads=1 | queue_helpers_max=0
share |  | dax_window=2M | window_bytes=2097152
share |  | dax_window_force,dax_window=514M | window_bytes=538968064
share | dax_window=2M | dax=x | serving.dax=["x"]
share | dax_window=2M | dax_min_size=5 | serving.dax_bytes_min=5
share |  | machines=3 | machines_max=3
share |  | resume=0 | server.deaths_max=0
mount |  | resume=3 | server.deaths_max=3
share |  | translate_uid=map:0:1:2 | serving.uid_map.Translated.to_client=[{"count":2,"first":1,"target":{"From":0}}] serving.uid_map.Translated.to_host=[{"count":2,"first":0,"target":{"From":1}}]
share |  | translate_gid=map:0:1:2 | serving.gid_map.Translated.to_client=[{"count":2,"first":1,"target":{"From":0}}] serving.gid_map.Translated.to_host=[{"count":2,"first":0,"target":{"From":1}}]
share |  | allow_mmap | serving.allow_mmap=true
share | allow_mmap | no_allow_mmap | serving.allow_mmap=false
share |  | allow_direct_io | serving.allow_direct_io=true
share | allow_direct_io | no_allow_direct_io | serving.allow_direct_io=false
share | no_readdirplus | readdirplus | serving.readdirplus=true
share |  | no_readdirplus | serving.readdirplus=false
share | no_announce_submounts | announce_submounts | serving.announce_submounts=true
share |  | no_announce_submounts | serving.announce_submounts=false
share |  | xattrmap=:map::user.v.: | serving.xattr_map.rules=[{"effect":"Prefix","key":"","of_clients":true,"of_host":true,"prepend":"user.v."},{"effect":"Deny","key":"","of_clients":true,"of_host":true,"prepend":""}]
share | no_killpriv_v2 | killpriv_v2 | serving.killpriv=true
share |  | no_killpriv_v2 | serving.killpriv=false
share |  | security_label | serving.security_label=true
share | security_label | no_security_label | serving.security_label=false
share |  | sandbox=namespace | sandbox="namespace"
share |  | sandbox=chroot | sandbox="chroot"
share |  | sandbox=none | sandbox="none"
share |  | namespace_uidmap=0:1:2,namespace_gidmap=0:1:2 | namespace_gids.Ranges=[{"client":0,"count":2,"host":1}] namespace_uids.Ranges=[{"client":0,"count":2,"host":1}]
share |  | namespace_gidmap=0:1:2,namespace_uidmap=0:1:2 | namespace_gids.Ranges=[{"client":0,"count":2,"host":1}] namespace_uids.Ranges=[{"client":0,"count":2,"host":1}]
share |  | seccomp=kill | filter="kill"
share |  | seccomp=log | filter="log"
share |  | seccomp=trap | filter="trap"
share |  | seccomp=none | filter="none"
share |  | modcaps=-mknod | capabilities.dropped="MKNOD"
share |  | rlimit_nofile=0 | descriptor_limit=0
share |  | syslog | server.syslog=true
share |  | migration_mode=file-handles | serving.file_handles="prefer" serving.migration.mode="file-handles"
share |  | migration_on_error=guest-error | serving.migration.on_error="guest-error"
share |  | migration_verify_handles | serving.migration.verify_handles=true
share |  | migration_confirm_paths | serving.migration.confirm_paths=true
share |  | migration_refuse_handles | serving.migration.accept_handles=false
mount |  | transport=uring | transport="Uring"
mount |  | transport=dev | transport="Dev"
mount |  | queues_per_thread=1 | ring.queues_per_thread=1
mount |  | ring_depth=1 | ring.depth=1
mount |  | threads=1 | threads=1
both  | nopairing | pairing | server.pairing=true
both  |  | nopairing | server.pairing=false
both  |  | max_write=5 | serving.max_write=5
both  |  | max_background=1 | serving.max_background=1
both  |  | max_readahead=5 | serving.max_readahead=5
both  |  | descriptors=16 | serving.descriptor_budget=16
mount |  | foreground | server.foreground=true
share |  | foreground | nothing
both  |  | stop_timeout=5 | server.stop_timeout.secs=5
both  |  | log=debug | server.log="debug"
both  |  | log_format=json | server.log_json=true
both  |  | log_file=/x | server.log_file.Unix=[47,120]
both  |  | control=none | server.control="None"
both  |  | metrics=127.0.0.1:9 | server.metrics.Tcp="127.0.0.1:9"
both  |  | metrics=/x | server.metrics.Socket.Unix=[47,120]
both  |  | control=/x | server.control.At.Unix=[47,120]
mount |  | fsname=x | fsname="x"
mount |  | subtype=x | subtype="x"
mount |  | auto_unmount | auto_unmount=true
mount |  | user | attributes="NOSUID+NODEV+NOEXEC"
mount |  | users | attributes="NOSUID+NODEV+NOEXEC"
mount | suid,dev | owner | attributes="NOSUID+NODEV"
mount | suid,dev | group | attributes="NOSUID+NODEV"
both  | inode_file_handles=mandatory | inode_file_handles=never | serving.file_handles="never"
both  | inode_file_handles=never | inode_file_handles=prefer | serving.file_handles="prefer"
both  |  | inode_file_handles=mandatory | serving.file_handles="mandatory"
"#;

/// Mounts or shares, what is set before, the option, and the effect.
type Effect = (Use, &'static str, &'static str, &'static str);

fn effects() -> impl Iterator<Item = Effect> {
    EFFECTS.trim().lines().map(|line| {
        let fields: Vec<&str> = line.split(" | ").map(str::trim).collect();
        let [used, before, option, effect] = fields[..] else {
            panic!("{line}");
        };
        let used = match used {
            "mount" => Mount,
            "share" => Share,
            _ => Both,
        };
        (used, before, option, effect)
    })
}

/// Some options are flags alone, which a list does not have.
fn settings(list: &str) -> Vec<Setting> {
    let words = list.split(',').filter(|word| !word.is_empty());
    let setting = |word: &str| {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        options::setting(options::find(name).unwrap(), value).unwrap()
    };
    words.map(setting).collect()
}

/// Each field of the configuration, by its path.
fn fields(list: &str, used: Use) -> BTreeMap<String, String> {
    let settings = settings(list);
    let config = match used {
        Share => serde_json::to_value(resolve_share(&settings).unwrap()),
        _ => serde_json::to_value(resolve_mount(&settings).unwrap()),
    };
    let mut fields = BTreeMap::new();
    add_fields("", &config.unwrap(), &mut fields);
    fields
}

fn add_fields(path: &str, value: &Json, to: &mut BTreeMap<String, String>) {
    let Json::Object(fields) = value else {
        to.insert(path.to_owned(), value.to_string());
        return;
    };
    let separator = if path.is_empty() { "" } else { "." };
    for (name, value) in fields {
        add_fields(&format!("{path}{separator}{name}"), value, to);
    }
}

/// What `option` changes where `before` is set, as in the table.
fn changed(before: &str, option: &str, used: Use) -> String {
    let usual = fields(before, used);
    let now = fields(&format!("{before},{option}"), used);
    let others = now
        .iter()
        .filter(|(name, value)| usual.get(*name) != Some(*value));
    let shown: Vec<String> = others
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    if shown.is_empty() {
        return "nothing".to_owned();
    }
    // Flags of a set have a separator of the table between them.
    shown
        .join(" ")
        .replace("MOUNT_ATTR_", "")
        .replace(" | ", "+")
}

#[test]
fn each_option_changes_its_field_alone() {
    for (used, before, option, effect) in effects() {
        for one in [Mount, Share].into_iter().filter(|one| used.includes(*one)) {
            assert_eq!(
                changed(before, option, one),
                effect,
                "{one:?}: {before},{option}"
            );
        }
    }
}

/// An option without a line, or a word of a choice.
#[test]
fn each_option_has_an_effect() {
    let shown = |option: &MountOption| match &option.value {
        // Without effect, unless they imply another.
        Value::Ignored | Value::Any if option.implies.is_empty() => Vec::new(),
        Value::Choice(words, _) => {
            let others = words.iter().filter(|word| **word != option.default);
            others
                .map(|word| format!("{}={word}", option.name))
                .collect()
        }
        _ => vec![option.name.to_owned()],
    };
    let tried = |one: Use| -> BTreeSet<&str> {
        let lines = effects().filter(|(used, ..)| used.includes(one));
        let first = |option: &'static str| option.split(',').next().unwrap_or(option);
        let words = lines.map(|(_, _, option, _)| first(option));
        words
            .flat_map(|word| [word, word.split('=').next().unwrap_or(word)])
            .collect()
    };
    for one in [Mount, Share] {
        let tried = tried(one);
        let used = OPTIONS.iter().filter(|option| option.used().includes(one));
        let missing: Vec<String> = used
            .flat_map(shown)
            .filter(|it| !tried.contains(it.as_str()))
            .collect();
        assert_eq!(missing, Vec::<String>::new(), "{one:?}");
    }
}
