//! What directories are to be like: settings, as options and rules say them.

use super::account::{Account, Of};
use crate::command::policy::{FILE_MAX_BYTES, Mistake, absolute, rule_name, without_comment, words};
use crate::command::setstripe;
use crate::failure::Failure;
use crate::size::parse_bytes;
use crate::{glob, names};
use model::quota::{LimitChange, LimitOrder};
use model::usage::{QuotaId, QuotaType};
use model::{Errno, LayoutSpec};
use std::ffi::OsString;
use std::path::PathBuf;

/// Rules of a file.
const RULES_MAX: usize = 1000;
/// Of names of directories: what stands before them while they are made has room.
const NAME_MAX_BYTES: usize = 200;
const KEYS: &str = "gid, group, inodes, limits, mode, name, of, pool, project, space, stripe, under, user";

/// As options or lines of a rule have it. What is `None` was not said.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Settings {
    pub under: Option<PathBuf>,
    pub name: Option<String>,
    pub mode: Option<u32>,
    pub gid: Option<u32>,
    pub limits: Option<QuotaType>,
    pub space: Option<LimitChange>,
    pub inodes: Option<LimitChange>,
    /// A number, a name, or `{id}`.
    pub project: Option<String>,
    pub pool: Option<String>,
    pub stripe: Option<String>,
}

/// A rule: for whom it is, and what his directory is to be like.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    pub name: String,
    pub of: Of,
    /// Patterns, one of which fits; none: everybody.
    pub users: Vec<String>,
    pub groups: Vec<String>,
    pub settings: Settings,
}

/// Whose limits are set for a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Limits {
    /// Its owner's or its project's: they hold before there is a directory.
    Owner(LimitOrder),
    /// Its own: it gets a quota, which counts what lies below it, whoever made it.
    Directory { space: LimitChange, inodes: LimitChange },
}

/// One directory as it is to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    pub under: PathBuf,
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    pub mode: u32,
    pub project: Option<u32>,
    pub limits: Option<Limits>,
    pub layout: Option<LayoutSpec>,
}

/// `HARD` or `SOFT:HARD`.
fn limit(value: &str) -> Result<LimitChange, String> {
    let number = |s: &str| {
        parse_bytes(s, 1).ok_or(format!("'{value}' is no limit: a number with k, M, G, T or P, or SOFT:HARD"))
    };
    Ok(match value.split_once(':') {
        None => LimitChange { soft: Some(0), hard: Some(number(value)?) },
        Some((soft, hard)) => LimitChange { soft: Some(number(soft)?), hard: Some(number(hard)?) },
    })
}

fn is_file_name(name: &str) -> bool {
    (1..=NAME_MAX_BYTES).contains(&name.len()) && !name.starts_with('.') && !name.contains(['/', '\0'])
}

/// The layout that options of `lfs setstripe` and a pool ask for.
fn layout(pool: Option<&str>, stripe: Option<&str>) -> Result<Option<LayoutSpec>, Failure> {
    if pool.is_none() && stripe.is_none() {
        return Ok(None);
    }
    // A pool before the first component is of all of them.
    let pool = pool.into_iter().flat_map(|p| ["-p", p]);
    let args: Vec<OsString> =
        pool.chain(stripe.unwrap_or_default().split_whitespace()).map(OsString::from).collect();
    let p = setstripe::parse(&args, setstripe::OPTS)?;
    if let Some(o) = p.operands.first() {
        return Err(Failure::usage(format!("'{}' is no option of lfs setstripe", o.to_string_lossy())));
    }
    if !setstripe::is_given(&p) {
        return Err(Failure::usage("'stripe' says nothing of a layout: as in '-c 4 -S 4M'"));
    }
    setstripe::spec(&p).map(Some)
}

impl Settings {
    /// Takes what a key says; false: it is none of them.
    pub fn set(&mut self, key: &str, value: &str) -> Result<bool, String> {
        match key {
            "under" => self.under = Some(absolute(value)?),
            "name" if is_file_name(value) => self.name = Some(value.to_string()),
            "name" => {
                return Err(format!(
                    "'{value}' is no name of a directory: up to {NAME_MAX_BYTES} bytes, no slash, no dot first"
                ));
            }
            "mode" => {
                let mode = u32::from_str_radix(value, 8).ok().filter(|m| *m <= 0o7777);
                self.mode = Some(mode.ok_or(format!("'{value}' is no mode: an octal number, as 0700"))?);
            }
            "gid" => {
                self.gid = Some(names::gid(value).ok_or(format!("there is no group '{value}' on this host"))?)
            }
            "limits" => {
                let of = QuotaType::ALL.into_iter().find(|t| crate::command::quota::words(*t).0 == value);
                self.limits =
                    Some(of.ok_or(format!("limits of '{value}': user, group, project or directory"))?);
            }
            "space" => self.space = Some(limit(value)?),
            "inodes" => self.inodes = Some(limit(value)?),
            "project" => {
                if value != "{id}" && names::project(value).is_none() {
                    return Err(format!(
                        "there is no project '{value}' on this host: a number, a name, or {{id}}"
                    ));
                }
                self.project = Some(value.to_string());
            }
            "pool" => {
                layout(Some(value), None).map_err(|f| f.to_string())?;
                self.pool = Some(value.to_string());
            }
            "stripe" => {
                layout(None, Some(value)).map_err(|f| f.to_string())?;
                self.stripe = Some(value.to_string());
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// These, and of the others what these do not say.
    pub fn over(self, o: Settings) -> Settings {
        Settings {
            under: self.under.or(o.under),
            name: self.name.or(o.name),
            mode: self.mode.or(o.mode),
            gid: self.gid.or(o.gid),
            limits: self.limits.or(o.limits),
            space: self.space.or(o.space),
            inodes: self.inodes.or(o.inodes),
            project: self.project.or(o.project),
            pool: self.pool.or(o.pool),
            stripe: self.stripe.or(o.stripe),
        }
    }

    /// What cannot be together.
    fn check(&self) -> Result<(), String> {
        if self.limits == Some(QuotaType::Project) && self.project.is_none() {
            return Err("limits of a project need one: project = N".into());
        }
        if self.limits.is_some() && self.space.is_none() && self.inodes.is_none() {
            return Err("'limits' says whose 'space' and 'inodes' are limited, and there are none".into());
        }
        Ok(())
    }

    /// What limits hold for, unless it is said: the project if there is one.
    fn limited(&self, of: Of) -> QuotaType {
        let own = if of == Of::User { QuotaType::User } else { QuotaType::Group };
        self.limits.unwrap_or(if self.project.is_some() { QuotaType::Project } else { own })
    }

    pub fn name_for(&self, a: &Account) -> Result<String, Failure> {
        let name = self.name.as_deref().unwrap_or("{name}");
        let name = name.replace("{name}", &a.name).replace("{id}", &a.id.to_string());
        if is_file_name(&name) {
            Ok(name)
        } else {
            Err(Failure::explained("cannot make directory", &name, Errno::EINVAL, "that is no name for one"))
        }
    }

    /// Whose limits are set, and to what.
    fn limits_of(&self, a: &Account, gid: u32, project: Option<u32>) -> Result<Option<Limits>, Failure> {
        let (space, inodes) = (self.space.unwrap_or_default(), self.inodes.unwrap_or_default());
        if self.space.is_none() && self.inodes.is_none() {
            return Ok(None);
        }
        let of = self.limited(a.of);
        let id = match of {
            QuotaType::Directory => return Ok(Some(Limits::Directory { space, inodes })),
            QuotaType::User if a.of == Of::User => a.id,
            QuotaType::Project => project.unwrap_or_default(),
            QuotaType::Group => gid,
            QuotaType::User => {
                return Err(Failure::usage("a group's directory has no user whose limits could be set"));
            }
        };
        if id == 0 {
            return Err(Failure::usage(format!("{} 0 has no limits", crate::command::quota::words(of).0)));
        }
        Ok(Some(Limits::Owner(LimitOrder::Own { of: QuotaId { of, id }, space, inodes })))
    }

    /// The directory of somebody.
    pub fn plan(&self, a: &Account) -> Result<Plan, Failure> {
        self.check().map_err(Failure::usage)?;
        let under = self.under.clone();
        let under =
            under.ok_or_else(|| Failure::usage("where? --under DIR, or a rule with 'under = DIR'"))?;
        if a.id == 0 {
            let why = "root and its group have no limits, and so no directory with limits";
            return Err(Failure::explained("cannot make a directory of", &a.name, Errno::EINVAL, why));
        }
        let gid = self.gid.or(a.gid).ok_or_else(|| {
            Failure::usage(format!(
                "{} '{}' is no account of this host: say its group, --gid GROUP",
                a.of.word(),
                a.name
            ))
        })?;
        let project = match self.project.as_deref() {
            Some("{id}") => Some(a.id),
            Some(p) => {
                Some(names::project(p).ok_or_else(|| Failure::op("unknown project", p, Errno::ENOENT))?)
            }
            None => None,
        };
        let (uid, mode) = match a.of {
            Of::User => (a.id, 0o700),
            Of::Group => (0, 0o2770),
        };
        Ok(Plan {
            under,
            name: self.name_for(a)?,
            uid,
            gid,
            mode: self.mode.unwrap_or(mode),
            project,
            limits: self.limits_of(a, gid, project)?,
            layout: layout(self.pool.as_deref(), self.stripe.as_deref())?,
        })
    }
}

impl Rule {
    pub fn asks_for_groups(&self) -> bool {
        self.of == Of::User && !self.groups.is_empty()
    }

    pub fn fits(&self, a: &Account) -> bool {
        let one = |patterns: &[String], name: &str| {
            patterns.iter().any(|p| glob::matches(p.as_bytes(), name.as_bytes()))
        };
        if self.of != a.of {
            return false;
        }
        match a.of {
            Of::Group => self.groups.is_empty() || one(&self.groups, &a.name),
            Of::User => {
                let is_in = |g: &String| one(&self.groups, g);
                (self.users.is_empty() || one(&self.users, &a.name))
                    && (self.groups.is_empty() || a.groups.iter().any(is_in))
            }
        }
    }
}

struct Draft {
    line: usize,
    rule: Rule,
    met: Vec<String>,
}

impl Draft {
    fn add(&mut self, content: &str) -> Result<(), String> {
        let (key, op, value) = words(content)?;
        if op != "=" {
            return Err(format!("'{key}' has '=' behind it, not '{op}'"));
        }
        if self.met.iter().any(|k| k == key) {
            return Err(format!("'{key}' is said twice"));
        }
        self.met.push(key.to_string());
        let list = || value.split(',').map(|s| s.trim().to_string()).collect();
        match key {
            "user" => self.rule.users = list(),
            "group" => self.rule.groups = list(),
            "of" => {
                let of = [Of::User, Of::Group].into_iter().find(|o| o.word() == value);
                self.rule.of = of.ok_or(format!("directories of '{value}': of = user, or of = group"))?;
            }
            _ if self.rule.settings.set(key, value)? => {}
            _ => return Err(format!("'{key}' is nothing that a rule has: {KEYS}")),
        }
        Ok(())
    }

    fn finish(self) -> Result<Rule, String> {
        let (r, name) = (self.rule, |what: &str, r: &Rule| format!("rule '{}': {what}", r.name));
        if r.settings.under.is_none() {
            return Err(name("it needs 'under = DIR'", &r));
        }
        if r.of == Of::Group && !r.users.is_empty() {
            return Err(name("'user' is for directories of users, and it has 'of = group'", &r));
        }
        if r.of == Of::Group && r.settings.limits == Some(QuotaType::User) {
            return Err(name("a group's directory has no user whose limits could be set", &r));
        }
        r.settings.check().map_err(|e| name(&e, &r))?;
        Ok(r)
    }
}

fn heading(rest: &str, line: usize, known: &[Draft]) -> Result<Draft, String> {
    let name = rule_name(rest, known.iter().map(|d| d.rule.name.as_str()))?;
    let (users, groups, settings) = (Vec::new(), Vec::new(), Settings::default());
    Ok(Draft { line, rule: Rule { name, of: Of::User, users, groups, settings }, met: Vec::new() })
}

/// A line that is of all rules which do not say it themselves.
fn before_rules(content: &str, common: &mut Settings) -> Result<(), String> {
    let (key, op, value) = words(content)?;
    if op == "=" && common.set(key, value)? {
        return Ok(());
    }
    Err(format!("'{content}' cannot stand before the first rule, [NAME]"))
}

/// All rules of a file, or all that is wrong in it. Lines before the first heading are of all rules.
pub fn parse(text: &str) -> Result<Vec<Rule>, Vec<Mistake>> {
    if text.len() > FILE_MAX_BYTES {
        let text = format!("the file has more than {FILE_MAX_BYTES} bytes");
        return Err(vec![Mistake { line: 1, text }]);
    }
    let (mut drafts, mut wrong, mut common) = (Vec::<Draft>::new(), Vec::new(), Settings::default());
    for (raw, line) in text.lines().zip(1..) {
        let content = without_comment(raw).trim();
        let done = match content.strip_prefix('[') {
            _ if content.is_empty() => Ok(()),
            Some(_) if drafts.len() == RULES_MAX => Err(format!("there are more than {RULES_MAX} rules")),
            Some(rest) => heading(rest, line, &drafts).map(|d| drafts.push(d)),
            None => match drafts.last_mut() {
                Some(d) => d.add(content),
                None => before_rules(content, &mut common),
            },
        };
        if let Err(text) = done {
            wrong.push(Mistake { line, text });
        }
    }
    if drafts.is_empty() && wrong.is_empty() {
        wrong.push(Mistake { line: 1, text: "there is no rule: one begins with its name, [NAME]".into() });
    }
    let mut rules = Vec::new();
    for mut d in drafts {
        let line = d.line;
        d.rule.settings = std::mem::take(&mut d.rule.settings).over(common.clone());
        match d.finish() {
            Ok(r) => rules.push(r),
            Err(text) => wrong.push(Mistake { line, text }),
        }
    }
    wrong.sort_by_key(|m| m.line);
    if wrong.is_empty() { Ok(rules) } else { Err(wrong) }
}

/// Of each place that rules name, the first rule there that fits somebody.
pub fn fitting<'r>(rules: &'r [Rule], a: &mut Account) -> Vec<&'r Rule> {
    if rules.iter().any(Rule::asks_for_groups) {
        a.learn_groups();
    }
    let mut out: Vec<&Rule> = Vec::new();
    for r in rules.iter().filter(|r| r.fits(a)) {
        if !out.iter().any(|o| o.settings.under == r.settings.under) {
            out.push(r);
        }
    }
    out
}
