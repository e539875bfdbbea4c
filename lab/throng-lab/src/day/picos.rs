//! The registration day through picos. All requests are events for the collection, which passes them on to its sections.

use anyhow::Context as _;
use registration::{
    reference::{Expected, Rosters},
    trace::Trace,
};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use throng_app::{JournalLocation, Service, Settings};
use throng_load::Report;

use crate::{
    cpu::cpu_time,
    pico_requests::{all, ask, event, query, root},
    units::{count, milliseconds},
};
use throng_cli::{
    client::Client,
    demo::{DemoArguments, directory::Directory, steps},
};

/// The longest wait for the last messages to arrive.
const SETTLES_MAX: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(50);

/// A day, its expected rosters, and its directories.
struct Day<'a> {
    trace: &'a Trace,
    expected: &'a Expected,
    settings: Settings,
    rulesets: PathBuf,
    /// The directory for the comparison with sections that are compiled entities.
    compiled: PathBuf,
    clients: usize,
    speed: f64,
}

/// Replays the day. The exit code says whether every roster is as expected.
pub(super) fn run(arguments: &DemoArguments, trace: &Trace, expected: &Expected) -> anyhow::Result<ExitCode> {
    let directory = Directory::fresh(&arguments.data.join("day"))?;
    let day = Day {
        trace,
        expected,
        settings: arguments.settings(arguments.place(Some(&directory))?),
        rulesets: directory.path().join("rulesets"),
        compiled: directory.path().join("compiled"),
        clients: usize::from(arguments.clients),
        speed: arguments.speed(),
    };
    day.run(arguments)
}

impl Day<'_> {
    fn run(self, arguments: &DemoArguments) -> anyhow::Result<ExitCode> {
        let say = |text: &str| arguments.say(text);
        let rulesets = self.write_rulesets()?;
        let (service, client) = self.start(&rulesets)?;
        say(&format!("  console    {}", service.console_url()));
        let root = root(&client)?;
        let url = format!("file://{}/{}", rulesets.display(), picos::REGISTRATION[0].0);
        ask(
            &client,
            &event(&root, "wrangler", "install_ruleset_request", &json!({ "url": url })),
        )?;
        let opened = self.open(&client, &root)?;
        say(&format!(
            "  opened     {} sections, a pico each, in {:.2} s",
            count(self.trace.sections.len() as u64),
            opened.elapsed().as_secs_f64()
        ));
        let before = service.engine.metrics().commits();
        let cpu = cpu_time();
        let replay = self.replay(&client, &root)?;
        let cpu = cpu_time().saturating_sub(cpu);
        let commits = service.engine.metrics().commits() - before;
        let (requests, elapsed) = (self.trace.requests.len() as u64, replay.elapsed().as_secs_f64());
        let at = |quantile| milliseconds(replay.response.value_at_quantile(quantile));
        say(&format!(
            "  replayed   {} events in {elapsed:.2} s: {}/s, p50 {:.2} ms, p99 {:.2} ms, {} commits",
            count(requests),
            count((requests as f64 / elapsed) as u64),
            at(0.5),
            at(0.99),
            count(commits)
        ));
        service.stop();
        let compiled = self.compiled_cpu()?;
        let [picos, entities] = [cpu, compiled].map(|cpu| cpu.as_secs_f64() * 1e6 / requests as f64);
        say(&format!(
            "  CPU        {picos:.0} µs a request, with its client; sections that are compiled entities, asked directly: {entities:.0} µs"
        ));

        let (service, client) = self.start(&rulesets)?;
        say(&format!(
            "  restarted  from the journal in {:.3} s",
            service.recovery.as_secs_f64()
        ));
        let channels = self.channels(&client, &root)?;
        let begun = Instant::now();
        let (found, differences) = loop {
            let found = self.rosters(&client, &channels)?;
            let differences = self.expected.rosters.differences(&found);
            if differences.is_empty() || begun.elapsed() > SETTLES_MAX {
                break (found, differences);
            }
            thread::sleep(PAUSE);
        };
        arguments.write_rosters(&found)?;
        say(&match differences.as_slice() {
            [] => format!(
                "  compared   {} rosters, each asked of its pico: {} students, every one right",
                count(self.trace.sections.len() as u64),
                count(found.enrolled() as u64)
            ),
            wrong => format!("  ! {} differences, the first: {:?}", wrong.len(), wrong[0]),
        });
        let console = format!(
            "\n  the collection: {}/c/{root}/query/app_section_collection/sections\n",
            service.url()
        );
        arguments.stay(&console)?;
        service.stop();
        Ok(match differences.is_empty() {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        })
    }

    /// Returns the CPU time of the same day with sections that are entities in Rust.
    fn compiled_cpu(&self) -> anyhow::Result<Duration> {
        if self.compiled.exists() {
            fs::remove_dir_all(&self.compiled)?;
        }
        let settings = Settings {
            place: JournalLocation::Directory(self.compiled.clone()),
            ..self.settings.clone()
        };
        let service = Service::start(registration::app(), &settings)?;
        let client = Client::new(service.address, self.clients)?;
        steps::open(&client, self.trace)?;
        let begun = cpu_time();
        steps::replay(&client, self.trace, Some(self.expected), self.speed)?;
        let took = cpu_time().saturating_sub(begun);
        service.stop();
        Ok(took)
    }

    fn write_rulesets(&self) -> anyhow::Result<PathBuf> {
        let write = || {
            fs::create_dir_all(&self.rulesets)?;
            for (name, source) in picos::REGISTRATION {
                fs::write(self.rulesets.join(name), source)?;
            }
            self.rulesets.canonicalize()
        };
        write().with_context(|| format!("cannot write the rulesets to {}", self.rulesets.display()))
    }

    fn start(&self, rulesets: &Path) -> anyhow::Result<(Service, Client)> {
        let app = picos::with(picos::Settings {
            files: Some(rulesets.to_path_buf()),
            ..picos::Settings::default()
        });
        let service = Service::start(app, &self.settings)?;
        let client = Client::new(service.address, self.clients)?;
        Ok((service, client))
    }

    fn open(&self, client: &Client, root: &str) -> anyhow::Result<Report> {
        let sections = self.trace.sections.iter();
        let attributes = sections.map(|section| json!({ "section_id": &*section.id, "capacity": section.capacity }));
        let events = attributes.map(|attributes| event(root, "section", "needed", &attributes));
        all(
            client,
            "opening",
            events
                .enumerate()
                .map(|(at, event)| (at.to_le_bytes().to_vec(), None, event)),
            0.0,
            |_, _| Ok(()),
        )
    }

    fn replay(&self, client: &Client, root: &str) -> anyhow::Result<Report> {
        let events = self.trace.requests.iter().enumerate().map(|(index, request)| {
            let name = if request.operation.is_drop() {
                "drop_request"
            } else {
                "add_request"
            };
            let attributes = json!({ "section_id": &*request.section, "student_id": &*request.student });
            let key = request.section.as_bytes().to_vec();
            (
                key,
                Some(self.trace.offset(index)),
                event(root, "section", name, &attributes),
            )
        });
        all(client, "replaying", events, self.speed, |_, _| Ok(()))
    }

    /// Returns a channel to each section, which the collection names.
    fn channels(&self, client: &Client, root: &str) -> anyhow::Result<Vec<String>> {
        let mut channels = vec![String::new(); self.trace.sections.len()];
        let needed = self.trace.sections.iter().enumerate().map(|(at, section)| {
            let attributes = json!({ "section_id": &*section.id });
            (
                at.to_le_bytes().to_vec(),
                None,
                event(root, "section", "needed", &attributes),
            )
        });
        all(client, "finding", needed, 0.0, |at, answer| {
            let eci = answer["directives"][0]["options"]["eci"].as_str();
            channels[at] = eci.context("it tells no channel")?.to_owned();
            Ok(())
        })?;
        Ok(channels)
    }

    fn rosters(&self, client: &Client, channels: &[String]) -> anyhow::Result<Rosters> {
        let mut rosters = Rosters::default();
        let queries = channels.iter().enumerate().map(|(at, eci)| {
            let asked = query(eci, "app_section", "sectionInfo");
            (at.to_le_bytes().to_vec(), None, asked)
        });
        all(client, "comparing", queries, 0.0, |at, answer| {
            let roster = answer["roster"].as_array().context("it has no roster")?;
            let students = roster.iter().filter_map(Value::as_str).map(Arc::<str>::from);
            rosters.set(self.trace.sections[at].id.clone(), students.collect::<Vec<_>>());
            Ok(())
        })?;
        Ok(rosters)
    }
}
