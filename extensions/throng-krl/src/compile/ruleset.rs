use super::function::is_function;
use super::scope::Group;
use super::{Code, Compiler, Operation};
use crate::library::Operator;
use crate::program::{Global, GlobalKind, Meta, ModuleUse, RuleProgram};
use crate::syntax::ast::{Declaration, Expression, ExpressionKind, MetaKind, Name, Rule, Use};
use crate::value::Value;
use crate::{Program, Ruleset};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The generated global that lists the queries and events for trying out a ruleset.
const TESTING: &str = "__testing";

type Dispatch = HashMap<Box<str>, HashMap<Box<str>, Vec<u16>>>;

impl Compiler {
    pub(super) fn ruleset(&mut self, ruleset: &Ruleset) -> Program {
        let mut meta = Meta::default();
        let (mut shares, mut provides) = (Vec::new(), Vec::new());
        let mut configured = Vec::new();
        for property in &ruleset.meta {
            self.location = property.location;
            match &property.kind {
                MetaKind::Text { key, value } => self.meta_text(&mut meta, key, value),
                MetaKind::Ignored { key } if &**key == "logging" => {
                    self.warn(
                        property.location,
                        "DEPRECATED meta.logging is no longer needed, logging is always on",
                    );
                }
                MetaKind::Ignored { key } => {
                    self.warn(property.location, format!("`{key}` has no meaning in this engine"));
                }
                MetaKind::Use(used) => self.use_module(used),
                MetaKind::Configure(declarations) => configured.extend(declarations),
                MetaKind::Shares(names) => shares.extend(names),
                MetaKind::Provides(names) => provides.extend(names),
            }
        }
        self.globals(&configured, &ruleset.global);
        self.configurations(ruleset);
        self.rules(&ruleset.rules);
        let (dispatch, any_event) = dispatch(&self.rules);
        let shares = self.exported(&shares, "share");
        let provides = self.exported(&provides, "provide");
        let queries: Vec<_> = shares
            .iter()
            .map(|(name, global)| (Arc::clone(name), self.parameters_of(*global)))
            .collect();
        Program {
            rid: Arc::clone(&ruleset.rid.text),
            meta,
            warnings: std::mem::take(&mut self.warnings),
            testing: self.testing.value(&queries),
            codes: std::mem::take(&mut self.codes),
            constants: std::mem::take(&mut self.constants),
            shapes: std::mem::take(&mut self.shapes),
            groups: std::mem::take(&mut self.groups),
            globals: std::mem::take(&mut self.globals),
            uses: std::mem::take(&mut self.uses),
            references: std::mem::take(&mut self.references),
            rules: std::mem::take(&mut self.rules),
            dispatch,
            any_event,
            shares,
            provides,
        }
    }

    fn meta_text(&mut self, meta: &mut Meta, key: &str, value: &Expression) {
        let text = match &value.kind {
            ExpressionKind::String(text) => Some(Arc::clone(text)),
            ExpressionKind::Chevron(parts) => {
                let parts = parts.iter().map(|part| match &part.kind {
                    ExpressionKind::String(text) => Some(&**text),
                    _ => None,
                });
                parts.collect::<Option<String>>().map(Arc::from)
            }
            _ => None,
        };
        if text.is_none() {
            self.error(value.location, format!("meta.{key} has to be a plain text"));
        }
        let property = match key {
            "name" => &mut meta.name,
            "version" => &mut meta.version,
            "description" => &mut meta.description,
            _ => &mut meta.author,
        };
        if property.is_some() {
            self.error(value.location, format!("only 1 meta.{key} allowed"));
        } else {
            *property = text;
        }
    }

    fn use_module(&mut self, used: &Use) {
        let alias = used.alias.as_ref().unwrap_or(&used.rid);
        if self.uses.iter().any(|known| known.alias == alias.text) {
            self.error(alias.location, format!("two modules are called `{}`", alias.text));
        }
        self.uses.push(ModuleUse {
            rid: Arc::clone(&used.rid.text),
            alias: Arc::clone(&alias.text),
            configuration: None,
        });
    }

    /// Compiles the configurations of the used modules. Their values belong to this ruleset.
    fn configurations(&mut self, ruleset: &Ruleset) {
        let used = ruleset.meta.iter().filter_map(|property| match &property.kind {
            MetaKind::Use(used) => Some(used),
            _ => None,
        });
        for (place, used) in used.enumerate() {
            if used.with.is_empty() {
                continue;
            }
            let code = self.code(&[], |compiler| {
                for declaration in &used.with {
                    compiler.expression(&declaration.value);
                }
                let keys = used
                    .with
                    .iter()
                    .map(|declaration| Some(Arc::clone(&declaration.name.text)));
                let shape = compiler.shape(keys.collect());
                compiler.emit(Operation::Map(shape));
            });
            self.uses[place].configuration = Some(code);
        }
    }

    // --- globals ---------------------------------------------------------------------------------------------------------

    fn globals(&mut self, configured: &[&Declaration], declarations: &[Declaration]) {
        self.report_duplicates(declarations);
        for declaration in configured {
            self.declare(&declaration.name, "");
        }
        for declaration in declarations {
            self.declare(&declaration.name, type_of(&declaration.value));
        }
        // Up to the ruleset's own declaration, `__testing` is the generated value.
        let own_testing = self.declare_testing();
        for (place, declaration) in configured.iter().enumerate() {
            let code = self.code(&[], |compiler| compiler.expression(&declaration.value));
            self.globals[place].kind = GlobalKind::Configured(code);
        }
        for (place, declaration) in declarations.iter().enumerate() {
            let kind = self.global(declaration);
            self.globals[configured.len() + place].kind = kind;
            if let Some(own) = own_testing.filter(|_| &*declaration.name.text == TESTING) {
                self.global_names.insert(Arc::from(TESTING), own);
            }
        }
    }

    /// Declares the generated `__testing`. Returns the place of the ruleset's own one, if it declares one.
    fn declare_testing(&mut self) -> Option<u16> {
        let name: Arc<str> = Arc::from(TESTING);
        let place = self.place(self.globals.len(), "globals");
        self.global_types.push("Map");
        self.globals.push(Global {
            name: Arc::clone(&name),
            kind: GlobalKind::Testing,
        });
        self.global_names.insert(name, place)
    }

    fn declare(&mut self, name: &Name, type_name: &'static str) {
        let place = self.place(self.globals.len(), "globals");
        self.global_names.insert(Arc::clone(&name.text), place);
        self.global_types.push(type_name);
        self.globals.push(Global {
            name: Arc::clone(&name.text),
            kind: GlobalKind::Constant(Value::Null),
        });
    }

    fn global(&mut self, declaration: &Declaration) -> GlobalKind {
        let value = &declaration.value;
        match &value.kind {
            ExpressionKind::String(text) => GlobalKind::Constant(Value::String(Arc::clone(text))),
            ExpressionKind::Number(number) => GlobalKind::Constant(Value::Number(*number)),
            ExpressionKind::Boolean(boolean) => GlobalKind::Constant(Value::Boolean(*boolean)),
            ExpressionKind::Null => GlobalKind::Constant(Value::Undefined),
            _ if is_function(value) => {
                let code = self.reserve_code();
                self.function_code(code, value, Group::default());
                GlobalKind::Function(code)
            }
            _ => {
                let code = self.code(&[], |compiler| compiler.expression(value));
                GlobalKind::Lazy(code)
            }
        }
    }

    fn exported(&mut self, names: &[&Name], verb: &str) -> Vec<(Arc<str>, u16)> {
        let mut exported: Vec<(Arc<str>, u16)> = Vec::new();
        for name in names {
            let Some(global) = self.global_names.get(&name.text).copied() else {
                let message = format!("Trying to {verb}: {} but it's not defined in global", name.text);
                match Operator::of(&name.text) {
                    // The original treats such a name as defined.
                    Some(_) => self.warn(name.location, message),
                    None => self.error(name.location, message),
                }
                continue;
            };
            if verb == "share" && self.global_types.get(usize::from(global)) == Some(&"Action") {
                self.error(name.location, format!("Actions must not be shared: {}", name.text));
            }
            if exported.iter().all(|(known, _)| *known != name.text) {
                exported.push((Arc::clone(&name.text), global));
            }
        }
        exported
    }

    fn parameters_of(&self, global: u16) -> Vec<Arc<str>> {
        let code = match self.globals.get(usize::from(global)).map(|global| &global.kind) {
            Some(GlobalKind::Function(code)) => self.codes.get(*code as usize),
            _ => None,
        };
        code.map_or_else(Vec::new, |code: &Code| code.parameters.clone())
    }

    // --- rules -----------------------------------------------------------------------------------------------------------

    fn rules(&mut self, rules: &[Rule]) {
        let mut names = HashSet::new();
        for rule in rules {
            if !names.insert(&rule.name.text) {
                self.error(rule.name.location, format!("Duplicate rule name: {}", rule.name.text));
            }
            let program = self.rule(rule);
            self.rules.extend(program);
        }
        self.place(self.rules.len(), "rules");
    }
}

/// Returns the rules for each domain and name, and the rules that any event concerns.
fn dispatch(rules: &[RuleProgram]) -> (Dispatch, Vec<u16>) {
    let mut dispatch = Dispatch::new();
    let mut any_event = Vec::new();
    for (place, rule) in rules.iter().enumerate() {
        let place = u16::try_from(place).unwrap_or(u16::MAX);
        for pattern in &rule.patterns {
            if pattern.is_any {
                any_event.push(place);
                continue;
            }
            let names = dispatch.entry((&*pattern.domain).into()).or_default();
            let places = names.entry((&*pattern.name).into()).or_default();
            if places.last() != Some(&place) {
                places.push(place);
            }
        }
    }
    (dispatch, any_event)
}

/// Returns the type of a global if its source shows it; empty if only a run does.
fn type_of(value: &Expression) -> &'static str {
    match &value.kind {
        ExpressionKind::Function(_) => "Function",
        ExpressionKind::Action(_) => "Action",
        ExpressionKind::String(_) | ExpressionKind::Chevron(_) => "String",
        ExpressionKind::Number(_) => "Number",
        ExpressionKind::Boolean(_) => "Boolean",
        ExpressionKind::Null => "Null",
        ExpressionKind::Regex(_) => "RegExp",
        ExpressionKind::Array(_) => "Array",
        ExpressionKind::Map(_) => "Map",
        _ => "",
    }
}
