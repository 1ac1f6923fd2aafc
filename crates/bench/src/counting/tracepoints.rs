//! The kernel's tracepoints, as tracefs describes them.

use crate::Outcome;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;

/// Where it is mounted, if it is.
const USUAL: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
const REQUEST: &str = "events/fuse/fuse_request_send";
const SYSTEM_CALL: &str = "events/raw_syscalls/sys_enter";

/// tracefs, opened.
pub(super) struct Tracepoints {
    root: OwnedFd,
}

/// An opcode of the protocol, by the kernel's own name without `FUSE_`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Opcode {
    pub(super) number: u32,
    pub(super) name: String,
}

impl Tracepoints {
    /// Where tracefs is mounted; else a mount of it that is nowhere in the tree, and ends with us.
    pub(super) fn find() -> Outcome<Tracepoints> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        for place in USUAL {
            if let Ok(root) = openat(CWD, place, flags, Mode::empty()) {
                let tracepoints = Tracepoints { root };
                if tracepoints.system_call().is_ok() {
                    return Ok(tracepoints);
                }
            }
        }
        let mounted = || {
            let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
            fsconfig_create(&context)?;
            let attributes = MountAttrFlags::empty();
            fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
        };
        let root = mounted().map_err(|error: rustix::io::Errno| {
            format!("counting needs tracefs, which is not there and cannot be mounted: {error}")
        })?;
        Ok(Tracepoints { root })
    }

    /// The number of the one that a request passes.
    pub(super) fn request(&self) -> Outcome<u64> {
        self.number(REQUEST)
    }

    /// The number of the one that a system call passes.
    pub(super) fn system_call(&self) -> Outcome<u64> {
        self.number(SYSTEM_CALL)
    }

    /// Every opcode that this kernel has a name for.
    pub(super) fn opcodes(&self) -> Outcome<Vec<Opcode>> {
        let format = self.read(&format!("{REQUEST}/format"))?;
        let opcodes = opcodes(&format);
        if opcodes.is_empty() {
            return Err(format!("{REQUEST}: no names of opcodes"));
        }
        Ok(opcodes)
    }

    fn number(&self, event: &str) -> Outcome<u64> {
        let text = self.read(&format!("{event}/id"))?;
        let number = text.trim().parse();
        number.map_err(|_| format!("{event}/id: {}", text.trim()))
    }

    fn read(&self, name: &str) -> Outcome<String> {
        let failed = |error: std::io::Error| format!("tracefs, {name}: {error}");
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = openat(&self.root, name, flags, Mode::empty());
        let mut text = String::new();
        let mut file = File::from(file.map_err(|error| failed(error.into()))?);
        file.read_to_string(&mut text).map_err(failed)?;
        Ok(text)
    }
}

/// From pairs as `{3, "FUSE_GETATTR"}` in a tracepoint's format.
fn opcodes(format: &str) -> Vec<Opcode> {
    let pairs = format.split('{').skip(1);
    let opcode = |pair: &str| {
        let (number, rest) = pair.split_once(',')?;
        let name = rest.trim().strip_prefix("\"FUSE_")?.split('"').next()?;
        Some(Opcode {
            number: number.trim().parse().ok()?,
            name: name.to_owned(),
        })
    };
    pairs.filter_map(opcode).collect()
}

#[cfg(test)]
mod tests {
    use super::{Opcode, opcodes};

    #[test]
    fn opcodes_come_from_the_kernels_own_description() {
        let format = "\tfield:uint32_t len;\toffset:28;\tsize:4;\tsigned:0;\n\nprint fmt: \"opcode %u (%s)\", \
                      REC->opcode, __print_symbolic(REC->opcode, {1, \"FUSE_LOOKUP\"}, \
                      {45, \"FUSE_RENAME2\"}, {4096, \"CUSE_INIT\"}), REC->len";
        let expected = [(1, "LOOKUP"), (45, "RENAME2")].map(|(number, name)| Opcode {
            number,
            name: name.to_owned(),
        });
        assert_eq!(opcodes(format), expected);
        assert_eq!(opcodes("print fmt: \"\""), []);
    }
}
