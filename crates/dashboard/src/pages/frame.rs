//! What is around every page, and the page that asks who somebody is.

use crate::session::Who;
use crate::subject::{SUBJECTS, Subject};
use maud::{DOCTYPE, Markup, html};

/// Between two updates of a page that is looked at.
const UPDATE_S: u32 = 5;

fn head(title: &str) -> Markup {
    let v = admin::VERSION;
    // Styles of its own and code in attributes are what the policy of these pages forbids.
    let config = r#"{"includeIndicatorStyles":false,"allowEval":false,"selfRequestsOnly":true,"historyEnabled":false,"timeout":20000}"#;
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            meta name="htmx-config" content=(config);
            title { (title) " – Nacre" }
            link rel="icon" href={ "/static/icon.svg?" (v) };
            link rel="stylesheet" href={ "/static/uplot.css?" (v) };
            link rel="stylesheet" href={ "/static/console.css?" (v) };
            script src={ "/static/htmx.js?" (v) } defer {}
            script src={ "/static/uplot.js?" (v) } defer {}
            script src={ "/static/console.js?" (v) } defer {}
        }
    }
}

fn top(current: &str, who: &Who) -> Markup {
    html! {
        a class="skip" href="#view" { "Skip to the content" }
        header {
            div class="top" {
                span class="brand" { img src="/static/icon.svg" alt=""; "Nacre" }
                div class="who" {
                    button type="button" id="pause" aria-pressed="false" hidden { "Pause updates" }
                    span { (who.name) " (" (who.role.word()) ")" }
                    @if let Some(csrf) = &who.csrf {
                        form class="line" method="post" action="/logout" {
                            input type="hidden" name="csrf" value=(csrf);
                            button type="submit" { "Log out" }
                        }
                    }
                }
            }
            nav aria-label="Pages" { ul {
                @for s in SUBJECTS {
                    li { a href={ "/" (s.name) } aria-current=[(s.name == current).then_some("page")] { (s.title) } }
                }
            } }
        }
    }
}

fn foot() -> Markup {
    html! {
        footer { "Nacre " (admin::VERSION) ". Everything here has a JSON address: " a href="/api" { "/api" } "." }
    }
}

/// A page that stays as it is.
pub fn still(title: &str, current: &str, who: &Who, content: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            (head(title))
            body {
                (top(current, who))
                main id="view" tabindex="-1" { h1 { (title) } (content) }
                (foot())
            }
        }
    }
}

/// A page of which the part that changes is fetched again and again.
pub fn page(s: &Subject, who: &Who, above: &Markup, data: &Markup) -> Markup {
    let content = html! {
        p id="stale" class="note warn" role="status" hidden {}
        (above)
        div id="data" hx-get={ "/" (s.name) } hx-trigger={ "every " (UPDATE_S) "s" } hx-select="#data"
            hx-target="this" hx-swap="outerHTML" { (data) }
    };
    still(s.title, s.name, who, &content)
}

/// Asks for a token. `has_tokens`: whether anybody has one, or why that is not known.
pub fn login(next: &str, wrong: Option<&str>, has_tokens: &Result<bool, String>) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            (head("Log in"))
            body {
                main id="view" {
                    h1 { "Nacre: log in" }
                    @if let Some(w) = wrong { p class="note bad" role="alert" { (w) } }
                    @match has_tokens {
                        Err(e) => { p class="note bad" role="alert" { (e) } }
                        Ok(false) => {
                            p class="note warn" {
                                "Nobody has a token yet. Make one on this host, as root: "
                                code { "nacre dashboard token add NAME --role operator" }
                            }
                        }
                        Ok(true) => {}
                    }
                    form class="box" method="post" action="/login" {
                        input type="hidden" name="next" value=(next);
                        label for="token" { "Token" }
                        input id="token" name="token" type="password" autocomplete="current-password" required
                            spellcheck="false";
                        p { button class="go" type="submit" { "Log in" } }
                    }
                    p class="dim" {
                        "A token comes from " code { "nacre dashboard token add" } ". It is told once; only its digest is kept."
                    }
                }
            }
        }
    }
}
