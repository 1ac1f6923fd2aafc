//! Which crate of the workspace may depend on which.

/// What is published, from the top down: each may depend on those of the lines below.
const FLOORS: [&[&str]; 5] = [
    &["thrufs-cli", "thrufs-bench", "thrufs-fuser16"],
    &[
        "thrufs-hostdir",
        "thrufs-virtio",
        "thrufs-async",
        "thrufs-fuser",
    ],
    &["thrufs-policy", "thrufs-redact"],
    &["thrufs"],
    &["thrufs-abi", "thrufs-sys"],
];

fn may_depend(package: &str, on: &str) -> bool {
    let floor = |name| FLOORS.iter().position(|floor| floor.contains(&name));
    match (floor(package), floor(on)) {
        (Some(above), Some(below)) => above < below,
        (Some(_), None) => false,
        (None, _) => on != "thrufs-bench",
    }
}

/// The dependencies of one manifest that run against the direction. Those of tests are free, and those of
/// what is not published.
pub(super) fn wrong(manifest: &str) -> Vec<String> {
    let mut section = "";
    let mut package = "";
    let mut found = Vec::new();
    for line in manifest.lines().map(str::trim) {
        let key = line.split(['.', '=', ' ']).next().unwrap_or_default();
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']);
        } else if section == "package" && key == "name" {
            package = line.split('"').nth(1).unwrap_or_default();
        } else if is_counted(section) && key.starts_with("thrufs") && !may_depend(package, key) {
            found.push(format!("{package} -> {key}"));
        }
    }
    found
}

fn is_counted(section: &str) -> bool {
    let is_free = section.ends_with("dev-dependencies") || section == "workspace.dependencies";
    section.ends_with("dependencies") && !is_free
}
