//! The generic routes, over real connections.

use crate::support::{Client, plain};
use serde_json::json;

#[test]
fn a_command_is_answered_with_its_reply_and_seen_by_queries() {
    let gateway = plain();
    let mut client = Client::new(&gateway);
    let opened = client.post("/api/section/C%20S%20142-1/open", r#"{"capacity":2}"#);
    assert_eq!(opened.status, 200, "{}", opened.text());
    assert_eq!(opened.header("content-type"), Some("application/json"));
    assert_eq!(opened.json(), json!({"capacity": 2, "students": []}));
    let added = client.post("/api/section/C%20S%20142-1/add-student", r#"{"student":"7"}"#);
    assert_eq!(added.json(), json!({"capacity": 2, "students": ["7"]}));
    let same = client.post("/api/section/C%20S%20142-1/add_student", r#"{"student":"7"}"#);
    assert_eq!(same.json(), json!({"capacity": 2, "students": ["7"]}));
    assert_eq!(
        client.get("/api/section/C%20S%20142-1").json(),
        json!({"capacity": 2, "students": ["7"]})
    );
    assert_eq!(
        client.get("/api/section/C%20S%20142-1/enrolled?student=7").json(),
        json!(true)
    );
    assert_eq!(
        client.get("/api/section/C%20S%20142-1/enrolled?student=8").json(),
        json!(false)
    );
    gateway.stop_blocking();
}
