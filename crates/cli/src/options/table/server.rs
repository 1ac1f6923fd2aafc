//! Speed, limits, the server process, and options of mount(8).

use crate::config::ControlLocation;
use crate::options::row::{Group, MountOption, ignored, row, usual};
use crate::options::value::Setter::{Mount, Server, Serving};
use crate::options::value::Value::{
    Address, Any, Bytes, Choice, Count, Ignored, Off, On, Path, Seconds, Text,
};
use crate::options::value::{count, named, set};
use std::num::{NonZeroU16, NonZeroUsize};
use thrufs::Transport;

pub(super) const SECTIONS: &[&[MountOption]] = &[
    &Group::Speed.of([
        row("transport", Choice(
            &["auto", "uring", "dev"],
            Mount(|it, word| it.transport = transport(word)),
        ))
            .default("auto")
            .help("how requests are transferred from the kernel")
            .long(
                "dev is /dev/fuse. uring is FUSE over io_uring, which Linux 6.14 offers when Y is \
                 written to /sys/module/fuse/parameters/enable_uring; where it is not available, dev is \
                 used, and the log gives the reason. auto uses uring where it is available and faster. \
                 `thrufs doctor` shows which one auto selects.",
            ),
        row(
            "queues_per_thread",
            Count(1, 4096, Mount(|it, n| it.ring.queues_per_thread = NonZeroUsize::new(count(n)))),
        )
            .help("queues that one thread serves (transport=uring)")
            .long(
                "The kernel has a queue for each possible processor. One unless given, more where there \
                 are very many.",
            ),
        row("ring_depth", Count(1, 256, Mount(|it, n| it.ring.depth = NonZeroU16::new(count(n)))))
            .help("requests that a thread takes from a queue at once (transport=uring)")
            .long(
                "Unless given, 8 where the source is in memory, and 1 elsewhere: a request that waits \
                 for a disk delays those taken with it.",
            ),
        row("threads", Count(1, 1024, Mount(|it, n| it.threads = Some(count(n)))))
            .help("threads that read requests (transport=dev)")
            .long("One for each processor unless given."),
        usual("pairing", On(Server(|it, on| it.pairing = on)))
            .help("serve a lone caller from its own processor")
            .long(
                "While a single program or virtual CPU sends many requests, one thread serves it on the \
                 same processor, so that no idle processor has to be woken. Requires the right to change \
                 the scheduling class of threads, which root has.",
            ),
        row("nopairing", Off("pairing")).help("leave the placement of threads to the scheduler"),
        row("max_write", Bytes(4, Serving(|it, bytes| it.max_write = Some(count(bytes)))))
            .help("most bytes in one read or write request")
            .long(
                "1M unless given; from 4K to 16M. The kernel grants no more than \
                 fs.fuse.max_pages_limit pages.",
            ),
        row("max_background", Count(1, 65_535, Serving(|it, n| it.max_background = Some(count(n)))))
            .help("most background requests in flight")
            .long("These are read-ahead, writeback and asynchronous I/O."),
        row("max_readahead", Bytes(4, Serving(|it, bytes| it.max_readahead = Some(count(bytes)))))
            .help("most bytes to read ahead")
            .long(
                "128K unless given; more requires root. A larger value speeds up sequential reads, and \
                 slows down page faults in mapped files.",
            ),
        row(
            "descriptors",
            Count(16, 16_777_216, Serving(|it, n| it.descriptor_budget = Some(count(n)))),
        )
            .help("most descriptors to hold for files that are not open")
            .long(
                "Unless given, half of the limit on open files (ulimit -n), but at most 16384 where files are \
                 found again by their handles, and 65536 elsewhere. The number of files is not limited: \
                 those beyond are opened again when needed.",
            ),
    ]),
    &Group::Confinement.of([
        row("inode_file_handles", Choice(
            &["never", "prefer", "mandatory"],
            Serving(|it, word| it.file_handles = named(word)),
        ))
            .help("find files again by their file handles")
            .long(
                "never, the default of a share: a descriptor is held for each file that the client has \
                 looked up, as long as descriptors= allows, and beyond that files are found again by \
                 directory and name; a file that is moved on the host meanwhile returns an error until the \
                 client looks it up again. prefer, the default of a mount: by handle where the file system \
                 supports handles and the server may open them. A server of root keeps CAP_DAC_READ_SEARCH \
                 for it: an attacker who gains control of the server can then open every file of that file \
                 system by guessing its handle, not only those of the directory. mandatory: by handle, or \
                 not at all.",
            ),
    ]),
    &Group::Life.of([
        row("foreground", On(Server(|it, on| it.foreground = on)))
            .help("stay in the foreground and log to standard error")
            .flag_alone()
            .long("A share always does."),
        row("stop_timeout", Seconds(Server(|it, time| it.stop_timeout = time)))
            .default("10")
            .help("how long to wait for users of the mount, or for requests, at the end")
            .long(
                "After that time, SIGTERM detaches a mount that is still in use. A share answers the \
                 requests in progress within that time.",
            ),
        row("log", Text(Server(|it, text| it.log = Some(text))))
            .default("info")
            .help("what to log: error, warn, info, debug or trace")
            .aliases(&["loglevel"])
            .long(
                "Or directives such as thrufs=debug,info. The environment variable THRUFS_LOG has the \
                 same meaning.",
            ),
        row("log_format", Choice(&["text", "json"], Server(|it, word| it.log_json = word == "json")))
            .default("text")
            .help("how to log: as text, or a JSON object on each line")
            .long(
                "An object has time (RFC 3339), level, message, and what else an event has. Lines to \
                 syslog(3) are text.",
            ),
        row("log_file", Path(Server(|it, path| it.log_file = Some(path))))
            .help("append the log to this file")
            .long(
                "In the background, nothing is logged after mounting unless this is given or \
                 standard error is the journal's. SIGHUP and `thrufs ctl … reload` have the file opened again, \
                 after it was renamed.",
            ),
        row("control", Path(Server(|it, path| it.control = ControlLocation::named(path))))
            .help("where the control socket is, or none")
            .long(
                "thrufs-explain(1) and thrufs-ctl(1) query the server through this socket; only the user \
                 who mounted, and root, may connect. /run/thrufs/MAJOR-MINOR.socket for root and \
                 $XDG_RUNTIME_DIR/thrufs/MAJOR-MINOR.socket for others unless given (in /run/user/UID or \
                 /tmp/thrufs-UID where that is not set), with the device number of the mount; share-DEVICE-INODE.socket there for a share. With none, there is \
                 no socket.",
            ),
        row("metrics", Address(Server(|it, text| set(&mut it.metrics, text.parse().map(Some)))))
            .help("serve OpenMetrics by HTTP at this loopback address or socket")
            .long(
                "IP:PORT, as 127.0.0.1:9420 or [::1]:9420, from which every user of this machine can read the \
                 figures and the paths of mount and source with GET /metrics; or the path of a Unix socket, \
                 which the user of the server and root can connect to, and others if its mode is changed. With \
                 port 0, the log names the one that was chosen. Nothing is counted for it.",
            ),
        row("resume", Count(0, 1_000_000, Server(|it, n| it.deaths_max = count(n))))
            .help("how often a minute another process goes on when the server was killed")
            .long(
                "When the process that serves is killed (out of memory, a fault), another goes on with what \
                 programs have open and locked, and they see a pause. With 0, or after so many deaths within a \
                 minute, which one of their requests may cause, the mount returns ENOTCONN, and a machine is \
                 disconnected. 10 for a share unless given. 0 for a mount, because a mount that is to be \
                 resumed is served over /dev/fuse (transport), and creates and removes files more slowly; it \
                 needs Linux 6.9.",
            ),
        row("fsname", Text(Mount(|it, text| it.fsname = Some(text))))
            .help("what the mount shows as its source")
            .aliases(&["source"])
            .long("The path of the source unless given."),
        row("subtype", Text(Mount(|it, text| it.subtype = text)))
            .default("thrufs")
            .help("what the mount shows as its type, after \"fuse.\""),
        row("auto_unmount", On(Mount(|it, on| it.auto_unmount = on)))
            .help("unmount also when the server is killed")
            .instead("nothing is mounted on the host")
            .long(
                "Without it, a mount whose server was killed stays and returns ENOTCONN until it is \
                 unmounted (thrufs unmount), so that no program mistakes the directory beneath for it. A \
                 server that receives SIGTERM unmounts in any case.",
            ),
    ]),
    &Group::Mount.of([
        ignored("defaults", Ignored).help("the defaults of this page"),
        ignored("auto", Ignored).help("mounted by mount -a"),
        ignored("noauto", Ignored).help("not mounted by mount -a"),
        ignored("nofail", Ignored).help("booting goes on when it fails"),
        ignored("fail", Ignored).help("booting stops when it fails"),
        ignored("_netdev", Ignored).help("needs the network"),
        ignored("user", Any)
            .help("users may mount it; implies noexec, nosuid and nodev")
            .implies(&["noexec", "nosuid", "nodev"]),
        ignored("users", Ignored)
            .help("as user; and any user may unmount it")
            .implies(&["noexec", "nosuid", "nodev"]),
        ignored("owner", Ignored)
            .help("the owner of the source may mount it; implies nosuid and nodev")
            .implies(&["nosuid", "nodev"]),
        ignored("group", Ignored)
            .help("the group of the source may mount it; implies nosuid and nodev")
            .implies(&["nosuid", "nodev"]),
        ignored("nouser", Ignored).help("only root may mount it"),
        ignored("nousers", Ignored).help("the opposite of users"),
        ignored("noowner", Ignored).help("the opposite of owner"),
        ignored("nogroup", Ignored).help("the opposite of group"),
        ignored("comment", Any).help("a remark"),
        ignored("x-*", Any)
            .help("for programs that read fstab; X-* too"),
    ]),
];

fn transport(word: &str) -> Transport {
    match word {
        "uring" => Transport::Uring,
        "dev" => Transport::Dev,
        _ => Transport::Auto,
    }
}
