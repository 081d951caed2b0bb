//! A span that is over, as a line of the debug log: the form in which processes give it to who makes traces.

/// Whose work it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// An operation of a program on a mount.
    Client,
    /// A request, from when it is to be sent until its answer is here.
    Rpc,
    /// What a server does about a request.
    Server,
    /// A call to a disk, with the time it waited for a thread.
    Disk,
}

impl Kind {
    const ALL: [(Kind, &'static str); 4] =
        [(Kind::Client, "client"), (Kind::Rpc, "rpc"), (Kind::Server, "server"), (Kind::Disk, "disk")];

    pub fn name(self) -> &'static str {
        Kind::ALL.iter().find(|(k, _)| *k == self).expect("all are listed").1
    }
}

/// One that is over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finished {
    pub trace: u64,
    pub span: u64,
    /// 0: it is the first of its trace.
    pub parent: u64,
    pub kind: Kind,
    pub name: String,
    /// Nanoseconds since 1970, by its host's clock.
    pub begun: u128,
    pub end: u128,
    /// `ok`, or the words of an errno.
    pub status: String,
}

/// Bytes that are kept of a name.
const NAME_MAX_BYTES: usize = 300;
/// Between status and name, which has spaces of its own.
const BEHIND_STATUS: &str = ": ";

impl Finished {
    /// One line, for [`Finished::parse`].
    pub fn text(&self) -> String {
        let Finished { trace, span, parent, kind, name, begun, end, status } = self;
        let mut cut = name.len().min(NAME_MAX_BYTES);
        while !name.is_char_boundary(cut) {
            cut -= 1;
        }
        let (name, kind) = (&name[..cut], kind.name());
        format!("{trace:016x} {span:016x} {parent:016x} {kind} {begun} {end} {status}{BEHIND_STATUS}{name}")
    }

    /// `None`: it is none, or one of a later version.
    pub fn parse(text: &str) -> Option<Finished> {
        let (head, name) = text.split_once(BEHIND_STATUS)?;
        let mut words = head.splitn(7, ' ');
        let mut hex = || u64::from_str_radix(words.next()?, 16).ok();
        let (trace, span, parent) = (hex()?, hex()?, hex()?);
        let word = words.next()?;
        let kind = Kind::ALL.iter().find(|(_, n)| *n == word)?.0;
        let mut number = || words.next()?.parse().ok();
        let (begun, end): (u128, u128) = (number()?, number()?);
        let status = words.next()?.to_string();
        let is_one = trace != 0 && span != 0 && begun <= end;
        is_one.then(|| Finished { trace, span, parent, kind, name: name.to_string(), begun, end, status })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let f = Finished {
            trace: 7,
            span: u64::MAX,
            parent: 7,
            kind: Kind::Server,
            name: "t-OST0000: Read x5 of a: b".into(),
            begun: 1_790_000_000_000_000_001,
            end: 1_790_000_000_000_000_002,
            status: "No space left on device".into(),
        };
        assert_eq!(Finished::parse(&f.text()).as_ref(), Some(&f));
        let long = Finished { name: "ä".repeat(400), ..f.clone() };
        assert_eq!(Finished::parse(&long.text()).unwrap().name, "ä".repeat(150));
        let wrong = f.text().replace("server", "soothsayer");
        for text in ["", "7 7", &wrong, &Finished { span: 0, ..f.clone() }.text(), &f.text()[..60]] {
            assert_eq!(Finished::parse(text), None, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,200}") {
            let _ = Finished::parse(&text);
        }
    }
}
