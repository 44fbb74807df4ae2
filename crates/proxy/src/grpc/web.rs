//! gRPC-Web as coders: its bodies differ from those of gRPC in where trailers are, and in text form.

use model::Fields;
use model::base64::{self, Decoder};
use plan::filter::{BadBody, Coded, Coder, Turning};
use wire::grpc::call::{self, WebForm};

/// Bytes of three that one call encodes at least, so that padding stays rare.
const GROUP_BYTES: usize = 3;

/// Reads the text form of a request's body: the endpoint gets the bytes that it stands for.
#[derive(Default)]
pub(crate) struct TextDecoder(Decoder);

impl Coder for TextDecoder {
    fn code(&mut self, input: &[u8], room: &mut [u8], turning: Turning) -> Result<Coded, BadBody> {
        let read = input.len().min(room.len());
        room[..read].copy_from_slice(&input[..read]);
        let written = self.0.decode_in_place(&mut room[..read]).map_err(|_| BadBody::Malformed)?;
        let is_over = turning == Turning::End && read == input.len();
        if is_over && !self.0.is_between() {
            return Err(BadBody::Malformed);
        }
        Ok(Coded { read, written, is_done: is_over || turning == Turning::Flush && read == input.len() })
    }
}

/// Writes a response's body as gRPC-Web has it: trailers become its last message, and all of it has this form.
pub(crate) struct WebEncoder {
    form: WebForm,
    /// The last message, as far as it is not written.
    last: Vec<u8>,
    last_written: usize,
}

impl WebEncoder {
    pub(crate) fn new(form: WebForm) -> Self {
        Self { form, last: Vec::new(), last_written: 0 }
    }

    /// Writes some of `input`; says how much it has taken and written. Each call writes a segment of text with padding of its own, for
    /// nobody knows when the next one comes.
    fn write(&self, input: &[u8], room: &mut [u8]) -> (usize, usize) {
        if self.form == WebForm::Binary {
            let count = input.len().min(room.len());
            room[..count].copy_from_slice(&input[..count]);
            return (count, count);
        }
        let count = input.len().min(room.len() / 4 * GROUP_BYTES);
        let text = base64::encode(&input[..count]);
        room[..text.len()].copy_from_slice(text.as_bytes());
        (count, text.len())
    }
}

impl Coder for WebEncoder {
    fn code(&mut self, input: &[u8], room: &mut [u8], turning: Turning) -> Result<Coded, BadBody> {
        let (read, mut written) = self.write(input, room);
        let is_read = read == input.len();
        if turning == Turning::End && is_read {
            let (taken, more) = self.write(&self.last[self.last_written..], &mut room[written..]);
            self.last_written += taken;
            written += more;
        }
        let is_done = turning != Turning::More && is_read && self.last_written == self.last.len();
        Ok(Coded { read, written, is_done })
    }

    fn trailers(&mut self, trailers: &mut Fields) {
        if self.last.is_empty() {
            call::write_web_trailers(trailers, &mut self.last);
            trailers.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that comes of a body, by rooms of this size.
    fn coded(coder: &mut dyn Coder, body: &[u8], room: usize) -> Result<Vec<u8>, BadBody> {
        let (mut rest, mut out, mut buffer) = (body, Vec::new(), vec![0; room]);
        loop {
            let coded = coder.code(rest, &mut buffer, Turning::End)?;
            rest = &rest[coded.read..];
            out.extend_from_slice(&buffer[..coded.written]);
            if coded.is_done {
                return Ok(out);
            }
            assert!(coded.read + coded.written > 0, "it goes on");
        }
    }

    fn trailers() -> Fields {
        let mut trailers = Fields::default();
        trailers.append(&model::FieldName::new("Grpc-Status").expect("a name"), b"0");
        trailers
    }

    #[test]
    fn trailers_become_the_last_message_in_either_form_and_leave_none_behind() {
        let message = b"\x80\0\0\0\x10grpc-status: 0\r\n";
        for room in [4, 5, 7, 64, 4096] {
            let (mut binary, mut fields) = (WebEncoder::new(WebForm::Binary), trailers());
            binary.trailers(&mut fields);
            assert!(fields.is_empty());
            assert_eq!(coded(&mut binary, b"body", room), Ok([b"body".as_slice(), message].concat()), "{room}");
            let mut text = WebEncoder::new(WebForm::Text);
            text.trailers(&mut trailers());
            let written = coded(&mut text, b"body", room).expect("it is good");
            let read = coded(&mut TextDecoder::default(), &written, room).expect("it is text");
            assert_eq!(read, [b"body".as_slice(), message].concat(), "{room}");
        }
    }

    #[test]
    fn text_that_ends_within_a_group_or_is_none_is_bad() {
        for bad in ["Z", "Zg=", "Zm9v\n", "Zm 9", "=", "Zg=a"] {
            assert_eq!(coded(&mut TextDecoder::default(), bad.as_bytes(), 64), Err(BadBody::Malformed), "{bad}");
        }
        assert_eq!(coded(&mut TextDecoder::default(), b"", 64), Ok(Vec::new()));
    }
}
