//! What an operator is about to do: what it means, and the form that does it.

use super::frame::still;
use crate::act::Action;
use crate::app::Fields;
use crate::session::Who;
use maud::{Markup, html};

/// The page that those of actions belong to in the navigation.
const CURRENT: &str = "actions";

/// Asks for confirmation. `wrong`: why it was not done.
pub fn form(a: &Action, who: &Who, given: &Fields, wrong: Option<&str>) -> Markup {
    let value = |name: &str| given.get(name).map_or("", String::as_str);
    let content = html! {
        @if let Some(w) = wrong { p class="note bad" role="alert" { "Not done: " (w) } }
        p class="note warn" { (a.about) }
        p { "The same by a command: " code { (a.command) } }
        form class="box" method="post" action={ "/act/" (a.name) } {
            @if let Some(csrf) = &who.csrf { input type="hidden" name="csrf" value=(csrf); }
            @for f in a.fields {
                @if f.is_choice {
                    p {
                        input type="checkbox" id=(f.name) name=(f.name) checked[value(f.name) == "on"];
                        " " label class="inline" for=(f.name) { (f.label) }
                    }
                } @else {
                    label for=(f.name) { (f.label) }
                    input id=(f.name) name=(f.name) required value=(value(f.name)) placeholder=(f.hint)
                        autocomplete="off" spellcheck="false" autocapitalize="off";
                }
            }
            p {
                button class="go" type="submit" { "Yes: " (a.title) } " "
                a class="button" href={ "/" (CURRENT) } { "No" }
            }
        }
    };
    still(a.title, CURRENT, who, &content)
}

/// For who is no operator.
pub fn may_not(a: &Action, who: &Who) -> Markup {
    let content = html! {
        p class="note bad" role="alert" {
            "The token '" (who.name) "' is a viewer's: it sees everything and changes nothing. An operator's token comes from "
            code { "nacre dashboard token add NAME --role operator" }
        }
        p { "The same by a command: " code { (a.command) } }
    };
    still(a.title, CURRENT, who, &content)
}

pub fn done(a: &Action, who: &Who, object: &str, said: &str) -> Markup {
    let content = html! {
        p class="note ok" role="status" { "Done: " (object) }
        pre { (said) }
        p { a class="button" href={ "/" (CURRENT) } { "Back to the actions" } }
    };
    still(a.title, CURRENT, who, &content)
}
