//! Bulk: the raw bytes behind a message, in one piece or in several that are never put together.

use bytes::{Bytes, BytesMut};

/// Raw bytes on their way out. What came in is one piece.
#[derive(Clone, Debug, Default)]
pub struct Bulk {
    first: Bytes,
    more: Vec<Bytes>,
    len: usize,
    summed: bool,
}

impl Bulk {
    /// The pieces one after the other; none may be empty.
    pub fn of_parts(parts: impl IntoIterator<Item = Bytes>) -> Bulk {
        let mut parts = parts.into_iter();
        let first = parts.next().unwrap_or_default();
        let more: Vec<Bytes> = parts.collect();
        assert!(!first.is_empty() || more.is_empty(), "pieces have bytes");
        assert!(more.iter().all(|p| !p.is_empty()), "pieces have bytes");
        let len = first.len() + more.iter().map(Bytes::len).sum::<usize>();
        Bulk { first, more, len, summed: false }
    }

    /// The message has checksums of all these bytes, and its receiver compares them: the frame needs none
    /// besides. Two more looks at each byte would find nothing that those do not, and could not say which
    /// object it is.
    #[must_use]
    pub fn summed(self, by_message: bool) -> Bulk {
        Bulk { summed: by_message, ..self }
    }

    /// See [`Bulk::summed`].
    pub fn is_summed(&self) -> bool {
        self.summed
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The pieces, in order; none is empty.
    pub fn parts(&self) -> impl Iterator<Item = &Bytes> {
        std::iter::once(&self.first).filter(|p| !p.is_empty()).chain(&self.more)
    }

    /// All of it as one piece: a copy only if it is not.
    pub fn into_bytes(self) -> Bytes {
        if self.more.is_empty() {
            assert_eq!(self.first.len(), self.len, "one piece is all of it");
            return self.first;
        }
        let mut all = BytesMut::with_capacity(self.len);
        self.parts().for_each(|p| all.extend_from_slice(p));
        assert_eq!(all.len(), self.len, "the pieces are as long as was counted");
        all.freeze()
    }
}

impl From<Bytes> for Bulk {
    fn from(b: Bytes) -> Bulk {
        Bulk { len: b.len(), first: b, ..Bulk::default() }
    }
}

impl From<Vec<u8>> for Bulk {
    fn from(v: Vec<u8>) -> Bulk {
        Bytes::from(v).into()
    }
}

/// The same bytes, however they are cut.
impl PartialEq for Bulk {
    fn eq(&self, other: &Bulk) -> bool {
        self.len == other.len && self.parts().flatten().eq(other.parts().flatten())
    }
}

impl Eq for Bulk {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_one_after_the_other() {
        let parts = [&b"one"[..], b"and", b"another"].map(Bytes::from_static);
        let b = Bulk::of_parts(parts);
        assert_eq!((b.len(), b.parts().count()), (13, 3));
        assert_eq!(b, Bulk::from(Bytes::from_static(b"oneandanother")));
        assert_eq!(b.into_bytes(), &b"oneandanother"[..]);
        assert!(Bulk::of_parts([]).is_empty() && Bulk::default().parts().next().is_none());
    }
}
