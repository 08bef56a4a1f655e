//! The composition root: a checked config in, a running appliance out.
//!
//! Start: store (takes the lock, recovers), senders, driver, server. Stop: the server stops accepting and finishes
//! requests, the driver finishes attempts, the store writes its last checkpoint and lets go of the lock. Any part
//! that ends on its own ends the appliance with an error: a restart is safe, half an appliance is not.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::config::Config;
use crate::config::raw::{RawGate, RawInvalidGeometry, RawRecipe, RawRoute};
use crate::core::event::{GeometryGate, IntakeSettings, InvalidGeometry, Pointer, Pointers};
use crate::core::ids::EndpointId;
use crate::core::key::Recipe;
use crate::core::route::{Route, Routes};
use crate::driver::{Driver, Handle, Parts, Target};
use crate::lateness;
use crate::metrics::Metrics;
use crate::sender::{HttpSender, Settings};
use crate::server::{self, AppState, Listeners, Room};
use crate::store::{OpenError, Outbox, StoreConfig};
use crate::telemetry::RecentLog;

/// Name of the admin socket in the data directory.
pub const ADMIN_SOCKET: &str = "admin.sock";
/// Share of `memory_bytes_max` for recent bodies in the store; the rest holds bodies of loaded deliveries.
const CACHE_SHARE: f64 = 0.5;
/// How long the server may take to finish requests that run; the driver's own deadline is beside it.
const SERVER_STOP_MAX: Duration = Duration::from_secs(4);
/// How long the last checkpoint may take before the process leaves it to the next start.
const CLOSE_MAX: Duration = Duration::from_secs(4);

/// A call of the store to the system that takes longer than this ends the process (STORAGE section 2).
const STALL_MAX: Duration = Duration::from_secs(10);
const STALL_LOOK_EVERY: Duration = Duration::from_secs(1);

/// The runtime that the appliance wants: two workers are enough for a gateway; disk waits on its own threads.
pub fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 4))
        .max_blocking_threads(16)
        .enable_all()
        .build()
        .context("start the runtime")
}

/// A running appliance.
pub struct Appliance {
    address: SocketAddr,
    handle: Handle,
    outbox: Outbox,
    stop: CancellationToken,
    driver: JoinHandle<()>,
    server: JoinHandle<()>,
}

impl Appliance {
    /// Starts everything; returns when it is ready for posts.
    pub async fn start(
        config: Config,
        clock: Clock,
        recent: RecentLog,
        stop: CancellationToken,
    ) -> anyhow::Result<Self> {
        // The port first: a port in use must be told before a store is touched.
        let tcp = TcpListener::bind(config.ingest.listen)
            .await
            .with_context(|| format!("cannot listen on {}", config.ingest.listen))?;
        let address = tcp.local_addr().context("read the address of the listener")?;
        let outbox = open_store(&config, clock.clone()).await?;
        let socket = admin_socket(&config)?;
        let targets = targets(&config, &outbox)?;
        let intake = Arc::new(intake_settings(&config, &targets));
        let metrics = Arc::new(Metrics::new());
        let config = Arc::new(config);
        let (driver, handle) = Driver::new(Parts {
            node: config.node.clone(),
            outbox: outbox.clone(),
            clock: clock.clone(),
            rules: intake.routes.clone(),
            targets,
            metrics: Arc::clone(&metrics),
            disk_bytes_max: config.store.disk_bytes_max,
            disk_free_reserve: config.store.disk_free_reserve,
            bodies_bytes_max: (config.store.memory_bytes_max as f64 * (1.0 - CACHE_SHARE)) as u64,
            seed: crate::entropy::random_u64(),
        });
        let state = AppState {
            outbox: outbox.clone(),
            driver: handle.clone(),
            clock,
            intake,
            room: Room::new(config.ingest.memory_bytes_max),
            metrics: Arc::clone(&metrics),
            recent,
            config: Arc::clone(&config),
        };
        let server_stop = CancellationToken::new();
        let listeners = Listeners { tcp, socket };
        let server = tokio::spawn(server::serve(listeners, state, server_stop.clone()));
        let driver_stop = CancellationToken::new();
        let driver = tokio::spawn(driver.run(driver_stop.clone()));
        tokio::spawn(lateness::watch(metrics, stop.clone()));
        tokio::spawn(relay(stop.clone(), server_stop, driver_stop));
        Ok(Self { address, handle, outbox, stop, driver, server })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The driver's handle: status, endpoint actions.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Until told to stop; then a clean stop. An error if a part ended on its own.
    pub async fn wait(self) -> anyhow::Result<()> {
        let Self { outbox, stop, mut driver, mut server, .. } = self;
        let died = tokio::select! {
            // In this order: after a stop the parts end too, and that is no death.
            biased;
            () = stop.cancelled() => None,
            _ = &mut driver => Some("the delivery loop"),
            _ = &mut server => Some("the server"),
            stalled = stalled(|| outbox.stalled_for(), STALL_LOOK_EVERY) => {
                tracing::error!(stalled_s = stalled.as_secs(), "the disk does not answer; the process ends");
                anyhow::bail!(
                    "the disk has not answered for {} s; look at the device that holds the data directory (dmesg); start again, nothing accepted is lost",
                    stalled.as_secs()
                );
            }
        };
        if let Some(part) = died {
            // Leave the store as it is: everything accepted is synced, and the next start recovers.
            tracing::error!(part, "a part of the appliance ended on its own; the process ends");
            anyhow::bail!("{part} ended on its own; start again, nothing accepted is lost");
        }
        if tokio::time::timeout(SERVER_STOP_MAX, &mut server).await.is_err() {
            server.abort();
        }
        let _ = driver.await;
        if tokio::time::timeout(CLOSE_MAX, outbox.close()).await.is_ok() {
            tracing::info!("stopped");
        } else {
            tracing::warn!("the last checkpoint takes long; the next start replays the log");
        }
        Ok(())
    }
}

/// Returns when the store has been inside one call to the system for too long.
async fn stalled(stalled_for: impl Fn() -> Option<Duration>, look_every: Duration) -> Duration {
    let mut look = tokio::time::interval(look_every);
    loop {
        look.tick().await;
        if let Some(stalled) = stalled_for().filter(|stalled| *stalled > STALL_MAX) {
            return stalled;
        }
    }
}

/// Both stop at once: attempts and requests that run have their own deadlines.
async fn relay(stop: CancellationToken, server: CancellationToken, driver: CancellationToken) {
    stop.cancelled().await;
    server.cancel();
    driver.cancel();
}

/// What the store needs to know of the config.
pub fn store_config(config: &Config) -> StoreConfig {
    StoreConfig {
        dir: config.data_dir.clone(),
        disk_bytes_max: config.store.disk_bytes_max,
        disk_free_reserve: config.store.disk_free_reserve,
        dead_letter_share: config.store.dead_letter_share,
        cache_bytes_max: (config.store.memory_bytes_max as f64 * CACHE_SHARE) as u64,
        when_full: config.store.when_full,
        key_ttl: config.idempotency.ttl,
        window_without_time: config.idempotency.window_without_time,
        keys_bytes_max: config.idempotency.keys_bytes_max,
        endpoints: config.endpoints.iter().map(|endpoint| endpoint.name.clone()).collect(),
    }
}

async fn open_store(config: &Config, clock: Clock) -> anyhow::Result<Outbox> {
    let settings = store_config(config);
    let opened: Result<_, OpenError> =
        tokio::task::spawn_blocking(move || Outbox::open(settings, clock)).await.context("open the store")?;
    let (outbox, recovery) = opened?;
    tracing::info!(
        created = recovery.created,
        clean = recovery.clean,
        replayed = recovery.replayed,
        rebuilt = recovery.rebuilt,
        lost = recovery.lost,
        quarantined_bytes = recovery.quarantined_bytes,
        "store open"
    );
    for warning in &recovery.warnings {
        tracing::warn!("{warning}");
    }
    Ok(outbox)
}

fn admin_socket(config: &Config) -> anyhow::Result<UnixListener> {
    use std::os::unix::fs::PermissionsExt;
    let path = config.data_dir.join(ADMIN_SOCKET);
    // The store's lock is ours, so a socket that is there is a leftover.
    match std::fs::remove_file(&path) {
        Err(err) if err.kind() != std::io::ErrorKind::NotFound => {
            return Err(err).with_context(|| format!("cannot replace {}", path.display()));
        }
        _ => {}
    }
    let listener = UnixListener::bind(&path).with_context(|| {
        format!("cannot make the admin socket {} (a path over 107 bytes is too long for one)", path.display())
    })?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))
        .with_context(|| format!("cannot protect {}", path.display()))?;
    Ok(listener)
}

fn targets(config: &Config, outbox: &Outbox) -> anyhow::Result<Vec<Target>> {
    let ids = outbox.endpoint_ids();
    let mut targets = Vec::with_capacity(config.endpoints.len());
    for endpoint in &config.endpoints {
        let settings = Settings::of(endpoint).with_context(|| format!("endpoint {}", endpoint.name))?;
        targets.push(Target {
            id: *ids.get(&endpoint.name).context("invariant: the store numbers every configured endpoint")?,
            name: endpoint.name.clone(),
            url_shown: endpoint.url_shown.clone(),
            policy: endpoint.policy.clone(),
            sender: HttpSender::new(settings).with_context(|| format!("endpoint {}", endpoint.name))?,
        });
    }
    Ok(targets)
}

fn intake_settings(config: &Config, targets: &[Target]) -> IntakeSettings {
    let ingest = &config.ingest;
    let pointers =
        |texts: &[String]| -> Vec<Pointer> { texts.iter().filter_map(|text| text.parse().ok()).collect() };
    let id = |name: &str| targets.iter().find(|target| target.name.as_str() == name).map(|target| target.id);
    let rules = config.routes.iter().filter_map(|route| Some(rule(route, id(&route.endpoint)?))).collect();
    IntakeSettings {
        recipe: match config.idempotency.recipe {
            RawRecipe::Event => Recipe::Event,
            RawRecipe::Article => Recipe::Article,
        },
        precision: u8::try_from(config.idempotency.precision).unwrap_or(u8::MAX),
        pointers: Pointers {
            device: pointers(&ingest.device_pointers),
            event_type: pointers(&ingest.type_pointers),
            time: pointers(&ingest.time_pointers),
            sequence: pointers(&ingest.sequence_pointers),
            volatile: pointers(&config.idempotency.volatile_pointers),
        },
        vertices_max: ingest.vertices_max,
        body_bytes_max: ingest.body_bytes_max,
        invalid_geometry: match ingest.invalid_geometry {
            RawInvalidGeometry::DeadLetter => InvalidGeometry::DeadLetter,
            RawInvalidGeometry::Reject => InvalidGeometry::Reject,
        },
        forward_producer_key: config.idempotency.forward_producer_key,
        gates: config
            .endpoints
            .iter()
            .filter_map(|endpoint| Some((id(endpoint.name.as_str())?, gate(endpoint.geometry_gate))))
            .collect(),
        routes: Routes::new(targets.iter().map(|target| target.id).collect(), rules),
    }
}

fn gate(gate: RawGate) -> GeometryGate {
    match gate {
        RawGate::Valid => GeometryGate::Valid,
        RawGate::Parse => GeometryGate::Parse,
        RawGate::Off => GeometryGate::Off,
    }
}

fn rule(route: &RawRoute, endpoint: EndpointId) -> Route {
    Route {
        endpoint,
        devices: route.devices.clone(),
        types: route.types.clone(),
        bbox: route.bbox,
        ttl: route.ttl.map(|ttl| ttl.0),
        supersede: route.supersede,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A disk that takes long now and then is waited for; one that hangs ends the process.
    #[tokio::test]
    async fn a_disk_that_hangs_is_given_up_after_ten_seconds() {
        let looks = Cell::new(0);
        let stalled_for = || {
            looks.set(looks.get() + 1);
            match looks.get() {
                look @ 1..10 => Some(Duration::from_secs(look)),
                10..20 => None,
                look => Some(Duration::from_secs(look - 20)),
            }
        };
        assert_eq!(stalled(stalled_for, Duration::from_millis(1)).await, Duration::from_secs(11));
        assert_eq!(looks.get(), 31);
    }
}
