//! For virtio-fs: out-of-line data, withheld capabilities, shared metrics.

use super::*;
use crate::data::OutOfLineData;
use crate::{Services, WriteSource};
use std::os::fd::BorrowedFd;
use thrufs_abi::layout::{WriteIn, WriteOut};

#[derive(Debug)]
struct Elsewhere(&'static [u8]);

impl OutOfLineData for Elsewhere {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn copy_to(&self, skip: usize, target: &mut [u8]) -> usize {
        let rest = &self.0[skip..];
        let length = rest.len().min(target.len());
        target[..length].copy_from_slice(&rest[..length]);
        length
    }

    /// Writes three bytes at once, at most.
    fn write_to(
        &self,
        skip: usize,
        file: BorrowedFd<'_>,
        offset: u64,
    ) -> rustix::io::Result<usize> {
        let rest = &self.0[skip..];
        rustix::io::pwrite(file, &rest[..rest.len().min(3)], offset)
    }
}

fn write(size: u32, total: usize) -> Vec<u8> {
    let arg = WriteIn {
        size,
        ..WriteIn::default()
    };
    let mut bytes = request(Opcode::Write).arg(&arg).finish();
    let length = (bytes.len() + total) as u32;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes
}

fn answer(
    dispatcher: &Dispatcher<RecordingFs>,
    bytes: &[u8],
    data: &'static [u8],
) -> (i32, Vec<u8>) {
    let mut buffer = vec![0; 4096];
    let data = Elsewhere(data);
    let data = WriteSource::out_of_line(&data);
    let length = dispatcher.answer(Message::OutOfLine { bytes, data }, &mut buffer);
    let reply = Reply::parse(&buffer[..length]).unwrap();
    (reply.error, reply.body.to_vec())
}

#[test]
fn a_write_with_out_of_line_data() {
    let dispatcher = connected(RecordingFs::default());
    let (error, body) = answer(&dispatcher, &write(8, 8), b"01234567");
    assert_eq!(error, 0);
    let out: WriteOut = zerocopy::FromBytes::read_from_bytes(&body).unwrap();
    assert_eq!(out.size, 8);
    assert!(dispatcher.file_system().calls()[0].starts_with("write 7 0 8 "));
}

#[test]
fn out_of_line_data_of_another_size_than_in_the_header_are_refused() {
    let dispatcher = connected(RecordingFs::default());
    for (size, total, data) in [
        (8, 8, &b"0123456"[..]),
        (8, 8, b"012345678"),
        (8, 9, b"01234567"),
    ] {
        let error = answer(&dispatcher, &write(size, total), data).0;
        assert_eq!(error, -libc::EINVAL);
    }
    assert_eq!(dispatcher.metrics().snapshot().malformed, 3);
    assert_eq!(dispatcher.file_system().calls(), Vec::<String>::new());
}

#[test]
fn out_of_line_data_are_written_in_several_calls() {
    let file = tempfile::tempfile().unwrap();
    let copy = file.try_clone().unwrap();
    let lower = LowerFile::new(file.into(), crate::NoWait::Memory);
    let data = Elsewhere(b"01234567");
    assert_eq!(WriteSource::out_of_line(&data).write_to(&lower, 2), Ok(8));
    let mut seen = [0; 10];
    rustix::io::pread(&copy, &mut seen, 0).unwrap();
    assert_eq!(&seen, b"\0\x0001234567");
}

#[test]
fn withheld_capabilities_are_not_offered() {
    let withheld = InitFlags::DO_READDIRPLUS;
    let dispatcher = Dispatcher::new(Arc::new(RecordingFs::default())).withholding(withheld);
    let reply = ask(&dispatcher, &init_request(45, offered())).unwrap();
    assert_eq!(reply.error, 0);
    let features = dispatcher.features().unwrap();
    assert!(!features.flags.intersects(withheld));
    assert!(features.flags.contains(InitFlags::SETXATTR_EXT));
    assert_eq!(features.refused.len(), 1);
}

#[test]
fn several_dispatchers_share_metrics() {
    let metrics = Arc::<Metrics>::default();
    for _ in 0..2 {
        let dispatcher = Dispatcher::new(Arc::new(RecordingFs::default()));
        let dispatcher = dispatcher.counting_into(Arc::clone(&metrics));
        ask(&dispatcher, &init_request(45, offered())).unwrap();
    }
    let counts = metrics.snapshot();
    assert_eq!(counts.operation(Opcode::Init).unwrap().requests(), 2);
}

#[test]
fn unavailable_services_fail_with_enotconn() {
    let services = Services::unavailable();
    let refused = services.notifier.increment_epoch();
    assert_eq!(refused, Err(Errno::ENOTCONN));
    let file = tempfile::tempfile().unwrap();
    let refused = services.backings.register(&file).err();
    assert_eq!(refused, Some(Errno::ENOTCONN));
}
