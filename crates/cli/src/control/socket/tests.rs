use super::*;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use tempfile::TempDir;

fn usual() -> String {
    file_name(DeviceNumber {
        major: 0,
        minor: 53,
    })
}

fn made(path: &Path) -> Result<(ControlSocket, OwnedFd), ControlSocketError> {
    ControlSocket::make(&ControlLocation::At(path.to_owned()), Purpose::Queries).map(Option::unwrap)
}

fn names(place: &TempDir) -> Vec<String> {
    let entries = std::fs::read_dir(place.path()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

#[test]
fn control_socket_has_its_name_once_published_and_is_removed_on_drop() {
    let place = TempDir::new().unwrap();
    let path = place.path().join("asked");
    let (mut socket, _listener) = made(&path).unwrap();
    assert!(!path.exists(), "not yet");
    let passing = place.path().join(names(&place).pop().unwrap());
    let mode = std::fs::symlink_metadata(passing).unwrap().mode();
    assert_eq!(mode & 0o7777, 0o600, "under its passing name");
    socket.publish(usual()).unwrap();
    let metadata = std::fs::symlink_metadata(&path).unwrap();
    assert!(metadata.file_type().is_socket());
    assert_eq!(metadata.mode() & 0o7777, 0o600);
    assert!(UnixStream::connect(&path).is_ok());
    drop(socket);
    assert_eq!(names(&place), [""; 0]);
}

#[test]
fn socket_of_another_server_with_the_same_name_stays() {
    let place = TempDir::new().unwrap();
    let path = place.path().join("asked");
    let (mut socket, _listener) = made(&path).unwrap();
    socket.publish(usual()).unwrap();
    std::fs::remove_file(&path).unwrap();
    let _other = UnixListener::bind(&path).unwrap();
    // A file may have the name that the kernel shows for a deleted one.
    let odd = place.path().join("asked (deleted)");
    let _odd = UnixListener::bind(&odd).unwrap();
    drop(socket);
    assert!(path.exists() && odd.exists());
}

#[test]
fn writable_directories_are_refused() {
    let place = TempDir::new().unwrap();
    let mode = |mode| {
        std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        made(&place.path().join("asked"))
    };
    for writable in [0o777, 0o770] {
        let refused = mode(writable);
        assert!(matches!(
            refused,
            Err(ControlSocketError::NotPrivate { .. })
        ));
    }
    assert!(mode(0o1777).is_ok(), "as /tmp");
    assert!(mode(0o755).is_ok());
    // In the usual directory, sticky is not enough.
    mode(0o1777).unwrap();
    let directory = OwnedFd::from(std::fs::File::open(place.path()).unwrap());
    assert!(must_be_private(&directory, place.path(), false).is_err());
    if rustix::process::geteuid().is_root() {
        mode(0o755).unwrap();
        std::os::unix::fs::chown(place.path(), Some(65_534), None).unwrap();
        assert!(must_be_private(&directory, place.path(), false).is_err());
        assert!(must_be_private(&directory, place.path(), true).is_err());
    }
}

#[test]
fn only_stale_sockets_are_removed() {
    let place = TempDir::new().unwrap();
    let at = |name: &str| place.path().join(name);
    drop(UnixListener::bind(at("0-1.socket")).unwrap());
    drop(UnixListener::bind(at("new-1.socket")).unwrap());
    drop(UnixListener::bind(at("other")).unwrap());
    let _living = UnixListener::bind(at("0-2.socket")).unwrap();
    std::fs::write(at("0-3.socket"), "a file").unwrap();
    let directory = OwnedFd::from(std::fs::File::open(place.path()).unwrap());
    remove_leftovers(directory.as_fd(), place.path());
    let mut left = names(&place);
    left.sort();
    assert_eq!(left, ["0-2.socket", "0-3.socket", "other"]);
}

#[test]
fn long_paths_fit() {
    let place = TempDir::new().unwrap();
    let deep = place.path().join("x".repeat(200));
    std::fs::create_dir(&deep).unwrap();
    let (mut socket, _listener) = made(&deep.join("asked")).unwrap();
    socket.publish(usual()).unwrap();
    assert!(deep.join("asked").exists());
}

#[test]
fn control_none_creates_no_socket() {
    assert!(
        ControlSocket::make(&ControlLocation::None, Purpose::Queries)
            .unwrap()
            .is_none()
    );
    assert_eq!(directory_for(0), Path::new("/run/thrufs"));
    assert_eq!(usual(), "0-53.socket");
}
