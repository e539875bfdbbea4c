ruleset io.example.greeter {
  meta { name "Greeter" version "1.0" shares hello }
  global { hello = function(name) { "Hello " + name } }
  rule hello { select when greet hello send_directive("said", {"hello": hello(event:attr("name"))}) }
}