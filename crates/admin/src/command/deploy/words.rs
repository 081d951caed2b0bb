//! TOML by tables and keys, each with its line: what is there is taken out, what is left at the end is a key
//! that nobody knows.

use super::read::Wrong;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

type R<T> = Result<T, Wrong>;

/// Targets of one table, at most: OSTs of a file system.
const INDICES_MAX: usize = 4096;

/// A file's tree.
pub struct Document<'a> {
    text: &'a str,
    root: Spanned<DeTable<'a>>,
}

fn line_at(text: &str, at: usize) -> usize {
    text.as_bytes().iter().take(at).filter(|b| **b == b'\n').count() + 1
}

/// Reads the text.
pub fn parse(text: &str) -> R<Document<'_>> {
    match DeTable::parse(text) {
        Ok(root) => Ok(Document { text, root }),
        Err(e) => {
            let line = e.span().map_or(1, |s| line_at(text, s.start));
            Err(Wrong::new(line, format!("this is no TOML: {}", e.message())))
        }
    }
}

impl<'a> Document<'a> {
    pub fn root(&'a self) -> Table<'a> {
        Table::new(self.text, self.root.get_ref(), 1)
    }
}

/// One table, and which of its keys were taken.
pub struct Table<'a> {
    text: &'a str,
    table: &'a DeTable<'a>,
    taken: RefCell<BTreeSet<String>>,
    /// Where it begins.
    pub line: usize,
}

impl<'a> Table<'a> {
    fn new(text: &'a str, table: &'a DeTable<'a>, line: usize) -> Table<'a> {
        Table { text, table, taken: RefCell::default(), line }
    }

    /// The same, with nothing taken.
    pub fn again(&self) -> Table<'a> {
        Table::new(self.text, self.table, self.line)
    }

    fn line_of_span(&self, at: usize) -> usize {
        line_at(self.text, at)
    }

    fn take(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.taken.borrow_mut().insert(key.to_string());
        self.table.iter().find(|(k, _)| k.get_ref().as_ref() == key).map(|(_, v)| v)
    }

    /// Where a key stands; of one that is not there, the table.
    pub fn line_of(&self, key: &str) -> usize {
        let found = self.table.iter().find(|(k, _)| k.get_ref().as_ref() == key);
        found.map_or(self.line, |(k, _)| self.line_of_span(k.span().start))
    }

    fn wrong<T>(&self, key: &str, wanted: &str) -> R<T> {
        Err(Wrong::new(self.line_of(key), format!("{key}: {wanted} is needed")))
    }

    /// A text.
    pub fn text(&self, key: &str) -> R<Option<String>> {
        match self.take(key).map(Spanned::get_ref) {
            None => Ok(None),
            Some(DeValue::String(s)) => Ok(Some(s.to_string())),
            Some(_) => self.wrong(key, "a text between quotes"),
        }
    }

    /// A text that must be there: `what` it is.
    pub fn need_text(&self, key: &str, what: &str) -> R<String> {
        self.text(key)?.ok_or_else(|| Wrong::new(self.line, format!("{key} is missing: {what}")))
    }

    /// One text, or a list of them.
    pub fn texts(&self, key: &str) -> R<Option<Vec<String>>> {
        match self.take(key).map(Spanned::get_ref) {
            None => Ok(None),
            Some(DeValue::String(s)) => Ok(Some(vec![s.to_string()])),
            Some(DeValue::Array(all)) => {
                let one = |v: &Spanned<DeValue<'a>>| match v.get_ref() {
                    DeValue::String(s) => Ok(s.to_string()),
                    _ => self.wrong(key, "a list of texts"),
                };
                all.iter().map(one).collect::<R<Vec<_>>>().map(Some)
            }
            Some(_) => self.wrong(key, "a text, or a list of texts,"),
        }
    }

    /// Texts, one at least.
    pub fn need_texts(&self, key: &str, what: &str) -> R<Vec<String>> {
        let all = self.texts(key)?.unwrap_or_default();
        if all.is_empty() {
            return Err(Wrong::new(self.line_of(key), format!("{key} is missing: {what}")));
        }
        Ok(all)
    }

    /// A whole number of `least` to `most`.
    pub fn number(&self, key: &str, least: u64, most: u64) -> R<Option<u64>> {
        let Some(v) = self.take(key) else { return Ok(None) };
        let n = match v.get_ref() {
            DeValue::Integer(i) => u64::from_str_radix(i.as_str(), i.radix()).ok(),
            _ => None,
        };
        match n.filter(|n| (least..=most).contains(n)) {
            Some(n) => Ok(Some(n)),
            None => self.wrong(key, &format!("a number of {least} to {most}")),
        }
    }

    fn numbers_in(&self, key: &str, v: &DeValue<'a>) -> R<Vec<u16>> {
        match v {
            DeValue::Integer(i) => match u16::from_str_radix(i.as_str(), i.radix()) {
                Ok(n) if u32::from(n) <= model::limits::OST_INDEX_MAX => Ok(vec![n]),
                _ => self.wrong(key, "a number of a target"),
            },
            DeValue::String(s) => match ranges(s) {
                Some(all) => Ok(all),
                None => self.wrong(key, "numbers of targets, as \"0-5\" or \"0,2,8-11\","),
            },
            DeValue::Array(all) => {
                let each = all.iter().map(|v| self.numbers_in(key, v.get_ref()));
                Ok(each.collect::<R<Vec<_>>>()?.concat())
            }
            _ => self.wrong(key, "a number, or several as \"0-5\""),
        }
    }

    /// Numbers of targets, each once.
    pub fn indices(&self, key: &str) -> R<Option<Vec<u16>>> {
        let Some(v) = self.take(key) else { return Ok(None) };
        let all = self.numbers_in(key, v.get_ref())?;
        if all.is_empty() || all.len() > INDICES_MAX || all.iter().collect::<BTreeSet<_>>().len() != all.len()
        {
            return self.wrong(key, "each number once, one at least,");
        }
        Ok(Some(all))
    }

    fn below(&self, key: &str, v: &'a Spanned<DeValue<'a>>) -> R<Table<'a>> {
        match v.get_ref() {
            DeValue::Table(t) => Ok(Table::new(self.text, t, self.line_of_span(v.span().start))),
            _ => self.wrong(key, "a table"),
        }
    }

    /// `[[key]]`.
    pub fn tables(&self, key: &str) -> R<Vec<Table<'a>>> {
        match self.take(key) {
            None => Ok(Vec::new()),
            Some(v) => match v.get_ref() {
                DeValue::Array(all) => all.iter().map(|v| self.below(key, v)).collect(),
                _ => self.wrong(key, &format!("a list of tables, each [[{key}]],")),
            },
        }
    }

    /// `[key]`, if it is there.
    pub fn table(&self, key: &str) -> R<Option<Table<'a>>> {
        self.take(key).map(|v| self.below(key, v)).transpose()
    }

    /// `[key.NAME]`.
    pub fn named(&self, key: &str) -> R<Vec<(String, Table<'a>)>> {
        let Some(t) = self.table(key)? else { return Ok(Vec::new()) };
        let one = |(k, v): (&Spanned<_>, &'a Spanned<DeValue<'a>>)| {
            let name: &std::borrow::Cow<'a, str> = k.get_ref();
            Ok((name.to_string(), self.below(name, v)?))
        };
        t.table.iter().map(one).collect()
    }

    /// `[key]` with any names and plain values.
    pub fn settings(&self, key: &str) -> R<Vec<(String, String)>> {
        let Some(t) = self.table(key)? else { return Ok(Vec::new()) };
        let mut out = Vec::new();
        for (k, v) in t.table.iter() {
            let (name, line) = (k.get_ref().to_string(), self.line_of_span(k.span().start));
            let value = match v.get_ref() {
                DeValue::String(s) => s.to_string(),
                DeValue::Integer(i) => i.to_string(),
                DeValue::Float(f) => f.to_string(),
                DeValue::Boolean(b) => u8::from(*b).to_string(),
                DeValue::Table(_) => {
                    let text = format!("a name with dots stands between quotes: \"{name}...\" = VALUE");
                    return Err(Wrong::new(line, text));
                }
                _ => return Err(Wrong::new(line, format!("{name}: a text or a number is needed"))),
            };
            if value.contains(char::is_control) || name.contains(|c: char| c.is_whitespace() || c == '=') {
                return Err(Wrong::new(line, format!("{name}: no name or value of a parameter")));
            }
            out.push((name, value));
        }
        Ok(out)
    }

    /// `[key]` with any names and numbers of targets.
    pub fn members(&self, key: &str) -> R<BTreeMap<String, Vec<u16>>> {
        let Some(t) = self.table(key)? else { return Ok(BTreeMap::new()) };
        let mut out = BTreeMap::new();
        for (k, _) in t.table.iter() {
            let name = k.get_ref().to_string();
            let mut all = t.indices(&name)?.unwrap_or_default();
            all.sort_unstable();
            out.insert(name, all);
        }
        Ok(out)
    }

    /// Nothing else may be there.
    pub fn end(&self, place: &str) -> R<()> {
        let taken = self.taken.borrow();
        let left = self.table.iter().find(|(k, _)| !taken.contains(k.get_ref().as_ref()));
        let Some((k, _)) = left else { return Ok(()) };
        let known: Vec<&str> = taken.iter().map(String::as_str).collect();
        let near =
            known.iter().min_by_key(|n| distance(n, k.get_ref())).filter(|n| distance(n, k.get_ref()) <= 2);
        let advice = match near {
            Some(n) => format!("is '{n}' meant?"),
            None => format!("there are {}", known.join(", ")),
        };
        let text = format!("{place} has no key '{}': {advice}", k.get_ref());
        Err(Wrong::new(self.line_of_span(k.span().start), text))
    }
}

/// `0-5,8`; `None`: it is nothing like that.
fn ranges(text: &str) -> Option<Vec<u16>> {
    let mut out = Vec::new();
    for part in text.split(',') {
        let (a, b) = part.trim().split_once('-').unwrap_or((part.trim(), part.trim()));
        let (a, b): (u16, u16) = (a.trim().parse().ok()?, b.trim().parse().ok()?);
        if a > b || u32::from(b) > model::limits::OST_INDEX_MAX || usize::from(b - a) >= INDICES_MAX {
            return None;
        }
        out.extend(a..=b);
    }
    Some(out)
}

/// How many letters two words differ in (Levenshtein's), of words as short as keys.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut last = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let other = last + usize::from(x != *y);
            last = row[j + 1];
            row[j + 1] = other.min(last + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
