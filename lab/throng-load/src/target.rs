//! The target of requests: its URL, its addresses, and the permission to load it.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};

use crate::error::{Error, Result};

/// A target with the addresses of its host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// True if the target uses TLS.
    pub tls: bool,
    /// The host as given, for TLS and for people.
    pub host: String,
    /// The value of the `Host` header.
    pub authority: String,
    /// The path and the query, beginning with `/`.
    pub path: String,
    /// The addresses, IPv4 first. If one refuses from the start, the next one is tried. Without any address, requests fail as
    /// [`ErrorKind::Dns`](crate::ErrorKind::Dns) until the name has one.
    pub addresses: Vec<SocketAddr>,
    pub(crate) port: u16,
    /// True if public addresses may be loaded.
    pub(crate) owned: bool,
}

impl Target {
    /// Parses `http://host[:port][/path]` (also without the scheme) and looks up the host's addresses.
    ///
    /// Refuses addresses other than loopback and private networks unless `owned`.
    pub fn resolve(url: &str, owned: bool) -> Result<Target> {
        let mut target = Target::parse(url, owned)?;
        target.look_up()?;
        Ok(target)
    }

    /// Does the same as [`Target::resolve`] without looking up the addresses.
    pub fn parse(url: &str, owned: bool) -> Result<Target> {
        let (tls, rest) = match url.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (false, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (true, rest),
            Some((scheme, _)) => return Err(wrong(url, format!("scheme `{scheme}` is neither http nor https"))),
            None => (false, url),
        };
        let split = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(split);
        let path = path.split('#').next().unwrap_or("");
        let path = if path.starts_with('/') {
            path.to_string()
        } else {
            format!("/{path}")
        };
        if path.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return Err(wrong(
                url,
                "spaces and control characters must be percent-encoded".into(),
            ));
        }
        let (host, port) = host_and_port(authority, tls).map_err(|reason| wrong(url, reason))?;
        Ok(Target {
            tls,
            host,
            authority: authority.to_string(),
            path,
            addresses: Vec::new(),
            port,
            owned,
        })
    }

    /// Looks up the addresses. Blocks as long as the system's resolver does.
    pub fn look_up(&mut self) -> Result<()> {
        let dns = |cause| Error::Dns {
            host: self.host.clone(),
            cause,
        };
        let addresses = addresses(&self.host, self.port).map_err(dns)?;
        if addresses.is_empty() {
            return Err(dns(io::Error::new(io::ErrorKind::NotFound, "no address")));
        }
        if !self.owned
            && let Some(public) = addresses.iter().find(|address| !is_ours(address.ip()))
        {
            return Err(Error::NotOurs {
                host: self.host.clone(),
                address: public.ip(),
            });
        }
        self.addresses = addresses;
        Ok(())
    }

    /// Returns true if the host is a name, whose addresses may change.
    pub(crate) fn is_named(&self) -> bool {
        self.host.parse::<IpAddr>().is_err()
    }

    /// Returns `http://host:port`, without the path.
    pub fn base(&self) -> String {
        format!("{}://{}", if self.tls { "https" } else { "http" }, self.authority)
    }

    /// Returns the whole URL.
    pub fn url(&self) -> String {
        format!("{}{}", self.base(), self.path)
    }
}

/// Returns the addresses of a host, IPv4 first.
pub(crate) fn addresses(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let mut addresses: Vec<SocketAddr> = (host, port).to_socket_addrs()?.collect();
    addresses.sort_by_key(SocketAddr::is_ipv6);
    addresses.dedup();
    Ok(addresses)
}

fn wrong(url: &str, reason: String) -> Error {
    Error::Url {
        url: url.to_string(),
        reason,
    }
}

fn host_and_port(authority: &str, tls: bool) -> std::result::Result<(String, u16), String> {
    if authority.contains('@') {
        return Err("user and password in a URL are not supported; send an Authorization header".into());
    }
    let default = if tls { 443 } else { 80 };
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or("`[` without `]`")?;
            (host, after.strip_prefix(':'))
        }
        None => match authority.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    if host.is_empty() {
        return Err("it names no host".into());
    }
    let port = match port {
        Some(text) => text
            .parse()
            .map_err(|_| format!("port `{text}` is not a number from 1 to 65535"))?,
        None => default,
    };
    if port == 0 {
        return Err("port 0 cannot be connected to".into());
    }
    Ok((host.to_string(), port))
}

/// Returns true for loopback, private (RFC 1918), link-local, carrier-grade NAT and unique-local addresses.
pub(crate) fn is_ours(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let [first, second, ..] = v4.octets();
            v4.is_loopback()
                || v4.is_private()
                || v4.is_link_local()
                || v4.is_unspecified()
                || (first == 100 && (64..128).contains(&second))
        }
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => is_ours(IpAddr::V4(v4)),
            None => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local() || v6.is_unspecified(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart() {
        let target = Target::resolve("http://127.0.0.1:8080/a?b=c#d", false).unwrap();
        assert_eq!(
            (target.authority.as_str(), target.path.as_str()),
            ("127.0.0.1:8080", "/a?b=c")
        );
        assert_eq!(target.addresses, ["127.0.0.1:8080".parse().unwrap()]);
        assert_eq!(Target::resolve("127.0.0.1:81", false).unwrap().path, "/");
        let tls = |url| Target::resolve(url, false).map(|target| target.tls).ok();
        assert_eq!(
            [tls("HTTP://127.0.0.1"), tls("Https://127.0.0.1")],
            [Some(false), Some(true)]
        );
        assert_eq!(
            Target::resolve("https://[::1]", false).unwrap().addresses[0].port(),
            443
        );
    }

    #[test]
    fn public_addresses_need_a_word() {
        for url in [
            "http://93.184.215.14/",
            "http://[2606:2800::1]/",
            "http://[::ffff:8.8.8.8]/",
        ] {
            assert!(
                matches!(Target::resolve(url, false), Err(Error::NotOurs { .. })),
                "{url}"
            );
            assert!(Target::resolve(url, true).is_ok());
        }
        for url in [
            "http://10.1.2.3",
            "http://192.168.0.1",
            "http://172.16.0.1",
            "http://[fd00::1]",
            "http://100.64.0.1",
        ] {
            assert!(Target::resolve(url, false).is_ok(), "{url}");
        }
    }

    #[test]
    fn wrong_urls_are_told_why() {
        for url in [
            "ftp://localhost",
            "http://",
            "http://a:b@127.0.0.1",
            "http://127.0.0.1:x",
            "http://127.0.0.1/a b",
        ] {
            assert!(matches!(Target::resolve(url, false), Err(Error::Url { .. })), "{url}");
        }
        assert!(matches!(
            Target::resolve("http://no-such-host.invalid", false),
            Err(Error::Dns { .. })
        ));
    }
}
