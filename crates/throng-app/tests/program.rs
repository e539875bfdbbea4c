//! A program in a process that already has a runtime.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::process::ExitCode;
use throng_app::App;

#[tokio::test]
async fn a_program_runs_in_an_async_main() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().to_str().unwrap();
    let code = App::new("nothing").run_with(["nothing", "projection", "list", "--data", data]);
    assert_eq!(code, ExitCode::SUCCESS);
    let code = App::new("nothing").run_with(["nothing", "journal", "verify", "/no/such/place"]);
    assert_eq!(code, ExitCode::FAILURE);
}
