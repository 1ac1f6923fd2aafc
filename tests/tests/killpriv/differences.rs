//! Cells in which a served file ends otherwise than the like one beneath, and why. Any other difference
//! fails, and so does an entry that is no longer true.

use crate::callers::Caller;
use crate::matrix::{Cell, Ground, Kind, Order};
use crate::operations::Operation;
use crate::privileges::Bits;
use crate::ways::Way;

/// All cells that the lists span.
struct Difference {
    ways: &'static [Way],
    orders: &'static [Order],
    operations: &'static [&'static [Operation]],
    bits: &'static [&'static [Bits]],
    callers: &'static [Caller],
    kind: Kind,
    why: &'static str,
}

const SERVED: &[Way] = &[Way::Cached, Way::Direct, Way::Writeback];
const NOT_DIRECT: &[Way] = &[Way::Passthrough, Way::Cached, Way::Writeback];
const NOT_WRITEBACK: &[Way] = &[Way::Passthrough, Way::Cached, Way::Direct];

const KNOWN: &[Order] = &[Order::Before, Order::After];
const BENEATH: &[Order] = &[Order::Beneath];

const BUFFERED_WRITES: &[Operation] = &[
    Operation::Write,
    Operation::PositionedWrite,
    Operation::VectoredWrite,
    Operation::Append,
    Operation::SpliceInto,
    Operation::SendfileInto,
];
const DIRECT_WRITE: &[Operation] = &[Operation::DirectWrite];
/// Requests that do not say whether bits have to fall.
const REQUESTS: &[Operation] = &[
    Operation::CopyFileRange,
    Operation::Fallocate,
    Operation::FallocateKeepSize,
    Operation::PunchHole,
];
const TRUNCATIONS: &[Operation] = &[
    Operation::Truncate,
    Operation::TruncateOpen,
    Operation::TruncateToSameSize,
    Operation::OpenTruncating,
];
const CHOWNS_OF_AN_OWNER: &[Operation] = &[
    Operation::ChownToSame,
    Operation::ChownToNone,
    Operation::Chgrp,
];

const MARKS: &[Bits] = &[
    Bits::SetGroupMark,
    Bits::SetUserAndMark,
    Bits::CapabilityAndMark,
];
const CAPABILITIES: &[Bits] = &[
    Bits::Capability,
    Bits::CapabilityAndSetUser,
    Bits::CapabilityAndMark,
];
const SET_IDS: &[Bits] = &[Bits::SetGroup, Bits::SetUser, Bits::SetUserOnly, Bits::Both];
const SET_IDS_WITH_OTHERS: &[Bits] = &[Bits::SetUserAndMark, Bits::CapabilityAndSetUser];

const WITHOUT_FSETID: &[Caller] = &[
    Caller::RootWithoutFsetid,
    Caller::Owner,
    Caller::Member,
    Caller::Other,
];

const MARK_STAYS: Difference = Difference {
    ways: Way::ALL,
    orders: KNOWN,
    operations: &[],
    bits: &[MARKS],
    callers: &[Caller::RootWithoutFsetid, Caller::Owner, Caller::Other],
    kind: Kind::Kept,
    why: "FUSE keeps set-group-id where the group may not execute, whichever caller changes the file; \
        whether the caller is in the group, no request tells. It is no privilege there.",
};
const BOTH_FALL: Difference = Difference {
    ways: NOT_DIRECT,
    orders: KNOWN,
    operations: &[REQUESTS],
    bits: &[&[Bits::CapabilityAndSetUser]],
    callers: &[Caller::Root],
    kind: Kind::Lost,
    why: "a capability falls with every write, also root's, and to say so the kernel sends the same \
        order as for set-id bits: they fall as well",
};
const UNKNOWN_BITS: Difference = Difference {
    ways: &[Way::Passthrough],
    orders: BENEATH,
    operations: &[BUFFERED_WRITES, DIRECT_WRITE],
    bits: &[SET_IDS, &[Bits::CapabilityAndSetUser]],
    callers: WITHOUT_FSETID,
    kind: Kind::Kept,
    why: "set beneath, and the kernel has not asked since: it does not order them to be cleared, and \
        writes by itself (or, under writeback, does not say for which caller)",
};
const UNKNOWN_ROOT: Difference = Difference {
    ways: Way::ALL,
    orders: BENEATH,
    operations: &[REQUESTS],
    bits: &[SET_IDS],
    callers: &[Caller::RootWithoutFsetid],
    kind: Kind::Kept,
    why: "set beneath, and the kernel has not asked since: the request does not tell root without \
        CAP_FSETID from root with it",
};
const STRANGERS: &[Caller] = &[Caller::Member, Caller::Other];

const DIFFERENCES: &[Difference] = &[
    Difference {
        operations: &[BUFFERED_WRITES, DIRECT_WRITE, REQUESTS, TRUNCATIONS],
        ..MARK_STAYS
    },
    Difference {
        operations: &[CHOWNS_OF_AN_OWNER],
        callers: &[Caller::RootWithoutFsetid, Caller::Owner],
        ..MARK_STAYS
    },
    Difference {
        operations: &[&[Operation::ChownToOther]],
        callers: &[Caller::RootWithoutFsetid],
        ..MARK_STAYS
    },
    // Beneath, it is refused, because the mark would fall.
    Difference {
        operations: &[&[Operation::ChownToNone]],
        bits: &[&[Bits::SetGroupMark, Bits::CapabilityAndMark]],
        callers: &[Caller::Other],
        kind: Kind::Other,
        ..MARK_STAYS
    },
    Difference {
        operations: &[BUFFERED_WRITES, DIRECT_WRITE],
        callers: &[Caller::Root, Caller::OwnerWithFsetid],
        ..BOTH_FALL
    },
    BOTH_FALL,
    Difference {
        ways: &[Way::Direct],
        orders: Order::ALL,
        ..BOTH_FALL
    },
    Difference {
        ways: NOT_WRITEBACK,
        orders: Order::ALL,
        operations: &[&[Operation::ChownToNone]],
        bits: &[SET_IDS, SET_IDS_WITH_OTHERS],
        callers: STRANGERS,
        kind: Kind::Other,
        why: "while a writer has the file open, chown(2) of neither owner nor group looks like the \
            order that comes before a write: it is not refused to strangers",
    },
    Difference {
        ways: &[Way::Writeback],
        orders: Order::ALL,
        operations: &[&[Operation::ChownToNone]],
        bits: &[&[Bits::CapabilityAndSetUser]],
        callers: STRANGERS,
        kind: Kind::Lost,
        why: "the kernel has the capability removed before it asks for what is refused",
    },
    Difference {
        ways: SERVED,
        orders: Order::ALL,
        operations: &[&[Operation::MapStore]],
        bits: &[CAPABILITIES],
        callers: Caller::ALL,
        kind: Kind::Lost,
        why: "what was stored through a map comes to the server as a write, and the file system \
            beneath takes capabilities away with every write; with a store it does not",
    },
    UNKNOWN_BITS,
    Difference {
        ways: &[Way::Writeback],
        operations: &[BUFFERED_WRITES],
        ..UNKNOWN_BITS
    },
    UNKNOWN_ROOT,
    Difference {
        ways: Way::ALL,
        orders: Order::ALL,
        operations: &[REQUESTS],
        bits: &[SET_IDS, SET_IDS_WITH_OTHERS],
        callers: &[Caller::OwnerWithFsetid],
        kind: Kind::Lost,
        why: "so that no caller keeps bits that the kernel does not know of, these requests take them \
            away for all but root: they do not say whether the caller has CAP_FSETID",
    },
    // No write on a direct path has made the kernel note that there is nothing to clear, so it asks
    // for the capability, and the order that follows covers both.
    Difference {
        ways: NOT_DIRECT,
        bits: &[&[Bits::CapabilityAndSetUser]],
        ..UNKNOWN_ROOT
    },
];

pub fn is_named(ground: Ground, cell: Cell, kind: Kind) -> bool {
    DIFFERENCES.iter().any(|difference| {
        difference.kind == kind
            && difference.ways.contains(&ground.way)
            && difference.orders.contains(&ground.order)
            && difference.bits.iter().any(|bits| bits.contains(&cell.bits))
            && difference.callers.contains(&cell.caller)
            && difference
                .operations
                .iter()
                .any(|operations| operations.contains(&cell.operation))
    })
}

/// One cell that differs.
pub struct Named {
    pub ground: Ground,
    pub cell: Cell,
    pub kind: Kind,
    pub why: &'static str,
}

/// All of them on one way.
pub fn named(way: Way) -> Vec<Named> {
    let mut named = Vec::new();
    for difference in DIFFERENCES.iter().filter(|d| d.ways.contains(&way)) {
        for &order in difference.orders {
            let ground = Ground { way, order };
            for cell in difference.cells().filter(|cell| order.takes(cell.bits)) {
                named.push(Named {
                    ground,
                    cell,
                    kind: difference.kind,
                    why: difference.why,
                });
            }
        }
    }
    named
}

impl Difference {
    fn cells(&self) -> impl Iterator<Item = Cell> + '_ {
        let operations = self.operations.iter().copied().flatten();
        operations.flat_map(move |&operation| {
            self.bits.iter().copied().flatten().flat_map(move |&bits| {
                self.callers.iter().map(move |&caller| Cell {
                    operation,
                    bits,
                    caller,
                })
            })
        })
    }
}
