//! A server process with its directory, watched by a shell that outlives the process that started it.

use crate::{Error, programs::User};
use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
};

/// The watching shell ends with its standard input. A line `stop SIGNAL` ends the server by that signal and keeps the directory. The end of the input
/// means that the owner is gone for any reason; it ends the server by `$2` and removes the directory. A server that was stopped by SIGSTOP is
/// continued, so that it can end.
///
/// The server's own output goes to `$1/log`. The file `$1/ended` exists once the server has ended, also if it ended by itself.
const SCRIPT: &str = r#"
directory=$1; last=$2; shift 2
rm -f "$directory/ended"
{
    /bin/sh -c 'echo $$ >"$0/pid"; exec "$@"' "$directory" "$@" >>"$directory/log" 2>&1 </dev/null
    : >"$directory/ended"
} &
if read -r signal; then
    kill "-$signal" "$(cat "$directory/pid")"
    kill -CONT "$(cat "$directory/pid")" 2>/dev/null
    wait
    exit 0
fi
kill "-$last" "$(cat "$directory/pid")" 2>/dev/null
kill -CONT "$(cat "$directory/pid")" 2>/dev/null
wait
rm -rf "$directory"
"#;

/// The directory of a server. Dropping it removes the directory.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    pub(crate) user: Option<User>,
}

impl Directory {
    pub(crate) fn create(prefix: &str, user: Option<User>, within: Option<&Path>) -> Result<Self, Error> {
        let mut builder = tempfile::Builder::new();
        let named = builder.prefix(prefix);
        let path = within
            .map_or_else(|| named.tempdir(), |within| named.tempdir_in(within))
            .map_err(Error::io("creating a temporary directory"))?
            .keep();
        if let Some(user) = user {
            std::os::unix::fs::chown(&path, Some(user.id), Some(user.group))
                .map_err(Error::io(format!("giving {} to another user", path.display())))?;
        }
        Ok(Self { path, user })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file in the directory that only the server can read.
    pub(crate) fn secret(&self, name: &Path, text: &str) -> Result<(), Error> {
        use std::os::unix::fs::{PermissionsExt as _, chown};
        let path = self.path.join(name);
        let failed = || Error::io(format!("writing {}", path.display()));
        fs::write(&path, text).map_err(failed())?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map_err(failed())?;
        match self.user {
            Some(user) => chown(&path, Some(user.id), Some(user.group)).map_err(failed()),
            None => Ok(()),
        }
    }

    /// Returns the id of the server's process.
    pub(crate) fn process_id(&self) -> Option<u32> {
        fs::read_to_string(self.path.join("pid")).ok()?.trim().parse().ok()
    }

    /// Returns the end of the server's log, for an error message.
    pub(crate) fn log(&self) -> String {
        let log = fs::read(self.path.join("log")).unwrap_or_default();
        let text = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = text.trim().lines().collect();
        lines[lines.len().saturating_sub(5)..].join(" | ")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Fails if the shell has removed it already.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Keeper {
    shell: Child,
    input: Option<ChildStdin>,
}

impl Keeper {
    /// Starts a program with these arguments as the directory's user.
    pub(crate) fn start(directory: &Directory, last_signal: &str, command: &[String]) -> Result<Self, Error> {
        // Left by the server that ran before.
        let _ = fs::remove_file(directory.path.join("ended"));
        let mut shell = Command::new("/bin/sh");
        shell
            .args(["-c", SCRIPT, "keeper"])
            .arg(directory.path())
            .arg(last_signal)
            .args(command)
            .current_dir(directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // A process group of its own: an interrupt at the terminal ends only the test. The pipe then ends the server.
        std::os::unix::process::CommandExt::process_group(&mut shell, 0);
        let mut shell = User::of(directory.user, &mut shell)
            .spawn()
            .map_err(Error::io(format!("starting {}", command[0])))?;
        Ok(Self {
            input: shell.stdin.take(),
            shell,
        })
    }

    /// Returns true if the server has ended by itself.
    pub(crate) fn has_ended(&mut self, directory: &Directory) -> bool {
        directory.path.join("ended").exists() || matches!(self.shell.try_wait(), Ok(Some(_)))
    }

    /// Ends the server by a signal and waits for its end. The directory stays.
    pub(crate) fn stop(mut self, signal: &str) {
        if let Some(mut input) = self.input.take() {
            // Fails if the shell has ended; then it has ended the server, too.
            let _ = writeln!(input, "{signal}");
        }
        let _ = self.shell.wait();
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.shell.wait();
    }
}
