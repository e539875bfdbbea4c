//! The export to a StatsD server over UDP, several metrics a packet.
//!
//! ```no_run
//! use std::time::Duration;
//! use throng_services::{service, stats::{Stats, statsd::Exporter}};
//!
//! # fn main() -> std::io::Result<()> {
//! let stats = Stats::new();
//! let exporter = Exporter::connect(&stats, "127.0.0.1:8125")?.prefix("shop.").every(Duration::from_secs(5));
//! let running = service("statsd", exporter.factory()).start()?;
//! # running.stop();
//! # Ok(())
//! # }
//! ```

use std::{
    collections::HashMap,
    convert::Infallible,
    io,
    net::{ToSocketAddrs, UdpSocket},
    sync::Arc,
    time::Duration,
};

use super::{Kind, Stats, Total};
use crate::service::{Context, Service};

/// The most bytes of a packet, so that it fits an Ethernet frame.
pub const PACKET_BYTES_MAX: usize = 1_432;

/// A [`Service`] that sends what was recorded since it last sent: counts as their increase, levels as they are, timings as their mean in
/// milliseconds. It sends every 5 seconds by default, and on [`flush`](Self::flush).
#[derive(Clone, Debug)]
pub struct Exporter {
    stats: Stats,
    socket: Arc<UdpSocket>,
    prefix: String,
    every: Duration,
    sent: HashMap<String, Total>,
}

impl Exporter {
    /// Returns an exporter to this server. UDP does not tell whether the server exists.
    ///
    /// # Errors
    /// The address cannot be resolved, or the operating system refuses a socket.
    pub fn connect(stats: &Stats, server: impl ToSocketAddrs) -> io::Result<Self> {
        let server = server.to_socket_addrs()?.next();
        let server = server.ok_or_else(|| io::Error::other("the StatsD server's name has no address"))?;
        let any = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any)?;
        socket.connect(server)?;
        socket.set_nonblocking(true)?;
        Ok(Self {
            stats: stats.clone(),
            socket: Arc::new(socket),
            prefix: String::new(),
            every: Duration::from_secs(5),
            sent: HashMap::new(),
        })
    }

    /// Sets the prefix of all keys.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets the time between two sends, as a service.
    #[must_use]
    pub fn every(mut self, every: Duration) -> Self {
        self.every = every;
        self
    }

    /// Returns a factory for [`service`](crate::service()). It makes clones that share the socket.
    pub fn factory(self) -> impl FnMut() -> Self + Send + 'static {
        move || self.clone()
    }

    /// Sends what was recorded since the last time. A packet the network refuses is lost, as any UDP packet may be.
    pub fn flush(&mut self) {
        let mut lines = Vec::new();
        for (key, kind, total) in self.stats.totals() {
            let sent = self.sent.get(&key).copied().unwrap_or_default();
            if sent == total {
                continue;
            }
            lines.extend(line(&self.prefix, &key, kind, total, sent));
            self.sent.insert(key, total);
        }
        for packet in packets(&lines) {
            drop(self.socket.send(packet.as_bytes()));
        }
    }
}

impl Service for Exporter {
    /// The service receives no messages.
    type Message = Option<Infallible>;

    fn started(&mut self, context: &mut Context<Self::Message>) {
        // A service has room for its first timer, so this cannot fail.
        let _ = context.every(self.every, || None);
    }

    fn receive(&mut self, _: Self::Message, _: &mut Context<Self::Message>) {
        self.flush();
    }

    fn stopped(&mut self) {
        self.flush();
    }
}

/// Returns the text for a key: one line, or several that must stay in one packet.
fn line(prefix: &str, key: &str, kind: Kind, total: Total, sent: Total) -> Option<String> {
    let letters = prefix.chars().chain(key.chars()).map(|letter| match letter {
        ':' | '|' | '@' | '#' => '_',
        letter if letter.is_whitespace() || letter.is_control() => '_',
        letter => letter,
    });
    let key: String = letters.collect();
    let times = total.times - sent.times;
    let line = match kind {
        Kind::Count if times == 0 => return None,
        Kind::Count => format!("{key}:{times}|c"),
        Kind::Level => match total.last.filter(|last| last.is_finite())? {
            // StatsD reads a signed value as a change of the level, so the level is set to 0 first.
            last if last < 0.0 => format!("{key}:0|g\n{key}:{last}|g"),
            last => format!("{key}:{}|g", last.abs()),
        },
        Kind::Timing if times == 0 => return None,
        Kind::Timing => format!("{key}:{:.3}|ms", (total.sum - sent.sum) * 1e3 / times as f64),
    };
    (line.len() <= PACKET_BYTES_MAX).then_some(line)
}

/// Returns the lines in packets, each as full as the bound allows.
fn packets(lines: &[String]) -> Vec<String> {
    let mut packets: Vec<String> = Vec::new();
    for line in lines {
        match packets.last_mut() {
            Some(packet) if packet.len() + 1 + line.len() <= PACKET_BYTES_MAX => {
                packet.push('\n');
                packet.push_str(line);
            }
            _ => packets.push(line.clone()),
        }
    }
    packets
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn server() -> UdpSocket {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        server.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        server
    }

    fn received(server: &UdpSocket) -> String {
        let mut packet = [0; 2_048];
        let bytes = server.recv(&mut packet).unwrap();
        std::str::from_utf8(&packet[..bytes]).unwrap().to_owned()
    }

    #[test]
    fn new_values_go_out_once_in_one_packet() {
        let (server, stats) = (server(), Stats::with_clock(|| 7));
        let exporter = Exporter::connect(&stats, server.local_addr().unwrap()).unwrap();
        let mut exporter = exporter.prefix("shop.");
        stats.counter("orders").add(3);
        stats.level("queue:depth").set(12.5);
        stats.timing("call").record(Duration::from_millis(4));
        stats.timing("call").record(Duration::from_millis(8));
        exporter.flush();
        assert_eq!(
            received(&server),
            "shop.call:6.000|ms\nshop.orders:3|c\nshop.queue_depth:12.5|g"
        );
        exporter.flush();
        stats.counter("orders").add(2);
        exporter.flush();
        assert_eq!(received(&server), "shop.orders:2|c");
    }

    #[test]
    fn a_negative_level_is_set_and_a_non_number_is_not_sent() {
        let (server, stats) = (server(), Stats::with_clock(|| 7));
        let mut exporter = Exporter::connect(&stats, server.local_addr().unwrap()).unwrap();
        stats.level("balance").set(-3.5);
        stats.level("ratio").set(f64::NAN);
        stats.level("zero").set(-0.0);
        exporter.flush();
        assert_eq!(received(&server), "balance:0|g\nbalance:-3.5|g\nzero:0|g");
    }

    #[test]
    fn as_a_service_it_sends_by_itself_and_the_rest_at_its_end() {
        let (server, stats) = (server(), Stats::new());
        let orders = stats.counter("orders");
        orders.add(1);
        let exporter = Exporter::connect(&stats, server.local_addr().unwrap()).unwrap();
        let exporter = exporter.every(Duration::from_millis(1));
        let running = crate::service("statsd", exporter.factory()).start().unwrap();
        assert_eq!(received(&server), "orders:1|c");
        orders.add(2);
        running.stop();
        assert_eq!(received(&server), "orders:2|c");
    }

    proptest! {
        #[test]
        fn packets_hold_every_line_in_its_order_within_their_size(
            lines in prop::collection::vec("[a-z.]{1,200}:[0-9]{1,9}\\|c", 0..60)
        ) {
            let packets = packets(&lines);
            prop_assert!(packets.iter().all(|packet| packet.len() <= PACKET_BYTES_MAX));
            let back: Vec<String> = packets.iter().flat_map(|packet| packet.split('\n')).map(str::to_owned).collect();
            prop_assert_eq!(back, lines);
        }
    }
}
