use super::connection::Connection;
use super::counters::numbers;
use super::servers;

#[test]
fn a_plain_directory_has_no_servers() {
    let directory = tempfile::tempdir().unwrap();
    let connection = Connection::of(directory.path()).unwrap();
    assert_eq!(servers::of_connection(connection), []);
    assert!(Connection::of(&directory.path().join("none")).is_err());
}

#[test]
fn lists_of_processors_are_understood() {
    assert_eq!(numbers("0-3,6,8-9"), Some(vec![0, 1, 2, 3, 6, 8, 9]));
    assert_eq!(numbers("0"), Some(vec![0]));
    assert_eq!(numbers("all"), None);
}
