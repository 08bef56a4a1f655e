//! An appliance inside the test: real store in a temporary directory, real listener on any port.
#![allow(dead_code, reason = "helpers come before the tests that use them")]

use std::path::PathBuf;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use waypost::app::{ADMIN_SOCKET, Appliance};
use waypost::client::{AdminClient, Target};
use waypost::clock::{Clock, ClockTrust};
use waypost::config::Config;
use waypost::telemetry::RecentLog;
use waypost::wire::StatusView;

/// How long anything may take on a busy machine.
pub const SOON: Duration = Duration::from_secs(20);

/// A running appliance and its directory.
pub struct Running {
    pub address: std::net::SocketAddr,
    pub dir: tempfile::TempDir,
    stop: CancellationToken,
    ended: tokio::task::JoinHandle<anyhow::Result<()>>,
}

/// An answer, read whole.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|err| panic!("{err}: {}", self.body))
    }

    /// The slug of a problem.
    pub fn slug(&self) -> String {
        assert_eq!(self.headers["content-type"], "application/problem+json", "{self:?}");
        let problem = self.json();
        assert_eq!(problem["status"], self.status);
        assert!(!problem["detail"].as_str().unwrap().is_empty());
        problem["type"].as_str().unwrap().trim_start_matches("/problems/").to_owned()
    }
}

/// An HTTP client that knows no proxy and follows nothing.
pub fn http() -> reqwest::Client {
    reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .tls_backend_preconfigured(waypost::sender::tls_config(&waypost::sender::Tls::default()).unwrap())
        .timeout(SOON)
        .build()
        .unwrap()
}

/// Sends, reads the answer.
pub async fn answer(request: reqwest::RequestBuilder) -> Answer {
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    Answer { status, headers, body: response.text().await.unwrap() }
}

impl Running {
    /// Starts with one endpoint `default` at `url`; `ingest` and `rest` are more lines of the config.
    pub async fn start(url: &str, ingest: &str, rest: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let text = format!(
            "data_dir = \"{}\"\n[ingest]\nlisten = \"127.0.0.1:0\"\n{ingest}\n[[endpoint]]\nname = \"default\"\nurl = \"{url}\"\n{rest}\n",
            dir.path().join("data").display()
        );
        let config = Config::parse(&text, "test.toml").unwrap_or_else(|err| panic!("{err}"));
        let stop = CancellationToken::new();
        let clock = Clock::system(ClockTrust::Auto);
        let appliance = Appliance::start(config, clock, RecentLog::default(), stop.clone()).await.unwrap();
        let address = appliance.address();
        Self { address, dir, stop, ended: tokio::spawn(appliance.wait()) }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("data").join(ADMIN_SOCKET)
    }

    /// The admin client over the socket.
    pub fn admin(&self) -> AdminClient {
        AdminClient::new(Target::Socket(self.socket())).unwrap()
    }

    /// Posts a body of a media type.
    pub async fn post(&self, media: &str, body: impl Into<reqwest::Body>) -> Answer {
        answer(http().post(self.url("/v1/events")).header("content-type", media).body(body)).await
    }

    /// Waits for a status that is as wanted.
    pub async fn status(&self, mut wanted: impl FnMut(&StatusView) -> bool) -> StatusView {
        use futures_util::StreamExt as _;
        let mut last = None;
        let found = tokio::time::timeout(SOON, async {
            let mut stream = self.admin().stream().await.unwrap();
            while let Some(view) = stream.next().await {
                let view = view.unwrap();
                if wanted(&view) {
                    return view;
                }
                last = Some(view);
            }
            panic!("the stream ended");
        })
        .await;
        found.unwrap_or_else(|_| panic!("not as wanted: {last:?}"))
    }

    /// A clean stop.
    pub async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(SOON, self.ended).await.unwrap().unwrap().unwrap();
    }
}
