//! What is printed about a panic.
//!
//! The message of a panic may quote a value: `unwrap` on an error prints the error, an index out of bounds of a text
//! prints the text. Such a value may be a secret of the network, so only messages without values are printed. The place
//! is printed in any case, and with RUST_BACKTRACE=1 the way to it.

use std::{
    any::Any,
    backtrace::{Backtrace, BacktraceStatus},
    io::{self, Write as _},
    panic,
};

/// Replaces the report of panics by one without values.
pub fn report_without_values() {
    panic::set_hook(Box::new(|info| {
        let place = info.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
        let thread = std::thread::current();
        let thread = thread.name().unwrap_or("without a name");
        let message = message(info.payload());
        let mut report =
            format!("knmstate: internal error (a panic) at {place} in thread {thread}: {message}\n");
        let backtrace = Backtrace::capture();
        if backtrace.status() == BacktraceStatus::Captured {
            report.push_str(&backtrace.to_string());
        }
        // As one write, so that lines of the log do not get into it. Nothing is left to be done if it fails.
        let _ = io::stderr().write_all(report.as_bytes());
    }));
}

/// The message, if it was in the program as it is. One that was put together is not printed.
fn message(payload: &dyn Any) -> &'static str {
    payload.downcast_ref().copied().unwrap_or("the message is left out, because it may quote a secret")
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    fn message_of(panics: fn()) -> &'static str {
        message(&*catch_unwind(panics).unwrap_err())
    }

    #[test]
    fn a_message_that_may_quote_a_value_is_not_printed() {
        let hidden = "the message is left out, because it may quote a secret";
        assert_eq!(message_of(|| panic!("as it is")), "as it is");
        assert_eq!(
            message_of(|| std::hint::black_box(None::<()>).unwrap()),
            "called `Option::unwrap()` on a `None` value"
        );
        assert_eq!(message_of(|| panic!("{}", std::hint::black_box("hush"))), hidden);
        assert_eq!(message_of(|| std::hint::black_box(Err::<(), _>("hush")).unwrap()), hidden);
        assert_eq!(message_of(|| panic::panic_any("hush".to_owned())), hidden);
        assert_eq!(message_of(|| assert_eq!(std::hint::black_box("hush"), "")), hidden);
    }
}
