//! What can be wrong with a job, and with the run of one.

use crate::database::Driver;

/// Mirrors `queue`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QueueError {
    #[error(
        "`{name}` cannot name a {what}; it has 1 to 64 letters, digits and characters of `-_.:@/`"
    )]
    Name { what: &'static str, name: String },
    #[error("the unique key has {chars} characters; it has 1 to 255")]
    Key { chars: usize },
    #[error(
        "the unique key ends with a space, which MySQL and MariaDB do not tell from one without"
    )]
    Space,
    #[error("the payload has {bytes} bytes; it has at most {most}")]
    Payload { bytes: usize, most: usize },
    #[error(
        "the payload has {bytes} bytes; this server takes at most {most}, for its max_allowed_packet is {packet}: raise \
         that, or keep the data elsewhere and its place in the payload"
    )]
    Packet { bytes: usize, most: usize, packet: i64 },
    #[error(
        "the {what} has a zero byte; no queue takes one, so that jobs are the same on every engine: write bytes as text, \
         for example in base64"
    )]
    Zero { what: &'static str },
    #[error("a job has at least one attempt")]
    NoAttempts,
    #[error("{millis} ms is no {what}; it is between {least} ms and ten years")]
    Time { what: &'static str, millis: u128, least: i64 },
    #[error("the transaction is one of {given:?}, but the queue is in {queue:?}")]
    OtherTransaction { given: Driver, queue: Driver },
    #[error(
        "job {id} is no longer this worker's: its lease has ended, or it has been completed, has failed \
         or has been given back already"
    )]
    Lost { id: i64 },
}
