//! Other instances.

use std::net::IpAddr;

use model::Address;
use model::peers::{Member, Peers, PeersTls};

use super::Resolver;
use crate::file;

/// Most instances of one list.
const MEMBERS_MAX: usize = 64;

impl Resolver<'_> {
    pub(super) fn peers(&mut self, written: &file::Peers) -> Option<Peers> {
        let listen = self.bind("peers/listen", &written.listen.0)?;
        self.take_bind("peers/listen", (&Address::Ip(listen), false), "`peers`".to_owned());
        let members: Vec<_> =
            written.members.iter().enumerate().filter_map(|(at, text)| self.member(at, text)).collect();
        self.check_openness(written, listen.ip(), &members);
        if members.len() > MEMBERS_MAX || written.members.is_empty() {
            self.report("peers/members", format!("there are 1 to {MEMBERS_MAX} members"), None);
        }
        let tls = match &written.tls {
            Some(tls) => Some(self.peers_tls(tls)?),
            None => None,
        };
        Some(Peers { listen, members, tls })
    }

    /// In clear, nothing may leave this machine or come from elsewhere, unless that is asked for.
    fn check_openness(&mut self, written: &file::Peers, listen: IpAddr, members: &[Member]) {
        let is_clear = written.tls.is_none();
        let is_open = is_clear && !listen.to_canonical().is_loopback();
        let open_member = members.iter().position(leaves_machine).filter(|_| is_clear);
        if is_open && !written.insecure {
            let message = format!(
                "`{}` can be reached from outside, and peers would be believed without a certificate",
                written.listen.0
            );
            let mend =
                "add `tls` with `certificate` and `authorities`, or listen on 127.0.0.1; `insecure: true` allows it";
            self.report("peers/listen", message, Some(mend.to_owned()));
        } else if let Some(at) = open_member.filter(|_| !written.insecure) {
            let message =
                format!("`{}` is not a loopback address, and tables would be sent to it in clear", members[at]);
            let mend = "add `tls` with `certificate` and `authorities`; `insecure: true` allows it";
            self.report("peers/members", message, Some(mend.to_owned()));
        }
        if written.insecure && !is_open && open_member.is_none() {
            let message =
                "`insecure` has no effect with `tls`, or if `listen` and all `members` are loopback addresses";
            self.warn_at_key("peers", "insecure", message.to_owned(), Some("leave it out".to_owned()));
        }
    }

    fn peers_tls(&mut self, written: &file::PeersTls) -> Option<PeersTls> {
        let certificate = self.certificate("peers/tls/certificate", &written.certificate);
        let authorities = self.authorities("peers/tls/authorities", &written.authorities);
        if let Some(name) = &written.server_name {
            self.host("peers/tls/server_name", name);
        }
        let server_name = written.server_name.clone();
        Some(PeersTls { certificate: certificate?, authorities: authorities?, server_name })
    }

    fn member(&mut self, at: usize, text: &str) -> Option<Member> {
        let path = format!("peers/members/{at}");
        let parts =
            text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok().filter(|port| *port > 0)?)));
        let Some((host, port)) = parts else {
            let mend = Some("write `10.0.0.2:7100` or `name:7100`".to_owned());
            self.report(&path, format!("`{text}` is not a host with a port"), mend);
            return None;
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if host.parse::<IpAddr>().is_err() {
            self.host(&path, host);
        }
        Some(Member { host: host.to_owned(), port })
    }
}

/// A name may lead anywhere.
fn leaves_machine(member: &Member) -> bool {
    !member.host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}
