//! What an administrator says of the order of requests: `nrs_policies` and `nrs_tbf_rule`, in Lustre's words.

use super::bucket::{Alike, BucketKey, Rate};
use super::engine::Party;
use crate::client_id::ClientId;
use model::squash::NidRanges;
use model::{Cred, Errno};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use wire::verb::Named;
use wire::{Op, RequestContext};

/// Rules of one kind of target.
pub const RULES_MAX: usize = 64;
/// Longest name of a rule. Lustre's `MAX_TBF_NAME`.
const NAME_MAX: usize = 15;
/// The rule for whoever no other one is for.
pub const DEFAULT_RULE: &str = "default";
/// Its number, and its rate unless set otherwise.
pub const DEFAULT_NUMBER: u64 = 0;
pub const DEFAULT_RATE: u64 = 10_000;

/// Who asks for something, as far as the order of requests goes by it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Account {
    pub uid: u32,
    pub gid: u32,
    pub job: Arc<str>,
}

impl Account {
    pub fn new(uid: u32, gid: u32, job: &str) -> Account {
        Account { uid, gid, job: job[..job.floor_char_boundary(model::limits::JOBID_MAX_BYTES)].into() }
    }

    /// The same job of another user.
    pub fn as_user(self, who: &Cred) -> Account {
        Account { uid: who.uid, gid: who.gid, ..self }
    }

    /// As the request says. What a mount writes back or fetches is of whose file it is, if it says so.
    pub fn of(ctx: &RequestContext) -> Account {
        let (uid, gid) = match ctx.cred.is_root().then(|| ctx.file_owner()).flatten() {
            Some(of) => (of.owner.uid, of.owner.gid),
            None => (ctx.cred.uid, ctx.cred.gid),
        };
        Account::new(uid, gid, &ctx.jobid)
    }
}

/// One request as rules see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Subject {
    pub account: Account,
    pub client: ClientId,
    pub from: IpAddr,
    pub op: Op,
}

/// By what the default rule of `tbf` tells requests apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TbfType {
    All,
    Nid,
    Jobid,
    Opcode,
    Uid,
    Gid,
}

/// `nrs_policies`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Policy {
    /// In the order in which they come.
    Fifo,
    /// Users share equally, and jobs within each.
    #[default]
    Fair,
    /// Addresses share equally, and jobs within each.
    Crrn,
    /// As `fair`, and everybody has a rate, by rules or by default.
    Tbf(TbfType),
}

impl Policy {
    /// As it is written; Lustre has `reg` behind it, for requests that are no high-priority ones: there are
    /// no others to order.
    pub fn parse(text: &str) -> Result<Policy, Errno> {
        let mut words: Vec<&str> = text.split_whitespace().collect();
        if words.last() == Some(&"reg") {
            words.pop();
        }
        Ok(match words[..] {
            ["fifo"] => Policy::Fifo,
            ["fair"] => Policy::Fair,
            ["crrn"] => Policy::Crrn,
            ["tbf"] => Policy::Tbf(TbfType::All),
            ["tbf", "nid"] => Policy::Tbf(TbfType::Nid),
            ["tbf", "jobid"] => Policy::Tbf(TbfType::Jobid),
            ["tbf", "opcode"] => Policy::Tbf(TbfType::Opcode),
            ["tbf", "uid"] => Policy::Tbf(TbfType::Uid),
            ["tbf", "gid"] => Policy::Tbf(TbfType::Gid),
            _ => return Err(Errno::EINVAL),
        })
    }

    pub fn name(self) -> &'static str {
        match self {
            Policy::Fifo => "fifo",
            Policy::Fair => "fair",
            Policy::Crrn => "crrn",
            Policy::Tbf(_) => "tbf",
        }
    }

    /// Who shares with others.
    pub fn party(self, s: &Subject) -> Party {
        match (self, s.account.uid) {
            (Policy::Crrn, _) => Party::Address(s.from),
            (_, 0) => Party::Mount(s.client),
            (_, uid) => Party::User(uid),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Term {
    /// Ranges of numbers.
    Uid(Vec<(u32, u32)>),
    Gid(Vec<(u32, u32)>),
    /// With `*` and `?`.
    Job(Vec<String>),
    Nid(NidRanges),
    Op(BTreeSet<Op>),
}

/// What a rule is about: one of these, of which all hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Condition {
    text: String,
    any: Vec<Vec<Term>>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    pub number: u64,
    pub name: String,
    condition: Condition,
    pub rate: Rate,
}

impl Rule {
    /// What it is about, as it was written.
    pub fn about(&self) -> &str {
        &self.condition.text
    }
}

/// What is written to `nrs_tbf_rule`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Order {
    Start { name: String, condition: Condition, rate: Rate, before: Option<String> },
    Change { name: String, rate: Option<Rate>, before: Option<String> },
    Stop { name: String },
}

/// Several orders, apart by `;` or lines.
pub fn parse_orders(text: &str) -> Result<Vec<Order>, Errno> {
    let all = text.split([';', '\n']).map(str::trim).filter(|t| !t.is_empty());
    let all = all.map(parse_order).collect::<Result<Vec<_>, _>>()?;
    if all.is_empty() { Err(Errno::EINVAL) } else { Ok(all) }
}

fn parse_order(text: &str) -> Result<Order, Errno> {
    let (verb, rest) = text.split_once(char::is_whitespace).ok_or(Errno::EINVAL)?;
    let rest = rest.trim();
    let (name, rest) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(plain) {
        return Err(Errno::EINVAL);
    }
    let name = name.to_string();
    // What is behind the condition, which ends with its last brace.
    let (condition, terms) = match rest.rfind('}') {
        Some(at) => (Some(rest[..=at].trim()), &rest[at + 1..]),
        None => (None, rest),
    };
    let (mut rate, mut before) = (None, None);
    for term in terms.split_whitespace() {
        match term.split_once('=').ok_or(Errno::EINVAL)? {
            ("rate", n) if rate.is_none() => rate = Some(Rate::new(n.parse().map_err(|_| Errno::EINVAL)?)?),
            ("rank", other) if before.is_none() => before = Some(other.to_string()),
            // What Lustre makes up for later: here what was not used is lost, but for a few requests.
            ("realtime", "0" | "1") => {}
            _ => return Err(Errno::EINVAL),
        }
    }
    match (verb, condition) {
        ("start", Some(c)) if name != DEFAULT_RULE => {
            let condition = Condition::parse(c)?;
            Ok(Order::Start { name, condition, rate: rate.ok_or(Errno::EINVAL)?, before })
        }
        ("change", None) if rate.is_some() || before.is_some() => Ok(Order::Change { name, rate, before }),
        ("stop", None) if terms.trim().is_empty() && name != DEFAULT_RULE => Ok(Order::Stop { name }),
        _ => Err(Errno::EINVAL),
    }
}

impl Condition {
    /// `jobid={dd.* cp.1}&uid={500},nid={10.0.0.*@tcp}`: `&` binds, `,` is or.
    fn parse(text: &str) -> Result<Condition, Errno> {
        let (mut any, mut all, mut rest) = (Vec::new(), Vec::new(), text.trim());
        loop {
            let (field, behind) = rest.split_once('=').ok_or(Errno::EINVAL)?;
            let (values, behind) =
                behind.trim_start().strip_prefix('{').and_then(|b| b.split_once('}')).ok_or(Errno::EINVAL)?;
            all.push(Term::parse(field.trim(), values)?);
            let behind = behind.trim_start();
            match behind.chars().next() {
                None => break,
                Some('&') => {}
                Some(',') => any.push(std::mem::take(&mut all)),
                Some(_) => return Err(Errno::EINVAL),
            }
            rest = &behind[1..];
        }
        any.push(all);
        Ok(Condition { text: text.to_string(), any })
    }

    fn holds(&self, s: &Subject) -> bool {
        self.any.iter().any(|all| all.iter().all(|t| t.holds(s)))
    }

    fn asks(&self, f: impl Fn(&Term) -> bool) -> bool {
        self.any.iter().flatten().any(f)
    }

    /// Who shares a bucket with a request for which it holds.
    fn alike(&self, s: &Subject) -> Alike {
        Alike::In {
            uid: self.asks(|t| matches!(t, Term::Uid(_))).then_some(s.account.uid),
            gid: self.asks(|t| matches!(t, Term::Gid(_))).then_some(s.account.gid),
            job: self.asks(|t| matches!(t, Term::Job(_))).then(|| s.account.job.clone()),
            from: self.asks(|t| matches!(t, Term::Nid(_))).then_some(s.from),
            op: self.asks(|t| matches!(t, Term::Op(_))).then_some(s.op),
        }
    }
}

impl Term {
    fn parse(field: &str, values: &str) -> Result<Term, Errno> {
        let words: Vec<&str> = values.split_whitespace().collect();
        if words.is_empty() {
            return Err(Errno::EINVAL);
        }
        let numbers = || words.iter().map(|w| range(w)).collect::<Option<Vec<_>>>().ok_or(Errno::EINVAL);
        Ok(match field {
            "uid" => Term::Uid(numbers()?),
            "gid" => Term::Gid(numbers()?),
            "jobid" => Term::Job(words.iter().map(ToString::to_string).collect()),
            "nid" => Term::Nid(NidRanges::parse(values)?),
            "opcode" => Term::Op(
                words.iter().map(|w| ops(w)).collect::<Result<Vec<_>, _>>()?.concat().into_iter().collect(),
            ),
            _ => return Err(Errno::EINVAL),
        })
    }

    fn holds(&self, s: &Subject) -> bool {
        let within = |r: &[(u32, u32)], id: u32| r.iter().any(|(from, to)| (*from..=*to).contains(&id));
        match self {
            Term::Uid(r) => within(r, s.account.uid),
            Term::Gid(r) => within(r, s.account.gid),
            Term::Job(all) => all.iter().any(|p| is_like(p.as_bytes(), s.account.job.as_bytes())),
            Term::Nid(n) => n.contains(s.from),
            Term::Op(ops) => ops.contains(&s.op),
        }
    }
}

/// `500`, `500-510` or `[500-510]`.
fn range(word: &str) -> Option<(u32, u32)> {
    let inner = word.strip_prefix('[').and_then(|w| w.strip_suffix(']')).unwrap_or(word);
    let (from, to) = inner.split_once('-').unwrap_or((inner, inner));
    let (from, to) = (from.parse().ok()?, to.parse().ok()?);
    (from <= to).then_some((from, to))
}

/// Messages of this name, which may have `*` and `?`: `ost_read`, `mds_getattr`, `ldlm_*`. `EINVAL` if there
/// is none.
fn ops(name: &str) -> Result<Vec<Op>, Errno> {
    let called = |op: &&Op| names_of(**op).iter().any(|n| is_like(name.as_bytes(), n.as_bytes()));
    let all: Vec<Op> = Op::ALL.iter().filter(called).copied().collect();
    if all.is_empty() { Err(Errno::EINVAL) } else { Ok(all) }
}

/// What a message may be called in a rule.
fn names_of(op: Op) -> Vec<String> {
    let own = format!("{op:?}").to_lowercase();
    let of_both = |word: &str| [format!("ost_{word}"), format!("mds_{word}")];
    let mut all = of_both(&own).to_vec();
    all.push(own);
    match op.verb().named {
        Named::Itself => {}
        Named::Word(w) => all.extend(of_both(w)),
        Named::Whole(w) => all.push(w.to_string()),
    }
    all
}

/// Whether a text is like a pattern with `*` (anything) and `?` (one byte).
fn is_like(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t, mut star) = (0, 0, None);
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == b'?' || *c == text[t] => (p, t) = (p + 1, t + 1),
            _ => match star {
                // The star takes one more.
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    (p, t) = (at + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

/// All rules, the one first that counts first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rules {
    all: Vec<Rule>,
    numbers: u64,
    pub default_rate: Rate,
}

impl Default for Rules {
    fn default() -> Rules {
        let default_rate = Rate::new(DEFAULT_RATE).expect("the default is within the bounds");
        Rules { all: Vec::new(), numbers: DEFAULT_NUMBER, default_rate }
    }
}

impl Rules {
    pub fn all(&self) -> &[Rule] {
        &self.all
    }

    /// What limits a request, if anything does.
    pub fn bucket_of(&self, policy: Policy, s: &Subject) -> Option<BucketKey> {
        if let Some(r) = self.all.iter().find(|r| r.condition.holds(s)) {
            return Some(BucketKey { rule: r.number, alike: r.condition.alike(s) });
        }
        let Policy::Tbf(by) = policy else { return None };
        let is = |t: TbfType| by == TbfType::All || by == t;
        let alike = Alike::In {
            uid: is(TbfType::Uid).then_some(s.account.uid),
            gid: is(TbfType::Gid).then_some(s.account.gid),
            job: is(TbfType::Jobid).then(|| s.account.job.clone()),
            from: is(TbfType::Nid).then_some(s.from),
            op: is(TbfType::Opcode).then_some(s.op),
        };
        Some(BucketKey { rule: DEFAULT_NUMBER, alike })
    }

    /// The rate of a rule by its number; `None`: it is gone, or is the default one and there is none.
    pub fn rate_of(&self, policy: Policy, number: u64) -> Option<Rate> {
        if number == DEFAULT_NUMBER {
            return matches!(policy, Policy::Tbf(_)).then_some(self.default_rate);
        }
        self.all.iter().find(|r| r.number == number).map(|r| r.rate)
    }

    /// Does what was ordered, all of it or nothing. The numbers of rules whose buckets begin anew. `EEXIST`:
    /// there is another rule of this name; `EINVAL`: there is none; `E2BIG`: there are too many.
    pub fn apply(&mut self, orders: &[Order]) -> Result<Vec<u64>, Errno> {
        let mut new = self.clone();
        let mut anew = Vec::new();
        for o in orders {
            new.apply_one(o, &mut anew)?;
        }
        assert!(new.all.len() <= RULES_MAX, "rules are bounded");
        *self = new;
        Ok(anew)
    }

    fn apply_one(&mut self, order: &Order, anew: &mut Vec<u64>) -> Result<(), Errno> {
        let find = |all: &[Rule], name: &str| all.iter().position(|r| r.name == *name).ok_or(Errno::EINVAL);
        match order {
            Order::Start { name, condition, rate, before } => {
                if let Ok(at) = find(&self.all, name) {
                    // What is set for good comes with each configuration again.
                    let r = &self.all[at];
                    let same = r.condition == *condition && r.rate == *rate;
                    return if same { Ok(()) } else { Err(Errno::EEXIST) };
                }
                if self.all.len() >= RULES_MAX {
                    return Err(Errno::E2BIG);
                }
                let at = before.as_ref().map_or(Ok(0), |b| find(&self.all, b))?;
                self.numbers += 1;
                let (number, condition) = (self.numbers, condition.clone());
                self.all.insert(at, Rule { number, name: name.clone(), condition, rate: *rate });
            }
            Order::Change { name, rate, before } if name == DEFAULT_RULE => {
                let (Some(rate), None) = (rate, before) else { return Err(Errno::EINVAL) };
                self.default_rate = *rate;
                anew.push(DEFAULT_NUMBER);
            }
            Order::Change { name, rate, before } => {
                let at = find(&self.all, name)?;
                if let Some(rate) = rate {
                    self.all[at].rate = *rate;
                    anew.push(self.all[at].number);
                }
                if let Some(before) = before.as_ref().filter(|b| *b != name) {
                    find(&self.all, before)?;
                    let rule = self.all.remove(at);
                    let to = find(&self.all, before)?;
                    self.all.insert(to, rule);
                }
            }
            Order::Stop { name } => {
                let gone = self.all.remove(find(&self.all, name)?);
                anew.push(gone.number);
            }
        }
        Ok(())
    }
}
