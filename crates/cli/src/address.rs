//! Listen addresses in the syntax of kubernetes-nmstate.

use std::{net::SocketAddr, str::FromStr};

use anyhow::{Context as _, Result};
use tokio::net::TcpListener;

/// An address to listen on, in the syntax of kubernetes-nmstate: `:8443` for all addresses, `0` for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(Option<SocketAddr>);

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "0" {
            return Ok(Self(None));
        }
        let whole = if text.starts_with(':') { format!("[::]{text}") } else { text.to_owned() };
        let address = whole.parse().map_err(|_| {
            format!("{text:?} is no address such as \":8443\" or \"10.0.0.1:8443\", nor \"0\" for none")
        })?;
        Ok(Self(Some(address)))
    }
}

impl Address {
    /// Binds the address. Connections wait in the kernel's queue until they are accepted. Fails if it is in use.
    pub async fn listen(self) -> Result<Option<TcpListener>> {
        let Some(address) = self.0 else { return Ok(None) };
        let listener = match TcpListener::bind(address).await {
            // A machine without IPv6.
            Err(_) if address.ip().is_unspecified() => TcpListener::bind(("0.0.0.0", address.port())).await,
            bound => bound,
        };
        listener.map(Some).with_context(|| format!("cannot listen at {address}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_as_users_write_them() {
        for (text, expected) in [
            ("0", Ok(None)),
            (":8443", Ok(Some("[::]:8443"))),
            ("127.0.0.1:1", Ok(Some("127.0.0.1:1"))),
            ("[::1]:1", Ok(Some("[::1]:1"))),
            ("8443", Err(())),
            ("", Err(())),
        ] {
            let found = text.parse::<Address>().map(|address| address.0).map_err(|_| ());
            assert_eq!(found, expected.map(|address| address.map(|text| text.parse().unwrap())), "{text}");
        }
    }
}
