//! Files and directories that clients have open.

mod admission;
mod datapath;
mod deadlock;
mod directories;
mod io;
mod listings;
mod locks;
mod open;
mod passthrough;
mod privileges;
mod versions;

pub(crate) use datapath::{DataPath, Route, Use};
pub(crate) use deadlock::Waits;
pub(crate) use directories::{Listing, OpenDirectory};
pub(crate) use io::{NewOpenFile, OpenFile, stat_open, sync};
pub(crate) use listings::Listings;
pub(crate) use locks::{LockOwners, OwnerCharges, OwnerFile, USER_OWNERS_MAX, USERS_OWNERS_MAX};
pub(crate) use open::{Opening, access, lower_flags};
pub(crate) use passthrough::{Obstacle, Passthrough};
pub(crate) use privileges::set_group_id_stays;
