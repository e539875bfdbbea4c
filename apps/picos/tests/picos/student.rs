//! Tests of registration through its picos, from the owner to a section, and of the students' page in headless Chromium.
//!
//! They need `chromium` on the path or in `CHROMIUM`. `THRONG_NO_BROWSER=1` skips the browser with a notice.

use crate::service::{PATIENCE, Service, is_without_browser, open, text};
use axum::{Router, response::Html, routing};
use serde_json::json;
use std::sync::mpsc;

#[test]
fn a_student_reaches_a_seat_from_the_owner_and_nothing_else() {
    let service = Service::of_owner(Router::new());
    service.open_section("MATH-1", 1);
    let collection = service.collection();
    let needed = "section/needed?student_id=ann&section_id";
    let section = service
        .told(&collection, &format!("{needed}=MATH-1"), "section_ready")
        .unwrap();
    let info = |name: &str| {
        service
            .get(&format!("/sky/cloud/{section}/app_section/sectionInfo"))
            .json()[name]
            .clone()
    };
    assert_eq!((info("capacity"), info("taken")), (json!(1), json!(0)));
    let add = |student: &str| {
        service.told(
            &section,
            &format!("section/add_request?student_id={student}"),
            "request_granted",
        )
    };
    assert!(add("ann").is_some() && add("bob").is_none());
    assert_eq!(info("roster"), json!(["ann"]));
    // The same channel again: a student's search creates no new ones.
    assert_eq!(service.collection(), collection);
    assert_eq!(
        service
            .told(&collection, &format!("{needed}=MATH-1"), "section_ready")
            .unwrap(),
        section
    );
    // A student's channel cannot create a section.
    assert_eq!(
        service.told(&collection, &format!("{needed}=X-1&capacity=9"), "section_ready"),
        None
    );
    let search = |text: &str| {
        service
            .get(&format!(
                "/sky/cloud/{collection}/app_section_collection/search?text={text}"
            ))
            .json()
    };
    assert_eq!((search("math"), search("X")), (json!(["MATH-1"]), json!([])));
    let owner = text(&service.get("/api/owner-eci").json()["eci"]);
    for path in [
        format!("/c/{owner}/event/section/needed"),
        format!("/c/{collection}/event/section/offline?section_id=MATH-1"),
        format!("/c/{section}/event/section/config_empty?capacity=9"),
        format!("/c/{section}/log"),
    ] {
        assert_eq!(service.get(&path).status, 403, "{path}");
    }
}

#[test]
fn the_page_runs_no_script_but_its_own() {
    let service = Service::of_owner(Router::new());
    let page = service.get("/student");
    assert!(!page.body.contains("<script>") && !page.body.contains("onclick") && !page.body.contains("style="));
    let policy = page.header("content-security-policy").unwrap();
    assert!(
        policy.contains("default-src 'none'") && !policy.contains("unsafe"),
        "{policy}"
    );
    for (path, kind) in [("/student.js", "text/javascript"), ("/student.css", "text/css")] {
        assert!(
            service.get(path).header("content-type").unwrap().starts_with(kind),
            "{path}"
        );
    }
}

/// A script that acts as a user on the page, and reports what the page shows.
const SCRIPT: &str = r#"
const frame = document.createElement('iframe')
const tell = text => fetch('/report', { method: 'POST', body: text })
onunhandledrejection = event => tell('ERROR ' + event.reason)
frame.addEventListener('load', async () => {
  const page = frame.contentDocument
  const find = id => page.getElementById(id)
  const until = async what => { while (!what()) await new Promise(go => setTimeout(go, 5)) }
  const seats = () => find('seats').textContent
  const lines = []
  find('student').value = 'ann'
  find('text').value = 'math'
  find('search').requestSubmit()
  await until(() => find('found').children.length)
  lines.push([...find('found').children].map(item => item.firstChild.textContent).join('+'))
  lines.push(find('found').querySelector('button').textContent, find('mine').hidden)
  find('found').querySelector('button').click()
  await until(() => seats().startsWith('0 of 2'))
  find('join').click()
  await until(() => find('enrolled').children.length && seats().startsWith('1 of 2'))
  lines.push(find('mine').hidden, find('join').disabled, find('said').textContent)
  await tell(lines.join('|'))
  // Another student takes the other seat.
  await until(() => seats().startsWith('2 of 2'))
  find('enrolled').querySelector('button').click()
  await until(() => !find('enrolled').children.length && seats().startsWith('1 of 2'))
  await tell('dropped|' + find('said').textContent)
})
frame.src = '/student'
document.body.append(frame)
"#;

#[test]
fn a_student_joins_and_drops_in_a_browser_and_sees_seats_live() {
    if is_without_browser() {
        return;
    }
    let (tell, told) = mpsc::channel();
    let report = async move |body: String| drop(tell.send(body));
    let script = ([("content-type", "text/javascript")], SCRIPT);
    let beside = Router::new()
        .route("/report", routing::post(report))
        .route("/test.js", routing::get(async move || script))
        .route(
            "/test",
            routing::get(async || Html("<body><script src=/test.js></script>")),
        );
    let service = Service::of_owner(beside);
    for (id, capacity) in [("MATH-1", 2), ("MATH-2", 3), ("PHYS-1", 1)] {
        service.open_section(id, capacity);
    }
    let _browser = open(&format!("{}/test", service.url()));
    let said = || told.recv_timeout(PATIENCE).expect("the page says what came of it");
    assert_eq!(said(), "MATH-1+MATH-2|View|true|false|true|You have a seat in MATH-1.");
    let section = service.told(
        &service.collection(),
        "section/needed?section_id=MATH-1&student_id=bob",
        "section_ready",
    );
    service
        .told(
            &section.unwrap(),
            "section/add_request?student_id=bob",
            "request_granted",
        )
        .unwrap();
    assert_eq!(said(), "dropped|You gave back your seat in MATH-1.");
}
