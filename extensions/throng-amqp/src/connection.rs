//! A connection to a broker, plain or under TLS.

use crate::{Error, repair::Repaired};
use async_compat::{Compat, CompatExt as _};
use async_rs::{
    Runtime, Tokio,
    traits::{AsyncToSocketAddrs, Reactor},
    util::RuntimeParts,
};
use futures_io::{AsyncRead as AsyncReadIo, AsyncWrite as AsyncWriteIo};
use lapin::{
    AsyncTcpStream, Connection, ConnectionProperties, ErrorKind,
    protocol::{AMQPErrorKind, AMQPHardError, AMQPSoftError},
    uri::{AMQPScheme, AMQPUri},
};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use std::{
    fmt, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
    time::{Duration, Instant},
};
use throng_breaker::Pauses;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, lookup_host},
    time::timeout,
};
use tokio_rustls::TlsConnector;

/// The longest time to connect, including the handshakes.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// The longest time to reach one address. A new attempt finds a broker that came back sooner than a longer wait would.
const DIAL_MAX: Duration = Duration::from_secs(2);
/// The longest pause between attempts to connect, to which up to half is added at random. So a broker that is back is used within three
/// seconds.
pub(crate) const RECONNECT: Duration = Duration::from_millis(1_500);
/// The longest frame, if none was negotiated.
pub(crate) const FRAME_BYTES: usize = 128 << 10;
/// The default heartbeat in seconds. A broker silent for twice as long counts as lost.
const HEARTBEAT_SECONDS: u16 = 10;

/// The address and login of a broker: `amqp://user:password@host:port/virtual-host`, with TLS `amqps://`. Printed without user and
/// password.
#[derive(Clone)]
pub struct Broker {
    uri: AMQPUri,
    root_certificates: Option<PathBuf>,
}

impl FromStr for Broker {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        // The part that may hold a password is left out.
        let shown = || text.rsplit_once('@').map_or(text, |(_, place)| place).to_owned();
        let mut uri: AMQPUri = text.parse().map_err(|_| Error::Address(shown()))?;
        uri.query.heartbeat.get_or_insert(HEARTBEAT_SECONDS);
        Ok(Self {
            uri,
            root_certificates: None,
        })
    }
}

impl fmt::Display for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uri.authority.host, self.uri.authority.port)
    }
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Broker({self})")
    }
}

impl Broker {
    /// Trusts the certificates in this PEM file in addition to the system's.
    #[must_use]
    pub fn trust(mut self, root_certificates: impl Into<PathBuf>) -> Self {
        self.root_certificates = Some(root_certificates.into());
        self
    }

    /// Connects. The broker's operators see `name`.
    pub(crate) async fn connect(&self, name: &str) -> Result<Connection, Error> {
        let tls = match self.uri.scheme {
            AMQPScheme::AMQP => None,
            AMQPScheme::AMQPS => Some(tls(self.root_certificates.as_deref())?),
        };
        let unreachable = |why: String| Error::Unreachable {
            place: self.to_string(),
            why,
        };
        // The library must not reconnect itself: only the caller knows how long to wait.
        let properties = ConnectionProperties::default()
            .with_connection_name(name.into())
            .configure_backoff(|backoff| backoff.with_max_times(0));
        let runtime = Runtime::new(RuntimeParts::new(Tokio::current(), Sockets(Tokio::current())));
        let dial = async move |uri: AMQPUri, _| {
            let stream = dial(&uri, tls.as_ref()).await.map_err(lapin::Error::from)?;
            Ok(AsyncTcpStream::Plain(stream))
        };
        match timeout(
            CONNECT_MAX,
            Connection::connector(self.uri.clone(), runtime, dial, properties),
        )
        .await
        {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => Err(match found(&error) {
                Found::Refused => Error::Refused {
                    place: self.to_string(),
                    why: error.to_string(),
                },
                Found::Untrusted => Error::Untrusted {
                    place: self.to_string(),
                    why: error.to_string(),
                },
                Found::Nobody => unreachable(error.to_string()),
            }),
            Err(_) => Err(unreachable(format!("no answer within {CONNECT_MAX:?}"))),
        }
    }
}

/// The result of an attempt to reach a broker.
enum Found {
    Nobody,
    Refused,
    Untrusted,
}

fn found(error: &lapin::Error) -> Found {
    match error.kind() {
        ErrorKind::ProtocolError(error) => match error.kind() {
            AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED) | AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED) => {
                Found::Refused
            }
            _ => Found::Nobody,
        },
        ErrorKind::IOError(error) => match error.get_ref().and_then(|error| error.downcast_ref()) {
            Some(rustls::Error::InvalidCertificate(_)) => Found::Untrusted,
            _ => Found::Nobody,
        },
        _ => Found::Nobody,
    }
}

/// Returns the pauses between attempts to connect.
pub(crate) fn reconnect_pauses() -> Pauses {
    Pauses::new(Duration::from_millis(100), RECONNECT)
}

/// A socket, or a TLS session on one.
trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

type Stream = Compat<Box<dyn Wire>>;

async fn dial(uri: &AMQPUri, tls: Option<&TlsConnector>) -> io::Result<Stream> {
    let host = uri.authority.host.as_str();
    let mut reached = Err(io::Error::other("its name has no address"));
    for address in lookup_host((host, uri.authority.port)).await? {
        let late = || io::Error::new(io::ErrorKind::TimedOut, format!("{address} does not answer"));
        reached = timeout(DIAL_MAX, TcpStream::connect(address))
            .await
            .unwrap_or_else(|_| Err(late()));
        if reached.is_ok() {
            break;
        }
    }
    let socket = reached?;
    socket.set_nodelay(true)?;
    let Some(tls) = tls else {
        return Ok((Box::new(Repaired::new(socket)) as Box<dyn Wire>).compat());
    };
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let session = tls.connect(name, socket).await?;
    Ok((Box::new(Repaired::new(session)) as Box<dyn Wire>).compat())
}

fn tls(certificates: Option<&Path>) -> Result<TlsConnector, Error> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = certificates {
        let unusable = |why: &dyn fmt::Display| Error::Certificates {
            path: path.display().to_string(),
            why: why.to_string(),
        };
        for certificate in CertificateDer::pem_file_iter(path).map_err(|error| unusable(&error))? {
            let certificate = certificate.map_err(|error| unusable(&error))?;
            roots.add(certificate).map_err(|error| unusable(&error))?;
        }
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Thread(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config).into())
}

/// tokio's reactor, for this crate's streams.
#[derive(Clone, Debug)]
struct Sockets(Tokio);

impl Reactor for Sockets {
    type TcpStream = Stream;
    type Sleep = <Tokio as Reactor>::Sleep;

    fn register<H: Send + 'static>(
        &self,
        _: H,
    ) -> io::Result<impl AsyncReadIo + AsyncWriteIo + Send + Unpin + 'static> {
        Err::<Stream, _>(not_by_this())
    }

    fn sleep(&self, duration: Duration) -> Self::Sleep {
        self.0.sleep(duration)
    }

    fn interval(&self, duration: Duration) -> impl futures_util::Stream<Item = Instant> + Send + 'static {
        self.0.interval(duration)
    }

    async fn tcp_connect<A: AsyncToSocketAddrs + Send>(&self, _: A) -> io::Result<Stream> {
        Err(not_by_this())
    }

    fn tcp_connect_addr(&self, _: SocketAddr) -> impl Future<Output = io::Result<Stream>> + Send + 'static {
        std::future::ready(Err(not_by_this()))
    }
}

fn not_by_this() -> io::Error {
    io::Error::other("connections are made by dial")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_user_and_password() {
        let broker: Broker = "amqp://ann:secret@rabbit.example:5673/rides".parse().unwrap();
        assert_eq!(broker.to_string(), "rabbit.example:5673");
        assert_eq!(format!("{broker:?}"), "Broker(rabbit.example:5673)");
        let error = "http://ann:secret@rabbit.example"
            .parse::<Broker>()
            .unwrap_err()
            .to_string();
        assert!(error.contains("rabbit.example") && !error.contains("secret"), "{error}");
    }
}
