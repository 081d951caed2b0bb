//! Browsers that logged in. They are kept in memory: who restarts the console logs in again.

use crate::token::{Entry, Role, Sum, Tokens, sum};
use model::hex;
use model::mutex::Mutex;
use std::collections::BTreeMap;

/// Sessions at a time; one more ends the one that was begun first.
const SESSIONS_MAX: usize = 64;
/// How long one lasts, in seconds.
pub const LIFE_S: i64 = 12 * 3600;
pub const COOKIE: &str = "nacre_session";

struct Session {
    token: Sum,
    csrf: String,
    ends: i64,
}

/// Who asks for something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Who {
    pub name: String,
    pub role: Role,
    /// What a form must bring along. `None`: who sends the token itself with each request; no other page can
    /// have a browser do that.
    pub csrf: Option<String>,
}

impl Who {
    fn new(e: Entry, csrf: Option<String>) -> Who {
        Who { name: e.name, role: e.role, csrf }
    }

    /// Whether a form that brings this along is its own.
    pub fn sent(&self, csrf: Option<&str>) -> bool {
        match &self.csrf {
            None => true,
            // Of digests, so that time tells nothing of the bytes.
            Some(own) => csrf.is_some_and(|c| sum(c) == sum(own)),
        }
    }
}

/// Of one console.
pub struct Sessions {
    tokens: Tokens,
    /// By digests of their cookies.
    open: Mutex<BTreeMap<Sum, Session>>,
}

impl Sessions {
    pub const fn new(tokens: Tokens) -> Sessions {
        Sessions { tokens, open: Mutex::new(BTreeMap::new()) }
    }

    /// Lets in whoever has the token: its cookie. `None`: there is no such token.
    pub fn begin(
        &self,
        secret: &str,
        (key, csrf): (&[u8; 32], &[u8; 32]),
        now: i64,
    ) -> Result<Option<(String, Who)>, String> {
        let token = sum(secret.trim());
        let Some(entry) = self.tokens.find(&token)? else { return Ok(None) };
        let (cookie, csrf) = (hex(key), hex(csrf));
        let mut open = self.open.lock();
        open.retain(|_, s| s.ends > now);
        while open.len() >= SESSIONS_MAX {
            let first = open.iter().min_by_key(|(_, s)| s.ends).map(|(k, _)| *k).expect("there are some");
            open.remove(&first);
        }
        open.insert(sum(&cookie), Session { token, csrf: csrf.clone(), ends: now + LIFE_S });
        assert!(open.len() <= SESSIONS_MAX, "they are bounded");
        Ok(Some((cookie, Who::new(entry, Some(csrf)))))
    }

    /// Whose cookie it is. Its token is looked up again: one that was removed lets nobody in.
    pub fn of_cookie(&self, cookie: &str, now: i64) -> Result<Option<Who>, String> {
        let found = {
            let open = self.open.lock();
            open.get(&sum(cookie)).filter(|s| s.ends > now).map(|s| (s.token, s.csrf.clone()))
        };
        let Some((token, csrf)) = found else { return Ok(None) };
        Ok(self.tokens.find(&token)?.map(|e| Who::new(e, Some(csrf))))
    }

    /// Whose token it is, of a program that sends it each time.
    pub fn of_token(&self, secret: &str) -> Result<Option<Who>, String> {
        Ok(self.tokens.find(&sum(secret))?.map(|e| Who::new(e, None)))
    }

    pub fn end(&self, cookie: &str) {
        self.open.lock().remove(&sum(cookie));
    }

    /// Whether anybody can log in.
    pub fn has_tokens(&self) -> Result<bool, String> {
        self.tokens.all().map(|t| !t.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Scratch;

    #[test]
    fn a_session_ends_with_its_time_its_token_or_too_many_others() {
        let dir = Scratch::new("sessions");
        let tokens = Tokens::of(dir.path());
        let secret = tokens.add("ann", Role::Viewer, &[1; 32], 0).unwrap();
        let s = Sessions::new(tokens.clone());
        assert_eq!(s.begin("nacre_no", (&[0; 32], &[0; 32]), 0).unwrap(), None);
        let (cookie, who) = s.begin(&secret, (&[2; 32], &[3; 32]), 0).unwrap().unwrap();
        assert_eq!((who.name.as_str(), who.role), ("ann", Role::Viewer));
        assert_eq!(s.of_cookie(&cookie, LIFE_S - 1).unwrap(), Some(who.clone()));
        assert_eq!(s.of_cookie(&cookie, LIFE_S).unwrap(), None);
        assert_eq!(s.of_cookie("other", 0).unwrap(), None);
        assert!(who.sent(who.csrf.as_deref()) && !who.sent(None) && !who.sent(Some("x")));
        assert!(s.of_token(&secret).unwrap().unwrap().sent(None));
        for n in 0..SESSIONS_MAX {
            s.begin(&secret, (&[10 + n as u8; 32], &[3; 32]), 1).unwrap().unwrap();
        }
        assert_eq!(s.of_cookie(&cookie, 2).unwrap(), None, "the first one made room");
        let (cookie, _) = s.begin(&secret, (&[200; 32], &[3; 32]), 1).unwrap().unwrap();
        s.end(&cookie);
        assert_eq!(s.of_cookie(&cookie, 2).unwrap(), None);
        let (cookie, _) = s.begin(&secret, (&[201; 32], &[3; 32]), 1).unwrap().unwrap();
        tokens.remove("ann").unwrap();
        assert_eq!(s.of_cookie(&cookie, 2).unwrap(), None);
    }
}
