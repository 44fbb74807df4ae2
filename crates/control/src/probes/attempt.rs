//! One attempt to find out whether an endpoint is well.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use model::snapshot::{HealthCheck, HealthCheckKind};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::http;

/// All that an attempt needs, prepared once.
pub(crate) struct Target {
    address: SocketAddr,
    timeout: Duration,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    question: Option<Question>,
}

struct Question {
    bytes: Vec<u8>,
    statuses: Vec<(u16, u16)>,
}

impl Target {
    /// Prepares the attempts of `check` at `address`.
    ///
    /// # Errors
    /// Says what in the check cannot be asked.
    pub(crate) fn new(
        address: SocketAddr,
        check: &HealthCheck,
        tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    ) -> Result<Self, String> {
        let question = match &check.kind {
            HealthCheckKind::Tcp => None,
            HealthCheckKind::Http { path, host, statuses } => {
                let host = host.clone().unwrap_or_else(|| address.to_string());
                Some(Question { bytes: http::question(path, &host)?, statuses: statuses.clone() })
            }
        };
        let tls = tls.map(|(config, name)| (TlsConnector::from(config), name));
        Ok(Self { address, timeout: check.timeout, tls, question })
    }

    /// Tries once; bounded by the time-out of the check.
    ///
    /// # Errors
    /// Says in a few words why the endpoint is not well.
    pub(crate) async fn attempt(&self) -> Result<(), String> {
        tokio::time::timeout(self.timeout, self.unbounded())
            .await
            .unwrap_or_else(|_| Err(format!("no answer within {:?}", self.timeout)))
    }

    async fn unbounded(&self) -> Result<(), String> {
        let mut tcp = TcpStream::connect(self.address).await.map_err(|error| format!("cannot connect: {error}"))?;
        let Some((connector, name)) = &self.tls else { return self.ask(&mut tcp).await };
        let connected = connector.connect(name.clone(), tcp).await;
        let mut tls = connected.map_err(|error| format!("the TLS handshake failed: {error}"))?;
        self.ask(&mut tls).await
    }

    async fn ask<S>(&self, stream: &mut S) -> Result<(), String>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    {
        let Some(question) = &self.question else { return Ok(()) };
        let status = http::ask(stream, &question.bytes).await?;
        if question.statuses.iter().any(|(low, high)| (*low..=*high).contains(&status)) {
            return Ok(());
        }
        Err(format!("answered {status}"))
    }
}
