//! `--no-network`: what a network namespace contains, and what it does not.

use super::elsewhere::Mounts;
use super::{Expected, assert_inside, assert_outside, grounds, inside, outside};
use crate::ground::prelude::*;
use crate::run_ground::{EVERYONE, Who};
use serde_json::json;
use std::fs::Permissions;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

const ATTEMPTS: &str = include_str!("network.py");

const EXPECTED: &[Expected<'_>] = &[
    ("interfaces", "lo", "*"),
    ("loopback_of_the_host", "ECONNREFUSED", "done"),
    ("own_loopback", "done", "done"),
    ("own_loopback_of_ipv6", "done", "done"),
    ("own_interfaces", "done", "done"),
    ("host_of_a_virtual_machine", "EAFNOSUPPORT", "*"),
    // EPERM where there are no such calls.
    ("host_by_a_call_of_32_bits", "EAFNOSUPPORT|EPERM", "*"),
    ("host_by_socketcall", "ENOSYS|EPERM", "*"),
    ("ring", "ENOSYS", "*"),
    ("abstract_socket", "ECONNREFUSED", "done"),
    // What covers it is root's for root.
    ("socket_of_a_program", "ECONNREFUSED|EACCES", "done"),
    ("socket_by_another_mount", "ECONNREFUSED|EACCES", "done"),
    (
        "socket_in_tmp_by_another_mount",
        "ECONNREFUSED|EACCES",
        "done",
    ),
    ("socket_in_the_tree", "ECONNREFUSED", "done"),
    ("socket_that_is_named", "done", "done"),
    ("own_sockets", "done", "done"),
    ("network_of_a_further_namespace", "ENETUNREACH", "*"),
];

#[test]
fn without_a_network_nothing_outside_is_reached_by_a_socket() {
    for ground in grounds(EVERYONE) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let name = format!("thrufs-network-{}-{:?}", std::process::id(), ground.who);
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let [socket, named] = ["socket", "named"].map(|it| ground.sibling.join(it));
        let (temporary, alias) = (TempDir::new().unwrap(), ground.path().join("alias"));
        fs::set_permissions(temporary.path(), Permissions::from_mode(0o755)).unwrap();
        let hidden = temporary.path().join("socket");
        let _listening = [&socket, &named, &ground.tree.join("socket"), &hidden].map(|path| {
            let listener = UnixListener::bind(path).unwrap();
            fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
            listener
        });
        let _abstract = UnixListener::bind_addr(&address).unwrap();
        let mut mounts = Mounts(Vec::new());
        let place = ground.path().join("of-sibling");
        mounts.bind(&ground.sibling, &place);
        fs::write(&alias, "").unwrap();
        mounts.bind(&hidden, &alias);
        let more = [
            ("port", json!(listener.local_addr().unwrap().port())),
            ("name", json!(name)),
            ("socket", json!(socket)),
            ("mounted", json!(place.join("socket"))),
            ("alias", json!(alias)),
            ("named", json!(named)),
        ];
        let also = format!("--also={}", named.display());
        let options = ["--no-network", "--json", &also];
        let output = run(&mut inside(&ground, &options, ATTEMPTS, &more));
        assert!(stderr(&output).contains("\"network\":false"), "{output:?}");
        assert_inside(ground.who, &output, EXPECTED);
        if ground.who == Who::User {
            assert_outside(&run(&mut outside(&ground, ATTEMPTS, &more)), EXPECTED);
        }
    }
}
