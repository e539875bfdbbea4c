use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use base64::Engine as _;

use crate::engine::{Fed, Parser};
use crate::error::{Error, Result};
use crate::{Request, Target};

const TIMEOUT: Duration = Duration::from_millis(900);
const PAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The address of a page, with a password if it needs one.
#[derive(Debug, Clone)]
pub struct Address {
    target: Target,
    authorization: Option<String>,
}

impl Address {
    /// Parses `http://[user:password@]host[:port][/path]`. TLS is not supported.
    pub fn parse(url: &str, owned: bool) -> Result<Self> {
        let parts = url.split_once("://");
        let plain = parts.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("http"));
        let (_, rest) = plain.ok_or_else(|| Error::Url {
            url: url.to_string(),
            reason: "series are sampled over plain http:// only".into(),
        })?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        let authorization =
            user.map(|user| format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(user)));
        Ok(Address {
            target: Target::resolve(&format!("http://{host}{path}"), owned)?,
            authorization,
        })
    }

    /// Returns the body of the page at its path plus `suffix`.
    pub(super) fn get(&self, suffix: &str) -> std::result::Result<Vec<u8>, String> {
        let path = format!(
            "{}{suffix}",
            if suffix.is_empty() {
                &self.target.path
            } else {
                self.target.path.trim_end_matches('/')
            }
        );
        self.try_get(&path)
            .map_err(|reason| format!("cannot sample http://{}{path}: {reason}", self.target.authority))
    }

    fn try_get(&self, path: &str) -> std::result::Result<Vec<u8>, String> {
        let mut request = Request::build("GET", &self.target.authority, path).header("Connection", "close");
        if let Some(authorization) = &self.authorization {
            request = request.header("Authorization", authorization);
        }
        let said = |error: std::io::Error| error.to_string();
        let mut stream = TcpStream::connect_timeout(&self.target.addresses[0], TIMEOUT).map_err(said)?;
        stream.set_read_timeout(Some(TIMEOUT)).map_err(said)?;
        stream.set_write_timeout(Some(TIMEOUT)).map_err(said)?;
        stream.write_all(request.finish().bytes()).map_err(said)?;
        let mut parser = Parser::default();
        let mut buffer = vec![0; 64 * 1024];
        let mut total = 0;
        loop {
            let read = stream.read(&mut buffer).map_err(said)?;
            total += read;
            if total > PAGE_BYTES_MAX {
                return Err("the page is above 16 MiB".into());
            }
            if read == 0 {
                let answer = parser.closed().ok_or("the connection was closed early")?;
                return body(answer.status, answer.body);
            }
            match parser.feed(&buffer[..read], false) {
                Fed::More => {}
                Fed::Done { answer, .. } => return body(answer.status, answer.body),
                Fed::Broken(kind) => return Err(kind.name().into()),
            }
        }
    }
}

fn body(status: u16, body: &[u8]) -> std::result::Result<Vec<u8>, String> {
    if (200..300).contains(&status) {
        Ok(body.to_vec())
    } else {
        Err(format!("status {status}"))
    }
}
