//! The journal and store a Throng engine rests on: traits, commit format, in-memory backends, conformance suites.
