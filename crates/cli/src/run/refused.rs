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
        "; AppArmor restricts user namespaces: give thrufs a profile with `userns,`, or \
         `sysctl kernel.apparmor_restrict_unprivileged_userns=0`",
    ),
];

/// What to say after an error of a step in the sandbox.
pub(super) fn hint(error: &io::Error) -> &'static str {
    let refused = [Errno::PERM, Errno::ACCESS, Errno::NOSPC];
    if !Errno::from_io_error(error).is_some_and(|errno| refused.contains(&errno)) {
        return "";
    }
    let is_set = |path: &str, value: &str| {
        std::fs::read_to_string(path).is_ok_and(|text| text.trim() == value)
    };
    let switch = SWITCHES.iter().find(|(path, value, _)| is_set(path, value));
    switch.map_or(
        "; in a container, its seccomp filter, or places of /proc that it hides, may forbid this",
        |(_, _, hint)| hint,
    )
}
