//! An answer over HTTP/3 as it comes, and what is made of it.

use std::sync::Arc;

use model::limits::INTERIM_RESPONSES_MAX;
use model::{Fault, Method, ResponseHead};
use plan::health::expectation::{Body, Expectation};
use wire::http1::Framing;
use wire::http3::code;
use wire::http3::frame::{self, BadFrame, FrameReader, Step};
use wire::http3::message::{BadHead, Memory, read_response, read_trailers};

use super::{IDLE_MAX, broken, of_no_use, too_long};
use crate::probes::grpc;
use crate::probes::http::{HEAD_BYTES_MAX, LIMITS};

/// What is wanted of an answer.
pub(super) enum Wanted {
    /// That it is as expected of one over HTTP to this method.
    Http(Method, Arc<Expectation>),
    /// That it says by gRPC that what has this name serves.
    Grpc(String),
}

impl Wanted {
    fn method(&self) -> Method {
        match self {
            Self::Http(method, _) => *method,
            Self::Grpc(_) => Method::Post,
        }
    }
}

/// See the module.
pub(super) struct Answer<'q> {
    wanted: &'q Wanted,
    reader: FrameReader,
    interim: u32,
    /// Of the final head.
    framing: Option<Framing>,
    /// Of HTTP.
    body: Option<Body<'q>>,
    /// Of gRPC.
    message: Vec<u8>,
    pub(super) received: u64,
    idle: u32,
    /// Of gRPC: it has said how the call went.
    is_status_told: bool,
    /// It is as wanted, whatever follows.
    pub(super) is_enough: bool,
}

impl<'q> Answer<'q> {
    pub(super) fn new(wanted: &'q Wanted) -> Self {
        let body = match wanted {
            Wanted::Http(_, expectation) => Some(Body::new(expectation)),
            Wanted::Grpc(_) => None,
        };
        Self {
            wanted,
            reader: FrameReader::new(HEAD_BYTES_MAX),
            interim: 0,
            framing: None,
            body,
            message: Vec::new(),
            received: 0,
            idle: 0,
            is_status_told: false,
            is_enough: false,
        }
    }

    /// Whether its head is there, and more of it is waited for.
    pub(super) fn is_within_body(&self) -> bool {
        self.framing.is_some() && !self.is_enough
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// They are not what is wanted, or break the rules.
    pub(super) fn take(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        while !self.is_enough {
            let (used, step) = self.reader.next(bytes).map_err(|bad| match bad {
                BadFrame::TooLarge => too_long(),
                BadFrame::Connection(code) => broken(code),
            })?;
            self.idle += self.reader.take_idle();
            if self.idle > IDLE_MAX {
                return Err(of_no_use());
            }
            bytes = &bytes[used..];
            match step {
                Step::More => break,
                Step::Section => self.take_section()?,
                Step::Data(count) => {
                    let (data, rest) = bytes.split_at(count);
                    self.take_body(data)?;
                    bytes = rest;
                }
            }
        }
        Ok(())
    }

    fn take_section(&mut self) -> Result<(), String> {
        if self.framing.is_some() {
            return self.take_trailers();
        }
        let mut head = ResponseHead::default();
        let asked = (self.wanted.method(), &LIMITS, false);
        let parsed = read_response(self.reader.section(), asked, &mut Memory::default(), &mut head);
        let parsed = parsed.map_err(unread)?;
        if head.status < 200 {
            self.interim += 1;
            if self.interim > INTERIM_RESPONSES_MAX {
                return Err(format!("interim responses (status {}) instead of a final one", head.status));
            }
            return Ok(());
        }
        match self.wanted {
            Wanted::Http(_, expectation) => {
                expectation.check_head(&head)?;
                self.is_enough = !expectation.needs_body();
            }
            Wanted::Grpc(name) => {
                grpc::check_head(head.status, grpc::value(&head.fields, "content-type"))?;
                let told = grpc::status_fields(&head.fields);
                // An answer of trailers only has its status here.
                self.is_status_told = told.0.is_some();
                if self.is_status_told {
                    grpc::check_status(name, told)?;
                }
            }
        }
        self.framing = Some(parsed.framing);
        self.reader.expect(frame::Expected::Body);
        Ok(())
    }

    fn take_trailers(&mut self) -> Result<(), String> {
        self.reader.expect(frame::Expected::End);
        // Of HTTP nothing is expected of them.
        if let Wanted::Grpc(name) = self.wanted {
            let trailers = read_trailers(self.reader.section(), HEAD_BYTES_MAX, &mut Memory::default());
            let trailers = trailers.map_err(unread)?.unwrap_or_default();
            grpc::check_status(name, grpc::status_fields(&trailers))?;
            self.is_status_told = true;
        }
        Ok(())
    }

    fn take_body(&mut self, data: &[u8]) -> Result<(), String> {
        self.received += data.len() as u64;
        let length_max = match self.framing {
            Some(Framing::Length(length)) => length,
            Some(Framing::None) | None => 0,
            Some(_) => u64::MAX,
        };
        // RFC 9114 section 4.1.2.
        if self.received > length_max {
            return Err(broken(code::MESSAGE_ERROR));
        }
        match &mut self.body {
            Some(body) => {
                self.is_enough = body.take(data);
                if self.is_enough {
                    return body.verdict(false);
                }
            }
            None if self.message.len() + data.len() > grpc::MESSAGE_BYTES_MAX => return Err(grpc::too_long()),
            None => self.message.extend_from_slice(data),
        }
        Ok(())
    }

    /// Nothing more comes.
    ///
    /// # Errors
    /// It is not whole, or not what is wanted.
    pub(super) fn end(&mut self) -> Result<(), String> {
        if !self.reader.is_between_frames() || self.framing.is_none() {
            let what = if self.framing.is_none() { "head" } else { "body" };
            return Err(format!("closed within the response {what}"));
        }
        if matches!(self.framing, Some(Framing::Length(length)) if self.received < length) {
            return Err("closed within the response body".to_owned());
        }
        match (self.wanted, &self.body) {
            (Wanted::Http(..), body) => body.as_ref().map_or(Ok(()), |body| body.verdict(true))?,
            (Wanted::Grpc(_), _) if !self.is_status_told => return Err(grpc::without_status()),
            (Wanted::Grpc(name), _) => grpc::check_message(name, &self.message)?,
        }
        self.is_enough = true;
        Ok(())
    }
}

fn unread(bad: BadHead) -> String {
    match bad {
        BadHead::Malformed(Fault::ResponseHeadTooLarge | Fault::HeadTooLarge) => too_long(),
        BadHead::Undecodable => broken(code::DECOMPRESSION_FAILED),
        BadHead::Malformed(_) | BadHead::Fault(_) => broken(code::MESSAGE_ERROR),
    }
}
