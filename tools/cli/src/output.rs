//! Files that are written whole or not at all.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::fail::Fail;
use crate::interrupt;

/// A file that is being written: under another name in the same folder, so that a reader never sees half of it. Dropped unfinished,
/// it is removed.
#[derive(Debug)]
pub(crate) struct Output {
    /// As the user gave it, for messages.
    path: PathBuf,
    to: To,
}

#[derive(Debug)]
enum To {
    /// Beside the file that it will be.
    Beside { file: Option<NamedTempFile>, becomes: PathBuf },
    /// A device or a pipe cannot be replaced by a file, and is written as it is.
    There(File),
}

impl Output {
    /// Begins to write. Fails if that is impossible, before any time is spent.
    pub(crate) fn create(path: &Path) -> Result<Self, Fail> {
        let fail = |error: io::Error| Fail::write(path, &error);
        let is_folder = || Fail::new(format!("{}: is a folder; name a file in it", path.display()));
        let to = match std::fs::metadata(path) {
            Ok(there) if there.is_dir() => return Err(is_folder()),
            Ok(there) if !there.is_file() => To::There(OpenOptions::new().write(true).open(path).map_err(fail)?),
            Ok(there) => {
                if there.permissions().readonly() {
                    return Err(Fail::new(format!("{}: cannot be written: it is write-protected; name another", path.display())));
                }
                // A link stays one: what it points to is replaced.
                Self::beside(&std::fs::canonicalize(path).map_err(fail)?).map_err(fail)?
            }
            Err(_) if path.file_name().is_none() => return Err(is_folder()),
            Err(_) => Self::beside(path).map_err(fail)?,
        };
        Ok(Self { path: path.to_owned(), to })
    }

    fn beside(path: &Path) -> io::Result<To> {
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let mut builder = tempfile::Builder::new();
        builder.prefix(".phalanx-");
        // The permissions that a new file has, which the process's mask then narrows; a temporary file is its owner's alone.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let file = builder.tempfile_in(folder)?;
        interrupt::unfinished(file.path());
        Ok(To::Beside { file: Some(file), becomes: path.to_owned() })
    }

    /// As the user gave it.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn file(&mut self) -> io::Result<&mut File> {
        match &mut self.to {
            To::Beside { file: Some(file), .. } => Ok(file.as_file_mut()),
            To::Beside { file: None, .. } => Err(io::ErrorKind::NotFound.into()),
            To::There(file) => Ok(file),
        }
    }

    /// It is complete: gives it its name.
    pub(crate) fn finish(mut self) -> Result<(), Fail> {
        let fail = |error: &io::Error| Fail::write(&self.path, error);
        if let To::Beside { file, becomes } = &mut self.to
            && let Some(file) = file.take()
        {
            let temporary = file.path().to_owned();
            let persisted = file.persist(&*becomes);
            interrupt::finished(&temporary);
            persisted.map_err(|error| fail(&error.error))?;
        }
        Ok(())
    }
}

/// A document as JSON, for people too.
pub(crate) fn write_json(mut file: Output, document: &impl serde::Serialize) -> Result<(), Fail> {
    let written = serde_json::to_vec_pretty(document).map_err(io::Error::from).and_then(|mut text| {
        text.push(b'\n');
        file.write_all(&text)
    });
    written.map_err(|error| Fail::write(file.path(), &error))?;
    file.finish()
}

impl Drop for Output {
    fn drop(&mut self) {
        if let To::Beside { file: Some(file), .. } = &self.to {
            interrupt::finished(file.path());
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file()?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file()?.flush()
    }
}

impl Seek for Output {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file()?.seek(to)
    }
}
