//! TLS of an endpoint: which certificates are believed, which one is shown, which versions are spoken.
//!
//! The roots are the system's bundle if the device has one, else Mozilla's as compiled in, so that the program works
//! in an empty chroot. Verification cannot be turned off.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, version};

/// Where distributions keep the bundle of certificates they trust (Debian and Alpine, Fedora, SUSE, BSD and OpenWrt).
const BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// TLS settings; PEM texts, read already.
#[derive(Clone, Default)]
pub struct Tls {
    /// A private CA: then only it is believed.
    pub ca_pem: Option<Vec<u8>>,
    /// Client certificate chain and its private key.
    pub client_pem: Option<(Vec<u8>, Vec<u8>)>,
    /// TLS 1.3 only; otherwise 1.2 is spoken too.
    pub tls13_only: bool,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls")
            .field("private_ca", &self.ca_pem.is_some())
            .field("client_certificate", &self.client_pem.is_some())
            .field("tls13_only", &self.tls13_only)
            .finish()
    }
}

/// Why TLS settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InvalidTls {
    /// No certificate in the CA file.
    #[error("the CA file holds no PEM certificate that can be used")]
    Ca,
    /// The client's certificate or key cannot be read.
    #[error("the client certificate or its key is not PEM")]
    ClientPem,
    /// They do not fit together, or their kind is not supported.
    #[error("the client certificate cannot be used")]
    Client(#[source] rustls::Error),
    /// No version left.
    #[error("no TLS version is left")]
    Versions(#[source] rustls::Error),
}

/// Makes the settings that a connection uses.
pub fn client_config(tls: &Tls) -> Result<ClientConfig, InvalidTls> {
    let versions: &[&rustls::SupportedProtocolVersion] =
        if tls.tls13_only { &[&version::TLS13] } else { &[&version::TLS13, &version::TLS12] };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .map_err(InvalidTls::Versions)?
        .with_root_certificates(roots(tls.ca_pem.as_deref())?);
    let mut config = match &tls.client_pem {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let chain = CertificateDer::pem_slice_iter(chain)
                .collect::<Result<Vec<_>, _>>()
                .map_err(|_| InvalidTls::ClientPem)?;
            let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| InvalidTls::ClientPem)?;
            builder.with_client_auth_cert(chain, key).map_err(InvalidTls::Client)?
        }
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn roots(private: Option<&[u8]>) -> Result<RootCertStore, InvalidTls> {
    let mut store = RootCertStore::empty();
    if let Some(pem) = private {
        add(&mut store, pem);
        return if store.is_empty() { Err(InvalidTls::Ca) } else { Ok(store) };
    }
    for bundle in BUNDLES.map(Path::new) {
        if let Ok(pem) = std::fs::read(bundle) {
            add(&mut store, &pem);
        }
        if !store.is_empty() {
            return Ok(store);
        }
    }
    store.add_parsable_certificates(webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().cloned());
    Ok(store)
}

/// Adds what can be read; distributions ship the odd certificate that rustls does not take.
fn add(store: &mut RootCertStore, pem: &[u8]) {
    store.add_parsable_certificates(CertificateDer::pem_slice_iter(pem).filter_map(Result::ok));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_roots_on_any_machine_and_a_private_ca_replaces_them() {
        assert!(roots(None).unwrap().len() > 50);
        assert!(matches!(roots(Some(b"no PEM")), Err(InvalidTls::Ca)));
        assert!(client_config(&Tls::default()).is_ok());
    }
}
