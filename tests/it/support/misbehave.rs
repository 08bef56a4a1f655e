//! Servers that do one wrong thing at the level of sockets, which a scripted HTTP receiver cannot do.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Runs `serve` for each connection.
pub async fn server<F, Fut>(serve: F) -> SocketAddr
where
    F: Fn(TcpStream) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    addr
}

/// Reads one request whose body has a Content-Length; `None` if the peer closed first.
pub async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            if bytes.len() >= end + 4 + length.unwrap_or(0) {
                return Some(bytes);
            }
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}

/// Answers every request on a connection with `answer`.
pub async fn answer_all(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: &'static [u8]) {
    while read_request(&mut stream).await.is_some() && stream.write_all(answer).await.is_ok() {
        let _ = stream.flush().await;
    }
}

/// A plain 200.
pub const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// A test certificate or key.
pub fn pem(name: &str) -> Vec<u8> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/data/tls/");
    std::fs::read(format!("{dir}{name}")).unwrap()
}

/// A TLS receiver that shows this certificate and answers 200; it may ask for a client certificate.
pub async fn tls_server(certificate: &str, client_certificate: bool) -> SocketAddr {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = if client_certificate {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&pem("ca.pem")).unwrap()).unwrap();
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        builder.with_client_cert_verifier(verifier)
    } else {
        builder.with_no_client_auth()
    };
    let chain = vec![CertificateDer::from_pem_slice(&pem(certificate)).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(&pem("server.key")).unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(builder.with_single_cert(chain, key).unwrap()));
    server(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            if let Ok(stream) = acceptor.accept(stream).await {
                answer_all(stream, OK).await;
            }
        }
    })
    .await
}

/// An address where connections are never completed: its backlog is full. Keep the guard.
pub async fn black_hole() -> (SocketAddr, impl Sized) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let addr = listener.local_addr().unwrap();
    // The kernel takes one more than the backlog; whatever comes after that gets no answer.
    let mut fillers = Vec::new();
    for _ in 0..3 {
        let connecting = tokio::net::TcpSocket::new_v4().unwrap();
        fillers.push(tokio::spawn(async move { connecting.connect(addr).await }));
    }
    // The first connection is in the backlog now, so the kernel has seen the others as well or will before ours.
    let first = fillers.remove(0).await.unwrap();
    (addr, (listener, first, fillers))
}
