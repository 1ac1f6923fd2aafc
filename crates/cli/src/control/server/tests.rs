use super::super::protocol::{Command, REQUEST_BYTES_MAX, Reply};
use super::*;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use tempfile::TempDir;

/// Generous, for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

const STATISTICS: &[u8] = b"{\"version\":1,\"command\":\"statistics\"}\n";

/// A server on a thread that ends with the test program.
struct Served {
    _place: TempDir,
    path: PathBuf,
}

fn served(client_timeout: Duration, reply_bytes: usize) -> Served {
    let place = TempDir::new().unwrap();
    let path = place.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    listener.set_nonblocking(true).unwrap();
    std::thread::spawn(move || {
        let mut count = 0;
        let mut answer = |command: &Command| {
            assert_eq!(*command, Command::Statistics);
            count += 1;
            let text = "x".repeat(reply_bytes);
            Reply::Result(serde_json::json!({ "count": count, "text": text }))
        };
        let mut reply = |line: Option<&[u8]>| reply_to_line(line, &mut answer);
        let mut server = ControlServer::new(listener.into(), Protocol::of_lines(&mut reply));
        server.client_timeout = client_timeout;
        server.serve()
    });
    Served {
        _place: place,
        path,
    }
}

impl Served {
    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.path).unwrap();
        let patience = Some(PATIENCE);
        stream.set_read_timeout(patience).unwrap();
        stream.set_write_timeout(patience).unwrap();
        stream
    }

    fn asks_and_is_answered(&self) {
        let mut stream = self.connect();
        stream.write_all(STATISTICS).unwrap();
        assert!(line(&stream).contains("\"result\""));
    }
}

fn line(stream: &UnixStream) -> String {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line
}

/// Whether the peer has closed without a reply.
fn is_closed(stream: &mut UnixStream) -> bool {
    match stream.read(&mut [0; 1]) {
        Ok(0) => true,
        Ok(_) => panic!("it sends data"),
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

#[test]
fn pipelined_fragmented_and_malformed_requests_are_answered_in_order() {
    let served = served(CLIENT_TIMEOUT, 0);
    let mut stream = served.connect();
    stream.write_all(&STATISTICS.repeat(3)).unwrap();
    for byte in [b"nonsense\n", STATISTICS].concat() {
        stream.write_all(&[byte]).unwrap();
    }
    let lines = BufReader::new(&stream).lines().take(5);
    let expected = [
        "\"count\":1",
        "\"count\":2",
        "\"count\":3",
        "malformed",
        "\"count\":4",
    ];
    for (line, expected) in lines.zip(expected) {
        let line = line.unwrap();
        assert!(line.contains(expected), "{line}");
    }
}

#[test]
fn request_beyond_the_limit_ends_the_connection() {
    let served = served(CLIENT_TIMEOUT, 0);
    let mut stream = served.connect();
    let padded = |length: usize| {
        let (request, feed) = STATISTICS.split_at(STATISTICS.len() - 1);
        let spaces = vec![b' '; length - STATISTICS.len()];
        [request, &spaces, feed].concat()
    };
    stream.write_all(&padded(REQUEST_BYTES_MAX)).unwrap();
    assert!(line(&stream).contains("\"count\":1"));
    let _ = stream.write_all(&padded(REQUEST_BYTES_MAX + 1));
    assert!(line(&stream).contains("too_long"));
    assert!(is_closed(&mut stream));
    let mut stream = served.connect();
    let error = stream.write_all(&vec![b'x'; 10 << 20]).unwrap_err();
    assert!(
        matches!(
            error.kind(),
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
        ),
        "{error}"
    );
    served.asks_and_is_answered();
}

#[test]
fn client_beyond_the_limit_replaces_the_longest_idle() {
    let served = served(CLIENT_TIMEOUT, 0);
    let mut silent: Vec<UnixStream> = (0..CONNECTIONS_MAX).map(|_| served.connect()).collect();
    let ask = |stream: &mut UnixStream| {
        stream.write_all(STATISTICS).unwrap();
        assert!(line(stream).contains("result"));
    };
    // All are accepted; the first queries again, so that the second has been idle longest.
    silent.iter_mut().for_each(ask);
    ask(&mut silent[0]);
    served.asks_and_is_answered();
    assert!(is_closed(&mut silent[1]));
    let left = silent.iter_mut().enumerate();
    left.filter(|(place, _)| *place != 1)
        .for_each(|(_, stream)| ask(stream));
}

#[test]
fn idle_client_is_disconnected_after_the_timeout() {
    let served = served(Duration::from_millis(300), 0);
    let begin = Instant::now();
    let mut silent = served.connect();
    let mut slow = served.connect();
    slow.write_all(b"{").unwrap();
    assert!(is_closed(&mut silent) && is_closed(&mut slow));
    assert!(begin.elapsed() >= Duration::from_millis(300));
    // Single bytes do not extend the time.
    let mut dribbling = served.connect();
    let begin = Instant::now();
    while dribbling.write_all(b" ").is_ok() {
        assert!(begin.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn client_that_does_not_read_does_not_block_others() {
    // More than the socket buffer.
    let served = served(Duration::from_millis(500), 4 << 20);
    let mut stream = served.connect();
    stream.write_all(STATISTICS).unwrap();
    let mut other = served.connect();
    other.write_all(STATISTICS).unwrap();
    assert!(line(&other).ends_with("}}\n"));
    // Until it times out.
    let mut given_up = [PollFd::new(&stream, PollFlags::empty())];
    let patience = Timespec::try_from(PATIENCE).unwrap();
    assert_eq!(poll(&mut given_up, Some(&patience)), Ok(1));
    let mut part = Vec::new();
    let _ = stream.read_to_end(&mut part);
    assert!(!part.is_empty() && part.len() < 4 << 20, "{}", part.len());
}
