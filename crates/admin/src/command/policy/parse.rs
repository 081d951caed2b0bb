//! The rules file: a heading in brackets for each rule, a line for each of its conditions and settings, `#`
//! before comments.

use super::rules::{Action, Compare, Condition, Of, Order, Rule, Time, When};
use crate::names;
use crate::size::{parse_bytes, parse_index_list, time_unit};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Bytes of a rules file.
pub const FILE_MAX_BYTES: usize = 1 << 20;
/// Rules of a file.
const RULES_MAX: usize = 1000;
/// Files that one run of a rule takes, unless the rule says so, and at most.
const LIMIT_DEFAULT: usize = 100_000;
const LIMIT_MAX: u64 = 1_000_000;
/// Users that are told, unless the rule says so, and at most.
const USERS_DEFAULT: usize = 10;
const USERS_MAX: u64 = 10_000;
/// A user is told again after so many seconds, unless the rule says so.
const REMIND_DEFAULT: i64 = 7 * DAY;
const RATE_MAX: u64 = 1_000_000;
const DAY: i64 = 86400;
const ACTIONS: &str = "report, purge, notify, migrate or archive";
const KEYS: &str = "accessed, action, changed, command, created, directory, exempt, group, layout, limit, \
list, modified, order, ost, path, pool, project, rate, remind, size, to, user, users, when";

/// What is wrong in a rules file, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mistake {
    pub line: usize,
    pub text: String,
}

/// The lines of one rule so far.
struct Draft {
    line: usize,
    rule: Rule,
    to: Option<String>,
    command: Option<Vec<String>>,
    users: Option<usize>,
    remind: Option<i64>,
    action: Option<(usize, String)>,
    met: BTreeSet<String>,
}

/// All rules of a file, or all that is wrong in it.
pub fn parse(text: &str) -> Result<Vec<Rule>, Vec<Mistake>> {
    let (mut drafts, mut wrong): (Vec<Draft>, Vec<Mistake>) = (Vec::new(), Vec::new());
    let mut directory: Option<PathBuf> = None;
    if text.len() > FILE_MAX_BYTES {
        return Err(vec![Mistake {
            line: 1,
            text: format!("the file has more than {FILE_MAX_BYTES} bytes"),
        }]);
    }
    for (raw, line) in text.lines().zip(1..) {
        let content = without_comment(raw).trim();
        if content.is_empty() {
            continue;
        }
        let done = match (content.strip_prefix('['), drafts.last_mut()) {
            (Some(rest), _) => heading(rest, line, &drafts, directory.as_ref()).map(|d| drafts.push(d)),
            (None, Some(d)) => d.add(content, line),
            (None, None) => words(content).and_then(|(key, op, value)| match (key, op) {
                ("directory", "=") => absolute(value).map(|p| directory = Some(p)),
                _ => Err(format!("'{content}' stands before the first rule, where only directory = DIR may")),
            }),
        };
        if let Err(text) = done {
            wrong.push(Mistake { line, text });
        }
    }
    if drafts.is_empty() && wrong.is_empty() {
        wrong.push(Mistake { line: 1, text: "there is no rule: one begins with its name, [NAME]".into() });
    }
    let mut rules = Vec::new();
    for d in drafts {
        let line = d.line;
        match d.finish() {
            Ok(r) => rules.push(r),
            Err(text) => wrong.push(Mistake { line, text }),
        }
    }
    wrong.sort_by_key(|m| m.line);
    if wrong.is_empty() { Ok(rules) } else { Err(wrong) }
}

/// A comment begins with the line, or behind a blank.
pub fn without_comment(line: &str) -> &str {
    let is_comment = |i: &usize| *i == 0 || line[..*i].ends_with([' ', '\t']);
    match line.match_indices('#').map(|(i, _)| i).find(is_comment) {
        Some(i) => &line[..i],
        None => line,
    }
}

/// The name in a heading, behind its `[`, that no rule before has.
pub fn rule_name<'a>(rest: &str, mut known: impl Iterator<Item = &'a str>) -> Result<String, String> {
    let name = rest.strip_suffix(']').ok_or("a heading ends with ']'")?.trim();
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > 64 || name.starts_with('.') || !name.chars().all(fits) {
        return Err(format!("'{name}' is no name of a rule: letters, digits, '-', '_' and '.', up to 64"));
    }
    if known.any(|k| k == name) {
        return Err(format!("there are two rules of the name '{name}'"));
    }
    Ok(name.to_string())
}

fn heading(rest: &str, line: usize, known: &[Draft], directory: Option<&PathBuf>) -> Result<Draft, String> {
    let name = rule_name(rest, known.iter().map(|d| d.rule.name.as_str()))?;
    if known.len() == RULES_MAX {
        return Err(format!("there are more than {RULES_MAX} rules"));
    }
    let rule = Rule {
        name,
        text: directory.map(|d| format!("directory = {}\n", d.display())).unwrap_or_default(),
        directory: directory.cloned().unwrap_or_default(),
        scope: Vec::new(),
        exempt: Vec::new(),
        when: When::Always,
        order: Order::None,
        action: Action::Report,
        rate: None,
        limit: LIMIT_DEFAULT,
        list: None,
    };
    let met = BTreeSet::new();
    Ok(Draft { line, rule, to: None, command: None, users: None, remind: None, action: None, met })
}

/// Key, operator and value of a line.
pub fn words(content: &str) -> Result<(&str, &str, &str), String> {
    let is_of_key = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let end = content.find(|c| !is_of_key(c)).unwrap_or(content.len());
    let (key, rest) = (&content[..end], content[end..].trim_start());
    let op = ["<=", ">=", "<", ">", "="].into_iter().find(|op| rest.starts_with(op));
    let op = op.ok_or_else(|| format!("'{content}' is no line of a rule: KEY = VALUE, or <, <=, >, >="))?;
    let value = rest[op.len()..].trim();
    if value.is_empty() {
        return Err(format!("'{key} {op}' has no value"));
    }
    Ok((key, op, value))
}

impl Draft {
    fn add(&mut self, content: &str, line: usize) -> Result<(), String> {
        self.rule.text.push_str(content);
        self.rule.text.push('\n');
        if let Some(rest) = content.strip_prefix("exempt ") {
            let all = rest.split(" and ").map(|c| words(c.trim()));
            let all = all.map(|w| w.and_then(|w| condition(w)?.ok_or_else(|| not_a_condition(w.0))));
            self.rule.exempt.push(all.collect::<Result<_, _>>()?);
            return Ok(());
        }
        if let Some(rest) = content.strip_prefix("when ") {
            self.rule.when = when(rest)?;
            return self.once("when");
        }
        let w = words(content)?;
        match condition(w)? {
            Some(c) => self.rule.scope.push(c),
            None => self.set(w, line)?,
        }
        Ok(())
    }

    fn once(&mut self, key: &str) -> Result<(), String> {
        if self.met.insert(key.to_string()) { Ok(()) } else { Err(format!("'{key}' is said twice")) }
    }

    fn set(&mut self, (key, op, value): (&str, &str, &str), line: usize) -> Result<(), String> {
        if !KEYS.split(", ").any(|k| k == key) {
            return Err(format!("'{key}' is nothing that a rule has: {KEYS}"));
        }
        if key == "exempt" || key == "when" {
            let form = if key == "when" { "when space > 90% until 85%" } else { "exempt user = root" };
            return Err(format!("'{key}' has no '{op}' behind it: as in '{form}'"));
        }
        if op != "=" {
            return Err(format!("'{key}' has '=' behind it, not '{op}'"));
        }
        self.once(key)?;
        let r = &mut self.rule;
        match key {
            "directory" => r.directory = absolute(value)?,
            "action" => self.action = Some((line, value.to_string())),
            "to" => self.to = Some(value.to_string()),
            "command" => self.command = Some(value.split_whitespace().map(str::to_string).collect()),
            "users" => self.users = Some(number(value, USERS_MAX)? as usize),
            "remind" => self.remind = Some(duration(value)?),
            "rate" => r.rate = Some(number(value, RATE_MAX)? as u32),
            "limit" => r.limit = number(value, LIMIT_MAX)? as usize,
            "list" => r.list = Some(absolute(value)?),
            "order" => r.order = order(value)?,
            _ => return Err(format!("'{key}' cannot stand here")),
        }
        Ok(())
    }

    fn finish(self) -> Result<Rule, String> {
        let mut r = self.rule;
        let (line, name) = self.action.ok_or(format!("rule '{}' has no action: {ACTIONS}", r.name))?;
        let lacks = |what: &str| format!("rule '{}': its action '{name}' needs '{what}'", r.name);
        if r.directory.as_os_str().is_empty() {
            return Err(lacks("directory = DIR"));
        }
        let is_other = |given: bool, key: &str, of: &str| match given && name != of {
            true => Err(format!("rule '{}': '{key}' is for 'action = {of}' alone", r.name)),
            false => Ok(()),
        };
        is_other(self.to.is_some(), "to", "migrate")?;
        is_other(self.command.is_some(), "command", "notify")?;
        is_other(self.users.is_some(), "users", "notify")?;
        is_other(self.remind.is_some(), "remind", "notify")?;
        r.action = match &name[..] {
            "report" => Action::Report,
            "purge" if r.scope.is_empty() => return Err(lacks("at least one condition on files")),
            "purge" => Action::Purge,
            "notify" => Action::Notify {
                command: self.command.ok_or_else(|| lacks("command = PROGRAM"))?,
                users: self.users.unwrap_or(USERS_DEFAULT),
                remind: self.remind.unwrap_or(REMIND_DEFAULT),
            },
            "migrate" => Action::Migrate { pool: self.to.ok_or_else(|| lacks("to = POOL"))? },
            "archive" => Action::Archive { list: r.list.clone().ok_or_else(|| lacks("list = FILE"))? },
            other => return Err(format!("line {line}: '{other}' is no action: {ACTIONS}")),
        };
        if r.list.is_some() && !matches!(r.action, Action::Purge | Action::Archive { .. }) {
            return Err(format!("rule '{}': 'list' is for 'purge' and 'archive'", r.name));
        }
        Ok(r)
    }
}

fn not_a_condition(key: &str) -> String {
    format!(
        "'{key}' is no condition: path, user, group, project, pool, ost, layout, size, accessed, modified, \
         changed, created"
    )
}

/// `None`: the key is none of a condition.
fn condition((key, op, value): (&str, &str, &str)) -> Result<Option<Condition>, String> {
    let compare = || {
        let found = Compare::ALL.into_iter().find(|(o, _)| *o == op).map(|(_, c)| c);
        found.ok_or_else(|| format!("'{key}' is compared with <, <=, > or >=, not '{op}'"))
    };
    let equal = || match op {
        "=" => Ok(()),
        _ => Err(format!("'{key}' has '=' behind it, not '{op}'")),
    };
    if let Some((_, t)) = Time::ALL.into_iter().find(|(n, _)| *n == key) {
        return Ok(Some(Condition::Age(t, compare()?, duration(value)?)));
    }
    if key == "size" {
        let bytes = parse_bytes(value, 1);
        let bytes = bytes.ok_or_else(|| format!("'{value}' is no size: a number with k, M, G or T"))?;
        return Ok(Some(Condition::Size(compare()?, bytes)));
    }
    let list = || value.split(',').map(str::trim);
    let ids = |find: fn(&str) -> Option<u32>| {
        let one = |s: &str| find(s).ok_or_else(|| format!("there is no {key} '{s}' on this host"));
        list().map(one).collect::<Result<Vec<u32>, _>>()
    };
    let texts = || list().map(str::to_string).collect::<Vec<_>>();
    let found = match key {
        "path" => Condition::Path(texts()),
        "user" => Condition::User(ids(names::uid)?),
        "group" => Condition::Group(ids(names::gid)?),
        "project" => Condition::Project(ids(names::project)?),
        "pool" => Condition::Pool(texts()),
        "ost" => Condition::Ost(parse_index_list(&value.replace(' ', "")).map_err(|f| f.to_string())?),
        "layout" => match value {
            "mdt" => Condition::HasObjects(false),
            "objects" => Condition::HasObjects(true),
            _ => return Err(format!("layout '{value}': mdt (no objects) or objects")),
        },
        _ => return Ok(None),
    };
    equal()?;
    Ok(Some(found))
}

/// `always`, `space [of pool NAME|of ost N] > 90% until 85%`, `usage > 10T`.
fn when(text: &str) -> Result<When, String> {
    let wrong = || {
        format!(
            "'when {text}': when always, when space > 90% until 85%, when space of pool NAME > …, \
             when space of ost N > …, or when usage > 10T"
        )
    };
    let spaced = text.replace('>', " > ");
    let w: Vec<&str> = spaced.split_whitespace().collect();
    let (of, rest) = match w.as_slice() {
        ["always"] => return Ok(When::Always),
        ["usage", ">", n] => return Ok(When::Usage { above: parse_bytes(n, 1).ok_or_else(wrong)? }),
        ["space", "of", "pool", name, rest @ ..] => (Of::Pool((*name).to_string()), rest),
        ["space", "of", "ost", n, rest @ ..] => {
            (Of::Ost(crate::size::parse_index(n).ok_or_else(wrong)?), rest)
        }
        ["space", rest @ ..] => (Of::FileSystem, rest),
        _ => return Err(wrong()),
    };
    let percent = |s: &str| s.strip_suffix('%').and_then(|n| n.parse().ok()).filter(|n| *n <= 100u64);
    let (above, until) = match rest {
        [">", above] => (percent(above).ok_or_else(wrong)?, None),
        [">", above, "until", until] => {
            (percent(above).ok_or_else(wrong)?, Some(percent(until).ok_or_else(wrong)?))
        }
        _ => return Err(wrong()),
    };
    if until.is_some_and(|u| u > above) {
        return Err(format!("'when {text}': what is freed ends above where it begins"));
    }
    Ok(When::Space { of, above, until: until.unwrap_or(above) })
}

fn order(value: &str) -> Result<Order, String> {
    let by_time = Time::ALL.into_iter().find(|(n, _)| *n == value).map(|(_, t)| Order::OldestFirst(t));
    let by_size = (value == "size").then_some(Order::LargestFirst);
    by_time.or(by_size).ok_or_else(|| {
        format!(
            "order '{value}': accessed, modified, changed, created (oldest first) or size (largest first)"
        )
    })
}

pub fn absolute(value: &str) -> Result<PathBuf, String> {
    if value.starts_with('/') {
        Ok(PathBuf::from(value))
    } else {
        Err(format!("'{value}' is no path from / on"))
    }
}

fn number(value: &str, max: u64) -> Result<u64, String> {
    let n = value.parse().ok().filter(|n| (1..=max).contains(n));
    n.ok_or_else(|| format!("'{value}' is no number from 1 to {max}"))
}

/// `30d`, `1w2d`; seconds.
fn duration(value: &str) -> Result<i64, String> {
    let wrong = || format!("'{value}' is no age: numbers with s, m, h, d, w or y behind them, as 30d");
    let (mut rest, mut total) = (value, 0i64);
    if value.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let n: i64 = rest[..digits].parse().map_err(|_| wrong())?;
        let unit = rest[digits..].chars().next().and_then(time_unit).ok_or_else(wrong)?;
        total = n.checked_mul(unit.into()).and_then(|n| total.checked_add(n)).ok_or_else(wrong)?;
        rest = &rest[digits + 1..];
    }
    Ok(total)
}
