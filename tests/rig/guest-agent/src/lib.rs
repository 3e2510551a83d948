//! The protocol between the rig and the agent inside a full-kernel node: one TCP connection per command, with one
//! request and one reply. Closing the connection before the reply kills the command.
//!
//! A message is a sequence of blocks. A block is its length, four bytes in network byte order, and that many bytes.

use std::{
    io::{self, Read, Write},
    time::Duration,
};

/// The port of the agent on a node's management address.
pub const PORT: u16 = 2323;

/// More than any test sends or prints: a larger length is an error of the protocol.
const LARGEST_BLOCK: u32 = 256 << 20;

/// A command to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub argv: Vec<String>,
    pub env: Vec<(String, String)>,
    pub stdin: Vec<u8>,
    /// The process group of the command is killed when this time has passed.
    pub limit: Duration,
}

/// How a command ended, and what it printed until then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub end: End,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// With the status of wait(2), which distinguishes exit codes from signals.
    Exited(i32),
    TimedOut,
    /// It could not be started, for this reason.
    NotStarted(String),
}

impl Request {
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        put(to, &self.limit.as_millis().to_be_bytes())?;
        put(to, &self.stdin)?;
        put_list(to, self.argv.iter().map(String::as_str))?;
        put_list(to, self.env.iter().flat_map(|(key, value)| [key.as_str(), value.as_str()]))?;
        to.flush()
    }

    pub fn read(from: &mut impl Read) -> io::Result<Self> {
        let limit =
            u64::try_from(u128::from_be_bytes(fixed(&get(from)?)?)).map_err(|_| malformed("limit"))?;
        let stdin = get(from)?;
        let argv = get_list(from)?;
        let mut env = Vec::new();
        let mut words = get_list(from)?.into_iter();
        while let Some(key) = words.next() {
            env.push((key, words.next().ok_or_else(|| malformed("environment"))?));
        }
        Ok(Self { argv, env, stdin, limit: Duration::from_millis(limit) })
    }
}

impl Reply {
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        match &self.end {
            End::Exited(status) => {
                put(to, b"exited")?;
                put(to, &status.to_be_bytes())?;
            }
            End::TimedOut => {
                put(to, b"timed out")?;
                put(to, b"")?;
            }
            End::NotStarted(why) => {
                put(to, b"not started")?;
                put(to, why.as_bytes())?;
            }
        }
        put(to, &self.stdout)?;
        put(to, &self.stderr)?;
        to.flush()
    }

    pub fn read(from: &mut impl Read) -> io::Result<Self> {
        let (kind, detail) = (get(from)?, get(from)?);
        let end = match kind.as_slice() {
            b"exited" => End::Exited(i32::from_be_bytes(fixed(&detail)?)),
            b"timed out" => End::TimedOut,
            b"not started" => End::NotStarted(text(detail)?),
            _ => return Err(malformed("kind of reply")),
        };
        Ok(Self { end, stdout: get(from)?, stderr: get(from)? })
    }
}

fn put(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).ok().filter(|&length| length <= LARGEST_BLOCK);
    to.write_all(&length.ok_or_else(|| malformed("length"))?.to_be_bytes())?;
    to.write_all(bytes)
}

/// Writes a list: a block with the number of its words, then a block for each word.
fn put_list<'a>(to: &mut impl Write, words: impl Iterator<Item = &'a str> + Clone) -> io::Result<()> {
    put(to, &(words.clone().count() as u64).to_be_bytes())?;
    words.into_iter().try_for_each(|word| put(to, word.as_bytes()))
}

fn get(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length);
    if length > LARGEST_BLOCK {
        return Err(malformed("length"));
    }
    let mut bytes = Vec::new();
    from.take(length.into()).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == u64::from(length) { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

fn get_list(from: &mut impl Read) -> io::Result<Vec<String>> {
    let count = u64::from_be_bytes(fixed(&get(from)?)?);
    (0..count).map(|_| text(get(from)?)).collect()
}

fn fixed<const N: usize>(bytes: &[u8]) -> io::Result<[u8; N]> {
    bytes.try_into().map_err(|_| malformed("number"))
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|_| malformed("text"))
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("malformed {what} in a message of the guest agent"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Request {
        Request {
            argv: vec!["printf".into(), String::new(), "a b\n".into()],
            env: vec![("KEY".into(), "va=lue".into())],
            stdin: vec![0, 255, 10],
            limit: Duration::from_millis(1500),
        }
    }

    #[test]
    fn a_request_arrives_as_it_was_sent() {
        let mut wire = Vec::new();
        request().write(&mut wire).unwrap();
        assert_eq!(Request::read(&mut wire.as_slice()).unwrap(), request());
    }

    #[test]
    fn every_kind_of_reply_arrives_as_it_was_sent() {
        for end in [End::Exited(256), End::Exited(9), End::TimedOut, End::NotStarted("no such file".into())] {
            let reply = Reply { end, stdout: vec![0, 200], stderr: b"oops\n".to_vec() };
            let mut wire = Vec::new();
            reply.write(&mut wire).unwrap();
            assert_eq!(Reply::read(&mut wire.as_slice()).unwrap(), reply);
        }
    }

    #[test]
    fn a_message_cut_short_anywhere_is_an_error() {
        let mut wire = Vec::new();
        request().write(&mut wire).unwrap();
        for length in 0..wire.len() {
            assert!(Request::read(&mut &wire[..length]).is_err(), "cut after {length} bytes");
        }
    }

    #[test]
    fn an_absurd_length_is_refused_before_anything_is_read() {
        let error = Request::read(&mut [255_u8; 64].as_slice()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
