//! The table itself.

mod server;
mod using;

use super::{Form, Group, MountOption, OptionId, Value};

/// What most rows have in common.
const ROW: MountOption = MountOption {
    id: OptionId::Ignored,
    name: "",
    aliases: &[],
    value: Value::None,
    default: "",
    group: Group::Mount,
    form: Form::Both,
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
        ..ROW
    }
}
/// Every option, in the order of the manual within its group.
pub(crate) const OPTIONS: &[MountOption] = &joined::<{ using::ROWS.len() + server::ROWS.len() }>();

const fn joined<const COUNT: usize>() -> [MountOption; COUNT] {
    let mut all = [ROW; COUNT];
    let mut at = 0;
    while at < COUNT {
        all[at] = if at < using::ROWS.len() {
            using::ROWS[at]
        } else {
            server::ROWS[at - using::ROWS.len()]
        };
        at += 1;
    }
    all
}
