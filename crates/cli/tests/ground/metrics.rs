//! Scraping of metrics by HTTP.

use super::LIMIT;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

pub const SCRAPE: &str = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// The response to a request.
pub fn exchanged(mut stream: impl Read + Write, request: &str) -> String {
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

/// The address in a log.
pub fn address_in(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap();
    let after = text.split_once("http://").expect(&text).1;
    after.split_once("/metrics").unwrap().0.to_owned()
}

/// The number of operations that were requested, by a response.
pub fn requests(response: &str) -> usize {
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    assert!(response.ends_with("# EOF\n"), "{response}");
    response.matches("thrufs_requests_total{").count()
}

pub fn connected(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}
