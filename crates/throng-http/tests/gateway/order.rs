//! The order of the checks of a request, which is the same in every protocol.

use crate::support::{
    Client,
    both_paths::FULL,
    engine,
    http2::Http2,
    socket::{Socket, command, query},
    start, wait,
};
use serde_json::{Value, json};
use std::num::NonZeroU32;
use throng_http::{Access, Action, Gateway, Problem, Running};

/// Configures a gateway on which nobody may rename, read or follow a section.
fn guarded(gateway: Gateway) -> Gateway {
    gateway.authorize(|access: &Access<'_>| match access.action {
        Action::Command("rename") | Action::Query(_) | Action::Events => Err(Problem::forbidden("Nobody may.").into()),
        _ => Ok(()),
    })
}

/// The ways to send a command: HTTP/1.1 in the fast path and in the full one, HTTP/2, a WebSocket in the fast path and as a task.
#[derive(Clone, Copy, Debug)]
enum By {
    Plain,
    Full,
    Http2,
    Socket,
    SocketTask,
}

const ALL: [By; 5] = [By::Plain, By::Full, By::Http2, By::Socket, By::SocketTask];
const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

impl By {
    /// Sends this many commands to a section. With `is_timed` their timeout is invalid. Returns the statuses of the answers.
    fn ask(self, gateway: &Running, name: &str, is_timed: bool, times: usize) -> Vec<u64> {
        let (path, timed) = (format!("/api/section/S1/{name}"), [("request-timeout", "never")]);
        let timed = if is_timed { &timed[..] } else { &[] };
        let http1 = |more: &[_]| {
            let (fields, mut client) = ([timed, more].concat(), Client::new(gateway));
            let ask = |_| client.request("POST", &path, &fields, "{}").status.into();
            (0..times).map(ask).collect()
        };
        let socket = |more: Option<&str>| {
            let (mut asked, mut socket) = (command(1, "S1", name, &json!({})), Socket::new(gateway));
            if is_timed {
                asked["timeout_ms"] = 0.into();
            }
            if let Some(trace) = more {
                asked["traceparent"] = trace.into();
            }
            (0..times).map(|_| status(&socket.send(&asked).next())).collect()
        };
        match self {
            Self::Plain => http1(&[]),
            Self::Full => http1(&[FULL]),
            Self::Http2 => wait(async {
                let (client, _task) = Http2::new(gateway.address(), |_| {}).await;
                let mut statuses = Vec::new();
                for _ in 0..times {
                    let answer = client.begin_with("POST", &path, timed, "{}").await;
                    statuses.push(answer.status().as_u16().into());
                }
                statuses
            }),
            Self::Socket => socket(None),
            Self::SocketTask => socket(Some(TRACE)),
        }
    }
}

fn status(told: &Value) -> u64 {
    told["problem"]["status"].as_u64().unwrap_or(200)
}

#[test]
fn forbidden_command_is_refused_alike_by_all_protocols() {
    let engine = engine();
    let gateway = guarded(Gateway::builder(engine.clone())).start().unwrap();
    let share = engine.driver().budget().share("pages", 0);
    let asks = [
        ("open", false, 400),
        ("rename", false, 403),
        ("rename", true, 403),
        ("nothing", true, 404),
        ("open", true, 400),
    ];
    let check = |asks: &[(&str, bool, u64)]| {
        for (name, is_timed, expected) in asks {
            for by in ALL {
                let told = by.ask(&gateway, name, *is_timed, 2);
                assert_eq!(told, [*expected; 2], "{name} by {by:?}");
            }
        }
    };
    check(&asks);
    // Other replies use all the memory allowed, so even an authorised caller is not admitted.
    let _held = share.take_anyway(2 * share.most());
    check(&asks[1..]);
    check(&[("open", false, 503)]);
}

#[test]
fn forbidden_command_spends_its_rate_by_all_protocols() {
    for by in ALL {
        let limit = NonZeroU32::new(3);
        let gateway = start(|gateway| guarded(gateway).adjust_limits(|limits| limits.request_rate_max = limit));
        let told = by.ask(&gateway, "rename", false, 200);
        let forbidden = told.iter().take_while(|status| **status == 403).count();
        assert_eq!(
            (forbidden > 0, told.get(forbidden)),
            (true, Some(&429)),
            "{by:?}: {told:?}"
        );
    }
}

#[test]
fn forbidden_query_and_subscription_are_refused_first() {
    let gateway = start(guarded);
    let timed = [("request-timeout", "never")];
    for path in ["/api/section/S1", "/api/section/S1/events"] {
        let answer = Client::new(&gateway).request("GET", path, &timed, "");
        assert_eq!(answer.status, 403, "{path}");
    }
    let mut socket = Socket::new(&gateway);
    let mut asked = query(1, "S1", "view", &json!({}));
    asked["timeout_ms"] = 0.into();
    assert_eq!(status(&socket.send(&asked).next()), 403);
    let asked =
        json!({ "type": "subscribe", "id": 1, "kind": "section", "entity": "S1", "after": "nowhere", "credit": 1 });
    assert_eq!(status(&socket.send(&asked).next()), 403);
}
