//! Requests to stop the process.

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};

/// Waits for SIGTERM or SIGINT.
pub async fn requested() {
    let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        // Without handlers the signals end the process by themselves.
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// Becomes true on SIGTERM or SIGINT.
pub fn on_request() -> watch::Receiver<bool> {
    let (stopping, stop) = watch::channel(false);
    tokio::spawn(async move {
        requested().await;
        stopping.send_replace(true);
        stopping.closed().await;
    });
    stop
}
