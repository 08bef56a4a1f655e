//! One attempt over HTTP, on reqwest.
//!
//! [`HttpSender`] belongs to one endpoint and keeps its connections. [`HttpSender::send`] makes one POST and returns
//! what happened as a value: a failed attempt is an [`Outcome`], never an error.
//!
//! **Invariants.** The body goes out byte for byte. Redirects are never followed, no proxy is taken from the
//! environment, nothing is repeated in here: one `send` is one request, ended by one deadline. Failures are told apart
//! by the types of errors, never by their text, and no error text (it holds the whole URL) leaves this module.
//!
//! **When an answer counts.** A 2xx counts only if its body arrived whole (or up to the bound), because a body may say
//! that it is no success; every other status counts from its header on.
//!
//! HTTP/1.1 only: over HTTP/2 all attempts share one connection, so one route that swallows packets would stall them
//! all, and a reset could not be told apart from a refusal.
//!
//! What it does not do: decide anything about the outcome, limit how many attempts run.

pub mod request;
pub mod signature;
pub mod tls;

mod answer;
mod connection;
mod fault;
mod resolve;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue, USER_AGENT};
use tokio::time::Instant;

use crate::config::{self, raw::RawIdempotencyHeader};
use crate::core::classify::{Answer, Outcome, TransportKind};
use crate::core::time::Now;
use connection::{ConnectLayer, WatchedBody};
pub use request::{Attempt, InvalidHeader, KeyForm};
pub use signature::{InvalidSecret, SigningKey};
pub use tls::{InvalidTls, Tls, client_config as tls_config};

/// Bytes of an answer that are read; more end the connection instead (P7).
pub const ANSWER_READ_BYTES_MAX: usize = 64 * 1024;
/// Kept connections are dropped after this: receivers and NAT tables forget them at 30 s and more.
const IDLE_MAX: Duration = Duration::from_secs(25);
/// Probes on a quiet connection keep NAT tables awake and find dead peers (RETRY, section 7).
const KEEPALIVE: Duration = Duration::from_secs(20);

/// Everything about an endpoint that an attempt needs.
#[derive(Clone)]
pub struct Settings {
    /// Where to POST.
    pub url: reqwest::Url,
    /// One attempt from start to end.
    pub timeout: Duration,
    /// Lookup, connection and TLS together.
    pub connect_timeout: Duration,
    /// Extra request headers; they may replace `Content-Type` and `User-Agent` and nothing else of ours.
    pub headers: BTreeMap<String, String>,
    /// `Authorization`, see [`request::bearer`] and [`request::basic`].
    pub authorization: Option<HeaderValue>,
    /// Secrets that sign, newest first; none: no signatures.
    pub signing: Vec<SigningKey>,
    /// TLS.
    pub tls: Tls,
    /// Form of the key header.
    pub key_form: KeyForm,
    /// An HTTP proxy, if the operator names one.
    pub proxy: Option<reqwest::Url>,
}

impl std::fmt::Debug for Settings {
    /// Only what holds no secret: tokens stand in paths, queries and headers too.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("origin", &self.url.origin().ascii_serialization())
            .field("timeout", &self.timeout)
            .field("connect_timeout", &self.connect_timeout)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

impl Settings {
    /// Settings of a configured endpoint.
    pub fn of(endpoint: &config::Endpoint) -> Result<Self, SenderError> {
        let url = reqwest::Url::parse(endpoint.url.expose()).map_err(|_| SenderError::Url)?;
        let authorization = match &endpoint.auth {
            None => None,
            Some(config::Auth::Bearer(token)) => Some(request::bearer(token.expose())?),
            Some(config::Auth::Basic { user, password }) => Some(request::basic(user, password.expose())?),
        };
        let signing = endpoint.signing.iter().map(|secret| SigningKey::parse(secret.expose()));
        let client_pem = endpoint.tls.client_pem.as_ref();
        Ok(Self {
            timeout: endpoint.timeout,
            connect_timeout: endpoint.connect_timeout,
            headers: endpoint.headers.clone(),
            authorization,
            signing: signing.collect::<Result<_, _>>()?,
            tls: Tls {
                ca_pem: endpoint.tls.ca_pem.clone(),
                client_pem: client_pem.map(|(chain, key)| (chain.clone(), key.expose().into())),
                tls13_only: endpoint.tls.tls13_only,
            },
            key_form: match endpoint.idempotency_header {
                RawIdempotencyHeader::Bare => KeyForm::Bare,
                RawIdempotencyHeader::Quoted => KeyForm::Quoted,
            },
            ..Self::new(url)
        })
    }

    /// Defaults for a URL.
    pub fn new(url: reqwest::Url) -> Self {
        Self {
            url,
            timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
            headers: BTreeMap::new(),
            authorization: None,
            signing: Vec::new(),
            tls: Tls::default(),
            key_form: KeyForm::Bare,
            proxy: None,
        }
    }
}

/// Why an endpoint's settings cannot send.
#[derive(Debug, thiserror::Error)]
pub enum SenderError {
    /// A header.
    #[error(transparent)]
    Header(#[from] InvalidHeader),
    /// TLS.
    #[error(transparent)]
    Tls(#[from] InvalidTls),
    /// A signing secret.
    #[error(transparent)]
    Secret(#[from] InvalidSecret),
    /// The URL is not one for HTTP.
    #[error("the URL must start with http:// or https:// and name a host")]
    Url,
    /// The HTTP client could not be made; without the URL.
    #[error("the HTTP client cannot be set up")]
    Client(#[source] reqwest::Error),
}

/// Sends attempts to one endpoint.
#[derive(Clone)]
pub struct HttpSender {
    client: reqwest::Client,
    url: reqwest::Url,
    https: bool,
    timeout: Duration,
    template: HeaderMap,
    signing: Vec<SigningKey>,
    key_form: KeyForm,
}

/// What an attempt came to, and how long it took.
#[derive(Clone, Debug, PartialEq)]
pub struct Sent {
    /// What happened.
    pub outcome: Outcome,
    /// From start to end.
    pub latency: Duration,
}

impl HttpSender {
    /// Checks the settings and makes a client; opens no connection.
    pub fn new(settings: Settings) -> Result<Self, SenderError> {
        let https = match settings.url.scheme() {
            "http" => false,
            "https" => true,
            _ => return Err(SenderError::Url),
        };
        if !settings.url.has_host() {
            return Err(SenderError::Url);
        }
        let mut url = settings.url.clone();
        let mut template = request::template(&settings.headers)?;
        let from_url = credentials(&mut url)?;
        if let Some(authorization) = settings.authorization.clone().or(from_url) {
            template.insert(AUTHORIZATION, authorization);
        }
        Ok(Self {
            client: client(&settings)?,
            url,
            https,
            timeout: settings.timeout,
            template,
            signing: settings.signing,
            key_form: settings.key_form,
        })
    }

    /// Makes one attempt. `now` stamps the signature, if there is to be one; with a clock that is not trusted an
    /// endpoint that wants signatures gets nothing, because its receiver would refuse every event for the stamp.
    pub async fn send(&self, attempt: &Attempt, now: Now) -> Sent {
        if !self.signing.is_empty() && !now.wall_trusted {
            let kind = TransportKind::ClockUntrusted;
            let outcome = Outcome::Transport { kind, bytes_sent: false, reused: false };
            return Sent { outcome, latency: Duration::ZERO };
        }
        let headers = request::headers(&self.template, attempt, self.key_form, &self.signing, now.wall);
        let (body, taken) = WatchedBody::new(attempt.body.clone());
        let request = self.client.post(self.url.clone()).headers(headers).body(reqwest::Body::wrap(body));
        self.perform(request, &taken).await
    }

    /// Asks whether anybody is there, for `check --net`: an OPTIONS request without credentials, event or key. Any
    /// [`Outcome::Response`] means that name, network, TLS and HTTP work.
    pub async fn reach(&self) -> Sent {
        let (body, taken) = WatchedBody::new(Bytes::new());
        let request = self
            .client
            .request(reqwest::Method::OPTIONS, self.url.clone())
            .header(USER_AGENT, request::AGENT)
            .body(reqwest::Body::wrap(body));
        self.perform(request, &taken).await
    }

    async fn perform(&self, request: reqwest::RequestBuilder, taken: &AtomicBool) -> Sent {
        let started = Instant::now();
        let deadline = started + self.timeout;
        let (result, connected) = connection::watch_connection(self.exchange(request.send(), deadline)).await;
        let bytes_sent = taken.load(Ordering::Relaxed);
        let failed = |kind| Outcome::Transport { kind, bytes_sent, reused: bytes_sent && !connected };
        let outcome = match result {
            Ok(answer) => Outcome::Response(answer),
            Err(Fault::Kind(kind)) => failed(kind),
            // A deadline that passes before the request was taken up can only have been spent on connecting.
            Err(Fault::Deadline) if bytes_sent || connected => failed(TransportKind::Timeout),
            Err(Fault::Deadline) => failed(TransportKind::ConnectTimeout),
        };
        Sent { outcome, latency: started.elapsed() }
    }

    async fn exchange(
        &self,
        request: impl Future<Output = reqwest::Result<reqwest::Response>>,
        deadline: Instant,
    ) -> Result<Answer, Fault> {
        let fault = |err: &reqwest::Error| Fault::Kind(fault::kind(err, self.https));
        let mut response = tokio::time::timeout_at(deadline, request)
            .await
            .map_err(|_| Fault::Deadline)?
            .map_err(|err| fault(&err))?;
        let mut answer = answer::head(response.status().as_u16(), response.headers());
        let read = tokio::time::timeout_at(deadline, read_body(&mut response, &mut answer.body)).await;
        let whole = match read {
            Ok(Ok(())) => Ok(()),
            Ok(Err(err)) => Err(fault(&err)),
            Err(_) => Err(Fault::Deadline),
        };
        let success = (200..300).contains(&answer.status);
        if success { whole.map(|()| answer) } else { Ok(answer) }
    }
}

enum Fault {
    Kind(TransportKind),
    Deadline,
}

/// Reads to the end or to the bound.
async fn read_body(response: &mut reqwest::Response, body: &mut Vec<u8>) -> reqwest::Result<()> {
    while let Some(chunk) = response.chunk().await? {
        let room = ANSWER_READ_BYTES_MAX - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if chunk.len() >= room {
            break;
        }
    }
    Ok(())
}

/// Takes user and password out of the URL, where they would be shown by whoever prints it.
fn credentials(url: &mut reqwest::Url) -> Result<Option<HeaderValue>, SenderError> {
    if url.username().is_empty() && url.password().is_none() {
        return Ok(None);
    }
    let decode = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
    let header = request::basic(&decode(url.username()), &decode(url.password().unwrap_or_default()))?;
    url.set_username("").map_err(|()| SenderError::Url)?;
    url.set_password(None).map_err(|()| SenderError::Url)?;
    Ok(Some(header))
}

fn client(settings: &Settings) -> Result<reqwest::Client, SenderError> {
    let builder = reqwest::Client::builder()
        .tls_backend_preconfigured(tls::client_config(&settings.tls)?)
        .dns_resolver(resolve::Resolver::new(settings.connect_timeout))
        .connector_layer(ConnectLayer)
        .connect_timeout(settings.connect_timeout)
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .http1_only()
        .pool_idle_timeout(IDLE_MAX)
        .tcp_keepalive(KEEPALIVE)
        .tcp_user_timeout(settings.timeout);
    let builder = match &settings.proxy {
        None => builder.no_proxy(),
        Some(proxy) => {
            let proxy =
                reqwest::Proxy::all(proxy.clone()).map_err(|err| SenderError::Client(err.without_url()))?;
            builder.no_proxy().proxy(proxy)
        }
    };
    builder.build().map_err(|err| SenderError::Client(err.without_url()))
}

const _: fn() = || {
    // The driver keeps senders in tasks of their own.
    fn shared<T: Send + Sync + 'static>() {}
    shared::<HttpSender>();
};
