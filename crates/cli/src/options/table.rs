//! The table itself.

mod server;
mod share;
mod using;

use super::{Form, Group, MountOption, OptionId, Use, Value};

/// What most rows have in common.
const ROW: MountOption = MountOption {
    id: OptionId::Ignored,
    name: "",
    aliases: &[],
    value: Value::None,
    default: "",
    group: Group::Mount,
    form: Form::Both,
    used: Use::Both,
    instead: "",
    family: "",
    implies: &[],
    conflicts: &[],
    help: "",
    long: "",
};

/// A switch of mount(8): the last of its family counts.
const fn switch(
    id: OptionId,
    name: &'static str,
    family: &'static str,
    help: &'static str,
    long: &'static str,
) -> MountOption {
    MountOption {
        id,
        name,
        family,
        help,
        long,
        group: Group::Access,
        used: Use::Mount,
        instead: "say it where the guest mounts it",
        ..ROW
    }
}

/// Something with a value or an opposite, in a group.
const fn row(
    id: OptionId,
    name: &'static str,
    value: Value,
    group: Group,
    help: &'static str,
    long: &'static str,
) -> MountOption {
    MountOption {
        id,
        name,
        value,
        group,
        help,
        long,
        family: name,
        ..ROW
    }
}

/// Taken because mount(8) and its friends say it, and without effect here.
const fn ignored(name: &'static str, value: Value, help: &'static str) -> MountOption {
    MountOption {
        name,
        value,
        help,
        form: Form::List,
        used: Use::Mount,
        instead: "it is mount(8)'s",
        ..ROW
    }
}

/// Something that only shares have.
const fn share_row(
    id: OptionId,
    name: &'static str,
    value: Value,
    group: Group,
    help: &'static str,
    long: &'static str,
) -> MountOption {
    MountOption {
        used: Use::Share,
        ..row(id, name, value, group, help, long)
    }
}

/// Something that only mounts have.
const fn mount_row(
    id: OptionId,
    name: &'static str,
    value: Value,
    group: Group,
    help: &'static str,
    long: &'static str,
) -> MountOption {
    MountOption {
        used: Use::Mount,
        instead: match group {
            Group::Sharing => "in a guest, its kernel checks permissions and lets every user in",
            Group::Caching => "a guest has no way to the files of the host but through the server",
            Group::Speed => {
                "requests of a guest come by its queues, each with a thread of its own: say queues="
            }
            Group::Life => "a guest mounts it by its tag: say tag=",
            _ => "",
        },
        ..row(id, name, value, group, help, long)
    }
}

/// Every option, in the order of the manual within its group.
pub(crate) const OPTIONS: &[MountOption] =
    &joined::<{ using::ROWS.len() + share::ROWS.len() + server::ROWS.len() }>();

const fn joined<const COUNT: usize>() -> [MountOption; COUNT] {
    let mut all = [ROW; COUNT];
    let parts = [using::ROWS, share::ROWS, server::ROWS];
    let (mut at, mut part, mut within) = (0, 0, 0);
    while at < COUNT {
        while within == parts[part].len() {
            part += 1;
            within = 0;
        }
        all[at] = parts[part][within];
        within += 1;
        at += 1;
    }
    all
}
