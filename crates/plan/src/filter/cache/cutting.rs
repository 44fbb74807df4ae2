//! The body that begins with a slice which is on its way from an endpoint.

use crate::cache::Filling;
use crate::filter::{BadBody, Coded, Coder, Turning};

/// Stores a slice as it comes, and passes on which of its bytes are sent. What follows the slice passes as it is.
pub(super) struct Cutting {
    pub filling: Option<Filling>,
    /// Bytes of the slice that are still to come. `None`: they are not as many as was stated.
    pub left: Option<u64>,
    /// Bytes of the slice that are not sent.
    pub skip: u64,
    /// Bytes behind those that are sent.
    pub take: u64,
}

impl Coder for Cutting {
    fn code(&mut self, input: &[u8], room: &mut [u8], turning: Turning) -> Result<Coded, BadBody> {
        let left = self.left.as_mut().ok_or(BadBody::Malformed)?;
        let mut coded = Coded::default();
        while *left > 0 && coded.read < input.len() {
            let rest = &input[coded.read..];
            let rest = &rest[..rest.len().min(usize::try_from(*left).unwrap_or(usize::MAX))];
            let within = |count: u64| rest.len().min(usize::try_from(count).unwrap_or(usize::MAX));
            let count = if self.skip > 0 {
                let count = within(self.skip);
                self.skip -= count as u64;
                count
            } else if self.take > 0 {
                let count = within(self.take).min(room.len() - coded.written);
                if count == 0 {
                    return Ok(coded);
                }
                room[coded.written..coded.written + count].copy_from_slice(&rest[..count]);
                coded.written += count;
                self.take -= count as u64;
                count
            } else {
                rest.len()
            };
            if let Some(filling) = &mut self.filling {
                filling.see(&rest[..count]);
            }
            coded.read += count;
            *left -= count as u64;
        }
        if *left == 0
            && let Some(mut filling) = self.filling.take()
        {
            filling.finish();
        }
        let (rest, room) = (&input[coded.read..], &mut room[coded.written..]);
        let count = rest.len().min(room.len());
        room[..count].copy_from_slice(&rest[..count]);
        (coded.read, coded.written) = (coded.read + count, coded.written + count);
        coded.is_done = turning == Turning::End && coded.read == input.len();
        if coded.is_done && *left > 0 { Err(BadBody::Malformed) } else { Ok(coded) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes of a slice of ten bytes and four that follow it, in pieces.
    fn cut(skip: u64, take: u64, piece: usize, room: usize) -> String {
        let mut cutting = Cutting { filling: None, left: Some(10), skip, take };
        let (mut out, mut rest) = (Vec::new(), &b"0123456789abcd"[..]);
        loop {
            let input = &rest[..rest.len().min(piece)];
            let turning = if input.len() == rest.len() { Turning::End } else { Turning::More };
            let mut space = vec![0; room];
            let coded = cutting.code(input, &mut space, turning).unwrap();
            assert!(coded.read > 0 || coded.written > 0 || coded.is_done);
            out.extend_from_slice(&space[..coded.written]);
            rest = &rest[coded.read..];
            if coded.is_done {
                return String::from_utf8(out).unwrap();
            }
        }
    }

    #[test]
    fn a_slice_is_cut_and_what_follows_it_is_not() {
        for (piece, room) in [(1, 1), (3, 2), (2, 3), (64, 1), (1, 64), (64, 64)] {
            assert_eq!(cut(0, 10, piece, room), "0123456789abcd", "{piece} {room}");
            assert_eq!(cut(4, 6, piece, room), "456789abcd", "{piece} {room}");
            assert_eq!(cut(2, 3, piece, room), "234abcd", "{piece} {room}");
            assert_eq!(cut(10, 0, piece, room), "abcd", "{piece} {room}");
        }
    }

    #[test]
    fn a_slice_of_another_length_ends_the_body() {
        let mut unknown = Cutting { filling: None, left: None, skip: 0, take: 10 };
        assert!(unknown.code(b"x", &mut [0; 8], Turning::More).is_err());
        let mut short = Cutting { filling: None, left: Some(10), skip: 0, take: 10 };
        assert!(short.code(b"x", &mut [0; 8], Turning::End).is_err());
    }
}
