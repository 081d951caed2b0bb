//! One request over one connection: HTTP/1.1, answers whole or piece by piece.

use bytes::{Bytes, BytesMut};
use std::io;
use std::sync::Arc;
use world::Stream;

/// Head of an answer, or one line of chunk length.
const HEAD_MAX_BYTES: usize = 64 << 10;
/// A whole answer.
const BODY_MAX_BYTES: usize = 32 << 20;
const READ_BYTES: usize = 16 << 10;
const HEADERS_MAX: usize = 64;

fn bad(why: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_string())
}

/// What is left of the body.
enum Left {
    Bytes(usize),
    /// Of this chunk; `None`: a length comes next.
    Chunk(Option<usize>),
    /// Until the connection ends.
    All,
    Nothing,
}

/// An answer that is being received.
pub struct Answer {
    stream: Arc<dyn Stream>,
    pub status: u16,
    raw: BytesMut,
    left: Left,
    /// Pieces that wait for the end of their line.
    line: BytesMut,
}

/// Sends a POST and reads the head of the answer.
pub async fn post(
    stream: Arc<dyn Stream>,
    host: &str,
    path: &str,
    token: Option<&str>,
    body: &[u8],
) -> io::Result<Answer> {
    let mut head = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n",
        body.len()
    );
    if let Some(t) = token {
        head.push_str(&format!("Authorization: {t}\r\n"));
    }
    head.push_str("\r\n");
    let mut request = head.into_bytes();
    request.extend_from_slice(body);
    stream.send(request.into()).await?;
    let mut raw = BytesMut::new();
    loop {
        if let Some((status, left, used)) = head_of(&raw)? {
            let _ = raw.split_to(used);
            return Ok(Answer { stream, status, raw, left, line: BytesMut::new() });
        }
        if raw.len() > HEAD_MAX_BYTES {
            return Err(bad("the head of the answer has no end"));
        }
        more(&stream, &mut raw).await?;
    }
}

/// Status, what follows, and the length of the head, if all of it is there.
fn head_of(raw: &[u8]) -> io::Result<Option<(u16, Left, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut r = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(used) = r.parse(raw).map_err(|e| bad(format!("no HTTP answer: {e}")))?
    else {
        return Ok(None);
    };
    let header = |name: &str| {
        let h = r.headers.iter().find(|h| h.name.eq_ignore_ascii_case(name));
        h.and_then(|h| std::str::from_utf8(h.value).ok()).map(str::trim)
    };
    let left = match (header("transfer-encoding"), header("content-length")) {
        (Some(t), _) if t.eq_ignore_ascii_case("chunked") => Left::Chunk(None),
        (Some(t), _) => return Err(bad(format!("transfer encoding '{t}' is not known here"))),
        (None, Some(n)) => {
            Left::Bytes(n.parse().map_err(|_| bad(format!("Content-Length '{n}' is no number")))?)
        }
        (None, None) => Left::All,
    };
    Ok(Some((r.code.unwrap_or(0), left, used)))
}

async fn more(stream: &Arc<dyn Stream>, raw: &mut BytesMut) -> io::Result<()> {
    let got = stream.recv(READ_BYTES).await?;
    if got.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    raw.extend_from_slice(&got);
    Ok(())
}

impl Answer {
    /// Some bytes of the body; none: that was all.
    async fn piece(&mut self) -> io::Result<Bytes> {
        loop {
            let want = match self.left {
                Left::Nothing | Left::Bytes(0) => return Ok(Bytes::new()),
                Left::Bytes(n) | Left::Chunk(Some(n)) => n,
                Left::All => usize::MAX,
                Left::Chunk(None) => {
                    self.chunk_length().await?;
                    continue;
                }
            };
            if self.raw.is_empty() {
                match more(&self.stream, &mut self.raw).await {
                    Err(e) if matches!(self.left, Left::All) && e.kind() == io::ErrorKind::UnexpectedEof => {
                        self.left = Left::Nothing;
                        continue;
                    }
                    r => r?,
                }
            }
            let got = self.raw.split_to(want.min(self.raw.len())).freeze();
            self.left = match self.left {
                Left::Bytes(n) => Left::Bytes(n - got.len()),
                Left::Chunk(Some(n)) if n > got.len() => Left::Chunk(Some(n - got.len())),
                Left::Chunk(_) => {
                    self.line_end().await?;
                    Left::Chunk(None)
                }
                _ => Left::All,
            };
            return Ok(got);
        }
    }

    async fn chunk_length(&mut self) -> io::Result<()> {
        loop {
            let parsed =
                httparse::parse_chunk_size(&self.raw).map_err(|_| bad("no chunk where one should be"))?;
            if let httparse::Status::Complete((used, n)) = parsed {
                let n = usize::try_from(n).map_err(|_| bad("a chunk without bounds"))?;
                let _ = self.raw.split_to(used);
                // What may follow the last one are headers; nothing of them is wanted.
                self.left = if n == 0 { Left::Nothing } else { Left::Chunk(Some(n)) };
                return Ok(());
            }
            if self.raw.len() > HEAD_MAX_BYTES {
                return Err(bad("a chunk's length has no end"));
            }
            more(&self.stream, &mut self.raw).await?;
        }
    }

    /// The line's end behind a chunk.
    async fn line_end(&mut self) -> io::Result<()> {
        while self.raw.len() < 2 {
            more(&self.stream, &mut self.raw).await?;
        }
        if &self.raw.split_to(2)[..] != b"\r\n" {
            return Err(bad("a chunk is longer than it says"));
        }
        Ok(())
    }

    /// The whole body.
    pub async fn body(mut self) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        loop {
            let p = self.piece().await?;
            if p.is_empty() {
                return Ok(out);
            }
            if out.len() + p.len() > BODY_MAX_BYTES {
                return Err(bad("the answer is too long"));
            }
            out.extend_from_slice(&p);
        }
    }

    /// The next line of a body that is a stream of messages; `None` at its end.
    pub async fn line(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(n) = self.line.iter().position(|b| *b == b'\n') {
                return Ok(Some(self.line.split_to(n + 1).to_vec()));
            }
            let p = self.piece().await?;
            if p.is_empty() {
                let rest = self.line.split().to_vec();
                return Ok((!rest.is_empty()).then_some(rest));
            }
            if self.line.len() + p.len() > BODY_MAX_BYTES {
                return Err(bad("a message is too long"));
            }
            self.line.extend_from_slice(&p);
        }
    }
}
