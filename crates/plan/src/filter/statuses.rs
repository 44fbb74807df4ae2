//! What limits and caches have done with a request, as access logs and expressions name it.

/// What limits have done with a request so far: of several, the last in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LimitStatus {
    /// It has met no limit.
    #[default]
    None,
    /// It was within all limits.
    Passed,
    /// It waited for its turn.
    Delayed,
    /// It was beyond a limit that only marks.
    Marked,
}

impl LimitStatus {
    /// Returns its name: `passed`, `delayed`, `marked`, or nothing.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Passed => "passed",
            Self::Delayed => "delayed",
            Self::Marked => "marked",
        }
    }
}

/// What a cache has done with a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheStatus {
    /// It has met no cache.
    #[default]
    None,
    /// It was answered by a fresh response.
    Hit,
    /// There was no response for it.
    Miss,
    /// There was one that was no longer fresh, and another came in its place.
    Expired,
    /// There was one that was no longer fresh, and the endpoint has confirmed it.
    Revalidated,
    /// It was answered by a response that is no longer fresh.
    Stale,
    /// The cache was not asked.
    Bypass,
}

impl CacheStatus {
    /// Returns its name: `hit`, `miss`, `expired`, `revalidated`, `stale`, `bypass`, or nothing.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Hit => "hit",
            Self::Miss => "miss",
            Self::Expired => "expired",
            Self::Revalidated => "revalidated",
            Self::Stale => "stale",
            Self::Bypass => "bypass",
        }
    }
}
