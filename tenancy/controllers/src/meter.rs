//! Whether the API server keeps limits over several namespaces itself.

use freehold_machinery::PlaneId;
use freehold_runtime::Planes;
use freehold_tenancy_decide::namespace::Meter;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long a server that does not say its version is left alone.
const AGAIN: Duration = Duration::from_secs(1);
/// The part of a version that Freehold has.
const FREEHOLD: &str = "+freehold";

/// Asks the server of the planes, until it says.
pub async fn of(planes: &Planes, token: &CancellationToken) -> Meter {
    // Only Freehold has more than one.
    let Some(plane) = planes.only() else { return Meter::Server };
    loop {
        match ask(planes, plane).await {
            Ok(meter) => return meter,
            Err(error) => tracing::warn!(%error, "failed to read the server's version; will retry"),
        }
        tokio::select! {
            () = tokio::time::sleep(AGAIN) => {}
            () = token.cancelled() => return Meter::Webhook,
        }
    }
}

async fn ask(planes: &Planes, plane: &PlaneId) -> Result<Meter, freehold_client::Error> {
    let version = planes.client(plane).get_path("/version").await?;
    let is_freehold = version["gitVersion"].as_str().is_some_and(|version| version.contains(FREEHOLD));
    Ok(if is_freehold { Meter::Server } else { Meter::Webhook })
}
