//! Speed, limits, the server process, and options of mount(8).

use super::{ignored, row, usual, valued};
use crate::options::{Group, MountOption, OptionId as Id, Value};

pub(super) const SECTIONS: &[&[MountOption]] = &[
    &Group::Speed.of_mounts([
        row(Id::Transport, "transport")
            .takes(Value::Choice(&["auto", "uring", "dev"]))
            .default("auto")
            .help("how requests are transferred from the kernel")
            .long(
                "dev is /dev/fuse. uring is FUSE over io_uring, which Linux 6.14 offers when Y is \
                 written to /sys/module/fuse/parameters/enable_uring; where it is not available, dev is \
                 used, and the log gives the reason. auto uses uring where it is available and faster. \
                 `thrufs doctor` shows which one auto selects.",
            ),
        row(Id::QueuesPerThread, "queues_per_thread")
            .takes(Value::Count(1, 4096))
            .help("queues that one thread serves (transport=uring)")
            .long(
                "The kernel has a queue for each possible processor. One unless given, more where there \
                 are very many.",
            ),
        valued(Id::RingDepth, "ring_depth", Value::Count(1, 256))
            .help("requests that a thread takes from a queue at once (transport=uring)")
            .long(
                "Unless given, 8 where the source is in memory, and 1 elsewhere: a request that waits \
                 for a disk delays those taken with it.",
            ),
        valued(Id::Threads, "threads", Value::Count(1, 1024))
            .help("threads that read requests (transport=dev)")
            .long("One for each processor unless given."),
    ]),
    &Group::Speed.of_both([
        usual(Id::Pairing(true), "pairing")
            .help("serve a lone caller from its own processor")
            .long(
                "While a single program or virtual CPU sends many requests, one thread serves it on the \
                 same processor, so that no idle processor has to be woken. Requires the right to change \
                 the scheduling class of threads, which root has.",
            ),
        row(Id::Pairing(false), "nopairing").help("leave the placement of threads to the scheduler"),
        valued(Id::MaxWrite, "max_write", Value::Bytes)
            .help("most bytes in one read or write request")
            .long(
                "1M unless given; from 4K to 16M. The kernel grants no more than \
                 fs.fuse.max_pages_limit pages.",
            ),
        valued(Id::MaxBackground, "max_background", Value::Count(1, 65_535))
            .help("most background requests in flight")
            .long("These are read-ahead, writeback and asynchronous I/O."),
        valued(Id::MaxReadahead, "max_readahead", Value::Bytes)
            .help("most bytes to read ahead")
            .long(
                "128K unless given; more requires root. A larger value speeds up sequential reads, and \
                 slows down page faults in mapped files.",
            ),
        valued(Id::Descriptors, "descriptors", Value::Count(16, 16_777_216))
            .help("most descriptors to hold for files that are not open")
            .long(
                "Unless given, half of the limit on open files (ulimit -n), but at most 16384 where files are \
                 found again by their handles, and 65536 elsewhere. The number of files is not limited: \
                 those beyond are opened again when needed.",
            ),
    ]),
    &Group::Confinement.of_both([row(Id::FileHandles, "inode_file_handles")
        .takes(Value::Choice(&["never", "prefer", "mandatory"]))
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
        )]),
    &Group::Life.of_both([
        row(Id::Foreground, "foreground")
            .help("stay in the foreground and log to standard error")
            .flag_alone()
            .long("A share always does."),
        valued(Id::StopTimeout, "stop_timeout", Value::Seconds)
            .default("10")
            .help("how long to wait for users of the mount, or for requests, at the end")
            .long(
                "After that time, SIGTERM detaches a mount that is still in use. A share answers the \
                 requests in progress within that time.",
            ),
        valued(Id::Log, "log", Value::Text)
            .default("info")
            .help("what to log: error, warn, info, debug or trace")
            .aliases(&["loglevel"])
            .long(
                "Or directives such as thrufs=debug,info. The environment variable THRUFS_LOG has the \
                 same meaning.",
            ),
        valued(Id::LogFile, "log_file", Value::Path)
            .help("append the log to this file")
            .long(
                "In the background, nothing is logged after mounting unless this is given or \
                 standard error is the journal's.",
            ),
        valued(Id::Control, "control", Value::Path)
            .help("where the control socket is, or none")
            .long(
                "thrufs-explain(1) and thrufs-ctl(1) query the server through this socket; only the user \
                 who mounted, and root, may connect. /run/thrufs/MAJOR-MINOR.socket for root and \
                 $XDG_RUNTIME_DIR/thrufs/MAJOR-MINOR.socket for others unless given, with the device \
                 number of the mount; share-DEVICE-INODE.socket there for a share. With none, there is \
                 no socket.",
            ),
    ]),
    &Group::Life.of_mounts([
        valued(Id::FsName, "fsname", Value::Text)
            .help("what the mount shows as its source")
            .aliases(&["source"])
            .long("The path of the source unless given."),
        valued(Id::Subtype, "subtype", Value::Text)
            .default("thrufs")
            .help("what the mount shows as its type, after \"fuse.\""),
        row(Id::AutoUnmount, "auto_unmount")
            .help("unmount also when the server is killed")
            .instead("nothing is mounted on the host")
            .long(
                "Without it, a mount whose server was killed stays and returns ENOTCONN until it is \
                 unmounted (thrufs unmount), so that no program mistakes the directory beneath for it. A \
                 server that receives SIGTERM unmounts in any case.",
            ),
    ]),
    &Group::Mount.of_mounts([
        ignored("defaults").help("the defaults of this page"),
        ignored("auto").help("mounted by mount -a"),
        ignored("noauto").help("not mounted by mount -a"),
        ignored("nofail").help("booting goes on when it fails"),
        ignored("fail").help("booting stops when it fails"),
        ignored("_netdev").help("needs the network"),
        ignored("user")
            .takes(Value::Any)
            .help("users may mount it; implies noexec, nosuid and nodev")
            .implies(&["noexec", "nosuid", "nodev"]),
        ignored("users")
            .help("as user; and any user may unmount it")
            .implies(&["noexec", "nosuid", "nodev"]),
        ignored("owner")
            .help("the owner of the source may mount it; implies nosuid and nodev")
            .implies(&["nosuid", "nodev"]),
        ignored("group")
            .help("the group of the source may mount it; implies nosuid and nodev")
            .implies(&["nosuid", "nodev"]),
        ignored("nouser").help("only root may mount it"),
        ignored("nousers").help("the opposite of users"),
        ignored("noowner").help("the opposite of owner"),
        ignored("nogroup").help("the opposite of group"),
        ignored("comment").takes(Value::Any).help("a remark"),
        ignored("x-*")
            .takes(Value::Any)
            .help("for programs that read fstab; X-* too"),
    ]),
];
