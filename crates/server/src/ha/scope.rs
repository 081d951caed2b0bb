//! Several targets at once, by the words that operators of Heartbeat have for it (`hb_takeover`,
//! `hb_standby`): `all`, `foreign`, `local`, `failback`. Whichever engine moves them, the choice is made
//! here.

/// Which targets, as seen from one host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    All,
    /// Those whose home is another host.
    Foreign,
    /// Those whose home is this host.
    Local,
    /// Those that go home by it: `local` ones come, `foreign` ones leave.
    Failback,
}

pub const ONLY_FOR_SCOPES: &str =
    "--from is for all, foreign, local and failback: a target by its name goes home from wherever it is";

impl Scope {
    /// `None`: the word is a target's name.
    pub fn read(word: &str) -> Option<Scope> {
        match word {
            "all" => Some(Scope::All),
            "foreign" => Some(Scope::Foreign),
            "local" => Some(Scope::Local),
            "failback" => Some(Scope::Failback),
            _ => None,
        }
    }
}

/// A target as an engine has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placed {
    pub name: String,
    pub home: Option<String>,
    /// That may have it, those that it prefers first.
    pub hosts: Vec<String>,
    /// That has it.
    pub host: Option<String>,
}

/// One target and where it goes; with no host that could take it, `to` is `None`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Move {
    pub name: String,
    pub to: Option<String>,
}

/// What comes to `host`.
pub fn taken(all: &[Placed], scope: Scope, host: &str) -> Vec<Move> {
    let mut out = Vec::new();
    for p in all.iter().filter(|p| p.host.as_deref() != Some(host)) {
        let own = p.home.as_deref() == Some(host);
        let meant = match scope {
            Scope::All => true,
            Scope::Foreign => p.home.is_some() && !own,
            Scope::Local | Scope::Failback => own,
        };
        if meant && p.hosts.iter().any(|h| h == host) {
            out.push(Move { name: p.name.clone(), to: Some(host.to_string()) });
        }
    }
    assert!(out.len() <= all.len(), "a target moves once");
    out
}

/// What leaves `host`: targets of other hosts go home, its own ones to the first host of their list that
/// lives. One that has no home is at home everywhere.
pub fn given(all: &[Placed], scope: Scope, host: &str, lives: impl Fn(&str) -> bool) -> Vec<Move> {
    let mut out = Vec::new();
    for p in all.iter().filter(|p| p.host.as_deref() == Some(host)) {
        let own = p.home.as_deref().is_none_or(|h| h == host);
        let meant = match scope {
            Scope::All => true,
            Scope::Foreign | Scope::Failback => !own,
            Scope::Local => own,
        };
        if meant {
            let goes_home = p.home.as_ref().filter(|h| *h != host && lives(h));
            // Only who empties a host is content with a third one.
            let others = || p.hosts.iter().find(|h| *h != host && lives(h));
            let third = if own || scope == Scope::All { others() } else { None };
            out.push(Move { name: p.name.clone(), to: goes_home.or(third).cloned() });
        }
    }
    assert!(out.iter().all(|m| m.to.as_deref() != Some(host)), "what leaves a host does not stay there");
    out
}

/// Makes all the moves, one after the other, so that each interruption is short; those that fail are named.
pub fn make(moves: &[Move], mut one: impl FnMut(&str, &str) -> Result<(), String>) -> Result<(), String> {
    if moves.is_empty() {
        println!("no target is to move");
        return Ok(());
    }
    let mut failed = Vec::new();
    for (i, m) in moves.iter().enumerate() {
        if moves.len() > 1 {
            println!("{} of {}: {}", i + 1, moves.len(), m.name);
        }
        let done = match &m.to {
            Some(to) => one(&m.name, to),
            None => Err(format!("{}: no other host that may have it is there", m.name)),
        };
        if let Err(why) = done {
            eprintln!("nacre ha: {why}");
            failed.push(m.name.as_str());
        }
    }
    assert!(failed.len() <= moves.len(), "a move fails once");
    if failed.is_empty() {
        return Ok(());
    }
    Err(format!("{} of {} targets did not move: {}", failed.len(), moves.len(), failed.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(name: &str, hosts: &[&str], host: &str) -> Placed {
        Placed {
            name: name.into(),
            home: Some(hosts[0].into()),
            hosts: hosts.iter().map(|h| h.to_string()).collect(),
            host: Some(host.into()),
        }
    }

    /// Of a and of b one at home and one at the other, and one that is not for a.
    fn pair() -> Vec<Placed> {
        vec![
            placed("a-home", &["a", "b"], "a"),
            placed("a-away", &["a", "b"], "b"),
            placed("b-home", &["b", "a"], "b"),
            placed("b-away", &["b", "a"], "a"),
            placed("b-only", &["b", "c"], "b"),
        ]
    }

    fn words(moves: &[Move]) -> String {
        let word = |m: &Move| format!("{}>{}", m.name, m.to.as_deref().unwrap_or("-"));
        moves.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_takeover_means_what_hb_takeover_means() {
        let got = |scope: &str, host: &str| words(&taken(&pair(), Scope::read(scope).unwrap(), host));
        assert_eq!(got("all", "a"), "a-away>a b-home>a");
        assert_eq!(got("local", "a"), "a-away>a");
        assert_eq!(got("failback", "a"), "a-away>a");
        assert_eq!(got("foreign", "a"), "b-home>a");
        assert_eq!(got("foreign", "b"), "a-home>b");
        assert_eq!(Scope::read("demo-OST0000"), None);
    }

    #[test]
    fn a_giveback_means_what_hb_standby_means() {
        let got = |scope: &str, host: &str| {
            words(&given(&pair(), Scope::read(scope).unwrap(), host, |h| ["a", "b"].contains(&h)))
        };
        assert_eq!(got("all", "a"), "a-home>b b-away>b");
        assert_eq!(got("local", "a"), "a-home>b");
        assert_eq!(got("foreign", "a"), "b-away>b");
        assert_eq!(got("failback", "b"), "a-away>a");
        assert_eq!(got("all", "b"), "a-away>a b-home>a b-only>-", "c is not there");
        assert_eq!(got("all", "c"), "");
    }

    #[test]
    fn what_is_foreign_waits_for_its_home_and_a_host_is_emptied_all_the_same() {
        let all = [placed("t", &["x", "a", "c"], "a")];
        let lives = |h: &str| h != "x";
        assert_eq!(words(&given(&all, Scope::Failback, "a", lives)), "t>-");
        assert_eq!(words(&given(&all, Scope::All, "a", lives)), "t>c");
        let homeless = [Placed { home: None, ..all[0].clone() }];
        assert_eq!(words(&given(&homeless, Scope::Foreign, "a", lives)), "");
        assert_eq!(words(&given(&homeless, Scope::Local, "a", lives)), "t>c");
    }

    #[test]
    fn the_others_move_although_one_does_not() {
        let moves = ["x", "y", "z"].map(|n| Move { name: n.into(), to: (n != "z").then(|| "h".into()) });
        let mut tried = Vec::new();
        let said = make(&moves, |name, _| {
            tried.push(name.to_string());
            if name == "x" { Err("x cannot".into()) } else { Ok(()) }
        });
        assert_eq!(tried, ["x", "y"]);
        assert_eq!(said.unwrap_err(), "2 of 3 targets did not move: x, z");
        assert!(make(&[], |_, _| Err("nobody".into())).is_ok());
    }
}
