//! The outcome of an execution, from its shard to its socket.

/// The outcome of trying to execute something here and now.
#[derive(Debug)]
pub enum Execution<T, W, E> {
    /// It was executed. Its answer may rest on a commit that is not durable yet.
    Done(T),
    /// It has to wait for this first. Nothing was done that trying it again does once more.
    Wait(W),
    /// Nothing was done, and nothing will be.
    Refused(E),
}
