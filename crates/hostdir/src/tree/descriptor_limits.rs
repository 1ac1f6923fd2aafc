//! How the descriptors that RLIMIT_NOFILE allows are divided: a part is the cache of inodes' descriptors,
//! users of the clients have quotas of the rest. Arithmetic alone, decided once at the start.

use rustix::process::{Resource, getrlimit};

/// With fewer cached descriptors, a request could evict what its next step needs.
const INODES_MIN: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DescriptorLimits {
    /// Of inodes, cached.
    pub(crate) inodes: usize,
    /// Of open files and directories, for one user.
    pub(crate) user: usize,
    /// Of open files and directories, for all users but root and the server's.
    pub(crate) users: usize,
    /// Of removed inodes that nothing but a descriptor leads to: for one user, for all users but root and
    /// the server's, and for each of these two.
    pub(crate) removed: [usize; 3],
}

impl DescriptorLimits {
    /// Those of this process. `inodes` and `user` replace the default where an operator set them.
    pub(crate) fn of_this_process(
        inodes: Option<usize>,
        user: Option<usize>,
        has_handles: bool,
    ) -> DescriptorLimits {
        let limit = getrlimit(Resource::Nofile).current;
        let limit = limit.map_or(65_536, |limit| usize::try_from(limit).unwrap_or(65_536));
        DescriptorLimits::within(limit, inodes, user, has_handles)
    }

    fn within(
        limit: usize,
        inodes: Option<usize>,
        user: Option<usize>,
        has_handles: bool,
    ) -> DescriptorLimits {
        let inodes = inodes.unwrap_or_else(|| default_inodes(limit, has_handles));
        let inodes = inodes.max(INODES_MIN);
        let rest = limit - inodes.min(limit / 2);
        DescriptorLimits {
            inodes,
            user: user.unwrap_or(rest / 2),
            users: rest / 4 * 3,
            removed: [
                inodes / 2,
                inodes / 4 * 3,
                inodes.max(default_inodes(limit, false)) / 4,
            ],
        }
    }
}

/// Half of the limit. Where a descriptor only saves time, more than this cap is not worth the kernel's memory.
fn default_inodes(limit: usize, has_handles: bool) -> usize {
    const SAVING_TIME_MAX: usize = 16_384;
    const WITHOUT_HANDLES_MAX: usize = 65_536;
    let most = if has_handles {
        SAVING_TIME_MAX
    } else {
        WITHOUT_HANDLES_MAX
    };
    (limit / 2).saturating_sub(32).clamp(INODES_MIN, most)
}

#[cfg(test)]
mod tests {
    use super::DescriptorLimits;

    fn within(
        limit: usize,
        inodes: Option<usize>,
        user: Option<usize>,
        handles: bool,
    ) -> [usize; 6] {
        let limits = DescriptorLimits::within(limit, inodes, user, handles);
        let [removed_user, removed_users, removed_root] = limits.removed;
        [
            limits.inodes,
            limits.user,
            limits.users,
            removed_user,
            removed_users,
            removed_root,
        ]
    }

    #[test]
    fn descriptors_are_divided_between_inodes_and_users() {
        assert_eq!(
            within(1024, None, None, true),
            [480, 272, 408, 240, 360, 120]
        );
        // Handles find inodes again, so that their descriptors are capped.
        assert_eq!(
            within(1 << 20, None, None, true),
            [16_384, 516_096, 774_144, 8_192, 12_288, 16_384]
        );
        assert_eq!(
            within(1 << 20, None, None, false),
            [65_536, 491_520, 737_280, 32_768, 49_152, 16_384]
        );
    }

    #[test]
    fn an_operator_sets_what_inodes_and_a_user_may_have() {
        // What is left for users is at least half; root's removed inodes go by the default if that is more.
        assert_eq!(
            within(1024, Some(1000), Some(7), true),
            [1000, 7, 384, 500, 750, 250]
        );
        assert_eq!(
            within(1024, Some(1), None, true),
            [16, 504, 756, 8, 12, 120]
        );
        assert_eq!(within(64, None, None, false), [16, 24, 36, 8, 12, 4]);
    }
}
