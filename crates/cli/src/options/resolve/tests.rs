mod effects;

use super::*;
use crate::config::ControlLocation;
use crate::config::{FilterAction, Sandbox};
use crate::options::{self, MountOption, Value};
use std::time::Duration;
use thrufs_hostdir::{CacheMode, Locks};
use thrufs_virtio::Tag;

fn mount(list: &str) -> Result<MountConfig, OptionError> {
    resolve_mount(&options::parse(list)?)
}

fn share(list: &str) -> Result<ShareConfig, OptionError> {
    resolve_share(&options::parse(list)?)
}

/// Settings of every option, with all words of a choice and with the bounds of a count.
fn samples() -> impl Iterator<Item = Setting> {
    let of = |option: &'static MountOption| {
        let values = match &option.value {
            Value::Choice(words, _) => words.iter().map(ToString::to_string).collect(),
            Value::Count(least, most, _) => vec![least.to_string(), most.to_string()],
            _ => Vec::from_iter(option.sample()),
        };
        let one = |value: Option<&str>| options::setting(option, value).unwrap();
        match values.is_empty() {
            true => vec![one(None)],
            false => values.iter().map(|value| one(Some(value))).collect(),
        }
    };
    options::OPTIONS.iter().flat_map(of)
}

fn names(settings: &[Setting]) -> Vec<String> {
    settings.iter().map(ToString::to_string).collect()
}

#[test]
fn last_of_opposite_options_counts() {
    let list = "ro,suid,noatime,rw,nosuid,relatime,cache=never,cache=always";
    let kept = in_force(&options::parse(list).unwrap()).unwrap();
    assert_eq!(names(&kept), ["rw", "nosuid", "relatime", "cache=always"]);
}

#[test]
fn user_implies_noexec_nosuid_nodev_unless_overridden() {
    let kept = |list| names(&in_force(&options::parse(list).unwrap()).unwrap());
    assert_eq!(kept("exec,user"), ["noexec", "nosuid", "nodev", "user"]);
    assert_eq!(kept("user,exec"), ["nosuid", "nodev", "user", "exec"]);
}

#[test]
fn contradictions_name_both() {
    for (list, first, second) in [
        ("writeback,cache=never", "writeback", "cache=never"),
        ("uidmap=0:1:1,uid=3", "uid=3", "uidmap=0:1:1"),
        ("noxattr,acl", "acl", "noxattr"),
        (
            "no_default_permissions,acl",
            "acl",
            "no_default_permissions",
        ),
    ] {
        let error = mount(list).unwrap_err().to_string();
        let begin = format!("`{first}` contradicts `{second}`: ");
        assert!(error.starts_with(&begin), "{error}");
    }
    assert!(in_force(&options::parse("writeback,nowriteback,cache=never").unwrap()).is_ok());
}

#[test]
fn every_option_is_resolved() {
    for sample in samples() {
        let used = sample.option.used();
        let mounted = resolve_mount(std::slice::from_ref(&sample));
        let is_mounted = used.includes(Use::Mount);
        assert_eq!(mounted.is_ok(), is_mounted, "{sample}: {mounted:?}");
        // One without the other is refused.
        let partner = match sample.option.name {
            "namespace_uidmap" => "namespace_gidmap=0:1:2",
            "namespace_gidmap" => "namespace_uidmap=0:1:2",
            "dax" | "dax_min_size" | "dax_window_force" => "dax_window=2M",
            _ => "",
        };
        let mut settings = options::parse(partner).unwrap();
        settings.push(sample);
        let shared = resolve_share(&settings);
        let is_shared = used.includes(Use::Share);
        assert_eq!(shared.is_ok(), is_shared, "{settings:?}: {shared:?}");
    }
}

#[test]
fn default_configuration_of_a_mount() {
    let config = mount("").unwrap();
    let nosuid_nodev = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    assert_eq!(config.attributes, nosuid_nodev);
    assert_eq!(config.fsname, None);
    assert_eq!(config.subtype, "thrufs");
    assert!(
        config.serving.default_permissions && !config.serving.allow_other && !config.auto_unmount
    );
    assert!(mount("auto_unmount").unwrap().auto_unmount);
    assert_eq!(config.server.stop_timeout, Duration::from_secs(10));
    assert_eq!(config.server.control, ControlLocation::Usual);
    assert!(config.serving.acl && config.serving.xattr && !config.serving.writeback);
}

#[test]
fn allow_other_without_permission_checks_is_refused() {
    for more in [
        "",
        ",cache=never",
        ",cache=never,ro",
        ",cache=always,uid=1000",
    ] {
        let error = mount(&format!("allow_other,no_default_permissions{more}"));
        let error = error.unwrap_err().to_string();
        for part in ["`allow_other`", "`no_default_permissions`", "drop one"] {
            assert!(error.contains(part), "{more}: {error}");
        }
    }
    assert!(mount("no_default_permissions").is_ok());
}

#[test]
fn ranges_that_overlap_are_refused() {
    assert!(mount("uidmap=0:100:10,uidmap=9:500:1").is_err());
    assert!(mount("uidmap=0:100:10,uidmap=50:109:1").is_err());
    let both = mount("uidmap=0:100:10,uidmap=10:110:1").unwrap();
    let uids = both.serving.uid_map;
    assert_eq!((uids.to_host(3), uids.to_host(10)), (Some(103), Some(110)));
    let both = share("translate_uid=map:0:1000:10,translate_uid=host:5:6:1").unwrap();
    let uids = both.serving.uid_map;
    assert_eq!((uids.to_host(3), uids.to_client(5)), (Some(1003), 6));
}

#[test]
fn default_configuration_of_a_share() {
    let config = share("").unwrap();
    assert_eq!(config.serving.cache, CacheMode::Auto);
    assert!(config.serving.xattr && config.serving.acl && config.serving.killpriv);
    assert!(!config.serving.passthrough && !config.serving.allow_mmap);
    assert!(config.serving.default_permissions && config.serving.announce_submounts);
    assert!(config.server.foreground);
    assert_eq!(config.tag, None);
    assert_eq!(config.queue_size_max, 1024);
    assert_eq!(config.device().queue_helpers_max, None);
    let list = "tag=home,queues=3,queue_size=256,queue_threads=4,stop_timeout=3";
    let device = share(list).unwrap().device();
    assert_eq!(device.tag, Some(Tag::new("home").unwrap()));
    let sizes = (device.request_queues.get(), device.queue_size_max);
    assert_eq!(sizes, (3, 256));
    assert_eq!(device.queue_helpers_max, Some(3));
    assert_eq!(device.drain_timeout, Duration::from_secs(3));
    assert_eq!(config.server.deaths_max, 10);
    assert_eq!(config.serving.file_handles, FileHandles::Never);
    assert_eq!(
        (config.sandbox, config.filter),
        (Sandbox::Best, FilterAction::Fail)
    );
}

#[test]
fn locks_are_local_by_default_where_the_kernel_opens_files_or_nothing_changes() {
    for (list, locks) in [
        ("", Locks::Shared),
        ("opens=local", Locks::Local),
        ("ro,cache=always", Locks::Local),
        ("ro", Locks::Shared),
        ("cache=always", Locks::Shared),
        ("ro,cache=always,opens=server", Locks::Shared),
        ("ro,cache=always,locks=shared", Locks::Shared),
        ("locks=shared,opens=local", Locks::Shared),
    ] {
        assert_eq!(mount(list).unwrap().serving.locks, locks, "{list}");
    }
    for error in [
        mount("opens=local,passthrough").map(drop).unwrap_err(),
        share("opens=local,dax_window=2M").map(drop).unwrap_err(),
    ] {
        assert!(error.to_string().contains("`opens=local`"), "{error}");
    }
}

#[test]
fn inapplicable_options_of_a_share_name_the_remedy() {
    for (list, part) in [
        ("allow_other", "to a share: in a guest"),
        ("passthrough", "only through the server"),
        ("noatime", "where the guest mounts it"),
        ("threads=3", "use queues="),
        ("transport=dev", "use queues="),
        ("fsname=x", "use tag="),
        ("nofail", "mount(8)"),
    ] {
        let error = share(list).unwrap_err().to_string();
        assert!(error.contains("does not apply to a share"), "{error}");
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_window_beyond_what_qemu_bears_is_forced() {
    let bytes = |list: &str| share(list).unwrap().device().window_bytes.unwrap().get();
    assert_eq!(bytes("dax_window=512M"), 512 << 20);
    assert_eq!(bytes("dax_window=514M,dax_window_force"), 514 << 20);
    assert_eq!(bytes("dax_window_force,dax_window=64G"), 64 << 30);
    for (list, part) in [
        ("dax_window=514M", "use dax_window_force"),
        ("dax_window_force,dax_window=65538M", "64G at most"),
        ("dax_window=3M", "multiple of 2M"),
        ("dax_window=0", "multiple of 2M"),
        ("dax_window=1024G", "below 1024G"),
        ("dax_window_force", "needs dax_window"),
    ] {
        let error = share(list).unwrap_err().to_string();
        assert!(error.contains(part), "{list}: {error}");
    }
}

#[test]
fn invalid_values_are_refused() {
    for (list, part) in [
        ("queue_size=100", "power of two"),
        ("dax=*.img", "needs dax_window"),
        ("queues=0", "between 1 and 64"),
        ("tag=aaaaaaaaaabbbbbbbbbbccccccccccddddddd", "36"),
        ("xattrmap=:nope:", "rule 1"),
        ("translate_uid=guest:1", "3 numbers"),
        (
            "translate_uid=map:0:1:1,translate_uid=map:0:2:1",
            "shares ids",
        ),
        ("namespace_uidmap=0:1000:1", "not one of them"),
        (
            "namespace_uidmap=0:1:2,namespace_uidmap=1:9:1,namespace_gidmap=0:1:1",
            "shares ids",
        ),
        ("namespace_gidmap=0:1:1,sandbox=chroot", "no user namespace"),
        ("modcaps=sys_admin", "+sys_admin"),
        ("modcaps=+flying", "`flying`"),
        ("uid=0,translate_uid=map:0:1:1", "not both"),
        ("uidmap=0:1:1,translate_uid=map:0:1:1", "not with both"),
        ("cache=metadata,writeback", "contradicts"),
        ("xattrmap=:ok:all:::,noxattr", "contradicts"),
        (
            "migration_mode=file-handles,inode_file_handles=never",
            "contradicts",
        ),
    ] {
        let error = share(list).unwrap_err().to_string();
        assert!(error.contains(part), "{list}: {error}");
    }
    assert!(share("noxattr").is_ok());
}
