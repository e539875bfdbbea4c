//! Writes a [`Trace`] to its two files.

use std::{fmt::Write as _, fs, path::Path};

use super::{
    Trace, TraceError,
    line::{NAME, is_name, wrong_field},
    read::DATE,
};

impl Trace {
    /// Writes the trace to its two files, and replaces their contents (see the [module](super) for the format).
    ///
    /// [`Trace::read`] returns an equal trace, if the sections are distinct and neither list is empty.
    ///
    /// # Errors
    ///
    /// - [`TraceError::Unwritable`]: the file system refuses.
    /// - [`TraceError::Field`] and [`TraceError::OutOfOrder`]: the format cannot express the trace (a comma in a name, a fraction of a second,
    ///   requests out
    ///   of time order). Nothing is written then.
    pub fn write(&self, capacities: &Path, requests: &Path) -> Result<(), TraceError> {
        let texts = [
            (capacities, self.capacities_text(&capacities.display().to_string())?),
            (requests, self.requests_text(&requests.display().to_string())?),
        ];
        for (path, text) in texts {
            fs::write(path, text).map_err(|source| TraceError::Unwritable {
                path: path.to_owned(),
                source,
            })?;
        }
        Ok(())
    }

    /// Returns the text of the capacities file. Errors call it `name`.
    ///
    /// # Errors
    ///
    /// [`TraceError::Field`]: the format cannot express the name of a section.
    pub fn capacities_text(&self, name: &str) -> Result<String, TraceError> {
        let mut text = String::new();
        for (line, section) in (1..).zip(&self.sections) {
            if !is_name(&section.id) {
                return Err(wrong_field(name, line, "section", &section.id, NAME));
            }
            writeln!(text, "{}\t{}", section.id, section.capacity).expect("a string takes any text");
        }
        Ok(text)
    }

    /// Returns the text of the requests file. Errors call it `name`.
    ///
    /// # Errors
    ///
    /// [`TraceError::Field`] or [`TraceError::OutOfOrder`]: the format cannot express a request.
    pub fn requests_text(&self, name: &str) -> Result<String, TraceError> {
        let mut text = String::new();
        let mut previous = None;
        for (line, request) in (1..).zip(&self.requests) {
            let at = request.at;
            for (field, found) in [("student", &request.student), ("section", &request.section)] {
                if !is_name(found) {
                    return Err(wrong_field(name, line, field, found, NAME));
                }
            }
            if at.year() < 0 {
                return Err(wrong_field(name, line, "date", &at.to_string(), DATE));
            }
            if at.subsec_nanosecond() != 0 {
                return Err(wrong_field(
                    name,
                    line,
                    "time",
                    &at.to_string(),
                    "a time of day to the second",
                ));
            }
            if let Some(previous) = previous.filter(|previous| at < *previous) {
                return Err(TraceError::OutOfOrder {
                    file: name.to_owned(),
                    line,
                    at,
                    previous,
                });
            }
            previous = Some(at);
            writeln!(
                text,
                "{},{},{:04}-{:02}-{:02},{:02}:{:02}:{:02},{}",
                request.student,
                request.section,
                at.year(),
                at.month(),
                at.day(),
                at.hour(),
                at.minute(),
                at.second(),
                request.operation.letter(),
            )
            .expect("a string takes any text");
        }
        Ok(text)
    }
}
