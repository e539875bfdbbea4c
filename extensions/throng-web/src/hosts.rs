//! The servers that may be called, restricted by name and by address.

use http::Uri;
use std::net::{IpAddr, SocketAddr};

/// The server of a URL.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    pub(crate) is_tls: bool,
    /// The host in lower case, an IPv6 address without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Origin {
    pub(crate) fn of(uri: &Uri) -> Result<Self, String> {
        let is_tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err("the URL begins with neither https:// nor http://".into()),
        };
        let authority = uri.authority().ok_or("the URL has no host")?;
        if authority.as_str().contains('@') {
            return Err("the URL holds a user's name or password: put these into a header field".into());
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        Ok(Self {
            is_tls,
            host: host.to_ascii_lowercase(),
            port: authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 }),
        })
    }

    fn has_name(&self, name: &str) -> bool {
        let has_default_port = self.port == if self.is_tls { 443 } else { 80 };
        let (host, port) = (&self.host, self.port);
        has_default_port && name.eq_ignore_ascii_case(host) || name.eq_ignore_ascii_case(&format!("{host}:{port}"))
    }
}

/// The servers that may be called.
#[derive(Clone, Debug)]
pub(crate) struct Hosts {
    /// The allowed names, each with its port unless that is the default. `None` allows all.
    pub(crate) named: Option<Vec<String>>,
    /// True if private addresses may be called, and these also without TLS.
    pub(crate) has_private: bool,
}

impl Hosts {
    /// Resolves a server's name, and returns those addresses that may be called: at least one.
    pub(crate) async fn addresses(&self, origin: &Origin) -> Result<Vec<SocketAddr>, String> {
        let host = &origin.host;
        let is_named = self
            .named
            .as_ref()
            .is_none_or(|names| names.iter().any(|name| origin.has_name(name)));
        if !is_named {
            let port = origin.port;
            return Err(format!(
                "{host:?} at port {port} is not among the client's hosts: name it in HttpClient::to_hosts"
            ));
        }
        let found = tokio::net::lookup_host((host.as_str(), origin.port)).await;
        let found: Vec<SocketAddr> = found
            .map_err(|why| format!("cannot resolve {host:?}: {why}"))?
            .collect();
        let Some(first) = found.first().map(SocketAddr::ip) else {
            return Err(format!("{host:?} has no address"));
        };
        let may_call = |address: &SocketAddr| match is_public(address.ip()) {
            true => origin.is_tls,
            false => self.has_private,
        };
        let allowed: Vec<SocketAddr> = found.into_iter().filter(may_call).collect();
        match (allowed.is_empty(), is_public(first)) {
            (false, _) => Ok(allowed),
            (true, true) => Err(format!(
                "{host:?} has the public address {first}, which is called by https:// only"
            )),
            (true, false) => Err(format!(
                "{host:?} has the private address {first}: only a client with HttpClient::allow_private calls it"
            )),
        }
    }
}

/// Tells whether an address is public: not of this machine, a private network or a reserved range.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let [a, b, c, _] = v4.octets();
            let is_shared = a == 100 && (64..128).contains(&b);
            let is_reserved = a == 0 || a >= 240 || a == 198 && (18..20).contains(&b) || (a, b, c) == (192, 0, 0);
            !(v4.is_loopback()
                || v4.is_private()
                || v4.is_link_local()
                || v4.is_multicast()
                || v4.is_documentation()
                || is_shared
                || is_reserved)
        }
        // Global unicast, except the ranges for IPv4 addresses, tunnels or documentation.
        IpAddr::V6(v6) => {
            let [a, b, ..] = v6.segments();
            let is_special = a == 0x2001 && (b < 0x200 || b == 0xdb8) || a == 0x2002 || a == 0x3fff;
            a & 0xe000 == 0x2000 && !is_special
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use throng_testing::block_on;

    #[test]
    fn private_and_reserved_addresses_are_not_public() {
        let addresses = "127.0.0.1 10.1.2.3 172.16.0.1 192.168.1.1 169.254.169.254 0.0.0.0 100.64.0.1 192.0.0.8 198.18.0.1 \
            203.0.113.1 224.0.0.1 255.255.255.255 ::1 :: fe80::1 fd00::1 ff02::1 ::ffff:10.0.0.1 64:ff9b::7f00:1 \
            2002:7f00:1:: 2001::1 2001:db8::1 fec0::1";
        for address in addresses.split_whitespace() {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
        for address in ["1.1.1.1", "192.0.66.1", "93.184.216.34", "2606:2800:220:1::1"] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn server_is_refused_with_the_reason() {
        let hosts = |names: &[&str], has_private| Hosts {
            named: (!names.is_empty()).then(|| names.iter().map(|&name| name.to_owned()).collect()),
            has_private,
        };
        let refused = |hosts: &Hosts, url: &str| {
            let addresses = async { hosts.addresses(&Origin::of(&url.parse().unwrap())?).await };
            block_on(addresses).err().unwrap_or_default()
        };
        for (names, has_private, url, why) in [
            (
                &["a.example"][..],
                true,
                "https://b.example/",
                "not among the client's hosts",
            ),
            (
                &["127.0.0.1"],
                true,
                "https://127.0.0.1:8443/",
                "at port 8443 is not among",
            ),
            (&["127.0.0.1"], false, "https://127.0.0.1/", "private address 127.0.0.1"),
            (&[], false, "https://[::ffff:169.254.169.254]/", "private address"),
            (&[], false, "https://0x7f.1/", "private address 127.0.0.1"),
            (&[], true, "http://1.1.1.1/", "by https:// only"),
            (&[], true, "https://ann:secret@1.1.1.1/", "header field"),
            (&[], true, "ftp://1.1.1.1/", "neither https://"),
            (&["127.0.0.1:80"], true, "http://127.0.0.1/", ""),
            (&["127.0.0.1:81"], true, "http://127.0.0.1:81/", ""),
            (&[], false, "https://1.1.1.1/", ""),
        ] {
            let found = refused(&hosts(names, has_private), url);
            assert!(
                found.contains(why) && found.is_empty() == why.is_empty(),
                "{url}: {found}"
            );
            assert!(!found.contains("secret"));
        }
    }
}
