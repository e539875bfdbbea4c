//! The echo as a process of its own, so that its CPU time can be told from the client's.

use super::EchoError;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A running echo in a process of its own. The process ends when this is dropped, and when this process ends.
#[derive(Debug)]
pub struct EchoProcess {
    child: Child,
    address: SocketAddr,
}

impl EchoProcess {
    /// Starts `command` with the echo's options added to it, and waits until it listens.
    ///
    /// `command` is the program that runs [`EchoArguments`](super::EchoArguments): the `echo` binary of this crate, or a program with
    /// [`Yardstick`](crate::Yardstick) among its sub-commands:
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut command = std::process::Command::new(std::env::current_exe()?);
    /// command.args(["yardstick", "echo"]);
    /// let echo = yardsticks::echo::EchoProcess::start(command, 1)?;
    /// println!("{} has used {:?}", echo.address(), echo.cpu_time()?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The program cannot be started, or it ends or prints something else before it prints its address.
    pub fn start(mut command: Command, loops: usize) -> Result<Self, EchoError> {
        let program = command.get_program().to_string_lossy().into_owned();
        let failed = |reason: String| EchoError::Process {
            program: program.clone(),
            reason,
        };
        command
            .args(["--port", "0", "--until-input-closes", "--loops", &loops.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
        let first_line = read_first_line(&mut child);
        match first_line.as_deref().map(str::trim_end).map(str::parse) {
            Ok(Ok(address)) => Ok(Self { child, address }),
            said => {
                end(&mut child);
                Err(failed(match said {
                    Ok(_) => format!("it did not print its address, but {first_line:?}"),
                    Err(error) => format!("it did not print its address: {error}"),
                }))
            }
        }
    }

    /// Returns the address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the CPU time used so far by all its threads, in user and kernel, to a clock tick (mostly 10 ms).
    ///
    /// # Errors
    /// The process has ended.
    pub fn cpu_time(&self) -> Result<Duration, EchoError> {
        let path = format!("/proc/{}/stat", self.child.id());
        let stat = std::fs::read_to_string(&path).map_err(EchoError::failed("read the echo's CPU time"))?;
        let ticks = cpu_ticks(&stat).ok_or_else(|| EchoError::Loop {
            step: "read the echo's CPU time",
            source: std::io::Error::other(format!("unexpected text in {path}")),
        })?;
        Ok(Duration::from_secs_f64(
            ticks as f64 / rustix::param::clock_ticks_per_second() as f64,
        ))
    }
}

impl Drop for EchoProcess {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Reads a line that is at most as long as an address.
fn read_first_line(child: &mut Child) -> std::io::Result<String> {
    const LINE_BYTES_MAX: u64 = 128;
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(std::io::Read::take(output, LINE_BYTES_MAX)).read_line(&mut line)?;
    }
    Ok(line)
}

/// Ends the process. Both calls fail only if it has ended and was waited for already.
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// Returns `utime` + `stime` of `/proc/PID/stat` (proc(5), fields 14 and 15). Field 2 is a name in parentheses that may contain anything.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let kernel: u64 = fields.next()?.parse().ok()?;
    Some(user + kernel)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_kernel_time_are_found_behind_any_name() {
        let stat = "42 (a) b (c)) S 1 42 42 0 -1 4194304 100 0 0 0 17 5 0 0 20 0 3 0 100 1000 10";
        assert_eq!(cpu_ticks(stat), Some(22));
        assert_eq!(cpu_ticks("42 (a) S 1"), None);
    }

    #[test]
    fn a_program_other_than_the_echo_is_reported_with_its_output() {
        let error = EchoProcess::start(Command::new("/bin/echo"), 1)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("did not print its address") && error.contains("--until-input-closes"),
            "{error}"
        );
        let error = EchoProcess::start(Command::new("/no/such/program"), 1)
            .unwrap_err()
            .to_string();
        assert!(error.contains("(/no/such/program)"), "{error}");
    }
}
