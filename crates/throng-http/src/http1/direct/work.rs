//! Requests that wait for more than their commit. Each is polled in its connection's entry whenever it is woken.

use crate::{
    access::cors,
    access_log::{Entry, UNKNOWN},
    answer::{Reply, ResponseBody},
    connection::Connection,
    http1::{
        outgoing::{Outgoing, Written},
        response,
        wire::{ComingBody, Wire},
    },
    problem::Problem,
    routes::{Answering, Handling, Staged},
    server::Server,
};
use http::Response;
use std::{
    collections::VecDeque,
    future::Future,
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};
use throng::driver::Charge;

/// The most steps for one connection before others have their turn, so that an endless body does not block the loop.
const STEPS_TOGETHER: usize = 16;

/// The work on a connection's first request. That request is in flight until the work is over.
#[allow(
    clippy::large_enum_variant,
    reason = "it is boxed, and the large variant is the usual one"
)]
pub(in crate::http1) enum Work {
    /// The rest of its body is arriving.
    Body(ComingBody),
    /// Its answer is being made. `closes`: the connection ends after it.
    Answer {
        maker: Maker,
        closes: bool,
        /// The memory of its body.
        _body: Option<Charge>,
    },
    /// Commands that were executed together are answered by other entities, or wait before they are executed.
    Settle { together: VecDeque<Staged>, closes: bool },
    /// A response is being sent. As much of it is written as may wait.
    Respond { outgoing: Outgoing, is_full: bool },
    /// Written bytes are being sent; then the earlier work continues.
    Flush { closes: bool, then: Option<Box<Work>> },
}

/// Makes an answer.
pub(in crate::http1) enum Maker {
    Handler(Handling),
    Route(Answering),
}

/// The outcome of polling work.
pub(super) enum Done {
    /// The request is here.
    Body,
    Response(Response<ResponseBody>, bool),
    /// All was sent. True if the connection closes.
    Gone(bool),
    /// The work could continue, but other connections would wait.
    More,
}

impl Work {
    pub(super) fn poll(
        &mut self,
        server: &Rc<Server>,
        connection: &Connection,
        wire: &mut Wire,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Done>> {
        for _ in 0..STEPS_TOGETHER {
            let next = match self {
                Self::Body(body) => {
                    return match ready!(wire.poll_body(body, context))? {
                        Ok(()) => Poll::Ready(Ok(Done::Body)),
                        Err(problem) => {
                            let response = without_body(server, connection, &wire.input, &problem);
                            Poll::Ready(Ok(Done::Response(response, true)))
                        }
                    };
                }
                Self::Answer { maker, closes, .. } => {
                    let response = match maker {
                        Maker::Handler(handling) => handling.poll(server, context),
                        Maker::Route(answering) => Pin::new(answering).poll(context),
                    };
                    return response.map(|response| Ok(Done::Response(response, *closes)));
                }
                Self::Settle { together, closes } => {
                    while let Some(staged) = together.front_mut() {
                        let answer = ready!(staged.poll_answer(server, context));
                        together.pop_front();
                        let closes = together.is_empty() && (*closes || connection.is_ending());
                        match answer {
                            Ok(Reply { body, charge, owner }) => {
                                wire.hold(charge);
                                let owner = owner.as_deref();
                                server
                                    .date
                                    .with(|date| response::reply(wire.output(), &body, owner, date, closes));
                            }
                            Err(problem) => {
                                Outgoing::write_problem(server, connection, &problem, closes, wire.output());
                            }
                        }
                    }
                    Self::Flush {
                        closes: *closes,
                        then: None,
                    }
                }
                Self::Respond { is_full, .. } if *is_full => {
                    ready!(wire.poll_flush(context))?;
                    *is_full = false;
                    continue;
                }
                Self::Respond { outgoing, is_full } => match outgoing.poll(wire.output(), context) {
                    Poll::Ready(written) => match written? {
                        Written::Full => {
                            *is_full = true;
                            continue;
                        }
                        Written::All => Self::Flush {
                            closes: outgoing.closes,
                            then: None,
                        },
                    },
                    // While the app produces nothing, earlier output is sent, and a client that leaves is noticed.
                    Poll::Pending => return wire.poll_gone(context).map(Err),
                },
                Self::Flush { closes, .. } => {
                    ready!(wire.poll_flush(context))?;
                    return Poll::Ready(Ok(Done::Gone(*closes)));
                }
            };
            *self = next;
        }
        Poll::Ready(Ok(Done::More))
    }
}

/// Returns the answer to a request whose body has not arrived.
fn without_body(server: &Server, connection: &Connection, input: &[u8], problem: &Problem) -> Response<ResponseBody> {
    if server.logs_next() {
        Entry::new(connection, UNKNOWN, UNKNOWN).refused(server, problem, None);
    }
    let mut response = problem.response();
    if let Some(origin) = cors::allowed_in(input, &server.shared().guard.names, connection.accepted_by()) {
        cors::allow(&mut response, origin);
    }
    response
}
