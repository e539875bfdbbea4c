//! Tests of the two files of a trace: what is accepted, the words of each refusal, and that reading and writing agree.

use std::{fs, path::Path};

use proptest::prelude::*;
use registration::trace::{
    DateTime, FILE_BYTES_MAX, NAME_BYTES_MAX, OfferedSection, Operation, Reading, Request, Source, Trace, TraceError,
};

const CAPACITIES: &str = "A HTG 100-1\t30\nC S 142-1\t0\n";
const REQUESTS: &str = "10482213,A HTG 100-1,2026-11-04,00:00:12,A\n";

fn parse(capacities: &str, requests: &str) -> Result<Reading, TraceError> {
    Trace::parse(
        Source {
            name: "capacities.txt",
            text: capacities,
        },
        Source {
            name: "requests.txt",
            text: requests,
        },
    )
}

fn complaint(capacities: &str, requests: &str) -> String {
    parse(capacities, requests).unwrap_err().to_string()
}

fn request(line: &str) -> Request {
    parse(CAPACITIES, line).unwrap().trace.requests.remove(0)
}

#[test]
fn every_field_of_a_line_is_read() {
    let Reading { trace, duplicates } = parse(CAPACITIES, REQUESTS).unwrap();
    let sections = [
        OfferedSection {
            id: "A HTG 100-1".into(),
            capacity: 30,
        },
        OfferedSection {
            id: "C S 142-1".into(),
            capacity: 0,
        },
    ];
    assert_eq!(trace.sections, sections);
    let request = Request {
        student: "10482213".into(),
        section: "A HTG 100-1".into(),
        at: DateTime::new(2026, 11, 4, 0, 0, 12, 0).unwrap(),
        operation: Operation::Add,
    };
    assert_eq!(trace.requests, [request]);
    assert_eq!(duplicates, []);
}

#[test]
fn each_letter_stands_for_its_operation() {
    for (letter, operation) in [
        ("A", Operation::Add),
        ("D", Operation::Drop),
        ("X", Operation::AdministrativeDrop),
    ] {
        assert_eq!(
            request(&format!("1,C S 142-1,2026-11-04,00:00:12,{letter}")).operation,
            operation
        );
        assert_eq!(operation.letter().to_string(), letter);
    }
}

#[test]
fn files_from_other_systems_are_read_alike() {
    let capacities = format!("\u{feff}{}", CAPACITIES.replace('\n', "\r\n"));
    let requests = format!("\u{feff}\r\n{}\r\n", REQUESTS.trim_end());
    assert_eq!(
        parse(&capacities, &requests).unwrap(),
        parse(CAPACITIES, REQUESTS).unwrap()
    );
}

#[test]
fn a_sections_first_line_holds_and_later_ones_are_reported() {
    let Reading { trace, duplicates } =
        parse("C S 142-1\t30\nMATH 110-1\t5\nC S 142-1\t30\nC S 142-1\t7\n", REQUESTS).unwrap();
    assert_eq!(
        trace
            .sections
            .iter()
            .map(|section| section.capacity)
            .collect::<Vec<_>>(),
        [30, 5]
    );
    let reports: Vec<String> = duplicates.iter().map(ToString::to_string).collect();
    assert_eq!(
        reports,
        [
            "line 3 repeats section `C S 142-1` of line 1 (30 seats)",
            "line 4 gives section `C S 142-1` 7 seats, line 1 gave it 30, which hold",
        ]
    );
}

#[test]
fn requests_for_sections_not_offered_are_kept_and_counted() {
    let requests = format!("{REQUESTS}1,MATH 110-1,2026-11-04,00:00:12,A\n");
    let trace = parse(CAPACITIES, &requests).unwrap().trace;
    assert_eq!(trace.requests.len(), 2);
    assert_eq!(trace.requests_unknown(), 1);
}

#[test]
fn a_line_with_a_wrong_field_count_is_named_with_the_layout() {
    assert_eq!(
        complaint("C S 142-1\t30\nC S 142-2 30\n", REQUESTS),
        "capacities.txt, line 2: expected 2 fields as in `section<tab>seats`, found 1; correct the line `C S 142-2 30`"
    );
    assert_eq!(
        complaint(CAPACITIES, "1,C S 142-1,2026-11-04,00:00:12\n"),
        "requests.txt, line 1: expected 5 fields as in `student,section,YYYY-MM-DD,HH:MM:SS,operation`, found 4; correct \
         the line `1,C S 142-1,2026-11-04,00:00:12`"
    );
    assert!(complaint(CAPACITIES, "1,C S 142-1,2026-11-04,00:00:12,A,A\n").contains("found 6;"));
}

#[test]
fn an_unknown_operation_is_named_with_those_that_are_known() {
    assert_eq!(
        complaint(CAPACITIES, &format!("{REQUESTS}1,C S 142-1,2026-11-04,00:00:12,Q\n")),
        "requests.txt, line 2, operation: found `Q`, expected A (add), D (drop) or X (administrative drop); correct the field"
    );
}

#[test]
fn seats_that_are_no_whole_number_are_refused() {
    for seats in ["", "-1", "+1", " 1", "1.5", "many", "4294967296"] {
        let complaint = complaint(&format!("C S 142-1\t{seats}"), REQUESTS);
        let expected =
            format!("capacities.txt, line 1, seats: found `{seats}`, expected a whole number from 0 to 4294967295");
        assert!(complaint.starts_with(&expected), "{complaint}");
    }
    let largest = parse("C S 142-1\t4294967295", REQUESTS).unwrap().trace.sections[0].capacity;
    assert_eq!(largest, u32::MAX);
}

#[test]
fn dates_that_no_calendar_has_are_refused() {
    for date in [
        "2026-02-29",
        "2026-13-01",
        "2026-00-10",
        "2026-1-1",
        "20261104",
        "2026/11/04",
        "+026-11-04",
        "",
    ] {
        let complaint = complaint(CAPACITIES, &format!("1,C S 142-1,{date},00:00:12,A"));
        let expected = format!("requests.txt, line 1, date: found `{date}`, expected a day as YYYY-MM-DD");
        assert!(complaint.starts_with(&expected), "{complaint}");
    }
    assert_eq!(request("1,C S 142-1,2028-02-29,00:00:12,A").at.day(), 29);
}

#[test]
fn times_that_no_clock_shows_are_refused() {
    for time in [
        "24:00:00",
        "23:60:00",
        "23:59:60",
        "0:00:12",
        "00:00",
        "00:00:12:00",
        "00:00:-1",
        "",
    ] {
        let complaint = complaint(CAPACITIES, &format!("1,C S 142-1,2026-11-04,{time},A"));
        let expected = format!("requests.txt, line 1, time: found `{time}`, expected a time of day as HH:MM:SS");
        assert!(complaint.starts_with(&expected), "{complaint}");
    }
    assert_eq!(request("1,C S 142-1,2026-11-04,23:59:59,A").at.second(), 59);
}

#[test]
fn names_are_bounded_and_free_of_control_characters() {
    let longest = "s".repeat(NAME_BYTES_MAX);
    assert_eq!(
        &*request(&format!("{longest},C S 142-1,2026-11-04,00:00:12,A")).student,
        longest
    );
    for (student, quoted) in [("", "``"), ("a\u{7}b", "`a\\u{7}b`"), (&format!("{longest}s"), "…`")] {
        let complaint = complaint(CAPACITIES, &format!("{student},C S 142-1,2026-11-04,00:00:12,A"));
        assert!(
            complaint.starts_with("requests.txt, line 1, student: found "),
            "{complaint}"
        );
        assert!(complaint.contains(quoted), "{complaint}");
    }
    assert!(complaint("C S, 142-1\t3", REQUESTS).starts_with("capacities.txt, line 1, section: found `C S, 142-1`"));
}

#[test]
fn a_request_before_the_one_above_it_is_named_by_its_line() {
    let requests =
        "1,C S 142-1,2026-11-04,00:00:12,A\n2,C S 142-1,2026-11-04,00:00:12,A\n3,C S 142-1,2026-11-03,23:59:59,A\n";
    assert_eq!(
        complaint(CAPACITIES, requests),
        "requests.txt, line 3: 2026-11-03T23:59:59 is before 2026-11-04T00:00:12, the request above it; put the requests \
         in the order they were made"
    );
}

#[test]
fn empty_files_are_refused() {
    assert!(complaint("\n\n", REQUESTS).starts_with("capacities.txt is empty"));
    assert!(complaint(CAPACITIES, "").starts_with("requests.txt is empty"));
}

#[test]
fn a_file_that_cannot_be_read_is_named_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let good = folder.path().join("good.txt");
    fs::write(&good, CAPACITIES).unwrap();
    let missing = folder.path().join("missing.txt");
    for path in [missing.as_path(), folder.path()] {
        for error in [
            Trace::read(path, &good).unwrap_err(),
            Trace::read(&good, path).unwrap_err(),
        ] {
            assert!(
                matches!(&error, TraceError::Unreadable { path: named, .. } if named == path),
                "{error}"
            );
        }
    }
}

#[test]
fn bytes_that_are_not_text_are_named_by_their_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("latin1.txt");
    fs::write(&path, b"A HTG 100-1\t30\nCAF\xc9 1-1\t3\n").unwrap();
    let error = Trace::read(&path, &path).unwrap_err();
    assert!(matches!(error, TraceError::NotText { line: 2, .. }), "{error}");
}

#[test]
fn a_file_that_is_too_large_is_refused_unread() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("huge.txt");
    fs::File::create(&path).unwrap().set_len(FILE_BYTES_MAX + 1).unwrap();
    let error = Trace::read(&path, &path).unwrap_err();
    assert!(matches!(error, TraceError::TooLarge { .. }), "{error}");
}

#[test]
fn a_folder_that_is_not_there_cannot_be_written_to() {
    let trace = parse(CAPACITIES, REQUESTS).unwrap().trace;
    let nowhere = Path::new("no-such-folder/trace.txt");
    let error = trace.write(nowhere, nowhere).unwrap_err();
    assert!(matches!(error, TraceError::Unwritable { .. }), "{error}");
}

/// Makes a valid trace invalid.
type Change = fn(&mut Trace);

#[test]
fn values_the_format_cannot_hold_are_not_written() {
    let good = parse(CAPACITIES, REQUESTS).unwrap().trace;
    let changes: [(&str, Change); 6] = [
        ("section", |trace| trace.sections[1].id = "tab\there".into()),
        ("student", |trace| trace.requests[0].student = "two,names".into()),
        ("section", |trace| trace.requests[0].section = "".into()),
        ("date", |trace| {
            trace.requests[0].at = DateTime::new(-1, 1, 1, 0, 0, 0, 0).unwrap()
        }),
        ("time", |trace| {
            trace.requests[0].at = DateTime::new(2026, 1, 1, 0, 0, 0, 1).unwrap()
        }),
        ("is before", |trace| {
            let mut earlier = trace.requests[0].clone();
            earlier.at = DateTime::new(2026, 1, 1, 0, 0, 0, 0).unwrap();
            trace.requests.push(earlier);
        }),
    ];
    let folder = tempfile::tempdir().unwrap();
    let [capacities, requests] = ["capacities.txt", "requests.txt"].map(|name| folder.path().join(name));
    for (named, change) in changes {
        let mut trace = good.clone();
        change(&mut trace);
        let error = trace.write(&capacities, &requests).unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
        assert!(!capacities.exists() && !requests.exists());
    }
}

#[test]
fn a_trace_written_to_files_is_read_back_equal() {
    let folder = tempfile::tempdir().unwrap();
    let [capacities, requests] = ["capacities.txt", "requests.txt"].map(|name| folder.path().join(name));
    let trace = Trace::registration_day(1);
    trace.write(&capacities, &requests).unwrap();
    let reading = Trace::read(&capacities, &requests).unwrap();
    assert_eq!(reading.duplicates, []);
    assert!(reading.trace == trace);
}

fn name() -> impl Strategy<Value = String> {
    "[^,\\p{Cc}\u{feff}]{1,20}"
}

fn any_trace() -> impl Strategy<Value = Trace> {
    let sections = prop::collection::btree_map(name(), any::<u32>(), 1..20);
    let operation = prop_oneof![
        Just(Operation::Add),
        Just(Operation::Drop),
        Just(Operation::AdministrativeDrop)
    ];
    let at = (0_i16..=9999, 1_i8..=12, 1_i8..=28, 0_i8..24, 0_i8..60, 0_i8..60);
    let request = (name(), name(), at, operation).prop_map(|(student, section, at, operation)| {
        let (year, month, day, hour, minute, second) = at;
        let at = DateTime::new(year, month, day, hour, minute, second, 0).unwrap();
        Request {
            student: student.into(),
            section: section.into(),
            at,
            operation,
        }
    });
    (sections, prop::collection::vec(request, 1..50)).prop_map(|(sections, mut requests)| {
        requests.sort_by_key(|request| request.at);
        let sections = sections
            .into_iter()
            .map(|(id, capacity)| OfferedSection {
                id: id.into(),
                capacity,
            })
            .collect();
        Trace { sections, requests }
    })
}

proptest! {
    #[test]
    fn written_traces_are_read_back_equal(trace in any_trace()) {
        let capacities = trace.capacities_text("capacities").unwrap();
        let requests = trace.requests_text("requests").unwrap();
        let reading = parse(&capacities, &requests).unwrap();
        prop_assert_eq!(reading, Reading { trace, duplicates: Vec::new() });
    }

    #[test]
    fn any_text_is_read_or_refused_without_a_panic(text in "([0-9A-Z,:\t-]|\\PC|\n){0,200}") {
        let _ = parse(&text, REQUESTS);
        let _ = parse(CAPACITIES, &text);
    }
}
