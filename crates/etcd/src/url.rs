//! `etcd://[USER@]HOST[:PORT][,HOST[:PORT]…][/PREFIX]`.

use std::fmt;
use std::str::FromStr;

/// etcd's port for clients.
const PORT: u16 = 2379;
const MEMBERS_MAX: usize = 32;
const SHAPE: &str = "expected etcd://HOST[:PORT][,HOST[:PORT]...][/PREFIX], for example etcd://10.0.0.1,10.0.0.2,10.0.0.3/nacre";

/// One member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// A name or an address, without brackets.
    pub host: String,
    pub port: u16,
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Where the password of a user comes from.
pub const PASSWORD_FROM: &str =
    "the password comes from the environment (NACRE_ETCD_PASSWORD) or from a file (NACRE_ETCD_PASSWORD_FILE)";

/// Where an etcd is, and below which prefix Nacre's keys are. [`fmt::Display`] shows no password.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Url {
    pub members: Vec<Member>,
    /// Who asks, and the password ([`Url::with_password`]): the command line, which everybody on the host can
    /// read, has none.
    pub user: Option<(String, String)>,
    /// Without slashes at its ends; `nacre` unless given.
    pub prefix: String,
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let members: Vec<String> = self.members.iter().map(ToString::to_string).collect();
        let user = self.user.iter().map(|(name, _)| format!("{name}@")).collect::<String>();
        write!(f, "etcd://{user}{}/{}", members.join(","), self.prefix)
    }
}

fn member(text: &str) -> Result<Member, String> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or_else(|| format!("'{text}' has no ']'"))?;
            (host, port.strip_prefix(':'))
        }
        None => text.split_once(':').map_or((text, None), |(h, p)| (h, Some(p))),
    };
    let port = match port {
        None => PORT,
        Some(p) => p.parse().ok().filter(|p| *p > 0).ok_or_else(|| format!("'{p}' is no port"))?,
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._:%".contains(c);
    if host.is_empty() || !host.chars().all(plain) {
        return Err(format!("'{text}' is no host"));
    }
    Ok(Member { host: host.to_string(), port })
}

impl Url {
    pub fn with_password(self, password: String) -> Url {
        Url { user: self.user.map(|(name, _)| (name, password)), ..self }
    }
}

impl FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Url, String> {
        // Without what is in front of '@': a password does not belong into a message.
        let shown = text.rsplit('@').next().unwrap_or_default();
        let bad = |why: String| format!("bad etcd address '{shown}': {why}; {SHAPE}");
        let rest =
            text.strip_prefix("etcd://").ok_or_else(|| bad("it does not begin with etcd://".into()))?;
        let (user, rest) = match rest.rsplit_once('@') {
            Some((who, rest)) => {
                if who.is_empty() || who.contains(':') {
                    let why = "a user stands there without the password, which everybody could read in the list of processes";
                    return Err(bad(format!("{why}: etcd://USER@...; {PASSWORD_FROM}")));
                }
                (Some((who.to_string(), String::new())), rest)
            }
            None => (None, rest),
        };
        let (hosts, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let members = hosts.split(',').map(member).collect::<Result<Vec<_>, _>>().map_err(bad)?;
        if members.len() > MEMBERS_MAX {
            return Err(bad(format!("more than {MEMBERS_MAX} members")));
        }
        let prefix = prefix.trim_matches('/');
        if !prefix.bytes().all(|c| c.is_ascii_graphic()) {
            return Err(bad("the prefix is not plain text".into()));
        }
        let prefix = if prefix.is_empty() { "nacre" } else { prefix };
        Ok(Url { members, user, prefix: prefix.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart_and_shown_without_the_password() {
        let u: Url = "etcd://root@10.0.0.1,etcd-2:2380,[fd00::3]/site/one/".parse().unwrap();
        let u = u.with_password("s3:cret".into());
        assert_eq!(u.user, Some(("root".into(), "s3:cret".into())));
        assert_eq!(u.to_string(), "etcd://root@10.0.0.1:2379,etcd-2:2380,[fd00::3]:2379/site/one");
        assert_eq!(u.to_string().parse::<Url>().unwrap().with_password("s3:cret".into()), u);
        assert_eq!("etcd://a".parse::<Url>().unwrap().prefix, "nacre");
        for bad in [
            "",
            "http://a",
            "etcd://",
            "etcd://a,,b",
            "etcd://a:x",
            "etcd://a:0",
            "etcd://[::1",
            "etcd://x y",
        ] {
            assert!(bad.parse::<Url>().is_err(), "{bad}");
        }
        for url in ["etcd://me:secret@a:x", "etcd://me:secret@a"] {
            let said = url.parse::<Url>().unwrap_err();
            assert!(!said.contains("secret") && said.contains("NACRE_ETCD_PASSWORD_FILE"), "{said}");
        }
    }
}
