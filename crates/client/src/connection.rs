//! The connections to the API server: one of HTTP/2 for all watches, and those of HTTP/1.1 for other requests.
//!
//! A watch may be quiet for minutes. Whether its server still responds is found out by pings of HTTP/2. They cost the
//! server no request, and they share the connection with the watches: a path that is cut and a server that hangs are
//! both noticed. Other requests have connections of their own: each has a time limit, and HTTP/1.1 closes the connection
//! of a request that was given up, so that the next request does not wait on a path that is cut.
//!
//! Where only HTTP/1.1 is spoken, as by some proxies, there are no pings. There, watches are short: a server that has not
//! even ended its watch in time does not respond.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use futures::{FutureExt as _, future::BoxFuture};
use http::{Request, Response, Uri, Version};
use http_body_util::Either;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client as HttpClient, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use kube::{
    Client, Config,
    client::{Body, ClientBuilder, ConfigExt as _, RustlsTlsError},
};
use tower::{BoxError, Service, ServiceBuilder};
use tower_http::timeout::TimeoutBody;

/// A server that has sent nothing for this time is sent a ping.
const PING_INTERVAL: Duration = Duration::from_secs(15);
/// A server that has not responded to a ping after this time is gone.
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// After this time a server ends a watch where there are no pings.
const SHORT_WATCH_SECONDS: u32 = 30;
/// A server that has not ended such a watch by then is gone.
const SHORT_WATCH_TIMEOUT: Duration = Duration::from_secs(SHORT_WATCH_SECONDS as u64 + 5);

/// A client for one API server, which connects with its first request.
///
/// It does not retry: watches and outboxes do. It fails if the configuration cannot be used, as when a certificate
/// cannot be read.
pub fn connect(mut config: Config, connect_timeout: Duration) -> kube::Result<Client> {
    config.connect_timeout = Some(connect_timeout);
    config.default_retry = false;
    if config.proxy_url.is_some() {
        // kube knows which proxies it was built for.
        return Client::try_from(config);
    }
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_connect_timeout(Some(connect_timeout));
    let requests = config.rustls_https_connector_with_connector(connector.clone())?;
    let requests = HttpClient::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(requests);
    let watches = HttpClient::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_keep_alive_interval(PING_INTERVAL)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .build(with_http2(&config, connector)?);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(Transport::new(requests, watches));
    Ok(ClientBuilder::new(service, config.default_namespace).build())
}

/// Connects by HTTP/2 where the server offers it.
fn with_http2(config: &Config, connector: HttpConnector) -> kube::Result<HttpsConnector<HttpConnector>> {
    let builder =
        HttpsConnectorBuilder::new().with_tls_config(config.rustls_client_config()?).https_or_http();
    let builder = match &config.tls_server_name {
        Some(name) => {
            let name = name.clone().try_into().map_err(RustlsTlsError::InvalidServerName);
            builder.with_server_name_resolver(FixedServerNameResolver::new(
                name.map_err(kube::Error::RustlsTls)?,
            ))
        }
        None => builder,
    };
    Ok(builder.enable_all_versions().wrap_connector(connector))
}

/// Sends watches over connections of their own, and makes them short where there are no pings.
#[derive(Clone, Debug)]
struct Transport<S> {
    requests: S,
    watches: S,
    /// Whether watches were last served by HTTP/2.
    pings: Arc<AtomicBool>,
}

impl<S> Transport<S> {
    fn new(requests: S, watches: S) -> Self {
        Self { requests, watches, pings: Arc::default() }
    }
}

impl<S, B> Service<Request<Body>> for Transport<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: 'static,
{
    type Response = Response<Either<B, TimeoutBody<B>>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        match self.requests.poll_ready(context) {
            Poll::Ready(Ok(())) => self.watches.poll_ready(context),
            other => other,
        }
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let query = request.uri().query().unwrap_or_default();
        if !query.split('&').any(|parameter| parameter == "watch=true") {
            let response = self.requests.call(request);
            return async move { Ok(response.await?.map(Either::Left)) }.boxed();
        }
        if !self.pings.load(Ordering::Relaxed)
            && let Some(short) = shortened(request.uri())
        {
            *request.uri_mut() = short;
        }
        let response = self.watches.call(request);
        let pings = self.pings.clone();
        async move {
            let response = response.await?;
            let has_pings = response.version() == Version::HTTP_2;
            pings.store(has_pings, Ordering::Relaxed);
            Ok(response.map(|body| {
                if has_pings {
                    Either::Left(body)
                } else {
                    Either::Right(TimeoutBody::new(SHORT_WATCH_TIMEOUT, body))
                }
            }))
        }
        .boxed()
    }
}

/// The URI of a watch, so that the server ends it soon.
fn shortened(uri: &Uri) -> Option<Uri> {
    let parameters = uri.query()?.split('&').filter(|parameter| !parameter.starts_with("timeoutSeconds="));
    let query = parameters.collect::<Vec<_>>().join("&");
    let target = format!("{}?{query}&timeoutSeconds={SHORT_WATCH_SECONDS}", uri.path());
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(target.try_into().ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests;
