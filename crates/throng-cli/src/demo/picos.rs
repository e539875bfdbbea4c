//! The registration day through picos: all requests are events for the collection, which passes them on to its sections.

use anyhow::{Context as _, bail};
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
use throng_app::{Service, Settings};
use throng_load::{Report, Request};

use super::{DemoArguments, answers};
use crate::{
    client::Client,
    progress::Progress,
    units::{count, milliseconds},
};

/// What was passed on last may take a moment to arrive.
const SETTLES_MAX: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(50);

/// A day, what its rosters have to be, and where it runs.
pub(super) struct Demo<'a> {
    pub(super) trace: &'a Trace,
    pub(super) expected: &'a Expected,
    pub(super) settings: Settings,
    pub(super) rulesets: PathBuf,
    pub(super) clients: usize,
    pub(super) speed: f64,
}

impl Demo<'_> {
    /// Runs it; the exit code says whether every roster is what it must be.
    pub(super) fn run(self, arguments: &DemoArguments, say: &impl Fn(&str)) -> anyhow::Result<ExitCode> {
        let rulesets = self.write_rulesets()?;
        let (service, client) = self.start(&rulesets)?;
        let root = root(&client)?;
        let url = format!("file://{}/{}", rulesets.display(), picos::SECTIONS[0].0);
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
        let replay = self.replay(&client, &root)?;
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
        arguments.stay(&console, say)?;
        service.stop();
        Ok(match differences.is_empty() {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        })
    }

    fn write_rulesets(&self) -> anyhow::Result<PathBuf> {
        let write = || {
            fs::create_dir_all(&self.rulesets)?;
            for (name, source) in picos::SECTIONS {
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

    /// A channel to each section, as the collection tells it.
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
            let path = format!("/c/{eci}/query/app_section/sectionInfo");
            (
                at.to_le_bytes().to_vec(),
                None,
                Box::new(move |host: &str| Request::get(host, &path).bytes().to_vec()) as Build,
            )
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

/// Writes a request to a host.
type Build = Box<dyn Fn(&str) -> Vec<u8>>;

fn event(eci: &str, domain: &str, name: &str, attributes: &Value) -> Build {
    let path = format!("/c/{eci}/event-wait/{domain}/{name}");
    let body = attributes.to_string();
    Box::new(move |host| Request::build("POST", host, &path).json(&body).into_bytes())
}

/// The root pico's own channel.
fn root(client: &Client) -> anyhow::Result<String> {
    let get = |path: String| -> Build { Box::new(move |host| Request::get(host, &path).bytes().to_vec()) };
    let context = ask(client, &get("/api/ui-context".into()))?;
    let console = context["eci"].as_str().context("the engine has no root")?;
    let pico = ask(
        client,
        &get(format!("/c/{console}/query/io.picolabs.pico-engine-ui/pico")),
    )?;
    let channels = pico["channels"].as_array().context("the root has no channels")?;
    let own = channels
        .iter()
        .find(|channel| channel["tags"] == json!(["system", "self"]));
    let id = own.and_then(|channel| channel["id"].as_str());
    Ok(id.context("the root has no channel of its own")?.to_owned())
}

fn ask(client: &Client, request: &Build) -> anyhow::Result<Value> {
    let mut requests = throng_load::Trace::new();
    requests.push([], None, 0, &request(client.authority()));
    let mut found = Err("no answer".to_owned());
    client.send(Arc::new(requests), 0.0, None, |_, outcome| {
        found = read(outcome);
        found.is_ok()
    })?;
    found.map_err(anyhow::Error::msg)
}

/// Sends requests, those of one key in order, and gives each answer to `look`.
fn all(
    client: &Client,
    doing: &'static str,
    requests: impl Iterator<Item = (Vec<u8>, Option<Duration>, Build)>,
    speed: f64,
    mut look: impl FnMut(usize, &Value) -> anyhow::Result<()> + Send,
) -> anyhow::Result<Report> {
    let mut sent = throng_load::Trace::new();
    for (key, offset, request) in requests {
        sent.push(&key, offset, 0, &request(client.authority()));
    }
    let mut first_wrong = None;
    let progress = Progress::new(doing, sent.len() as u64);
    let report = client.send(Arc::new(sent), speed, Some(progress), |index, outcome| {
        let looked = read(outcome).and_then(|answer| look(index, &answer).map_err(|error| error.to_string()));
        match looked {
            Ok(()) => true,
            Err(wrong) => {
                first_wrong.get_or_insert_with(|| format!("{doing}, request {}: {wrong}", index + 1));
                false
            }
        }
    })?;
    match first_wrong {
        Some(wrong) => bail!(wrong),
        None => Ok(report),
    }
}

fn read(outcome: &throng_load::Outcome<'_>) -> Result<Value, String> {
    match &outcome.result {
        Ok(answer) if answer.status == 200 => serde_json::from_slice(answer.body).map_err(|error| error.to_string()),
        Ok(answer) => Err(answers::said(answer)),
        Err(kind) => Err(kind.name().to_string()),
    }
}
