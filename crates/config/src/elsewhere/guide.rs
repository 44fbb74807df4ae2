//! The guides for those who come from another product.

/// The guide of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Guide {
    Nginx,
    HaProxy,
    Envoy,
    Traefik,
}

impl Guide {
    /// Returns the page of the guide.
    pub(super) fn page(self) -> &'static str {
        match self {
            Self::Nginx => "docs/guides/coming-from-nginx.md",
            Self::HaProxy => "docs/guides/coming-from-haproxy.md",
            Self::Envoy => "docs/guides/coming-from-envoy.md",
            Self::Traefik => "docs/guides/coming-from-traefik.md",
        }
    }
}
