//! Typed client of the admin API, over the Unix socket in the data directory or over a URL.
//!
//! Used by every command and by the dashboard, so that none of them can reach into the appliance. Answers are the
//! types of [`crate::wire`]; problems come back as [`ClientError::Problem`] with the server's own sentence.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use serde::de::DeserializeOwned;

use crate::config::secret::Secret;
use crate::sender;
use crate::wire::{
    AccessView, AttemptsView, DeadLetterActionView, DeadLetterCount, DeadLetterPage, DeadLetterSelection,
    DeadLetterView, EndpointActionView, EventStory, HistoryView, IngestResponse, LogView, MapView,
    OutboxPage, Problem, StatusView,
};

/// One admin request; a redrive of a hundred thousand takes its time.
const REQUEST_MAX: Duration = Duration::from_mins(2);
/// The appliance is on this box or one hop away.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// What the appliance is asked to wait when it says "later" without saying for how long.
const LATER_DEFAULT: Duration = Duration::from_secs(1);
/// Longest line of the event stream that is kept.
const STREAM_LINE_BYTES_MAX: usize = 4 << 20;

/// Where the appliance is.
#[derive(Clone, Debug)]
pub enum Target {
    /// Its `admin.sock`.
    Socket(PathBuf),
    /// Its listener.
    Url {
        /// For example `http://127.0.0.1:8070`.
        url: Url,
        /// Bearer token of the admin API (of producers, for posting).
        token: Option<Secret>,
    },
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Target::Socket(path) => path.display().fmt(f),
            Target::Url { url, .. } => write!(f, "{}", url.origin().ascii_serialization()),
        }
    }
}

/// Why a call had no answer of its type.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody answers there.
    #[error("no appliance answers at {target}; is `waypost run` running with this --data-dir (or --url)?")]
    Unreachable {
        /// Where.
        target: String,
        /// What the connection said, without the URL.
        #[source]
        source: reqwest::Error,
    },
    /// The connection broke while it answered.
    #[error("the appliance at {target} stopped answering")]
    Broken {
        /// Where.
        target: String,
        /// What the connection said, without the URL.
        #[source]
        source: reqwest::Error,
    },
    /// It said no, in its own words.
    #[error("{}", if .0.detail.is_empty() { &.0.title } else { &.0.detail })]
    Problem(Box<Problem>),
    /// It answered something that this version does not understand.
    #[error("the appliance's answer is not understood (status {status}); is it another version?")]
    NotUnderstood {
        /// Its status.
        status: u16,
    },
    /// The answer could not be written where it should go.
    #[error("cannot write the answer")]
    Output(#[from] std::io::Error),
    /// The HTTP client could not be made.
    #[error("the HTTP client cannot be set up")]
    Setup(#[source] reqwest::Error),
    /// TLS could not be set up.
    #[error(transparent)]
    Tls(#[from] sender::InvalidTls),
}

/// What a post holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventMedia {
    /// A Feature, FeatureCollection or geometry.
    Document,
    /// A GeoJSON text a line.
    Ndjson,
    /// A GeoJSON text sequence (RFC 8142).
    Sequence,
}

impl EventMedia {
    /// Its media type.
    pub fn content_type(self) -> &'static str {
        match self {
            EventMedia::Document => "application/geo+json",
            EventMedia::Ndjson => "application/x-ndjson",
            EventMedia::Sequence => "application/geo+json-seq",
        }
    }

    /// The byte at which a sequence may be cut, if it is one.
    pub fn delimiter(self) -> Option<u8> {
        match self {
            EventMedia::Document => None,
            EventMedia::Ndjson => Some(b'\n'),
            EventMedia::Sequence => Some(0x1e),
        }
    }
}

/// What a producer says of all events of a post.
#[derive(Clone, Debug, Default)]
pub struct PostOptions {
    /// `Waypost-Device`
    pub device: Option<String>,
    /// `Waypost-Event-Type`
    pub event_type: Option<String>,
}

/// What became of a post.
#[derive(Clone, Debug)]
pub enum Posted {
    /// 202, or 400 with per-feature results: nothing could be used.
    Done(IngestResponse),
    /// 429, 503 or 507: the same post is welcome later.
    Later {
        /// After this time.
        retry_after: Duration,
        /// In its words.
        problem: Box<Problem>,
    },
}

/// What can be done to an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointAction {
    /// Stop attempts.
    Pause,
    /// Start them again.
    Resume,
    /// Probe now.
    Probe,
}

impl EndpointAction {
    fn word(self) -> &'static str {
        match self {
            EndpointAction::Pause => "pause",
            EndpointAction::Resume => "resume",
            EndpointAction::Probe => "probe",
        }
    }
}

/// The client. Cheap to clone; connections are kept.
#[derive(Clone, Debug)]
pub struct AdminClient {
    http: reqwest::Client,
    base: Url,
    target: Target,
}

impl AdminClient {
    /// A client; opens no connection yet.
    pub fn new(target: Target) -> Result<Self, ClientError> {
        let builder = reqwest::Client::builder()
            .connect_timeout(CONNECT_MAX)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .tls_backend_preconfigured(sender::tls_config(&sender::Tls::default())?);
        let (builder, base) = match &target {
            // The host is only for the Host header; the socket is the address.
            Target::Socket(path) => (builder.unix_socket(path.clone()), Url::parse("http://localhost/")),
            Target::Url { url, .. } => (builder, Ok(url.clone())),
        };
        let base = base.expect("invariant: a constant URL parses");
        Ok(Self { http: builder.build().map_err(|err| ClientError::Setup(err.without_url()))?, base, target })
    }

    /// Where it goes.
    pub fn target(&self) -> &Target {
        &self.target
    }

    fn request(&self, method: Method, path: &[&str]) -> RequestBuilder {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.clear().extend(path);
        }
        let request = self.http.request(method, url);
        match &self.target {
            Target::Url { token: Some(token), .. } => request.bearer_auth(token.expose()),
            _ => request,
        }
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        request.send().await.map_err(|err| {
            let target = self.target.to_string();
            let connect = err.is_connect();
            let source = err.without_url();
            if connect {
                ClientError::Unreachable { target, source }
            } else {
                ClientError::Broken { target, source }
            }
        })
    }

    async fn body(&self, response: Response) -> Result<Bytes, ClientError> {
        let broken = |err: reqwest::Error| ClientError::Broken {
            target: self.target.to_string(),
            source: err.without_url(),
        };
        response.bytes().await.map_err(broken)
    }

    async fn call<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, ClientError> {
        let response = self.send(request.timeout(REQUEST_MAX)).await?;
        let status = response.status();
        let body = self.body(response).await?;
        if status.is_success() {
            return serde_json::from_slice(&body)
                .map_err(|_| ClientError::NotUnderstood { status: status.as_u16() });
        }
        Err(problem(status, &body))
    }

    /// `GET /v1/status`
    pub async fn status(&self) -> Result<StatusView, ClientError> {
        self.call(self.request(Method::GET, &["v1", "status"])).await
    }

    /// `GET /v1/attempts`
    pub async fn attempts(&self) -> Result<AttemptsView, ClientError> {
        self.call(self.request(Method::GET, &["v1", "attempts"])).await
    }

    /// `GET /v1/access`
    pub async fn access(&self) -> Result<AccessView, ClientError> {
        self.call(self.request(Method::GET, &["v1", "access"])).await
    }

    /// `GET /v1/history`
    pub async fn history(&self) -> Result<HistoryView, ClientError> {
        self.call(self.request(Method::GET, &["v1", "history"])).await
    }

    /// `GET /v1/map`; of a part of the world, if one is given, in finer cells.
    pub async fn map(&self, part: Option<[f64; 4]>) -> Result<MapView, ClientError> {
        let query: Vec<_> = part.map(|bbox| ("bbox", bbox_text(bbox))).into_iter().collect();
        self.call(with_query(self.request(Method::GET, &["v1", "map"]), &query)).await
    }

    /// `GET /v1/log`
    pub async fn log(&self) -> Result<LogView, ClientError> {
        self.call(self.request(Method::GET, &["v1", "log"])).await
    }

    /// `GET /v1/events/{id}`
    pub async fn event(&self, id: &str) -> Result<EventStory, ClientError> {
        self.call(self.request(Method::GET, &["v1", "events", id])).await
    }

    /// `GET /v1/outbox`, of an area if one is given. A page may be short, or empty, and still have a cursor.
    pub async fn outbox(
        &self,
        endpoint: Option<&str>,
        area: Option<[f64; 4]>,
        limit: u64,
        cursor: Option<&str>,
    ) -> Result<OutboxPage, ClientError> {
        let mut query = vec![("limit", limit.to_string())];
        query.extend(area.map(|bbox| ("bbox", bbox_text(bbox))));
        query.extend(endpoint.map(|name| ("endpoint", name.to_owned())));
        query.extend(cursor.map(|cursor| ("cursor", cursor.to_owned())));
        self.call(with_query(self.request(Method::GET, &["v1", "outbox"]), &query)).await
    }

    /// `GET /v1/dead-letters`; `limit` of the selection is the page's.
    pub async fn dead_letters(
        &self,
        selection: &DeadLetterSelection,
        cursor: Option<&str>,
    ) -> Result<DeadLetterPage, ClientError> {
        let mut query = filter(selection);
        query.extend(cursor.map(|cursor| ("cursor", cursor.to_owned())));
        self.call(with_query(self.request(Method::GET, &["v1", "dead-letters"]), &query)).await
    }

    /// The same, newest first: what a person looks at.
    pub async fn newest_dead_letters(
        &self,
        selection: &DeadLetterSelection,
        cursor: Option<&str>,
    ) -> Result<DeadLetterPage, ClientError> {
        let mut query = filter(selection);
        query.push(("order", "newest".to_owned()));
        query.extend(cursor.map(|cursor| ("cursor", cursor.to_owned())));
        self.call(with_query(self.request(Method::GET, &["v1", "dead-letters"]), &query)).await
    }

    /// `GET /v1/dead-letters/count`: how many the filter of a selection means.
    pub async fn dead_letter_count(
        &self,
        selection: &DeadLetterSelection,
    ) -> Result<DeadLetterCount, ClientError> {
        let request = self.request(Method::GET, &["v1", "dead-letters", "count"]);
        self.call(with_query(request, &filter(selection))).await
    }

    /// `GET /v1/dead-letters/{id}`
    pub async fn dead_letter(&self, id: &str) -> Result<DeadLetterView, ClientError> {
        self.call(self.request(Method::GET, &["v1", "dead-letters", id])).await
    }

    /// `POST /v1/dead-letters/redrive`, `/discard` or `/repair`.
    pub async fn dead_letter_action(
        &self,
        verb: &str,
        selection: &DeadLetterSelection,
    ) -> Result<DeadLetterActionView, ClientError> {
        self.call(json(self.request(Method::POST, &["v1", "dead-letters", verb]), selection)).await
    }

    /// `GET /v1/dead-letters/export`, streamed into `out`; how many bytes.
    pub async fn export(
        &self,
        format: &str,
        selection: &DeadLetterSelection,
        out: &mut (dyn Write + Send),
    ) -> Result<u64, ClientError> {
        let mut query = filter(selection);
        query.push(("format", format.to_owned()));
        let request = with_query(self.request(Method::GET, &["v1", "dead-letters", "export"]), &query);
        let response = self.send(request).await?;
        let status = response.status();
        if !status.is_success() {
            let body = self.body(response).await?;
            return Err(problem(status, &body));
        }
        let mut written = 0;
        let mut chunks = response.bytes_stream();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|err| ClientError::Broken {
                target: self.target.to_string(),
                source: err.without_url(),
            })?;
            out.write_all(&chunk)?;
            written += chunk.len() as u64;
        }
        Ok(written)
    }

    /// `POST /v1/endpoints/{name}/pause|resume|probe`
    pub async fn endpoint(
        &self,
        name: &str,
        action: EndpointAction,
    ) -> Result<EndpointActionView, ClientError> {
        let request = self.request(Method::POST, &["v1", "endpoints", name, action.word()]);
        self.call(json(request, &serde_json::json!({}))).await
    }

    /// `POST /v1/events`
    pub async fn post_events(
        &self,
        body: Bytes,
        media: EventMedia,
        options: &PostOptions,
    ) -> Result<Posted, ClientError> {
        let mut request = self
            .request(Method::POST, &["v1", "events"])
            .header("content-type", media.content_type())
            .timeout(REQUEST_MAX)
            .body(body);
        for (name, value) in
            [("waypost-device", &options.device), ("waypost-event-type", &options.event_type)]
        {
            if let Some(value) = value {
                request = request.header(name, value.as_bytes());
            }
        }
        let response = self.send(request).await?;
        let status = response.status();
        let retry_after =
            response.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
        let body = self.body(response).await?;
        if status.is_success() {
            let response = serde_json::from_slice(&body)
                .map_err(|_| ClientError::NotUnderstood { status: status.as_u16() })?;
            return Ok(Posted::Done(response));
        }
        let problem = match problem(status, &body) {
            ClientError::Problem(problem) => problem,
            other => return Err(other),
        };
        if matches!(status.as_u16(), 429 | 503 | 507) {
            let retry_after = retry_after.map_or(LATER_DEFAULT, Duration::from_secs);
            return Ok(Posted::Later { retry_after, problem });
        }
        if problem.results.is_empty() {
            return Err(ClientError::Problem(problem));
        }
        let rejected = problem.results.len() as u64;
        Ok(Posted::Done(IngestResponse { rejected, results: problem.results, ..IngestResponse::default() }))
    }

    /// `GET /v1/stream`: a status whenever there is a new one, about once a second, until the connection ends.
    pub async fn stream(
        &self,
    ) -> Result<impl Stream<Item = Result<StatusView, ClientError>> + Send + Unpin + use<>, ClientError> {
        let response = self.send(self.request(Method::GET, &["v1", "stream"])).await?;
        let status = response.status();
        if !status.is_success() {
            let body = self.body(response).await?;
            return Err(problem(status, &body));
        }
        let target = self.target.to_string();
        let chunks = response.bytes_stream();
        let lines = futures_util::stream::unfold((chunks, Vec::new()), move |(mut chunks, mut buffer)| {
            let target = target.clone();
            async move {
                loop {
                    if let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                        let line: Vec<u8> = buffer.drain(..=end).collect();
                        let Some(data) = line.strip_prefix(b"data:") else { continue };
                        let view = serde_json::from_slice::<StatusView>(data)
                            .map_err(|_| ClientError::NotUnderstood { status: 200 });
                        return Some((view, (chunks, buffer)));
                    }
                    match chunks.next().await {
                        Some(Ok(chunk)) if buffer.len() + chunk.len() <= STREAM_LINE_BYTES_MAX => {
                            buffer.extend_from_slice(&chunk);
                        }
                        Some(Ok(_)) => {
                            return Some((
                                Err(ClientError::NotUnderstood { status: 200 }),
                                (chunks, Vec::new()),
                            ));
                        }
                        Some(Err(err)) => {
                            let source = err.without_url();
                            let broken = ClientError::Broken { target: target.clone(), source };
                            return Some((Err(broken), (chunks, Vec::new())));
                        }
                        None => return None,
                    }
                }
            }
        });
        Ok(Box::pin(lines))
    }
}

fn problem(status: StatusCode, body: &[u8]) -> ClientError {
    match serde_json::from_slice::<Problem>(body) {
        Ok(problem) => ClientError::Problem(Box::new(problem)),
        Err(_) => ClientError::NotUnderstood { status: status.as_u16() },
    }
}

fn json(request: RequestBuilder, body: &impl serde::Serialize) -> RequestBuilder {
    let body = serde_json::to_vec(body).unwrap_or_default(); // wire types have string keys: they serialise
    request.header("content-type", "application/json").body(body)
}

fn bbox_text([west, south, east, north]: [f64; 4]) -> String {
    format!("{west},{south},{east},{north}")
}

/// The filter members of a selection as a query.
fn filter(selection: &DeadLetterSelection) -> Vec<(&'static str, String)> {
    let mut query = Vec::new();
    let class = selection.class.and_then(|class| serde_json::to_value(class).ok());
    query.extend(class.and_then(|class| Some(("class", class.as_str()?.to_owned()))));
    query.extend(selection.endpoint.clone().map(|name| ("endpoint", name)));
    query.extend(selection.since.clone().map(|time| ("since", time)));
    query.extend(selection.until.clone().map(|time| ("until", time)));
    query.extend(selection.bbox.map(|bbox| ("bbox", bbox_text(bbox))));
    query.extend(selection.limit.map(|limit| ("limit", limit.to_string())));
    query
}

fn with_query(request: RequestBuilder, query: &[(&str, String)]) -> RequestBuilder {
    let (client, request) = request.build_split();
    match request {
        Ok(mut request) => {
            request.url_mut().query_pairs_mut().extend_pairs(query);
            RequestBuilder::from_parts(client, request)
        }
        // The builder keeps its own error for `send`.
        Err(_) => client.get("invalid:"),
    }
}
