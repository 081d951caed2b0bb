//! What several pages have.

use crate::value::{bytes, text};
use maud::{Markup, html};
use serde_json::Value;

/// How something is: a word, never a colour alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mood {
    Ok,
    Warn,
    Bad,
    /// Neither good nor bad.
    Plain,
}

impl Mood {
    pub fn class(self) -> &'static str {
        match self {
            Mood::Ok => "ok",
            Mood::Warn => "warn",
            Mood::Bad => "bad",
            Mood::Plain => "",
        }
    }
}

pub fn state(mood: Mood, word: &str) -> Markup {
    html! { span class={ "state " (mood.class()) } { (word) } }
}

/// A column: its heading, and whether it holds numbers or long text.
#[derive(Clone, Copy)]
pub enum Column {
    Text(&'static str),
    Number(&'static str),
    Long(&'static str),
}

impl Column {
    fn heading(self) -> &'static str {
        match self {
            Column::Text(h) | Column::Number(h) | Column::Long(h) => h,
        }
    }

    fn class(self) -> Option<&'static str> {
        match self {
            Column::Text(_) => None,
            Column::Number(_) => Some("num"),
            Column::Long(_) => Some("long"),
        }
    }
}

/// A table that a narrow screen scrolls sideways, also with keys. Without rows it says `none`.
pub fn table(caption: &str, columns: &[Column], rows: &[Vec<Markup>], none: &str) -> Markup {
    if rows.is_empty() {
        return html! { p class="note" { (none) } };
    }
    assert!(rows.iter().all(|r| r.len() == columns.len()), "a cell for each column");
    html! {
        div class="scroll" role="region" aria-label=(caption) tabindex="0" {
            table {
                caption { (caption) }
                thead { tr {
                    @for c in columns { th scope="col" class=[c.class()] { (c.heading()) } }
                } }
                tbody {
                    @for row in rows {
                        tr { @for (cell, c) in row.iter().zip(columns) { td class=[c.class()] { (cell) } } }
                    }
                }
            }
        }
    }
}

pub fn cell(v: impl std::fmt::Display) -> Markup {
    html! { (v.to_string()) }
}

/// How full something is.
pub fn fill(name: &str, used: u64, available: u64) -> Markup {
    let percent = crate::value::percent(used, available);
    html! {
        meter min="0" max="100" high="90" value=(percent.min(100))
            aria-label={ (name) " is " (percent) "% full" } { (percent) "%" }
        " " (percent) "%"
    }
}

/// Used of total, in bytes.
pub fn space(v: &Value) -> (String, String, String) {
    let of = |name| bytes(crate::value::number(v, name));
    (of("total_bytes"), of("used_bytes"), of("available_bytes"))
}

/// Why a document could not be had, and who said nothing; nothing if all is there.
pub fn trouble(v: &Value) -> Markup {
    let missing = crate::value::list(v, "missing");
    html! {
        @if !text(v, "error").is_empty() {
            p class="note warn" { (text(v, "error")) }
        }
        @for m in missing.iter().filter_map(Value::as_str) {
            p class="note warn" { (m) }
        }
    }
}
