//! Under which names this service is asked, and by whose pages.
//!
//! A browser runs any page's script, and sends its requests wherever the script says. Two fields of a request tell it from one of a
//! program: `Origin` names the page, where it asks another site than its own, or changes something; and `Host` is the name under which the page
//! has found this service. A page of `evil.example` whose name was made to point to this machine (DNS rebinding) is its own origin, and
//! only `Host` gives it away. An address in place of a name cannot be pointed elsewhere.

use super::Sender;
use crate::problem::Problem;
use std::net::{IpAddr, Ipv6Addr};

/// The names and pages that are allowed.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// Names of this service beside `localhost`; `*` is any.
    pub(crate) hosts: Vec<String>,
    /// Pages of other origins; `*` is any.
    pub(crate) origins: Vec<String>,
}

impl Names {
    /// Whether a request is for this service, and of a page that may ask it; by a listener that only programs of this machine reach, or by another.
    pub(crate) fn check(&self, sender: &Sender<'_>, is_loopback: bool) -> Result<(), Box<Problem>> {
        let authority = sender.authority.map(str::as_bytes);
        let is_other = |asked: &&[u8]| !self.is_own(asked, is_loopback);
        if let Some(asked) = sender.host.filter(is_other).or(authority.filter(is_other)) {
            return Err(Problem::misdirected(&String::from_utf8_lossy(asked)).boxed());
        }
        match sender.origin {
            None => Ok(()),
            Some(origin) if self.may(origin, authority.or(sender.host)) => Ok(()),
            Some(origin) => Err(Problem::forbidden_origin(&String::from_utf8_lossy(origin)).boxed()),
        }
    }

    /// Whether this is a name of this service. Where others can reach it and it was told no name, it may have any.
    fn is_own(&self, host: &[u8], is_loopback: bool) -> bool {
        if !is_loopback && self.hosts.is_empty() {
            return true;
        }
        let name = without_port(host);
        // What nearly every program of this machine says.
        name == b"127.0.0.1"
            || name.eq_ignore_ascii_case(b"localhost")
            || is_address(name)
            || self
                .hosts
                .iter()
                .any(|own| own == "*" || own.as_bytes().eq_ignore_ascii_case(name))
    }

    /// Whether a page of this origin may ask: one of this service, or one that was allowed.
    pub(crate) fn may(&self, origin: &[u8], host: Option<&[u8]>) -> bool {
        self.is_allowed(origin)
            || authority_of(origin)
                .zip(host)
                .is_some_and(|(authority, host)| authority.eq_ignore_ascii_case(host))
    }

    /// Whether pages of this other origin may ask.
    pub(crate) fn is_allowed(&self, origin: &[u8]) -> bool {
        self.origins
            .iter()
            .any(|allowed| allowed == "*" || allowed.as_bytes().eq_ignore_ascii_case(origin))
    }
}

fn without_port(host: &[u8]) -> &[u8] {
    match host.iter().rposition(|byte| matches!(byte, b':' | b']')) {
        // Of `[::1]` no part is a port.
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
        }
    }

    #[test]
    fn on_loopback_a_service_is_localhost_an_address_or_what_it_was_told() {
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
            assert!(names.is_own(own.as_bytes(), true), "{own}");
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
            assert!(!names.is_own(other.as_bytes(), true), "{other}");
        }
    }

    #[test]
    fn where_others_reach_it_a_service_has_any_name_until_it_is_told_its_own() {
        assert!(names(&[], &[]).is_own(b"any.example", false));
        assert!(!names(&["one.example"], &[]).is_own(b"any.example", false));
        assert!(names(&["*"], &[]).is_own(b"any.example", true));
    }

    #[test]
    fn a_page_of_this_host_may_and_one_of_another_only_if_it_is_allowed() {
        let may = |origin: &str, allowed: &[&str]| {
            names(&[], allowed).may(origin.as_bytes(), Some(b"localhost:8080".as_slice()))
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
        assert!(!names(&[], &[]).may(b"http://localhost", None));
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
            names.check(&sender, true).is_ok()
        };
        assert!(asks("localhost", None) && asks("localhost", Some("localhost:1")));
        assert!(!asks("evil.example", Some("localhost")) && !asks("localhost", Some("evil.example")));
    }
}
