//! The table of options.

mod server;
mod share;
mod using;

use super::{Conflict, Form, Group, MountOption, OptionId, Use, Value};
use std::sync::LazyLock;

/// In the order of the manual within each group.
pub(crate) static OPTIONS: LazyLock<Vec<MountOption>> = LazyLock::new(|| {
    let files = [using::SECTIONS, share::SECTIONS, server::SECTIONS];
    files.concat().concat()
});

/// Without a value.
const fn row(id: OptionId, name: &'static str) -> MountOption {
    MountOption {
        id,
        name,
        aliases: &[],
        value: Value::None,
        default: "",
        group: Group::Mount,
        form: Form::Both,
        used: Use::Both,
        instead: "",
        adds_up: false,
        implies: &[],
        conflicts: &[],
        help: "",
        long: "",
    }
}

/// Without a value, and the default.
const fn usual(id: OptionId, name: &'static str) -> MountOption {
    row(id, name).default("on")
}

const fn valued(id: OptionId, name: &'static str, value: Value) -> MountOption {
    row(id, name).takes(value)
}

/// Accepted for mount(8), without effect.
const fn ignored(name: &'static str) -> MountOption {
    MountOption {
        form: Form::List,
        ..row(OptionId::Ignored, name)
    }
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
    const fn of_both<const N: usize>(self, rows: [MountOption; N]) -> [MountOption; N] {
        self.of(Use::Both, rows)
    }

    const fn of_shares<const N: usize>(self, rows: [MountOption; N]) -> [MountOption; N] {
        self.of(Use::Share, rows)
    }

    const fn of_mounts<const N: usize>(self, rows: [MountOption; N]) -> [MountOption; N] {
        self.of(Use::Mount, rows)
    }

    const fn of<const N: usize>(self, used: Use, mut rows: [MountOption; N]) -> [MountOption; N] {
        let mut at = 0;
        while at < N {
            rows[at].group = self;
            rows[at].used = used;
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
