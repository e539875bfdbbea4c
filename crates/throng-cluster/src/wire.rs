//! One connection between two nodes: plain, or under TLS with certificates on both sides.

use crate::frame::{self, Frame, HELLO_BYTES_MAX, Secret};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
    server::WebPkiClientVerifier,
};
use std::{io, sync::Arc};
use throng_journal::scratch::SCRATCH_BYTES_MAX;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split},
    net::TcpStream,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// How two nodes make sure of each other: by the secret all of them know, and by certificates where others can listen to what they say.
#[derive(Clone, Debug)]
pub struct Trust {
    pub(crate) secret: Secret,
    tls: Option<Tls>,
}

#[derive(Clone, Debug)]
struct Tls {
    asks: Arc<ClientConfig>,
    is_asked: Arc<ServerConfig>,
}

impl Trust {
    /// By the secret alone: nothing that is said after both have proved it is encrypted.
    #[must_use]
    pub fn by_secret(secret: Secret) -> Self {
        Self { secret, tls: None }
    }

    /// All of it under TLS, too: this node's certificate with those between it and the root, its key, and the root or roots that have signed
    /// the certificates of all nodes, each as PEM. A certificate is for the host by which others reach its node, as server and as client.
    ///
    /// # Errors
    /// One of them is none, or they do not belong together.
    pub fn with_tls(self, certificate: &[u8], key: &[u8], roots: &[u8]) -> Result<Self, String> {
        let chain = certificates(certificate).map_err(|why| format!("the certificate: {why}"))?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|why| format!("the private key: {why}"))?;
        let mut store = RootCertStore::empty();
        for root in certificates(roots).map_err(|why| format!("the CA: {why}"))? {
            store.add(root).map_err(|why| format!("the CA: {why}"))?;
        }
        let (store, provider) = (Arc::new(store), Arc::new(ring::default_provider()));
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&store), Arc::clone(&provider));
        let verifier = verifier.build().map_err(|why| format!("the CA: {why}"))?;
        let unfit = |why: rustls::Error| format!("certificate and key: {why}");
        let is_asked = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(unfit)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(unfit)?;
        let asks = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(unfit)?
            .with_root_certificates(store)
            .with_client_auth_cert(chain, key)
            .map_err(unfit)?;
        let tls = Tls {
            asks: Arc::new(asks),
            is_asked: Arc::new(is_asked),
        };
        Ok(Self { tls: Some(tls), ..self })
    }
}

/// A connection's end, and what to do where TLS ended it.
fn explained(error: &io::Error) -> String {
    let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) else {
        return error.to_string();
    };
    let advice = match tls {
        rustls::Error::InvalidCertificate(invalid) => match invalid {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "the other node's certificate has expired: give it a new one with --peer-tls-cert"
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "the other node's certificate is not valid yet: look at the clocks of both machines"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "the other node's certificate is for another host than that by which it is reached: see --peer-advertise there"
            }
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "no root in this node's --peer-tls-ca has signed the other node's certificate"
            }
            _ => "the other node's --peer-tls-cert does not do",
        },
        rustls::Error::AlertReceived(AlertDescription::CertificateExpired) => {
            "the other node takes this node's certificate for expired: give this one a new --peer-tls-cert, and look at the clocks"
        }
        rustls::Error::AlertReceived(AlertDescription::UnknownCA | AlertDescription::DecryptError) => {
            "no root in the other node's --peer-tls-ca has signed this node's certificate"
        }
        rustls::Error::AlertReceived(AlertDescription::BadCertificate) => {
            "the other node does not take this node's certificate, which may be for another host: see --peer-advertise here"
        }
        _ => "all nodes need --peer-tls-cert, or none",
    };
    format!("TLS fails: {error}; {advice}")
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if found.is_empty() => Err("there is no certificate in it".into()),
        Ok(found) => Ok(found),
        Err(why) => Err(format!("a certificate: {why}")),
    }
}

/// A connection, as the two ways it has.
pub(crate) struct Wire {
    pub(crate) reader: Box<dyn AsyncRead + Send + Unpin>,
    pub(crate) writer: Box<dyn AsyncWrite + Send + Unpin>,
    /// Bytes that came behind the last frame that was [received](Self::receive).
    pub(crate) read: Vec<u8>,
}

impl Wire {
    /// The side that has connected to `address`, `host:port`.
    pub(crate) async fn connected(stream: TcpStream, address: &str, trust: &Trust) -> Result<Self, String> {
        let Some(tls) = &trust.tls else {
            return Ok(Self::plain(stream));
        };
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host).map_err(|why| format!("the host of {address}: {why}"))?;
        let connected = TlsConnector::from(Arc::clone(&tls.asks)).connect(name, stream).await;
        let connected = connected.map_err(|why| explained(&why))?;
        Ok(Self::halves(split(connected)))
    }

    /// The side that was connected to.
    pub(crate) async fn accepted(stream: TcpStream, trust: &Trust) -> Result<Self, String> {
        let Some(tls) = &trust.tls else {
            return Ok(Self::plain(stream));
        };
        let accepted = TlsAcceptor::from(Arc::clone(&tls.is_asked)).accept(stream).await;
        let accepted = accepted.map_err(|why| explained(&why))?;
        Ok(Self::halves(split(accepted)))
    }

    fn plain(stream: TcpStream) -> Self {
        Self::halves(stream.into_split())
    }

    fn halves<R, W>((reader, writer): (R, W)) -> Self
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        Self {
            reader: Box::new(reader),
            writer: Box::new(writer),
            read: Vec::new(),
        }
    }

    pub(crate) async fn send(&mut self, frame: &Frame) -> Result<(), String> {
        let mut bytes = Vec::new();
        frame::encode(frame, &mut bytes).map_err(|why| why.to_string())?;
        self.writer.write_all(&bytes).await.map_err(|why| why.to_string())?;
        self.writer.flush().await.map_err(|why| why.to_string())
    }

    /// Reads one frame of those by which two nodes make sure of each other.
    pub(crate) async fn receive(&mut self) -> Result<Frame, String> {
        loop {
            let decoded = frame::decode(&self.read, HELLO_BYTES_MAX).map_err(|why| why.to_string())?;
            if let Some((frame, used)) = decoded {
                self.read.drain(..used);
                return Ok(frame);
            }
            let read = self.reader.read_buf(&mut self.read).await;
            // Under TLS the other side's judgement of this one's certificate comes here.
            if read.map_err(|why| explained(&why))? == 0 {
                return Err("the connection was closed".into());
            }
        }
    }
}

/// Forgets the first so many bytes of what was read. A buffer that was large, and holds little now, gives its memory back.
pub(crate) fn advance(read: &mut Vec<u8>, bytes: usize) {
    read.drain(..bytes);
    if read.len() <= SCRATCH_BYTES_MAX / 2 && read.capacity() > SCRATCH_BYTES_MAX {
        read.shrink_to(SCRATCH_BYTES_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_failures_say_which_certificate_to_mend() {
        let told = |error: rustls::Error| explained(&io::Error::new(io::ErrorKind::InvalidData, error));
        let expired = told(CertificateError::Expired.into());
        assert!(expired.contains("other node's certificate has expired"), "{expired}");
        let unknown = told(rustls::Error::AlertReceived(AlertDescription::UnknownCA));
        assert!(unknown.contains("other node's --peer-tls-ca"), "{unknown}");
        for told in [expired, unknown] {
            assert!(!told.contains("all nodes need"), "{told}");
        }
        let plain = told(rustls::Error::AlertReceived(AlertDescription::CertificateRequired));
        assert!(plain.contains("all nodes need --peer-tls-cert"), "{plain}");
    }

    #[test]
    fn read_buffer_shrinks_once_a_large_frame_is_done_with() {
        let mut read = vec![1; 100 * SCRATCH_BYTES_MAX];
        advance(&mut read, SCRATCH_BYTES_MAX);
        assert!(
            read.capacity() >= 99 * SCRATCH_BYTES_MAX,
            "most of it is still to be read"
        );
        read.push(2);
        advance(&mut read, 99 * SCRATCH_BYTES_MAX);
        assert_eq!((read.as_slice(), read.capacity()), ([2].as_slice(), SCRATCH_BYTES_MAX));
    }
}
