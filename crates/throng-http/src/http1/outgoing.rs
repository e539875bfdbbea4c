//! A response on its way out.

use super::response::{self, Framing};
use crate::{
    answer::{self, ResponseBody},
    connection::Connection,
    problem::Problem,
    server::Server,
};
use bytes::Bytes;
use http::Response;
use hyper::body::Body;
use std::{
    io,
    pin::Pin,
    task::{Context, Poll, Waker, ready},
};
use throng::driver::Charge;

/// Bytes of answers that wait to leave together at most.
pub(super) const OUTPUT_BYTES_MAX: usize = 64 << 10;

/// A response whose head is written, and the rest of its body.
pub(crate) struct Outgoing {
    body: ResponseBody,
    /// A part of the body that was taken and is not written yet.
    rest: Bytes,
    /// The charge for a large answer, until it is written.
    charge: Option<Charge>,
    framing: Framing,
    /// The bytes still to come, if the length was set.
    left: Option<usize>,
    /// The connection closes after this response.
    pub(super) closes: bool,
}

/// The progress of writing a response.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// All of it.
    All,
    /// The output is full, and there is more to write.
    Full,
}

impl Outgoing {
    /// Writes the head.
    pub(super) fn begin(
        server: &Server,
        connection: &Connection,
        response: Response<ResponseBody>,
        closes: bool,
        output: &mut Vec<u8>,
    ) -> Self {
        let (response, charge) = server.charged(response);
        let (parts, body) = response.into_parts();
        let closes = closes || connection.is_ending();
        let framing = match body.size_hint().exact() {
            _ if answer::has_no_body(parts.status) => Framing::Nothing,
            Some(length) => Framing::Length(length as usize),
            None => Framing::Chunked,
        };
        server
            .date
            .with(|date| response::head(output, parts.status, &parts.headers, framing, date, closes));
        Self {
            body,
            rest: Bytes::new(),
            charge,
            framing,
            left: match framing {
                Framing::Length(length) => Some(length),
                _ => None,
            },
            closes,
        }
    }

    /// Writes a problem, which is whole.
    pub(super) fn write_problem(
        server: &Server,
        connection: &Connection,
        problem: &Problem,
        closes: bool,
        output: &mut Vec<u8>,
    ) {
        let mut outgoing = Self::begin(server, connection, problem.response(), closes, output);
        let _ = outgoing.poll(output, &mut Context::from_waker(Waker::noop()));
    }

    /// Writes the available part of the body.
    pub(super) fn poll(&mut self, output: &mut Vec<u8>, context: &mut Context<'_>) -> Poll<io::Result<Written>> {
        if self.framing == Framing::Nothing {
            return Poll::Ready(Ok(Written::All));
        }
        let is_live = matches!(self.body, ResponseBody::Live(_));
        loop {
            if self.rest.is_empty() {
                let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(context)) else {
                    break;
                };
                let Ok(data) = frame.map_err(io::Error::other)?.into_data() else {
                    continue;
                };
                self.rest = data;
            }
            let data = self.rest.split_to(self.rest.len().min(OUTPUT_BYTES_MAX));
            match &mut self.left {
                None => response::chunk(output, &data),
                Some(left) => {
                    *left = left
                        .checked_sub(data.len())
                        .ok_or_else(|| io::Error::other("a response is longer than it said"))?;
                    output.extend_from_slice(&data);
                }
            }
            // The next page is made once the client has taken this one.
            if output.len() > OUTPUT_BYTES_MAX || is_live && self.rest.is_empty() {
                return Poll::Ready(Ok(Written::Full));
            }
        }
        match self.left {
            None => response::last_chunk(output),
            Some(0) => {}
            Some(_) => return Poll::Ready(Err(io::Error::other("a response is shorter than it said"))),
        }
        self.charge = None;
        // Called again after the output was full.
        self.framing = Framing::Nothing;
        Poll::Ready(Ok(Written::All))
    }
}
