ruleset io.throng.operators {
  meta { shares conversions, texts, regexes, arrays, higher, sets, maps, bits, maths, times, fail }
  global {
    is_even = function(n) { n % 2 == 0 }
    conversions = function() {
      ["12.5".as("Number"), "x".as("Number"), null.as("Number"), [1, 2].as("Number"), "0x1F".as("Number"), 255.as("Hex"), 1.05.as("String"),
        {}.as("String"), is_even.as("String"), "false".as("Boolean"), "0".as("Boolean"), 0.as("Boolean"), re#a+#gi.as("String"), "[1,2]".decode(), "{bad".decode(),
        {"a": [1, null, re#x#]}.encode(), {"a": 1}.encode(2), null.typeof(), 1.typeof(), "".typeof(), "0xf".typeof(), [].typeof(), {}.typeof(), re#a#.typeof(), is_even.typeof(),
        null.isnull(), 0.isnull(), null.defaultsTo(5), 0.defaultsTo(5), 1.klog("one"), -"3", "a" + [1]]
    }
    texts = function() {
      ["hello world".capitalize(), "".capitalize(), "aB".lc(), "aB".uc(), "Hello".ord(), "".ord(), 75.chr(), " a ".trim(), " a ".trimLeading(), " a ".trimTrailing(),
        "a;b".split(";"), "ab".split(""), "a1b22c".split(re#\d+#), "This is a string".substr(5), "This is a string".substr(5, 4), "This is a string".substr(5, -5), "abc".substr(9),
        "abc".startsWith("ab"), "abc".endsWith("bc"), "abc".contains("x"), 10.sprintf("< %d>"), "Jim".sprintf("Hello %s!"), "x".sprintf("%d"), "a".length(), "añ😀".length(), [1, [2], null].join("-"), 5.join(), "😀b".substr(2)]
    }
    regexes = function() {
      ["This is a string".extract(re#(is).*(s.*)#), "abab".extract(re#a#g), "abc".extract(re#x#), "Wed".match(re#^W#), "a".match(5), "Hello William!".replace(re#will#i, "Bill"),
        "aXbX".replace(re#X#g, "<$&>"), "john smith".replace(re#(\w+) (\w+)#, "$2 $1"), "a.b.c".replace(".", ""), "abc".replace(re#[a-c]#g, function(m, i) { m + i }), "a".replace(re#a#)]
    }
    arrays = function() {
      [[1, 2].append([3], 4), 1.append(2), [5, 6].head(), [].head(), 7.head(), [5, 6].tail(), [].isEmpty(), null.isEmpty(), [1, {"a": 1}].index({"a": 1}), [1].index(2), {"a": 1}.length(), 5.length(), [1, 2, 3].reverse(),
        [1, 2, 3, 4].slice(1, 2), [1, 2, 3, 4].slice(2), [1, 2, 3, 4].slice(2, 9), [1, 2, 3, 4].splice(1, 2), [1, 2, 3, 4].splice(1, 1, ["a", "b"]), [1, 2].splice(1, 9), 1.range(4), 3.range(1), 2.range(2)]
    }
    higher = function() {
      [[1, 2, 3].map(function(x, i) { x * i }), {"a": 1}.map(function(v, k) { k + v }), [1, 2, 3].filter(is_even), {"a": 1, "b": 2}.filter(is_even), [2, 4].all(is_even), [1].notall(is_even), [1, 2].any(is_even), [1].none(is_even),
        [1, 2, 3].reduce(function(a, b) { a + b }), [].reduce(is_even), [].reduce(is_even, 9), [3].reduce(is_even), [1, 2].reduce(function(a, b, i) { a + b + i }, "x"), [1, 2, 3].collect(function(x) { is_even(x) => "even" | "odd" })]
    }
    sets = function() {
      [[2, 1].intersection([1, 2, 3]), [1, 1].union([2, 1]), [1, 2, 2, 3].difference([2]), 1.union(2), [1, 2, 3].has([3, 1]), [1].has(2), [3, "b", 1, "b", 3].once(), [3, "b", 1, "b", 3].duplicates(), [1, [2], 1, [2], "1"].unique(), [{"a": 1, "b": 2}, {"b": 2, "a": 1}].unique().length()]
    }
    maps = function() {
      [{"b": 1, "a": 2, "10": 3, "9": 4}.keys(), {"b": 1, "a": 2}.values(), {"a": {"b": 1}}.keys("a"), [7].keys(), {"a": {"b": 1}}.values(["a"]), 5.keys(), {"a": [0, 5]}.get(["a", 1]), {"a": 1}.get("x"), "s".get("length"), {"a": 1}.put("b", 2), {"a": 1}.put({"a": 2}),
        {"a": [1]}.put(["a", "x"], 2), {}.put(["a", "0"], 1), {}.set(["a", "0"], 1), {}.set(["a", "b"], 1), 5.set("a", 1), {"a": {"b": 1, "c": 2}}.delete(["a", "b"]), [1, 2].delete(0), {"a": 1}.delete("x")]
    }
    bits = function() { [5.band(3), 5.bor(3), 5.bxor(3), 5.bnot(), 1.shiftLeft(4), 16.shiftRight(2), (-16).shiftRight(2), 4294967296.bor(1)] }
    maths = function() {
      [math:abs(-5), math:ceiling(1.001), math:floor(1.999, 2), math:int(-1.5), math:round(1.005, 2), math:round(-0.5), math:base64encode("hello"), math:base64decode("aGVsbG8="), math:hash("sha256", "hello"), math:hmac("sha1", "k", "m", "base64").length(),
        random:integer(5, 5), random:number(1) < 1, random:uuid().length(), random:word() == "", math:hashAlgorithms >< "sha512"]
    }
    times = function() {
      [time:now(), time:new("2010-08-08"), time:new("20100808T123456+0200"), time:new("12:34:56"), time:new("2026-W02-3"), time:new("2026-033"), time:new(1000), time:add("2026-01-31", {"months": 1}), time:add("2026-01-01T00:00:00Z", {"days": -1, "hours": 2}), time:add("2026-01-01", {"weeks": 1, "seconds": 1.5}),
        time:strftime("2026-03-04T05:06:07.000Z", "%F %T %A")]
    }
    fail = function(how) {
      how == 1 => [] - "a" | how == 2 => null.map(is_even) | how == 3 => how(1) | how == 4 => time:new("soon") | how == 5 => {}.sort("a")
        | how == 6 => 5.as("Boat") | how == 7 => "a".match("(") | how == 8 => math:hash("md6", "a") | how == 9 => 0.range(10000000) | [1].reduce("f")
    }
  }
}
