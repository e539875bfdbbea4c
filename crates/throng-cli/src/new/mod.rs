//! `throng new`: creates a project with a service of your own.

use anyhow::{Context as _, ensure};
use clap::Args;
use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Arguments of `throng new`.
#[derive(Debug, Args)]
pub(crate) struct NewArguments {
    /// The name of the directory, the package and the program.
    #[arg(value_name = "NAME", value_parser = name)]
    name: String,
    /// The name of its entity, such as `order`: of the type, the module and the routes.
    #[arg(long, value_name = "ENTITY", default_value = ENTITY, value_parser = entity)]
    entity: String,
    /// The checkout of Throng that it builds against [default: the one this program was built from; where that is not there, the published crates of
    /// this program's version].
    #[arg(long, value_name = "DIR")]
    throng: Option<PathBuf>,
    /// Adds a hardened unit of systemd, in deploy/.
    #[arg(long)]
    systemd: bool,
    /// Adds a Dockerfile for an image of the program alone.
    #[arg(long)]
    docker: bool,
}

/// The entity of the template.
const ENTITY: &str = "account";

/// The files of a new project: path and text. Both contain `{{name}}`, `{{crate}}`, `{{throng-app}}` and `{{throng-sim}}`, which are
/// replaced.
const FILES: &[(&str, &str)] = &[
    ("Cargo.toml", include_str!("template/manifest.toml")),
    (".gitignore", include_str!("template/gitignore")),
    ("README.md", include_str!("template/README.md")),
    ("load.toml", include_str!("template/load.toml")),
    ("src/main.rs", include_str!("template/src/main.rs")),
    ("src/lib.rs", include_str!("template/src/lib.rs")),
    ("src/account.rs", include_str!("template/src/account.rs")),
    ("tests/simulation.rs", include_str!("template/tests/simulation.rs")),
];

/// Further files, of `--systemd`.
const SYSTEMD: &[(&str, &str)] = &[("deploy/{{name}}.service", include_str!("template/deploy/service.unit"))];

/// The additional files of `--docker`. The directory of the image's volume has a file, since Git stores no empty directories.
const DOCKER: &[(&str, &str)] = &[
    ("Dockerfile", include_str!("template/deploy/Dockerfile")),
    (".dockerignore", include_str!("template/deploy/dockerignore")),
    ("deploy/data/.keep", ""),
];

/// The checkout from which this program was built, if it still exists.
const OWN_CHECKOUT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The lock file with which this program was built and tested.
const OWN_LOCK: &str = include_str!("../../../../Cargo.lock");

/// A source of Throng's crates for a project.
enum Origin {
    Checkout(PathBuf),
    /// Published, of this program's version.
    Release,
}

impl Origin {
    /// Returns the named checkout, or this program's own if that still exists.
    fn find(named: Option<&Path>) -> anyhow::Result<Self> {
        match named {
            Some(named) => checkout(named).map(Self::Checkout),
            None => Ok(checkout(OWN_CHECKOUT.as_ref()).map_or(Self::Release, Self::Checkout)),
        }
    }

    /// Returns a dependency on a crate, as a line of a manifest.
    fn dependency(&self, name: &str) -> String {
        match self {
            Self::Checkout(directory) => format!("{{ path = \"{}/crates/{name}\" }}", directory.display()),
            Self::Release => format!("\"{}\"", env!("CARGO_PKG_VERSION")),
        }
    }

    /// Returns a lock file with the versions that Throng was tested with. They are in Cargo's cache where Throng was built. Entries of
    /// published Throng crates have no checksum; Cargo adds it with the first build.
    fn lock(&self) -> anyhow::Result<String> {
        match self {
            Self::Checkout(directory) => {
                let lock = directory.join("Cargo.lock");
                fs::read_to_string(&lock).with_context(|| format!("cannot read {}", lock.display()))
            }
            Self::Release => Ok(OWN_LOCK.to_owned()),
        }
    }
}

/// Words that Rust keeps for itself: none of them is a crate's name.
const KEYWORDS: &[&str] = &[
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do", "dyn", "else",
    "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro", "match", "mod",
    "move", "mut", "override", "priv", "pub", "ref", "return", "self", "static", "struct", "super", "trait", "true",
    "try", "type", "typeof", "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];

/// Directory names that Cargo uses in a build: no program can be built under them.
const BUILD_DIRECTORIES: &[&str] = &["build", "deps", "examples", "incremental"];

/// Parses the project's name. Cargo must accept it as a package, and it must be easy to type as a program.
fn name(text: &str) -> Result<String, String> {
    let is_name = text.starts_with(|first: char| first.is_ascii_lowercase())
        && text.len() <= 64
        && text
            .chars()
            .all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-')
        && !text.ends_with('-');
    match text {
        "test" | "core" | "std" | "alloc" | "proc-macro" => Err(taken(text)),
        _ if BUILD_DIRECTORIES.contains(&text) => Err(format!(
            "{text} is a directory of Cargo's own, and no program can be called so"
        )),
        _ if KEYWORDS.contains(&text) => Err(format!("{text} is a keyword of Rust, and no crate can be called so")),
        _ if is_name => Ok(text.to_owned()),
        _ => Err("a name begins with one of a to z and has up to 64 of a-z, 0-9 and -".into()),
    }
}

/// Words that already have a meaning in the template, in its libraries or in the routes.
const OTHER_NAMES: &[&str] = &[
    "alloc",
    "answer",
    "app",
    "balance",
    "box",
    "command",
    "core",
    "default",
    "entity",
    "err",
    "error",
    "event",
    "faults",
    "lib",
    "main",
    "moment",
    "none",
    "ok",
    "option",
    "query",
    "rejection",
    "result",
    "schemars",
    "serde",
    "simulation",
    "some",
    "std",
    "string",
    "subject",
    "thiserror",
    "turn",
    "vec",
    "view",
    "ws",
];

/// A word that is a type, a module and a kind.
fn entity(text: &str) -> Result<String, String> {
    let is_word = !text.is_empty() && text.len() <= 32 && text.bytes().all(|letter| letter.is_ascii_lowercase());
    match text {
        _ if KEYWORDS.contains(&text) || OTHER_NAMES.contains(&text) => {
            Err(format!("{text} names something else already; choose another word"))
        }
        _ if is_word => Ok(text.to_owned()),
        _ => Err("an entity is one word of up to 32 of a-z, such as order".into()),
    }
}

/// Puts the entity's name into a text of the template, and sorts its imports again.
fn speak_of(entity: &str, text: &str) -> String {
    let (first, rest) = entity.split_at(1);
    let article = if "aeiou".contains(first) { "an" } else { "a" };
    let of_type = first.to_uppercase() + rest;
    let mut said = text.to_owned();
    for separator in [" ", "_"] {
        said = said.replace(
            &format!("an{separator}{ENTITY}"),
            &format!("{article}{separator}{entity}"),
        );
    }
    let capital = article.replacen('a', "A", 1);
    said = said.replace("An account", &format!("{capital} {entity}"));
    said = said.replace("Account", &of_type).replace(ENTITY, entity);
    let lines = said.split_inclusive('\n').map(|line| {
        let imports = line.strip_prefix("use ").and_then(|line| line.split_once("::{"));
        let Some((path, (names, end))) = imports.and_then(|(path, names)| Some((path, names.split_once('}')?))) else {
            return line.to_owned();
        };
        let mut names: Vec<&str> = names.split(", ").collect();
        names.sort_unstable();
        format!("use {path}::{{{}}}{end}", names.join(", "))
    });
    lines.collect()
}

fn taken(name: &str) -> String {
    format!("{name} is taken by a crate or a program; choose another name")
}

/// Tells whether a crate of the lock file has this name, since two crates of one name cannot be built together. Throng's own programs do
/// not count.
fn is_locked(lock: &str, name: &str) -> bool {
    let mut packages = lock.split("[[package]]");
    packages.any(|package| {
        let mut lines = package.lines();
        let found = lines.find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
        let is_same = found.is_some_and(|found| found.replace('_', "-") == name);
        is_same && (name.starts_with("throng") || lines.any(|line| line.starts_with("source = ")))
    })
}

/// Writes the project into a new directory of its name.
pub(crate) fn run(arguments: &NewArguments) -> anyhow::Result<ExitCode> {
    let name = &arguments.name;
    let origin = Origin::find(arguments.throng.as_deref())?;
    let project = Path::new(name);
    ensure!(
        !project.exists(),
        "{name} is there already; choose another name, or another directory to begin it in"
    );
    let lock = origin.lock()?;
    ensure!(!is_locked(&lock, name), taken(name));
    let fill = |text: &str| {
        speak_of(&arguments.entity, text)
            .replace("{{name}}", name)
            .replace("{{crate}}", &name.replace('-', "_"))
            .replace("{{throng-app}}", &origin.dependency("throng-app"))
            .replace("{{throng-sim}}", &origin.dependency("throng-sim"))
    };
    let systemd = SYSTEMD.iter().filter(|_| arguments.systemd);
    let docker = DOCKER.iter().filter(|_| arguments.docker);
    for (path, text) in FILES.iter().chain(systemd).chain(docker) {
        write(&project.join(fill(path)), fill(text).as_bytes())?;
    }
    write(&project.join("Cargo.lock"), lock.as_bytes())?;
    let entity = &arguments.entity;
    let said = format!(
        "{name} is begun. Next:\n\n  cd {name}\n  cargo test           # the {entity} alone, and the service in simulated worlds\n  cargo run -- serve   # http://127.0.0.1:8080/docs\n\nREADME.md says the rest.\n"
    );
    // A reader that went away (`| head`) is no error of ours.
    let _ = std::io::stdout().write_all(said.as_bytes());
    Ok(ExitCode::SUCCESS)
}

/// The checkout's full path.
fn checkout(directory: &Path) -> anyhow::Result<PathBuf> {
    ensure!(
        directory.join("crates/throng-app/Cargo.toml").is_file(),
        "{} is no checkout of Throng: say where there is one, with --throng DIR",
        directory.display()
    );
    fs::canonicalize(directory).with_context(|| format!("cannot find {}", directory.display()))
}

fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    }
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_that_cargo_and_a_shell_take() {
        for good in ["wallet", "my-wallet", "w2"] {
            assert_eq!(name(good).as_deref(), Ok(good));
        }
        for bad in ["", "Wallet", "2w", "a b", "a/b", "-x", "x-", "test", &"x".repeat(65)] {
            assert!(name(bad).is_err(), "{bad}");
        }
        for directory in ["build", "deps", "examples", "incremental"] {
            assert!(name(directory).unwrap_err().contains("Cargo's own"), "{directory}");
        }
        for keyword in ["async", "self", "type", "gen"] {
            assert!(name(keyword).unwrap_err().contains("keyword"), "{keyword}");
        }
    }

    #[test]
    fn template_speaks_of_the_entity_that_was_named() {
        for (path, text) in FILES.iter().chain(SYSTEMD).chain(DOCKER) {
            assert_eq!(speak_of(ENTITY, text), *text, "{path}");
            let said = speak_of("ticket", text);
            assert!(
                !said.to_lowercase().contains("account") && !said.contains("an ticket"),
                "{path}: {said}"
            );
        }
        let text = "/// An account; an_account_is\nuse x::{Account, Balance, GetAccount};\n";
        let expected = "/// A ticket; a_ticket_is\nuse x::{Balance, GetTicket, Ticket};\n";
        assert_eq!(speak_of("ticket", text), expected);
        for wrong in ["", "Order", "seat map", "self", "view", "main"] {
            assert!(entity(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn project_compiles_its_own_crate_without_optimisation() {
        let (_, manifest) = FILES[0];
        assert!(manifest.contains("[profile.dev]\nopt-level = 0\n"), "{manifest}");
    }

    #[test]
    fn names_of_crates_that_a_project_is_built_with_are_taken() {
        for crate_name in ["serde", "throng", "throng-app", "proc-macro2", "serde-json", "tokio"] {
            assert!(is_locked(OWN_LOCK, crate_name), "{crate_name}");
        }
        for free in ["wallet", "bank"] {
            assert!(!is_locked(OWN_LOCK, free), "{free}");
        }
    }

    #[test]
    fn release_names_its_version_and_checkout_its_path() {
        let own = env!("CARGO_PKG_VERSION");
        assert_eq!(Origin::Release.dependency("throng-app"), format!("\"{own}\""));
        let checkout = Origin::Checkout("/src/throng".into());
        assert_eq!(
            checkout.dependency("throng-sim"),
            r#"{ path = "/src/throng/crates/throng-sim" }"#
        );
    }
}
