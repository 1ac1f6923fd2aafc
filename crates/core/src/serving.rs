//! What threads that serve have in common, for transports in other crates: where they run, and how long
//! they look out for more.

pub use crate::transport::pairing::{Pairing, Sight};
pub use crate::transport::scheduling::{
    allowed_cpus, bind, cpu_in_stat, move_to, release, times_in_schedstat,
};
