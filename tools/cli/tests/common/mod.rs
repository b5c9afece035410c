//! What the tests of the program share.

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The program, with these words.
pub(crate) fn phalanx<S: AsRef<std::ffi::OsStr>>(words: &[S]) -> Output {
    command(words).output().expect("the program starts")
}

/// The program, not started yet.
pub(crate) fn command<S: AsRef<std::ffi::OsStr>>(words: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_phalanx"));
    command.args(words).stdin(Stdio::null());
    command
}

/// A path as text.
pub(crate) fn text(path: &Path) -> String {
    path.to_str().expect("a temporary folder has a plain name").to_owned()
}
