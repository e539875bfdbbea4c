//! The binary `throng`.
fn main() {}
