//! Tests of the language by rulesets: each file `NAME.krl` in `rulesets/`, with the script `NAME.test` beside it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use throng_krl::testing::{Pico, Script};
use throng_krl::{Program, compile, parse};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rulesets")
}

fn load(path: &Path) -> Program {
    let source = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let ruleset = parse(&source).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    compile(&ruleset).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn every_ruleset_meets_the_expectations_of_its_script() {
    let mut scripts = 0;
    let mut wrong = Vec::new();
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "test") {
            continue;
        }
        scripts += 1;
        let script = Script::parse(&fs::read_to_string(&path).unwrap());
        let script = script.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut pico = Pico::default();
        pico.install(load(&path.with_extension("krl")));
        for (file, is_installed) in script.files() {
            let program = load(&folder().join(file));
            if is_installed {
                pico.install(program);
            } else {
                pico.offer(Arc::new(program));
            }
        }
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        wrong.extend(
            script
                .run(&mut pico)
                .into_iter()
                .map(|mismatch| format!("{name}, {mismatch}")),
        );
    }
    assert!(scripts > 0);
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
