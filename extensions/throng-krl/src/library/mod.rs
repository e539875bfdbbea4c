//! The standard library: operators, and the modules `math`, `random` and `time`.

mod arrays;
mod bits;
mod collections;
mod general;
mod maps;
mod math;
mod random;
mod replace;
mod sets;
mod sort;
mod strftime;
mod text;
mod time;

pub(crate) use time::timestamp_ms;

use crate::host::{Arguments, Interrupt};
use crate::run::Run;
use crate::{Error, Value};

type Result<T> = std::result::Result<T, Interrupt>;

/// An operator, as an index into the table of operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operator(u8);

/// The arguments of an operator.
struct Given {
    values: Vec<Value>,
}

impl Given {
    /// Returns the number of arguments. Nulls count, omitted ones do not.
    fn count(&self) -> usize {
        self.values.len()
    }

    fn get(&self, place: usize) -> &Value {
        static NULL: Value = Value::Null;
        self.values.get(place).unwrap_or(&NULL)
    }

    fn take(&mut self, place: usize) -> Value {
        self.values.get_mut(place).map(std::mem::take).unwrap_or_default()
    }
}

struct Definition {
    name: &'static str,
    parameters: &'static [&'static str],
    kind: Kind,
    run: fn(&mut Run<'_>, Given) -> Result<Value>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The result may be a new value.
    Makes,
    /// The result exists already or is small.
    Finds,
    /// An operator without effect, as an action or a function.
    Noop,
    /// An action that the compiler handles itself.
    Action,
}

const fn makes(
    name: &'static str,
    parameters: &'static [&'static str],
    run: fn(&mut Run<'_>, Given) -> Result<Value>,
) -> Definition {
    Definition {
        name,
        parameters,
        kind: Kind::Makes,
        run,
    }
}

const fn finds(
    name: &'static str,
    parameters: &'static [&'static str],
    run: fn(&mut Run<'_>, Given) -> Result<Value>,
) -> Definition {
    Definition {
        name,
        parameters,
        kind: Kind::Finds,
        run,
    }
}

static OPERATORS: &[Definition] = &[
    finds("-", &["left"], general::negate),
    makes("as", &["val", "type"], general::convert),
    finds("isnull", &["val"], general::is_null),
    makes("typeof", &["val"], general::type_of),
    finds("klog", &["val", "message"], general::klog),
    makes("sprintf", &["val", "template"], general::sprintf),
    finds("defaultsTo", &["val", "defaultVal", "message"], general::defaults_to),
    makes("decode", &["val"], general::decode),
    makes("encode", &["val", "indent"], general::encode),
    finds("shiftRight", &["left", "right"], bits::shift_right),
    finds("shiftLeft", &["left", "right"], bits::shift_left),
    finds("band", &["left", "right"], bits::and),
    finds("bor", &["left", "right"], bits::or),
    finds("bxor", &["left", "right"], bits::exclusive_or),
    finds("bnot", &["left"], bits::not),
    makes("chr", &["val"], text::chr),
    makes("range", &["val", "end"], general::range),
    makes("capitalize", &["val"], text::capitalize),
    makes("extract", &["val", "regex"], text::extract),
    makes("lc", &["val"], text::lower_case),
    makes("uc", &["val"], text::upper_case),
    finds("match", &["val", "regex"], text::matches),
    finds("ord", &["val"], text::ord),
    makes("split", &["val", "splitOn"], text::split),
    makes("substr", &["val", "start", "len"], text::substr),
    makes("trimLeading", &["val"], text::trim_leading),
    makes("trimTrailing", &["val"], text::trim_trailing),
    makes("trim", &["val"], text::trim),
    finds("startsWith", &["val", "target"], text::starts_with),
    finds("endsWith", &["val", "target"], text::ends_with),
    finds("contains", &["val", "target"], text::contains),
    makes("replace", &["val", "regex", "replacement"], replace::replace),
    finds("all", &["val", "iter"], collections::all),
    finds("notall", &["val", "iter"], collections::not_all),
    finds("any", &["val", "iter"], collections::any),
    finds("none", &["val", "iter"], collections::none),
    makes("collect", &["val", "iter"], collections::collect),
    makes("filter", &["val", "iter"], collections::filter),
    makes("map", &["val", "iter"], collections::map),
    makes("pairwise", &["val", "iter"], collections::pairwise),
    finds("reduce", &["val", "iter", "dflt"], collections::reduce),
    makes("append", &["val", "a", "b", "c", "d", "e"], arrays::append),
    finds("head", &["val"], arrays::head),
    makes("tail", &["val"], arrays::tail),
    finds("index", &["val", "elm"], arrays::index),
    makes("join", &["val", "str"], arrays::join),
    finds("length", &["val"], arrays::length),
    finds("isEmpty", &["val"], arrays::is_empty),
    makes("reverse", &["val"], arrays::reverse),
    makes("slice", &["val", "start", "end"], arrays::slice),
    makes("splice", &["val", "start", "nElements", "value"], arrays::splice),
    makes("sort", &["val", "sortBy"], sort::sort),
    makes("intersection", &["a", "b"], sets::intersection),
    makes("union", &["a", "b"], sets::union),
    makes("difference", &["a", "b"], sets::difference),
    finds("has", &["val", "other"], sets::has),
    makes("once", &["val"], sets::once),
    makes("duplicates", &["val"], sets::duplicates),
    makes("unique", &["val"], sets::unique),
    makes("keys", &["val", "path"], maps::keys),
    makes("values", &["val", "path"], maps::values),
    finds("get", &["obj", "path"], maps::get),
    makes("set", &["obj", "path", "val"], maps::set),
    makes("put", &["val", "path", "toSet"], maps::put),
    makes("delete", &["val", "path"], maps::delete),
    Definition {
        name: "noop",
        parameters: &[],
        kind: Kind::Noop,
        run: |_, _| Ok(Value::Null),
    },
    Definition {
        name: "send_directive",
        parameters: &["name", "options"],
        kind: Kind::Action,
        run: |_, _| Err(Error::type_error("[Action] is not a function").into()),
    },
];

impl Operator {
    /// Returns the operator of this name, if the library has one.
    pub(crate) fn of(name: &str) -> Option<Operator> {
        let place = OPERATORS.iter().position(|definition| definition.name == name)?;
        u8::try_from(place).ok().map(Operator)
    }

    fn definition(self) -> &'static Definition {
        &OPERATORS[usize::from(self.0)]
    }

    pub(crate) fn type_name(self) -> &'static str {
        match self.definition().kind {
            Kind::Noop => "ActionFunction",
            Kind::Action => "Action",
            _ => "Function",
        }
    }

    pub(crate) fn parameters(self) -> &'static [&'static str] {
        self.definition().parameters
    }

    /// True if the result counts as a new value.
    pub(crate) fn makes_values(self) -> bool {
        self.definition().kind == Kind::Makes
    }

    pub(crate) fn run(self, run: &mut Run<'_>, arguments: Vec<Value>) -> Result<Value> {
        (self.definition().run)(run, Given { values: arguments })
    }
}

/// A function of this crate's modules, as an index into the table of functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModuleFunction(u8);

struct ModuleDefinition {
    domain: &'static str,
    name: &'static str,
    run: fn(&mut Run<'_>, &Arguments) -> Result<Value>,
}

const fn function(
    domain: &'static str,
    name: &'static str,
    run: fn(&mut Run<'_>, &Arguments) -> Result<Value>,
) -> ModuleDefinition {
    ModuleDefinition { domain, name, run }
}

static MODULES: &[ModuleDefinition] = &[
    function("math", "abs", math::abs),
    function("math", "ceiling", math::ceiling),
    function("math", "floor", math::floor),
    function("math", "int", math::int),
    function("math", "round", math::round),
    function("math", "base64encode", math::base64_encode),
    function("math", "base64decode", math::base64_decode),
    function("math", "hash", math::hash),
    function("math", "hmac", math::hmac),
    function("math", "hashAlgorithms", math::hash_algorithms),
    function("math", "hashFunctions", math::hash_algorithms),
    function("random", "uuid", random::uuid),
    function("random", "word", random::word),
    function("random", "integer", random::integer),
    function("random", "number", random::number),
    function("time", "now", time::now),
    function("time", "new", time::new),
    function("time", "add", time::add),
    function("time", "strftime", time::strftime),
];

impl ModuleFunction {
    /// Returns the function of this name in a module. Fails if this crate has no such module.
    pub(crate) fn of(domain: &str, name: &str) -> std::result::Result<Option<ModuleFunction>, ()> {
        if !MODULES.iter().any(|function| function.domain == domain) {
            return Err(());
        }
        let place = MODULES
            .iter()
            .position(|function| function.domain == domain && function.name == name);
        Ok(place.and_then(|place| u8::try_from(place).ok()).map(ModuleFunction))
    }

    pub(crate) fn run(self, run: &mut Run<'_>, arguments: &Arguments) -> Result<Value> {
        (MODULES[usize::from(self.0)].run)(run, arguments)
    }
}
