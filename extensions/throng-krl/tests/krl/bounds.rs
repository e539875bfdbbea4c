//! Tests of bounds: every program ends, and no source breaks the parser.

use proptest::{collection::vec, prelude::*};
use throng_krl::testing::Pico;
use throng_krl::{ErrorKind, Limits, Value, compile, format, parse};

/// Returns a pico with a ruleset of this global and one rule with this body.
fn pico(global: &str, body: &str) -> Pico {
    let source = format!(
        "ruleset r {{ meta {{ shares q }} global {{ {global} q = function(x) {{ x }} }} rule a {{ select when a b {body} }} }}"
    );
    let ruleset = parse(&source).unwrap_or_else(|error| panic!("{error}\n{source}"));
    let program = compile(&ruleset).unwrap_or_else(|error| panic!("{error}\n{source}"));
    let mut pico = Pico::new(Limits {
        steps: 200_000,
        memory_bytes: 8 << 20,
        value_bytes: 1 << 20,
        call_depth: 200,
        effects: 100,
    });
    pico.install(program);
    pico
}

fn limit(global: &str, body: &str) -> String {
    let error = pico(global, body)
        .event("a", "b", Value::Null)
        .expect_err("the event goes on for ever");
    assert_eq!(error.kind, ErrorKind::Limit, "{error}");
    error.to_string()
}

#[test]
fn an_endless_rule_is_ended_and_names_the_bound_it_reached() {
    let recursion = "f = function(n) { f(n + 1) }";
    assert!(limit(recursion, "pre { x = f(0) }").contains("RangeError: Maximum call stack size exceeded"));
    let operators = "f = function(n) { [n].map(function(x) { f(x + 1) }) }";
    assert!(limit(operators, "pre { x = f(0) }").contains("deep"));
    assert!(limit("", "fired { raise a event \"b\" }").contains("more than 100 events"));
    let loops = "foreach 0.range(999) setting(x) foreach 0.range(999) setting(y)";
    assert!(limit("", loops).contains("more than 200000 steps"));
    let double = "f = function(s, n) { n > 0 => f(s + s, n - 1) | s }";
    assert!(limit(double, "pre { x = f(\"abcdefgh\", 100) }").contains("bytes"));
    let share = "f = function(s, n) { n > 0 => f([s, s], n - 1) | s }";
    assert!(limit(share, "pre { x = f(\"abcdefgh\", 100) }").contains("bytes"));
    let nest = "f = function(n) { n > 0 => [f(n - 1)] | n }";
    assert!(limit("", "pre { x = 0.range(5000).reduce(function(a, b) { [a] }) }").contains("nests"));
    assert!(pico(nest, "pre { x = f(150) }").event("a", "b", Value::Null).is_ok());
    assert!(
        limit(
            "",
            "pre { x = \"a\".as(\"String\").replace(re#a#, \"a\").put([0.range(500)], 1) y = {}.set(0.range(500), 1) }"
        )
        .contains("a path of 501 keys")
    );
}

#[test]
fn operators_on_collections_are_charged_for_their_work() {
    for operator in ["once", "duplicates", "unique"] {
        let calls = format!("pre {{ a = 1.range(2000) x = 1.range(40).map(function(x) {{ a.{operator}() }}) }}");
        assert!(limit("", &calls).contains("more than 200000 steps"), "{operator}");
    }
    let made = "pre { x = 1.range(30000).map(function(x) { {\"a\": x} }) }";
    assert!(limit("", made).contains("more than 200000 steps"));
}

#[test]
fn an_event_that_fails_changes_nothing() {
    let mut pico = pico(
        "",
        "if event:attrs{\"n\"} > 0 then noop() fired { ent:n := event:attrs{\"n\"} x = {} - \"a\" if ent:n > 5 }",
    );
    pico.event("a", "b", Value::map([("n", Value::Number(3.0))])).unwrap();
    let error = pico
        .event("a", "b", Value::map([("n", Value::Number(7.0))]))
        .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("TypeError: a cannot be subtracted from [Map] [at line 1 col "),
        "{error}"
    );
    assert_eq!((error.rid.as_deref(), error.rule.as_deref()), (Some("r"), Some("a")));
    assert_eq!(pico.variable("n"), Value::Number(3.0));
}

#[test]
fn too_deep_nesting_is_refused_with_its_place() {
    let deep = |open: &str, close: &str| {
        let source = format!(
            "ruleset r {{ global {{ a = {}1{} }} }}",
            open.repeat(10_000),
            close.repeat(10_000)
        );
        parse(&source).unwrap_err().to_string()
    };
    assert!(deep("(", ")").contains("nests more than 200 deep"));
    assert!(deep("[", "]").contains("nests more than 200 deep"));
    assert!(deep("function(){", "}").contains("nests more than 200 deep"));
    assert!(deep("<<#{", "}>>").contains("nests more than 200 deep"));
    assert!(deep("1+", "").contains("nests more than 200 deep"));
    assert!(deep("not ", "").contains("nests more than 200 deep"));
    assert!(deep("1=>1|", "").contains("nests more than 200 deep"));
    let events = format!("ruleset r {{ rule a {{ select when {}a b }} }}", "(".repeat(10_000));
    assert!(
        parse(&events)
            .unwrap_err()
            .to_string()
            .contains("nests more than 200 deep")
    );
    let large = format!("ruleset r {{ global {{ a = <<{}>> }} }}", "x".repeat(2 << 20));
    assert!(parse(&large).unwrap_err().to_string().contains("bytes long"));
}

#[test]
fn source_errors_name_line_column_found_and_expected() {
    for (source, message) in [
        ("rules x {}", "line 1, column 1: expected `ruleset`, found `rules`"),
        (
            "ruleset x {\n  rule a {\n    select whn a b\n  }\n}",
            "line 3, column 12: expected `when` or `where`, found `whn`",
        ),
        (
            "ruleset x { global { a = } }",
            "line 1, column 26: expected an expression, found `}`",
        ),
        (
            "ruleset x { global { a = \"b } }",
            "line 1, column 26: the string is never closed with `\"`, found `\"`",
        ),
        (
            "ruleset x { rule a { select when a } }",
            "line 1, column 36: expected `:` and the event's name, found `}`",
        ),
        (
            "ruleset x {",
            "line 1, column 12: expected `meta`, `global`, `rule` or `}`, found the end of the source",
        ),
        (
            "ruleset x { global { é = 1 } }",
            "line 1, column 22: this character means nothing here, found `é`",
        ),
    ] {
        assert_eq!(parse(source).unwrap_err().to_string(), message, "{source}");
    }
}

#[test]
fn the_compiler_reports_everything_that_is_wrong_at_once() {
    let source = "ruleset x {\n meta { shares nothing }\n global { a = b a = 1 f = function(p, p) { ursa:x() } }\n\
        rule r { select when a b foo() }\n rule r { noop() }\n rule s { select when a b pre { y = frob:x() z = math:x() } } }";
    let error = compile(&parse(source).unwrap()).unwrap_err().to_string();
    for message in [
        "line 2, column 16: Trying to share: nothing but it's not defined in global",
        "line 3, column 15: Undefined id: b",
        "line 3, column 17: Duplicate declaration: a",
        "line 3, column 39: Duplicate parameter: p",
        "the module `ursa` is not part of this engine",
        "line 4, column 26: Undefined id: foo",
        "Duplicate rule name: r",
        "rule r is missing a `select`",
        "unknown module `frob`",
        "the module `math` has no `x`",
    ] {
        assert!(error.contains(message), "{message}\n{error}");
    }
}

const PIECES: &[&str] = &[
    "ruleset a.b { ",
    "meta { ",
    "name \"n\" ",
    "shares f, g ",
    "use module m alias n with x = 1 ",
    "global { ",
    "f = ",
    "function(a, b = 2) { ",
    "return ",
    "a ",
    "b ",
    "1 ",
    ".5 ",
    "\"s\" ",
    "re#a(b)#gi ",
    "<<t #{",
    "} u>> ",
    "null ",
    "true ",
    "{\"k\": ",
    "[",
    "] ",
    "{",
    "} ",
    "( ",
    ") ",
    ", ",
    "; ",
    ".map",
    ".",
    ":",
    "ent:v ",
    "event:attrs",
    "+ ",
    "- ",
    "=> ",
    "| ",
    "|| ",
    "== ",
    "not ",
    "like ",
    "rule r { ",
    "select when ",
    "a b ",
    "a:b x re#.# setting(x) ",
    "where ",
    "before ",
    "and ",
    "any 1 (",
    "repeat 2 (",
    "max(m) ",
    "within 5 minutes ",
    "foreach ",
    "setting(x) ",
    "pre { ",
    "if ",
    "then ",
    "every { ",
    "choose ",
    "l => ",
    "noop() ",
    "send_directive(\"d\", {}) ",
    "fired { ",
    "else { ",
    "finally { ",
    "ent:v{\"k\"} := ",
    "clear ",
    "raise a event \"b\" ",
    "attributes ",
    "schedule a event \"b\" at ",
    "log info ",
    "error warn ",
    "last ",
    "on final ",
    "// c\n",
    "/* d */ ",
    "\n\n",
    "é",
    "#",
    "\\",
];

fn source() -> impl Strategy<Value = String> {
    let piece = (0..PIECES.len()).prop_map(|at| PIECES[at]);
    vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

/// Generates rulesets with an expression of some depth.
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("a".to_owned()),
        Just("-1.5".to_owned()),
        Just("\"t\\\"\"".to_owned()),
        Just("re#x#i".to_owned()),
        Just("ent:v{[\"a\", 0]}".to_owned()),
        Just("event:attrs{\"n\"}".to_owned()),
        Just("{}".to_owned()),
    ];
    leaf.prop_recursive(5, 40, 4, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone(), 0..6usize).prop_map(|(left, right, at)| {
                let operator = ["+", "-", "==", "||", "><", "cmp"][at];
                format!("({left} {operator}   {right})")
            }),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("[{a},{b}] {{ {b} }}")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{{\"k\":{a},\n\"l\": {b}}}")),
            inner.clone().prop_map(|a| format!("<<x #{{ {a} }}  y>>")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("[{a}].map(function(x){{ y={b} x+y }})")),
            (inner.clone(), inner).prop_map(|(a, b)| format!("({a} => {b} // c\n| not {a})")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn any_text_is_parsed_or_refused(text in source(), noise in any::<String>()) {
        let _ = parse(&noise);
        let _ = format(&noise);
        if let Ok(ruleset) = parse(&text) {
            let _ = compile(&ruleset);
        }
    }

    #[test]
    fn the_canonical_form_is_stable_and_means_the_same(inner in expression()) {
        let source = format!("ruleset r {{\n\nglobal {{ a=1 b={inner} }}\n }}");
        let canonical = format(&source).unwrap();
        prop_assert_eq!(&format(&canonical).unwrap(), &canonical);
        let blank = |text: &str| text.split_whitespace().collect::<String>();
        prop_assert_eq!(blank(&source), blank(&canonical));
        prop_assert!(parse(&canonical).is_ok());
    }

    #[test]
    fn whatever_runs_ends(inner in expression()) {
        let mut pico = pico("a = 1", &format!("pre {{ x = {inner} }} send_directive(\"d\", x) fired {{ ent:v := x }}"));
        for _ in 0..3 {
            let _ = pico.event("a", "b", Value::map([("n", Value::Number(1.0))]));
        }
    }
}
