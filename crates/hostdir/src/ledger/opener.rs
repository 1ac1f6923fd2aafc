//! Who opened a file.

use crate::quota::QuotaCharge;
use serde::{Deserialize, Serialize};

/// The user and group that opened a file, to decide again with another policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OpenerIds {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl OpenerIds {
    pub(crate) fn word(self) -> u64 {
        u64::from(self.uid) << 32 | u64::from(self.gid)
    }

    /// Only the user with the charged quota: enough where no rule asks for the opener.
    pub(crate) fn counted_for(charge: Option<&QuotaCharge>) -> OpenerIds {
        OpenerIds {
            uid: charge.map_or(0, QuotaCharge::uid),
            gid: 0,
        }
    }

    pub(crate) fn from_word(word: u64) -> OpenerIds {
        OpenerIds {
            uid: (word >> 32) as u32,
            gid: word as u32,
        }
    }
}
