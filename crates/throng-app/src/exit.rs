//! The exit code and the last sentence of a program.

use std::process::ExitCode;

/// Returns the exit code of a finished command. An error is printed on standard error, in one sentence.
pub fn exit_code(program: &str, done: anyhow::Result<ExitCode>) -> ExitCode {
    done.unwrap_or_else(|error| {
        eprintln!("{program}: {}", sentence(&error));
        ExitCode::FAILURE
    })
}

/// Returns the error with its causes, each once: some errors repeat their cause themselves.
fn sentence(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context as _;

    #[test]
    fn every_cause_is_said_once() {
        let inner = std::io::Error::other("no such file");
        let error = Err::<(), _>(inner)
            .context("cannot read x: no such file; check it")
            .context("no demo");
        assert_eq!(
            sentence(&error.unwrap_err()),
            "no demo: cannot read x: no such file; check it"
        );
    }
}
