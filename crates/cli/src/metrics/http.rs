//! HTTP/1.1 (RFC 9112), as much as a scraper needs: `GET /metrics`, and one response for each connection.

/// Of a request without content.
pub(super) const REQUEST_BYTES_MAX: usize = 8192;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

/// The response to the head of a request; `None` is one that is too long.
pub(super) fn respond(
    request: Option<&[u8]>,
    metrics: &mut dyn FnMut() -> Result<String, String>,
) -> Vec<u8> {
    let (status, kind, body) = match request.map(target) {
        None => ("431 Request Header Fields Too Large", PLAIN, String::new()),
        Some(Err(status)) => (status, PLAIN, String::new()),
        Some(Ok(b"/metrics")) => match metrics() {
            Ok(text) => ("200 OK", OPEN_METRICS, text),
            Err(why) => ("503 Service Unavailable", PLAIN, why + "\n"),
        },
        Some(Ok(_)) => ("404 Not Found", PLAIN, "see /metrics\n".to_owned()),
    };
    let length = body.len();
    let response = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nAllow: GET\r\n\
         Connection: close\r\n\r\n{body}"
    );
    response.into_bytes()
}

/// The path that a request is for, without a query; or why it gets nothing.
fn target(head: &[u8]) -> Result<&[u8], &'static str> {
    let line = head.split(|byte| *byte == b'\r').next();
    let mut words = line.unwrap_or_default().split(|byte| *byte == b' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    match (method, target, version) {
        (Some(b"GET"), Some(target), Some(b"HTTP/1.1" | b"HTTP/1.0")) => {
            Ok(target.split(|byte| *byte == b'?').next().unwrap_or(target))
        }
        (Some(_), Some(_), Some(b"HTTP/1.1" | b"HTTP/1.0")) => Err("405 Method Not Allowed"),
        _ => Err("400 Bad Request"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_get_of_metrics_gets_them() {
        let status = |request: Option<&str>| {
            let response = respond(request.map(str::as_bytes), &mut || Ok("# EOF\n".into()));
            let response = String::from_utf8(response).unwrap();
            let (head, body) = response.split_once("\r\n\r\n").unwrap();
            let length = format!("Content-Length: {}", body.len());
            assert!(head.contains(&length), "{response}");
            assert_eq!(
                body == "# EOF\n",
                head.contains("openmetrics"),
                "{response}"
            );
            head[9..12].to_owned()
        };
        for (request, expected) in [
            ("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", "200"),
            ("GET /metrics?a=b HTTP/1.0\r\n\r\n", "200"),
            ("GET /metrics/ HTTP/1.1\r\n\r\n", "404"),
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("GET /metrics\r\n\r\n", "400"),
            ("GET  /metrics HTTP/1.1\r\n\r\n", "400"),
            ("\r\n\r\n", "400"),
            ("\u{0}\u{fffd}", "400"),
        ] {
            assert_eq!(status(Some(request)), expected, "{request:?}");
        }
        assert_eq!(status(None), "431");
        let silent = respond(Some(b"GET /metrics HTTP/1.1"), &mut || Err("silent".into()));
        assert!(silent.starts_with(b"HTTP/1.1 503 ") && silent.ends_with(b"silent\n"));
    }
}
