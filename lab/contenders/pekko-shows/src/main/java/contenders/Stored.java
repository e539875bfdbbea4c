package contenders;

/** What is written to the journal, as CBOR. */
interface Stored {}
