mod effects;

use super::*;
use crate::config::ControlLocation;
use crate::config::{FilterAction, Sandbox};
use crate::options::{self, MountOption, Value};
use rustix::thread::CapabilitySet;
use std::num::{NonZeroU16, NonZeroUsize};
use std::time::Duration;
use thrufs::{Transport, UringConfig};
use thrufs_hostdir::{CacheMode, IdMap, Locks, Migration, MigrationOnError};
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
    let list =
        options::parse("ro,suid,noatime,rw,nosuid,relatime,cache=never,cache=always").unwrap();
    let kept = in_force(&list).unwrap();
    assert_eq!(names(&kept), ["rw", "nosuid", "relatime", "cache=always"]);
}

#[test]
fn user_implies_noexec_nosuid_nodev_unless_overridden() {
    let kept = |list| names(&in_force(&options::parse(list).unwrap()).unwrap());
    assert_eq!(kept("exec,user"), ["noexec", "nosuid", "nodev", "user"]);
    assert_eq!(kept("user,exec"), ["nosuid", "nodev", "user", "exec"]);
}

#[test]
fn ranges_accumulate() {
    let list = options::parse("uidmap=0:100000:10,uidmap=10:5:1").unwrap();
    assert_eq!(in_force(&list).unwrap().len(), 2);
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
        let error = in_force(&options::parse(list).unwrap())
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with(&format!("`{first}` contradicts `{second}`: ")),
            "{error}"
        );
    }
    assert!(in_force(&options::parse("writeback,nowriteback,cache=never").unwrap()).is_ok());
}

#[test]
fn every_option_is_resolved() {
    for sample in samples() {
        let used = sample.option.used();
        let mounted = resolve_mount(std::slice::from_ref(&sample));
        assert_eq!(
            mounted.is_ok(),
            used.includes(Use::Mount),
            "{sample}: {mounted:?}"
        );
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
        assert_eq!(
            shared.is_ok(),
            used.includes(Use::Share),
            "{settings:?}: {shared:?}"
        );
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
fn options_of_a_mount_take_their_values() {
    let config = mount(
        "ro,suid,dev,noexec,nosymfollow,noatime,nodiratime,sync,allow_other,\
         fsname=a\\,b,subtype=x,cache=always,entry_timeout=1.5,attr_timeout=2,\
         negative_timeout=0,writeback,noacl,locks=shared,export,threads=3,nopairing,max_write=64K,\
         transport=uring,queues_per_thread=4,ring_depth=2,\
         max_background=7,max_readahead=32K,descriptors=99,stop_timeout=0.5,log=debug,\
         log_file=/l,control=/run/c,uidmap=0:1000:10,uidmap=10:0:1,gid=5",
    )
    .unwrap();
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY
        | MountAttrFlags::MOUNT_ATTR_NOEXEC
        | MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW
        | MountAttrFlags::MOUNT_ATTR_NOATIME
        | MountAttrFlags::MOUNT_ATTR_NODIRATIME;
    assert!(config.synchronous);
    assert_eq!(config.attributes, attributes);
    assert!(!config.server.pairing);
    assert_eq!(config.transport, Transport::Uring);
    let ring = UringConfig {
        queues_per_thread: NonZeroUsize::new(4),
        depth: NonZeroU16::new(2),
    };
    assert_eq!(config.ring, ring);
    let serving = &config.serving;
    assert!(serving.read_only && serving.allow_other && serving.writeback && serving.export);
    assert!(!serving.acl && serving.xattr);
    assert_eq!(serving.cache, CacheMode::Always);
    assert_eq!(serving.entry_timeout, Some(Duration::from_millis(1500)));
    assert_eq!(serving.negative_timeout, Some(Duration::ZERO));
    assert_eq!(serving.locks, Locks::Shared);
    assert_eq!(serving.max_write, Some(65_536));
    assert_eq!(serving.max_background, Some(7));
    assert_eq!(serving.max_readahead, Some(32_768));
    assert_eq!(serving.descriptor_budget, Some(99));
    assert_eq!(serving.uid_map.to_host(3), Some(1003));
    assert_eq!(serving.uid_map.to_host(10), Some(0));
    assert_eq!(serving.gid_map, IdMap::Squash(5));
    assert_eq!(
        (config.threads, config.fsname.as_deref()),
        (Some(3), Some("a,b"))
    );
    assert_eq!(config.server.stop_timeout, Duration::from_millis(500));
    assert_eq!(config.server.control, ControlLocation::At("/run/c".into()));
    assert_eq!(
        mount("control=none").unwrap().server.control,
        ControlLocation::None
    );
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
fn acl_follows_other_options_unless_explicit() {
    assert!(!mount("noxattr").unwrap().serving.acl);
    assert!(!mount("no_default_permissions").unwrap().serving.acl);
    assert!(mount("noxattr,acl").is_err());
}

#[test]
fn ranges_that_overlap_are_refused() {
    assert!(mount("uidmap=0:100:10,uidmap=9:500:1").is_err());
    assert!(mount("uidmap=0:100:10,uidmap=50:109:1").is_err());
    assert!(mount("uidmap=0:100:10,uidmap=10:110:1").is_ok());
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
    assert_eq!(config.deaths_max, 10);
    assert_eq!(config.serving.file_handles, FileHandles::Never);
    assert_eq!(
        (config.sandbox, config.filter),
        (Sandbox::Best, FilterAction::Fail)
    );
}

#[test]
fn options_of_a_share_take_their_values() {
    let config = share(
        "ro,tag=home,queues=3,queue_size=256,queue_threads=4,cache=metadata,allow_mmap,allow_direct_io,\
         no_readdirplus,no_announce_submounts,security_label,no_killpriv_v2,locks=shared,\
         xattrmap=:map::user.v.:,translate_uid=map:0:1000:10,translate_uid=host:5:6:1,\
         translate_gid=squash-guest:0:7:9,sandbox=chroot,seccomp=trap,\
         modcaps=+sys_admin:-mknod:+CAP_MKNOD:-setfcap,rlimit_nofile=4096,stop_timeout=3,\
         migration_mode=file-handles,migration_on_error=guest-error,migration_verify_handles,\
         migration_confirm_paths,migration_refuse_handles",
    )
    .unwrap();
    let serving = &config.serving;
    assert!(serving.read_only && serving.allow_mmap && serving.allow_direct_io);
    assert!(!serving.readdirplus && !serving.announce_submounts && !serving.killpriv);
    assert!(serving.security_label);
    assert_eq!(serving.cache, CacheMode::Metadata);
    assert_eq!(serving.locks, Locks::Shared);
    assert_eq!(serving.xattr_map, Some(":map::user.v.:".parse().unwrap()));
    assert_eq!(serving.uid_map.to_host(3), Some(1003));
    assert_eq!(serving.uid_map.to_client(5), 6, "both rules");
    assert_eq!(serving.gid_map.to_host(8), Some(7));
    assert_eq!(
        (config.sandbox, config.filter),
        (Sandbox::Chroot, FilterAction::Trap)
    );
    let capabilities = config.capabilities;
    assert_eq!(
        capabilities.kept,
        CapabilitySet::SYS_ADMIN | CapabilitySet::MKNOD
    );
    assert_eq!(capabilities.dropped, CapabilitySet::SETFCAP);
    assert_eq!(config.descriptor_limit, Some(4096));
    let migration = Migration {
        mode: MigrationMode::FileHandles,
        on_error: MigrationOnError::GuestError,
        verify_handles: true,
        confirm_paths: true,
        accept_handles: false,
    };
    assert_eq!(config.serving.migration, migration);
    assert_eq!(config.serving.file_handles, FileHandles::Prefer);
    let device = config.device();
    assert_eq!(device.tag, Some(Tag::new("home").unwrap()));
    assert_eq!(
        (device.request_queues.get(), device.queue_size_max),
        (3, 256)
    );
    assert_eq!(device.queue_helpers_max, Some(3));
    assert_eq!(device.drain_timeout, Duration::from_secs(3));
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
