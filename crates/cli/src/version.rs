//! What `thrufs --version` prints after its first line, which is `thrufs VERSION` and all that `-V` prints.

/// The version, and lines `NAME: VALUE` on the build.
pub(crate) fn long() -> String {
    let commit = option_env!("THRUFS_BUILT_FROM").unwrap_or(match cfg!(debug_assertions) {
        true => "not recorded, a debug build",
        false => "not known",
    });
    let linked = match cfg!(target_feature = "crt-static") {
        true => "static",
        false => "dynamic",
    };
    format!(
        "{version}\n\
         commit: {commit}\n\
         build: {arch}, {linked}\n\
         serves: FUSE by /dev/fuse and io_uring, virtio-fs by vhost-user\n\
         features: passthrough, policies, redaction, audit, run, drafts, live migration, DAX window",
        version = env!("CARGO_PKG_VERSION"),
        arch = std::env::consts::ARCH,
    )
}
