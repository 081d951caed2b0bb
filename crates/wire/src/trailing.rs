//! A field that was appended to a message after its first version, and that a sender of an earlier one does
//! not send.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The last field of a message. `None` where the message ends before it: its sender is of a version that does
/// not know it. What is there is written without a mark. Another one that comes later goes into it, at the
/// end of its value: side by side, bytes that are none of the first could pass for the second.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Trailing<T>(pub Option<T>);

impl<T> From<T> for Trailing<T> {
    fn from(value: T) -> Trailing<T> {
        Trailing(Some(value))
    }
}

impl<T: Serialize> Serialize for Trailing<T> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Some(value) => value.serialize(s),
            None => s.serialize_unit(),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Trailing<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Trailing<T>, D::Error> {
        // Nothing is behind it that could be read in its place.
        Ok(Trailing(T::deserialize(d).ok()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
    struct Old {
        a: u32,
    }

    #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
    struct New {
        a: u32,
        b: Trailing<Vec<u16>>,
    }

    #[test]
    fn versions_with_and_without_it_read_each_other() {
        let new = New { a: 7, b: vec![1, 300].into() };
        let bytes = postcard::to_stdvec(&new).unwrap();
        assert_eq!(postcard::from_bytes::<New>(&bytes).unwrap(), new);
        assert_eq!(postcard::take_from_bytes::<Old>(&bytes).unwrap().0, Old { a: 7 });
        let old = postcard::to_stdvec(&Old { a: 9 }).unwrap();
        assert_eq!(postcard::from_bytes::<New>(&old).unwrap(), New { a: 9, b: Trailing(None) });
        assert_eq!(postcard::to_stdvec(&New { a: 9, b: Trailing(None) }).unwrap(), old);
    }
}
