//! A server process with its directory, watched over by a shell that outlives its starter.

use crate::{Error, programs::User};
use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
};

/// Ends with its standard input: `stop SIGNAL` ends the server by that signal and keeps the directory, the end of the
/// input (whoever wanted the server is gone, however that came) ends it by `$2` and removes the directory. A server that was stopped by SIGSTOP
/// goes on to its end.
///
/// The server's own output goes to `$1/log`; `$1/ended` is there once it has ended, also by itself.
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

/// A directory of a server, removed with it.
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

    /// A file of it that only the server reads.
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

    /// The id of the server's process.
    pub(crate) fn process_id(&self) -> Option<u32> {
        fs::read_to_string(self.path.join("pid")).ok()?.trim().parse().ok()
    }

    /// The end of the server's log, for an error's sentence.
    pub(crate) fn log(&self) -> String {
        let log = fs::read(self.path.join("log")).unwrap_or_default();
        let text = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = text.trim().lines().collect();
        lines[lines.len().saturating_sub(5)..].join(" | ")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Also when the shell was faster.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// A server that runs.
#[derive(Debug)]
pub(crate) struct Keeper {
    shell: Child,
    input: Option<ChildStdin>,
}

impl Keeper {
    /// Starts a program with these arguments, as the directory's user.
    pub(crate) fn start(directory: &Directory, last_signal: &str, command: &[String]) -> Result<Self, Error> {
        // Of the server before.
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
        // A group of its own: an interrupt at the terminal is for the test, the server ends by the pipe.
        std::os::unix::process::CommandExt::process_group(&mut shell, 0);
        let mut shell = User::of(directory.user, &mut shell)
            .spawn()
            .map_err(Error::io(format!("starting {}", command[0])))?;
        Ok(Self {
            input: shell.stdin.take(),
            shell,
        })
    }

    /// Has the server ended by itself?
    pub(crate) fn has_ended(&mut self, directory: &Directory) -> bool {
        directory.path.join("ended").exists() || matches!(self.shell.try_wait(), Ok(Some(_)))
    }

    /// Ends the server by a signal and waits for its end; the directory stays.
    pub(crate) fn stop(mut self, signal: &str) {
        if let Some(mut input) = self.input.take() {
            // A shell that has gone has ended the server.
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
