//! Tests of the formatter: a formatted source means the same, keeps its comments, and does not change when formatted again.

use throng_krl::format;

#[test]
fn a_source_is_put_into_canonical_form_with_its_comments() {
    let source = r#"ruleset a.b-c{meta{shares f
  use module x alias  y with z=1}
global{f=function(a,b=2){ c=-a+b*2;
[a ,b]{ "k" }  .map( function(x){x>0=>"y"|not x}) // why
}

/* about
   g */
g = <<  #{ a [0] }  >>}
rule r{select when a:b x re#.#setting(x)where x=="1"
if x  then every{
send_directive( "d",{"a":1,
"b":{}})
noop ()
}
fired{ent:v{ "k" }:=x if true;raise a event "b" attributes{"c" :x}}
}
}"#;
    let expected = r#"ruleset a.b-c { meta { shares f
    use module x alias y with z = 1 }
  global { f = function(a, b = 2) { c = -a + b * 2;
      [a, b]{"k"}.map(function(x) { x > 0 => "y" | not x }) // why
    }

    /* about
   g */
    g = <<  #{a[0]}  >> }
  rule r { select when a:b x re#.# setting(x) where x == "1"
    if x then every {
      send_directive("d", {"a": 1,
        "b": {}})
      noop()
    }
    fired { ent:v{"k"} := x if true; raise a event "b" attributes {"c": x} }
  }
}
"#;
    assert_eq!(format(source).unwrap(), expected);
    assert_eq!(format(expected).unwrap(), expected);
}
