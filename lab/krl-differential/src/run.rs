//! Asks both engines the same questions and compares the answers.

use crate::{
    Arguments,
    engine::{Engine, EngineAnswer},
    generate::Generator,
};
use anyhow::Context as _;
use std::{fs, path::PathBuf, time::SystemTime};

/// The expressions in one ruleset; each is the result of a function.
const BATCH: usize = 100;

/// Counts the questions to both engines, and the answers that differed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted {
    pub(crate) asked: usize,
    pub(crate) differing: usize,
    /// Both failed, with different words.
    pub(crate) in_words: usize,
}

pub(crate) struct Run {
    original: Engine,
    engine: Engine,
    directory: PathBuf,
    /// The name of this run's rulesets.
    name: String,
    rulesets: usize,
    /// The ruleset installed last. It is removed before the next one is installed.
    installed: Option<String>,
    words: bool,
    generator: Generator,
    counted: Counted,
}

impl Run {
    pub(crate) fn new(arguments: &Arguments) -> anyhow::Result<Run> {
        let directory = fs::canonicalize(&arguments.directory);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        Ok(Run {
            original: Engine::connect(&arguments.original)?,
            engine: Engine::connect(&arguments.engine)?,
            directory: directory.with_context(|| format!("the directory {}", arguments.directory.display()))?,
            name: format!("differential.r{}", now.as_millis()),
            rulesets: 0,
            installed: None,
            words: arguments.words,
            generator: Generator::new(arguments.seed),
            counted: Counted::default(),
        })
    }

    pub(crate) fn expressions(&mut self, count: usize) -> anyhow::Result<Counted> {
        let expressions: Vec<String> = (0..count).map(|_| self.generator.text("expression")).collect();
        for batch in expressions.chunks(BATCH) {
            self.batch(batch)?;
        }
        Ok(std::mem::take(&mut self.counted))
    }

    /// Asks for several expressions at once. If an engine refuses their ruleset, it asks for fewer at once.
    fn batch(&mut self, expressions: &[String]) -> anyhow::Result<()> {
        let names: Vec<String> = (0..expressions.len()).map(|place| format!("f{place}")).collect();
        let functions = names.iter().zip(expressions);
        let functions: Vec<String> = functions
            .map(|(name, expression)| format!("{name} = function() {{ {expression} }}\n"))
            .collect();
        let (names_list, functions) = (names.join(", "), functions.concat());
        let source = format!("ruleset RID {{ meta {{ shares {names_list} }} global {{\n{functions}}} }}");
        match self.install(&source, expressions.len() == 1)? {
            Some((rid, _)) => {
                for (name, expression) in names.iter().zip(expressions) {
                    self.compare(expression, |engine| engine.query(&rid, name))?;
                }
            }
            None if expressions.len() > 1 => {
                let (left, right) = expressions.split_at(expressions.len() / 2);
                self.batch(left)?;
                self.batch(right)?;
            }
            None => self.counted.asked += 1,
        }
        Ok(())
    }

    /// Sends random events to rulesets of one kind. After each event it also compares the ruleset's variables, if it has any.
    pub(crate) fn events(&mut self, kind: &str, count: usize) -> anyhow::Result<Counted> {
        for _ in 0..count {
            let source = self.generator.text(kind);
            let Some((rid, domain)) = self.install(&source, true)? else {
                continue;
            };
            for place in 0..30 {
                let (name, attributes) = (self.generator.text("name"), self.generator.text("attributes"));
                let attributes = serde_json::from_str(&attributes).context("the attributes of the grammar")?;
                let about = format!("{rid}, event {place}: {name} {attributes}");
                self.compare(&about, |engine| engine.event(&domain, &name, &attributes))?;
                if source.contains("shares all") {
                    self.compare(&format!("{about}, variables"), |engine| engine.query(&rid, "all"))?;
                }
            }
        }
        Ok(std::mem::take(&mut self.counted))
    }

    /// Installs a ruleset in both engines. Returns its id and the domain of its events.
    fn install(&mut self, source: &str, is_single: bool) -> anyhow::Result<Option<(String, String)>> {
        if let Some(rid) = self.installed.take() {
            self.original.uninstall(&rid)?;
            self.engine.uninstall(&rid)?;
        }
        self.rulesets += 1;
        let rid = format!("{}.n{}", self.name, self.rulesets);
        let domain = rid.replace('.', "_");
        let source = source.replace("RID", &rid).replace("DOMAIN", &domain);
        let path = self.directory.join(format!("{rid}.krl"));
        fs::write(&path, &source).with_context(|| path.display().to_string())?;
        let url = format!("file://{}", path.display());
        let [original, engine] = [self.original.install(&url)?, self.engine.install(&url)?];
        if original.is_some() != engine.is_some() && is_single {
            self.counted.differing += 1;
            println!("{source}\n  original: {original:?}\n  engine:   {engine:?}");
        }
        self.installed = Some(rid.clone());
        Ok((original.is_none() && engine.is_none()).then_some((rid, domain)))
    }

    fn compare(&mut self, about: &str, ask: impl Fn(&Engine) -> anyhow::Result<EngineAnswer>) -> anyhow::Result<()> {
        let [original, engine] = [ask(&self.original)?, ask(&self.engine)?];
        self.counted.asked += 1;
        if original == engine {
            return Ok(());
        }
        let in_words = matches!((&original, &engine), (EngineAnswer::Error(_), EngineAnswer::Error(_)));
        self.counted.in_words += usize::from(in_words);
        self.counted.differing += usize::from(!in_words);
        if !in_words || self.words {
            println!("{about}\n  original: {original}\n  engine:   {engine}");
        }
        Ok(())
    }
}
