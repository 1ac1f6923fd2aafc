//! The statistics of a server as OpenMetrics text, for Prometheus and others that read it. Whoever has them makes it.
//!
//! Made of what the server counts anyway: nothing is counted for it.
//!
//! | of a mount | of a share |
//! |---|---|
//! | labelled `mount` | labelled `share` and, for each connected machine, `process` |

use serde_json::Value;
use std::fmt::Write;

#[derive(Clone, Copy)]
enum Kind {
    Gauge,
    Counter,
}

use Kind::{Counter, Gauge};

/// Of the server's tables: name, place in the JSON, kind and help.
#[rustfmt::skip]
const TABLES: [(&str, &str, Kind, &str); 19] = [
    ("inodes", "inodes", Gauge, "Inodes that the kernel has looked up."),
    ("descriptors", "descriptors", Gauge, "Descriptors cached for inodes."),
    ("descriptors_evicted", "descriptors_evicted", Counter, "Descriptors closed for others."),
    ("open_files", "open_files", Gauge, "Files that clients have open."),
    ("open_directories", "open_directories", Gauge, "Directories that clients have open."),
    ("passthrough_files", "backing_files", Gauge, "Files registered for passthrough."),
    ("lower_mounts", "mounts", Gauge, "Mounts of the source."),
    ("lock_owners", "lock_owners", Gauge, "Owners of shared POSIX locks."),
    ("mount_locks", "mount_locks", Gauge, "Files locked as a whole by the mount."),
    ("unmapped_opens", "unmapped_opens", Counter, "Opens that cannot be mapped shared."),
    ("refused_to_users", "refused_to_users", Counter, "Opens and locks beyond a user's quota."),
    ("follow_marks", "following/marks", Gauge, "Files and directories that are watched."),
    ("follow_events", "following/events", Counter, "Changes in the source by others."),
    ("follow_notifications", "following/notifications", Counter, "Messages to the kernel."),
    ("cache_drops", "following/losses", Counter, "Times that events were lost, and all caches dropped."),
    ("follow_silenced", "following/silenced", Counter, "Times that a file became silent."),
    ("follow_late", "following/late", Counter, "Times that notifications were late."),
    ("dax_files", "dax/files", Counter, "Files that the guest was told to map."),
    ("dax_refused", "dax/refused", Counter, "Requests to map that were refused."),
];

/// Figures that are levels; the others are counts.
const LEVELS: [&str; 9] = [
    "readers",
    "ring_threads",
    "blocked",
    "waiting_for_locks",
    "answered_later",
    "standing_by",
    "notifications_queued",
    "window_mappings",
    "window_mappings_at_most",
];

/// What has counts of its own.
struct Subject<'a> {
    /// As between braces.
    labels: String,
    statistics: &'a Value,
}

/// The value of the option `transport` that requests come by, from what a server says of it with a reason.
pub(crate) fn transport(carrier: &str) -> &'static str {
    match carrier.starts_with("io_uring") {
        true => "uring",
        false => "dev",
    }
}

pub(crate) fn of(place: &str, answer: &Value) -> String {
    let mut page = Page(String::new());
    let (kind, machines) = match answer["machines"].as_array() {
        Some(machines) => ("share", machines.as_slice()),
        None => ("mount", std::slice::from_ref(answer)),
    };
    let named = label(kind, place);
    let subjects = machines.iter().map(|statistics| Subject {
        labels: match statistics["process"].as_u64() {
            Some(process) => format!("{named},process=\"{process}\""),
            None => named.clone(),
        },
        statistics,
    });
    let subjects: Vec<_> = subjects.collect();
    page.family("info", Gauge, "What is served, and how; always 1.");
    let configured = &answer["configured"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (source, cache) = (text(&configured["source"]), text(&configured["cache"]));
    let transport = match kind {
        "share" => "vhost-user",
        _ => transport(&text(&answer["requests_come_by"])),
    };
    let about = [
        label("source", &source),
        label("cache", &cache),
        label("transport", transport),
    ];
    page.sample("info", &format!("{named},{}", about.join(",")), 1.0);
    if kind == "share" {
        page.family(
            "machines",
            Gauge,
            "Virtual machines that are connected and answer.",
        );
        page.sample("machines", &named, machines.len() as f64);
    }
    page.operations(&subjects);
    for (name, at, kind, help) in TABLES {
        page.values(name, kind, help, &subjects, &format!("/tables/{at}"));
    }
    let help = "Workers that died and were replaced.";
    page.values("worker_deaths", Counter, help, &subjects, "/resumptions");
    page.figures(&subjects);
    page.0 + "# EOF\n"
}

fn label(name: &str, value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"");
    format!("{name}=\"{}\"", value.replace('\n', "\\n"))
}

struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Gauge => "gauge",
            Counter => "counter",
        };
        self.describe(name, kind, help);
    }

    fn describe(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# TYPE thrufs_{name} {kind}");
        let _ = writeln!(self.0, "# HELP thrufs_{name} {help}");
    }

    fn sample(&mut self, name: &str, labels: &str, value: f64) {
        let _ = writeln!(self.0, "thrufs_{name}{{{labels}}} {value}");
    }

    /// A value of each subject that has it.
    fn values(&mut self, name: &str, kind: Kind, help: &str, all: &[Subject<'_>], at: &str) {
        let found = all
            .iter()
            .filter_map(|it| Some((it, it.statistics.pointer(at)?.as_f64()?)));
        let found: Vec<_> = found.collect();
        if !found.is_empty() {
            self.family(name, kind, help);
        }
        let suffix = match kind {
            Gauge => "",
            Counter => "_total",
        };
        for (subject, value) in found {
            self.sample(&format!("{name}{suffix}"), &subject.labels, value);
        }
    }

    fn operations(&mut self, subjects: &[Subject<'_>]) {
        let all = subjects.iter().flat_map(|subject| {
            let operations = subject.statistics["operations"].as_array();
            operations.into_iter().flatten().map(|operation| {
                let name = operation["name"].as_str().unwrap_or_default();
                (
                    format!("{},{}", subject.labels, label("operation", name)),
                    operation,
                )
            })
        });
        let all: Vec<_> = all.collect();
        let number = |value: &Value| value.as_f64().unwrap_or_default();
        self.family("requests", Counter, "Requests, failed ones included.");
        for (labels, operation) in &all {
            self.sample("requests_total", labels, number(&operation["requests"]));
        }
        self.family(
            "errors",
            Counter,
            "Requests that failed; ENOSYS is no failure.",
        );
        for (labels, operation) in &all {
            for (errno, count) in operation["errors_by_errno"]
                .as_object()
                .into_iter()
                .flatten()
            {
                let labels = format!("{labels},{}", label("errno", errno));
                self.sample("errors_total", &labels, number(count));
            }
        }
        self.describe("data_bytes", "counter", "Bytes that were read or written.");
        let _ = writeln!(self.0, "# UNIT thrufs_data_bytes bytes");
        for (labels, operation) in all.iter().filter(|(_, it)| number(&it["bytes"]) > 0.0) {
            self.sample("data_bytes_total", labels, number(&operation["bytes"]));
        }
        self.describe(
            "request_duration_seconds",
            "histogram",
            "Time in the server, from the read of a request to its reply.",
        );
        let _ = writeln!(self.0, "# UNIT thrufs_request_duration_seconds seconds");
        for (labels, operation) in &all {
            for pair in operation["below_ns"].as_array().into_iter().flatten() {
                let end = label("le", &format!("{:?}", number(&pair[0]) / 1e9));
                let labels = format!("{labels},{end}");
                self.sample("request_duration_seconds_bucket", &labels, number(&pair[1]));
            }
            let labels = format!("{labels},le=\"+Inf\"");
            let count = number(&operation["requests"]);
            self.sample("request_duration_seconds_bucket", &labels, count);
        }
    }

    fn figures(&mut self, subjects: &[Subject<'_>]) {
        let first = subjects
            .first()
            .and_then(|it| it.statistics["figures"].as_object());
        let names: Vec<&String> = first.into_iter().flat_map(|it| it.keys()).collect();
        for name in names {
            let kind = match LEVELS.contains(&name.as_str()) {
                true => Gauge,
                false => Counter,
            };
            let help = format!("As in thrufs ctl statistics: {}.", name.replace('_', " "));
            self.values(name, kind, &help, subjects, &format!("/figures/{name}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn labels_are_escaped_and_every_machine_has_its_own() {
        let machine = |process: u32, count: u32| {
            json!({
                "process": process,
                "operations": [{
                    "name": "READ", "requests": count, "bytes": 7, "errors_by_errno": {"EIO": 1},
                    "below_ns": [[1024, 1], [4096, count]],
                }],
                "figures": {"readers": 2, "panics": 0},
            })
        };
        let answer = json!({
            "configured": {"source": "/a \"b\"\\", "cache": "auto"},
            "machines": [machine(11, 2), machine(12, 3)],
        });
        let text = of("/run/s\n", &answer);
        for line in [
            r#"thrufs_info{share="/run/s\n",source="/a \"b\"\\",cache="auto",transport="vhost-user"} 1"#,
            r#"thrufs_machines{share="/run/s\n"} 2"#,
            r#"thrufs_requests_total{share="/run/s\n",process="12",operation="READ"} 3"#,
            r#"thrufs_errors_total{share="/run/s\n",process="11",operation="READ",errno="EIO"} 1"#,
            "# TYPE thrufs_readers gauge",
            "# TYPE thrufs_panics counter",
            r#"thrufs_panics_total{share="/run/s\n",process="11"} 0"#,
        ] {
            assert!(text.lines().any(|it| it == line), "{line} in {text}");
        }
        let bucket = r#"process="11",operation="READ",le="4.096e-6"} 2"#;
        assert!(text.contains(bucket), "{text}");
        assert!(text.ends_with("# EOF\n"));
    }
}
