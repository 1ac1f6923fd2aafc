//! Upgrading in place: a running server goes on with another program, and no call fails.
//!
//! | module | content |
//! |---|---|
//! | `command` | `thrufs upgrade` |
//! | `request` | the socket at which a supervisor receives the program |
//! | `handover` | what one program of a supervisor hands over to the next |
//! | `check` | whether the next can take it over |
//! | `execute` | executing it |
//!
//! ```text
//! thrufs upgrade ── program, by descriptor ──► supervisor
//!     1. starts the program with what it would hand over:  reads it, or says why not
//!     2. kills the worker, and starts one of the program:   serves, or the old program goes on
//!     3. kills that, and executes the program itself:       starts its own worker
//! ```
//!
//! Each worker follows the last as if that had died ([`resume`](crate::supervisor)), which is why only a mount that
//! can resume can be upgraded. The supervisor keeps its process: it stays the main process of a service.

pub(crate) mod check;
pub(crate) mod command;
pub(crate) mod execute;
pub(crate) mod handover;
pub(crate) mod request;
