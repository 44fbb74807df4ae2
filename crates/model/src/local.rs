//! Answers that the proxy gives itself.

/// A response made here rather than by an endpoint: a fixed answer, a redirect, a filter's refusal, a fault.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalResponse {
    /// 200–599.
    pub status: u16,
    /// Fields beside `content-length`, `date` and `connection`, which the protocol side adds. Valid by construction:
    /// anyone who compiles one checks names and values.
    pub fields: Vec<(String, String)>,
    /// The body; the protocol side leaves it out for HEAD, 204 and 304.
    pub body: Vec<u8>,
}
