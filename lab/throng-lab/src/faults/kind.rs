//! The kinds of faults, and what each needs.

use clap::ValueEnum;
use serde::Serialize;

use super::{disk, namespaces, proxies, shim};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    /// `kill -9` under load.
    Kill,
    /// `kill -9` under load, and of one to three starts after it.
    KillStart,
    /// SIGTERM, and `kill -9` while it ends.
    KillEnd,
    /// SIGSTOP for up to three seconds.
    Pause,
    /// EIO of writes and syncs of the log.
    ErrorsLog,
    /// EIO of writes and syncs of the store.
    ErrorsStore,
    /// EIO, ENOSPC and short writes of both.
    ErrorsMixed,
    /// The same, and `kill -9` meanwhile.
    ErrorsKill,
    /// A full disk.
    Full,
    /// A full disk, and `kill -9` meanwhile.
    FullKill,
    /// A disk that loses its power.
    Power,
    /// A following backup, restored at random commits and compared with the history up to them.
    Restore,
    /// WebSockets with large messages that do not end.
    AttackMessages,
    /// Bodies that do not end.
    AttackBodies,
    /// Live streams that nobody reads.
    AttackStreams,
    /// Histories that nobody reads.
    AttackHistories,
    /// Heads of requests that do not end.
    AttackHeads,
    /// Subscriptions of WebSockets that nobody reads.
    AttackSubscriptions,
    /// Large answers that nobody reads.
    AttackAnswers,
    /// Streams of HTTP/2 that are reset as soon as they are open.
    AttackResets,
    /// Large commands, one to each of many entities.
    AttackCommands,
    /// More connections than there may be.
    AttackConnections,
    /// All of these attacks, one after the other, on one service.
    Attacks,
    /// `kill -9` of the service.
    PgKill,
    /// All its sessions ended.
    PgTerminate,
    /// The server restarted as after a crash.
    PgRestart,
    /// SIGSTOP of all the server's processes for up to three seconds.
    PgPause,
    /// `kill -9` of all the server's processes.
    PgCrash,
    /// The server's disk full, with its write-ahead log on another one.
    PgFull,
    /// The server's only disk full: it ends by itself, and recovers once there is room.
    PgFullWal,
    /// A stand-by takes over from a service that is alive.
    TakeOver,
    /// A stand-by takes over from one that was killed.
    TakeOverKilled,
    /// A stand-by takes over from one that is paused, and goes on later.
    TakeOverPaused,
    /// A standby, an old primary or a backup takes the database's place, with or without the last commits: each seed another way.
    Failover,
    /// `kill -9` of one of three nodes, which begins again later.
    ClusterKill,
    /// SIGSTOP of one of three nodes for up to five seconds. The lease is one second.
    ClusterPause,
    /// A node of three gives away its shards, and gets some back.
    ClusterDrain,
    /// Shards are moved to one of three nodes by an operator, and let go.
    ClusterMove,
    /// Three nodes are ended and started, one after the other.
    ClusterRoll,
    /// All sessions of three nodes ended.
    ClusterTerminate,
    /// The server of three nodes restarted as after a crash.
    ClusterPgRestart,
    /// Several of these faults at random, one after the other.
    ClusterStorm,
    /// Three nodes in a network of their own, with cuts in random order: a node from the database and the others, a node from the others only, the
    /// database from all.
    ClusterCut,
    /// The same cuts by proxies: nothing passes in one or both directions, or connections are reset.
    ClusterCutProxied,
}

/// The environment of a run's journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ground {
    Directory,
    /// A directory on a small ext4 of its own.
    SmallDisk,
    /// A directory; the shim is loaded into the service.
    Shim,
    Postgres,
    /// A server of PostgreSQL, shared by three nodes.
    Cluster,
    /// Private servers, one of which replaces another.
    Servers,
    /// A private server on a small ext4.
    SmallPostgres,
    /// A server and three nodes, each in a network namespace.
    Namespaces,
    /// A server and three nodes, with a proxy on each line between them.
    Proxies,
}

impl Ground {
    /// Returns true if the server is shared by all runs.
    pub(super) fn is_shared_server(self) -> bool {
        matches!(self, Self::Postgres | Self::Cluster | Self::Proxies)
    }
}

impl Kind {
    pub(super) fn ground(self) -> Ground {
        match self {
            Self::Kill | Self::KillStart | Self::KillEnd | Self::Pause | Self::Restore => Ground::Directory,
            Self::AttackMessages
            | Self::AttackBodies
            | Self::AttackStreams
            | Self::AttackHistories
            | Self::AttackHeads
            | Self::AttackSubscriptions
            | Self::AttackAnswers
            | Self::AttackResets
            | Self::AttackCommands
            | Self::AttackConnections
            | Self::Attacks => Ground::Directory,
            Self::ErrorsLog | Self::ErrorsStore | Self::ErrorsMixed | Self::ErrorsKill => Ground::Shim,
            Self::Full | Self::FullKill | Self::Power => Ground::SmallDisk,
            Self::PgFull | Self::PgFullWal => Ground::SmallPostgres,
            Self::ClusterKill
            | Self::ClusterPause
            | Self::ClusterDrain
            | Self::ClusterMove
            | Self::ClusterRoll
            | Self::ClusterTerminate
            | Self::ClusterPgRestart
            | Self::ClusterStorm => Ground::Cluster,
            Self::Failover => Ground::Servers,
            Self::ClusterCut => Ground::Namespaces,
            Self::ClusterCutProxied => Ground::Proxies,
            _ => Ground::Postgres,
        }
    }

    /// Returns the reason if this machine cannot have it.
    pub(super) fn unavailable(self) -> Option<String> {
        match self.ground() {
            Ground::SmallDisk | Ground::SmallPostgres => disk::unavailable(),
            Ground::Shim => shim::unavailable(),
            Ground::Namespaces => namespaces::unavailable(),
            Ground::Proxies => proxies::unavailable(),
            // A missing server is an error when it is started.
            Ground::Directory | Ground::Postgres | Ground::Cluster | Ground::Servers => None,
        }
    }

    /// Returns the name on the command line.
    pub(super) fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }
}
