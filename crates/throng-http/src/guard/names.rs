//! The host names of this service, and the origins of pages that may use it.
//!
//! A browser runs any page's script, and sends its requests wherever the script says. Two header fields distinguish such a request from a
//! program's. `Origin` names the page, if it uses another site than its own, or changes something. `Host` is the name under which the page
//! has found this service. A page of `evil.example` whose name was pointed to this machine (DNS rebinding) has its own origin, and only
//! `Host` gives it away. An address in place of a name cannot be pointed to another machine.
//!
//! Administration has its own rules: a page that may use the service may not administrate.

use crate::{caller::Sender, connection::AcceptedBy, problem::Problem};
use std::net::{IpAddr, Ipv6Addr};

/// The names and pages that are allowed.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// The names of this service besides `localhost`; `*` is any.
    pub(crate) hosts: Vec<String>,
    /// The other origins whose pages may use it; `*` is any.
    pub(crate) origins: Vec<String>,
    /// The origins of proxies in front of the console.
    pub(crate) admin_origins: Vec<String>,
}

/// The part of a service that a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Service,
    Administration,
}

impl Part {
    /// Returns the part. All requests on the listener for administration are administration.
    pub(crate) fn of(accepted_by: AcceptedBy, is_administration: bool) -> Self {
        match accepted_by.is_admin || is_administration {
            true => Self::Administration,
            false => Self::Service,
        }
    }
}

impl Names {
    /// Refuses a request for another service, or of a page that may not use this part of it. `is_loopback`: only programs of this machine
    /// reach the listener.
    pub(crate) fn check(&self, sender: &Sender<'_>, is_loopback: bool, part: Part) -> Result<(), Box<Problem>> {
        let authority = sender.authority.map(str::as_bytes);
        let is_other = |asked: &&[u8]| !self.is_own(asked, is_loopback, part);
        if let Some(asked) = sender.host.filter(is_other).or(authority.filter(is_other)) {
            return Err(Problem::misdirected(&String::from_utf8_lossy(asked)).boxed());
        }
        match sender.origin {
            None => Ok(()),
            Some(origin) if self.may(origin, authority.or(sender.host), part) => Ok(()),
            Some(origin) => Err(Problem::forbidden_origin(&String::from_utf8_lossy(origin)).boxed()),
        }
    }

    /// True if this is a name of this service. If others can reach the service and no names were set, it may have any name.
    fn is_own(&self, host: &[u8], is_loopback: bool, part: Part) -> bool {
        if !is_loopback && self.hosts.is_empty() {
            return true;
        }
        let name = without_port(host);
        let is_name = |own: &[u8]| own.eq_ignore_ascii_case(name);
        let is_administration = part == Part::Administration;
        // Names that nearly every program of this machine uses.
        name == b"127.0.0.1"
            || name.eq_ignore_ascii_case(b"localhost")
            || is_address(name)
            || self.hosts.iter().any(|own| match own.as_str() {
                // Otherwise administration without a token would be open to any page whose name points to this machine.
                "*" => !is_administration || !is_loopback,
                own => is_name(own.as_bytes()),
            })
            || is_administration
                && self
                    .admin_origins
                    .iter()
                    .filter_map(|origin| authority_of(origin.as_bytes()))
                    .any(|authority| is_name(without_port(authority)))
    }

    /// True if pages of this origin may send requests: pages of this service, or of an allowed origin.
    fn may(&self, origin: &[u8], host: Option<&[u8]>, part: Part) -> bool {
        let is_allowed = match part {
            Part::Service => self.is_allowed(origin),
            Part::Administration => is_among(&self.admin_origins, origin),
        };
        is_allowed
            || authority_of(origin)
                .zip(host)
                .is_some_and(|(authority, host)| authority.eq_ignore_ascii_case(host))
    }

    /// True if pages of this other origin may use the service.
    pub(crate) fn is_allowed(&self, origin: &[u8]) -> bool {
        self.origins.iter().any(|allowed| allowed == "*") || is_among(&self.origins, origin)
    }
}

fn is_among(origins: &[String], origin: &[u8]) -> bool {
    origins
        .iter()
        .any(|allowed| allowed.as_bytes().eq_ignore_ascii_case(origin))
}

fn without_port(host: &[u8]) -> &[u8] {
    match host.iter().rposition(|byte| matches!(byte, b':' | b']')) {
        // A colon inside `[::1]` begins no port.
        Some(colon) if host[colon] == b':' => &host[..colon],
        _ => host,
    }
}

fn is_address(name: &[u8]) -> bool {
    let Ok(name) = str::from_utf8(name) else { return false };
    match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        Some(name) => name.parse::<Ipv6Addr>().is_ok(),
        None => name.parse::<IpAddr>().is_ok_and(|address| address.is_ipv4()),
    }
}

fn authority_of(origin: &[u8]) -> Option<&[u8]> {
    let colon = origin.windows(3).position(|part| part == b"://")?;
    Some(&origin[colon + 3..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(hosts: &[&str], origins: &[&str]) -> Names {
        let own = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        Names {
            hosts: own(hosts),
            origins: own(origins),
            admin_origins: Vec::new(),
        }
    }

    #[test]
    fn on_loopback_a_service_has_local_and_given_names() {
        let names = names(&["shop.test"], &[]);
        for own in [
            "localhost",
            "LOCALHOST:8080",
            "127.0.0.1:8080",
            "[::1]:8080",
            "[::1]",
            "10.0.0.1",
            "Shop.test:1",
        ] {
            assert!(names.is_own(own.as_bytes(), true, Part::Service), "{own}");
        }
        for other in [
            "evil.example",
            "evil.example:8080",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "shop.test.",
            "",
            ":8080",
            "[::1",
            "::1",
        ] {
            assert!(!names.is_own(other.as_bytes(), true, Part::Service), "{other}");
        }
    }

    #[test]
    fn a_reachable_service_has_any_name_until_it_is_given_its_own() {
        assert!(names(&[], &[]).is_own(b"any.example", false, Part::Service));
        assert!(!names(&["one.example"], &[]).is_own(b"any.example", false, Part::Service));
        assert!(names(&["*"], &[]).is_own(b"any.example", true, Part::Service));
    }

    #[test]
    fn pages_of_other_hosts_are_refused_unless_allowed() {
        let may = |origin: &str, allowed: &[&str]| {
            names(&[], allowed).may(origin.as_bytes(), Some(b"localhost:8080".as_slice()), Part::Service)
        };
        assert!(may("http://localhost:8080", &[]) && may("https://LOCALHOST:8080", &[]));
        for other in [
            "http://localhost",
            "http://there:8080",
            "null",
            "",
            "http://localhost:8080.evil.example",
        ] {
            assert!(!may(other, &[]), "{other}");
        }
        assert!(may("https://app.example", &["https://app.example"]) && may("null", &["*"]));
        assert!(!may("https://app.example:8443", &["https://app.example"]));
        assert!(!names(&[], &[]).may(b"http://localhost", None, Part::Service));
    }

    #[test]
    fn both_names_of_a_request_have_to_be_the_services() {
        let names = names(&[], &[]);
        let asks = |host: &'static str, authority: Option<&'static str>| {
            let sender = Sender {
                host: Some(host.as_bytes()),
                authority,
                ..Sender::default()
            };
            names.check(&sender, true, Part::Service).is_ok()
        };
        assert!(asks("localhost", None) && asks("localhost", Some("localhost:1")));
        assert!(!asks("evil.example", Some("localhost")) && !asks("localhost", Some("evil.example")));
    }

    #[test]
    fn administration_has_its_own_pages_and_a_name_that_it_was_told() {
        let names = Names {
            admin_origins: vec!["https://console.example".into()],
            ..names(&["*", "shop.test"], &["*", "https://app.example"])
        };
        let part = Part::Administration;
        let may = |origin: &str| names.may(origin.as_bytes(), Some(b"127.0.0.1:9080".as_slice()), part);
        assert!(may("http://127.0.0.1:9080") && may("https://console.example"));
        for other in [
            "https://app.example",
            "http://127.0.0.1:8080",
            "null",
            "*",
            "https://console.example:444",
        ] {
            assert!(!may(other), "{other}");
        }
        for (host, is_own) in [
            ("127.0.0.1:9080", true),
            ("localhost", true),
            ("shop.test:9080", true),
            ("console.example", true),
            ("evil.example", false),
        ] {
            assert_eq!(names.is_own(host.as_bytes(), true, part), is_own, "{host}");
        }
        assert!(
            names.is_own(b"any.example", false, part),
            "beyond loopback a token is asked for"
        );
    }
}
