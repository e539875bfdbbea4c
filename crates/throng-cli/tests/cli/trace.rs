//! `throng trace`, and the program's errors about unusable files.

use super::kit::{assert_refused, run, small_trace};
use registration::trace::{Shape, Trace};
use std::{fs, path::Path};

#[test]
fn a_generated_trace_is_read_back_with_its_shape() {
    let directory = tempfile::tempdir().unwrap();
    let (capacities, requests) = small_trace(directory.path());
    let reading = Trace::read(Path::new(&capacities), Path::new(&requests)).unwrap();
    assert_eq!(reading.trace.shape(), Shape::one_in(60));
    assert_eq!(reading.duplicates, []);
}

#[test]
fn a_seed_decides_the_trace() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, seed: &str| {
        let file = |kind: &str| directory.path().join(format!("{name}-{kind}")).display().to_string();
        let (capacities, requests) = (file("c"), file("r"));
        let generated = run(&[
            "trace",
            "generate",
            "--one-in",
            "60",
            "--seed",
            seed,
            "--capacities",
            &capacities,
            "--requests",
            &requests,
        ]);
        assert!(generated.status.success());
        fs::read_to_string(requests).unwrap()
    };
    assert_eq!(write("one", "7"), write("two", "7"));
    assert_ne!(write("one", "7"), write("three", "8"));
}

#[test]
fn unusable_files_are_named_with_line_and_field() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data").display().to_string();
    let (capacities, requests) = small_trace(directory.path());
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name).display().to_string();
        fs::write(&path, text).unwrap();
        path
    };
    let letter = file(
        "letter.txt",
        "1,C S 142-1,2026-11-04,00:00:12,A\n1,C S 142-1,2026-11-04,00:00:13,Q\n",
    );
    let fields = file("fields.txt", "1,C S 142-1,2026-11-04\n");
    let seats = file("seats.txt", "C S 142-1\tmany\n");
    for (capacities, requests, parts) in [
        (&*capacities, "/no/such/file", &["/no/such/file", "check the path"][..]),
        (
            &capacities,
            &letter,
            &["letter.txt, line 2, operation", "`Q`", "A (add), D (drop)"],
        ),
        (&capacities, &fields, &["fields.txt, line 1", "5 fields", "found 3"]),
        (&seats, &requests, &["seats.txt, line 1, seats", "`many`"]),
    ] {
        let output = run(&[
            "demo",
            "--exit",
            "--data",
            &data,
            "--capacities",
            capacities,
            "--requests",
            requests,
        ]);
        assert_refused(&output, parts);
    }
    assert!(!Path::new(&data).exists(), "nothing was begun");
}

#[test]
fn a_trace_that_cannot_be_written_is_refused() {
    let output = run(&[
        "trace",
        "generate",
        "--one-in",
        "60",
        "--capacities",
        "/no/such/c",
        "--requests",
        "/no/such/r",
    ]);
    assert_refused(&output, &["/no/such/c", "cannot write"]);
}
