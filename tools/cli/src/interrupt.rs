//! Ctrl-C: the first asks for an orderly end, the second ends the program.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

static ASKED: AtomicBool = AtomicBool::new(false);

/// Files that are not complete yet: gone with the program.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// The exit status after Ctrl-C, by the shells' convention.
pub(crate) const STATUS: u8 = 130;

/// Listens from now on. Where that cannot be had, Ctrl-C ends the program as it always does.
pub(crate) fn listen() {
    let _ = ctrlc::set_handler(|| {
        // ORDERING: Relaxed: a flag that passes nothing on.
        if ASKED.swap(true, Ordering::Relaxed) {
            if let Ok(files) = UNFINISHED.try_lock() {
                for file in &*files {
                    let _ = std::fs::remove_file(file);
                }
            }
            std::process::exit(i32::from(STATUS));
        }
    });
}

/// Whether the user wants an end.
pub(crate) fn asked() -> bool {
    // ORDERING: Relaxed: as above.
    ASKED.load(Ordering::Relaxed)
}

/// The file is to be removed if the program is ended at once.
pub(crate) fn unfinished(file: &Path) {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner).push(file.to_owned());
}

/// It is complete, or gone.
pub(crate) fn finished(file: &Path) {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner).retain(|other| other != file);
}
