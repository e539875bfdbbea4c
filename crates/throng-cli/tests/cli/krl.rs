//! Rulesets are checked, formatted and tried by the program, as a person does.

use super::kit::{assert_refused, run};
use std::fs;

const SOURCE: &str = "ruleset hello{rule greet{select when say hello send_directive(\"hi\")}}\n";

#[test]
fn a_ruleset_is_checked_formatted_and_tried_out() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("hello.krl").display().to_string();
    fs::write(&file, SOURCE).unwrap();
    fs::write(
        directory.path().join("hello.test"),
        "event say:hello\n    directive hi\n",
    )
    .unwrap();

    let checked = run(&["krl", "check", &file]);
    assert!(String::from_utf8_lossy(&checked.stdout).contains("the ruleset hello is sound"));
    assert_refused(&run(&["krl", "format", "--check", &file]), &["1 of 1 rulesets failed"]);
    assert!(run(&["krl", "format", &file]).status.success());
    assert!(run(&["krl", "format", "--check", &file]).status.success());
    let tested = run(&["krl", "test", &file]);
    assert!(String::from_utf8_lossy(&tested.stdout).contains("1 steps, all as expected"));

    fs::write(
        directory.path().join("hello.test"),
        "event say:hello\n    directive ho\n",
    )
    .unwrap();
    let tested = run(&["krl", "test", &file]);
    let said = String::from_utf8_lossy(&tested.stderr);
    assert!(
        !tested.status.success() && said.contains("line 1: expected directive ho {}, found directive hi {}"),
        "{said}"
    );
}

#[test]
fn errors_of_a_ruleset_have_their_place() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("bad.krl").display().to_string();
    fs::write(&file, "ruleset bad { rule a { select when a b x() } }").unwrap();
    let checked = run(&["krl", "check", &file]);
    let said = String::from_utf8_lossy(&checked.stderr);
    assert!(
        !checked.status.success() && said.contains("bad.krl: line 1, column 40: Undefined id: x"),
        "{said}"
    );
}
