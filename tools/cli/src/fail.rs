//! Why the program gives up: one line.

use std::fmt;
use std::path::Path;

use phalanx::BuildError;
use phalanx_sim::InputError;
use phalanx_sim::engine::SimError;

/// Something was given that cannot be used, or cannot be written. Its text is one line; the exit status is 2.
#[derive(Debug)]
pub(crate) struct Fail(String);

impl Fail {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// A file that could not be written.
    pub(crate) fn write(path: &Path, error: &std::io::Error) -> Self {
        Self(format!("{}: cannot be written: {error}; check the folder, its permissions and the space left", path.display()))
    }

    /// What clap found wrong with the command line. Its text has the reason in its first paragraph, and a usage below that is
    /// printed by `--help` as well.
    pub(crate) fn usage(error: &clap::Error, command: &str) -> Self {
        let text = error.render().to_string();
        let reason: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
        let reason = reason.join(" ");
        let reason = reason.strip_prefix("error: ").unwrap_or(&reason);
        Self(format!("{reason}; `phalanx --help` and `phalanx {command} --help` say what there is"))
    }
}

impl fmt::Display for Fail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<InputError> for Fail {
    fn from(error: InputError) -> Self {
        Self(error.to_string())
    }
}

impl From<SimError> for Fail {
    fn from(error: SimError) -> Self {
        Self(error.to_string())
    }
}

impl From<BuildError> for Fail {
    fn from(error: BuildError) -> Self {
        Self(format!("the node cannot be started: {error}"))
    }
}
