//! How a mount is run: speed, limits, the server's life, and what mount(8) says to it.

use super::{ignored, row, usual, valued};
use crate::options::{Group, MountOption, OptionId as Id, Value};

pub(super) const SECTIONS: &[&[MountOption]] = &[
    &Group::Speed.of_mounts([
        row(Id::Transport, "transport")
            .takes(Value::Choice(&["auto", "uring", "dev"]))
            .default("auto")
            .help("how the kernel hands over requests")
            .long(
                "uring is FUSE over io_uring: Linux 6.14 offers it when Y is written to \
                 /sys/module/fuse/parameters/enable_uring. Where it is not to be had, dev, which \
                 is /dev/fuse, takes its place, and the log says why. auto takes uring where it \
                 is to be had and is of use. `thrufs doctor` tells which it would be.",
            ),
        row(Id::QueuesPerThread, "queues_per_thread")
            .takes(Value::Count(1, 4096))
            .help("queues that one thread serves (transport=uring)")
            .long(
                "There is a queue for each possible processor. One unless given, more where \
                 there are very many.",
            ),
        valued(Id::RingDepth, "ring_depth", Value::Count(1, 256))
            .help("requests that a thread takes at once from a queue (transport=uring)")
            .long(
                "8 where the source is in memory, and 1 elsewhere, unless given: a request that \
                 waits for a disk keeps those waiting that were taken with it.",
            ),
        valued(Id::Threads, "threads", Value::Count(1, 1024))
            .help("threads that read requests (transport=dev)")
            .long("One for each processor unless given."),
    ]),
    &Group::Speed.of_both([
        usual(Id::Pairing(true), "pairing")
            .help("serve a lone caller from its own processor")
            .long(
                "While a single program or virtual CPU asks much, one thread serves it, on the \
                 same processor: neither has to wake an idle one. Only where a server may change \
                 how its threads are scheduled, as root's may.",
            ),
        row(Id::Pairing(false), "nopairing").help("leave it to the scheduler where threads run"),
        valued(Id::MaxWrite, "max_write", Value::Bytes)
            .help("most bytes in one read or write request")
            .long(
                "1M unless given; from 4K to 16M. The kernel grants no more than \
                 fs.fuse.max_pages_limit pages.",
            ),
        valued(Id::MaxBackground, "max_background", Value::Count(1, 65_535))
            .help("most requests in flight that nobody waits for")
            .long("Read-ahead, writing back, asynchronous I/O."),
        valued(Id::MaxReadahead, "max_readahead", Value::Bytes)
            .help("most bytes to read ahead")
            .long(
                "128K unless given; more needs root. It makes reading from the front to the back \
                 faster, and page faults in mapped files dearer.",
            ),
        valued(Id::Descriptors, "descriptors", Value::Count(16, 16_777_216))
            .help("most descriptors to keep for files that are not open")
            .long(
                "Half of the limit on open files (ulimit -n) unless given. It limits no number \
                 of files: what is beyond it is found again when it is needed.",
            ),
    ]),
    &Group::Confinement.of_both([row(Id::FileHandles, "inode_file_handles")
        .takes(Value::Choice(&["never", "prefer", "mandatory"]))
        .help("find files again by their file handles")
        .long(
            "never, the default of a share: a descriptor is held for each file that the \
                 client knows, as long as descriptors= allows, and beyond that files are found \
                 again by directory and name; one that somebody else moves meanwhile then gives \
                 an error until the client looks it up again. prefer, the default of a mount: by \
                 handle where the file system has them, and whoever serves may open them. A \
                 server of root's keeps CAP_DAC_READ_SEARCH for it: who takes it over can then \
                 open every file of that file system by guessing its handle, not only those of \
                 the directory. mandatory: by handle, or not at all.",
        )]),
    &Group::Life.of_both([
        row(Id::Foreground, "foreground")
            .help("stay in the foreground and log to standard error")
            .flag_alone()
            .long("A share always does."),
        valued(Id::StopTimeout, "stop_timeout", Value::Seconds)
            .default("10")
            .help("how long to wait for users of the mount, or for requests, when asked to end")
            .long(
                "After that time SIGTERM takes the mount away from its users. A share answers \
                 within that time the requests that are in progress.",
            ),
        valued(Id::Log, "log", Value::Text)
            .default("info")
            .help("what to log: error, warn, info, debug or trace")
            .aliases(&["loglevel"])
            .long(
                "Or directives such as thrufs=debug,info. THRUFS_LOG in the environment says the \
                 same.",
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
                "By this socket, thrufs-explain(1) and thrufs-ctl(1) ask the server; only who \
                 mounted, and root, may. /run/thrufs/MAJOR-MINOR.socket for root and \
                 $XDG_RUNTIME_DIR/thrufs/MAJOR-MINOR.socket for others unless given, with the \
                 device number of the mount; share-DEVICE-INODE.socket there for a share. With \
                 none, there is none.",
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
                "Without it, a mount whose server was killed stays and answers ENOTCONN until \
                 somebody unmounts it (thrufs unmount), so that nobody takes the directory \
                 beneath for it. A server that is told to end unmounts in any case.",
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
