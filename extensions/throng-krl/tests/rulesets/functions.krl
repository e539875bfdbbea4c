ruleset io.throng.functions {
  meta {
    shares fact, even, adder, local, later, defaults, named, shadow, deep, counter, chevron, operators, missing, sorted, pair
    use module io.throng.library alias lib with greeting = "Hey" and mark = g
    use module io.throng.library alias plain
  }
  global {
    g = "?"
    fact = function(n) { n <= 1 => 1 | n * fact(n - 1) }
    even = function(n) { n == 0 => true | odd(n - 1) }
    odd = function(n) { n == 0 => false | even(n - 1) }
    adder = function(n) { add = function(m) { n + m }; [1, 2].map(add) }
    local = function(n) {
      sum = function(i) { i == 0 => 0 | step + sum(i - 1) }
      step = 2
      up = function(i) { i > 3 => i | down(i + 2) }
      down = function(i) { up(i - 1) };
      [sum(n), up(0)]
    }
    later = function() { late }
    late = fact(4)
    defaults = function(a, b = a + 1, c = b * 2) { [a, b, c] }
    named = function() { [defaults(1), defaults(1, 5), defaults(a = 1, c = 0), lib:greet("you"), plain:greet(who = "me"), lib:count] }
    shadow = function(x) { g = g + "!" head = function(y) { g + y } head(x) }
    deep = function(n) { [0].map(function(x) { n < 1 => "end" | deep(n - 1) }).head() }
    make = function(n) { function(m) { n * m } }
    counter = function() { double = make(2); (make(3))(double(5)) }
    chevron = function(x) { <<a #{x} <b> #{<<in #{x + 1}>>} \#{no} #{{"k": [x]}{["k", 0]}}
end>> }
    operators = function() {
      [1 + 2 * 3 - -4, "a" + 1, 7 / 2, 7 / 0, 7 % 4, "5" * "2", not 0, null || "x", 0 && 1, 2 <=> 10, 2 cmp 10,
        "2" < "10", "b" > "a", [1, {"a": null}] == [1, {"a": null}], [1, 2] >< 2, {"a": 1} >< "a", "abc" like re#^a#, "abc" like "d",
        1 == "1", [] => "true" | "false", "" => "true" | "false", {"a": [1, {"b": 5}]}{["a", 1, "b"]}, [4, 5][1], [4][9]]
    }
    missing = function(x) { x.foo{"bar"}.isnull() }
    sorted = function() { [[5, 3, 20].sort(), [5, 3, 20].sort("numeric"), [5, 3, 20].sort("ciremun"), [5, 3, 20].sort(function(a, b) { b <=> a }), ["b", "a"].sort("reverse")] }
    pair = function() { [[1, 2, 3], [10, 20]].pairwise(function(a, b) { a + b.defaultsTo(0) }) }
  }
}
