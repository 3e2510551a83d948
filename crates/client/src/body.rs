//! The bodies of responses, with a limit to what is read at once.

use std::{error::Error, io};

use futures::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _};
use kube::Client;

use crate::call::{CallError, LARGEST_ANSWER};

/// The body of a response; `None` if it is larger than [`LARGEST_ANSWER`].
pub(crate) async fn whole_body(
    client: &Client,
    request: http::Request<Vec<u8>>,
) -> kube::Result<Option<Vec<u8>>> {
    let stream = client.request_stream(request).await?;
    read_whole(stream, LARGEST_ANSWER).await.map_err(kube::Error::ReadEvents)
}

async fn read_whole(stream: impl AsyncBufRead, limit: usize) -> io::Result<Option<Vec<u8>>> {
    let mut body = Vec::new();
    std::pin::pin!(stream).take(limit as u64 + 1).read_to_end(&mut body).await?;
    Ok((body.len() <= limit).then_some(body))
}

/// The next line of a stream; `None` at its end.
pub(crate) async fn next_line(
    stream: &mut (impl AsyncBufRead + Unpin),
) -> Result<Option<Vec<u8>>, CallError> {
    read_line(stream, LARGEST_ANSWER).await
}

async fn read_line(
    stream: &mut (impl AsyncBufRead + Unpin),
    limit: usize,
) -> Result<Option<Vec<u8>>, CallError> {
    let mut line = Vec::new();
    match stream.take(limit as u64 + 1).read_until(b'\n', &mut line).await {
        Ok(_) if line.len() > limit => Err(CallError::TooLarge),
        Ok(_) => Ok((!line.is_empty()).then_some(line)),
        // Many servers and proxies end a watch in this way.
        Err(error) if is_early_end(&error) => Ok(None),
        Err(error) => Err(kube::Error::ReadEvents(error).into()),
    }
}

/// Whether a stream ended before its length was reached or its last chunk was read.
fn is_early_end(error: &io::Error) -> bool {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        let is_eof = error
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::UnexpectedEof);
        if is_eof || error.to_string().contains("unexpected EOF during chunk") {
            return true;
        }
        // The source of an I/O error is not the error in it, but what that one is due to.
        cause = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    false
}

#[cfg(test)]
mod tests {
    use futures::io::Cursor;

    use super::*;

    #[tokio::test]
    async fn a_body_is_read_up_to_its_limit() {
        for (size, expected) in [(0, Some(0)), (9, Some(9)), (10, Some(10)), (11, None), (5000, None)] {
            let body = read_whole(Cursor::new(vec![7; size]), 10).await.unwrap();
            assert_eq!(body.map(|body| body.len()), expected, "{size}");
        }
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_an_error_and_its_rest_no_other_line() {
        let mut stream = Cursor::new(b"12345678\n\nab\ncd".to_vec());
        for expected in ["12345678\n", "\n", "ab\n", "cd"] {
            assert_eq!(read_line(&mut stream, 9).await.unwrap().unwrap(), expected.as_bytes());
        }
        assert_eq!(read_line(&mut stream, 9).await.unwrap(), None);
        let mut stream = Cursor::new(b"12345678\n".to_vec());
        assert!(matches!(read_line(&mut stream, 8).await, Err(CallError::TooLarge)));
    }

    #[test]
    fn an_early_end_is_found_below_other_errors() {
        let end = || io::Error::new(io::ErrorKind::UnexpectedEof, "gone");
        let within = |error: io::Error| io::Error::other(kube::Error::Service(error.into()));
        assert!(is_early_end(&end()));
        assert!(is_early_end(&within(end())));
        assert!(is_early_end(&within(io::Error::other("unexpected EOF during chunk size line"))));
        assert!(!is_early_end(&within(io::Error::other("connection reset"))));
    }
}
