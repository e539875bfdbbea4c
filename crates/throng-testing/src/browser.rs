//! A page in a real browser.

use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// A browser. Dropping this closes it.
#[derive(Debug)]
pub struct Browser {
    child: Child,
    _profile: TempDir,
}

impl Drop for Browser {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Opens a page in headless Chromium: the program that `CHROMIUM` names, or `chromium`, with a profile of its own.
///
/// # Panics
/// The browser cannot be started. The message tells what to install or set.
#[must_use]
pub fn browse(url: &str) -> Browser {
    let browser = std::env::var("CHROMIUM").unwrap_or_else(|_| "chromium".into());
    let begun = tempfile::tempdir().and_then(|profile| {
        let mut command = Command::new(&browser);
        command
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--disable-background-networking",
                "--remote-debugging-port=0",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(url)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Ok((command.spawn()?, profile))
    });
    match begun {
        Ok((child, profile)) => Browser {
            child,
            _profile: profile,
        },
        Err(error) => {
            panic!("`{browser}` cannot be started ({error}): install chromium, or set CHROMIUM or THRONG_NO_BROWSER")
        }
    }
}
