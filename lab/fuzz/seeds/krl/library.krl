ruleset io.throng.library {
  meta {
    provides greet, count, tell
    configure using greeting = "Hello" mark = "."
  }
  global {
    greet = function(who) { greeting + " " + who + mark }
    count = function() { ent:count.defaultsTo("none") }
    tell = defaction(what) { send_directive("tell", {"what": what, "rid": ctx:rid, "event": event:name}) }
  }
}
