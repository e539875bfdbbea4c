//! `throng top`: the console's numbers in a terminal, drawn again each second.

use anyhow::{Context as _, bail};
use clap::Args;
use registration::trace::DateTime;
use serde_json::Value;
use std::{
    fmt::Write as _,
    io::{ErrorKind, IsTerminal as _, Read, Write},
    net::TcpStream,
    path::PathBuf,
    process::ExitCode,
    thread,
    time::Duration,
};
use throng_app::cli::is_colourless;
use throng_load::{TlsOptions, over_tls};

/// The time in which a service must answer.
const PATIENCE: Duration = Duration::from_secs(5);
const EVERY: Duration = Duration::from_secs(1);
/// The longest answer that is read.
const ANSWER_BYTES_MAX: u64 = 16 << 20;
/// Seconds that a frame is made of.
const SECONDS: usize = 5;
/// Troubles that are named.
const TROUBLES_MAX: usize = 10;
/// Hot entities that are named.
const HOT_MAX: usize = 5;
/// Moves the cursor home and erases everything below.
const REDRAW: &str = "\x1b[H\x1b[J";

/// Arguments of `throng top`.
#[derive(Debug, Args)]
pub(crate) struct TopArguments {
    /// The service's listener for administration.
    #[arg(value_name = "URL", default_value = "http://127.0.0.1:9080")]
    url: String,
    /// The service's token for administration.
    #[arg(long, value_name = "TOKEN", env = "THRONG_ADMIN_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Trust the certificates of this PEM file, besides the system's.
    #[arg(long, value_name = "FILE")]
    tls_roots: Option<PathBuf>,
    /// Print once, and end.
    #[arg(long)]
    once: bool,
}

impl TopArguments {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        let has_colour = std::io::stdout().is_terminal() && !is_colourless();
        loop {
            let look = Look {
                overview: self.get("/admin/overview")?,
                series: self.get("/admin/series")?,
                trouble: self.get("/admin/trouble")?,
                hot: self.get(&format!("/admin/hot?limit={HOT_MAX}"))?,
            };
            let shown = look.frame(has_colour);
            let mut out = std::io::stdout().lock();
            let head = if self.once { "" } else { REDRAW };
            // A reader that went away is no error of ours.
            if write!(out, "{head}{shown}").and_then(|()| out.flush()).is_err() || self.once {
                return Ok(ExitCode::SUCCESS);
            }
            drop(out);
            thread::sleep(EVERY);
        }
    }

    fn get(&self, path: &str) -> anyhow::Result<Value> {
        let Some((is_https, authority)) = place(&self.url) else {
            bail!("{:?} is not a URL as http://127.0.0.1:9080 or https://…", self.url)
        };
        let stream = TcpStream::connect(authority).with_context(|| format!("cannot reach {authority}"))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let token = self.token.as_ref();
        let token = token.map_or(String::new(), |token| format!("authorization: Bearer {token}\r\n"));
        let request = format!("GET {path} HTTP/1.1\r\nhost: {authority}\r\nconnection: close\r\n{token}\r\n");
        let answer = match is_https {
            true => {
                let tls = TlsOptions {
                    roots: self.tls_roots.clone(),
                    ..TlsOptions::default()
                };
                let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
                let host = host.trim_matches(['[', ']']);
                let answer = exchange(over_tls(&tls, host, stream)?, &request);
                answer.with_context(|| {
                    format!("{authority} is not trusted or speaks no TLS; --tls-roots FILE trusts further certificates")
                })?
            }
            false => exchange(stream, &request)?,
        };
        let answer = String::from_utf8_lossy(&answer);
        let (head, body) = answer
            .split_once("\r\n\r\n")
            .context("that is no answer of a service")?;
        let value: Value = serde_json::from_str(body).unwrap_or_default();
        if head.split(' ').nth(1) != Some("200") {
            let detail = value["detail"]
                .as_str()
                .unwrap_or(head.lines().next().unwrap_or_default());
            bail!("{path} is not shown: {detail}");
        }
        Ok(value)
    }
}

/// Parses whether a URL uses TLS, and its host.
fn place(url: &str) -> Option<(bool, &str)> {
    let (scheme, authority) = url.split_once("://")?;
    let is_https = scheme.eq_ignore_ascii_case("https");
    (is_https || scheme.eq_ignore_ascii_case("http")).then(|| (is_https, authority.trim_end_matches('/')))
}

/// Sends a request, and reads until the server closes the connection.
fn exchange(mut stream: impl Read + Write, request: &str) -> std::io::Result<Vec<u8>> {
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    match stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer) {
        // The server closed without TLS's `close_notify`. A truncated answer would not be valid JSON.
        Err(error) if error.kind() == ErrorKind::UnexpectedEof && !answer.is_empty() => Ok(answer),
        read => read.map(|_| answer),
    }
}

/// Returns the newest number of a series, or `None` if that second is unknown.
fn last(column: &Value) -> Option<f64> {
    column.as_array()?.last()?.as_f64()
}

/// The mean of a column's last seconds.
fn mean(column: &Value) -> f64 {
    let column = column.as_array().map_or(&[][..], Vec::as_slice);
    let from = column.len().saturating_sub(SECONDS);
    let known: Vec<f64> = column[from..].iter().filter_map(Value::as_f64).collect();
    // The sum of no numbers is -0.0.
    (known.iter().sum::<f64>() + 0.0) / known.len().max(1) as f64
}

fn ms(column: &Value) -> String {
    last(column).map_or("–".into(), |ms| format!("{ms:.2}"))
}

/// Removes control characters, which could control the terminal, from names and texts of others.
fn plain(text: &str) -> String {
    text.chars()
        .map(|letter| if letter.is_control() { '\u{FFFD}' } else { letter })
        .collect()
}

/// The answers that a redraw is made of.
#[derive(Default)]
struct Look {
    overview: Value,
    series: Value,
    trouble: Value,
    hot: Value,
}

/// A length of time in its two largest units.
fn length(seconds: i64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min"),
        (0, ..) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

impl Look {
    /// The service, its version, and for how long it runs.
    fn title(&self) -> String {
        let text = |name: &str| plain(self.overview[name].as_str().unwrap_or_default());
        // In UTC, both.
        let at = |name: &str| text(name).trim_end_matches('Z').parse::<DateTime>().ok();
        let up = at("now").zip(at("started_at"));
        let up = up.map(|(now, start)| format!("up {}", length(now.duration_since(start).as_secs().max(0))));
        let name = [text("service"), text("version")].join(" ").trim().to_owned();
        [Some(name), up]
            .into_iter()
            .flatten()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// Returns all lines of a redraw. With colour, headings are bold and problems yellow.
    fn frame(&self, has_colour: bool) -> String {
        let paint = |code: u8, text: String| match has_colour {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text,
        };
        let title = self.title();
        let mut out = if title.is_empty() {
            String::new()
        } else {
            paint(1, title) + "\n"
        };
        out += &figures(&self.series);
        let hot = self.hot["hot"].as_array().map_or(&[][..], Vec::as_slice);
        if !hot.is_empty() {
            let _ = writeln!(out, "\n{}", paint(1, "hot".into()));
        }
        for one in hot.iter().take(HOT_MAX) {
            let text = |name: &str| plain(one[name].as_str().unwrap_or_default());
            let rate = one["per_second"].as_f64().unwrap_or(0.0);
            let _ = writeln!(out, "  {rate:>8.0}/s  {}/{}", text("kind"), text("id"));
        }
        let calls = self.overview["calls"].as_array().map_or(&[][..], Vec::as_slice);
        if !calls.is_empty() {
            let _ = writeln!(out, "\n{}", paint(1, "calls outside".into()));
        }
        for worker in calls {
            let number = |name: &str| worker[name].as_f64().unwrap_or(0.0);
            let _ = writeln!(
                out,
                "  {:<20} open {:>10.0}   under way {:>6.0}   attempts/min {:>8.0}   failed/min {:>8.0}",
                plain(worker["worker"].as_str().unwrap_or_default()),
                number("open"),
                number("under_way"),
                number("attempts_minute"),
                number("failed_minute")
            );
        }
        let total = self.trouble["total"].as_u64().unwrap_or(0);
        let code = if total > 0 { 33 } else { 1 };
        let _ = writeln!(out, "\n{}", paint(code, format!("trouble     {total}")));
        out + &troubles(&self.trouble)
    }
}

fn figures(all: &Value) -> String {
    let series = &all["series"];
    let mut out = String::new();
    let sentence = plain(
        all["limits"]["sentence"]
            .as_str()
            .unwrap_or("There is no number yet; look again in a second."),
    );
    let megabytes = |column: &Value| last(column).unwrap_or(0.0) / 1e6;
    let refusals = all["refusals"].as_object().into_iter().flatten();
    let refusals = refusals.map(|(_, column)| mean(column)).sum::<f64>() + 0.0;
    let loops = all["loops"].as_object().into_iter().flatten();
    let loops: Vec<String> = loops
        .map(|(at, column)| format!("{at}: {:.0} %", mean(column) * 100.0))
        .collect();
    // Writing to a text cannot fail.
    let _ = writeln!(out, "{sentence}\n");
    let _ = writeln!(
        out,
        "commands/s  {:>12.0}   queries/s {:>10.0}   refused/s {:>8.0}   connections {:>7.0}",
        mean(&series["commands"]),
        mean(&series["queries"]),
        refusals,
        last(&series["connections"]).unwrap_or(0.0)
    );
    for (what, name) in [("answer ms", "latency"), ("commit ms", "commit")] {
        let of = |part: &str| ms(&series[format!("{name}_{part}_ms")]);
        let _ = writeln!(
            out,
            "{what:<11} p50 {:>8}   p99 {:>8}   max {:>8}",
            of("p50"),
            of("p99"),
            of("max")
        );
    }
    let _ = writeln!(
        out,
        "batch       {:>12.1}   commits/s {:>10.0}   in flight {:>8.0}   outbox {:>12.0}",
        mean(&series["batch"]),
        mean(&series["commits"]),
        last(&series["in_flight"]).unwrap_or(0.0),
        last(&series["outbox"]).unwrap_or(0.0)
    );
    let memory = &all["memory"];
    let _ = writeln!(
        out,
        "entities    {:>12.0}   memory MB {:>10.1}   of process {:>7.1}",
        last(&series["resident"]).unwrap_or(0.0),
        megabytes(&memory["entities"]),
        megabytes(&memory["process"])
    );
    let _ = writeln!(out, "loops       {}", loops.join("   "));
    out
}

fn troubles(trouble: &Value) -> String {
    let items = trouble["items"].as_array().map_or(&[][..], Vec::as_slice);
    let mut out = String::new();
    for item in items.iter().take(TROUBLES_MAX) {
        let text = |name: &str| plain(item[name].as_str().unwrap_or_default());
        let of = match (text("kind"), text("id")) {
            (kind, _) if kind.is_empty() => String::new(),
            (kind, id) => format!(" {kind}/{id}"),
        };
        // Cut after the second: `2026-11-23T09:00:00`.
        let since = match text("since").get(..19) {
            Some(since) => format!(", since {} UTC", since.replace('T', " ")),
            None => String::new(),
        };
        let count = match item["count"].as_u64() {
            None | Some(0 | 1) => String::new(),
            Some(count) => format!(", {count} times"),
        };
        let _ = writeln!(
            out,
            "  {}{of} {}{since}{count}: {}",
            text("type"),
            text("what"),
            text("reason")
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn scheme_of_a_url_may_be_in_capitals() {
        assert_eq!(place("http://127.0.0.1:9080/"), Some((false, "127.0.0.1:9080")));
        assert_eq!(place("HTTPS://[::1]:9080"), Some((true, "[::1]:9080")));
        assert_eq!((place("ftp://a"), place("127.0.0.1:9080")), (None, None));
    }

    #[test]
    fn frame_names_service_and_escapes_control_characters() {
        let all = json!({
            "series": { "commands": [0, 100, 300], "latency_p50_ms": [null, 0.5], "connections": [64] },
            "refusals": { "overloaded": [2, 2] }, "memory": { "process": [91_000_000] }, "loops": { "0": [0.5, 0.7] },
            "limits": { "sentence": "The clients: there is room." }
        });
        let trouble = json!({ "total": 1_200, "items": [
                { "type": "stuck", "kind": "a", "id": "\u{1b}[2Jx", "what": "w", "since": "2026-11-23T09:00:00.123Z", "count": 40, "reason": "r" },
                { "type": "check", "kind": null, "id": null, "what": "pool", "since": null, "count": 1, "reason": "slow" }
            ] });
        let overview = json!({
            "service": "registration", "version": "1.4.0", "started_at": "2026-11-23T08:00:00Z", "now": "2026-11-24T11:12:44.031907Z",
            "calls": [{ "worker": "payments", "open": 1_000_086.0, "under_way": 16.0, "waiting": 70.0, "attempts_minute": 95, "failed_minute": 4 }]
        });
        let hot = json!({ "hot": [{ "kind": "section", "id": "CS\u{7}-1", "per_second": 812 }] });
        let look = Look {
            overview,
            series: all,
            trouble,
            hot,
        };
        let shown = look.frame(false);
        for part in [
            "registration 1.4.0, up 1 d 3 h\nThe clients: there is room.",
            "       812/s  section/CS\u{FFFD}-1",
            "133",
            "p50     0.50",
            "0: 60 %",
            "91.0",
            "payments             open    1000086   under way     16   attempts/min       95   failed/min        4",
            "trouble     1200",
            "stuck a/\u{FFFD}[2Jx w, since 2026-11-23 09:00:00 UTC, 40 times: r",
            "check pool: slow",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(!shown.contains('\u{1b}'));
        assert!(look.frame(true).contains("\u{1b}[33mtrouble     1200\u{1b}[0m"));
        let nothing = Look::default().frame(false);
        assert!(nothing.contains("look again") && !nothing.contains("-0"), "{nothing}");
    }
}
