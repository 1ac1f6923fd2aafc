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
    /// * One thread does everything: while a message on the main channel is unanswered, none of the back end's is
    ///   taken, and the other way round ([`FrontEnd::on_main_thread`](crate::FrontEnd::on_main_thread)).
    AsQemu,
}

/// A front end's window: its behaviour and limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowConfig {
    /// The rules.
    pub behaviour: WindowBehaviour,
    /// Most regions of memory, with the one of the guest's RAM; more mappings are refused. Counts for
    /// [`AsQemu`](WindowBehaviour::AsQemu), which itself aborts above 512.
    pub regions_max: usize,
    /// Whether messages are carried out but not answered from the start
    /// ([`Window::withhold_answers`](crate::Window::withhold_answers)), until
    /// [`Window::answer_again`](crate::Window::answer_again).
    pub answers_withheld: bool,
}

impl WindowConfig {
    /// Follows the specification.
    #[must_use]
    pub const fn as_specified() -> WindowConfig {
        WindowConfig {
            behaviour: WindowBehaviour::AsSpecified,
            regions_max: 512,
            answers_withheld: false,
        }
    }

    /// Behaves as QEMU 11.1.
    #[must_use]
    pub const fn as_qemu() -> WindowConfig {
        WindowConfig {
            behaviour: WindowBehaviour::AsQemu,
            ..WindowConfig::as_specified()
        }
    }
}
