//! What becomes of the log when the disk, the power or the process fails.

mod crashes;
mod damage;
mod disk;
mod errors;
mod kit;
mod process;
mod torn;
