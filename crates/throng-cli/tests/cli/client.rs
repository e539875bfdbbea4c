//! `throng client`: types and a runtime from the document of a running service.

use super::kit::{Served, assert_refused, run};
use std::{fs, path::Path};

/// Writes a client for the demo's service. Returns its directory and the text of its types.
fn written(language: &str, types: &str) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(&directory.path().join("data"), &[]);
    let document = served.client().get("/openapi.json").unwrap().body;
    let (from, out) = (directory.path().join("openapi.json"), directory.path().join("out"));
    fs::write(&from, document).unwrap();
    fs::write(directory.path().join("go.mod"), "module example.com/own\n").unwrap();
    let [from, to] = [&from, &out].map(|path| path.display().to_string());
    let output = run(&["client", language, "--from", &from, "--out", &to]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let types = fs::read_to_string(out.join(types)).unwrap();
    (directory, types)
}

/// Checks that the text contains these lines in this order.
fn assert_lines(text: &str, lines: &[&str]) {
    let mut found = text.lines().map(str::trim);
    for line in lines {
        assert!(found.any(|found| found == *line), "{line}\n{text}");
    }
}

#[test]
fn typescript_client_has_the_types_of_the_service() {
    let (directory, types) = written("typescript", "registration.ts");
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/typescript/src/throng.ts");
    let runtime = fs::read(directory.path().join("out/throng.ts")).unwrap();
    assert!(runtime == fs::read(own).unwrap());
    assert_lines(
        &types,
        &[
            "export interface Registration {",
            "\"section\": {",
            "commands: {",
            "\"add\": {",
            "\"student\": string",
            "rejection: SectionRejection",
        ],
    );
}

#[test]
fn python_client_has_a_method_for_each_command() {
    let (directory, types) = written("python", "registration.py");
    assert!(directory.path().join("out/throng_client/py.typed").exists());
    assert_lines(
        &types,
        &[
            "SectionAdd = t.TypedDict(\"SectionAdd\", {",
            "class Registration(throng.Client):",
            "reply: \"SectionReply\" = self.command(\"section\", id, \"add\", body, **options)",
        ],
    );
}

#[test]
fn go_client_is_in_the_module_of_its_directory() {
    let (directory, types) = written("go", "registration/registration.go");
    assert!(directory.path().join("out/throng/client.go").exists());
    assert_lines(
        &types,
        &[
            "\"example.com/own/out/throng\"",
            "ChangeAlreadyPresent Change = \"already-present\"",
            "Capacity *uint32 `json:\"capacity,omitempty\"`",
            "return throng.As[SectionReply](service.Command(ctx, \"section\", id, \"add\", body, options...))",
        ],
    );
}

#[test]
fn go_client_outside_of_a_module_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let from = directory.path().join("own.json");
    fs::write(
        &from,
        r#"{"info":{"title":"own"},"paths":{"/api/a/{id}":{"get":{"operationId":"a"}}}}"#,
    )
    .unwrap();
    let [from, to] = [from, directory.path().join("out")].map(|path| path.display().to_string());
    let output = run(&["client", "go", "--from", &from, "--out", &to]);
    assert_refused(&output, &["is in no Go module", "go mod init"]);
}

#[test]
fn java_client_has_records_and_sealed_choices() {
    let (directory, types) = written("java", "registration/Registration.java");
    assert!(directory.path().join("out/throng/client/Client.java").exists());
    assert_lines(
        &types,
        &[
            "public SectionReply sectionAdd(String id, SectionAdd body) {",
            "@SerializedName(\"already-present\")",
            "ALREADY_PRESENT,",
            "public record SectionAdd(String student) {}",
            "public sealed interface SectionEvent extends Choice {",
        ],
    );
}

#[test]
fn other_documents_are_refused_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let from = directory.path().join("pets.json");
    fs::write(&from, r#"{"info":{"title":"Pets"},"paths":{"/pets":{}}}"#).unwrap();
    let [from, to] = [from, directory.path().join("out")].map(|path| path.display().to_string());
    let output = run(&["client", "python", "--from", &from, "--out", &to]);
    assert_refused(&output, &["pets.json", "no OpenAPI document of a service on Throng"]);
}
