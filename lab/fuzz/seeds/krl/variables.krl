ruleset io.throng.variables {
  meta { shares schedule use module io.throng.library alias lib }
  global { schedule = function() { schedule:list().length() } }
  rule sets {
    select when v set
    fired {
      ent:m{["a", "b"]} := event:attrs{"x"}
      ent:m{"c"} := [1, 2]
      ent:m{["c", 1]} := "two"
      ent:f := function() { 1 }
      ent:r := re#a#i
      ent:big := event:attrs
    }
  }
  rule clears { select when v clear fired { clear ent:m{["a", "b"]} clear ent:f } }
  rule remembers {
    select when v later
    fired {
      schedule v event "due" at time:add(time:now(), {"minutes": 5}) attributes {"n": 1} setting(one)
      schedule event "v:due" at time:add(time:now(), {"hours": 1})
      ent:id := one{"id"}
    }
  }
  rule due { select when v due send_directive("due", {"now": time:now(), "n": event:attrs{"n"}}) }
  rule forgets { select when v forget schedule:remove(ent:id) }
  rule tells { select when v tell lib:tell("x") setting(told) fired { ent:told := told{"name"} } }
  rule bad { select when v bad fired { schedule v event "due" at "yesterday" } }
}
