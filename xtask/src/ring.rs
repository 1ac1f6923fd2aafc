//! FUSE over io_uring: the kernel's switch, which is off when a machine starts.

use crate::failure::Failure;
use std::fs;
use std::path::Path;

/// The kernel offers it, to mounts that are made from then on, while this says `Y`.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

const ABSENT: &str = "this kernel has no FUSE over io_uring (Linux 6.14 has it)";

/// Why tests over io_uring cannot run here, if so.
pub(crate) fn missing() -> Option<&'static str> {
    match fs::read_to_string(SWITCH) {
        Ok(text) if text.starts_with('Y') => None,
        Ok(_) => Some("FUSE over io_uring is off (cargo xtask setup)"),
        Err(_) => Some(ABSENT),
    }
}

/// Turns the switch on where there is one, and reports it. It holds for the whole machine until a reboot.
pub(crate) fn turn_on() -> Result<(), Failure> {
    // Loads the module, where it is one; the switch shows whether that worked.
    let _ = fs::File::open("/dev/fuse");
    match missing() {
        None => {}
        Some(ABSENT) => println!("xtask: {ABSENT}: its tests are skipped"),
        Some(_) => {
            fs::write(SWITCH, "Y").map_err(Failure::of(Path::new(SWITCH)))?;
            println!(
                "xtask: TURNED ON FUSE over io_uring, for the whole machine until it is started anew: \
                 {SWITCH} is Y. Mounts of other FUSE servers do not change by it unless they ask for \
                 it. To turn it off: echo N >{SWITCH}"
            );
        }
    }
    Ok(())
}
