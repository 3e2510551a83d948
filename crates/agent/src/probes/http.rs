//! One HTTP request over a new connection.

use std::{net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use http::{Request, StatusCode, Uri, header};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::timeout,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        self, ClientConfig, DigitallySignedStruct, SignatureScheme,
        client::{
            Resumption,
            danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        },
        crypto::{self, CryptoProvider},
        pki_types::{CertificateDer, ServerName, UnixTime},
    },
};

use super::{attempt_error::Unreachable, tcp};

/// How long the TLS handshake and the request may take on an open connection.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(3);

/// The target of a request.
#[derive(Debug)]
pub(super) struct Target {
    uri: Uri,
    tls: bool,
    /// The name or address of the server.
    pub(super) host: String,
    pub(super) port: u16,
    insecure: bool,
}

impl Target {
    pub(super) fn parse(url: &str, insecure: bool) -> Result<Self, String> {
        // The fragment is not sent to the server.
        let url = url.split('#').next().unwrap_or_default();
        let uri: Uri = url.parse().map_err(|error| format!("not a URL: {error}"))?;
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err("not a URL that begins with http:// or https://".to_owned()),
        };
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
        Ok(Self { uri, tls, host, port, insecure })
    }

    /// Sends the request to the server at this address, and returns the status. Redirects are not followed: a redirect
    /// is a response.
    pub(super) async fn get(&self, from: SocketAddr) -> Result<StatusCode, Unreachable> {
        let stream = tcp::connect(from).await?;
        let exchange = async {
            if self.tls {
                let name = ServerName::try_from(self.host.clone())
                    .map_err(|_| Unreachable::because("the host of the URL cannot have a certificate"))?;
                let connector = TlsConnector::from(Arc::new(config(self.insecure)?));
                self.request(connector.connect(name, stream).await?).await
            } else {
                self.request(stream).await
            }
        };
        let late = || Unreachable::because("connected, but no answer");
        timeout(EXCHANGE_TIMEOUT, exchange).await.map_err(|_| late())?
    }

    async fn request(&self, stream: impl AsyncRead + AsyncWrite + Unpin) -> Result<StatusCode, Unreachable> {
        let failed = |error: hyper::Error| Unreachable::from_error(&error);
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
        let mut connection = pin!(connection);
        let mut answer = pin!(sender.send_request(self.message()?));
        let answer = tokio::select! {
            biased;
            answer = &mut answer => answer,
            closed = &mut connection => match closed {
                Ok(()) => answer.await,
                Err(error) => Err(error),
            },
        };
        Ok(answer.map_err(failed)?.status())
    }

    fn message(&self) -> Result<Request<String>, Unreachable> {
        let host = match self.uri.port() {
            Some(port) => format!("{}:{port}", self.uri.host().unwrap_or_default()),
            None => self.uri.host().unwrap_or_default().to_owned(),
        };
        Request::get(self.uri.path_and_query().map_or("/", |path| path.as_str()))
            .header(header::HOST, host)
            .header(header::USER_AGENT, concat!("knmstate/", env!("CARGO_PKG_VERSION")))
            .header(header::ACCEPT, "*/*")
            .header(header::CONNECTION, "close")
            .body(String::new())
            .map_err(|error| Unreachable::from_error(&error))
    }
}

/// Whether a status is the expected one, or, if none is expected, one of 200 to 399.
pub(super) fn is_good(status: StatusCode, expected: Option<u16>) -> bool {
    expected.map_or_else(|| (200..400).contains(&status.as_u16()), |expected| status.as_u16() == expected)
}

/// A new TLS configuration for each attempt, so that no session of an earlier connection is resumed.
fn config(insecure: bool) -> Result<ClientConfig, Unreachable> {
    let provider = Arc::new(crypto::ring::default_provider());
    let failed = |error: rustls::Error| Unreachable::from_error(&error);
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(failed)?;
    let mut config = if insecure {
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
            .with_no_client_auth()
    } else {
        builder.with_platform_verifier().map_err(failed)?.with_no_client_auth()
    };
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// Accepts any certificate, but checks that the server has its key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        crypto::verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        crypto::verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };
    use tokio_rustls::{TlsAcceptor, rustls::ServerConfig, rustls::pki_types::PrivatePkcs8KeyDer};

    use super::*;

    async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> std::io::Result<()> {
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(stream.read_u8().await?);
        }
        let request = String::from_utf8_lossy(&request).into_owned();
        let status = match request.split(' ').nth(1) {
            Some("/healthz?deep=1") => "204 No Content",
            Some("/old") => "302 Found\r\nlocation: http://192.0.2.1/",
            Some("/") => "200 OK",
            Some("/silent") => std::future::pending().await,
            _ => "503 Service Unavailable",
        };
        stream.write_all(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").as_bytes()).await
    }

    async fn serve(tls: Option<TlsAcceptor>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let tls = tls.clone();
                tokio::spawn(async move {
                    match tls {
                        Some(tls) => answer(tls.accept(stream).await?).await,
                        None => answer(stream).await,
                    }
                });
            }
        });
        address
    }

    fn self_signed() -> TlsAcceptor {
        let signed = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        let key = PrivatePkcs8KeyDer::from(signed.signing_key.serialize_der());
        let config = ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("a usual provider")
            .with_no_client_auth()
            .with_single_cert(vec![signed.cert.der().clone()], key.into())
            .expect("key and certificate match");
        TlsAcceptor::from(Arc::new(config))
    }

    #[tokio::test]
    async fn a_response_counts_by_its_status_and_redirects_are_not_followed() {
        let address = serve(None).await;
        for (path, status, good) in [
            ("", 200, true),
            ("/", 200, true),
            ("/#part", 200, true),
            ("/healthz?deep=1", 204, true),
            ("/old", 302, true),
            ("/broken", 503, false),
        ] {
            let target = Target::parse(&format!("http://{address}{path}"), false).expect("a URL");
            let got = target.get(address).await.expect("an answer");
            assert_eq!(got.as_u16(), status, "{path}");
            assert_eq!(is_good(got, None), good, "{path}");
            assert!(is_good(got, Some(status)));
            assert!(!is_good(got, Some(418)));
        }
    }

    #[tokio::test]
    async fn a_certificate_is_checked_unless_the_probe_skips_that() {
        let address = serve(Some(self_signed())).await;
        let url = format!("https://localhost:{}/", address.port());
        let checked = Target::parse(&url, false).expect("a URL");
        let refusal = checked.get(address).await.expect_err("the certificate is self-signed");
        assert!(refusal.why.contains("certificate"), "{refusal:?}");
        let unchecked = Target::parse(&url, true).expect("a URL");
        assert_eq!(unchecked.get(address).await, Ok(StatusCode::OK));
        let by_address = Target::parse(&format!("https://{address}/"), true).expect("a URL");
        assert_eq!(by_address.get(address).await, Ok(StatusCode::OK));
    }

    #[tokio::test]
    async fn a_server_that_accepts_and_does_not_respond_is_given_up() {
        let address = serve(None).await;
        let target = Target::parse(&format!("http://{address}/silent"), false).expect("a URL");
        assert_eq!(target.get(address).await, Err(Unreachable::because("connected, but no answer")));
    }

    #[test]
    fn the_url_has_host_and_port() {
        for (url, host, port) in [
            ("http://10.0.0.1", "10.0.0.1", 80),
            ("https://registry.example.com/v2/", "registry.example.com", 443),
            ("https://[fd00::5]:8443/", "fd00::5", 8443),
            ("http://me:hush@registry:8080/", "registry", 8080),
        ] {
            let target = Target::parse(url, false).expect(url);
            assert_eq!((&*target.host, target.port), (host, port));
        }
        for url in ["ftp://10.0.0.1", "10.0.0.1", "http://", "/path"] {
            assert!(Target::parse(url, false).is_err(), "{url}");
        }
        let message = Target::parse("http://me:hush@[fd00::5]:8080/a?b", false).expect("a URL").message();
        let message = message.expect("a request");
        assert_eq!(message.headers()[header::HOST], "[fd00::5]:8080");
        assert_eq!(message.uri(), "/a?b");
    }
}
