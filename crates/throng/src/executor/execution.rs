//! The outcome of an execution, from its shard to its socket.

/// The outcome of trying to execute something here and now.
#[derive(Debug)]
pub enum Execution<T, W, E> {
    /// Executed. The answer may rest on a commit that is not durable yet.
    Done(T),
    /// Not executed yet: this has to be waited for first. Another try repeats nothing that was done.
    Wait(W),
    /// Nothing was done, and nothing will be.
    Refused(E),
}
