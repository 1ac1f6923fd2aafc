//! mknod: devices, fifos, sockets.

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    fifo: "fifo fifo 622; is fifo type fifo mode 600",
    socket: "node socket socket 700; is socket type socket mode 700 rdev 0 0; ENXIO open socket r",
    character_device: "node null char 600 1 3; is null type char mode 600 rdev 1 3",
    block_device: "node loop block 600 7 250; is loop type block mode 600 rdev 7 250",
    regular_file: "node file file 640; is file type file mode 640 rdev 0 0; file file content",
    large_device_numbers [NotXfs]:
        "node big char 600 2748 1043915; is big type char mode 600 rdev 2748 1043915",
};
