//! `throng new`: the project it writes compiles, is formatted, and passes its own tests.

use super::kit::{assert_refused, throng};
use std::{
    collections::BTreeMap,
    env,
    fmt::Write as _,
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use throng_testing::{Client, until};

/// Empties the shared directory of all runs, so that Cargo recognizes the package.
fn directory() -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("new");
    fs::remove_dir_all(&directory).ok();
    fs::create_dir_all(&directory).unwrap();
    directory
}

fn cargo(project: &Path) -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    // Next to the programs of this build, so that common crates are built once.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    // The crates of this project are built anew. Optimising them takes three times as long as compiling them.
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for entry in fs::read_dir(crates).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        cargo.args(["--config", &format!("profile.dev.package.{name}.opt-level=0")]);
    }
    cargo
        .current_dir(project)
        .env("CARGO_TARGET_DIR", target)
        .env("CARGO_NET_OFFLINE", "true");
    // Removes the variables by which Cargo describes this test's own package. Otherwise build scripts would see them change and run again, and all
    // dependent crates would be compiled again.
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(&*name);
        }
    }
    cargo
}

/// Returns the features of each registry package, by name and version, in a build with these arguments.
fn features(directory: &Path, arguments: &[&str]) -> BTreeMap<(String, String), Vec<String>> {
    let mut tree = cargo(directory);
    tree.args(["tree", "--prefix", "none", "--edges", "normal,build,dev"]);
    let listed = tree.args(["--format", "{p}|{f}"]).args(arguments).output().unwrap();
    assert!(listed.status.success(), "{listed:?}");
    let lines = String::from_utf8(listed.stdout).unwrap();
    let packages = lines.lines().filter_map(|line| {
        let (package, features) = line.split_once('|')?;
        let (name, version) = package.trim_end_matches(" (proc-macro)").split_once(" v")?;
        let features = features.trim_end_matches(" (*)").split(',');
        let features = features.filter(|feature| !feature.is_empty()).map(str::to_owned);
        // A package of a checkout has its directory after its version.
        let is_published = !version.contains(' ');
        is_published.then(|| ((name.to_owned(), version.to_owned()), features.collect()))
    });
    packages.collect()
}

/// Gives the project's packages the features of the surrounding build, if those are more. With fewer features Cargo would compile each package and
/// its dependents anew, which is nearly everything. A separate package requests the features, because a package cannot have a dependency twice.
fn share_packages_of_this_build(project: &Path) {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let built = features(&checkout, &["--workspace"]);
    let mut wanted = "[package]\nname = \"shared\"\nedition = \"2024\"\n".to_owned();
    for (number, ((name, version), few)) in features(project, &["--features", "bench"]).into_iter().enumerate() {
        let Some(all) = built.get(&(name.clone(), version.clone())).filter(|all| **all != few) else {
            continue;
        };
        for table in ["dependencies", "build-dependencies"] {
            writeln!(
                wanted,
                "\n[{table}.shared-{number}]\npackage = \"{name}\"\nversion = \"={version}\"\ndefault-features = false\nfeatures = {all:?}"
            )
            .unwrap();
        }
    }
    let shared = project.join("shared");
    fs::create_dir_all(shared.join("src")).unwrap();
    fs::write(shared.join("src/lib.rs"), "").unwrap();
    fs::write(shared.join("Cargo.toml"), wanted).unwrap();
    let manifest = project.join("Cargo.toml");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(manifest, text + "\n[dependencies.shared]\npath = \"shared\"\n").unwrap();
}

/// Applies the change of the book's first page, whose parts are separated by `@@`.
fn change_as_the_book_says(file: &Path) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/first-service.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, diff) = page.split_once("```diff\n").unwrap();
    let (diff, _) = diff.split_once("```").unwrap();
    let mut text = fs::read_to_string(file).unwrap();
    for part in diff.split("@@\n") {
        let side = |without: char| -> String {
            let lines = part.lines().filter(|line| !line.starts_with(without));
            lines
                .map(|line| format!("{}\n", line.get(1..).unwrap_or_default()))
                .collect()
        };
        let (before, after) = (side('+'), side('-'));
        assert_eq!(text.matches(&before).count(), 1, "{before}");
        text = text.replace(&before, &after);
    }
    fs::write(file, text).unwrap();
}

#[test]
fn services_check_sums_in_release_builds_too() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let is_checked = |manifest: &str, section: &str| {
        let settings = manifest.split(&format!("[profile.release{section}]\n")).nth(1);
        let mut settings = settings
            .unwrap_or_default()
            .lines()
            .take_while(|line| !line.starts_with('['));
        settings.any(|line| line == "overflow-checks = true")
    };
    let workspace = fs::read_to_string(own.join("../../Cargo.toml")).unwrap();
    for app in fs::read_dir(own.join("../../apps")).unwrap() {
        let app = app.unwrap().file_name().into_string().unwrap();
        assert!(is_checked(&workspace, &format!(".package.{app}")), "{app}");
    }
    let template = fs::read_to_string(own.join("src/new/template/manifest.toml")).unwrap();
    assert!(is_checked(&template, ".package.{{name}}"), "a new service");
}

#[test]
fn a_new_service_is_built_tested_and_served_without_the_network() {
    let directory = directory();
    let created = throng()
        .args(["new", "my-wallet"])
        .current_dir(&directory)
        .output()
        .unwrap();
    assert!(created.status.success(), "{created:?}");
    let said = String::from_utf8(created.stdout).unwrap();
    assert!(said.contains("cargo run -- serve"), "{said}");
    let project = directory.join("my-wallet");

    let again = throng()
        .args(["new", "my-wallet"])
        .current_dir(&directory)
        .output()
        .unwrap();
    assert_refused(&again, &["my-wallet is there already"]);

    // Formatted with default settings, because the surrounding project's are not its own.
    let defaults = directory.join("rustfmt.toml");
    fs::write(&defaults, "").unwrap();
    let formatted = cargo(&project)
        .args(["fmt", "--check", "--", "--config-path"])
        .arg(&defaults)
        .output()
        .unwrap();
    assert!(formatted.status.success(), "{formatted:?}");
    change_as_the_book_says(&project.join("src/account.rs"));
    share_packages_of_this_build(&project);
    let tested = cargo(&project).args(["test", "--features", "bench"]).output().unwrap();
    let log = String::from_utf8_lossy(&tested.stdout);
    assert!(tested.status.success(), "{tested:?}");
    for test in [
        "every_deposit_counts_once_whatever_fails",
        "an_account_that_is_emptied_has_nothing_left",
    ] {
        assert!(log.contains(&format!("{test} ... ok")), "{log}");
    }

    let mut child = cargo(&project)
        .args(["run", "--features", "bench", "--", "serve", "--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let address = line.trim().strip_prefix("http://").unwrap().parse().unwrap();
    let mut client = Client::connect(address).unwrap();
    assert_eq!(client.post("/api/account/ann/open", None, "{}").unwrap().status, 200);
    let deposit = client.post("/api/account/ann/deposit", Some("1"), r#"{"cents":500}"#);
    assert_eq!(deposit.unwrap().json()["cents"], 500);
    let emptied = client.post("/api/account/ann/empty", None, "{}");
    assert_eq!(emptied.unwrap().json()["cents"], 0);
    // `cargo run` replaces itself by the program, so this kills the service.
    child.kill().unwrap();
    child.wait().unwrap();
    until("the service has ended", || Client::connect(address).is_err());

    let bench = cargo(&project)
        .args([
            "run",
            "--features",
            "bench",
            "--",
            "bench",
            "load.toml",
            "--durability",
            "os",
        ])
        .args(["--", "--set", "accounts=20", "--set", "rate=50", "--set", "seconds=1"])
        .output()
        .unwrap();
    assert!(bench.status.success(), "{bench:?}");
}

#[test]
fn new_service_has_unit_and_dockerfile_if_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let created = throng()
        .args(["new", "my-wallet", "--systemd", "--docker"])
        .current_dir(directory.path())
        .output()
        .unwrap();
    assert!(created.status.success(), "{created:?}");
    let read = |path: &str| fs::read_to_string(directory.path().join("my-wallet").join(path)).unwrap();
    let unit = read("deploy/my-wallet.service");
    assert!(unit.contains("\nType=notify\n"), "{unit}");
    assert!(
        unit.contains("\nExecStart=/usr/bin/my-wallet serve $SERVE_OPTIONS\n"),
        "{unit}"
    );
    let image = read("Dockerfile");
    assert!(
        image.contains("\nFROM scratch\nCOPY target/release/my-wallet /my-wallet\n"),
        "{image}"
    );
    assert_eq!(read(".dockerignore"), "*\n!target/release/my-wallet\n!deploy/data\n");
    for text in [unit, image, read("deploy/data/.keep")] {
        assert!(!text.contains("{{"), "{text}");
    }
}

#[test]
fn a_directory_without_checkout_is_refused_before_any_write() {
    let directory = tempfile::tempdir().unwrap();
    let refused = throng()
        .args(["new", "wallet", "--throng", "."])
        .current_dir(directory.path())
        .output()
        .unwrap();
    assert_refused(&refused, &["no checkout of Throng", "--throng DIR"]);
    assert!(fs::read_dir(directory.path()).unwrap().next().is_none());
}
