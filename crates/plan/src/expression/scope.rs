//! When an expression is evaluated, and from when on a fact is known.

/// From when on something is known of an exchange. What is known at one point is known at all later ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// When its route is looked for.
    Route,
    /// While filters act on the request.
    Request,
    /// Once there is a response.
    Response,
    /// Once it is over.
    Log,
}

impl Scope {
    /// Returns the moment in words, such as `while filters act on the request`.
    pub fn moment(self) -> &'static str {
        match self {
            Self::Route => "when the route is chosen",
            Self::Request => "while filters act on the request",
            Self::Response => "once there is a response",
            Self::Log => "once the exchange is over",
        }
    }
}
