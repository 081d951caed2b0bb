//! Messages out of dice: a deserializer that reads no bytes but makes values up, so that each message type,
//! with each field it has or will have, is made without a word about it here. Most values are such as make
//! sense, the others are the numbers at which arithmetic breaks.

use ::world::rng::Rng;
use model::Fid;
use serde::de::value::{Error, SeqDeserializer};
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, SeqAccess, VariantAccess, Visitor,
};

/// Where arithmetic breaks; one more and one less are tried, too.
const EDGES: [u64; 16] = [
    0,
    1,
    0x7f,
    0xff,
    0x7fff,
    0xffff,
    4096,
    0x1_0000,
    1 << 20,
    1 << 24,
    i32::MAX as u64,
    u32::MAX as u64,
    1 << 52,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];
/// Offsets and lengths that files here have.
const PLACES: [u64; 12] = [0, 1, 100, 4095, 4096, 4097, 8192, 65_535, 65_536, 65_537, 100_000, 1 << 20];
const NAMES: [&[u8]; 16] = [
    b"f0",
    b"f1",
    b"f2",
    b"d0",
    b"d1",
    b"new",
    b"",
    b".",
    b"..",
    b"a/b",
    b"nul\0",
    b"user.a",
    b"trusted.b",
    b"system.posix_acl_access",
    b"system.posix_acl_default",
    b"\xff\xfe",
];
const WORDS: [&str; 10] =
    ["", "a", "*", "**.?[", "a.*.b", "user.a", "10.0.0.1@tcp", "-1", "18446744073709551616", "ä\u{0}"];
/// Values in values, at most.
const DEPTH_MAX: usize = 8;

/// What is there to be meant.
#[derive(Default)]
pub struct Pool {
    pub fids: Vec<Fid>,
}

/// Makes values up.
pub struct Arbitrary<'a> {
    pub rng: &'a mut Rng,
    pub pool: &'a Pool,
    /// One number in so many is one at which arithmetic breaks.
    pub extreme_one_in: u64,
    field: &'static str,
    depth: usize,
    /// Of a string of bytes that is being made.
    bytes: Vec<u8>,
}

impl<'a> Arbitrary<'a> {
    pub fn new(rng: &'a mut Rng, pool: &'a Pool, extreme_one_in: u64) -> Arbitrary<'a> {
        Arbitrary { rng, pool, extreme_one_in, field: "", depth: 0, bytes: Vec::new() }
    }

    fn number(&mut self) -> u64 {
        if self.rng.below(self.extreme_one_in) == 0 {
            let edge = *self.rng.pick(&EDGES);
            return edge.wrapping_add(self.rng.below(3)).wrapping_sub(1);
        }
        match self.field {
            "offset" | "len" | "start" | "end" | "size" | "data" | "max_bytes" => *self.rng.pick(&PLACES),
            "mode" => *self.rng.pick(&[0, 0o644, 0o755, 0o7777, 1, 3]),
            "nsec" => self.rng.below(1_000_000_000),
            "stripe_size" => 65_536 * self.rng.below(4),
            _ => self.rng.below(5),
        }
    }

    fn string(&mut self) -> String {
        if self.rng.below(40) == 0 { "long".repeat(20_000) } else { (*self.rng.pick(&WORDS)).to_string() }
    }

    /// Elements of a list.
    fn count(&mut self) -> usize {
        match self.rng.below(40) {
            _ if self.depth > DEPTH_MAX => 0,
            0 => 300,
            1..8 => 0,
            _ => 1 + self.rng.index(3),
        }
    }

    fn fid(&mut self) -> Fid {
        match self.rng.below(16) {
            0 => Fid::NONE,
            1 => Fid::new(u64::MAX - self.rng.below(2), self.rng.u64() as u32, self.rng.below(2) as u32),
            _ if self.pool.fids.is_empty() => Fid::NONE,
            _ => *self.rng.pick(&self.pool.fids),
        }
    }
}

macro_rules! numbers {
    ($($de:ident $visit:ident $t:ty,)*) => { $(
        fn $de<V: Visitor<'de>>(self, v: V) -> Result<V::Value, Error> {
            v.$visit(self.number() as $t)
        }
    )* };
}

impl<'de> Deserializer<'de> for &mut Arbitrary<'_> {
    type Error = Error;

    numbers! {
        deserialize_i8 visit_i8 i8, deserialize_i16 visit_i16 i16, deserialize_i32 visit_i32 i32,
        deserialize_i64 visit_i64 i64, deserialize_u16 visit_u16 u16, deserialize_u32 visit_u32 u32,
        deserialize_u64 visit_u64 u64,
    }

    fn deserialize_u8<V: Visitor<'de>>(self, v: V) -> Result<V::Value, Error> {
        let next = self.bytes.pop();
        v.visit_u8(next.unwrap_or_else(|| self.number() as u8))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, v: V) -> Result<V::Value, Error> {
        v.visit_bool(self.rng.coin())
    }

    fn deserialize_string<V: Visitor<'de>>(self, v: V) -> Result<V::Value, Error> {
        let s = self.string();
        v.visit_string(s)
    }

    fn deserialize_str<V: Visitor<'de>>(self, v: V) -> Result<V::Value, Error> {
        self.deserialize_string(v)
    }

    fn deserialize_option<V: Visitor<'de>>(self, v: V) -> Result<V::Value, Error> {
        if self.rng.coin() { v.visit_some(self) } else { v.visit_none() }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, v: V) -> Result<V::Value, Error> {
        v.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, v: V) -> Result<V::Value, Error> {
        v.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, v: V) -> Result<V::Value, Error> {
        v.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, v: V) -> Result<V::Value, Error> {
        let left = match self.field {
            "name" | "new_name" | "target" => {
                self.bytes =
                    if self.rng.below(20) == 0 { vec![b'x'; 256] } else { self.rng.pick(&NAMES).to_vec() };
                self.bytes.reverse();
                self.bytes.len()
            }
            "value" => *self.rng.pick(&[0, 1, 28, 100, 5000, 65_536, 65_537]) as usize,
            _ => self.count(),
        };
        v.visit_seq(Elements { arbitrary: self, left, fields: &[] })
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, v: V) -> Result<V::Value, Error> {
        v.visit_seq(Elements { arbitrary: self, left: len, fields: &[] })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        len: usize,
        v: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_tuple(len, v)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        v: V,
    ) -> Result<V::Value, Error> {
        if name == "Fid" {
            let f = self.fid();
            let parts = [f.seq, u64::from(f.oid), u64::from(f.ver)];
            return v.visit_seq(SeqDeserializer::<_, Error>::new(parts.into_iter()));
        }
        self.depth += 1;
        let made = v.visit_seq(Elements { arbitrary: self, left: fields.len(), fields });
        self.depth -= 1;
        made
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        v: V,
    ) -> Result<V::Value, Error> {
        let which = self.rng.index(variants.len());
        v.visit_enum(Variant { arbitrary: self, which: which as u32 })
    }

    serde::forward_to_deserialize_any! { i128 u128 f32 f64 char bytes byte_buf map identifier ignored_any }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(serde::de::Error::custom("no message has a value of this kind"))
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

struct Elements<'b, 'a> {
    arbitrary: &'b mut Arbitrary<'a>,
    left: usize,
    /// Of a structure.
    fields: &'static [&'static str],
}

impl<'de> SeqAccess<'de> for Elements<'_, '_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        if let Some(field) = self.fields.len().checked_sub(self.left).and_then(|i| self.fields.get(i)) {
            self.arbitrary.field = field;
        }
        self.left -= 1;
        seed.deserialize(&mut *self.arbitrary).map(Some)
    }
}

struct Variant<'b, 'a> {
    arbitrary: &'b mut Arbitrary<'a>,
    which: u32,
}

impl<'de> EnumAccess<'de> for Variant<'_, '_> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self), Error> {
        let which = seed.deserialize(IntoDeserializer::<Error>::into_deserializer(self.which))?;
        Ok((which, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_, '_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(self.arbitrary)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, v: V) -> Result<V::Value, Error> {
        v.visit_seq(Elements { arbitrary: self.arbitrary, left: len, fields: &[] })
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        v: V,
    ) -> Result<V::Value, Error> {
        v.visit_seq(Elements { arbitrary: self.arbitrary, left: fields.len(), fields })
    }
}
