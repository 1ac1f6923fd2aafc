//! The setup of a target: its command, and the transport and data path that it must have once it runs.

use crate::Outcome;
use crate::results::{self, Kind};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// How requests come to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transport {
    /// `/dev/fuse`.
    Dev,
    /// FUSE over io_uring.
    Ring,
}

/// By which way the data of files go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Data {
    /// Not asked for.
    Any,
    /// The kernel uses the files beneath by itself.
    Through,
    /// By the server.
    Served,
}

/// One that is to take part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TargetSetup {
    /// The file system beneath by itself.
    Native,
    /// A server that is started for the run.
    Server(ServerSetup),
    /// Whatever is mounted there.
    Against {
        /// What it is called.
        name: String,
        /// Where it is mounted.
        point: PathBuf,
    },
}

/// A server: a command line, and what must come of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerSetup {
    /// The word by which it is known.
    pub name: String,
    /// For people.
    pub title: String,
    /// What kind of server.
    pub kind: Kind,
    /// What a report says of how it was started.
    pub options: String,
    /// The program and its words, of which [`SOURCE`](Self::SOURCE), [`POINT`](Self::POINT) and
    /// [`PROCESSOR`](Self::PROCESSOR) stand for others. The program `thrufs` is the one beside this.
    pub command: Vec<String>,
    /// Over which transport it must be, as far as that was asked for.
    pub transport: Option<Transport>,
    /// By which way its data must go; where there is none, that is not looked at.
    pub data: Option<Data>,
    /// Whether each process that measures has one of its own, both on a processor of their own.
    pub each_job: bool,
}

/// A mode: a transport and a way of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mode {
    /// How requests come.
    pub transport: Transport,
    /// How data go.
    pub data: Data,
}

/// An option of all our servers: a control socket would outlive one that is killed.
const ALWAYS: &str = "control=none";

impl Mode {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Mode; 4] = [
        Mode::of(Transport::Dev, Data::Served),
        Mode::of(Transport::Ring, Data::Served),
        Mode::of(Transport::Dev, Data::Through),
        Mode::of(Transport::Ring, Data::Through),
    ];

    /// The one with both.
    #[must_use]
    pub const fn of(transport: Transport, data: Data) -> Mode {
        Mode { transport, data }
    }

    /// What people call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match (self.transport, self.data) {
            (Transport::Dev, Data::Through) => "dev+pt",
            (Transport::Ring, Data::Through) => "ring+pt",
            (Transport::Dev, _) => "dev",
            (Transport::Ring, _) => "ring",
        }
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

    /// The target: with the default mount's cache, or with the one that is named, which
    /// `in_the_name` says in its name as well.
    #[must_use]
    pub fn setup(self, cache: Option<&str>, in_the_name: bool) -> TargetSetup {
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
        TargetSetup::Server(ServerSetup {
            name,
            title,
            transport: Some(self.transport),
            data: Some(self.data),
            ..ServerSetup::thrufs(&options)
        })
    }
}

impl ServerSetup {
    /// In place of the directory beneath.
    pub const SOURCE: &str = "SOURCE";
    /// In place of the mount point.
    pub const POINT: &str = "MOUNTPOINT";
    /// In place of the number of the processor that it is to stay on.
    pub const PROCESSOR: &str = "PROCESSOR";

    /// `thrufs mount` with these options, of which nothing is known and which has no name yet.
    #[must_use]
    pub fn thrufs(options: &str) -> ServerSetup {
        let options = format!("{options},{ALWAYS}");
        let command = ["thrufs", "mount", "-f", "-o", &options];
        let command = command
            .into_iter()
            .chain([ServerSetup::SOURCE, ServerSetup::POINT]);
        ServerSetup {
            name: String::new(),
            title: String::new(),
            kind: Kind::Ours,
            command: command.map(str::to_owned).collect(),
            options: format!("-o {options}"),
            transport: None,
            data: Some(Data::Any),
            each_job: false,
        }
    }
}

impl TargetSetup {
    /// The word by which it is known.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            TargetSetup::Native => "native",
            TargetSetup::Server(ServerSetup { name, .. }) | TargetSetup::Against { name, .. } => {
                name
            }
        }
    }

    /// What a report says of it.
    pub(crate) fn described(&self) -> results::Target {
        let (title, kind, options) = match self {
            TargetSetup::Native => ("the file system beneath", Kind::Native, String::new()),
            TargetSetup::Server(server) => (&*server.title, server.kind, server.options.clone()),
            TargetSetup::Against { name, point } => (
                &**name,
                Kind::Other,
                format!("mounted at {}", point.display()),
            ),
        };
        results::Target {
            name: self.name().to_owned(),
            title: title.to_owned(),
            kind,
            options,
            resident_kib: None,
            absent: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Mode, TargetSetup};

    #[test]
    fn a_mode_says_what_it_asks_for() {
        let options = |mode: Mode, cache: Option<&str>| match mode.setup(cache, true) {
            TargetSetup::Server(server) => (server.name, server.options),
            other => panic!("{other:?}"),
        };
        let [dev, .., ring_through] = Mode::ALL;
        let (name, said) = options(dev, None);
        assert_eq!(name, "dev");
        assert_eq!(said, "-o transport=dev,nopassthrough,control=none");
        let (name, said) = options(ring_through, Some("never"));
        assert_eq!(name, "ring+pt:never");
        assert_eq!(said, "-o transport=uring,cache=never,control=none");
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
