//! Reads a [`Trace`] from its two files.

use std::{
    collections::{HashMap, hash_map::Entry},
    fmt,
    fs::File,
    io::{self, Read as _},
    path::Path,
    sync::Arc,
};

use jiff::civil::{Date, DateTime, Time};

use super::{
    FILE_BYTES_MAX, OfferedSection, Operation, Request, Trace, TraceError,
    line::{digits, lines},
};

const CAPACITIES_LAYOUT: &str = "section<tab>seats";
const REQUESTS_LAYOUT: &str = "student,section,YYYY-MM-DD,HH:MM:SS,operation";
pub(super) const DATE: &str = "a day as YYYY-MM-DD";

/// The text of a file, and its name in errors.
#[derive(Clone, Copy, Debug)]
pub struct Source<'text> {
    /// The name, usually the path.
    pub name: &'text str,
    /// The text: lines of fields.
    pub text: &'text str,
}

/// A trace that was read, with findings about its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The trace in the files.
    pub trace: Trace,
    /// The ignored lines of the capacities, in the order of the file.
    pub duplicates: Vec<DuplicateSection>,
}

/// A line of the capacities whose section occurs in an earlier line. The earlier line counts.
///
/// Its `Display` is a sentence for the user who gave the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DuplicateSection {
    /// The id of the section.
    pub section: Arc<str>,
    /// The ignored line, from 1.
    pub line: usize,
    /// The seats in the ignored line.
    pub capacity: u32,
    /// The earlier line, which counts.
    pub line_kept: usize,
    /// The seats in the earlier line.
    pub capacity_kept: u32,
}

impl fmt::Display for DuplicateSection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            section,
            line,
            capacity,
            line_kept,
            capacity_kept,
        } = self;
        if capacity == capacity_kept {
            return write!(
                formatter,
                "line {line} repeats section `{section}` of line {line_kept} ({capacity} seats)"
            );
        }
        write!(
            formatter,
            "line {line} gives section `{section}` {capacity} seats, line {line_kept} gave it {capacity_kept}, which hold"
        )
    }
}

impl Trace {
    /// Reads a trace from its two files (see the [module](super) for the format).
    ///
    /// # Errors
    ///
    /// A [`TraceError`] with the file, and the line and the field if they apply.
    pub fn read(capacities: &Path, requests: &Path) -> Result<Reading, TraceError> {
        let capacities_text = read_text(capacities)?;
        let requests_text = read_text(requests)?;
        Self::parse(
            Source {
                name: &capacities.display().to_string(),
                text: &capacities_text,
            },
            Source {
                name: &requests.display().to_string(),
                text: &requests_text,
            },
        )
    }

    /// Parses a trace from the texts of its two files.
    ///
    /// # Errors
    ///
    /// The errors of [`Trace::read`], except those of the file system.
    pub fn parse(capacities: Source<'_>, requests: Source<'_>) -> Result<Reading, TraceError> {
        let (sections, duplicates) = parse_capacities(capacities)?;
        let requests = parse_requests(requests, &sections)?;
        Ok(Reading {
            trace: Self { sections, requests },
            duplicates,
        })
    }
}

fn read_text(path: &Path) -> Result<String, TraceError> {
    let unreadable = |source: io::Error| TraceError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let file = path.display().to_string();
    let opened = File::open(path).map_err(unreadable)?;
    let length = opened.metadata().map_err(unreadable)?.len();
    let mut bytes = Vec::new();
    if length <= FILE_BYTES_MAX {
        // Pipes and devices report a length of 0 and may be endless.
        opened
            .take(FILE_BYTES_MAX + 1)
            .read_to_end(&mut bytes)
            .map_err(unreadable)?;
    }
    if length.max(bytes.len() as u64) > FILE_BYTES_MAX {
        return Err(TraceError::TooLarge { file });
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        TraceError::NotText {
            file,
            line: 1 + good.iter().filter(|byte| **byte == b'\n').count(),
        }
    })
}

fn parse_capacities(source: Source<'_>) -> Result<(Vec<OfferedSection>, Vec<DuplicateSection>), TraceError> {
    let mut sections: Vec<OfferedSection> = Vec::new();
    let mut duplicates = Vec::new();
    let mut first_lines: HashMap<Arc<str>, (usize, usize)> = HashMap::new();
    for line in lines(source.name, source.text) {
        let [id, seats] = line.fields('\t', CAPACITIES_LAYOUT)?;
        let id: Arc<str> = line.name("section", id)?.into();
        let capacity = digits(seats)
            .and_then(|seats| seats.parse().ok())
            .ok_or_else(|| line.wrong("seats", seats, "a whole number from 0 to 4294967295"))?;
        match first_lines.entry(id) {
            Entry::Vacant(vacant) => {
                sections.push(OfferedSection {
                    id: vacant.key().clone(),
                    capacity,
                });
                vacant.insert((line.number, sections.len() - 1));
            }
            Entry::Occupied(first) => {
                let (line_kept, index) = *first.get();
                duplicates.push(DuplicateSection {
                    section: first.key().clone(),
                    line: line.number,
                    capacity,
                    line_kept,
                    capacity_kept: sections[index].capacity,
                });
            }
        }
    }
    if sections.is_empty() {
        return Err(TraceError::Empty {
            file: source.name.to_owned(),
            layout: CAPACITIES_LAYOUT,
        });
    }
    Ok((sections, duplicates))
}

fn parse_requests(source: Source<'_>, sections: &[OfferedSection]) -> Result<Vec<Request>, TraceError> {
    let mut requests: Vec<Request> = Vec::new();
    let mut students: HashMap<&str, Arc<str>> = HashMap::new();
    let mut section_ids: HashMap<&str, Arc<str>> = sections
        .iter()
        .map(|section| (&*section.id, section.id.clone()))
        .collect();
    for line in lines(source.name, source.text) {
        let [student, section, date, time, operation] = line.fields(',', REQUESTS_LAYOUT)?;
        let student = line.name("student", student)?;
        let section = line.name("section", section)?;
        let date = parse_date(date).ok_or_else(|| line.wrong("date", date, DATE))?;
        let time = parse_time(time).ok_or_else(|| line.wrong("time", time, "a time of day as HH:MM:SS"))?;
        let operation = parse_operation(operation)
            .ok_or_else(|| line.wrong("operation", operation, "A (add), D (drop) or X (administrative drop)"))?;
        let at = DateTime::from_parts(date, time);
        if let Some(previous) = requests
            .last()
            .map(|request| request.at)
            .filter(|previous| at < *previous)
        {
            return Err(TraceError::OutOfOrder {
                file: source.name.to_owned(),
                line: line.number,
                at,
                previous,
            });
        }
        requests.push(Request {
            student: students.entry(student).or_insert_with(|| student.into()).clone(),
            section: section_ids.entry(section).or_insert_with(|| section.into()).clone(),
            at,
            operation,
        });
    }
    if requests.is_empty() {
        return Err(TraceError::Empty {
            file: source.name.to_owned(),
            layout: REQUESTS_LAYOUT,
        });
    }
    Ok(requests)
}

/// Parses three numbers of exactly these widths between separators. ISO 8601 parsers would accept more forms.
fn numbers(text: &str, separator: char, widths: [usize; 3]) -> Option<[i16; 3]> {
    let mut fields = text.split(separator);
    let mut numbers = [0; 3];
    for (number, width) in numbers.iter_mut().zip(widths) {
        *number = digits(fields.next()?)
            .filter(|field| field.len() == width)?
            .parse()
            .ok()?;
    }
    fields.next().is_none().then_some(numbers)
}

fn parse_date(text: &str) -> Option<Date> {
    let [year, month, day] = numbers(text, '-', [4, 2, 2])?;
    Date::new(year, month.try_into().ok()?, day.try_into().ok()?).ok()
}

fn parse_time(text: &str) -> Option<Time> {
    let [hour, minute, second] = numbers(text, ':', [2, 2, 2])?;
    Time::new(
        hour.try_into().ok()?,
        minute.try_into().ok()?,
        second.try_into().ok()?,
        0,
    )
    .ok()
}

fn parse_operation(text: &str) -> Option<Operation> {
    match text {
        "A" => Some(Operation::Add),
        "D" => Some(Operation::Drop),
        "X" => Some(Operation::AdministrativeDrop),
        _ => None,
    }
}
