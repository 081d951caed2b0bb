//! Users and groups as this host knows them: from its files, and from whatever else it asks (LDAP, sssd).

use crate::failure::Failure;
use crate::names;
use model::Errno;
use world::sys::process;

/// A user, or a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Account {
    pub name: String,
    pub of: Of,
    /// Of the user or group.
    pub id: u32,
    /// That of new directories, if it is known.
    pub gid: Option<u32>,
    /// All groups of a user, the first one of them.
    pub groups: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Of {
    User,
    Group,
}

impl Of {
    pub fn word(self) -> &'static str {
        match self {
            Of::User => "user",
            Of::Group => "group",
        }
    }
}

/// Names go into paths and to programs: none of them may be taken for something else.
fn is_name(name: &str) -> bool {
    let fits = |c: char| !c.is_control() && !c.is_whitespace() && !"/:,".contains(c);
    (1..=128).contains(&name.len()) && !name.starts_with(['-', '.']) && name.chars().all(fits)
}

fn run(program: &str, args: &[&str]) -> Option<String> {
    process::run(program, args).ok().filter(|done| done.status == Some(0)).map(|done| done.out)
}

/// The fields of a user's or group's line.
fn line_of(database: &str, name: &str) -> Option<Vec<String>> {
    let file = world::sys::files::read_to_string(format!("/etc/{database}")).unwrap_or_default();
    let split = |l: &str| l.split(':').map(str::to_string).collect::<Vec<String>>();
    let here = file.lines().map(split).find(|f| f.first().is_some_and(|n| n == name));
    here.or_else(|| run("getent", &[database, name])?.lines().next().map(split))
}

impl Account {
    /// By name, or number.
    pub fn find(of: Of, name: &str) -> Result<Account, Failure> {
        if !is_name(name) {
            return Err(Failure::explained(
                "cannot use",
                name,
                Errno::EINVAL,
                "it is no name of a user or group",
            ));
        }
        let unknown = || Failure::op(&format!("unknown {}", of.word()), name, Errno::ENOENT);
        let database = if of == Of::User { "passwd" } else { "group" };
        let line = line_of(database, name);
        let field = |n: usize| line.as_ref().and_then(|f| f.get(n)?.parse::<u32>().ok());
        let id = field(2).or_else(|| name.parse().ok()).ok_or_else(unknown)?;
        let gid = match of {
            Of::User => field(3),
            Of::Group => Some(id),
        };
        // A number stands for the name that it has, if it has one.
        let named = line.as_ref().and_then(|f| f.first()).filter(|n| is_name(n)).cloned();
        let named = named.unwrap_or_else(|| match of {
            Of::User => names::user(id),
            Of::Group => names::group(id),
        });
        if named != name {
            return Account::find(of, &named);
        }
        Ok(Account { name: named, of, id, gid, groups: Vec::new() })
    }

    /// Learns the groups of a user, which may ask other hosts.
    pub fn learn_groups(&mut self) {
        if self.of == Of::User && self.groups.is_empty() {
            let words = run("id", &["-Gn", "--", &self.name]).unwrap_or_default();
            self.groups = words.split_whitespace().map(str::to_string).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_found_by_name_and_number() {
        let mut root = Account::find(Of::User, "root").unwrap();
        root.learn_groups();
        assert_eq!((root.id, root.gid, root.groups.first().map(String::as_str)), (0, Some(0), Some("root")));
        assert_eq!(Account::find(Of::User, "0").unwrap().name, "root", "a number has its name");
        let number = Account::find(Of::User, "3999999999").unwrap();
        assert_eq!((number.id, number.gid), (3_999_999_999, None));
        assert_eq!(Account::find(Of::Group, "root").unwrap().gid, Some(0));
        for bad in ["", "-x", "../x", "a/b", "a b", ".", "nobody-has-this-name"] {
            assert!(Account::find(Of::User, bad).is_err(), "{bad}");
        }
    }
}
