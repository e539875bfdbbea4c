//! Credentials of browsers, which cannot send `Authorization` when they open a WebSocket or follow a stream of events.
//!
//! A WebSocket offers its token as a subprotocol. An `EventSource` has only its URL: a page requests a ticket with its token, and puts the
//! ticket into the query. A ticket is for one path and some seconds, so that a leaked URL is useless.

use crate::{
    problem::{Answered, Problem},
    request::headers,
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use http::{HeaderMap, HeaderValue, Method, Uri, header, request::Parts};
use ring::{
    digest::{SHA256, digest},
    rand::{SecureRandom as _, SystemRandom},
};
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The subprotocol that offers a token: with the token in base64url behind it.
pub(crate) const BEARER: &str = "throng.bearer.";
/// The member of a query that holds a ticket.
const TICKET: &str = "ticket=";
/// The time for which a ticket holds.
pub(crate) const TICKET_LIFE: Duration = Duration::from_secs(30);
/// The most valid tickets in all, and of one token.
const TICKETS_MAX: usize = 4_096;
const TICKETS_OF_ONE_MAX: usize = 64;

/// Makes the token that a browser offers as a subprotocol the request's token, unless the request has another.
pub(crate) fn take_offered(headers: &mut HeaderMap) {
    if headers.contains_key(header::AUTHORIZATION) {
        return;
    }
    let offered = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).into_iter();
    let offered = offered.filter_map(|value| value.to_str().ok());
    let mut offered = offered.flat_map(|value| value.split(',')).map(str::trim);
    let token = offered.find_map(|offered| BASE64_URL_SAFE_NO_PAD.decode(offered.strip_prefix(BEARER)?).ok());
    if let Some(token) = token.and_then(|token| String::from_utf8(token).ok())
        && let Ok(shown) = HeaderValue::try_from(format!("Bearer {token}"))
    {
        headers.insert(header::AUTHORIZATION, shown);
    }
}

/// The tickets that hold.
#[derive(Default)]
pub(crate) struct Tickets(Mutex<HashMap<[u8; 32], Ticket>>);

/// The right to follow one path with the rights of a token.
struct Ticket {
    shown: HeaderValue,
    path: Box<str>,
    until: Instant,
}

fn hash(ticket: &str) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, ticket.as_bytes()).as_ref());
    hash
}

impl Tickets {
    /// Returns a new ticket for a path and a token.
    pub(crate) fn make(&self, shown: &HeaderValue, path: &str, now: Instant) -> Answered<String> {
        let mut random = [0; 32];
        let filled = SystemRandom::new().fill(&mut random);
        filled.map_err(|_| Problem::crashed("the system gives no random numbers").boxed())?;
        let text = BASE64_URL_SAFE_NO_PAD.encode(random);
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        made.retain(|_, ticket| ticket.until > now);
        let own = made.values().filter(|ticket| ticket.shown == *shown).count();
        if made.len() >= TICKETS_MAX || own >= TICKETS_OF_ONE_MAX {
            let detail = "There are too many tickets that were made lately. Try again later.";
            return Err(Problem::overloaded(detail, TICKET_LIFE).boxed());
        }
        let ticket = Ticket {
            shown: shown.clone(),
            path: path.into(),
            until: now + TICKET_LIFE,
        };
        made.insert(hash(&text), ticket);
        Ok(text)
    }

    fn find(&self, ticket: &str, path: &str, now: Instant) -> Option<HeaderValue> {
        let made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = made.get(&hash(ticket))?;
        (found.until > now && *found.path == *path).then(|| found.shown.clone())
    }

    /// Makes the token behind a ticket the token of a request for a stream of events, and removes the ticket from its query.
    pub(crate) fn redeem(&self, parts: &mut Parts, now: Instant) -> Answered<()> {
        let path = parts.uri.path();
        let Some(query) = parts.uri.query().filter(|query| query.contains(TICKET)) else {
            return Ok(());
        };
        let is_stream = parts.method == Method::GET && headers::wants_stream(&parts.headers);
        let members: Vec<&str> = query.split('&').collect();
        let ticket = members.iter().find_map(|member| member.strip_prefix(TICKET));
        let Some(ticket) = ticket.filter(|_| is_stream && !parts.headers.contains_key(header::AUTHORIZATION)) else {
            return Ok(());
        };
        let Some(mut shown) = self.find(ticket, path, now) else {
            return Err(Problem::unauthorized(
                "The ticket is for another path, or its time is over: ask for a new one.",
            )
            .boxed());
        };
        shown.set_sensitive(true);
        let rest: Vec<&str> = members
            .into_iter()
            .filter(|member| !member.starts_with(TICKET))
            .collect();
        let target = match rest.is_empty() {
            true => path.to_owned(),
            false => format!("{path}?{}", rest.join("&")),
        };
        let mut uri = parts.uri.clone().into_parts();
        uri.path_and_query = target.parse().ok();
        if let Ok(uri) = Uri::from_parts(uri) {
            parts.uri = uri;
        }
        parts.headers.insert(header::AUTHORIZATION, shown);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    #[test]
    fn token_among_subprotocols_is_taken_unless_another_is_shown() {
        let offered = format!("throng.v1, {BEARER}{}", BASE64_URL_SAFE_NO_PAD.encode("sécret"));
        let mut headers = HeaderMap::new();
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::try_from(offered).unwrap());
        let given = headers.clone();
        take_offered(&mut headers);
        assert_eq!(headers[header::AUTHORIZATION].as_bytes(), "Bearer sécret".as_bytes());
        let mut headers = given;
        headers.insert(header::AUTHORIZATION, HeaderValue::from_static("Bearer other"));
        take_offered(&mut headers);
        assert_eq!(headers[header::AUTHORIZATION], "Bearer other");
        let mut headers = HeaderMap::new();
        let wrong = HeaderValue::from_static("throng.bearer.%%%");
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, wrong);
        take_offered(&mut headers);
        assert!(!headers.contains_key(header::AUTHORIZATION));
    }

    fn asks(method: &str, target: &str) -> Parts {
        let request = Request::builder().method(method).uri(target);
        let request = request.header("accept", "text/event-stream").body(()).unwrap();
        request.into_parts().0
    }

    #[test]
    fn ticket_holds_for_one_path_and_some_seconds() {
        let (tickets, now) = (Tickets::default(), Instant::now());
        let shown = HeaderValue::from_static("Bearer token");
        let ticket = tickets.make(&shown, "/a/events", now).unwrap();
        let mut right = asks("GET", &format!("/a/events?after=7&ticket={ticket}&limit=1"));
        tickets.redeem(&mut right, now).unwrap();
        assert_eq!(
            (right.uri.to_string(), &right.headers["authorization"]),
            ("/a/events?after=7&limit=1".into(), &shown)
        );
        for (target, then) in [
            (format!("/b/events?ticket={ticket}"), now),
            (format!("/a/events?ticket={ticket}x"), now),
            (format!("/a/events?ticket={ticket}"), now + TICKET_LIFE),
        ] {
            let mut wrong = asks("GET", &target);
            let refused = tickets.redeem(&mut wrong, then).unwrap_err();
            assert!(refused.http_status() == 401 && !wrong.headers.contains_key("authorization"));
        }
        let mut command = asks("POST", &format!("/a/events?ticket={ticket}"));
        tickets.redeem(&mut command, now).unwrap();
        assert!(
            !command.headers.contains_key("authorization"),
            "it is for following only"
        );
    }

    #[test]
    fn tickets_are_bounded_for_one_token_and_for_all() {
        let (tickets, now) = (Tickets::default(), Instant::now());
        let make = |token: usize, now| {
            let shown = HeaderValue::try_from(format!("Bearer {token}")).unwrap();
            tickets.make(&shown, "/a", now).is_ok()
        };
        assert_eq!((0..100).filter(|_| make(0, now)).count(), TICKETS_OF_ONE_MAX);
        let all = (1..=100).flat_map(|token| std::iter::repeat_n(token, TICKETS_OF_ONE_MAX));
        assert_eq!(
            all.filter(|token| make(*token, now)).count(),
            TICKETS_MAX - TICKETS_OF_ONE_MAX
        );
        assert!(make(0, now + TICKET_LIFE), "those whose time is over are forgotten");
    }
}
