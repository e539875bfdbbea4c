//! The gateway's own problem types. Their names are stable: clients match on them.

/// A type of problem.
pub(crate) struct Entry {
    /// The last part of its `type`.
    pub(crate) slug: &'static str,
    /// The HTTP status.
    pub(crate) status: u16,
    /// A few words, always the same for the type.
    pub(crate) title: &'static str,
    /// The meaning and the remedy, for the person who looks the type up.
    pub(crate) meaning: &'static str,
}

macro_rules! catalog {
    ($($name:ident = $slug:literal, $status:literal, $title:literal, $meaning:literal;)*) => {
        $(pub(super) static $name: Entry = Entry { slug: $slug, status: $status, title: $title, meaning: $meaning };)*
        /// All of them.
        pub(crate) static CATALOG: &[&Entry] = &[$(&$name),*];
    };
}

catalog! {
    MALFORMED = "malformed", 400, "The request cannot be read",
        "The path, a header field, the query string or the JSON body is not what the route takes. `detail` says what was found; `field`, `line` and `column` say where. Nothing was done. Mend the request.";
    UNAUTHORIZED = "unauthorized", 401, "It is not known who asks",
        "The route is not for everybody, and the request shows no credentials, or such as are not taken. `detail` says which. Nothing was done. Send them as Authorization: Bearer, or connect with a client certificate.";
    FORBIDDEN = "forbidden", 403, "Not for this caller",
        "It is known who asks, and they may not do this. Nothing was done.";
    NOT_PUBLIC = "not-public", 403, "The command is not public",
        "Entities, timers and the service itself ask this command; clients cannot. `PUBLIC` of the kind's type names the commands they can ask.";
    NO_ADMINISTRATION = "no-administration", 403, "Administration is not open here",
        "Without a token, administration answers only programs of the same machine, only by a listener bound to loopback, and not through a proxy (a request with Forwarded, Via or X-Forwarded-… has come through one). Start the service with a token, and send it.";
    FORBIDDEN_ORIGIN = "forbidden-origin", 403, "This page may not ask this",
        "A browser's page of another origin asked. The service lets only its own pages ask, and those of the origins it was told. Nothing was done.";
    UNKNOWN_ROUTE = "unknown-route", 404, "No such route",
        "Nothing is served at this path.";
    UNKNOWN_KIND = "unknown-kind", 404, "No such kind",
        "The service has no entities of this kind. `detail` lists the kinds.";
    UNKNOWN_COMMAND = "unknown-command", 404, "No such command",
        "Entities of this kind do not know this command. `detail` lists those they know.";
    UNKNOWN_QUERY = "unknown-query", 404, "No such query",
        "Entities of this kind do not know this query. `detail` lists those they know.";
    UNKNOWN_ENTITY = "unknown-entity", 404, "No such entity",
        "Nothing has ever happened to an entity of this id, and the command asked is not one that creates.";
    METHOD_NOT_ALLOWED = "method-not-allowed", 405, "Method not allowed",
        "The path exists, but not for this method. The header Allow lists the methods.";
    REQUEST_TIMEOUT = "request-timeout", 408, "The request took too long to arrive",
        "The body did not arrive in time. Nothing was done. Send it again, faster.";
    SLOW_READER = "slow-reader", 408, "Events were left waiting too long",
        "A subscription's events waited for credit longer than the service allows, and it ended. Nothing is lost: subscribe again after its cursor.";
    KEY_REFUSED = "key-refused", 409, "The command was refused under this key before",
        "The same command was refused under this Idempotency-Key within the last ten minutes, and stays refused, though it would be accepted by now: so a request that comes late takes no effect after its client was told no. Nothing was done. To ask again, use a fresh key.";
    NOT_SKIPPED = "not-skipped", 409, "The event was not skipped",
        "The projection has not stopped at the event that was named, so nothing was skipped: it goes on, stops at another event, or another node runs it. `detail` says which. Look at /admin/journal, and decide anew.";
    HISTORY_LOST = "history-lost", 410, "The history has no such place",
        "The cursor names a place that is not in the service's history: it was restored from an earlier one, all of the entity was removed, or the cursor is another service's. Begin anew, and forget what was built on what came before.";
    ENDED = "ended", 410, "The entity has ended",
        "An entity of this id was there and has ended, and the command asked is not one that creates it anew. Nothing was done. Its last state and its history can be read for as long as the service keeps them.";
    NOT_KEPT = "not-kept", 410, "That is not kept any more",
        "What an entity was after that event is not known any more: its history was removed, or it has ended since then.";
    TOO_LARGE = "too-large", 413, "Too large",
        "The body, the id, a frame's messages, or what the command would record is more than its limit. Nothing was done.";
    UNSUPPORTED_MEDIA = "unsupported-media-type", 415, "Not JSON",
        "Commands are JSON in UTF-8, and not compressed: send Content-Type: application/json, also where the body is empty, and no Content-Encoding. A page of another site could send any other without asking.";
    MISDIRECTED = "misdirected", 421, "The service does not have this name",
        "The header Host, or the request's target, names another host than the service is known by: localhost, an address, and the names it was told. Nothing was done.";
    NOT_APPLIED = "not-applied", 422, "What it was cannot be told",
        "An event before that moment cannot be applied by this program, or too many would have to be read.";
    KEY_REUSED = "key-reused", 422, "The idempotency key was used for another command",
        "Another command was accepted under this Idempotency-Key within the last hour. Nothing was done. Use a fresh key for each command.";
    UPGRADE_REQUIRED = "upgrade-required", 426, "This route is a WebSocket",
        "Open it with a WebSocket client, version 13, over HTTP/1.1.";
    TOO_MANY_REQUESTS = "too-many-requests", 429, "Too many requests of one client",
        "This client asks more often than one may, or the service is loaded and it has its fair share of the requests that wait. Nothing was done. Try again after Retry-After seconds; others are served meanwhile.";
    HEADER_TOO_LARGE = "header-too-large", 431, "The request's head is too large",
        "The request line and header fields are larger than their limit. Nothing was done; the connection was closed.";
    CRASHED = "crashed", 500, "The service crashed on this request",
        "A defect of the service: the command had no effect. Trying again will not help; report it.";
    QUARANTINED = "quarantined", 500, "The entity is quarantined",
        "A recorded event of this entity cannot be applied by the running version of the service, or what is stored of it cannot be read. An operator has to look: the log and /admin/stuck say why.";
    OVERLOADED = "overloaded", 503, "Overloaded",
        "Too much is waiting. Nothing was done. Try again after Retry-After seconds.";
    UNAVAILABLE = "unavailable", 503, "Unavailable",
        "The service is starting, stopping or recovering, or its journal cannot be reached. Nothing was done. Try again after Retry-After seconds.";
    STORAGE_FULL = "storage-full", 507, "The service's storage is full",
        "The service has no room to record what a command does. Nothing was done; queries are answered. It takes commands again by itself once there is room: try again after Retry-After seconds.";
    EXPIRED = "expired", 504, "The deadline passed",
        "The deadline passed before the request was looked at. Nothing was done: asking again is safe.";
    OUTCOME_UNKNOWN = "outcome-unknown", 504, "The outcome is unknown",
        "The command may or may not have taken effect. Ask again with the same Idempotency-Key: it takes effect once.";
}

/// Returns the entry of this name.
pub(crate) fn find(slug: &str) -> Option<&'static Entry> {
    CATALOG.iter().copied().find(|entry| entry.slug == slug)
}
