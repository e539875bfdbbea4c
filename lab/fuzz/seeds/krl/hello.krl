ruleset io.throng.hello {
  meta {
    name "Hello"
    description <<
      Greets: the smallest ruleset.
    >>
    author "throng"
    shares hello, count, __testing
  }
  global {
    hello = function(obj) {
      msg = "Hello " + obj;
      msg
    }
    count = function() { ent:count.defaultsTo(0) }
  }
  rule say_hello {
    select when echo hello
    send_directive("say", {"something": "Hello World"})
  }
  rule store_name {
    select when hello name name re#^(.+)$# setting(name)
    send_directive("stored", {"name": name, "message": <<Hello #{name}, you are #{ent:count.defaultsTo(0) + 1}.>>})
    fired {
      ent:name := name
      ent:count := ent:count.defaultsTo(0) + 1
      raise hello event "stored" attributes {"name": name} if ent:count > 1
    }
  }
  rule after {
    select when hello:stored
    pre { n = event:attrs{"name"} }
    if n != "nobody" then
      send_directive("again", {"name": n})
    notfired { ent:nobody := true }
  }
}
