//! Where the lines of one log go.

use std::fs::File;
use std::io::{self, Write};

use model::snapshot::LogTarget;

use super::lost::Lost;
use super::syslog::Syslog;

/// A target that lines are carried to.
#[derive(Debug)]
pub(super) enum Output {
    /// Bytes one behind the other.
    Stream(Stream),
    /// A message for each.
    Syslog(Box<Syslog>),
}

/// A file, or standard output.
#[derive(Debug)]
pub(super) struct Stream {
    /// `None`: standard output.
    file: Option<File>,
    /// The last write failed, perhaps within a line.
    torn: bool,
}

impl Output {
    /// Returns an output to standard output, until a file is set.
    pub(super) fn new(target: &LogTarget) -> Self {
        match target {
            LogTarget::Syslog(settings) => Self::Syslog(Box::new(Syslog::new(settings))),
            LogTarget::Stdout | LogTarget::File(_) => Self::Stream(Stream { file: None, torn: false }),
        }
    }

    pub(super) fn file(file: File) -> Self {
        Self::Stream(Stream { file: Some(file), torn: false })
    }

    /// Takes whole lines.
    pub(super) fn carry(&mut self, lines: &[u8]) -> Result<(), Lost> {
        match self {
            Self::Stream(stream) => stream
                .carry(lines)
                .map_err(|why| Lost { records: lines.iter().filter(|&&byte| byte == b'\n').count() as u64, why }),
            Self::Syslog(syslog) => syslog.carry(lines),
        }
    }

    /// Goes on with what waits for a receiver. An error loses nothing.
    pub(super) fn go_on(&mut self) -> io::Result<()> {
        match self {
            Self::Stream(_) => Ok(()),
            Self::Syslog(syslog) => syslog.go_on(),
        }
    }

    /// Returns whether anything waits for a receiver.
    pub(super) fn has_waiting(&self) -> bool {
        matches!(self, Self::Syslog(syslog) if syslog.has_waiting())
    }

    /// Returns whether records wait for a receiver that is not known to be unreachable.
    pub(super) fn is_busy(&self) -> bool {
        matches!(self, Self::Syslog(syslog) if syslog.is_busy())
    }
}

impl Stream {
    /// Writes lines. After a failure, which may have cut a line, the next one begins on a line of its own.
    fn carry(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.torn {
            self.write(b"\n")?;
        }
        self.torn = true;
        self.write(lines)?;
        self.torn = false;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.file {
            Some(file) => file.write_all(bytes),
            None => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(bytes)?;
                stdout.flush()
            }
        }
    }
}
