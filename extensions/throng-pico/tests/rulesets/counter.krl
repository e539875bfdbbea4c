ruleset counter {
  meta {
    name "Counter"
    version "1"
    shares count, seen, status, sibling, config
  }
  global {
    count = function() { ent:count.defaultsTo(0) }
    seen = function() { ent:seen }
    config = function() { ctx:rid_config }
    status = function(url) { http:get(url){"status_code"} }
    sibling = function(eci) { ctx:query(eci, "counter", "count") }
    deeper = function(n) { deeper(n + 1) + 1 }
  }
  rule hit {
    select when counter hit
    pre { by = event:attr("by").defaultsTo(1).as("Number") }
    send_directive("hit", {"by": by})
    fired {
      ent:count := ent:count.defaultsTo(0) + by
      ent:seen{["by", by.as("String")]} := true
      raise counter event "was_hit" attributes {"by": by}
    }
  }
  rule was_hit {
    select when counter was_hit
    send_directive("was_hit", event:attrs)
  }
  rule pair {
    select when counter first then counter second
    send_directive("pair")
  }
  rule fail {
    select when counter fail
    ctx:delPico("nobody")
  }
  rule hit_and_fail {
    select when counter hit_and_fail
    always {
      ent:count := 1000
      raise counter event "fail"
    }
  }
  rule loop_for_ever {
    select when counter loop
    pre { n = deeper(0) }
    always { ent:count := n }
  }
  rule raise_for_ever {
    select when counter again
    always { raise counter event "again" }
  }
  rule pass_on {
    select when counter pass_on
    event:send({"eci": event:attr("eci"), "domain": "counter", "type": "hit", "attrs": {"by": 5}})
  }
  rule ask {
    select when counter ask
    pre { found = sibling(event:attr("eci")) }
    send_directive("found", {"count": found})
    fired { ent:count := found }
  }
  rule ask_by_message {
    select when counter ask_by_message
    event:send({"eci": event:attr("eci"), "domain": "counter", "type": "ask", "attrs": event:attrs.put("eci", event:attr("of"))})
  }
  rule later {
    select when counter later
    always { schedule counter event "hit" at time:add(time:now(), {"seconds": -1}) attributes {"by": 7} }
  }
  rule spawn {
    select when counter spawn
    ctx:newPico(rulesets=[{"url": ctx:rid_url, "config": {"of": "parent"}}]) setting(eci)
    fired { ent:child := eci }
  }
  rule to_child {
    select when counter to_child
    event:send({"eci": ent:child, "domain": "counter", "type": "hit"})
  }
  rule cookie {
    select when counter cookie
    every {
      send_directive("_cookie", {"cookie": "a=b"})
      send_directive("_redirect", {"url": "/elsewhere"})
    }
  }
  rule away {
    select when counter away
    send_directive("_redirect", {"url": event:attrs{"to"}})
  }
  rule installed {
    select when wrangler ruleset_installed where event:attr("rids") >< ctx:rid
    fired { ent:installed := true }
  }
}
