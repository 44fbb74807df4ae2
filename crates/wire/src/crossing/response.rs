//! Puts a response head together from its fields as they come, `:status` first (RFC 9113 section 8.3.2).

use model::fields::Span;
use model::limits::FIELDS_HARD_MAX;
use model::{Fault, Known, Method, ResponseHead, Version};

use super::{FIELD_OVERHEAD_BYTES, Malformed, push_field, response_framing};
use crate::http1::tally::Tally;
use crate::http1::{HeadLimits, ResponseParsed};

/// A response head while it is put together.
pub(super) struct ArrivingResponse<'a> {
    head: &'a mut ResponseHead,
    version: Version,
    limits: &'a HeadLimits,
    status: u16,
    /// Of the list, as RFC 9113 section 6.5.2 counts.
    bytes: usize,
}

impl<'a> ArrivingResponse<'a> {
    /// Clears `head`.
    pub(super) fn new(head: &'a mut ResponseHead, version: Version, limits: &'a HeadLimits) -> Self {
        head.clear();
        Self { head, version, limits, status: 0, bytes: 0 }
    }

    pub(super) fn set_status(&mut self, status: u16) {
        self.status = status;
        self.head.set_line(status, Span::default(), self.version);
    }

    /// Adds a field.
    ///
    /// # Errors
    /// [`Fault::BadResponse`] or [`Fault::ResponseHeadTooLarge`].
    pub(super) fn field(&mut self, name: &[u8], value: &[u8]) -> Result<(), Fault> {
        self.bytes += name.len() + value.len() + FIELD_OVERHEAD_BYTES;
        if self.bytes > self.limits.head_bytes_max {
            return Err(Fault::ResponseHeadTooLarge);
        }
        push_field(&mut self.head.fields, name, value).map_err(|Malformed| Fault::BadResponse)?;
        if self.head.fields.len() > self.limits.fields_max.min(FIELDS_HARD_MAX) {
            return Err(Fault::ResponseHeadTooLarge);
        }
        Ok(())
    }

    /// The head is whole; `ends` says that the message is, too.
    ///
    /// # Errors
    /// [`Fault::BadResponse`].
    pub(super) fn end(self, request_method: Method, ends: bool) -> Result<ResponseParsed, Fault> {
        let length = Tally::of(&self.head.fields).length;
        let framing = response_framing(self.status, request_method, length, ends)?;
        if self.status < 200 || self.status == 204 {
            self.head.fields.remove_known(Known::ContentLength);
        }
        Ok(ResponseParsed { head_len: 0, framing, keep_alive: true, switching: false })
    }
}

/// See the module.
pub(crate) struct GatherResponse<'a> {
    arriving: ArrivingResponse<'a>,
    has_fields: bool,
    /// What is wrong; all that follows is passed over.
    bad: Option<Fault>,
}

impl<'a> GatherResponse<'a> {
    /// Clears `head`.
    pub(crate) fn new(head: &'a mut ResponseHead, version: Version, limits: &'a HeadLimits) -> Self {
        Self { arriving: ArrivingResponse::new(head, version, limits), has_fields: false, bad: None }
    }

    /// Takes a field.
    pub(crate) fn field(&mut self, name: &[u8], value: &[u8]) {
        if self.bad.is_none() {
            self.bad = self.take(name, value).err();
        }
    }

    fn take(&mut self, name: &[u8], value: &[u8]) -> Result<(), Fault> {
        if name.first() != Some(&b':') {
            self.has_fields = true;
            return self.arriving.field(name, value);
        }
        // Section 8.3: once, before all others, and no other than this.
        if name != b":status" || self.has_fields || self.arriving.status != 0 {
            return Err(Fault::BadResponse);
        }
        self.arriving.set_status(three_digits(value).ok_or(Fault::BadResponse)?);
        Ok(())
    }

    /// The section is whole; `ends` says that the message is, too.
    ///
    /// # Errors
    /// [`Fault::BadResponse`] or [`Fault::ResponseHeadTooLarge`].
    pub(crate) fn end(self, request_method: Method, ends: bool) -> Result<ResponseParsed, Fault> {
        match self.bad {
            Some(bad) => Err(bad),
            None => self.arriving.end(request_method, ends),
        }
    }
}

fn three_digits(value: &[u8]) -> Option<u16> {
    let digits: &[u8; 3] = value.try_into().ok()?;
    digits
        .iter()
        .all(u8::is_ascii_digit)
        .then(|| digits.iter().fold(0, |all, digit| all * 10 + u16::from(digit - b'0')))
}
