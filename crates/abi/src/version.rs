//! Versions of the protocol: which are spoken, and what INIT answers to another.

/// Major version. There was never another since 2007.
pub const KERNEL_VERSION: u32 = 7;
/// Newest minor version that is spoken here (Linux 6.18 to 7.2).
pub const KERNEL_MINOR: u32 = 45;
/// Oldest minor version that is spoken here (Linux 5.4).
pub const MIN_MINOR: u32 = 31;

/// What follows from the versions that the other side named in INIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// Both speak 7 with this minor version.
    Speak {
        /// The lesser of the two minor versions.
        minor: u32,
    },
    /// It has a newer major version: answer with ours alone, and it will send INIT again.
    AskAgain,
    /// It is too old to be served.
    TooOld,
}

/// Compares versions as the protocol has it.
#[must_use]
pub const fn negotiate(major: u32, minor: u32) -> Agreement {
    if major > KERNEL_VERSION {
        Agreement::AskAgain
    } else if major < KERNEL_VERSION || minor < MIN_MINOR {
        Agreement::TooOld
    } else if minor < KERNEL_MINOR {
        Agreement::Speak { minor }
    } else {
        Agreement::Speak {
            minor: KERNEL_MINOR,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lesser_minor_version_is_spoken() {
        assert_eq!(negotiate(7, 45), Agreement::Speak { minor: 45 });
        assert_eq!(negotiate(7, 99), Agreement::Speak { minor: 45 });
        assert_eq!(negotiate(7, 31), Agreement::Speak { minor: 31 });
        assert_eq!(negotiate(7, 30), Agreement::TooOld);
        assert_eq!(negotiate(6, 99), Agreement::TooOld);
        assert_eq!(negotiate(8, 0), Agreement::AskAgain);
    }
}
