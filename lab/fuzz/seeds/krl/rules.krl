ruleset io.throng.rules {
  meta { shares log }
  global {
    log = function() { ent:log }
    say = defaction(what, times = 2) {
      loud = what.uc() + "!"
      if times > 0 then every {
        send_directive("say", {"what": loud, "times": times}) setting(sent)
        noop()
      }
      return sent{"name"} + ":" + loud
    }
    pick = defaction(which) {
      choose which {
        one => send_directive("one")
        two => send_directive("two", {"which": which})
      }
    }
  }
  rule nested {
    select when loop nested
    foreach {"a": [1, 2], "b": [3]} setting(list, key)
    foreach list setting(item, index)
    pre { text = <<#{key}#{index}=#{item}>> }
    send_directive(text)
    fired { raise loop event "done" attributes {"text": text} on final }
  }
  rule done { select when loop done send_directive("done", event:attrs) }
  rule nothing { select when loop nothing foreach [] setting(x) send_directive("never") }
  rule says {
    select when act say
    say(what = event:attrs{"what"}, times = event:attrs{"times"}) setting(result)
    fired { ent:log := ent:log.defaultsTo([]).append(result) }
  }
  rule picks { select when act pick pick(event:attrs{"which"}) }
  rule samples {
    select when act sample
    sample { send_directive("same") send_directive("same") }
  }
  rule condition {
    select when act if
    pre { n = event:attrs{"n"} }
    if n > 1 then every { send_directive("more") }
    fired { ent:more := n ent:twice := n * 2 if n > 2 }
    else { ent:less := n }
    finally { ent:seen := n; log info "seen"; log warn {"n": n} }
  }
  rule not_fired {
    select when act if
    if event:attrs{"n"} > 1 then noop()
    notfired { send = "local" raise act event "small" attributes {"by": send} }
  }
  rule small { select when act:small send_directive("small", event:attrs) }
  rule whole { select when act whole fired { raise event "act : small" attributes {"by": "whole"} } }
  rule last_one { select when act last send_directive("first") fired { last if event:attrs{"stop"} } }
  rule after_last { select when act last send_directive("second") }
  rule fails { select when act error send_directive("before") fired { error warn "careful" error error {"bad": true} ent:never := 1 } }
  rule fails_not { select when act error send_directive("never") }
  rule failed { select when system error send_directive("error", event:attrs) }
  rule meta_values {
    select when act meta
    send_directive("meta", {"rid": ctx:rid, "rule": meta:ruleName, "in": [meta:inEvent, meta:inQuery], "name": event:domain + event:name, "eci": meta:eci == event:eci})
  }
}
