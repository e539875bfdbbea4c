//! KRL compared with JavaScript that does the same: operators, functions, `foreach`, event expressions.

use anyhow::Context as _;
use clap::Args;
use serde::Serialize;
use std::{
    process::{Command, ExitCode},
    time::{Duration, Instant},
};
use throng_krl::{Program, Value, compile, parse, testing::Pico};

use super::table::Table;
use crate::{
    cpu::cpu_time,
    units::{self, count},
};

/// Interpreters of JavaScript, and their option for a program as text. The first installed one is measured.
const INTERPRETERS: [(&str, &str); 2] = [("node", "-e"), ("qjs", "-e")];
/// The number of elements of each list.
const ELEMENTS: u32 = 1_000;

/// The arguments of the measurement of KRL. The interpreter is the first installed one.
#[derive(Debug, Args)]
pub(super) struct KrlArguments {
    /// The time for which each is repeated.
    #[arg(long = "for", value_name = "TIME", default_value = "1s", value_parser = units::duration)]
    lasts: Duration,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    json: bool,
}

/// The same work in both languages.
struct Work {
    name: &'static str,
    /// The number of operations in a run.
    operations: u32,
    /// The result of `work(list)`, in KRL.
    krl: &'static str,
    /// The body of a function of `list` that returns the same.
    javascript: &'static str,
}

const FUNCTIONS: [Work; 4] = [
    Work {
        name: "reduce, an element",
        operations: ELEMENTS,
        krl: "list.reduce(function(sum, x) { sum + x % 7 * 3 }, 0)",
        javascript: "return list.reduce((sum, x) => sum + x % 7 * 3, 0)",
    },
    Work {
        name: "map and filter, an element",
        operations: ELEMENTS,
        krl: "list.map(function(x) { x * 7919 % 1000 }).filter(function(x) { x > 500 }).length()",
        javascript: "return list.map(x => x * 7919 % 1000).filter(x => x > 500).length",
    },
    Work {
        name: "text, a piece",
        operations: ELEMENTS,
        krl: r#"list.map(function(x) { "item " + x + (x % 2 == 0 => " even" | " odd") }).join(",").length()"#,
        javascript: r#"return list.map(x => "item " + x + (x % 2 == 0 ? " even" : " odd")).join(",").length"#,
    },
    Work {
        name: "maps, one made and read",
        operations: ELEMENTS,
        krl: r#"list.map(function(x) { {"id": x, "twice": x * 2, "tags": ["a", "b"]} }).map(function(m) { m{"twice"} + m{"tags"}.length() }).reduce(function(a, b) { a + b }, 0)"#,
        javascript: r#"return list.map(x => ({id: x, twice: x * 2, tags: ["a", "b"]})).map(m => m["twice"] + m["tags"].length).reduce((a, b) => a + b, 0)"#,
    },
];

/// A ruleset's rule, and the events of one run in order.
struct Events {
    name: &'static str,
    rule: &'static str,
    events: &'static [(&'static str, &'static str)],
}

const EVENTS: [Events; 3] = [
    Events {
        name: "an event of a rule that stores and answers",
        rule: r#"rule r { select when bench one pre { n = ent:n.defaultsTo(0) + 1 } send_directive("one", {"n": n}) fired { ent:n := n } }"#,
        events: &[("bench", "one")],
    },
    Events {
        name: "an event of `a then b`",
        rule: r#"rule r { select when bench a then bench b send_directive("both") }"#,
        events: &[("bench", "a"), ("bench", "b")],
    },
    Events {
        name: "an event of `foreach` over ten",
        rule: r#"rule r { select when bench list foreach [1,2,3,4,5,6,7,8,9,10] setting(x) send_directive("x", {"x": x}) }"#,
        events: &[("bench", "list")],
    },
];

/// Operators on a large value `a`. Each is repeated until the limit of steps ends the event.
const DEAR: [&str; 24] = [
    "x + 1",
    "[x, x]",
    "{\"a\": x}",
    "x.as(\"String\")",
    "\"a\" + x",
    "a.length()",
    "a.once().length()",
    "a.duplicates().length()",
    "a.unique().length()",
    "a.has([x])",
    "a.index(-1)",
    "a.union([x]).length()",
    "a.difference([x]).length()",
    "a.intersection([x]).length()",
    "a.reverse().length()",
    "a.tail().length()",
    "a.slice(0, 9).length()",
    "a.sort().length()",
    "a.join(\"\").length()",
    "a.encode().length()",
    "t.length()",
    "t.split(\" \").length()",
    "t.match(re#zz#)",
    "t.uc().length()",
];

/// The CPU time of an event that was ended by the limit of steps or memory.
#[derive(Debug, Serialize)]
struct Ended {
    operator: &'static str,
    ms: f64,
}

/// Runs each of the operators until a limit ends the event. Returns the most expensive one first.
fn ended() -> anyhow::Result<Vec<Ended>> {
    let mut all = Vec::new();
    for operator in DEAR {
        let mut pico = Pico::default();
        pico.install(program(&format!(
            "global {{ a = 1.range(5000) t = a.join(\" \") }} rule r {{ select when bench all \
             pre {{ n = 1.range(1000).reduce(function(n, y) {{ 1.range(1000).map(function(x) {{ {operator} }}).length() }}, 0) }} }}"
        ))?);
        let began = cpu_time();
        let end = pico.event("bench", "all", Value::Null);
        let ms = (cpu_time() - began).as_secs_f64() * 1e3;
        anyhow::ensure!(
            end.is_err_and(|error| error.kind == throng_krl::ErrorKind::Limit),
            "{operator} came to an end"
        );
        all.push(Ended { operator, ms });
    }
    all.sort_by(|one, other| other.ms.total_cmp(&one.ms));
    Ok(all)
}

#[derive(Debug, Serialize)]
struct Line {
    name: &'static str,
    krl_ns: f64,
    javascript_ns: Option<f64>,
}

/// Measures and prints the figures.
pub(super) fn run(arguments: &KrlArguments) -> anyhow::Result<ExitCode> {
    let interpreter = INTERPRETERS
        .into_iter()
        .find(|(name, _)| Command::new(name).arg("--help").output().is_ok());
    let list = serde_json::json!({ "list": (1..=ELEMENTS).collect::<Vec<_>>() });
    let list = Value::from(&list);
    let mut lines = Vec::new();
    for work in &FUNCTIONS {
        let mut pico = Pico::default();
        pico.install(program(&format!(
            "meta {{ shares work }} global {{ work = function(list) {{ {} }} }}",
            work.krl
        ))?);
        let mut result = Value::Null;
        let krl_ns = per_run(arguments.lasts, || {
            result = pico.query("work", list.clone())?;
            Ok(())
        })?;
        let javascript_ns = match interpreter {
            Some(interpreter) => {
                let (ns, returned) = javascript(interpreter, work, arguments.lasts)?;
                let (returned, result) = (returned.to_string(), result.to_json());
                anyhow::ensure!(
                    returned == result,
                    "{}: KRL returns {result}, JavaScript {returned}",
                    work.name
                );
                Some(ns / f64::from(work.operations))
            }
            None => None,
        };
        lines.push(Line {
            name: work.name,
            krl_ns: krl_ns / f64::from(work.operations),
            javascript_ns,
        });
    }
    for Events { name, rule, events } in EVENTS {
        let mut pico = Pico::default();
        pico.install(program(rule)?);
        let krl_ns = per_run(arguments.lasts, || {
            for (domain, name) in events {
                pico.event(domain, name, Value::Null)?;
            }
            Ok(())
        })?;
        lines.push(Line {
            name,
            krl_ns: krl_ns / events.len() as f64,
            javascript_ns: None,
        });
    }
    let ended = ended()?;
    if arguments.json {
        println!("{}", serde_json::json!({ "krl": lines, "ended": ended }));
    } else {
        print!("{}", text(&lines, interpreter.map(|(name, _)| name)));
        let mut table = Table::new(["until a limit ends the event", "ms"]);
        for Ended { operator, ms } in ended {
            table.row([operator.into(), format!("{ms:.1}")]);
        }
        print!("{}", table.text());
    }
    Ok(ExitCode::SUCCESS)
}

fn program(inside: &str) -> anyhow::Result<Program> {
    Ok(compile(&parse(&format!("ruleset bench {{ {inside} }}"))?)?)
}

/// Returns the nanoseconds of a run, without the first tenth of the time.
fn per_run(lasts: Duration, mut run: impl FnMut() -> Result<(), throng_krl::Error>) -> anyhow::Result<f64> {
    let mut repeat = |lasts: Duration| -> anyhow::Result<f64> {
        let (began, mut runs) = (Instant::now(), 0_u32);
        while began.elapsed() < lasts {
            for _ in 0..10 {
                run()?;
            }
            runs += 10;
        }
        Ok(began.elapsed().as_nanos() as f64 / f64::from(runs))
    };
    repeat(lasts / 10)?;
    repeat(lasts)
}

fn javascript((name, option): (&str, &str), work: &Work, lasts: Duration) -> anyhow::Result<(f64, serde_json::Value)> {
    let script = format!(
        "const list = Array.from({{length: {ELEMENTS}}}, (_, i) => i + 1); function work(list) {{ {} }}
        function repeat(ms) {{ let began = Date.now(), runs = 0; while (Date.now() - began < ms) {{ for (let i = 0; i < 10; i++) work(list); runs += 10 }}
        return (Date.now() - began) * 1e6 / runs }}
        repeat({}); console.log(JSON.stringify([repeat({}), work(list)]))",
        work.javascript,
        lasts.as_millis() / 10,
        lasts.as_millis(),
    );
    let output = Command::new(name).args([option, &script]).output()?;
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{name} said: {}", String::from_utf8_lossy(&output.stderr)))
}

fn text(lines: &[Line], interpreter: Option<&str>) -> String {
    let mut table = Table::new(["", "KRL ns", "JavaScript ns", "KRL takes"]);
    for line in lines {
        let (javascript, ratio) = line.javascript_ns.map_or_else(
            || ("-".into(), "-".into()),
            |ns| (format!("{ns:.1}"), format!("{:.1} ×", line.krl_ns / ns)),
        );
        table.row([line.name.into(), format!("{:.1}", line.krl_ns), javascript, ratio]);
    }
    let beside = match interpreter {
        Some(name) => format!("JavaScript: {name}"),
        None => "JavaScript was not measured: neither node nor qjs is installed".into(),
    };
    format!(
        "{}\n  lists of {} elements; {beside}\n",
        table.text(),
        count(u64::from(ELEMENTS))
    )
}
