//! Compiles a plan into the form that workers follow, with every name resolved and every formula computed.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::data::DataSource;
use super::model::{
    Amount, Capture, Data, OnFailure, Per, PhaseModel, PlanFile, PlanStep, RequestModel, SampleModel, StageModel,
};
use super::template::{Filter, Meaning, Template};
use crate::cli::values;
use crate::{Arrivals, Stage, Target};

const USERS_MAX: u64 = 1_000_000;
const PHASES_MAX: usize = 1_000;

/// A plan ready to be run.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) phases: Vec<Phase>,
    pub(crate) data: Vec<DataSource>,
    /// The first slot of each data source.
    pub(crate) data_slots: Vec<usize>,
    pub(crate) slots: usize,
    /// The names of phase and request, by class.
    pub(crate) classes: Vec<String>,
    pub(crate) seed: u64,
}

#[derive(Debug)]
pub(crate) struct Phase {
    pub(crate) start: Start,
    pub(crate) crowd: Crowd,
    pub(crate) think_nanos: u64,
    pub(crate) on_failure: OnFailure,
    pub(crate) steps: Vec<CompiledStep>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Start {
    At(u64),
    /// The phase starts when this many users of another phase are done.
    After {
        phase: usize,
        users_done: u64,
    },
}

#[derive(Debug)]
pub(crate) enum Crowd {
    Closed {
        users: u64,
        ramp_nanos: u64,
        repeat: u64,
        duration_nanos: u64,
    },
    Open {
        arrivals: Arrivals,
        users: u64,
    },
}

#[derive(Debug)]
pub(crate) enum CompiledStep {
    Request {
        request: Box<CompiledRequest>,
        times: u64,
        class: u16,
    },
    Pause(u64),
}

#[derive(Debug)]
pub(crate) struct CompiledRequest {
    /// The request up to its last header. The length follows if there is a body.
    pub(crate) head: Template,
    pub(crate) body: Option<Template>,
    /// The data sources that are drawn from before it.
    pub(crate) needs: Vec<usize>,
    pub(crate) statuses: Vec<u16>,
    pub(crate) contains: Option<Vec<u8>>,
    pub(crate) json: Vec<(String, serde_json::Value)>,
    pub(crate) captures: Vec<(usize, Capture)>,
    pub(crate) tries: u32,
    pub(crate) pauses_nanos: Vec<u64>,
}

impl Phase {
    pub(crate) fn users(&self) -> u64 {
        match self.crowd {
            Crowd::Closed { users, .. } | Crowd::Open { users, .. } => users,
        }
    }

    /// Returns the number of its requests, or `None` if it depends on time.
    fn requests(&self) -> Option<u64> {
        let each: u64 = self
            .steps
            .iter()
            .map(|step| {
                if let CompiledStep::Request { times, .. } = step {
                    *times
                } else {
                    0
                }
            })
            .fold(0, u64::saturating_add);
        match self.crowd {
            Crowd::Closed {
                users: 1..,
                repeat: u64::MAX,
                ..
            } => None,
            Crowd::Closed { users, repeat, .. } => Some(users.saturating_mul(repeat).saturating_mul(each)),
            Crowd::Open { users, .. } => Some(users.saturating_mul(each)),
        }
    }
}

impl Compiled {
    /// Returns the number of requests of all phases, if every user's steps are known. Retries are not included.
    pub(crate) fn requests_expected(&self) -> Option<u64> {
        let add = |sum: u64, phase: &Phase| Some(sum.saturating_add(phase.requests()?));
        self.phases.iter().try_fold(0, add)
    }
}

/// The names of a phase and their meanings.
struct Names<'a> {
    variables: &'a BTreeMap<String, f64>,
    /// The indexes of data sources by name. The phase's own come first.
    data: BTreeMap<&'a str, usize>,
    captures: &'a BTreeMap<String, usize>,
}

struct Compiler<'a> {
    file: &'a PlanFile,
    target: &'a Target,
    variables: &'a BTreeMap<String, f64>,
    out: Compiled,
    captures: BTreeMap<String, usize>,
}

/// Compiles a plan for a target. `directory` holds its CSV files.
pub(crate) fn compile(
    file: &PlanFile,
    target: &Target,
    variables: &BTreeMap<String, f64>,
    directory: Option<&Path>,
) -> Result<Compiled, String> {
    if file.phase.is_empty() {
        return Err("it has no [[phase]]".into());
    }
    if file.phase.len() > PHASES_MAX {
        return Err(format!("it has more than {PHASES_MAX} phases"));
    }
    let out = Compiled {
        phases: Vec::new(),
        data: Vec::new(),
        data_slots: Vec::new(),
        slots: 0,
        classes: Vec::new(),
        seed: file.seed,
    };
    let mut compiler = Compiler {
        file,
        target,
        variables,
        out,
        captures: BTreeMap::new(),
    };
    let global = compiler.add_data(&file.data, directory, "data")?;
    for request in file.request.values() {
        for name in request.capture.keys() {
            let next = compiler.out.slots;
            if compiler.captures.insert(name.clone(), next).is_none() {
                compiler.out.slots += 1;
            } else {
                compiler.out.slots = next;
            }
        }
    }
    for phase in &file.phase {
        let at = |reason| format!("phase `{}`: {reason}", phase.name);
        let mut data = global.clone();
        data.extend(compiler.add_data(&phase.data, directory, &format!("phase `{}`: data", phase.name))?);
        let compiled = compiler.phase(phase, data).map_err(at)?;
        compiler.out.phases.push(compiled);
    }
    Ok(compiler.out)
}

impl<'a> Compiler<'a> {
    /// Builds the data sources, those that refer to others last. Returns their names and indexes.
    fn add_data(
        &mut self,
        data: &'a BTreeMap<String, Data>,
        directory: Option<&Path>,
        place: &str,
    ) -> Result<BTreeMap<&'a str, usize>, String> {
        let mut added = BTreeMap::new();
        let (grouped, simple): (Vec<_>, Vec<_>) = data.iter().partition(|(_, data)| data.grouped.is_some());
        for (name, model) in simple.into_iter().chain(grouped) {
            let source = DataSource::new(name, model, self.variables, directory, self.file.seed, &self.out.data)
                .map_err(|reason| format!("{place} `{name}`: {reason}"))?;
            added.insert(name.as_str(), self.out.data.len());
            self.out.data_slots.push(self.out.slots);
            self.out.slots += source.fields.len();
            self.out.data.push(source);
        }
        Ok(added)
    }

    fn phase(&mut self, model: &'a PhaseModel, data: BTreeMap<&'a str, usize>) -> Result<Phase, String> {
        let start = self.start(model)?;
        let crowd = self.crowd(model)?;
        if model.steps.is_empty() {
            return Err("it has no steps".into());
        }
        let mut steps = Vec::new();
        for step in &model.steps {
            let (name, times) = match step {
                PlanStep::Pause { pause } => {
                    steps.push(CompiledStep::Pause(nanos("pause", pause)?));
                    continue;
                }
                PlanStep::Request(name) => (name, 1),
                PlanStep::Times { request, times } => (request, times.whole(self.variables)?),
            };
            let request = self.file.request.get(name).ok_or_else(|| {
                let known = values::known(self.file.request.keys().map(String::as_str));
                format!("no request `{name}`; {known}")
            })?;
            let names = Names {
                variables: self.variables,
                data: data.clone(),
                captures: &self.captures,
            };
            let request = compile_request(self.file, self.target, request, &names, &self.out)
                .map_err(|reason| format!("request `{name}`: {reason}"))?;
            let class_name = format!("{}/{name}", model.name);
            let class = self
                .out
                .classes
                .iter()
                .position(|known| *known == class_name)
                .unwrap_or_else(|| {
                    self.out.classes.push(class_name);
                    self.out.classes.len() - 1
                });
            steps.push(CompiledStep::Request {
                request: Box::new(request),
                times,
                class: class as u16,
            });
        }
        let optional = |field, text: &Option<String>| text.as_deref().map(|text| nanos(field, text)).transpose();
        let think_nanos = optional("think", &model.think)?.unwrap_or(0);
        let phase = Phase {
            start,
            crowd,
            think_nanos,
            on_failure: model.on_failure,
            steps,
        };
        let endless = matches!(phase.crowd, Crowd::Closed { repeat: u64::MAX, .. });
        if endless
            && !phase
                .steps
                .iter()
                .any(|step| matches!(step, CompiledStep::Request { times: 1.., .. }))
        {
            return Err("its users would go on for ever without a request".into());
        }
        Ok(phase)
    }

    fn start(&self, model: &PhaseModel) -> Result<Start, String> {
        if let Some(at) = &model.start.at {
            return Ok(Start::At(nanos("start.at", at)?));
        }
        let done_phases = &self.file.phase[..self.out.phases.len()];
        let after = match &model.start.after {
            Some(name) => done_phases
                .iter()
                .position(|phase| phase.name == *name)
                .ok_or_else(|| format!("it starts after `{name}`, which is no earlier phase"))?,
            None if done_phases.is_empty() => return Ok(Start::At(0)),
            None => done_phases.len() - 1,
        };
        let share = model.start.done.unwrap_or(1.0);
        if !(0.0..=1.0).contains(&share) {
            return Err(format!("`done = {share}` is no share from 0 to 1"));
        }
        let users = self.out.phases[after].users() as f64;
        Ok(Start::After {
            phase: after,
            users_done: (users * share - 1e-9).ceil() as u64,
        })
    }

    fn crowd(&self, model: &PhaseModel) -> Result<Crowd, String> {
        match (&model.users, model.arrivals.is_empty()) {
            (Some(users), true) => {
                let users = users.whole(self.variables)?;
                if users > USERS_MAX {
                    return Err(format!("{users} users are more than {USERS_MAX}"));
                }
                let optional =
                    |field, text: &Option<String>| text.as_deref().map(|text| nanos(field, text)).transpose();
                let duration_nanos = optional("for", &model.duration)?;
                let repeat = model
                    .repeat
                    .as_ref()
                    .map(|repeat| repeat.whole(self.variables))
                    .transpose()?;
                let repeat = repeat.unwrap_or(if duration_nanos.is_some() { u64::MAX } else { 1 });
                let ramp_nanos = optional("ramp", &model.ramp)?.unwrap_or(0);
                Ok(Crowd::Closed {
                    users,
                    ramp_nanos,
                    repeat,
                    duration_nanos: duration_nanos.unwrap_or(u64::MAX),
                })
            }
            (None, false) => {
                let stages: Vec<Stage> = model
                    .arrivals
                    .iter()
                    .map(|stage| self.stage(stage))
                    .collect::<Result<_, _>>()?;
                let mut arrivals = Arrivals::new(stages);
                if arrivals.expected() > 1e9 {
                    return Err("more than 1,000,000,000 arrivals".into());
                }
                if model.poisson {
                    arrivals = arrivals.poisson(self.file.seed ^ self.out.phases.len() as u64);
                }
                let users = arrivals.clone().count() as u64;
                Ok(Crowd::Open { arrivals, users })
            }
            _ => Err("give either `users` (closed model) or `arrivals` (open model)".into()),
        }
    }

    fn stage(&self, stage: &StageModel) -> Result<Stage, String> {
        let seconds = match &stage.duration {
            Amount::Formula(text) if values::duration(text).is_ok() => nanos("for", text)? as f64 / 1e9,
            amount => amount.value(self.variables)?,
        };
        let value = |amount: &Amount| amount.value(self.variables);
        let stage = match (&stage.rate, &stage.from, &stage.to) {
            (Some(rate), None, None) => Stage::constant(value(rate)?, seconds),
            (None, Some(from), Some(to)) => Stage {
                from_rate: value(from)?,
                to_rate: value(to)?,
                seconds,
            },
            _ => return Err("an arrival stage has either `rate` or `from` and `to`".into()),
        };
        if stage.from_rate < 0.0 || stage.to_rate < 0.0 || stage.seconds < 0.0 {
            return Err("rates and times cannot be negative".into());
        }
        Ok(stage)
    }
}

fn compile_request(
    file: &PlanFile,
    target: &Target,
    model: &RequestModel,
    names: &Names<'_>,
    out: &Compiled,
) -> Result<CompiledRequest, String> {
    let meaning = |name: &str| meaning(name, names, out);
    let body = model
        .body
        .as_deref()
        .map(|text| Template::parse(text, Filter::Plain, meaning))
        .transpose()?;
    let method = model.method();
    if method.is_empty() || !method.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-') {
        return Err(format!("`{method}` is no HTTP method"));
    }
    if !model.path.starts_with('/') {
        return Err(format!("the path `{}` must begin with `/`", model.path));
    }
    let mut head = Template::default();
    head.push_text(format!("{method} {}", target.path.trim_end_matches('/')).as_bytes());
    head.push(Template::parse(&model.path, Filter::Path, meaning)?);
    head.push_text(format!(" HTTP/1.1\r\nHost: {}\r\n", target.authority).as_bytes());
    let mut headers = file.headers.clone();
    headers.extend(model.headers.clone());
    let is_json = model.body.as_ref().is_some_and(|body| values::is_json(body.as_bytes()));
    if is_json && !headers.keys().any(|name| values::is_content_type(name)) {
        headers.insert("Content-Type".into(), "application/json".into());
    }
    for (name, value) in &headers {
        values::header(&format!("{name}: x"))?;
        head.push_text(format!("{name}: ").as_bytes());
        head.push(Template::parse(value, Filter::Header, meaning)?);
        head.push_text(b"\r\n");
    }
    let mut needs: Vec<usize> = head.slots().chain(body.iter().flat_map(Template::slots)).collect();
    needs = needs.iter().filter_map(|slot| owner(*slot, out)).collect();
    needs.sort_unstable();
    needs.dedup();
    let pauses = model.retry.iter().flat_map(|retry| &retry.pauses);
    Ok(CompiledRequest {
        head,
        body,
        needs,
        statuses: model.check.status.clone(),
        contains: model.check.contains.as_ref().map(|text| text.clone().into_bytes()),
        json: model.check.json.clone().into_iter().collect(),
        captures: model
            .capture
            .iter()
            .map(|(name, capture)| (names.captures[name], capture.clone()))
            .collect(),
        tries: model.retry.as_ref().map_or(1, |retry| retry.tries.max(1)),
        pauses_nanos: pauses
            .map(|pause| nanos("retry.pauses", pause))
            .collect::<Result<_, _>>()?,
    })
}

/// Returns the data source of a slot, or `None` for a capture.
fn owner(slot: usize, out: &Compiled) -> Option<usize> {
    (0..out.data.len())
        .find(|&index| (out.data_slots[index]..out.data_slots[index] + out.data[index].fields.len()).contains(&slot))
}

fn meaning(name: &str, names: &Names<'_>, out: &Compiled) -> Result<Meaning, String> {
    let (data_name, field) = name.split_once('.').unwrap_or((name, ""));
    if let Some(&index) = names.data.get(data_name) {
        let fields = &out.data[index].fields;
        let place = fields.iter().position(|known| known == field);
        let place =
            place.ok_or_else(|| format!("`{data_name}` has no field `{field}`; it has: {}", fields.join(", ")))?;
        return Ok(Meaning::Slot(out.data_slots[index] + place));
    }
    if let Some(&slot) = names.captures.get(name) {
        return Ok(Meaning::Slot(slot));
    }
    if let Some(value) = names.variables.get(name) {
        return Ok(Meaning::Constant(value.to_string()));
    }
    let known = names
        .data
        .keys()
        .copied()
        .chain(names.captures.keys().map(String::as_str));
    let known = values::known(known.chain(names.variables.keys().map(String::as_str)));
    Err(format!("`${{{name}}}` names no data, capture or variable; {known}"))
}

fn nanos(field: &str, text: &str) -> Result<u64, String> {
    values::duration(text)
        .map(|duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 4))
        .map_err(|reason| format!("`{field}`: {reason}"))
}

/// Returns true if a value that was drawn for `per` is dropped at the end of `over`.
pub(crate) fn ends_with(per: Per, over: Per) -> bool {
    let rank = |per| match per {
        Per::Request => 0,
        Per::Iteration => 1,
        Per::User => 2,
    };
    rank(per) <= rank(over)
}

/// Returns the requested samples, with the variables in their URLs unchanged.
pub(crate) fn samples(file: &PlanFile) -> &[SampleModel] {
    &file.sample
}
