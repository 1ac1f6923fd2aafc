//! The switch of FUSE over io_uring: a parameter of the kernel, for mounts made from then on by
//! servers that ask for it.

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// What it was before a run that switches it on, and is to be again: nothing, where nothing changes.
pub(crate) struct Switched(Option<String>);

impl Switched {
    /// What a run that wants it on would change. Where the kernel has no such switch, contestants will
    /// say what follows from that.
    pub(crate) fn planned(wanted: bool) -> Switched {
        let value = std::fs::read_to_string(PARAMETER).unwrap_or_default();
        let value = value.trim();
        Switched((wanted && value == "N").then(|| value.to_owned()))
    }

    /// For another process.
    pub(crate) fn text(&self) -> &str {
        self.0.as_deref().unwrap_or_default()
    }

    /// As another process has said.
    pub(crate) fn parse(text: &str) -> Switched {
        Switched((!text.is_empty()).then(|| text.to_owned()))
    }

    /// Switches it on.
    pub(crate) fn switch(&self) -> crate::Outcome<()> {
        let Some(before) = &self.0 else {
            return Ok(());
        };
        std::fs::write(PARAMETER, "Y").map_err(|error| format!("{PARAMETER}: {error}"))?;
        eprintln!(
            "{PARAMETER} was {before} and is Y now, for the whole machine; at the end it will be put \
             back"
        );
        Ok(())
    }

    /// Makes it what it was.
    pub(crate) fn put_back(&self) {
        let Some(before) = &self.0 else {
            return;
        };
        match std::fs::write(PARAMETER, before) {
            Ok(()) => eprintln!("{PARAMETER} is {before} again"),
            Err(error) => eprintln!("{PARAMETER} is not {before} again: {error}"),
        }
    }
}
