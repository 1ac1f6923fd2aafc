//! Why a kernel or distribution refuses user namespaces, and the switch that permits them.

use rustix::io::Errno;
use std::io;

const SWITCHES: [(&str, &str, &str); 3] = [
    (
        "/proc/sys/user/max_user_namespaces",
        "0",
        "; user namespaces are turned off: `sysctl user.max_user_namespaces=10000`",
    ),
    (
        "/proc/sys/kernel/unprivileged_userns_clone",
        "0",
        "; ordinary users may not create user namespaces: `sysctl kernel.unprivileged_userns_clone=1`",
    ),
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "; AppArmor restricts user namespaces: copy share/thrufs/apparmor/thrufs of the installation to \
         /etc/apparmor.d and load it with `apparmor_parser -r`, or \
         `sysctl kernel.apparmor_restrict_unprivileged_userns=0`",
    ),
];

/// Of root.
const NO_ADMIN: &str = "; root needs CAP_SYS_ADMIN for this: give it to the container (`--cap-add SYS_ADMIN`), or call \
                        thrufs as another user of it, which needs user namespaces instead";

const NO_USER_NAMESPACES: &str = "; a container's seccomp filter may forbid user namespaces (`--security-opt \
                                  seccomp=unconfined`, or a filter that permits them), and chroot(2) does";

const NO_PROC: &str = "; a container that hides places of /proc may mount no other: `--security-opt unmask=ALL` \
                       (podman), `--security-opt systempaths=unconfined` (docker)";

/// What to say after an error of a step in the sandbox.
pub(super) fn hint(step: &str, error: &io::Error) -> &'static str {
    let refused = [Errno::PERM, Errno::ACCESS, Errno::NOSPC];
    if !Errno::from_io_error(error).is_some_and(|errno| refused.contains(&errno)) {
        return "";
    }
    let is_set = |path: &str, value: &str| {
        std::fs::read_to_string(path).is_ok_and(|text| text.trim() == value)
    };
    if step == "create a mount namespace" && rustix::process::geteuid().is_root() {
        return NO_ADMIN;
    }
    if step == "mount /proc" {
        return NO_PROC;
    }
    let switch = SWITCHES.iter().find(|(path, value, _)| is_set(path, value));
    match switch {
        Some((_, _, hint)) => hint,
        None if step.contains("user namespace") => NO_USER_NAMESPACES,
        None => "; in a container, its seccomp filter or its AppArmor profile may forbid this",
    }
}
