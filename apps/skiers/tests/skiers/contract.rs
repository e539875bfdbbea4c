//! Tests of the HTTP contract, byte for byte: the real engine behind the real gateway, over sockets.

use crate::service::Service;
use serde_json::{Value, json};

/// The path of skier 7's rides on day 12.
const DAY: &str = "/skiers/56/seasons/2022/days/12/skiers/7";
const RIDE: &str = r#"{"time":217,"liftID":21,"waitTime":3}"#;
const WAR: &str = "/Server_war";

fn text(status: u16, body: &str) -> (u16, String) {
    (status, body.to_owned())
}

fn message(status: u16, said: &str) -> (u16, String) {
    (status, json!({ "message": said }).to_string())
}

fn values(answer: (u16, String)) -> (u16, Value) {
    (answer.0, serde_json::from_str(&answer.1).unwrap())
}

fn created() -> (u16, String) {
    text(201, "Lift ride created!")
}

#[test]
fn a_ride_is_created_in_both_spellings_with_or_without_wait() {
    let service = Service::start();
    assert_eq!(service.post(DAY, RIDE), created());
    let other = "/skiers/56/seasons/2022/day/12/skiers/7";
    assert_eq!(service.post(other, r#"{"time":420,"liftID":1}"#), created());
    assert_eq!(service.post(&format!("{WAR}{DAY}"), RIDE), created());
    assert_eq!(service.get(DAY), text(200, "430"));
    assert_eq!(service.get(other), text(200, "430"));
    assert_eq!(service.get(&format!("{WAR}{other}")), text(200, "430"));
}

#[test]
fn minutes_and_days_are_taken_to_both_ends_of_their_ranges() {
    let service = Service::start();
    for (time, status) in [(0, 400), (1, 201), (420, 201), (421, 400)] {
        let (found, _) = service.post(DAY, &json!({ "time": time, "liftID": 1 }).to_string());
        assert_eq!(found, status, "minute {time}");
    }
    for (day, status) in [(0, 400), (1, 201), (366, 201), (367, 400)] {
        let (found, _) = service.post(&format!("/skiers/56/seasons/2022/days/{day}/skiers/7"), RIDE);
        assert_eq!(found, status, "day {day}");
    }
}

#[test]
fn errors_are_messages_and_plain_text_for_original_clients() {
    let service = Service::start();
    for (path, body, status, said) in [
        (DAY, "{}", 400, "Missing parameter: 'time'"),
        (DAY, r#"{"time":1}"#, 400, "Missing parameter: 'liftID'"),
        (
            DAY,
            r#"{"time":421,"liftID":1}"#,
            400,
            "Invalid value for parameter 'time': 421",
        ),
        (
            DAY,
            r#"{"time":"x","liftID":1}"#,
            400,
            "Invalid value for parameter 'time': x",
        ),
        (
            DAY,
            r#"{"time":1,"liftID":0}"#,
            400,
            "Invalid value for parameter 'liftID': 0",
        ),
        ("/skiers", RIDE, 404, "Invalid path"),
        ("/skiers/seven", RIDE, 404, "Invalid path or parameters supplied"),
        ("/skiers/7/vertical", RIDE, 404, "Invalid path or parameters supplied"),
        (
            "/skiers/56/seasons/2022/days/12/skiers/-7",
            RIDE,
            404,
            "Invalid path or parameters supplied",
        ),
        (
            "/skiers/56/seasons/2022/days/367/skiers/7",
            RIDE,
            400,
            "Invalid day value",
        ),
        (
            "/skiers/56/seasons/2022/days/12/skiers/2147483648",
            RIDE,
            400,
            "Invalid value for parameter 'skierID': 2147483648",
        ),
        ("/resorts/56/seasons", "{}", 400, "Missing parameter: 'year'"),
        (
            "/resorts/56/seasons",
            r#"{"year":"22"}"#,
            400,
            "Invalid value for parameter 'year': 22",
        ),
        (
            "/resorts/x/seasons",
            r#"{"year":"2022"}"#,
            404,
            "Invalid path or parameters supplied",
        ),
    ] {
        assert_eq!(service.post(path, body), message(status, said), "{path} {body}");
        assert_eq!(
            service.post(&format!("{WAR}{path}"), body),
            text(status, said),
            "{path} {body}"
        );
    }
    let (status, said) = service.post(DAY, "{");
    assert!(status == 400 && said.contains("Invalid body: "), "{status} {said}");
    assert_eq!(
        service.get("/resorts"),
        text(200, r#"{"resorts":[]}"#),
        "nothing was recorded"
    );
}

#[test]
fn equal_rides_are_two_rides_and_a_key_makes_them_one() {
    let service = Service::start();
    service.post(DAY, RIDE);
    service.post(DAY, RIDE);
    assert_eq!(service.get(DAY), text(200, "420"));
    let keyed = "content-type: application/json\r\nidempotency-key: ride-1\r\n";
    for _ in 0..2 {
        assert_eq!(service.exchange("POST", DAY, keyed, RIDE), created());
    }
    assert_eq!(service.get(DAY), text(200, "630"));
}

#[test]
fn a_skiers_rides_are_told_by_day_and_by_season() {
    let service = Service::start();
    for (day, lift) in [(12, 1), (12, 3), (12, 3), (14, 2)] {
        let body = json!({ "time": 1, "liftID": lift }).to_string();
        service.post(&format!("/skiers/56/seasons/2022/days/{day}/skiers/7"), &body);
    }
    service.post("/skiers/56/seasons/2023/days/1/skiers/7", RIDE);
    service.post("/skiers/57/seasons/2022/days/1/skiers/7", RIDE);
    assert_eq!(service.get(DAY), text(200, "70"));
    assert_eq!(
        values(service.get(&format!("{DAY}/lifts"))),
        (
            200,
            json!({ "lifts": [{ "liftID": 1, "rides": 1 }, { "liftID": 3, "rides": 2 }] })
        )
    );
    let season = json!({ "daysSkied": 2, "rides": 4, "totalVert": 90, "days": [
        { "dayID": "12", "rides": 3, "vertical": 70 },
        { "dayID": "14", "rides": 1, "vertical": 20 },
    ] });
    assert_eq!(values(service.get("/skiers/56/seasons/2022/skiers/7")), (200, season));
    let vertical = |query: &str| service.get(&format!("/skiers/7/vertical{query}"));
    let seasons = |seasons: &[(&str, u64)]| {
        let of = |(year, vertical): &(&str, u64)| json!({ "seasonID": year, "totalVert": vertical });
        (200, json!({ "resorts": seasons.iter().map(of).collect::<Vec<_>>() }))
    };
    assert_eq!(
        vertical("?resort=56"),
        text(
            200,
            r#"{"resorts":[{"seasonID":"2022","totalVert":90},{"seasonID":"2023","totalVert":210}]}"#
        )
    );
    assert_eq!(values(vertical("?resort=56&season=2023")), seasons(&[("2023", 210)]));
    assert_eq!(
        values(vertical("?season=2022&season=2023&resort=57&resort=56")),
        seasons(&[("2022", 210), ("2022", 90), ("2023", 210)])
    );
    assert_eq!(vertical(""), message(400, "Missing parameter: 'resort'"));
    assert_eq!(
        vertical("?resort=x"),
        message(400, "Invalid value for parameter 'resort': x")
    );
    assert_eq!(vertical("?resort=58"), message(404, "Data not found"));
    assert_eq!(vertical("?resort=56&season=2019"), message(404, "Data not found"));
    for path in [
        "/skiers/8/vertical?resort=56",
        "/skiers/56/seasons/2022/days/13/skiers/7",
        "/skiers/56/seasons/2022/days/12/skiers/8",
        "/skiers/56/seasons/2021/skiers/7",
    ] {
        assert_eq!(service.get(path), message(404, "Data not found"), "{path}");
        assert_eq!(
            service.get(&format!("{WAR}{path}")),
            text(404, "Data not found"),
            "{path}"
        );
    }
}

#[test]
fn a_resorts_day_is_told_by_skier_lift_and_hour() {
    let service = Service::start();
    for (skier, time, lift) in [(7, 1, 3), (7, 60, 3), (8, 61, 4), (9, 420, 3)] {
        let body = json!({ "time": time, "liftID": lift }).to_string();
        service.post(&format!("/skiers/56/seasons/2022/days/12/skiers/{skier}"), &body);
    }
    service.arrived("56:2022:12", 4);
    let day = "/resorts/56/seasons/2022/day/12";
    let (status, skiers) = values(service.get(&format!("{day}/skiers")));
    assert_eq!((status, &skiers["numSkiers"]), (200, &json!(3)));
    assert!(skiers["time"].is_string(), "{skiers}");
    assert_eq!(
        values(service.get(&format!("{day}/lifts"))),
        (
            200,
            json!({ "lifts": [{ "liftID": 3, "rides": 3 }, { "liftID": 4, "rides": 1 }] })
        )
    );
    let days = "/resorts/56/seasons/2022/days/12";
    assert_eq!(
        service.get(&format!("{days}/lifts/3")),
        text(200, r#"{"liftID":3,"rides":3}"#)
    );
    assert_eq!(
        service.get(&format!("{days}/lifts/5")),
        text(200, r#"{"liftID":5,"rides":0}"#)
    );
    assert_eq!(
        service.get(&format!("{days}/hours")),
        text(200, r#"{"hours":[2,1,0,0,0,0,1]}"#)
    );
    let (status, empty) = values(service.get("/resorts/56/seasons/2022/day/13/skiers"));
    assert_eq!((status, &empty["numSkiers"]), (200, &json!(0)));
    assert_eq!(
        service.get("/resorts/57/seasons/2022/day/12/skiers"),
        message(404, "Resort not found")
    );
    assert_eq!(
        service.get("/resorts/56/seasons/2022/day/0/skiers"),
        message(400, "Invalid day value")
    );
}

#[test]
fn resorts_and_seasons_are_those_added_and_those_with_rides() {
    let service = Service::start();
    assert_eq!(service.get("/resorts/56/seasons"), message(404, "Resort not found"));
    service.post(DAY, RIDE);
    service.arrived("56:2022:12", 1);
    for (resort, year) in [(56, "2021"), (56, "2021"), (100, "2022"), (9, "2022")] {
        let body = json!({ "year": year }).to_string();
        let answer = service.post(&format!("/resorts/{resort}/seasons"), &body);
        assert_eq!(answer, text(201, "Season created!"));
    }
    service.has_season(56, 2022);
    assert_eq!(
        service.get("/resorts/56/seasons"),
        text(200, r#"{"seasons":["2021","2022"]}"#)
    );
    let resort = |number: u32| json!({ "resortName": format!("Resort {number}"), "resortID": number });
    assert_eq!(
        values(service.get("/resorts")),
        (200, json!({ "resorts": [resort(9), resort(56), resort(100)] }))
    );
}

#[test]
fn the_statistics_list_each_requested_operation() {
    let service = Service::start();
    assert_eq!(service.get("/statistics"), text(200, r#"{"endpointStats":[]}"#));
    service.post(DAY, RIDE);
    service.get(DAY);
    let (status, statistics) = values(service.get(&format!("{WAR}/statistics")));
    let rows = statistics["endpointStats"].as_array().unwrap();
    assert_eq!((status, rows.len()), (200, 2));
    for (row, operation) in rows.iter().zip(["POST", "GET"]) {
        assert_eq!(
            row["URL"],
            "/skiers/{resortID}/seasons/{seasonID}/days/{dayID}/skiers/{skierID}"
        );
        assert_eq!(row["operation"], operation);
        assert!(row["max"].as_u64() >= row["mean"].as_u64(), "{row}");
    }
}

#[test]
fn everything_that_is_documented_is_there() {
    let service = Service::start();
    let described = skiers::describe();
    for (method, path) in described.paths() {
        let path = path
            .replace("{resortID}", "56")
            .replace("{seasonID}", "2022")
            .replace("{dayID}", "12")
            .replace("{skierID}", "7")
            .replace("{liftID}", "3");
        let (status, body) = service.send(method, &path, "");
        assert!(
            status != 405 && !body.contains("Invalid path") && !body.contains("unknown-route"),
            "{method} {path}: {status} {body}"
        );
    }
}
