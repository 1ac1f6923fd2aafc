//! FUSE over io_uring: the kernel's switch, which is off when a machine starts.

use crate::step::Failure;
use std::path::Path;

/// The kernel offers it, to mounts that are made from then on, while this says `Y`.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// What is not tested without it.
const SKIPPED: &str = "the POSIX cases, property, coherence, lifetime and request tests over \
    io_uring, the tests of its faults, and the real programs over it";

/// Why tests over io_uring cannot run here, if so.
pub(crate) fn missing() -> Option<String> {
    missing_with(&read())
}

/// The first character of the switch, or nothing without one.
fn read() -> Option<String> {
    let text = std::fs::read_to_string(SWITCH).ok()?;
    Some(text.trim().to_owned())
}

fn missing_with(switch: &Option<String>) -> Option<String> {
    match switch.as_deref() {
        Some("Y") => None,
        Some(_) => Some(format!("{SWITCH} is off (cargo xtask setup)")),
        None => Some("this kernel has no FUSE over io_uring (Linux 6.14 has it)".to_owned()),
    }
}

/// Turns the switch on where there is one, and says what it did. It changes the whole machine until
/// it is started anew.
pub(crate) fn turn_on() -> Result<(), Failure> {
    if !Path::new("/sys/module/fuse").exists() {
        // Loads the module, where it is one. Whether that worked is seen next.
        let _ = std::fs::File::open("/dev/fuse");
    }
    match read().as_deref() {
        Some("Y") => Ok(()),
        Some(before) => {
            std::fs::write(SWITCH, "Y").map_err(|error| {
                Failure::new(format!(
                    "FUSE over io_uring is off, and is needed for its tests: {SWITCH}: {error}\n\
                     As root: echo Y >{SWITCH}"
                ))
            })?;
            println!(
                "xtask: TURNED ON FUSE over io_uring, for the whole machine until it is started \
                 anew: {SWITCH} was {before} and is Y. Mounts of other FUSE servers do not change \
                 by it unless they ask for it. To turn it off: echo {before} >{SWITCH}"
            );
            Ok(())
        }
        None => {
            println!(
                "xtask: this kernel has no FUSE over io_uring (Linux 6.14 has it). To be skipped: \
                 {SKIPPED}"
            );
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::missing_with;

    #[test]
    fn only_a_switch_that_is_on_will_do() {
        assert_eq!(missing_with(&Some("Y".to_owned())), None);
        let off = missing_with(&Some("N".to_owned())).unwrap_or_default();
        assert!(off.contains("cargo xtask setup"), "{off}");
        assert!(missing_with(&None).is_some());
    }
}
