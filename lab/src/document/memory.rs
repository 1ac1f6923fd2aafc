//! What `cargo xtask bench --memory` keeps: memory of an idle mount, and what many files take.

use serde::Deserialize;
use std::path::Path;

/// A page of memory, in bytes.
const PAGE: f64 = 4096.0;

/// A run.
#[derive(Deserialize)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Memory {
    kind: String,
    processors: u64,
    idle: Vec<Idle>,
    walked: Walked,
}

/// The processes of an idle mount. In bytes.
#[derive(Deserialize)]
#[cfg_attr(test, derive(Clone))]
struct Idle {
    options: String,
    /// Pages that several processes have count for their share of them.
    proportional: u64,
    /// Pages that are no file's.
    anonymous: u64,
}

/// Files that were all looked up under a limit of 1024 descriptors.
#[derive(Deserialize)]
#[cfg_attr(test, derive(Clone))]
struct Walked {
    files: u64,
    /// Inodes that the server then knew.
    known: u64,
    /// By how much the server's memory had grown, in bytes.
    resident: u64,
    descriptors: u64,
}

impl Walked {
    /// What the server took for each inode that it knew, in bytes.
    fn bytes_each(&self) -> u64 {
        self.resident / self.known.max(1)
    }
}

/// One of the goals, with its bound.
#[derive(Clone, Copy)]
pub(super) enum Bound {
    /// An idle mount, in bytes at most.
    Idle(u64),
    /// A cached inode, in bytes at most.
    Inode(u64),
    /// An unused ring entry has no page of its own.
    Untouched,
    /// Files at least.
    Files(u64),
}

impl Bound {
    /// For people.
    pub(super) fn goal(self) -> String {
        match self {
            Bound::Idle(most) => format!("≤ {} MiB", most >> 20),
            Bound::Inode(most) => format!("≤ {most} bytes"),
            Bound::Untouched => "no resident page".to_owned(),
            Bound::Files(least) => format!("{} million", least / 1_000_000),
        }
    }
}

/// What was found: of which mount, in words, and whether it is as it should be.
pub(super) type Finding = (String, String, bool);

fn millions(count: u64) -> String {
    format!("{:.1} million", count as f64 / 1e6)
}

impl Memory {
    /// None of anything else.
    pub(super) fn read(path: &Path) -> Option<Memory> {
        let text = std::fs::read_to_string(path).ok()?;
        let memory: Memory = serde_json::from_str(&text).ok()?;
        (memory.kind == "memory").then_some(memory)
    }

    /// Of the newest run that says something. How many files can be served, of the one with most; what an
    /// inode takes, of the one in which it takes most.
    pub(super) fn shown(runs: &[Memory], bound: Bound) -> Vec<Finding> {
        let worst = match bound {
            Bound::Files(_) => runs.iter().max_by_key(|run| run.walked.files),
            Bound::Inode(_) => runs.iter().max_by_key(|run| run.walked.bytes_each()),
            Bound::Idle(_) | Bound::Untouched => None,
        };
        if let Some(run) = worst {
            return run.findings(bound);
        }
        let findings = runs.iter().rev().map(|run| run.findings(bound));
        findings
            .into_iter()
            .find(|all| !all.is_empty())
            .unwrap_or_default()
    }

    fn idle(&self, options: &str) -> Option<&Idle> {
        self.idle.iter().find(|idle| idle.options == options)
    }

    /// Nothing where this run says nothing about it.
    pub(super) fn findings(&self, bound: Bound) -> Vec<Finding> {
        let walked = &self.walked;
        match bound {
            Bound::Idle(most) => {
                let ways = [("dev", "transport=dev"), ("ring", "transport=uring")];
                let found = ways.into_iter().filter_map(|(name, options)| {
                    let bytes = self.idle(options)?.proportional;
                    let text = format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
                    Some((name.to_owned(), text, bytes <= most))
                });
                found.collect()
            }
            Bound::Inode(most) => {
                let bytes = walked.bytes_each();
                let mut what = format!("{bytes} bytes, of {}", millions(walked.files));
                // The kernel has made the server forget the others, whose memory may still be kept.
                if walked.known < walked.files {
                    what += &format!(", {} of them known", millions(walked.known));
                }
                vec![("dev".to_owned(), what, bytes <= most)]
            }
            Bound::Untouched => {
                let ring = |depth: u64| self.idle(&format!("transport=uring,ring_depth={depth}"));
                let (Some(few), Some(many)) = (ring(8), ring(64)) else {
                    return Vec::new();
                };
                let more = many.anonymous.saturating_sub(few.anonymous) as f64;
                let pages = more / PAGE / ((64 - 8) * self.processors.max(1)) as f64;
                // What else two mounts differ by is less than a page for ten entries.
                vec![("ring".to_owned(), format!("{pages:.2} pages"), pages < 0.1)]
            }
            Bound::Files(least) => {
                let (files, descriptors) = (walked.files, walked.descriptors);
                let what = format!("{}, with {descriptors} descriptors", millions(files));
                vec![("dev".to_owned(), what, files >= least)]
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::{Bound, Idle, Memory, Walked};

    pub(crate) fn memory(files: u64, known: u64) -> Memory {
        let idle = |options: &str, anonymous: u64| Idle {
            options: options.to_owned(),
            proportional: 7_400_000 + anonymous,
            anonymous,
        };
        Memory {
            kind: "memory".to_owned(),
            processors: 2,
            idle: vec![
                idle("transport=dev", 900_000),
                idle("transport=uring", 1_100_000),
                idle("transport=uring,ring_depth=8", 1_000_000),
                idle("transport=uring,ring_depth=64", 1_000_000 + 11 * 4096),
            ],
            walked: Walked {
                files,
                known,
                resident: 250 * known,
                descriptors: 17,
            },
        }
    }

    fn shown(memory: &Memory, bound: Bound) -> Vec<(String, bool)> {
        let findings = memory.findings(bound).into_iter();
        findings
            .map(|(name, what, is_so)| (format!("{name} {what}"), is_so))
            .collect()
    }

    #[test]
    fn each_bound_is_held_against_its_figure() {
        let found = memory(1_000_000, 1_000_002);
        let ways = [("dev 7.9 MiB", true), ("ring 8.1 MiB", false)];
        assert_eq!(
            shown(&found, Bound::Idle(8 << 20)),
            ways.map(|(what, is_so)| (what.to_owned(), is_so))
        );
        let inode = "dev 250 bytes, of 1.0 million".to_owned();
        assert_eq!(shown(&found, Bound::Inode(250)), [(inode.clone(), true)]);
        assert_eq!(shown(&found, Bound::Inode(249)), [(inode, false)]);
        let entry = "ring 0.10 pages".to_owned();
        assert_eq!(shown(&found, Bound::Untouched), [(entry, true)]);
        let files = "dev 1.0 million, with 17 descriptors".to_owned();
        assert_eq!(
            shown(&found, Bound::Files(1_000_000)),
            [(files.clone(), true)]
        );
        assert_eq!(shown(&found, Bound::Files(1_000_001)), [(files, false)]);
    }

    #[test]
    fn the_newest_run_counts_and_for_files_the_largest_and_for_inodes_the_worst() {
        let mut newest = memory(1_000_000, 1_000_000);
        newest.walked.resident = 200_000_000;
        newest.idle[0].proportional = 1 << 20;
        let runs = [memory(10_000_000, 5_000_000), newest];
        let of = |bound| Memory::shown(&runs, bound).remove(0).1;
        let inode = "250 bytes, of 10.0 million, 5.0 million of them known";
        assert_eq!(of(Bound::Inode(300)), inode);
        assert_eq!(of(Bound::Idle(1)), "1.0 MiB");
        assert!(of(Bound::Files(1)).starts_with("10.0 million"));
        let runs = [runs[1].clone(), runs[0].clone()];
        let of = |bound| Memory::shown(&runs, bound).remove(0).1;
        assert_eq!(of(Bound::Inode(300)), inode);
        assert_eq!(of(Bound::Idle(1)), "7.9 MiB");
    }

    #[test]
    fn a_page_for_each_entry_is_seen() {
        let mut found = memory(1, 1);
        found.idle[3].anonymous = 1_000_000 + 112 * 4096;
        assert_eq!(
            shown(&found, Bound::Untouched),
            [("ring 1.00 pages".to_owned(), false)]
        );
    }
}
