//! `throng client`: generates a client of a service, with its types.

mod document;
mod go;
mod java;
mod python;
mod types;
mod typescript;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use document::Document;
use std::{
    fs,
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

/// A client to write.
#[derive(Debug, Args)]
pub(crate) struct ClientArguments {
    /// The language to write it in.
    #[arg(value_enum, value_name = "LANGUAGE")]
    language: Language,
    /// The service's OpenAPI document; `-` reads it from standard input, as `curl localhost:8080/openapi.json` writes it.
    #[arg(long, value_name = "FILE")]
    from: PathBuf,
    /// The directory to write it to. Files of the same names are replaced.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Language {
    Typescript,
    Python,
    Go,
    Java,
}

macro_rules! runtime {
    ($root:literal: $($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../../../clients/", $root, $name)))),*]
    };
}

/// The files of the runtime: path below the directory, and text.
type Runtime = &'static [(&'static str, &'static str)];
const TYPESCRIPT: Runtime = runtime!("typescript/src/": "throng.ts" "json.ts" "retry.ts" "socket.ts");
const PYTHON: Runtime = runtime!(
    "python/src/": "throng_client/__init__.py" "throng_client/client.py" "throng_client/retry.py" "throng_client/socket.py" "throng_client/py.typed"
);

const JAVA: Runtime = runtime!(
    "java/src/throng/client/": "Choice.java" "Client.java" "Event.java" "EventStream.java" "Failure.java" "Inbox.java" "Json.java" "Link.java"
    "Options.java" "Retry.java" "Settings.java" "Socket.java"
);
const GO: Runtime = runtime!("go/": "client.go" "json.go" "retry.go" "socket.go");

/// Writes the types of the document and the runtime they need.
pub(crate) fn run(arguments: &ClientArguments) -> anyhow::Result<ExitCode> {
    let ClientArguments { language, from, out } = arguments;
    let text = match from.as_os_str() == "-" {
        true => {
            let mut text = String::new();
            let read = std::io::stdin().read_to_string(&mut text);
            read.map(|_| text).context("cannot read standard input")?
        }
        false => fs::read_to_string(from).with_context(|| format!("cannot read {}", from.display()))?,
    };
    let reserved = match language {
        Language::Typescript | Language::Python => "",
        Language::Go => go::RESERVED,
        Language::Java => java::RESERVED,
    };
    let document = Document::read(&text, reserved)
        .with_context(|| format!("{} is no OpenAPI document of a service on Throng", from.display()))?;
    let module = document.module();
    // The directory of the runtime, the runtime, and the service's own file.
    let (below, runtime, own, types) = match language {
        Language::Typescript => ("", TYPESCRIPT, format!("{module}.ts"), typescript::write(&document)),
        Language::Python => ("", PYTHON, format!("{module}.py"), python::write(&document)),
        Language::Go => {
            let types = go::write(&document, &go::import_path(out)?);
            ("throng", GO, format!("{module}/{module}.go"), types)
        }
        Language::Java => {
            let own = format!("{module}/{}.java", document.service);
            ("throng/client", JAVA, own, java::write(&document))
        }
    };
    let mut said = String::new();
    let runtime = runtime.iter().map(|(name, text)| (out.join(below).join(name), *text));
    for (path, text) in runtime.chain([(out.join(own), types.as_str())]) {
        write(&path, text)?;
        said += &format!("{}\n", path.display());
    }
    // A reader that went away (`| head`) is no error of ours.
    let _ = std::io::stdout().write_all(said.as_bytes());
    Ok(ExitCode::SUCCESS)
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    }
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
