//! Where datagrams go, decided without I/O.

/// Who delivered a datagram to this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The client.
    Client,
    /// The predecessor, which gives back what came for a flow that it no longer has.
    Predecessor,
    /// The successor, which reads the socket and passes on what may belong to flows of this one.
    Successor,
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// To the endpoint of the client's flow.
    Flow,
    /// To the predecessor, by the way of the socket of this number.
    Predecessor(u32),
    /// To a flow that begins with it.
    NewFlow,
    /// Back to the successor, which may begin a flow for it.
    Successor,
}

/// Returns where a datagram goes. `has_flow`: its client has a flow here that may go on. `predecessor` returns the socket of the
/// process before that has a flow of the client; it is only called if that matters, since it may take a lock.
pub(super) fn destination(source: Source, has_flow: bool, predecessor: impl FnOnce() -> Option<u32>) -> Destination {
    match source {
        _ if has_flow => Destination::Flow,
        Source::Predecessor => Destination::NewFlow,
        Source::Client => predecessor().map_or(Destination::NewFlow, Destination::Predecessor),
        Source::Successor => predecessor().map_or(Destination::Successor, Destination::Predecessor),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_of_this_process_gets_its_datagrams_whoever_delivers_them() {
        for source in [Source::Client, Source::Predecessor, Source::Successor] {
            assert_eq!(destination(source, true, || panic!("not asked")), Destination::Flow);
        }
    }

    #[test]
    fn what_the_process_before_has_a_flow_for_goes_there() {
        for source in [Source::Client, Source::Successor] {
            assert_eq!(destination(source, false, || Some(3)), Destination::Predecessor(3));
        }
        // What it gives back must not go round in a circle.
        assert_eq!(destination(Source::Predecessor, false, || Some(3)), Destination::NewFlow);
    }

    #[test]
    fn only_the_process_that_reads_the_socket_begins_flows() {
        assert_eq!(destination(Source::Client, false, || None), Destination::NewFlow);
        assert_eq!(destination(Source::Predecessor, false, || None), Destination::NewFlow);
        assert_eq!(destination(Source::Successor, false, || None), Destination::Successor);
    }
}
