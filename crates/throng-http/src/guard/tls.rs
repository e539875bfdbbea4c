//! Certificates: the service's own, and those of its clients.

use super::{der::element, files::Wrong};
use crate::caller::{Caller, Means, is_name};
use rustls::{
    AlertDescription, CertificateError, RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, pem::PemObject as _},
    server::{NoServerSessionStorage, WebPkiClientVerifier},
};
use serde_json::Map;
use std::{io, iter, path::PathBuf, sync::Arc};

/// The protocols of a gateway under TLS, the preferred one first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", HTTP1];
pub(crate) const HTTP1: &[u8] = b"http/1.1";

/// TLS for a gateway's listener: its certificate, and the issuers of its clients'. The files are PEM. They are read again when they change,
/// for new connections.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The certificate, with its intermediate ones.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The roots of clients' certificates. A client with a certificate is authenticated by it; others are anonymous.
    pub client_ca: Option<PathBuf>,
    /// Lists of revoked certificates (CRL), one for each issuer between a client's certificate and a root; only with a client CA.
    pub client_crl: Option<PathBuf>,
}

impl Tls {
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        let own = [self.certificate.clone(), self.key.clone()];
        let of_clients = self
            .client_ca
            .iter()
            .flat_map(|roots| iter::once(roots).chain(&self.client_crl));
        own.into_iter().chain(of_clients.cloned()).collect()
    }
}

/// Reads the files of [`Tls::paths`].
pub(crate) fn read(files: &[Vec<u8>]) -> Result<Arc<ServerConfig>, Wrong> {
    let [certificate, key, client_ca @ ..] = files else {
        return Err("a certificate and its key are needed".to_owned().into());
    };
    // In the order of the paths.
    let of_file = |file| move |why| Wrong { file, why };
    let chain = certificates(certificate)?;
    check_private_key(key).map_err(of_file(1))?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|why| of_file(1)(format!("the private key: {why}")))?;
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|why| why.to_string())?;
    let builder = match client_ca {
        [] => builder.with_no_client_auth(),
        [roots, revoked @ ..] => {
            let mut store = RootCertStore::empty();
            for root in certificates(roots).map_err(of_file(2))? {
                store
                    .add(root)
                    .map_err(|why| of_file(2)(format!("the client CA: {why}")))?;
            }
            let mut verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(store), provider);
            for (at, file) in revoked.iter().enumerate() {
                verifier = verifier.with_crls(revocations(file).map_err(of_file(3 + at))?);
            }
            // A client without a certificate may connect, to get an answer that says so, or the service's health.
            let verifier = verifier.allow_unauthenticated().build();
            builder.with_client_cert_verifier(verifier.map_err(|why| of_file(2)(format!("the client CA: {why}")))?)
        }
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|why| format!("certificate and key: {why}"))?;
    if !client_ca.is_empty() {
        // A resumed session would not show its certificate again, and so outlive it.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    config.alpn_protocols = PROTOCOLS.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(Arc::new(config))
}

/// Names the reason why a handshake failed, as the metric has it.
pub(crate) fn failure(error: &io::Error) -> &'static str {
    use rustls::Error;
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        None => "closed",
        Some(Error::InvalidMessage(_)) => "no_tls",
        Some(Error::PeerIncompatible(_) | Error::AlertReceived(AlertDescription::ProtocolVersion)) => {
            "no_common_version"
        }
        Some(Error::InvalidCertificate(invalid)) => match invalid {
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => "client_certificate_expired",
            CertificateError::Revoked => "client_certificate_revoked",
            CertificateError::UnknownIssuer | CertificateError::BadSignature => "client_certificate_of_other_ca",
            _ => "client_certificate",
        },
        // The client's judgement of the service's certificate.
        Some(Error::AlertReceived(alert)) if is_of_certificates(*alert) => "not_trusted",
        Some(_) => "other",
    }
}

fn is_of_certificates(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::DecryptError
    )
}

/// Refuses a private key with a passphrase, in PKCS#8 or OpenSSL's former format.
///
/// # Errors
/// A sentence with the reason.
pub fn check_private_key(pem: &[u8]) -> Result<(), String> {
    let holds = |text: &str| pem.windows(text.len()).any(|part| part == text.as_bytes());
    match holds("BEGIN ENCRYPTED PRIVATE KEY") || holds("Proc-Type: 4,ENCRYPTED") {
        true => Err(
            "the private key is encrypted: store it without a passphrase, readable by the service's user only".into(),
        ),
        false => Ok(()),
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if found.is_empty() => Err("there is no certificate in it".into()),
        Ok(found) => Ok(found),
        Err(why) => Err(format!("a certificate: {why}")),
    }
}

fn revocations(pem: &[u8]) -> Result<Vec<CertificateRevocationListDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if found.is_empty() => Err("there is no list of revoked certificates in it".into()),
        Ok(found) => Ok(found),
        Err(why) => Err(format!("a list of revoked certificates: {why}")),
    }
}

/// Returns the caller of a certificate: its first URI, else its first DNS name, else the common name of its subject. A name with control
/// characters, or with blanks around it, is refused, since it could look like another one.
pub(crate) fn caller(certificate: &CertificateDer<'_>) -> Option<Caller> {
    let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
    let name = certificate
        .valid_uri_names()
        .next()
        .or_else(|| certificate.valid_dns_names().next())
        .or_else(|| common_name(certificate.subject()))?;
    is_name(name).then(|| Caller::new(name, Means::Certificate, Map::new()))
}

/// Returns the common name (OID 2.5.4.3) of a subject: a sequence of sets of pairs of an object identifier and a text.
fn common_name(subject: &[u8]) -> Option<&str> {
    const OID: &[u8] = &[0x55, 0x04, 0x03];
    const SEQUENCE: u8 = 0x30;
    const SET: u8 = 0x31;
    const TEXTS: [u8; 2] = [0x0c, 0x13];
    let mut names = match subject.first() {
        Some(&SEQUENCE) => element(subject)?.content,
        _ => subject,
    };
    while !names.is_empty() {
        let set = element(names).filter(|set| set.tag == SET)?;
        names = set.rest;
        let mut pairs = set.content;
        while !pairs.is_empty() {
            let pair = element(pairs).filter(|pair| pair.tag == SEQUENCE)?;
            pairs = pair.rest;
            let oid = element(pair.content)?;
            let text = element(oid.rest)?;
            if oid.content == OID && TEXTS.contains(&text.tag) {
                return str::from_utf8(text.content).ok();
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn der(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = u8::try_from(content.len()).unwrap();
        [&[tag, length], content].concat()
    }

    fn name(oid: &[u8], text: &[u8]) -> Vec<u8> {
        der(0x31, &der(0x30, &[der(0x06, oid), der(0x0c, text)].concat()))
    }

    #[test]
    fn a_subject_has_a_common_name_wherever_it_stands() {
        let common = name(&[0x55, 0x04, 0x03], b"skier-7");
        let country = name(&[0x55, 0x04, 0x06], b"AT");
        for subject in [
            common.clone(),
            [country.clone(), common.clone()].concat(),
            [common.clone(), country.clone()].concat(),
        ] {
            assert_eq!(common_name(&subject), Some("skier-7"));
            assert_eq!(common_name(&der(0x30, &subject)), Some("skier-7"));
            for length in 0..subject.len() {
                // Any truncation is handled without a panic, and never gives another name.
                assert!(common_name(&subject[..length]).is_none_or(|name| name == "skier-7"));
            }
        }
        assert_eq!(common_name(&country), None);
    }
}
