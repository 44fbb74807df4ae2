//! What a request counts by.

use std::net::IpAddr;

use model::{FieldName, RequestHead};

use super::Network;

/// What a limit or a table counts by.
#[derive(Clone, Debug)]
pub enum Key {
    /// The network of the client.
    Client(Network),
    /// The value of a header field.
    Header(FieldName),
}

impl Key {
    /// Returns the key by a header field of this name, which is the same however its letters are spelled.
    ///
    /// # Errors
    /// It is no name of a field.
    pub fn header(name: &str) -> Result<Self, String> {
        FieldName::new(&name.to_ascii_lowercase()).map(Self::Header)
    }

    /// Calls with the bytes that stand for the key of a request.
    #[inline]
    pub fn with<T>(&self, head: &RequestHead, client: IpAddr, call: impl FnOnce(&[u8]) -> T) -> T {
        match self {
            Self::Client(network) => network.with(client, call),
            Self::Header(name) => {
                let mut values = head.fields.all(name);
                // Which of several values an endpoint reads is unknown: none of them may count on its own.
                match (values.next(), values.next()) {
                    (Some(value), None) => call(value),
                    _ => call(b""),
                }
            }
        }
    }
}
