//! An origin for datagrams: each goes back to where it came from. One that is long enough to be a question of DNS goes back
//! marked as an answer, so that the tools which measure DNS can measure datagrams.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::thread;

/// Bytes of the head of a message of DNS (RFC 1035 section 4.1.1).
pub(crate) const DNS_HEAD: usize = 12;

/// Sends datagrams back on all the addresses until the process is ended.
pub(crate) fn run(addresses: &[SocketAddr]) -> io::Result<()> {
    let sockets = addresses.iter().map(bind).collect::<io::Result<Vec<_>>>()?;
    let threads: Vec<_> = sockets.into_iter().map(|socket| thread::spawn(move || echo(&socket))).collect();
    for thread in threads {
        thread.join().map_err(|_| io::Error::other("an origin for datagrams has ended"))??;
    }
    Ok(())
}

fn bind(address: &SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(address)
        .map_err(|error| io::Error::new(error.kind(), format!("cannot listen on {address}: {error}")))?;
    // What waits while another of the origins has the core must not be lost.
    crate::sys::enlarge_receive_buffer(&socket, 4 << 20);
    Ok(socket)
}

fn echo(socket: &UdpSocket) -> io::Result<()> {
    let mut buffer = vec![0; 65_536];
    loop {
        let Ok((count, from)) = socket.recv_from(&mut buffer) else {
            // The one who was answered before has gone, which the socket tells here.
            continue;
        };
        answer(&mut buffer[..count]);
        let _ = socket.send_to(&buffer[..count], from);
    }
}

/// Turns a datagram into its answer.
pub(crate) fn answer(datagram: &mut [u8]) {
    if datagram.len() >= DNS_HEAD {
        datagram[2] |= 0x80;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn datagrams_come_back_and_questions_as_answers() {
        let origin = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = origin.local_addr().unwrap();
        thread::spawn(move || echo(&origin));
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        socket.connect(address).unwrap();
        let mut buffer = [0; 64];
        for (sent, due) in [(&b"short"[..], &b"short"[..]), (b"\0\x07\x01aaaaaaaaaaa", b"\0\x07\x81aaaaaaaaaaa")] {
            socket.send(sent).unwrap();
            let count = socket.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..count], due);
        }
    }
}
