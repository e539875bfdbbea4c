//! Journal, directory and store of a Throng engine on any storage with conditional puts, such as object storage or Cassandra.
//!
//! The crate makes no request by itself. An adapter implements [`ConditionalStore`]. A [`Host`] provides tasks, clocks and randomness; outside
//! simulations it is [`Machine`]. The protocol is described in `docs/decisions/032-conditional-puts.md`.
//!
//! ```text
//! root.json              streams, layers of rows, nodes: replaced only if unchanged since the read
//! s/STREAM/NUMBER        a commit, or a seal: put once, never changed; a seal is never deleted
//! p/STREAM/AFTER-NONCE   a segment: commits written anew, without the removed records
//! c/WRITER-NONCE         a layer of the store's rows
//! ```

mod body;
mod conditional;
mod directory;
mod host;
mod journal;
mod machine;
mod members;
mod root;
mod store;
mod streams;
mod trial;

pub use conditional::{ConditionalStore, Fault, Object, PutNew, Replaced, Version};
pub use directory::ConditionalDirectory;
pub use host::Host;
pub use journal::{ConditionalJournal, ConditionalOptions};
pub use machine::Machine;
pub use root::KEY as ROOT;
pub use store::ConditionalStates;
pub use trial::{Unfit, trial};

use std::sync::Arc;

/// The parts of a journal on a store with conditional puts.
#[derive(Clone)]
pub struct Opened {
    /// The commits. The store can be rebuilt from them.
    pub journal: Arc<ConditionalJournal>,
    /// The store that is built from the journal.
    pub store: Arc<ConditionalStates>,
    /// The directory in which the nodes of a cluster meet.
    pub directory: Arc<ConditionalDirectory>,
}

/// Opens a journal and its store without a request: the first use makes one. Run the [`trial`] on a storage before the first journal begins there.
#[must_use]
pub fn open_conditional(store: Arc<dyn ConditionalStore>, host: Arc<dyn Host>, options: ConditionalOptions) -> Opened {
    let journal = ConditionalJournal::new(store, host, options);
    Opened {
        directory: Arc::new(ConditionalDirectory::new(Arc::clone(&journal.inner))),
        store: Arc::new(ConditionalStates::new(journal.clone())),
        journal: Arc::new(journal),
    }
}
