//! TLS through rustls, sans I/O: ciphertext in, ciphertext out.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
#[cfg(feature = "tls")]
use std::sync::Arc;

use crate::ErrorKind;
use crate::error::{Error, Result};

/// The certificates to trust of an `https` target.
#[derive(Debug, Clone, Default)]
pub struct TlsOptions {
    /// Accepts any certificate, for one's own targets with self-signed ones.
    pub insecure: bool,
    /// A PEM file of certificates to trust in addition to the system's.
    pub roots: Option<PathBuf>,
}

/// The part that all TLS connections of a run share.
#[derive(Clone)]
pub(crate) struct TlsClient {
    #[cfg(feature = "tls")]
    config: Arc<rustls::ClientConfig>,
    #[cfg(feature = "tls")]
    name: rustls::pki_types::ServerName<'static>,
}

pub(crate) struct TlsSession {
    #[cfg(feature = "tls")]
    session: Box<rustls::ClientConnection>,
}

/// A handshake or record that cannot be parsed or trusted.
#[derive(Debug)]
pub(crate) struct TlsBroken {
    pub(crate) kind: ErrorKind,
    /// The fault in words.
    pub(crate) reason: String,
}

#[cfg(not(feature = "tls"))]
fn none() -> TlsBroken {
    TlsBroken {
        kind: ErrorKind::Tls,
        reason: "this build has no TLS".into(),
    }
}

#[cfg(not(feature = "tls"))]
impl TlsClient {
    pub(crate) fn new(_options: &TlsOptions, _host: &str, _http2: bool) -> Result<Self> {
        Err(Error::Option(
            "this build has no TLS: enable the feature `tls`, or use http://".into(),
        ))
    }

    pub(crate) fn session(&self) -> Result<TlsSession, TlsBroken> {
        Err(none())
    }
}

/// Returns a TLS connection for a single request.
///
/// # Errors
/// This build has no TLS.
#[cfg(not(feature = "tls"))]
pub fn over_tls(options: &TlsOptions, host: &str, stream: TcpStream) -> Result<impl Read + Write> {
    TlsClient::new(options, host, false).map(|_| stream)
}

/// Returns a TLS connection for a single request.
///
/// # Errors
/// The certificates to trust cannot be read, or the host is not a valid name for TLS.
#[cfg(feature = "tls")]
pub fn over_tls(options: &TlsOptions, host: &str, stream: TcpStream) -> Result<impl Read + Write> {
    let client = TlsClient::new(options, host, false)?;
    let session = rustls::ClientConnection::new(client.config, client.name);
    let session = session.map_err(|error| Error::Option(format!("TLS cannot be set up: {error}")))?;
    Ok(rustls::StreamOwned::new(session, stream))
}

#[cfg(not(feature = "tls"))]
impl TlsSession {
    pub(crate) fn receive(&mut self, _data: &[u8], _plain: &mut Vec<u8>) -> Result<bool, TlsBroken> {
        Err(none())
    }

    pub(crate) fn send(&mut self, _plain: &[u8]) -> Result<(), TlsBroken> {
        Err(none())
    }

    pub(crate) fn outgoing(&mut self, _out: &mut Vec<u8>) {}

    pub(crate) fn refuses_http2(&self) -> bool {
        false
    }
}

#[cfg(feature = "tls")]
const HTTP2: &[u8] = b"h2";

#[cfg(feature = "tls")]
impl TlsClient {
    pub(crate) fn new(options: &TlsOptions, host: &str, http2: bool) -> Result<Self> {
        use rustls::pki_types::pem::PemObject as _;
        use rustls::pki_types::{CertificateDer, ServerName};
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::Option(format!("TLS cannot be set up: {error}")))?;
        let mut config = if options.insecure {
            let any = Arc::new(AnyCertificate(provider));
            builder
                .dangerous()
                .with_custom_certificate_verifier(any)
                .with_no_client_auth()
        } else {
            let mut roots = rustls::RootCertStore::empty();
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if let Some(path) = &options.roots {
                let unreadable =
                    |error| Error::Option(format!("cannot read certificates of {}: {error}", path.display()));
                for certificate in CertificateDer::pem_file_iter(path).map_err(unreadable)? {
                    let certificate = certificate.map_err(unreadable)?;
                    roots.add(certificate).map_err(|error| {
                        Error::Option(format!(
                            "a certificate of {} cannot be trusted: {error}",
                            path.display()
                        ))
                    })?;
                }
            }
            builder.with_root_certificates(roots).with_no_client_auth()
        };
        let protocol: &[u8] = if http2 { HTTP2 } else { b"http/1.1" };
        config.alpn_protocols = vec![protocol.to_vec()];
        let name = ServerName::try_from(host.to_string()).map_err(|error| Error::Url {
            url: host.to_string(),
            reason: format!("no name for TLS: {error}"),
        })?;
        Ok(TlsClient {
            config: Arc::new(config),
            name,
        })
    }

    pub(crate) fn session(&self) -> Result<TlsSession, TlsBroken> {
        let mut session = rustls::ClientConnection::new(self.config.clone(), self.name.clone()).map_err(broken)?;
        // The buffer is unlimited, because a whole request of any size is written at once and its ciphertext is taken at once.
        session.set_buffer_limit(None);
        Ok(TlsSession {
            session: Box::new(session),
        })
    }
}

#[cfg(feature = "tls")]
impl TlsSession {
    /// Decrypts ciphertext and appends the result to `plain`. Returns false once the peer has sent its closing alert.
    pub(crate) fn receive(&mut self, mut data: &[u8], plain: &mut Vec<u8>) -> Result<bool, TlsBroken> {
        while !data.is_empty() {
            self.session.read_tls(&mut data).map_err(unreadable)?;
            let state = self.session.process_new_packets().map_err(broken)?;
            let begin = plain.len();
            plain.resize(begin + state.plaintext_bytes_to_read(), 0);
            self.session
                .reader()
                .read_exact(&mut plain[begin..])
                .map_err(unreadable)?;
            if state.peer_has_closed() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Encrypts bytes. Before the end of the handshake it keeps them.
    pub(crate) fn send(&mut self, plain: &[u8]) -> Result<(), TlsBroken> {
        self.session.writer().write_all(plain).map_err(unreadable)
    }

    /// Returns true if the handshake is done and did not choose HTTP/2.
    pub(crate) fn refuses_http2(&self) -> bool {
        !self.session.is_handshaking() && self.session.alpn_protocol() != Some(HTTP2)
    }

    /// Appends the ciphertext to be sent.
    pub(crate) fn outgoing(&mut self, out: &mut Vec<u8>) {
        while self.session.wants_write() && self.session.write_tls(out).is_ok_and(|bytes| bytes > 0) {}
    }
}

#[cfg(feature = "tls")]
fn unreadable(error: std::io::Error) -> TlsBroken {
    TlsBroken {
        kind: ErrorKind::Tls,
        reason: error.to_string(),
    }
}

#[cfg(feature = "tls")]
fn broken(error: rustls::Error) -> TlsBroken {
    let kind = match error {
        rustls::Error::AlertReceived(rustls::AlertDescription::NoApplicationProtocol) => ErrorKind::NoHttp2,
        _ => ErrorKind::Tls,
    };
    TlsBroken {
        kind,
        reason: error.to_string(),
    }
}

/// Accepts any certificate. Signatures are still checked, so the server must have its key.
#[cfg(feature = "tls")]
#[derive(Debug)]
struct AnyCertificate(Arc<rustls::crypto::CryptoProvider>);

#[cfg(feature = "tls")]
impl rustls::client::danger::ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &rustls::pki_types::CertificateDer<'_>,
        _intermediates: &[rustls::pki_types::CertificateDer<'_>],
        _server_name: &rustls::pki_types::ServerName<'_>,
        _ocsp_response: &[u8],
        _now: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &rustls::pki_types::CertificateDer<'_>,
        signed: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &rustls::pki_types::CertificateDer<'_>,
        signed: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
