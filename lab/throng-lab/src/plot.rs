//! Draws lines as an SVG picture.

use std::fmt::Write as _;

/// The contents of a picture.
pub(super) struct Picture<'a> {
    pub(super) title: &'a str,
    /// The name of the horizontal axis.
    pub(super) across: &'a str,
    /// The format of values on the horizontal axis.
    pub(super) across_text: fn(f64) -> String,
    /// The distance of vertical grid lines. `None` is a logarithmic axis with a grid line at each value.
    pub(super) across_step: Option<f64>,
    /// The format of values on the vertical axis.
    pub(super) up_text: fn(f64) -> String,
    /// The distance of horizontal grid lines.
    pub(super) up_step: f64,
    pub(super) series: &'a [Series],
}

/// A line of the picture.
pub(super) struct Series {
    pub(super) name: String,
    /// The horizontal and the vertical values, sorted by the first.
    pub(super) points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 36.0;
const TOP: f64 = 48.0;
const BOTTOM: f64 = 56.0;
/// Colours that colour-blind people can distinguish, too.
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
/// The height of a name in the legend.
const NAME_HEIGHT: f64 = 18.0;

struct Axes {
    is_linear: bool,
    /// The least and the greatest horizontal value, or their logarithms on a logarithmic axis.
    from: f64,
    to: f64,
    most: f64,
}

impl Axes {
    fn x(&self, value: f64) -> f64 {
        let at = if self.is_linear { value } else { value.ln() };
        LEFT + (at - self.from) / (self.to - self.from) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - value / self.most * (HEIGHT - TOP - BOTTOM)
    }
}

impl Picture<'_> {
    fn axes(&self) -> Axes {
        let points = || self.series.iter().flat_map(|one| &one.points);
        let least = points().map(|point| point.0).fold(f64::INFINITY, f64::min);
        let greatest = points().map(|point| point.0).fold(0.0, f64::max);
        let (from, to) = match self.across_step {
            Some(step) => (0.0, greatest.max(step)),
            // A single value stands at the left.
            None => (least.ln(), greatest.max(least * 1.1).ln()),
        };
        Axes {
            is_linear: self.across_step.is_some(),
            from,
            to,
            most: points().map(|point| point.1).fold(self.up_step, f64::max) * 1.05,
        }
    }
}

/// Returns an SVG of these lines.
pub(super) fn svg(picture: &Picture<'_>) -> String {
    let (series, axes) = (picture.series, picture.axes());
    let mut out = String::new();
    let height = HEIGHT + NAME_HEIGHT * series.len() as f64;
    line(
        &mut out,
        format_args!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="13" fill="#333">"##
        ),
    );
    line(
        &mut out,
        format_args!(r##"<rect width="100%" height="100%" fill="#fff"/>"##),
    );
    line(
        &mut out,
        format_args!(
            r#"<text x="{LEFT}" y="24" font-size="15">{}</text>"#,
            escaped(picture.title)
        ),
    );
    grid(&mut out, &axes, picture);
    for (at, one) in series.iter().enumerate() {
        curve(&mut out, &axes, one, COLOURS[at % COLOURS.len()]);
        let (y, colour) = (HEIGHT + NAME_HEIGHT * at as f64, COLOURS[at % COLOURS.len()]);
        line(
            &mut out,
            format_args!(
                r#"<rect x="{LEFT}" y="{:.1}" width="14" height="4" fill="{colour}"/>"#,
                y - 7.0
            ),
        );
        let name = escaped(&one.name);
        line(
            &mut out,
            format_args!(r#"<text x="{}" y="{y}">{name}</text>"#, LEFT + 22.0),
        );
    }
    line(&mut out, format_args!("</svg>"));
    out
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

fn grid(out: &mut String, axes: &Axes, picture: &Picture<'_>) {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    for step in 0..=(axes.most / picture.up_step) as u32 {
        let value = f64::from(step) * picture.up_step;
        let y = axes.y(value);
        line(
            out,
            format_args!(r##"<line x1="{LEFT}" y1="{y:.1}" x2="{right}" y2="{y:.1}" stroke="#ddd"/>"##),
        );
        line(
            out,
            format_args!(
                r#"<text x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
                LEFT - 8.0,
                y + 4.0,
                (picture.up_text)(value)
            ),
        );
    }
    for value in across(axes, picture) {
        let x = axes.x(value);
        line(
            out,
            format_args!(r##"<line x1="{x:.1}" y1="{TOP}" x2="{x:.1}" y2="{bottom}" stroke="#eee"/>"##),
        );
        line(
            out,
            format_args!(
                r#"<text x="{x:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
                bottom + 18.0,
                (picture.across_text)(value)
            ),
        );
    }
    line(
        out,
        format_args!(
            r#"<text x="{:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
            (LEFT + right) / 2.0,
            bottom + 38.0,
            escaped(picture.across)
        ),
    );
}

/// Returns the values of vertical grid lines.
fn across(axes: &Axes, picture: &Picture<'_>) -> Vec<f64> {
    if let Some(step) = picture.across_step {
        return (0..=(axes.to / step) as u32).map(|at| f64::from(at) * step).collect();
    }
    let points = picture.series.iter().flat_map(|one| &one.points);
    let mut seen: Vec<f64> = points.map(|point| point.0).collect();
    seen.sort_by(f64::total_cmp);
    seen.dedup();
    seen
}

fn curve(out: &mut String, axes: &Axes, series: &Series, colour: &str) {
    let at = |point: &(f64, f64)| format!("{:.1},{:.1}", axes.x(point.0), axes.y(point.1));
    let points: Vec<String> = series.points.iter().map(at).collect();
    line(
        out,
        format_args!(
            r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="2"/>"#,
            points.join(" ")
        ),
    );
    for point in &series.points {
        let (x, y) = (axes.x(point.0), axes.y(point.1));
        line(
            out,
            format_args!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="3.5" fill="{colour}"/>"#),
        );
    }
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{text}").expect("a string takes any text");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_series_has_its_line_its_points_and_its_name() {
        let series = |name: &str| Series {
            name: name.into(),
            points: vec![(0.5, 0.5), (1.0, 0.98), (10.0, 0.96)],
        };
        let picture = svg(&Picture {
            title: "Answered",
            across: "load",
            across_text: |load| format!("{load} ×"),
            across_step: None,
            up_text: |share| format!("{:.0} %", share * 100.0),
            up_step: 0.25,
            series: &[series("log"), series("a < b")],
        });
        assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
        assert_eq!(picture.matches("<polyline").count(), 2);
        assert_eq!(picture.matches("<circle").count(), 6);
        assert!(picture.contains("a &lt; b") && picture.contains(">10 ×<") && picture.contains(">75 %<"));
    }

    #[test]
    fn time_runs_evenly_from_zero() {
        let picture = svg(&Picture {
            title: "Waiting",
            across: "seconds",
            across_text: |seconds| format!("{seconds} s"),
            across_step: Some(2.0),
            up_text: |count| format!("{count}"),
            up_step: 5.0,
            series: &[Series {
                name: "queue".into(),
                points: vec![(0.0, 0.0), (1.0, 9.0), (4.0, 0.0)],
            }],
        });
        for seconds in [0, 2, 4] {
            assert!(picture.contains(&format!(">{seconds} s<")), "{picture}");
        }
        let quarter = LEFT + (WIDTH - LEFT - RIGHT) / 4.0;
        assert!(picture.contains(&format!(r#"<circle cx="{quarter:.1}""#)), "{picture}");
    }
}
