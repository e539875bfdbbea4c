//! The engine's only concurrency: the shard lock with its inbox, and the open commit.
