//! Values compared with pico-engine 1.4, from which each table was recorded.

use throng_krl::testing::Pico;
use throng_krl::{Program, Value, compile, parse};

fn program(source: &str) -> Program {
    let ruleset = parse(source).unwrap_or_else(|error| panic!("{error}\n{source}"));
    compile(&ruleset).unwrap_or_else(|error| panic!("{error}\n{source}"))
}

fn pico(source: &str) -> Pico {
    let mut pico = Pico::default();
    pico.install(program(source));
    pico
}

/// Returns the answer of a query as JSON, or the error.
fn asked(pico: &mut Pico, name: &str) -> String {
    match pico.query(name, Value::Null) {
        Ok(value) => value.to_json(),
        Err(error) => error.message,
    }
}

/// Checks the value of each expression.
fn expect(table: &[(&str, &str)]) {
    let mut wrong = Vec::new();
    for (expression, expected) in table {
        let mut pico = pico(&format!(
            "ruleset r {{ meta {{ shares q }} global {{ q = function() {{ {expression} }} }} }}"
        ));
        let found = asked(&mut pico, "q");
        if found != *expected {
            wrong.push(format!("{expression}\n  is       {found}\n  expected {expected}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Runs each statement in a rule, then checks the variable `x`.
fn expect_after(table: &[(&str, &str)]) {
    let mut wrong = Vec::new();
    for (statements, expected) in table {
        let mut pico = pico(&format!(
            "ruleset r {{ rule a {{ select when a b always {{ {statements} }} }} }}"
        ));
        pico.event("a", "b", Value::Null).unwrap();
        let found = pico.variable("x").to_json();
        if found != *expected {
            wrong.push(format!("{statements}\n  leaves   {found}\n  expected {expected}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn time_add_adds_months_then_days_then_hours() {
    expect(&[
        (
            r#"time:add("2016-10-31",{"months":-1,"days":2})"#,
            r#""2016-10-02T00:00:00.000Z""#,
        ),
        (
            r#"time:add("2016-10-31",{"weeks":-1,"days":1})"#,
            r#""2016-10-25T00:00:00.000Z""#,
        ),
        (
            r#"time:add("2016-10-31",{"years":-1,"hours":3})"#,
            r#""2015-10-31T03:00:00.000Z""#,
        ),
        (
            r#"time:add("2016-10-31T12:00:00Z",{"months":1,"hours":-3})"#,
            r#""2016-11-30T09:00:00.000Z""#,
        ),
        (
            r#"time:add("2016-10-31T12:00:00Z",{"years":1,"months":-13,"days":5,"minutes":-61})"#,
            r#""2016-10-05T10:59:00.000Z""#,
        ),
        (
            r#"time:add("2016-02-29T12:00:00Z",{"years":1,"days":-1})"#,
            r#""2017-02-27T12:00:00.000Z""#,
        ),
    ]);
}

#[test]
fn time_add_rounds_sums_of_units_away_from_zero() {
    expect(&[
        (
            r#"time:add("2016-10-31T12:00:00Z",{"days":1.4})"#,
            r#""2016-11-01T12:00:00.000Z""#,
        ),
        (
            r#"time:add("2016-10-31T12:00:00Z",{"days":-1.5})"#,
            r#""2016-10-29T12:00:00.000Z""#,
        ),
        (
            r#"time:add("2016-10-31T12:00:00Z",{"weeks":0.5})"#,
            r#""2016-11-04T12:00:00.000Z""#,
        ),
        (
            r#"time:add("2016-10-31T12:00:00Z",{"months":-1.5})"#,
            r#""2016-08-31T12:00:00.000Z""#,
        ),
        (
            r#"time:add("2016-10-31T12:00:00Z",{"years":0.3,"months":0.4})"#,
            r#""2017-02-28T12:00:00.000Z""#,
        ),
        (
            r#"time:add("2016-10-31T12:00:00Z",{"quarters":0.5})"#,
            r#""2016-12-31T12:00:00.000Z""#,
        ),
        (
            r#"time:add("2016-10-31T12:00:00Z",{"milliseconds":-1.5})"#,
            r#""2016-10-31T11:59:59.998Z""#,
        ),
    ]);
}

#[test]
fn time_add_knows_the_names_of_units() {
    expect(&[
        (
            r#"time:add("2016-10-31T12:00:00Z",{"days":1,"d":5})"#,
            r#""2016-11-05T12:00:00.000Z""#,
        ),
        (
            r#"time:add("2016-10-31T12:00:00Z",{"Days":1})"#,
            r#""2016-11-01T12:00:00.000Z""#,
        ),
        (
            r#"time:add("2016-10-31T12:00:00Z",{"isoWeeks":1})"#,
            r#""2016-11-07T12:00:00.000Z""#,
        ),
        (
            r#"time:add("2016-10-31T12:00:00Z",{"W":1})"#,
            r#""2016-11-07T12:00:00.000Z""#,
        ),
        (
            r#"time:add("2016-10-31T12:00:00Z",{"m":1,"M":1})"#,
            r#""2016-11-30T12:01:00.000Z""#,
        ),
        (
            r#"time:add("2016-10-31T12:00:00Z",{"D":1,"bogus":1})"#,
            r#""2016-10-31T12:00:00.000Z""#,
        ),
        (
            r#"time:add("2016-10-31T12:00:00Z",{"days":"x"})"#,
            r#""2016-10-31T12:00:00.000Z""#,
        ),
        (r#"time:add("2016-10-31T12:00:00Z",{"days":100000000})"#, "null"),
    ]);
}

#[test]
fn strftime_writes_every_directive() {
    let all = r#"time:strftime("2016-10-31T01:02:03.045Z","%A|%B|%C|%D|%F|%H|%I|%L|%M|%P|%R|%S|%T|%U|%W|%X|%Y|%Z|%a|%b|%d|%e|%h|%j|%k|%l|%m|%n|%o|%p|%r|%s|%t|%u|%v|%w|%x|%y|%z|%:z|%%")"#;
    let padded = r#"time:strftime("2016-01-03T13:02:03.045Z","%-d|%_d|%0d|%-H|%_H|%-I|%_I|%-m|%_m|%-e|%0e|%-k|%0k|%-l|%0l|%_l|%-y|%-U|%-W|%U|%W|%-L|%C|%-C|%-M|%-S|%p|%P|%r|%l|%I")"#;
    expect(&[
        (
            all,
            r#""Monday|October|20|10/31/16|2016-10-31|01|01|045|02|am|01:02|03|01:02:03|44|44|01:02:03 AM|2016|Coordinated Universal Time|Mon|Oct|31|31|Oct|305| 1| 1|10|\n|31st|AM|01:02:03 AM|1477875723|\t|1|31-Oct-2016|1|10/31/16|16|+0000|+00:00|%""#,
        ),
        (
            padded,
            r#""3| 3|03|13|13|1| 1|1| 1|3|03|13|13|1|01| 1|16|1|0|01|00|045|20|20|2|3|PM|pm|01:02:03 PM| 1|01""#,
        ),
        (
            r#"time:strftime("2016-10-31T01:02:03.045Z","%c")"#,
            r#""Mon 31 Oct 2016 01:02:03 AM Coordinated Universal Time""#,
        ),
        (r#"time:strftime("2017-01-01","%U %W %w %u")"#, r#""01 00 0 7""#),
        (r#"time:strftime("2018-01-07","%U %W %w %u")"#, r#""01 01 0 7""#),
        (r#"time:strftime("0016-01-03T13:02:03Z","%Y %y %C")"#, r#""16 16 00""#),
        (r#"time:strftime("2016-01-21","%o %y")"#, r#""21st 16""#),
    ]);
}

#[test]
fn strftime_keeps_text_that_is_no_directive() {
    expect(&[
        (
            r#"time:strftime("2016-10-31T01:02:03.045Z","%E|%G|%N|%V|%f|%q|%!|% |%1|%.3|%3N")"#,
            r#""%E|%G|%N|%V|%f|%q|%!|% |%1|%.3|%3N""#,
        ),
        (r#"time:strftime("2016-01-03","abc %")"#, r#""abc ""#),
        (r#"time:strftime("2016-01-03","abc %-")"#, r#""abc ""#),
        (r#"time:strftime("2016-01-03","ü%Yé%é")"#, r#""ü2016é%é""#),
        (
            r#"time:strftime("2016-01-03","%-_0:d %::z %z")"#,
            r#""03 +00:00 +00:00""#,
        ),
    ]);
}

#[test]
fn quantifiers_need_a_function_only_for_items() {
    expect(&[
        ("[].any()", "false"),
        ("[].all()", "true"),
        ("[].none()", "true"),
        ("[].notall()", "false"),
        ("{}.any()", "false"),
        ("[].any(5)", "false"),
        ("[0].any()", "null is not a function"),
        ("5.any()", "only works on collections"),
    ]);
}

#[test]
fn order_and_ranges_are_those_of_the_original() {
    expect(&[
        ("[3,1,2].sort(function(x,y){null})", "[2,1,3]"),
        ("[3,1,2].sort(function(x,y){x <=> y})", "[1,2,3]"),
        ("[3,1,2].sort(function(x,y){x > y})", "[1,2,3]"),
        (r#"[3,1,2,5,4].sort(function(x,y){"a"})"#, "[4,5,2,1,3]"),
        ("[3,1,2,5,4].sort(function(x,y){false})", "[3,1,2,5,4]"),
        ("0.000001.range(10)[8]", "8.000001000000001"),
    ]);
}

#[test]
fn substr_without_a_start_is_the_text() {
    expect(&[
        ("255.substr()", r#""255""#),
        ("[1,2].substr()", r#""[Array]""#),
        ("null.substr()", r#""null""#),
        ("{}.substr()", r#""[Map]""#),
        ("12345.substr(2)", r#""345""#),
    ]);
}

#[test]
fn math_of_no_number_is_null() {
    expect(&[
        (r#"math:abs("x")"#, "null"),
        (r#"math:abs("-5")"#, "5"),
        ("math:abs(null)", "null"),
        ("math:abs(true)", "1"),
        ("math:abs([3])", "3"),
        ("math:abs([1,2])", "null"),
        ("math:abs({})", "null"),
        (r#"math:abs("")"#, "0"),
        ("math:abs(function(){1})", "null"),
        ("math:floor(null)", "null"),
        (r#"math:floor("x")"#, "null"),
        (r#"math:floor("1.55",1)"#, "1.5"),
        ("math:floor([2.5])", "2"),
        ("math:floor(1555,-2)", "1500"),
        ("math:ceiling(null)", "null"),
        ("math:round(re#a#)", "null"),
        ("math:round()", "null"),
        ("math:round(1.005,2)", "1.01"),
        ("math:int({})", "null"),
        (r#"math:int("-5.5")"#, "-5"),
    ]);
}

#[test]
fn path_without_keys_leads_nowhere() {
    expect(&[
        ("[1,2]{[]}", "null"),
        (r#"{"a":1}{[]}"#, "null"),
        ("5{[]}", "null"),
        ("[1,2].get([])", "null"),
        (r#"{"a":1}.keys([])"#, "[]"),
        (r#"{"a":1}.put([],1)"#, "1"),
        (r#"{"a":1}.set([],1)"#, r#"{"a":1}"#),
        (r#"{"a":1}.delete([])"#, r#"{"a":1}"#),
    ]);
    expect_after(&[
        ("ent:x := [1,2]; ent:x{[]} := 3", "[1,2]"),
        (r#"ent:x := {"a":1}; ent:x{[]} := 3"#, r#"{"a":1}"#),
        ("ent:x{[]} := 3", "{}"),
        (r#"ent:x := {"a":5}; clear ent:x{[]}"#, r#"{"a":5}"#),
        (r#"ent:y := {"a":5}; ent:x := [ent:y{[]}]"#, "[null]"),
    ]);
}

#[test]
fn array_keeps_nothing_at_a_key_that_is_no_index() {
    expect(&[
        (r#"[1,2].put("a",1)"#, "[1,2]"),
        (r#"[1,2].put(["a","b"],1)"#, "[1,2]"),
        ("[1,2].put([0],5)", "[5,2]"),
        ("[1,2].put([5],5)", "[1,2,null,null,null,5]"),
        (r#"[1,2].put(["-1"],5)"#, "[1,2]"),
        (r#"[1,2].put("a",1).put("0",3)"#, "[3,2]"),
        (r#"[1,2].set("a",1)"#, "[1,2]"),
        (r#"[1,2].set(["a","b"],1)"#, "[1,2]"),
        (r#"[1,2].set(["0","b"],1)"#, r#"[{"b":1},2]"#),
        (r#"{"x":[1,2]}.set(["x","a","b"],1)"#, r#"{"x":[1,2]}"#),
        (r#"{"x":[1,2]}.put(["x","1abc"],1)"#, r#"{"x":[1,2]}"#),
        // But `put` turns an array on the way into a map if it has no such index.
        (r#"{"x":[1,2]}.put(["x","a"],1)"#, r#"{"x":{"0":1,"1":2,"a":1}}"#),
        (r#"[[1,2]].put([0,"a","b"],1)"#, r#"[{"0":1,"1":2,"a":{"b":1}}]"#),
        (r#"{"x":[1,2]}.put(["x",2],1)"#, r#"{"x":[1,2,1]}"#),
        (r#"{"x":[1,2]}.put(["x",3],1)"#, r#"{"x":{"0":1,"1":2,"3":1}}"#),
    ]);
    expect_after(&[
        (r#"ent:x := [1,2]; ent:x{["a"]} := 3"#, "[1,2]"),
        (r#"ent:x := [1,2]; ent:x{"a"} := 3"#, "[1,2]"),
        ("ent:x := [1,2]; ent:x{[5]} := 3", "[1,2,null,null,null,3]"),
        (r#"ent:x := {"a":[1]}; ent:x{["a","b","c"]} := 3"#, r#"{"a":[1]}"#),
        (
            r#"ent:x := {"a":5}; ent:x{["a","b","c"]} := 3"#,
            r#"{"a":{"b":{"c":3}}}"#,
        ),
        (r#"ent:x{["0","y"]} := 3"#, r#"{"0":{"y":3}}"#),
    ]);
}

#[test]
fn numbers_have_one_text_everywhere() {
    expect(&[
        (
            "[10000000000000000, 100000000000000000000]",
            "[10000000000000000,100000000000000000000]",
        ),
        ("9007199254740993", "9007199254740992"),
        ("1152921504606846976", "1152921504606847000"),
        ("0.000001", "0.000001"),
        ("0.0000001", "1e-7"),
        ("1000000000000000000000", "1e+21"),
        (
            "[0.000001, 10000000000000000].encode()",
            r#""[0.000001,10000000000000000]""#,
        ),
        ("1000000000000000000000.encode() + 0.0000001.encode()", r#""1e+211e-7""#),
        (
            r#"1000000000000000000000.encode() == 1000000000000000000000.as("String")"#,
            "true",
        ),
        (
            r#"{"a":[1,{}],"b":[]}.encode(2)"#,
            r#""{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": []\n}""#,
        ),
    ]);
}

#[test]
fn own_testing_may_use_the_generated_one() {
    let source = r#"ruleset r {
        meta { shares before, hello }
        global {
            before = __testing
            hello = function(name) { name }
            __testing = {"queries": [{"name": "joke"}], "event": __testing["events"]}
        }
        rule a { select when say hello pre { name = event:attrs{"name"} } }
    }"#;
    let mut pico = pico(source);
    let events = r#"[{"domain":"say","name":"hello","attrs":["name"]}]"#;
    assert_eq!(
        asked(&mut pico, "__testing"),
        format!(r#"{{"queries":[{{"name":"joke"}}],"event":{events}}}"#)
    );
    assert_eq!(
        asked(&mut pico, "before"),
        format!(
            r#"{{"queries":[{{"name":"before","args":[]}},{{"name":"hello","args":["name"]}}],"events":{events}}}"#
        )
    );
}

#[test]
fn sharing_an_operator_is_only_warned_of() {
    let warned = program("ruleset r { meta { shares sort } }");
    assert!(
        warned.warnings()[0].message.contains("Trying to share: sort"),
        "{:?}",
        warned.warnings()
    );
    let ruleset = parse("ruleset r { meta { shares nothing } }").unwrap();
    compile(&ruleset).expect_err("nothing defines it");
}

#[test]
fn unknown_names_of_meta_are_warned_of() {
    let warnings = |name: &str| {
        program(&format!("ruleset r {{ global {{ x = meta:{name} }} }}"))
            .warnings()
            .to_vec()
    };
    for known in ["rid_url", "rulesetURI", "rulesetConfig", "host"] {
        assert!(warnings(known).is_empty(), "{known}");
    }
    assert!(
        warnings("bogus")[0]
            .message
            .contains("the module `meta` has no `bogus`")
    );
}

#[test]
fn blanks_in_the_id_of_a_ruleset_are_refused() {
    for (source, column) in [
        ("ruleset io. picolabs {}", 13),
        ("ruleset io .picolabs {}", 12),
        ("ruleset io.pico - labs.x {}", 17),
        ("ruleset a { meta { use module io. b alias c } }", 35),
    ] {
        let error = parse(source).expect_err(source);
        assert_eq!(error.location.column, column, "{source}: {error}");
    }
    assert_eq!(parse("ruleset io.pico-labs.x {}").unwrap().rid(), "io.pico-labs.x");
}

#[test]
fn first_error_of_a_source_is_told() {
    for (source, line, message) in [
        (
            "ruleset a {\n oops\n rule b { ' }\n}",
            2,
            "expected `meta`, `global`, `rule` or `}`",
        ),
        (
            "ruleset a {\n global {\n x = ' }\n}",
            3,
            "this character means nothing here",
        ),
        ("ruleset a {\n oops\n global { x = \"never }\n}", 2, "expected `meta`"),
        (
            "ruleset a {\n global {\n x = \"never }\n}",
            3,
            "the string is never closed",
        ),
        (
            "ruleset a {\n global {\n x = <<never #{1 }\n}",
            3,
            "the chevron is never closed",
        ),
        ("ruleset a {\n /* never }", 2, "the comment is never closed"),
    ] {
        let error = parse(source).expect_err(source);
        assert_eq!(error.location.line, line, "{source}: {error}");
        assert!(error.to_string().contains(message), "{source}: {error}");
    }
}

#[test]
fn maps_leave_the_program_without_undefined_members() {
    expect(&[
        (r#"{"a":null}"#, "{}"),
        (r#"{"a":null}.keys()"#, r#"["a"]"#),
        (r#"{"a":null}.encode()"#, r#""{\"a\":null}""#),
        ("[null]", "[null]"),
        (r#"{"a":[].head()}"#, "{}"),
        (r#"{"a":{}{"x"},"b":[1]{5}}"#, r#"{"a":null,"b":null}"#),
        (r#"{"a":event:attr("x"),"b":ent:nothing}"#, r#"{"a":null,"b":null}"#),
        (r#"{"a":function(x){{"b":x}}()}"#, r#"{"a":{}}"#),
        (r#"{"a":null}.put("b",null).set("c",null)"#, "{}"),
        (r#"{"a":null}.length()"#, "1"),
        (r#"{"a":null} == {}"#, "false"),
        (r#"{"a":null} == {"a":"null".decode()}"#, "true"),
        (r#"[{"a":null}].index({"a":"null".decode()})"#, "0"),
        (r#"[null].union(["null".decode()])"#, "[null]"),
        (r#"{"a":1}.map(function(v,k){null})"#, "{}"),
        (r#"{"a":"null".decode()}"#, r#"{"a":null}"#),
        (r#"{"a":null || null,"b":true && null,"c":true => null | 1}"#, "{}"),
        (r#"{"a":null.klog("x"),"b":null.defaultsTo(null)}"#, "{}"),
        (
            r#"{"a":"b".extract(re#(c)?#).head(),"b":"b".extract(re#(c)?#)[0]}"#,
            r#"{"b":null}"#,
        ),
        (
            r#"{"a":{"b":null}{"b"},"c":{"b":null}.get("b")}"#,
            r#"{"a":null,"c":null}"#,
        ),
        ("[[1,2],[3]].pairwise(function(a,b){{\"b\":b}})", r#"[{"b":3},{}]"#),
        (
            r#"[[1,null].sort("numeric"),[null,1].sort(),["null".decode(),1].sort("numeric")]"#,
            "[[1,null],[1,null],[null,1]]",
        ),
        (
            r#"{"a":re#x#,"f":function(x){x},"l":[re#x#,function(x){x}]}"#,
            r#"{"a":{},"l":[{},null]}"#,
        ),
        (r#"[math:floor("null".decode()),math:floor(null)]"#, "[0,null]"),
    ]);
}

#[test]
fn variables_keep_values_as_json_does() {
    expect_after(&[
        ("ent:x := re#x#", "{}"),
        (r#"ent:x := {"r":re#x#,"f":function(){1},"n":null}"#, r#"{"r":{}}"#),
        (
            r#"ent:y := {"r":re#x#,"n":null}; ent:x := [ent:y.keys(), ent:y{"r"}.typeof()]"#,
            r#"[["r"],"Map"]"#,
        ),
        ("ent:x := [re#x#, function(){1}, null]", "[{},null,null]"),
        (r#"ent:y := null; ent:x := {"a":ent:y}"#, r#"{"a":null}"#),
        (r#"ent:x{"a"} := null"#, "{}"),
        (r#"ent:x := {"a":1,"b":2}; ent:x{"a"} := null"#, r#"{"b":2}"#),
        ("ent:x := [1,2]; ent:x{[0]} := null", "[null,2]"),
        (
            r#"ent:x := {"x":event:attr("nope"),"y":event:attrs{"nope"},"w":event:attrs.get("nope")}"#,
            r#"{"y":null,"w":null}"#,
        ),
        (
            r#"ent:x := {"x":[null].map(function(x){x}).head(),"y":{"a":null}.map(function(v,k){v}),"z":[1,null].reduce(function(a,b){b})}"#,
            r#"{"y":{}}"#,
        ),
    ]);
}

#[test]
fn settings_that_were_not_set_are_undefined() {
    let source = r#"ruleset r { rule a {
        select when a one x re#(.*)# setting(first) or a two x re#(.*)# setting(second)
        send_directive("a", {"first": first, "second": second})
    } rule b {
        select when a three x re#(.*)# setting(third) then a four
        send_directive("b", {"third": third, "missing": event:attrs{"x"}})
    } }"#;
    let mut pico = pico(source);
    let x = || Value::map([("x", Value::from("1"))]);
    for (name, options) in [
        ("one", r#"{"first":"1"}"#),
        ("two", r#"{"second":"1"}"#),
        ("three", ""),
        ("four", r#"{"third":"1","missing":"1"}"#),
    ] {
        let directives = pico.event("a", name, x()).unwrap();
        let found: Vec<String> = directives.iter().map(|directive| directive.options.to_json()).collect();
        assert_eq!(found.concat(), options, "{name}");
    }
}
