//! Where ACLs are not served, no caller gets through the mount what an ACL beneath refuses.

use rustix::fs::{Access, accessat};
use thrufs_testing::user::{MEMBER, TEAM, User};
use thrufs_tests::acl::List;
use thrufs_tests::prelude::*;

/// A group that `MEMBER` is in as well.
const OTHER_TEAM: u32 = 4099;

fn all_lists() -> impl Iterator<Item = List> {
    let named = |id| [None, Some((id, 0)), Some((id, 4)), Some((id, 7))];
    let users = named(BOB.uid).into_iter().chain(named(MEMBER.uid));
    users.flat_map(move |user| {
        named(OTHER_TEAM).into_iter().flat_map(move |other_group| {
            [0, 4, 5].into_iter().flat_map(move |mask| {
                [0, 6, 7].into_iter().flat_map(move |group| {
                    [0, 5].into_iter().map(move |others| List {
                        group,
                        others,
                        mask: Some(mask),
                        user,
                        other_group,
                    })
                })
            })
        })
    })
}

/// Access of an ordinary user, of a named one, and of a member of both groups.
fn permitted(path: &Path) -> Vec<(User, Access)> {
    let kinds = [Access::READ_OK, Access::WRITE_OK, Access::EXEC_OK];
    let callers = [ALICE, BOB, MEMBER];
    let tried = callers.map(|caller| {
        let may = |kind: &Access| accessat(CWD, path, *kind, rustix::fs::AtFlags::empty()).is_ok();
        let kinds = caller.run(|| kinds.into_iter().filter(may).collect::<Vec<_>>());
        kinds.into_iter().map(move |kind| (caller, kind))
    });
    tried.into_iter().flatten().collect()
}

#[test]
fn what_an_acl_refuses_is_refused_where_none_is_served() {
    over_each(|transport| {
        let mounted = Mounted::start_on(Lower::Ext4, &transport.with("noacl")).unwrap();
        let (source, mnt) = (mounted.source(), mounted.mnt());
        let mut refused_above = 0;
        for (number, list) in all_lists().enumerate() {
            let name = format!("file-{number}");
            fs::write(source.join(&name), "").unwrap();
            chown(source.join(&name), Some(0), Some(TEAM)).unwrap();
            list.set(&source.join(&name));
            let (above, beneath) = (permitted(&mnt.join(&name)), permitted(&source.join(&name)));
            let is_there = |(caller, kind): &&(User, Access)| {
                let same = |(other, is): &(User, Access)| other.uid == caller.uid && is == kind;
                beneath.iter().any(same)
            };
            let more: Vec<_> = above.iter().filter(|it| !is_there(it)).collect();
            assert!(more.is_empty(), "{list:?} gives no {more:?}");
            let is_told_whole = list.user.is_none() && list.other_group.is_none();
            assert!(!is_told_whole || above.len() == beneath.len(), "{list:?}");
            refused_above += beneath.len() - above.len();
        }
        // Otherwise there was nothing to compare.
        assert!(refused_above > 0);
    });
}
