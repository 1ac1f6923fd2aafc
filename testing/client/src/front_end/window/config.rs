//! How a front end treats the messages about its window.

/// Which rules a front end follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowBehaviour {
    /// Those of the specification. A mapping is in force before it is confirmed, for reading unless the message
    /// says for writing, whatever the descriptor was opened for beyond that. It may reach beyond the end of the
    /// file. Nothing is announced.
    AsSpecified,
    /// Those of QEMU 11.1.
    ///
    /// * A mapping is confirmed before it is in force. Then it is announced as memory of the guest: ADD_MEM_REG
    ///   and REM_MEM_REG with NEED_REPLY, on the main channel.
    /// * Descriptors opened for reading are refused; all mappings are writable.
    /// * A mapping beyond the end of the file is refused, also of a partial last page.
    AsQemu,
}

/// A front end's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowConfig {
    /// The rules.
    pub behaviour: WindowBehaviour,
}

impl WindowConfig {
    /// Follows the specification.
    #[must_use]
    pub const fn as_specified() -> WindowConfig {
        let behaviour = WindowBehaviour::AsSpecified;
        WindowConfig { behaviour }
    }

    /// Behaves as QEMU 11.1.
    #[must_use]
    pub const fn as_qemu() -> WindowConfig {
        let behaviour = WindowBehaviour::AsQemu;
        WindowConfig { behaviour }
    }
}
