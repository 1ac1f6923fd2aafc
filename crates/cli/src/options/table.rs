//! The table of options.

mod server;
mod share;
mod using;

use super::{Conflict, Form, Group, MountOption, Value};
use serde::de::value::{Error, StrDeserializer};
use serde::de::{Deserialize, IntoDeserializer};
use std::fmt::Display;
use std::sync::LazyLock;

/// In the order of the manual within each group.
pub(crate) static OPTIONS: LazyLock<Vec<MountOption>> = LazyLock::new(|| {
    let files = [using::SECTIONS, share::SECTIONS, server::SECTIONS];
    files.concat().concat()
});

const fn row(name: &'static str, value: Value) -> MountOption {
    MountOption {
        name,
        aliases: &[],
        value,
        default: "",
        group: Group::Mount,
        form: Form::Both,
        instead: "",
        adds_up: false,
        implies: &[],
        conflicts: &[],
        help: "",
        long: "",
    }
}

/// A switch that is the default.
const fn usual(name: &'static str, value: Value) -> MountOption {
    row(name, value).default("on")
}

/// Accepted for mount(8), without effect.
const fn ignored(name: &'static str) -> MountOption {
    MountOption {
        form: Form::List,
        ..row(name, Value::Ignored)
    }
}

/// The variant that serde calls so.
fn named<'de, T: Deserialize<'de>>(word: &'de str) -> T {
    let word: StrDeserializer<'_, Error> = word.into_deserializer();
    T::deserialize(word).expect("the table has the words of the type")
}

/// The number, in the type of its setting.
fn count<T: TryFrom<u64>>(number: u64) -> T {
    let number = T::try_from(number).ok();
    number.expect("the table allows no more than the setting holds")
}

/// Sets what was read.
fn set<T, E: Display>(place: &mut T, read: Result<T, E>) -> Result<(), String> {
    *place = read.map_err(|error| error.to_string())?;
    Ok(())
}

impl MountOption {
    const fn takes(self, value: Value) -> MountOption {
        MountOption { value, ..self }
    }

    const fn default(self, default: &'static str) -> MountOption {
        MountOption { default, ..self }
    }

    const fn help(self, help: &'static str) -> MountOption {
        MountOption { help, ..self }
    }

    const fn long(self, long: &'static str) -> MountOption {
        MountOption { long, ..self }
    }

    const fn aliases(self, aliases: &'static [&'static str]) -> MountOption {
        MountOption { aliases, ..self }
    }

    const fn implies(self, implies: &'static [&'static str]) -> MountOption {
        MountOption { implies, ..self }
    }

    const fn conflicts(self, conflicts: &'static [Conflict]) -> MountOption {
        MountOption { conflicts, ..self }
    }

    const fn instead(self, instead: &'static str) -> MountOption {
        MountOption { instead, ..self }
    }

    const fn adds_up(self) -> MountOption {
        MountOption {
            adds_up: true,
            ..self
        }
    }

    const fn flag_alone(self) -> MountOption {
        MountOption {
            form: Form::Flag,
            ..self
        }
    }
}

impl Group {
    const fn of<const N: usize>(self, mut rows: [MountOption; N]) -> [MountOption; N] {
        let mut at = 0;
        while at < N {
            rows[at].group = self;
            at += 1;
        }
        rows
    }

    /// The remedy for options of mounts that do not apply to a share.
    pub(super) const fn in_a_guest(self) -> &'static str {
        match self {
            Group::Access => "set it where the guest mounts it",
            Group::Sharing => {
                "in a guest, its kernel checks permissions, and all its users have access"
            }
            Group::Caching => "a guest reaches files of the host only through the server",
            Group::Speed => {
                "requests of a guest arrive on its queues, each with its own thread: use queues="
            }
            Group::Life => "a guest mounts it by its tag: use tag=",
            Group::Mount => "it is an option of mount(8)",
            Group::Device | Group::Content | Group::Confinement => "",
        }
    }
}
