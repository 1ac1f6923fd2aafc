//! Far more open files than descriptors: registrations and descriptors are evicted and made again,
//! unnoticed.

use crate::ground::on_each;
use std::os::fd::AsRawFd;
use thrufs_tests::prelude::*;

const FILES: usize = 300;

#[test]
fn open_files_outnumber_descriptors() {
    let lowers = [
        Lower::Tmpfs,
        Lower::Ext4,
        Lower::Xfs,
        Lower::Btrfs,
        Lower::Overlay,
    ];
    on_each(&lowers, "descriptors=16", |mounted| {
        let path = |at: usize| mounted.mnt().join(format!("file-{at}"));
        let open = |at: usize| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false);
            options.open(path(at)).unwrap()
        };
        let files: Vec<File> = (0..FILES).map(open).collect();
        for (at, file) in files.iter().enumerate() {
            file.write_all_at(&(at as u64).to_le_bytes(), 0).unwrap();
            if at % 3 == 0 {
                fs::remove_file(path(at)).unwrap();
            }
        }
        // Their descriptors were evicted long ago; the registrations in use must be the same.
        for (at, file) in files.iter().enumerate() {
            let again = if at % 3 == 0 {
                let by_descriptor = format!("/proc/self/fd/{}", file.as_raw_fd());
                File::open(by_descriptor).unwrap()
            } else {
                open(at)
            };
            let mut found = [0; 8];
            again.read_exact_at(&mut found, 0).unwrap();
            assert_eq!(found, (at as u64).to_le_bytes());
            assert_eq!(file.metadata().unwrap().len(), 8);
            file.set_len(16).unwrap();
            file.sync_data().unwrap();
        }
        drop(files);
        for at in (0..FILES).filter(|at| at % 3 != 0) {
            let again = open(at);
            again.write_all_at(b"again", 0).unwrap();
            assert_eq!(again.metadata().unwrap().len(), 16);
        }
    });
}
