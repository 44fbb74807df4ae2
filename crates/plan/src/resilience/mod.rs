//! What keeps clusters from being given too much, and requests from being lost: [`guard`] (bounds, and the circuit of
//! [`breaker`]), [`concurrency`] (a bound that follows load), [`retry`] and [`hedge`] (further attempts). Each says what may
//! be done; who carries requests does it.

pub mod breaker;
pub mod concurrency;
pub mod guard;
pub mod hedge;
pub mod retry;
