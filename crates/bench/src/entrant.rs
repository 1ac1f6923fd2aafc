//! Who is to take part: what a contestant is started by, and what must come of it.

use crate::Outcome;
use crate::peers;
use crate::results::{self, Kind};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// How requests come to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Transport {
    /// `/dev/fuse`.
    Dev,
    /// FUSE over io_uring.
    Ring,
}

/// By which way the data of files go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Data {
    /// Not asked for.
    Any,
    /// The kernel uses the files beneath by itself.
    Through,
    /// By the server.
    Served,
}

/// One that is to take part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Entrant {
    /// The file system beneath by itself.
    Native,
    /// `thrufs mount`.
    Ours {
        name: String,
        title: String,
        /// What stands after `-o`.
        options: String,
        /// What it must have, as far as that was asked for.
        transport: Option<Transport>,
        data: Data,
    },
    /// Our library in a server of the benchmark's own.
    Library { name: String, data: Data },
    /// libfuse's `passthrough_hp`.
    Libfuse(Mode),
    /// A server that answers from constants.
    Floor(String),
    /// One of [`peers`], with its own defaults.
    Peer(String),
    /// Whatever is mounted there.
    Against { name: String, point: PathBuf },
}

/// A mode of ours, or of libfuse: a transport and a way of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mode {
    pub(crate) transport: Transport,
    pub(crate) data: Data,
}

/// What a server of ours is told in every mode: its control socket would outlive it, when it is killed.
const ALWAYS: &str = "control=none";

impl Mode {
    /// All of them, in the order in which they are shown.
    pub(crate) const ALL: [Mode; 4] = [
        Mode::of(Transport::Dev, Data::Served),
        Mode::of(Transport::Ring, Data::Served),
        Mode::of(Transport::Dev, Data::Through),
        Mode::of(Transport::Ring, Data::Through),
    ];

    pub(crate) const fn of(transport: Transport, data: Data) -> Mode {
        Mode { transport, data }
    }

    /// What people call it.
    pub(crate) fn name(self) -> &'static str {
        match (self.transport, self.data) {
            (Transport::Dev, Data::Through) => "dev+pt",
            (Transport::Ring, Data::Through) => "ring+pt",
            (Transport::Dev, _) => "dev",
            (Transport::Ring, _) => "ring",
        }
    }

    /// What libfuse's server in that mode is called.
    fn name_with_libfuse(self) -> &'static str {
        match (self.transport, self.data) {
            (Transport::Dev, Data::Through) => "libfuse+pt",
            (Transport::Ring, Data::Through) => "libfuse-uring+pt",
            (Transport::Dev, _) => "libfuse",
            (Transport::Ring, _) => "libfuse-uring",
        }
    }

    /// What libfuse's server is told. Without `--nosplice` it makes a pipe for each request.
    pub(crate) fn options_of_libfuse(self) -> Vec<&'static str> {
        let mut options = vec!["--nosplice"];
        if self.data != Data::Through {
            options.push("--nopassthrough");
        }
        if self.transport == Transport::Ring {
            options.extend(["-o", "io_uring"]);
        }
        options
    }

    /// The modes of these names; all for none.
    pub(crate) fn named(names: &[String]) -> Outcome<Vec<Mode>> {
        if names.is_empty() {
            return Ok(Mode::ALL.to_vec());
        }
        let one = |name: &String| {
            let found = Mode::ALL.into_iter().find(|mode| mode.name() == name);
            found.ok_or_else(|| {
                let names = Mode::ALL.map(Mode::name).join(", ");
                format!("--modes {name}: there are {names}")
            })
        };
        names.iter().map(one).collect()
    }

    /// The contestant: with the default mount's cache, or with the one that is named, which
    /// `in_the_name` says in its name as well.
    pub(crate) fn entrant(self, cache: Option<&str>, in_the_name: bool) -> Entrant {
        let (word, transport) = match self.transport {
            Transport::Dev => ("dev", "/dev/fuse"),
            Transport::Ring => ("uring", "io_uring"),
        };
        let mut title = format!("Thrufs over {transport}");
        let mut options = format!("transport={word}");
        if self.data == Data::Through {
            title.push_str(", passthrough");
        } else {
            options.push_str(",nopassthrough");
        }
        let mut name = self.name().to_owned();
        if let Some(cache) = cache {
            title.push_str(&format!(", cache={cache}"));
            options.push_str(&format!(",cache={cache}"));
            if in_the_name {
                name.push_str(&format!(":{cache}"));
            }
        }
        options.push_str(&format!(",{ALWAYS}"));
        Entrant::Ours {
            name,
            title,
            options,
            transport: Some(self.transport),
            data: self.data,
        }
    }
}

impl Entrant {
    /// Ours, choosing transport and way of data by itself.
    pub(crate) fn ours_by_itself(options: &str) -> Entrant {
        Entrant::Ours {
            name: "thrufs".to_owned(),
            title: "Thrufs".to_owned(),
            options: format!("{options},{ALWAYS}"),
            transport: None,
            data: Data::Any,
        }
    }

    /// The word by which it is known.
    pub(crate) fn name(&self) -> &str {
        match self {
            Entrant::Native => "native",
            Entrant::Ours { name, .. }
            | Entrant::Library { name, .. }
            | Entrant::Floor(name)
            | Entrant::Peer(name)
            | Entrant::Against { name, .. } => name,
            Entrant::Libfuse(mode) => mode.name_with_libfuse(),
        }
    }

    /// What a report says of it.
    pub(crate) fn described(&self) -> results::Contestant {
        let (title, kind, options) = match self {
            Entrant::Native => (
                "the file system beneath".to_owned(),
                Kind::Native,
                String::new(),
            ),
            Entrant::Ours { title, options, .. } => {
                (title.clone(), Kind::Ours, format!("-o {options}"))
            }
            Entrant::Library { name, .. } => (
                format!("the library of Thrufs, {name}"),
                Kind::Ours,
                "cache always, /dev/fuse".to_owned(),
            ),
            Entrant::Libfuse(mode) => {
                let mut title = "libfuse's passthrough_hp".to_owned();
                if mode.transport == Transport::Ring {
                    title.push_str(" over io_uring");
                }
                if mode.data == Data::Through {
                    title.push_str(", passthrough");
                }
                (title, Kind::Other, mode.options_of_libfuse().join(" "))
            }
            Entrant::Floor(name) => (
                format!("a server that answers from constants, {name}"),
                Kind::Floor,
                String::new(),
            ),
            Entrant::Peer(name) => {
                let version =
                    peers::version(name).map_or_else(String::new, |text| format!(" {text}"));
                (
                    format!("{}{version}", peers::title(name)),
                    Kind::Other,
                    format!("bench/peers/{name} start"),
                )
            }
            Entrant::Against { name, point } => (
                name.clone(),
                Kind::Other,
                format!("mounted at {}", point.display()),
            ),
        };
        results::Contestant {
            name: self.name().to_owned(),
            title,
            kind,
            options,
            resident_kib: None,
            absent: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Entrant, Mode};

    #[test]
    fn a_mode_says_what_it_asks_for() {
        let options = |mode: Mode, cache: Option<&str>| match mode.entrant(cache, true) {
            Entrant::Ours { name, options, .. } => (name, options),
            other => panic!("{other:?}"),
        };
        let [dev, .., ring_through] = Mode::ALL;
        let (name, said) = options(dev, None);
        assert_eq!(name, "dev");
        assert_eq!(said, "transport=dev,nopassthrough,control=none");
        let (name, said) = options(ring_through, Some("never"));
        assert_eq!(name, "ring+pt:never");
        assert_eq!(said, "transport=uring,cache=never,control=none");
    }

    #[test]
    fn libfuse_has_the_modes_that_ours_has() {
        let of = |mode: Mode| {
            let described = Entrant::Libfuse(mode).described();
            (described.name, described.options)
        };
        let expected = [
            ("libfuse", "--nosplice --nopassthrough"),
            ("libfuse-uring", "--nosplice --nopassthrough -o io_uring"),
            ("libfuse+pt", "--nosplice"),
            ("libfuse-uring+pt", "--nosplice -o io_uring"),
        ];
        for (mode, (name, options)) in Mode::ALL.into_iter().zip(expected) {
            assert_eq!(of(mode), (name.to_owned(), options.to_owned()));
        }
    }

    #[test]
    fn modes_have_names() {
        let named = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            Mode::named(&names)
        };
        assert_eq!(named(&[]).unwrap(), Mode::ALL);
        assert_eq!(named(&["ring+pt"]).unwrap(), [Mode::ALL[3]]);
        assert!(
            named(&["uring"])
                .unwrap_err()
                .contains("dev, ring, dev+pt, ring+pt")
        );
    }
}
