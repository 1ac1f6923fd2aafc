use super::*;

fn written(again: &Again, session: Option<&[u8]>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut write_session = |sink: &mut dyn Write| sink.write_all(session.unwrap_or_default());
    let session_writer: Option<WriteSession<'_>> =
        session.is_some().then_some(&mut write_session as _);
    write(&mut bytes, again, session_writer).unwrap();
    bytes
}

fn read_all(bytes: &[u8]) -> io::Result<(Again, Option<Vec<u8>>)> {
    read(&mut &*bytes, |source| {
        let mut session = Vec::new();
        source.read_to_end(&mut session)?;
        Ok(session)
    })
}

#[test]
fn a_malformed_state_is_refused() {
    let good = written(&vec![vec![1]], Some(b"session"));
    let changed = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        read_all(&bytes).unwrap_err()
    };
    assert!(changed(0, b'T').to_string().contains("virtiofsd"));
    assert!(changed(16, 2).to_string().contains("version 2"));
    // Offsets: queues, requests of the first, session flag, length of its first part.
    for (at, byte) in [(20, 66), (26, 1), (30, 2), (33, 0x11)] {
        assert_eq!(changed(at, byte).kind(), ErrorKind::InvalidData, "{at}");
    }
}

/// Zeros in parts, without end.
struct Endless(Box<dyn Read>, u64);

impl Read for Endless {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let bytes = self.0.read(target)?;
        if bytes > 0 {
            return Ok(bytes);
        }
        self.1 += PART_BYTES_MAX;
        assert!(self.1 <= (512 << 20) + 2 * PART_BYTES_MAX);
        let length = (PART_BYTES_MAX as u32).to_le_bytes();
        self.0 = Box::new(io::Cursor::new(length).chain(io::repeat(0).take(PART_BYTES_MAX)));
        self.read(target)
    }
}

#[test]
fn a_session_of_half_a_gigabyte_is_neither_written_nor_read() {
    let mut written = 0;
    let mut endless = |sink: &mut dyn Write| loop {
        sink.write_all(&[0; PART_BYTES])?;
        written += PART_BYTES;
        assert!(written <= 512 << 20);
    };
    let refused = write(&mut io::sink(), &vec![], Some(&mut endless));
    assert!(refused.unwrap_err().to_string().contains("too large"));
    let mut head = written_head();
    head.push(1);
    let mut endless = Endless(Box::new(io::Cursor::new(head)), 0);
    let drained = |source: &mut dyn Read| io::copy(source, &mut io::sink());
    let refused = read(&mut endless, drained).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidData);
}

fn written_head() -> Vec<u8> {
    let mut head = written(&vec![], None);
    // Without whether there is a session, and the end.
    head.truncate(head.len() - 5);
    head
}
