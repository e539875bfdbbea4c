//! A connection between two nodes: plain, or under TLS with certificates on both sides.

use crate::frame::{self, Frame, HELLO_BYTES_MAX, Hello, Role, Secret};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
    server::WebPkiClientVerifier,
};
use std::{
    io,
    sync::{Arc, PoisonError, RwLock},
};
use throng_journal::scratch::SCRATCH_BYTES_MAX;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split},
    net::TcpStream,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// The secrets by which two nodes authenticate each other, and the certificates for networks on which others can listen. Clones share them:
/// [renewed](Self::set_secrets) secrets count for each connection that begins after that.
#[derive(Clone, Debug)]
pub struct Trust(Arc<RwLock<Arc<Trusted>>>);

#[derive(Clone, Debug)]
pub(crate) struct Trusted {
    /// Never empty. The first one is used for proofs, and each is accepted.
    secrets: Vec<Secret>,
    tls: Option<Tls>,
}

#[derive(Clone, Debug)]
struct Tls {
    asks: Arc<ClientConfig>,
    is_asked: Arc<ServerConfig>,
}

impl Trusted {
    /// Returns the secret by which the other side has proved itself.
    pub(crate) fn proved_by(&self, proof: &[u8; 32], role: Role, client: &Hello, server: &Hello) -> Option<&Secret> {
        let mut secrets = self.secrets.iter();
        secrets.find(|secret| secret.is_proved(proof, role, client, server))
    }

    /// Returns the secret by which the answering side proves itself.
    pub(crate) fn secret(&self) -> &Secret {
        &self.secrets[0]
    }
}

impl Trust {
    /// Trusts the secret alone. The connection stays unencrypted after both sides have proved that they know it.
    #[must_use]
    pub fn by_secret(secret: Secret) -> Self {
        let trusted = Trusted {
            secrets: vec![secret],
            tls: None,
        };
        Self(Arc::new(RwLock::new(Arc::new(trusted))))
    }

    /// Adds TLS: this node's certificate with the intermediate ones, its key, and the root or roots of the certificates of all nodes, each
    /// as PEM. A certificate is for the host at which others reach its node, as server and as client.
    ///
    /// # Errors
    /// A sentence: one of them is invalid, or they do not belong together.
    pub fn with_tls(self, certificate: &[u8], key: &[u8], roots: &[u8]) -> Result<Self, String> {
        self.set_tls(certificate, key, roots)?;
        Ok(self)
    }

    /// Replaces the secrets. This node proves itself by the first one, and accepts each. With two of them on every node, their order can be
    /// reversed and then the old one dropped, without any node refusing another. Open connections stay.
    pub fn set_secrets(&self, first: Secret, others: impl IntoIterator<Item = Secret>) {
        let secrets = std::iter::once(first).chain(others).collect();
        self.renew(|trusted| trusted.secrets = secrets);
    }

    /// Replaces certificate, key and roots. Open connections stay.
    ///
    /// # Errors
    /// The errors of [`with_tls`](Self::with_tls). Certificate, key and roots are then unchanged.
    pub fn set_tls(&self, certificate: &[u8], key: &[u8], roots: &[u8]) -> Result<(), String> {
        let tls = Tls::new(certificate, key, roots)?;
        self.renew(|trusted| trusted.tls = Some(tls));
        Ok(())
    }

    fn renew(&self, change: impl FnOnce(&mut Trusted)) {
        let mut trusted = self.0.write().unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(&mut trusted));
    }

    /// Returns the settings for a connection that begins now.
    pub(crate) fn now(&self) -> Arc<Trusted> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Tls {
    fn new(certificate: &[u8], key: &[u8], roots: &[u8]) -> Result<Self, String> {
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
        Ok(Self {
            asks: Arc::new(asks),
            is_asked: Arc::new(is_asked),
        })
    }
}

/// Explains the end of a connection, and what to do if TLS ended it.
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
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
                "the other node's certificate has to be for servers and for clients: issue it for both (extended key usage)"
            }
            _ => "the other node's --peer-tls-cert does not do",
        },
        rustls::Error::AlertReceived(AlertDescription::CertificateExpired) => {
            "the other node takes this node's certificate for expired: give this one a new --peer-tls-cert, and look at the clocks"
        }
        rustls::Error::AlertReceived(AlertDescription::UnknownCA | AlertDescription::DecryptError) => {
            "no root in the other node's --peer-tls-ca has signed this node's certificate"
        }
        rustls::Error::AlertReceived(AlertDescription::UnsupportedCertificate) => {
            "the other node asks for a certificate for servers and for clients: issue this node's for both (extended key usage)"
        }
        rustls::Error::AlertReceived(AlertDescription::BadCertificate) => {
            "the other node does not take this node's certificate, which may be for another host: see --peer-advertise here"
        }
        rustls::Error::InvalidMessage(_) => {
            "the other side does not speak TLS, and this node does: all nodes need --peer-tls-cert, or none"
        }
        rustls::Error::PeerIncompatible(_) | rustls::Error::AlertReceived(AlertDescription::ProtocolVersion) => {
            "the other side has no version of TLS or cipher in common with this node: is it a node?"
        }
        _ => "all nodes need --peer-tls-cert, or none",
    };
    format!("TLS fails: {error}; {advice}")
}

/// True if the bytes in place of a frame are a record of TLS: a handshake or an alert.
fn is_tls(read: &[u8]) -> bool {
    matches!(read, [0x15 | 0x16, 0x03, ..])
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
    /// The bytes after the last frame that was [received](Self::receive).
    pub(crate) read: Vec<u8>,
}

impl Wire {
    /// The side that has connected to `address`, `host:port`.
    pub(crate) async fn connected(stream: TcpStream, address: &str, trust: &Trusted) -> Result<Self, String> {
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

    /// Accepts a connection.
    pub(crate) async fn accepted(stream: TcpStream, trust: &Trusted) -> Result<Self, String> {
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

    /// Reads one frame of the handshake.
    pub(crate) async fn receive(&mut self) -> Result<Frame, String> {
        loop {
            let decoded = frame::decode(&self.read, HELLO_BYTES_MAX).map_err(|why| match is_tls(&self.read) {
                true => "it speaks TLS, and this node does not: all nodes need --peer-tls-cert, or none".to_owned(),
                false => why.to_string(),
            })?;
            if let Some((frame, used)) = decoded {
                self.read.drain(..used);
                return Ok(frame);
            }
            let read = self.reader.read_buf(&mut self.read).await;
            // Under TLS, the other side's refusal of this one's certificate arrives here.
            if read.map_err(|why| explained(&why))? == 0 {
                return Err("the connection was closed".into());
            }
        }
    }
}

/// Drops the first bytes of a read buffer, and frees the memory of a large one that is nearly empty.
pub(crate) fn advance(read: &mut Vec<u8>, bytes: usize) {
    read.drain(..bytes);
    if read.len() <= SCRATCH_BYTES_MAX / 2 && read.capacity() > SCRATCH_BYTES_MAX {
        read.shrink_to(SCRATCH_BYTES_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
        date_time_ymd,
    };
    use tokio::net::TcpListener;

    struct Authority(CertifiedIssuer<'static, KeyPair>);

    impl Authority {
        fn new() -> Self {
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
            Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
        }

        /// Returns the trust of a node on this host, with a certificate changed like this.
        fn trust(&self, change: impl FnOnce(&mut CertificateParams)) -> Trust {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
            change(&mut params);
            let certificate = params.signed_by(&key, &self.0).unwrap().pem();
            let (key, roots) = (key.serialize_pem(), self.0.pem());
            let trust = Trust::by_secret(Secret::new(b"secret"));
            trust
                .with_tls(certificate.as_bytes(), key.as_bytes(), roots.as_bytes())
                .unwrap()
        }
    }

    /// Connects one node to the other, and returns the failures of both.
    async fn failures(asks: &Trust, is_asked: &Trust) -> [String; 2] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let client = async {
            let stream = TcpStream::connect(&address).await.unwrap();
            let mut wire = Wire::connected(stream, &address, &asks.now()).await?;
            wire.send(&Frame::Hello(Hello::default())).await?;
            wire.receive().await
        };
        let server = async {
            let (stream, _) = listener.accept().await.unwrap();
            let mut wire = Wire::accepted(stream, &is_asked.now()).await?;
            let received = wire.receive().await;
            if let Err(why) = &received {
                let _ = wire.send(&Frame::Refused(why.clone())).await;
            }
            received
        };
        let (client, server) = tokio::join!(client, server);
        [client, server].map(|frame| frame.err().unwrap_or_default())
    }

    #[tokio::test]
    async fn each_kind_of_wrong_tls_is_named_at_both_sides() {
        let (ours, theirs) = (Authority::new(), Authority::new());
        let (good, plain) = (ours.trust(|_| {}), Trust::by_secret(Secret::new(b"secret")));
        let expired = ours.trust(|params| params.not_after = date_time_ymd(2020, 1, 1));
        let early = ours.trust(|params| params.not_before = date_time_ymd(2200, 1, 1));
        let elsewhere = ours.trust(|params| {
            params.subject_alt_names = CertificateParams::new(["elsewhere.example".to_owned()])
                .unwrap()
                .subject_alt_names;
        });
        let only = |purpose| ours.trust(|params| params.extended_key_usages = vec![purpose]);
        let of_servers = only(ExtendedKeyUsagePurpose::ServerAuth);
        let of_clients = only(ExtendedKeyUsagePurpose::ClientAuth);
        let foreign = theirs.trust(|_| {});
        // The failure at the connecting side, and at the accepting side.
        let cases = [
            (
                &good,
                &expired,
                [
                    "other node's certificate has expired",
                    "takes this node's certificate for expired",
                ],
            ),
            (
                &expired,
                &good,
                [
                    "takes this node's certificate for expired",
                    "other node's certificate has expired",
                ],
            ),
            (
                &good,
                &early,
                ["not valid yet: look at the clocks", "look at the clocks"],
            ),
            (
                &early,
                &good,
                ["look at the clocks", "not valid yet: look at the clocks"],
            ),
            (&good, &elsewhere, ["for another host", "may be for another host"]),
            (
                &good,
                &foreign,
                ["this node's --peer-tls-ca", "other node's --peer-tls-ca"],
            ),
            (
                &good,
                &of_clients,
                ["for servers and for clients", "for servers and for clients"],
            ),
            (
                &of_servers,
                &good,
                ["for servers and for clients", "for servers and for clients"],
            ),
            (&good, &plain, ["other side does not speak TLS", "it speaks TLS"]),
            (&plain, &good, ["it speaks TLS", "other side does not speak TLS"]),
        ];
        for (number, (asks, is_asked, expected)) in cases.into_iter().enumerate() {
            let failures = failures(asks, is_asked).await;
            for (failure, expected) in failures.iter().zip(expected) {
                assert!(
                    failure.contains(expected),
                    "case {number}: {failure:?} instead of {expected:?}"
                );
            }
        }
    }

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
