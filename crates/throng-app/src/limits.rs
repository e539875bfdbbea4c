//! The limits of a gateway, as flags and environment variables.

use clap::Args;
use std::{num::NonZeroU32, str::FromStr, time::Duration};
use throng_http::Limits;

/// Parses `300ms` or `2s`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let read = |number: &str, unit: fn(u64) -> Duration| number.parse().map(unit).ok();
    let found = match text.strip_suffix("ms") {
        Some(number) => read(number, Duration::from_millis),
        None => text
            .strip_suffix('s')
            .and_then(|number| read(number, Duration::from_secs)),
    };
    found.ok_or_else(|| "write for example 300ms or 2s".into())
}

/// Parses a duration greater than zero.
fn wait(text: &str) -> Result<Duration, String> {
    let wait = duration(text)?;
    (!wait.is_zero())
        .then_some(wait)
        .ok_or_else(|| "write more than 0".into())
}

/// Parses `65536`, `64k` or `2M`, where a thousand is 1,024.
fn bytes(text: &str) -> Result<usize, String> {
    let (number, unit) = match (text.strip_suffix('k'), text.strip_suffix('M')) {
        (Some(number), _) => (number, 1 << 10),
        (None, Some(number)) => (number, 1 << 20),
        (None, None) => (text, 1),
    };
    let bytes = number.parse::<usize>().ok().and_then(|number| number.checked_mul(unit));
    bytes
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| "write for example 65536, 64k or 2M".into())
}

/// Parses a number from 1 on.
fn count<T: FromStr + PartialOrd + From<u8>>(text: &str) -> Result<T, String> {
    let count = text.parse().ok().filter(|count| *count >= T::from(1));
    count.ok_or_else(|| "write a whole number from 1".into())
}

fn rate(text: &str) -> Result<NonZeroU32, String> {
    text.parse().map_err(|_| "write a whole number from 1".into())
}

macro_rules! limits {
    ($($field:ident: $type:ty = $read:expr, $flag:literal, $environment:literal, $unit:literal, $default:literal, $help:literal;)*) => {
        /// The gateway's limits. A limit that is not named keeps the program's value.
        #[derive(Args, Clone, Debug, Default)]
        #[command(next_help_heading = "Limits")]
        pub struct LimitArguments {
            $(
                #[doc = concat!($help, " [default: ", $default, "]")]
                #[arg(long = $flag, env = $environment, hide_env_values = true, value_name = $unit, value_parser = $read)]
                $field: Option<$type>,
            )*
        }

        impl LimitArguments {
            /// Applies the limits that were named.
            pub(crate) fn apply(&self, limits: &mut Limits) {
                $(if let Some(value) = self.$field {
                    limits.$field = value.into();
                })*
            }
        }

        /// Checks at compile time that every limit has a flag.
        #[cfg(test)]
        fn all() {
            let Limits { $($field: _),* } = Limits::default();
        }

        #[cfg(test)]
        /// Returns each flag with its environment variable, its default as shown, and the value it sets.
        fn shown() -> Vec<(&'static str, &'static str, &'static str, Result<Limits, String>)> {
            vec![$({
                let set = ($read)($default).map(|value: $type| Limits { $field: value.into(), ..Limits::default() });
                ($flag, $environment, $default, set)
            }),*]
        }
    };
}

limits! {
    connections_max: usize = count::<usize>, "connections", "THRONG_CONNECTIONS", "N", "what memory and open files allow",
        "Open connections; beyond them 503, but for health, metrics and administration";
    connections_per_address_max: usize = count::<usize>, "connections-per-address", "THRONG_CONNECTIONS_PER_ADDRESS", "N", "three quarters of all",
        "Open connections of one address. Unless said, this machine's own are not counted";
    spare_connections_max: usize = count::<usize>, "spare-connections", "THRONG_SPARE_CONNECTIONS", "N", "64",
        "Connections beyond those: half may ask for health, metrics and administration, half are told that there is no room";
    connection_rate_max: NonZeroU32 = rate, "connection-rate", "THRONG_CONNECTION_RATE", "N", "any",
        "Connections of one address a second; beyond them 429";
    request_rate_max: NonZeroU32 = rate, "request-rate", "THRONG_REQUEST_RATE", "N", "any",
        "Requests of one address a second; beyond them 429";
    caller_request_rate_max: NonZeroU32 = rate, "caller-request-rate", "THRONG_CALLER_REQUEST_RATE", "N", "any",
        "Requests a second of one caller, however many addresses it has; beyond them 429";
    header_bytes_max: usize = bytes, "header-bytes", "THRONG_HEADER_BYTES", "BYTES", "16k",
        "A request's line and header fields; beyond it 431";
    header_wait: Duration = duration, "header-wait", "THRONG_HEADER_WAIT", "TIME", "10s",
        "How long a request's head may take to come";
    body_bytes_max: usize = bytes, "body-bytes", "THRONG_BODY_BYTES", "BYTES", "1M",
        "A request's body; beyond it 413";
    bodies_bytes_max: usize = bytes, "bodies-bytes", "THRONG_BODIES_BYTES", "BYTES", "an eighth of --memory",
        "Bodies in flight of all connections, a part of --memory; beyond it 503";
    body_wait: Duration = duration, "body-wait", "THRONG_BODY_WAIT", "TIME", "30s",
        "How long a body may take to come; then 408";
    body_grace: Duration = duration, "body-grace", "THRONG_BODY_GRACE", "TIME", "5s",
        "How long a body may come as slowly as it likes";
    body_rate_min: u32 = count::<u32>, "body-rate", "THRONG_BODY_RATE", "BYTES", "1000",
        "Bytes a second that a body comes with after that, on average; otherwise 408";
    write_wait: Duration = duration, "write-wait", "THRONG_WRITE_WAIT", "TIME", "30s",
        "How long a client may take nothing of an answer";
    write_rate_min: u32 = count::<u32>, "write-rate", "THRONG_WRITE_RATE", "BYTES", "1000",
        "Bytes a second that a client takes of what waits for it, on average over such a time";
    idle: Duration = duration, "idle", "THRONG_IDLE", "TIME", "75s",
        "How long a connection may ask nothing";
    linger_wait: Duration = duration, "linger-wait", "THRONG_LINGER_WAIT", "TIME", "2s",
        "How long what a client still sends after its last answer is passed over";
    streams_max: u32 = count::<u32>, "http2-streams", "THRONG_HTTP2_STREAMS", "N", "128",
        "Requests of one HTTP/2 connection at a time";
    live_max: usize = count::<usize>, "live-streams", "THRONG_LIVE_STREAMS", "N", "1000",
        "Live event streams and subscriptions; beyond them 503";
    socket_requests_max: usize = count::<usize>, "socket-requests", "THRONG_SOCKET_REQUESTS", "N", "1024",
        "Requests of one WebSocket at a time; more are not read";
    socket_subscriptions_max: usize = count::<usize>, "socket-subscriptions", "THRONG_SOCKET_SUBSCRIPTIONS", "N", "64",
        "Subscriptions of one WebSocket";
    socket_messages_max: usize = count::<usize>, "socket-messages", "THRONG_SOCKET_MESSAGES", "N", "10000",
        "Messages of one frame of a WebSocket";
    socket_frame_bytes_max: usize = bytes, "socket-frame-bytes", "THRONG_SOCKET_FRAME_BYTES", "BYTES", "2M",
        "A frame that a WebSocket's client sends; beyond it closed with 1009";
    socket_ping: Duration = wait, "socket-ping", "THRONG_SOCKET_PING", "TIME", "20s",
        "How long a WebSocket may be silent before it is asked whether it is there; after as long again it is closed with 4408";
    socket_credit_wait: Duration = duration, "socket-credit-wait", "THRONG_SOCKET_CREDIT_WAIT", "TIME", "30s",
        "How long the events of a subscription may wait for credit; then it ends";
    deadline: Duration = wait, "deadline", "THRONG_DEADLINE", "TIME", "5s",
        "A request's deadline when it names none";
    deadline_max: Duration = wait, "deadline-max", "THRONG_DEADLINE_MAX", "TIME", "3600s",
        "The longest deadline a request may name; beyond it 400";
    wait_max: Duration = duration, "wait", "THRONG_WAIT", "TIME", "500ms",
        "How long a request may wait for its turn; who would wait longer is told 503";
    batch: Duration = duration, "turn", "THRONG_TURN", "TIME", "5ms",
        "Work of one turn of a thread that serves connections; what is ready beyond it waits for the next";
    batch_bytes_max: usize = bytes, "turn-bytes", "THRONG_TURN_BYTES", "BYTES", "8M",
        "Bodies of one turn; what is ready beyond them waits for the next";
    drain: Duration = duration, "drain", "THRONG_DRAIN", "TIME", "10s",
        "How long requests in flight may take when the service is told to stop";
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        limits: LimitArguments,
    }

    fn limits(arguments: &[&str]) -> Limits {
        let program = Program::try_parse_from([&["program"], arguments].concat()).unwrap();
        let mut limits = Limits::default();
        program.limits.apply(&mut limits);
        limits
    }

    #[test]
    fn the_defaults_that_are_shown_are_those_that_count() {
        all();
        for (flag, environment, default, set) in shown() {
            assert_eq!(format!("THRONG_{}", flag.to_uppercase().replace('-', "_")), environment);
            match set {
                Ok(set) => assert_eq!(set, Limits::default(), "--{flag} {default}"),
                Err(_) => assert!(
                    default.chars().all(|letter| !letter.is_ascii_digit()),
                    "--{flag} {default}"
                ),
            }
        }
    }

    #[test]
    fn given_limits_are_set_and_all_others_stay() {
        assert_eq!(limits(&[]), Limits::default());
        let set = limits(&[
            "--connections",
            "7",
            "--body-bytes",
            "2M",
            "--idle",
            "300ms",
            "--request-rate",
            "9",
        ]);
        let expected = Limits {
            connections_max: 7,
            body_bytes_max: 2 << 20,
            idle: Duration::from_millis(300),
            request_rate_max: NonZeroU32::new(9),
            ..Limits::default()
        };
        assert_eq!(set, expected);
        let wrong = |arguments: [&str; 3]| Program::try_parse_from(arguments).is_err();
        assert!(wrong(["program", "--connections", "0"]) && wrong(["program", "--body-bytes", "1G"]));
        assert!(wrong(["program", "--socket-ping", "0s"]) && wrong(["program", "--deadline-max", "0ms"]));
        assert!(wrong(["program", "--idle", "5"]) && wrong(["program", "--request-rate", "0"]));
    }
}
