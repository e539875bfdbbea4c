//! The points of the series in a file beside the journal, so that a restarted service shows earlier ones. The file serves no other purpose:
//! if it cannot be written or read, the curves begin with the start.
//!
//! ```text
//! {"names":[["series","commands"],…]}    the names of the values
//! [1764000900,[4212,…],[0.73]]           a point: its second, its values, the loops; null is not known
//! ```

use super::series::{Group, POINTS_MAX, Point, Series};
use serde::{Deserialize, Serialize};
use std::{
    fs,
    io::{self, BufRead, BufReader, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

const FILE_NAME: &str = "console-series";
/// The number of points written together. A kill loses some of them.
const WRITTEN_TOGETHER: usize = 5;
/// The number of points from which on the file is rewritten without old ones.
const WRITTEN_MAX: usize = 2 * POINTS_MAX;
/// The most bytes that are read of the file.
const FILE_BYTES_MAX: u64 = 8 << 20;

#[derive(Serialize, Deserialize)]
struct Names {
    names: Vec<(String, String)>,
}

/// A point in the file: its second, its values in the order of the names, the loops.
type Line = (i64, Vec<Option<f64>>, Vec<Option<f64>>);

fn known(values: &[f64]) -> Vec<Option<f64>> {
    values
        .iter()
        .map(|value| Some(*value).filter(|value| value.is_finite()))
        .collect()
}

fn or_nan(values: &[Option<f64>]) -> Box<[f64]> {
    values.iter().map(|value| value.unwrap_or(f64::NAN)).collect()
}

/// Writes the points of a gateway. Only its own thread uses it, so that no loop waits for the disk.
pub(crate) struct Recorder {
    path: PathBuf,
    waiting: Vec<Point>,
    /// The number of points in the file; `None` until this gateway has rewritten it.
    written: Option<usize>,
    has_read: bool,
}

impl Recorder {
    pub(crate) fn new(dir: &str) -> Self {
        Self {
            path: Path::new(dir).join(FILE_NAME),
            waiting: Vec::new(),
            written: None,
            has_read: false,
        }
    }

    /// Records the newest point, and puts earlier recorded ones before the first.
    pub(crate) fn keep(&mut self, series: &Mutex<Series>) {
        let series = || series.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((point, names)) = series().newest() else {
            return;
        };
        if !self.has_read {
            self.has_read = true;
            let earlier = self.read(&names, point.at - POINTS_MAX as i64);
            series().put_before(earlier);
        }
        self.waiting.push(point);
        let begins = self.written.is_none_or(|written| written >= WRITTEN_MAX);
        if !begins && self.waiting.len() < WRITTEN_TOGETHER {
            return;
        }
        let done = match self.written {
            Some(written) if !begins => self.append(written),
            _ => {
                let all = series().points();
                self.begin(&names, &all)
            }
        };
        self.waiting.clear();
        self.written = done
            .inspect_err(|why| {
                tracing::debug!(
                    "the console's series cannot be written to {}: {why}",
                    self.path.display()
                );
            })
            .ok();
    }

    /// Returns the points of the file, in order, with the values of these names; a missing value is unknown.
    fn read(&self, names: &[(Group, &'static str)], after: i64) -> Vec<Point> {
        let Ok(file) = fs::File::open(&self.path) else {
            return Vec::new();
        };
        let mut file = io::Read::take(BufReader::new(file), FILE_BYTES_MAX);
        let (mut line, mut places, mut points) = (String::new(), Vec::new(), Vec::new());
        while matches!(file.read_line(&mut line), Ok(1..)) {
            if let Ok(Names { names: own }) = serde_json::from_str(&line) {
                let is = |(group, name): &(String, String), wanted: &(Group, &str)| {
                    *group == wanted.0.name() && *name == wanted.1
                };
                let place = |wanted: &(Group, &str)| own.iter().position(|own| is(own, wanted));
                places = names.iter().map(place).collect();
            } else if let Ok((at, values, loops)) = serde_json::from_str::<Line>(&line)
                && at > after
            {
                let value = |place: &Option<usize>| place.and_then(|at| values.get(at).copied().flatten());
                let values: Vec<Option<f64>> = places.iter().map(value).collect();
                points.push(Point {
                    at,
                    values: or_nan(&values),
                    loops: or_nan(&loops),
                });
            }
            line.clear();
        }
        points.sort_by_key(|point| point.at);
        points.dedup_by_key(|point| point.at);
        points.drain(..points.len().saturating_sub(POINTS_MAX));
        points
    }

    fn append(&self, written: usize) -> io::Result<usize> {
        let text = text(&self.waiting)?;
        open(&self.path, |options| options.append(true))?.write_all(&text)?;
        Ok(written + self.waiting.len())
    }

    /// Rewrites the file.
    fn begin(&self, names: &[(Group, &'static str)], all: &[Point]) -> io::Result<usize> {
        let names = names
            .iter()
            .map(|(group, name)| (group.name().to_owned(), (*name).to_owned()));
        let mut head = serde_json::to_vec(&Names { names: names.collect() })?;
        head.push(b'\n');
        let new = self.path.with_extension("new");
        let mut file = open(&new, |options| options.write(true).create(true).truncate(true))?;
        file.write_all(&head)?;
        file.write_all(&text(all)?)?;
        fs::rename(&new, &self.path)?;
        Ok(all.len())
    }
}

fn open(path: &Path, set: impl FnOnce(&mut fs::OpenOptions) -> &mut fs::OpenOptions) -> io::Result<fs::File> {
    set(fs::OpenOptions::new().mode(0o600)).open(path)
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Some(written) = self.written
            && !self.waiting.is_empty()
        {
            drop(self.append(written));
        }
    }
}

fn text(points: &[Point]) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    for point in points {
        let line: Line = (point.at, known(&point.values), known(&point.loops));
        serde_json::to_writer(&mut text, &line)?;
        text.push(b'\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [(Group, &str); 2] = [(Group::Series, "commands"), (Group::Memory, "process")];

    fn point(at: i64) -> Point {
        Point {
            at,
            values: Box::new([at as f64, f64::NAN]),
            loops: Box::new([0.5]),
        }
    }

    /// Runs a gateway that records these points, and ends it.
    fn recorded(dir: &str, points: std::ops::Range<i64>) {
        let series = Mutex::new(Series::default());
        let mut recorder = Recorder::new(dir);
        for at in points {
            series.lock().unwrap().put(&NAMES, point(at));
            recorder.keep(&series);
        }
    }

    #[test]
    fn points_of_before_are_read_with_their_names() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().to_str().unwrap();
        assert!(Recorder::new(dir).read(&NAMES, 0).is_empty(), "nothing was written");
        recorded(dir, 0..20);
        recorded(dir, 30..40);
        let recorder = Recorder::new(dir);
        let swapped = [NAMES[1], (Group::Series, "new"), NAMES[0]];
        let found = recorder.read(&swapped, 17);
        let seconds: Vec<i64> = found.iter().map(|point| point.at).collect();
        assert_eq!(seconds, [18, 19, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39]);
        assert!(found[0].values[0].is_nan() && found[0].values[1].is_nan());
        assert_eq!((found[0].values[2], &*found[0].loops), (18.0, &[0.5][..]));
    }

    #[test]
    fn torn_or_foreign_file_gives_its_readable_points() {
        let dir = tempfile::tempdir().unwrap();
        let (path, dir) = (dir.path().join(FILE_NAME), dir.path().to_str().unwrap());
        recorded(dir, 0..10);
        let text = fs::read(&path).unwrap();
        fs::write(&path, &text[..text.len() - 7]).unwrap();
        assert_eq!(Recorder::new(dir).read(&NAMES, -1).len(), 9);
        fs::write(&path, b"\xff\xfe nothing of ours").unwrap();
        assert!(Recorder::new(dir).read(&NAMES, -1).is_empty());
    }

    #[test]
    fn file_has_a_bound() {
        let dir = tempfile::tempdir().unwrap();
        let (path, dir) = (dir.path().join(FILE_NAME), dir.path().to_str().unwrap());
        recorded(dir, 0..5_000);
        let lines = fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= 1 + WRITTEN_MAX + WRITTEN_TOGETHER, "{lines} lines");
        let read = Recorder::new(dir).read(&NAMES, -1);
        assert_eq!((read.len(), read[0].at), (POINTS_MAX, 4_100));
    }
}
