//! Terminals of processes (`tty: true`): a pseudo-terminal, and the program that makes it the process's own.

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tokio::net::unix::pipe::{Receiver, Sender};

/// The program of util-linux and busybox that starts another in a session with a terminal. A process can't do so for its
/// child without unsafe code.
const LEADER: &str = "setsid";

/// The node's end of a terminal.
#[derive(Debug)]
pub(crate) struct Terminal(File);

impl Terminal {
    /// What is typed.
    pub(crate) fn writer(&self) -> io::Result<Sender> {
        Sender::from_file_unchecked(self.0.try_clone()?)
    }

    /// What is shown. Reading fails once no process has the terminal any more.
    pub(crate) fn reader(&self) -> io::Result<Receiver> {
        Receiver::from_file_unchecked(self.0.try_clone()?)
    }

    /// Sets the size, in characters.
    pub(crate) fn resize(&self, columns: u16, rows: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        // A terminal whose processes are gone has no size to change.
        let _ = tcsetwinsize(&self.0, size);
    }
}

/// Opens a terminal. The command starts `program` there; arguments are to be added to it.
pub(crate) fn open(program: &Path) -> io::Result<(Terminal, Command)> {
    let leader =
        leader().ok_or_else(|| io::Error::other("a terminal needs the program setsid on this machine"))?;
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = openpt(flags)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let theirs = File::from(ioctl_tiocgptpeer(&ours, flags)?);
    rustix::io::ioctl_fionbio(&ours, true)?;
    let mut command = Command::new(leader);
    command.args(["-c", "--"]).arg(program);
    command
        .stdin(Stdio::from(theirs.try_clone()?))
        .stdout(Stdio::from(theirs.try_clone()?))
        .stderr(Stdio::from(theirs));
    Ok((Terminal(File::from(ours)), command))
}

/// The program, where this process finds it: a container's own `PATH` need not lead there.
fn leader() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(LEADER)).find(|file| file.is_file())
}
