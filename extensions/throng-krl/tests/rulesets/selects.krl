ruleset io.throng.selects {
  rule one_before { select when p a before p b send_directive("before") }
  rule one_after { select when q a after q b send_directive("after") }
  rule one_then {
    select when r a name re#(.*)# setting(n) then r b name re#(x+)# setting(m)
    send_directive("then", {"n": n, "m": m})
  }
  rule all_of { select when and(s a, s b, s c) send_directive("and") }
  rule either { select when t a or (t b and t c) send_directive("or") }
  rule amid { select when u a between(u b, u c) send_directive("between") }
  rule not_amid { select when u a not between(u b, u c) send_directive("not between") }
  rule some_of { select when any 2 (v a, v b, v c) send_directive("any") }
  rule counted {
    select when count 3 (w a n re#(\d+)#) max(m)
    send_directive("max", {"m": m})
  }
  rule repeated {
    select when repeat 2 (x a n re#(.+)#) push(m)
    send_directive("push", {"m": m})
  }
  rule summed { select when repeat 2 (x a n re#(\d+)#) sum(m) send_directive("sum", {"m": m}) }
  rule averaged { select when count 2 (x a n re#(\d+)#) avg(m) send_directive("avg", {"m": m}) }
  rule least { select when count 2 (x a n re#(\d+)#) min(m) send_directive("min", {"m": m}) }
  rule in_time { select when y a before y b within 1 + 4 seconds send_directive("in time") }
  rule where_it_is {
    select when z a n re#(\d+)#i setting(n) where n > 5 && event:attrs{"o"}.isnull()
    send_directive("where", {"n": n})
  }
  rule anything { select where event:attrs{"everywhere"} == "yes" send_directive("anything") }
  rule asleep is inactive { select when z a send_directive("never") }
}
