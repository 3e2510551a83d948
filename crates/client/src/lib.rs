//! Requests to the API server, as all roles make them.
//!
//! - [`connection`]: the client, whose connections show when the server is gone;
//! - [`call`]: one request, with a time limit and an error message that an admin can act on;
//! - [`watch`]: a watch that knows at any time whether the server responds;
//! - [`raw`]: objects out of raw JSON, each on its own;
//! - [`store`]: a cache of the objects that a watch shows;
//! - [`outbox`]: write-behind, with at most one write per object under way;
//! - [`apply`]: writing a status so that the server has exactly that and nothing else;
//! - [`discovery`]: which kinds a cluster has;
//! - [`lease`]: leader election;
//! - [`parts`]: the tasks of a process, none of which may end;
//! - [`progress`]: whether its loops make progress.

pub mod apply;
mod body;
pub mod call;
pub mod connection;
pub mod discovery;
mod leadership;
pub mod lease;
pub mod outbox;
pub mod parts;
pub mod progress;
pub mod raw;
pub mod store;
pub mod watch;
