//! gzip that streams, by zlib-rs.

use flate2::{Compress, Compression, FlushCompress, Status};

use super::super::{BadBody, Coded, Turning};

/// Room that every call of an engine gets. With six bytes or fewer zlib would write empty blocks without end when it is flushed.
pub(super) const ROOM_MIN: usize = 64;

const WINDOW_BITS: u8 = 15;

/// A new encoder. It can be reset for the next body.
pub(super) fn encoder(level: u8) -> Compress {
    Compress::new_gzip(Compression::new(level.into()), WINDOW_BITS)
}

/// As [`super::super::Coder::code`], with room for at least [`ROOM_MIN`] bytes.
pub(super) fn code(state: &mut Compress, input: &[u8], room: &mut [u8], turning: Turning) -> Result<Coded, BadBody> {
    let flush = match turning {
        Turning::More => FlushCompress::None,
        Turning::Flush => FlushCompress::Sync,
        Turning::End => FlushCompress::Finish,
    };
    let before = (state.total_in(), state.total_out());
    let status = state.compress(input, room, flush).map_err(|_| BadBody::Malformed)?;
    let (read, written) = ((state.total_in() - before.0) as usize, (state.total_out() - before.1) as usize);
    let is_done = match turning {
        Turning::More => false,
        // Only room that is left says that all is out.
        Turning::Flush => read == input.len() && written < room.len(),
        Turning::End => status == Status::StreamEnd,
    };
    Ok(Coded { read, written, is_done })
}
