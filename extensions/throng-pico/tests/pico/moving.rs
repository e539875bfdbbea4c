//! Tests of picos that get another parent.

use crate::service::{Service, tagged, text, until};
use serde_json::{Value, json};
use throng_pico::Settings;

const UI: &str = "io.picolabs.pico-engine-ui";
const WRANGLER: &str = "io.picolabs.wrangler";

/// A pico, by its console channel and its own channel.
#[derive(Clone)]
struct Pico {
    ui: String,
    own: String,
}

struct Tree(Service);

impl Tree {
    fn start() -> Self {
        Self(Service::start(Settings::default()))
    }

    fn root(&self) -> Pico {
        Pico {
            ui: self.0.ui(),
            own: self.0.root(),
        }
    }

    fn child(&self, of: &Pico, name: &str) -> Pico {
        self.0
            .event(&of.own, "wrangler", "new_child_request", &json!({ "name": name }));
        let ui = text(self.children(of).last().unwrap());
        let own = tagged(&self.0.query(&ui, UI, "pico", ""), &["system", "self"]);
        Pico { ui, own }
    }

    /// Returns the console channels of the children.
    fn children(&self, of: &Pico) -> Vec<Value> {
        self.0.query(&of.ui, UI, "box", "")["children"]
            .as_array()
            .unwrap()
            .clone()
    }

    fn parent(&self, of: &Pico) -> Value {
        self.0.query(&of.ui, UI, "box", "")["parent"].clone()
    }

    /// Returns the parent's channel to a child.
    fn family(&self, of: &Pico, name: &str) -> String {
        let children = self.0.query(&of.own, WRANGLER, "children", "");
        let found = children.as_array().unwrap().iter().find(|child| child["name"] == name);
        text(&found.unwrap()["eci"])
    }

    fn send_off(&self, from: &Pico, name: &str, to: &str) {
        let eci = self.family(from, name);
        let request = json!({ "eci": eci, "to": to });
        self.0.event(&from.own, "wrangler", "child_move_request", &request);
    }

    /// Returns the last event of this name that a pico handled.
    fn told(&self, pico: &Pico, name: &str) -> Option<Value> {
        let log = self.0.get(&format!("/c/{}/log?name={name}", pico.own)).json();
        log["events"]
            .as_array()
            .unwrap()
            .last()
            .map(|event| event["attrs"].clone())
    }
}

#[test]
fn a_pico_moves_with_all_below_it_and_keeps_its_own_channels() {
    let tree = Tree::start();
    let root = tree.root();
    let (ann, bob) = (tree.child(&root, "Ann"), tree.child(&root, "Bob"));
    let carl = tree.child(&bob, "Carl");
    let old = tree.family(&root, "Bob");
    tree.send_off(&root, "Bob", &ann.own);
    until(|| tree.told(&root, "child_moved").is_some());
    assert_eq!(tree.told(&root, "child_moved").unwrap()["eci"], json!(old));
    let check = |tree: &Tree| {
        assert_eq!(tree.children(&root), [json!(ann.ui)]);
        assert_eq!(tree.children(&ann), [json!(bob.ui)]);
        assert_eq!((tree.parent(&bob), tree.parent(&carl)), (json!(ann.ui), json!(bob.ui)));
        let new = tree.family(&ann, "Bob");
        assert_eq!(tree.0.query(&bob.own, WRANGLER, "myself", "")["eci"], json!(new));
        assert_eq!(tree.0.get(&format!("/c/{old}/query/{WRANGLER}/name")).status, 404);
        assert_eq!(tree.0.get(&format!("/c/{new}/query/{WRANGLER}/name")).status, 403);
    };
    check(&tree);
    until(|| tree.told(&ann, "child_adopted").is_some() && tree.told(&bob, "parent_changed").is_some());
    let tree = Tree(tree.0.again());
    check(&tree);
    // Bob is fully Ann's child: she can send him away, and he ends with her.
    tree.send_off(&ann, "Bob", &root.own);
    until(|| tree.children(&root).len() == 2 && tree.children(&ann).is_empty());
    tree.send_off(&root, "Bob", &ann.own);
    until(|| tree.children(&ann).len() == 1 && tree.children(&root).len() == 1);
    let request = json!({ "eci": tree.family(&root, "Ann") });
    tree.0.event(&root.own, "wrangler", "child_deletion_request", &request);
    for gone in [&ann, &bob, &carl] {
        until(|| tree.0.get(&format!("/c/{}/query/{WRANGLER}/name", gone.own)).status == 410);
    }
}

#[test]
fn a_pico_does_not_move_below_itself_nor_where_it_is_not_let_in() {
    let tree = Tree::start();
    let root = tree.root();
    let bob = tree.child(&root, "Bob");
    let carl = tree.child(&bob, "Carl");
    let dora = tree.child(&carl, "Dora");
    let closed = json!({ "tags": ["closed"], "eventPolicy": { "allow": [{ "domain": "other", "name": "*" }], "deny": [] },
        "queryPolicy": { "allow": [], "deny": [] } });
    let ann = tree.child(&root, "Ann");
    tree.0.event(&ann.own, "wrangler", "new_channel_request", &closed);
    let channels = tree.0.query(&ann.own, WRANGLER, "channels", "tags=closed");
    let closed = text(&channels[0]["id"]);
    let nowhere = "f".repeat(48);
    for (to, why) in [
        (bob.own.as_str(), "below itself"),
        (&dora.own, "below itself"),
        (&closed, "Not allowed by channel policy"),
        (&nowhere, ""),
    ] {
        let eci = tree.family(&root, "Bob");
        let before = tree.0.get(&format!("/c/{}/log?name=child_not_moved", root.own)).json()["events"].clone();
        tree.send_off(&root, "Bob", to);
        let count = before.as_array().unwrap().len();
        until(|| {
            let log = tree.0.get(&format!("/c/{}/log?name=child_not_moved", root.own)).json();
            log["events"].as_array().unwrap().len() > count
        });
        let told = tree.told(&root, "child_not_moved").unwrap();
        assert!(text(&told["error"]).contains(why), "{told}");
        assert_eq!(told["eci"], json!(eci));
        assert_eq!(tree.children(&root), [json!(bob.ui), json!(ann.ui)]);
    }
    let wrong = tree.0.post(
        &format!("/c/{}/event-wait/wrangler/child_move_request", root.own),
        &json!({ "eci": dora.own, "to": ann.own }),
    );
    assert!(
        wrong.status == 500 && wrong.body.contains("is not a child ECI"),
        "{}",
        wrong.body
    );
}

#[test]
fn a_child_that_stands_in_a_page_moves_as_any_other() {
    let tree = Tree::start();
    let root = tree.root();
    for number in 0..260 {
        let name = json!({ "name": format!("c{number}") });
        tree.0.event(&root.own, "wrangler", "new_child_request", &name);
    }
    let to = tagged(
        &tree.0.query(&text(&tree.children(&root)[259]), UI, "pico", ""),
        &["system", "self"],
    );
    tree.send_off(&root, "c3", &to);
    until(|| tree.children(&root).len() == 259 && tree.told(&root, "child_moved").is_some());
    assert_eq!(tree.0.query(&to, WRANGLER, "children", "")[0]["name"], json!("c3"));
    let tree = Tree(tree.0.again());
    assert_eq!(tree.children(&root).len(), 259);
}

/// Keeps a value, and counts the seconds.
const KEEPER: &str = r#"ruleset keeper {
  meta { shares kept, ticks, planned }
  global {
    kept = function() { ent:kept }
    ticks = function() { ent:ticks.defaultsTo(0) }
    planned = function() { schedule:list() }
  }
  rule keep {
    select when keeper keep
    fired { ent:kept := event:attrs{"value"} }
  }
  rule plan {
    select when keeper plan
    always {
      schedule keeper event "tick" repeat "* * * * * *"
      schedule keeper event "keep" at time:add(time:now(), {"days": 1}) attributes {"value": "late"}
    }
  }
  rule tick {
    select when keeper tick
    fired { ent:ticks := ent:ticks.defaultsTo(0) + 1 }
  }
}
"#;

/// Bob in full use. He keeps a value, has a restrictive channel, counts seconds, and has a child that keeps a value, too.
struct Furnished {
    bob: Pico,
    carl: Pico,
    door: String,
    planned: Value,
}

impl Furnished {
    fn new(tree: &Tree, parent: &Pico) -> Self {
        let bob = tree.child(parent, "Bob");
        let carl = tree.child(&bob, "Carl");
        for (pico, value) in [(&bob, "b"), (&carl, "c")] {
            let installed = tree
                .0
                .post(&format!("/c/{}/install", pico.ui), &json!({ "source": KEEPER }));
            assert_eq!(installed.status, 200, "{}", installed.body);
            tree.0.event(&pico.own, "keeper", "keep", &json!({ "value": value }));
        }
        tree.0.event(&bob.own, "keeper", "plan", &json!({}));
        let door = json!({ "tags": ["door"], "eventPolicy": { "allow": [{ "domain": "keeper", "name": "keep" }], "deny": [] },
            "queryPolicy": { "allow": [{ "rid": "keeper", "name": "kept" }], "deny": [] } });
        tree.0.event(&bob.own, "wrangler", "new_channel_request", &door);
        let door = text(&tree.0.query(&bob.own, WRANGLER, "channels", "tags=door")[0]["id"]);
        let planned = tree.0.query(&bob.own, "keeper", "planned", "");
        assert_eq!(planned.as_array().map(Vec::len), Some(2), "{planned}");
        Self {
            bob,
            carl,
            door,
            planned,
        }
    }

    /// Checks that everything is still there and works.
    fn check(&self, tree: &Tree, value: &str) {
        let kept = |eci: &str| tree.0.query(eci, "keeper", "kept", "");
        tree.0.event(&self.door, "keeper", "keep", &json!({ "value": value }));
        assert_eq!((kept(&self.door), kept(&self.carl.own)), (json!(value), json!("c")));
        let ticks = || tree.0.query(&self.bob.own, "keeper", "ticks", "").as_u64().unwrap();
        let refused = format!("/c/{}/query/keeper/ticks", self.door);
        assert_eq!(
            tree.0.get(&refused).status,
            403,
            "the channel lets no more through than before"
        );
        assert_eq!(tree.0.query(&self.bob.own, "keeper", "planned", ""), self.planned);
        let before = ticks();
        until(|| ticks() > before);
    }

    /// Checks that Bob can still make and delete children.
    fn check_children(&self, tree: &Tree) {
        let dora = tree.child(&self.bob, "Dora");
        assert_eq!(tree.parent(&dora), json!(self.bob.ui));
        for (name, child) in [("Carl", &self.carl), ("Dora", &dora)] {
            let request = json!({ "eci": tree.family(&self.bob, name) });
            tree.0
                .event(&self.bob.own, "wrangler", "child_deletion_request", &request);
            until(|| tree.0.get(&format!("/c/{}/query/{WRANGLER}/name", child.own)).status == 410);
        }
        assert_eq!(tree.children(&self.bob), [] as [Value; 0]);
    }
}

#[test]
fn moved_pico_keeps_variables_schedules_channels_and_children() {
    let tree = Tree::start();
    let root = tree.root();
    let ann = tree.child(&root, "Ann");
    let furnished = Furnished::new(&tree, &root);
    tree.send_off(&root, "Bob", &ann.own);
    until(|| tree.told(&root, "child_moved").is_some());
    assert_eq!(tree.parent(&furnished.bob), json!(ann.ui));
    furnished.check(&tree, "moved");
    let tree = Tree(tree.0.again());
    furnished.check(&tree, "started again");
    furnished.check_children(&tree);
}

#[test]
fn identical_import_keeps_variables_schedules_channels() {
    let (here, there) = (Tree::start(), Tree::start());
    let root = here.root();
    let furnished = Furnished::new(&here, &root);
    let export = here.0.get(&format!("/c/{}/export", furnished.bob.own));
    assert_eq!(export.status, 200, "{}", export.body);
    let request = json!({ "eci": here.family(&root, "Bob") });
    here.0.event(&root.own, "wrangler", "child_deletion_request", &request);
    let path = format!("/c/{}/import?identical=true", there.root().own);
    let imported = there.0.send("POST", &path, "", &export.body);
    assert_eq!(imported.status, 200, "{}", imported.body);
    until(|| here.0.get(&format!("/c/{}/query/keeper/kept", furnished.door)).status == 410);
    furnished.check(&there, "imported");
}
