//! Requests that wait for more than their commit. Each is polled in its connection's place, as often as that calls.

use crate::{
    access::cors,
    access_log::{Entry, UNKNOWN},
    answer::{Answer, Reply},
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

/// Steps that one connection takes before others have their turn: a body without end must not hold up the loop.
const STEPS_TOGETHER: usize = 16;

/// The work on a connection's first request. That request is in flight until the work is over.
#[allow(
    clippy::large_enum_variant,
    reason = "it is boxed, and the large variant is the usual one"
)]
pub(in crate::http1) enum Work {
    /// The rest of its body comes.
    Body(ComingBody),
    /// Its answer is made. The connection closes after it, if so said.
    Answer {
        maker: Maker,
        closes: bool,
        /// The memory of its body.
        _body: Option<Charge>,
    },
    /// Commands that were executed together are answered elsewhere, or wait before they are executed.
    Settle { together: VecDeque<Staged>, closes: bool },
    /// A response is on its way; as much as may wait is written of it.
    Respond { outgoing: Outgoing, is_full: bool },
    /// Written bytes are sent; then the work that had begun before goes on.
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
    Response(Response<Answer>, bool),
    /// All has gone; the connection closes, if so said.
    Gone(bool),
    /// The work could go on, and other connections would wait.
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
                    // While nothing comes from the app, what has come of it leaves, and a client that goes away is noticed.
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

/// Tells why there is no answer to a request whose body has not come.
fn without_body(server: &Server, connection: &Connection, input: &[u8], problem: &Problem) -> Response<Answer> {
    if server.logs_next() {
        Entry::new(connection, UNKNOWN, UNKNOWN).refused(server, problem, None);
    }
    let mut response = problem.response();
    if let Some(origin) = cors::allowed_in(input, &server.shared().guard.names, connection.accepted_by()) {
        cors::allow(&mut response, origin);
    }
    response
}
