//! SPDY/3.1 as Kubernetes' clients speak it: frames of streams that the client opens, without flow control
//! (`moby/spdystream` has none either).

use bytes::{Buf as _, Bytes, BytesMut};
use flate2::{Decompress, FlushDecompress, Status};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// What headers are compressed against (SPDY/3, 2.6.10.1).
const DICTIONARY: &[u8] = include_bytes!("dictionary.bin");
/// The head of a zlib stream with that dictionary: method, flags, the dictionary's checksum.
const ZLIB_HEAD: [u8; 6] = [0x78, 0x20, 0xe3, 0xc6, 0xa7, 0xc2];
/// An empty table of headers, as a stored block, and an empty block: Go's reader gives out what came before one, and takes a
/// stream that ends without one for broken.
const NO_HEADERS: [u8; 14] = [0, 4, 0, 0xfb, 0xff, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
/// Bytes of the longest control frame, and of the headers in one.
const MAX_CONTROL: usize = 64 << 10;
/// Bytes of the longest data frame.
const MAX_DATA: usize = 1 << 20;
/// Bytes that are read at once.
const READ_AT_ONCE: usize = 32 << 10;
const FIN: u8 = 1;

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GO_AWAY: u16 = 7;

/// What a client sent.
#[derive(Debug, PartialEq)]
pub(crate) enum Frame {
    /// It opened a stream, and has nothing to send on it where `fin` is set. Names of headers are in lower case.
    Open { stream: u32, headers: Vec<(String, String)>, fin: bool },
    /// It sent bytes, the last ones where `fin` is set.
    Data { stream: u32, bytes: Bytes, fin: bool },
    /// It gave a stream up.
    Reset { stream: u32 },
    /// It wants the number back.
    Ping(u32),
    /// The end.
    Close,
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("malformed SPDY frame: {what}"))
}

/// Frames from a client.
pub(crate) struct Reader<R> {
    from: R,
    bytes: BytesMut,
    inflate: Decompress,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    pub(crate) fn new(from: R) -> Self {
        Self { from, bytes: BytesMut::new(), inflate: Decompress::new(true) }
    }

    /// The next frame that matters; `Close` at the end of the connection.
    pub(crate) async fn next(&mut self) -> io::Result<Frame> {
        loop {
            if let Some(frame) = self.parse()? {
                return Ok(frame);
            }
            self.bytes.reserve(READ_AT_ONCE);
            if self.from.read_buf(&mut self.bytes).await? == 0 {
                return Ok(Frame::Close);
            }
        }
    }

    fn parse(&mut self) -> io::Result<Option<Frame>> {
        while self.bytes.len() >= 8 {
            let word =
                |at: usize| self.bytes[at..at + 4].iter().fold(0u32, |sum, byte| sum << 8 | u32::from(*byte));
            let (first, second) = (word(0), word(4));
            let (is_control, fin) = (first >> 31 == 1, (second >> 24) as u8 & FIN != 0);
            let length = (second & 0xff_ffff) as usize;
            if length > if is_control { MAX_CONTROL } else { MAX_DATA } {
                return Err(malformed("it is too long"));
            }
            if self.bytes.len() < 8 + length {
                return Ok(None);
            }
            self.bytes.advance(8);
            let payload = self.bytes.split_to(length).freeze();
            if !is_control {
                return Ok(Some(Frame::Data { stream: first, bytes: payload, fin }));
            }
            if let Some(frame) = self.control((first & 0xffff) as u16, payload, fin)? {
                return Ok(Some(frame));
            }
        }
        Ok(None)
    }

    fn control(&mut self, kind: u16, mut payload: Bytes, fin: bool) -> io::Result<Option<Frame>> {
        let mut number = || payload.try_get_u32().map_err(|_| malformed("it is too short"));
        Ok(match kind {
            SYN_STREAM => {
                let stream = number()? & 0x7fff_ffff;
                number()?;
                payload.try_get_u16().map_err(|_| malformed("it is too short"))?;
                Some(Frame::Open { stream, headers: self.headers(&payload)?, fin })
            }
            RST_STREAM => Some(Frame::Reset { stream: number()? & 0x7fff_ffff }),
            PING => Some(Frame::Ping(number()?)),
            GO_AWAY => Some(Frame::Close),
            // Settings, window updates and later headers change nothing here.
            _ => None,
        })
    }

    fn headers(&mut self, compressed: &[u8]) -> io::Result<Vec<(String, String)>> {
        let mut text = Vec::with_capacity(MAX_CONTROL);
        let mut rest = compressed;
        while !rest.is_empty() {
            let before = self.inflate.total_in();
            let result = self.inflate.decompress_vec(rest, &mut text, FlushDecompress::Sync);
            let taken = usize::try_from(self.inflate.total_in() - before).unwrap_or(rest.len());
            rest = &rest[taken.min(rest.len())..];
            match result {
                Ok(Status::Ok) if taken > 0 && text.len() < MAX_CONTROL => {}
                Ok(_) if rest.is_empty() => {}
                Ok(_) => return Err(malformed("its headers do not fit")),
                Err(error) if error.needs_dictionary().is_some() => {
                    self.inflate.set_dictionary(DICTIONARY).map_err(io::Error::other)?;
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        table(&text).ok_or_else(|| malformed("its headers are no table"))
    }
}

/// A table of headers: how many, then names and values with their lengths. Values of one name have a zero between them.
fn table(mut text: &[u8]) -> Option<Vec<(String, String)>> {
    let string = |text: &mut &[u8]| {
        let length = usize::try_from(text.try_get_u32().ok()?).ok()?;
        let (value, rest) = text.split_at_checked(length)?;
        *text = rest;
        Some(String::from_utf8_lossy(value).into_owned())
    };
    let count = text.try_get_u32().ok()?;
    let mut headers = Vec::new();
    for _ in 0..count {
        let name = string(&mut text)?.to_ascii_lowercase();
        headers.push((name, string(&mut text)?));
    }
    Some(headers)
}

/// Frames to a client.
pub(crate) struct Writer<W> {
    to: W,
    /// Whether the zlib stream of headers has begun.
    has_begun: bool,
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    pub(crate) fn new(to: W) -> Self {
        Self { to, has_begun: false }
    }

    /// Accepts a stream.
    pub(crate) async fn accept(&mut self, stream: u32) -> io::Result<()> {
        let mut payload = stream.to_be_bytes().to_vec();
        if !self.has_begun {
            payload.extend_from_slice(&ZLIB_HEAD);
            self.has_begun = true;
        }
        payload.extend_from_slice(&NO_HEADERS);
        self.control(SYN_REPLY, &payload).await
    }

    pub(crate) async fn ping(&mut self, number: u32) -> io::Result<()> {
        self.control(PING, &number.to_be_bytes()).await
    }

    /// Sends bytes, the last ones of a stream where `fin` is set.
    pub(crate) async fn data(&mut self, stream: u32, bytes: &[u8], fin: bool) -> io::Result<()> {
        let flags = if fin { FIN } else { 0 };
        self.frame((stream & 0x7fff_ffff).to_be_bytes(), flags, bytes).await
    }

    /// Ends the connection.
    pub(crate) async fn close(&mut self) -> io::Result<()> {
        self.to.shutdown().await
    }

    async fn control(&mut self, kind: u16, payload: &[u8]) -> io::Result<()> {
        let [high, low] = kind.to_be_bytes();
        self.frame([0x80, 3, high, low], 0, payload).await
    }

    async fn frame(&mut self, head: [u8; 4], flags: u8, payload: &[u8]) -> io::Result<()> {
        let [_, a, b, c] = u32::try_from(payload.len()).map_err(io::Error::other)?.to_be_bytes();
        let mut frame = Vec::with_capacity(8 + payload.len());
        frame.extend_from_slice(&head);
        frame.extend_from_slice(&[flags, a, b, c]);
        frame.extend_from_slice(payload);
        self.to.write_all(&frame).await?;
        self.to.flush().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compress, Compression, FlushCompress};

    /// Frames as `moby/spdystream` makes them: one zlib stream for the headers of a connection.
    struct Client(Compress);

    impl Client {
        fn new() -> Self {
            let mut compress = Compress::new(Compression::best(), true);
            compress.set_dictionary(DICTIONARY).unwrap();
            Self(compress)
        }

        fn open(&mut self, stream: u32, headers: &[(&str, &str)]) -> Vec<u8> {
            let mut table = u32::try_from(headers.len()).unwrap().to_be_bytes().to_vec();
            for text in headers.iter().flat_map(|(name, value)| [name, value]) {
                table.extend(u32::try_from(text.len()).unwrap().to_be_bytes());
                table.extend(text.as_bytes());
            }
            let mut compressed = Vec::with_capacity(1024);
            self.0.compress_vec(&table, &mut compressed, FlushCompress::Sync).unwrap();
            let length = u32::try_from(10 + compressed.len()).unwrap().to_be_bytes();
            let head = [0x80, 3, 0, 1, 0, length[1], length[2], length[3]];
            [&head[..], &stream.to_be_bytes(), &[0; 6], &compressed].concat()
        }
    }

    #[tokio::test]
    async fn streams_are_opened_with_headers_that_share_their_compression() {
        let mut client = Client::new();
        let bytes = [
            client.open(1, &[("Streamtype", "error"), ("Port", "80")]),
            client.open(3, &[("streamtype", "data")]),
            vec![0, 0, 0, 3, 1, 0, 0, 2, b'h', b'i'],
            vec![0x80, 3, 0, 9, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 1],
            vec![0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 7],
        ]
        .concat();
        let mut reader = Reader::new(&bytes[..]);
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let expected = [
            Frame::Open {
                stream: 1,
                headers: vec![header("streamtype", "error"), header("port", "80")],
                fin: false,
            },
            Frame::Open { stream: 3, headers: vec![header("streamtype", "data")], fin: false },
            Frame::Data { stream: 3, bytes: Bytes::from_static(b"hi"), fin: true },
            Frame::Ping(7),
            Frame::Close,
        ];
        for frame in expected {
            assert_eq!(reader.next().await.unwrap(), frame);
        }
    }

    #[tokio::test]
    async fn what_is_too_long_or_no_table_is_refused() {
        let mut client = Client::new();
        let huge = client.open(1, &[("a", &"x".repeat(MAX_CONTROL))]);
        for bytes in [
            &huge[..],
            &[0x80, 3, 0, 1, 0, 0xff, 0xff, 0xff],
            &[0x80, 3, 0, 1, 0, 0, 0, 2, 0, 0],
            &[0, 0, 0, 1, 0, 0xff, 0, 0],
        ] {
            assert!(Reader::new(bytes).next().await.is_err());
        }
        assert_eq!(table(&[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff]), None);
        assert_eq!(table(&[0xff, 0xff, 0xff, 0xff]), None);
    }

    #[tokio::test]
    async fn replies_are_one_zlib_stream_with_the_dictionary() {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out);
        writer.accept(1).await.unwrap();
        writer.accept(3).await.unwrap();
        let mut reader = Reader::new(&[][..]);
        let first = &out[12..32];
        assert_eq!(reader.headers(first).unwrap(), []);
        assert_eq!(reader.headers(&out[32 + 12..]).unwrap(), []);
    }
}
