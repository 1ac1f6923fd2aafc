//! Ids of a worker's user namespace beyond the user's own.
//!
//! They are mapped by the set-user-id programs newuidmap(1) and newgidmap(1), which check `/etc/subuid`
//! and `/etc/subgid`. The supervisor runs them, because the worker is inside the namespace already.

use crate::config::ShareConfig;
use std::io::ErrorKind;
use std::process::{Command, Stdio};
use thrufs_hostdir::{IdMap, IdRange};
use thrufs_sys::apart::Apart;

pub(super) fn map(apart: &mut Apart, process: u32, config: &ShareConfig) -> Result<(), String> {
    let (uids, gids) = (config.namespace_uids.clone(), config.namespace_gids.clone());
    let mapped = apart.call(&[], move |_| {
        run("newuidmap", process, &uids)?;
        run("newgidmap", process, &gids)
    });
    mapped.map_err(|error| error.to_string())?
}

fn run(program: &str, process: u32, map: &IdMap) -> Result<(), String> {
    let output = Command::new(program)
        .arg(process.to_string())
        .args(arguments(map))
        .stdin(Stdio::null())
        .output();
    let output = output.map_err(|error| match error.kind() {
        ErrorKind::NotFound => format!("{program} is not installed (package uidmap)"),
        _ => format!("cannot run {program}: {error}"),
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program}: {}", said.trim()))
}

fn arguments(map: &IdMap) -> Vec<String> {
    let ranges: &[IdRange] = match map {
        IdMap::Ranges(ranges) => ranges,
        _ => &[],
    };
    let numbers = ranges
        .iter()
        .flat_map(|range| [range.client, range.host, range.count]);
    numbers.map(|number| number.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options;

    #[test]
    fn every_range_is_three_arguments() {
        let list = "namespace_uidmap=0:100000:65536,namespace_uidmap=65536:1000:1,\
                    namespace_gidmap=5:6:7";
        let settings = options::parse(list).unwrap();
        let config = options::resolve_share(&settings).unwrap();
        assert_eq!(
            arguments(&config.namespace_uids),
            ["0", "100000", "65536", "65536", "1000", "1"]
        );
        assert_eq!(arguments(&config.namespace_gids), ["5", "6", "7"]);
    }

    #[test]
    fn missing_or_failing_program_is_an_error() {
        let map = IdMap::Identity;
        let error = run("no-such-program-here", 1, &map).unwrap_err();
        assert!(error.contains("not installed"), "{error}");
        let error = run("false", 1, &map).unwrap_err();
        assert!(error.starts_with("false: "), "{error}");
        assert_eq!(run("true", 1, &map), Ok(()));
    }
}
