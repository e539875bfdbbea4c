//! The test kit: seeded, virtual time, faulty journal, crash points.
