//! Access to the service, and the listener for administration.

use crate::open_files::{Guarded, warn_if_open};
use clap::Args;
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
};
use throng_http::{Gateway, Jwt, Role, Tls};

/// The listener for administration has the service's port plus this.
const ADMIN_PORT_OFFSET: u16 = 1_000;

/// The callers that may use the service, and the listener for administration.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Security")]
pub struct SecurityArguments {
    /// The address that serves /admin/ and /metrics; by default loopback, with the service's port and 1000.
    #[arg(long, value_name = "ADDRESS:PORT", env = "THRONG_ADMIN_LISTEN", value_parser = address)]
    pub admin_listen: Option<SocketAddr>,
    /// The token that lets its holder administrate; better in the environment than on the command line, which every user of the machine sees.
    #[arg(long, value_name = "TOKEN", env = "THRONG_ADMIN_TOKEN", hide_env_values = true)]
    pub admin_token: Option<String>,
    /// A caller who may administrate; may be given several times.
    #[arg(long, value_name = "NAME", env = "THRONG_ADMIN_CALLERS", value_delimiter = ',')]
    pub admin_caller: Vec<String>,
    /// A caller's role in administration (metrics, viewer, operator, owner); may be given several times.
    #[arg(long, value_name = "NAME=ROLE", env = "THRONG_ADMIN_ROLES", value_delimiter = ',', value_parser = role)]
    pub admin_role: Vec<(String, Role)>,
    /// The file of tokens for administration, each with a role: lines that `token --role` makes. It is read again when it changes.
    #[arg(long, value_name = "FILE", env = "THRONG_ADMIN_TOKENS")]
    pub admin_tokens: Option<PathBuf>,
    /// The claim of JSON web tokens that names a role in administration, or a list with some, such as `realm_access.roles`.
    #[arg(long, value_name = "CLAIM", env = "THRONG_ADMIN_CLAIM", requires = "jwt_keys")]
    pub admin_claim: Option<String>,
    /// The file of tokens that callers must show: lines that `token` makes. It is read again when it changes.
    #[arg(long, value_name = "FILE", env = "THRONG_TOKENS")]
    pub tokens: Option<PathBuf>,
    /// Take JSON web tokens signed with these keys: a JSON web key set, as a file or a URL. A URL is fetched every five minutes.
    #[arg(long, value_name = "FILE|URL", env = "THRONG_JWT_KEYS")]
    pub jwt_keys: Option<String>,
    /// The only issuer (iss) whose tokens are accepted.
    #[arg(long, value_name = "ISSUER", env = "THRONG_JWT_ISSUER", requires = "jwt_keys")]
    pub jwt_issuer: Option<String>,
    /// The audience (aud) for which tokens are accepted; by default a token for any audience is refused.
    #[arg(long, value_name = "AUDIENCE", env = "THRONG_JWT_AUDIENCE", requires = "jwt_keys")]
    pub jwt_audience: Option<String>,
    /// Admit callers who show no token and no certificate, as nobody: the service itself decides what they may do.
    #[arg(long, env = "THRONG_ANONYMOUS")]
    pub anonymous: bool,
    /// The certificate for TLS with its intermediate certificates (PEM). It is read again when it changes.
    #[arg(long, value_name = "FILE", env = "THRONG_TLS_CERT", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The certificate's private key (PEM).
    #[arg(long, value_name = "FILE", env = "THRONG_TLS_KEY", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// The roots of clients' certificates (PEM): clients are known by theirs.
    #[arg(long, value_name = "FILE", env = "THRONG_TLS_CLIENT_CA", requires = "tls_cert")]
    pub tls_client_ca: Option<PathBuf>,
    /// Refuse clients' certificates that these lists name (CRL, PEM); read again when they change.
    #[arg(long, value_name = "FILE", env = "THRONG_TLS_CLIENT_CRL", requires = "tls_client_ca")]
    pub tls_client_crl: Option<PathBuf>,
    /// The origin of a proxy in front of the console, such as `https://console.example`. Only its pages and those of the listener itself may
    /// administrate. May be given several times.
    #[arg(long, value_name = "ORIGIN", env = "THRONG_ADMIN_ORIGINS", value_delimiter = ',', value_parser = origin)]
    pub admin_origin: Vec<String>,
    /// A name of the service, as clients write it in a URL, beside localhost and addresses; * is any. May be given several times.
    #[arg(long, value_name = "NAME", env = "THRONG_HOSTS", value_delimiter = ',')]
    pub host: Vec<String>,
    /// An origin whose pages may ask the service (CORS), such as `https://app.example`; * is any. May be given several times. They may not
    /// administrate.
    #[arg(long, value_name = "ORIGIN", env = "THRONG_ORIGINS", value_delimiter = ',')]
    pub origin: Vec<String>,
    /// Tell clients apart by the last element of this header, which a proxy sets, such as X-Forwarded-For.
    #[arg(long, value_name = "NAME", env = "THRONG_CLIENT_HEADER")]
    pub client_header: Option<http::HeaderName>,
    /// The address of a proxy whose --client-header is believed; all are, unless one is given. May be given several times.
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "THRONG_TRUSTED_PROXIES",
        value_delimiter = ',',
        requires = "client_header"
    )]
    pub trusted_proxy: Vec<IpAddr>,
}

/// Parses an address and a port. The error for a near miss names the correct form.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| match text.rsplit_once(':') {
        Some(("" | "localhost" | "*", port)) if port.parse::<u16>().is_ok() => format!(
            "write an address and a port: 127.0.0.1:{port} for this machine's programs, 0.0.0.0:{port} for everybody"
        ),
        None if text.parse::<u16>().is_ok() => format!("write an address before the port: 127.0.0.1:{text}"),
        _ => "write an address and a port, as 127.0.0.1:8080 or [::1]:8080; names are not looked up".into(),
    })
}

/// Parses `NAME=ROLE`. The name itself may contain an equals sign.
fn role(text: &str) -> Result<(String, Role), String> {
    let (name, role) = text
        .rsplit_once('=')
        .ok_or("write a name and a role, as ann=operator")?;
    match name {
        "" => Err("the name is empty: write a name and a role, as ann=operator".into()),
        name => Ok((name.to_owned(), role.parse()?)),
    }
}

/// Parses an origin: a scheme and a host, and nothing after them.
fn origin(text: &str) -> Result<String, String> {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let is_host = |host: &str| !host.is_empty() && !host.contains(['/', '*', '?', '#', '@']);
    match host.is_some_and(is_host) {
        true => Ok(text.to_owned()),
        false => Err("write a scheme and a host, as https://console.example".into()),
    }
}

impl SecurityArguments {
    /// Returns the arguments with a listener for administration beside the service's.
    pub(crate) fn with_admin_listener(mut self, service: SocketAddr) -> Self {
        self.admin_listen.get_or_insert_with(|| {
            let port = match service.port() {
                0 => 0,
                port => port.checked_add(ADMIN_PORT_OFFSET).unwrap_or(0),
            };
            (Ipv4Addr::LOCALHOST, port).into()
        });
        self
    }

    /// Warns in the log of files that are open to others.
    fn warn_of_open_files(&self) {
        let keys = self.jwt_keys.as_ref().map(Path::new).filter(|keys| keys.exists());
        if let Some(key) = &self.tls_key {
            warn_if_open(key, Guarded::Private);
        }
        let unchanged = [
            &self.tokens,
            &self.admin_tokens,
            &self.tls_cert,
            &self.tls_client_ca,
            &self.tls_client_crl,
        ];
        let unchanged = unchanged.into_iter().flatten().map(PathBuf::as_path);
        unchanged
            .chain(keys)
            .for_each(|file| warn_if_open(file, Guarded::Unchanged));
    }

    pub(crate) fn set(&self, mut gateway: Gateway) -> Gateway {
        self.warn_of_open_files();
        if let Some(address) = self.admin_listen {
            gateway = gateway.admin(address);
        }
        if let Some(token) = self.admin_token.as_ref().filter(|token| !token.is_empty()) {
            gateway = gateway.admin_token(token);
        }
        gateway = self.admin_caller.iter().fold(gateway, Gateway::administrator);
        gateway = self
            .admin_role
            .iter()
            .fold(gateway, |gateway, (name, role)| gateway.admin_role(name, *role));
        if let Some(file) = &self.admin_tokens {
            gateway = gateway.admin_tokens(file);
        }
        if let Some(claim) = &self.admin_claim {
            gateway = gateway.admin_claim(claim);
        }
        if let Some(file) = &self.tokens {
            gateway = gateway.tokens(file);
        }
        if let Some(keys) = self.jwt_keys.clone() {
            let (issuer, audience) = (self.jwt_issuer.clone(), self.jwt_audience.clone());
            gateway = gateway.jwt(Jwt { keys, issuer, audience });
        }
        if self.anonymous {
            gateway = gateway.anonymous();
        }
        if let (Some(certificate), Some(key)) = (self.tls_cert.clone(), self.tls_key.clone()) {
            let client_ca = self.tls_client_ca.clone();
            gateway = gateway.tls(Tls {
                certificate,
                key,
                client_ca,
                client_crl: self.tls_client_crl.clone(),
            });
        }
        gateway = self.host.iter().fold(gateway, Gateway::host);
        gateway = self.origin.iter().fold(gateway, Gateway::origin);
        gateway = self.admin_origin.iter().fold(gateway, Gateway::admin_origin);
        if let Some(name) = &self.client_header {
            gateway = gateway.client_header(name.clone());
        }
        self.trusted_proxy.iter().copied().fold(gateway, Gateway::trusted_proxy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_that_is_none_is_answered_with_an_example() {
        assert_eq!(address("[::1]:80"), Ok("[::1]:80".parse().unwrap()));
        for (wrong, right) in [
            ("localhost:8081", "127.0.0.1:8081"),
            (":8081", "127.0.0.1:8081"),
            ("8081", "127.0.0.1:8081"),
            ("shop.test:80", "names are not looked up"),
            ("127.0.0.1", "as 127.0.0.1:8080"),
        ] {
            let told = address(wrong).unwrap_err();
            assert!(told.contains(right), "{wrong}: {told}");
        }
    }

    #[test]
    fn role_of_a_caller_stands_behind_its_name() {
        assert_eq!(role("ann=viewer"), Ok(("ann".into(), Role::Viewer)));
        assert_eq!(role("CN=ann=owner"), Ok(("CN=ann".into(), Role::Owner)));
        for (wrong, right) in [
            ("ann", "as ann=operator"),
            ("=owner", "name is empty"),
            ("ann=admin", "is no role"),
        ] {
            let told = role(wrong).unwrap_err();
            assert!(told.contains(right), "{wrong}: {told}");
        }
    }

    #[test]
    fn origin_of_administration_is_one_host_and_not_any() {
        for right in ["https://console.example", "http://10.0.0.1:8080", "https://[::1]"] {
            assert_eq!(origin(right).as_deref(), Ok(right));
        }
        for wrong in [
            "*",
            "console.example",
            "https://",
            "https://*",
            "https://a/b",
            "https://u@a",
            "file://a",
        ] {
            assert!(origin(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn administration_is_on_loopback_unless_an_address_is_given() {
        let beside = |service: &str| {
            let arguments = SecurityArguments::default().with_admin_listener(service.parse().unwrap());
            arguments.admin_listen.map(|address| address.to_string())
        };
        assert_eq!(beside("0.0.0.0:8080").as_deref(), Some("127.0.0.1:9080"));
        assert_eq!(beside("127.0.0.1:0").as_deref(), Some("127.0.0.1:0"));
        assert_eq!(beside("127.0.0.1:65000").as_deref(), Some("127.0.0.1:0"));
        let said = SecurityArguments {
            admin_listen: "10.0.0.1:1".parse().ok(),
            ..SecurityArguments::default()
        };
        let said = said.with_admin_listener(([127, 0, 0, 1], 80).into());
        assert_eq!(
            said.admin_listen.map(|address| address.to_string()).as_deref(),
            Some("10.0.0.1:1")
        );
    }
}
