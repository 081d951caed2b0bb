//! Directories on a file system in memory that may end after any step.

use super::account::{Account, Of};
use super::list::Row;
use super::make::{Came, Found, NEW, Site, make};
use super::rules::{self, Limits, Plan, Settings};
use super::{list, login};
use crate::failure::Failure;
use model::mutex::Mutex;
use model::quota::{LimitChange, LimitOrder, Standing, Standings};
use model::usage::{QuotaId, QuotaType, Usage};
use model::{Errno, LayoutSpec};
use std::collections::BTreeMap;
use std::ffi::OsString;

/// A directory in memory.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Dir {
    is_folder: bool,
    uid: u32,
    gid: u32,
    mode: u32,
    project: u32,
    layout: Option<LayoutSpec>,
    limits: Option<Limits>,
}

impl Dir {
    fn of(uid: u32) -> Dir {
        Dir { is_folder: true, uid, gid: uid, mode: 0o700, project: 0, layout: None, limits: None }
    }
}

#[derive(Default)]
struct State {
    dirs: BTreeMap<String, Dir>,
    limits: Vec<LimitOrder>,
    /// Steps until it is killed.
    left: usize,
    /// Somebody else makes the directory right before it is renamed.
    raced: Option<Dir>,
}

/// What a plan asks for is looked at after each step, unless somebody else made what is there.
struct Fake {
    plan: Plan,
    is_strange: bool,
    state: Mutex<State>,
}

impl Fake {
    fn new(plan: &Plan) -> Fake {
        Fake {
            plan: plan.clone(),
            is_strange: false,
            state: Mutex::new(State { left: usize::MAX, ..State::default() }),
        }
    }

    fn step<T>(&self, f: impl FnOnce(&mut State) -> Result<T, Failure>) -> Result<T, Failure> {
        let mut s = self.state.lock();
        if s.left == 0 {
            return Err(Failure::op("killed", "it", Errno::EINTR));
        }
        s.left -= 1;
        let out = f(&mut s);
        let (limits, plan) = (s.limits.clone(), &self.plan);
        for (name, d) in s.dirs.iter().filter(|_| !self.is_strange) {
            let lets_in = d.uid == plan.uid || d.mode & 0o077 != 0;
            let is_limited = match &plan.limits {
                Some(Limits::Owner(order)) => limits.contains(order),
                own => d.limits == *own,
            };
            let is_right =
                is_limited && plan.project.is_none_or(|p| p == d.project) && d.layout == plan.layout;
            assert!(!lets_in || is_right, "{name} lets somebody in without limits: {d:?}");
            let is_done = d.uid == plan.uid && d.gid == plan.gid && d.mode == plan.mode;
            assert!(name.starts_with(NEW) || is_done, "{name} is seen half-made: {d:?}");
        }
        out
    }

    fn dir<T>(&self, name: &str, f: impl FnOnce(&mut Dir) -> T) -> Result<T, Failure> {
        let gone = || Failure::op("cannot find", name, Errno::ENOENT);
        self.step(|s| s.dirs.get_mut(name).map(f).ok_or_else(gone))
    }

    fn only(&self) -> Dir {
        let s = self.state.lock();
        assert_eq!(s.dirs.len(), 1, "nothing is left behind: {:?}", s.dirs);
        s.dirs[&self.plan.name].clone()
    }
}

impl Site for Fake {
    fn find(&self, name: &str) -> Result<Option<Found>, Failure> {
        let found = |d: &Dir| Found { is_folder: d.is_folder, uid: d.uid, gid: d.gid, mode: d.mode };
        self.step(|s| Ok(s.dirs.get(name).map(found)))
    }

    fn make(&self, name: &str) -> Result<bool, Failure> {
        self.step(|s| Ok(!s.dirs.contains_key(name) && s.dirs.insert(name.into(), Dir::of(0)).is_none()))
    }

    fn set_limits(&self, order: &LimitOrder) -> Result<(), Failure> {
        self.step(|s| {
            s.limits.push(order.clone());
            Ok(())
        })
    }

    fn limit_directory(&self, name: &str, space: LimitChange, inodes: LimitChange) -> Result<(), Failure> {
        self.dir(name, |d| d.limits = Some(Limits::Directory { space, inodes }))
    }

    fn set_project(&self, name: &str, project: u32) -> Result<(), Failure> {
        self.dir(name, |d| d.project = project)
    }

    fn set_layout(&self, name: &str, layout: &LayoutSpec) -> Result<(), Failure> {
        self.dir(name, |d| d.layout = Some(layout.clone()))
    }

    fn set_owner(&self, name: &str, uid: u32, gid: u32) -> Result<(), Failure> {
        self.dir(name, |d| (d.uid, d.gid) = (uid, gid))
    }

    fn set_mode(&self, name: &str, mode: u32) -> Result<(), Failure> {
        self.dir(name, |d| d.mode = mode)
    }

    fn rename(&self, old: &str, new: &str) -> Result<bool, Failure> {
        self.step(|s| {
            if let Some(d) = s.raced.take() {
                s.dirs.insert(new.into(), d);
            }
            if s.dirs.contains_key(new) {
                return Ok(false);
            }
            let d = s.dirs.remove(old).ok_or_else(|| Failure::op("cannot rename", old, Errno::ENOENT))?;
            s.dirs.insert(new.into(), d);
            Ok(true)
        })
    }

    fn remove_empty(&self, name: &str) -> Result<(), Failure> {
        self.step(|s| {
            s.dirs.remove(name);
            Ok(())
        })
    }
}

fn anna() -> Account {
    Account { name: "anna".into(), of: Of::User, id: 70_001, gid: Some(70_100), groups: vec!["staff".into()] }
}

fn settings(all: &[(&str, &str)]) -> Settings {
    let mut s = Settings::default();
    for (key, value) in all {
        assert!(s.set(key, value).unwrap(), "{key}");
    }
    s
}

fn plan() -> Plan {
    let all = [("under", "/m/home"), ("space", "900G:1T"), ("inodes", "1M"), ("project", "{id}")];
    let more = [("pool", "fast"), ("stripe", "-c 4 -S 4M"), ("mode", "0750")];
    settings(&[&all[..], &more[..]].concat()).plan(&anna()).unwrap()
}

#[test]
fn settings_become_a_plan() {
    let p = plan();
    let of = QuotaId { of: QuotaType::Project, id: 70_001 };
    let space = LimitChange { soft: Some(900 << 30), hard: Some(1 << 40) };
    let inodes = LimitChange { soft: Some(0), hard: Some(1 << 20) };
    let owner = Limits::Owner(LimitOrder::Own { of, space, inodes });
    assert_eq!(p.limits, Some(owner), "limits are the project's");
    assert_eq!(
        (p.name.as_str(), p.uid, p.gid, p.mode, p.project),
        ("anna", 70_001, 70_100, 0o750, Some(70_001))
    );
    let layout = p.layout.unwrap();
    assert_eq!((layout.pool.as_str(), layout.stripe_count, layout.stripe_size), ("fast", 4, 4 << 20));

    let group = Account { name: "proj".into(), of: Of::Group, id: 800, gid: Some(800), groups: vec![] };
    let g = settings(&[("under", "/m"), ("name", "g-{name}.{id}"), ("space", "1T")]).plan(&group).unwrap();
    assert_eq!((g.name.as_str(), g.uid, g.gid, g.mode), ("g-proj.800", 0, 800, 0o2770));
    let of = QuotaId { of: QuotaType::Group, id: 800 };
    assert!(matches!(g.limits, Some(Limits::Owner(LimitOrder::Own { of: o, .. })) if o == of));
    for (all, why) in [
        (&[("space", "1T")][..], "where?"),
        (&[("under", "/m"), ("limits", "project"), ("space", "1T")], "limits of a project need one"),
        (&[("under", "/m"), ("limits", "user")], "there are none"),
    ] {
        let told = settings(all).plan(&anna()).expect_err("it makes no sense").to_string();
        assert!(told.contains(why), "{told}");
    }
    let stranger = Account { gid: None, ..anna() };
    assert!(settings(&[("under", "/m")]).plan(&stranger).unwrap_err().to_string().contains("--gid GROUP"));
    assert!(settings(&[("under", "/m")]).plan(&Account { id: 0, ..anna() }).is_err(), "root has no limits");
}

#[test]
fn whenever_it_is_killed_a_second_run_completes_it_and_nobody_writes_without_limits() {
    completes(&plan());
    let own = [
        ("under", "/m/home"),
        ("space", "1T"),
        ("limits", "directory"),
        ("mode", "0750"),
        ("project", "{id}"),
    ];
    let own = settings(&own).plan(&anna()).unwrap();
    assert!(matches!(own.limits, Some(Limits::Directory { .. })));
    completes(&own);
}

fn completes(p: &Plan) {
    let mut killed = 0;
    for steps in 0.. {
        let site = Fake::new(p);
        site.state.lock().left = steps;
        let done = make(p, &site, steps % 2 == 0);
        site.state.lock().left = usize::MAX;
        if let Ok(came) = done {
            assert_eq!(came, Came::Made);
            break;
        }
        killed += 1;
        let again = make(p, &site, steps % 2 == 1).unwrap();
        assert!(matches!(again, Came::Made | Came::Kept), "{again:?}");
        let d = site.only();
        assert_eq!((d.uid, d.gid, d.mode, d.project), (70_001, 70_100, 0o750, 70_001));
        assert_eq!(d.layout, p.layout);
    }
    assert!(killed >= 7, "it has so many steps: {killed}");
}

#[test]
fn what_is_there_is_set_kept_or_refused() {
    let p = plan();
    let with = |d: Dir, is_login| {
        let site = Fake { is_strange: true, ..Fake::new(&p) };
        site.state.lock().dirs.insert("anna".into(), Dir { gid: p.gid, mode: p.mode, ..d });
        make(&p, &site, is_login)
    };
    assert_eq!(with(Dir::of(70_001), true).unwrap(), Came::Kept);
    let refused = |d, is_login| with(d, is_login).expect_err("it is somebody else's").to_string();
    assert!(
        refused(Dir::of(5), false)
            .contains("cannot use '/m/home/anna': File exists (17): it belongs to user 5")
    );
    assert!(
        refused(Dir::of(0), true).contains("it belongs to user 0"),
        "no login takes what was given to root"
    );
    assert!(refused(Dir { is_folder: false, ..Dir::of(70_001) }, false).contains("it is no directory"));

    let site = Fake { is_strange: true, ..Fake::new(&p) };
    site.state.lock().dirs.insert(format!("{NEW}anna"), Dir::of(66));
    let told = make(&p, &site, false).unwrap_err().to_string();
    assert!(
        told.contains("/m/home/.nacre-userdir-new.anna") && told.contains("somebody else made it"),
        "{told}"
    );
}

#[test]
fn two_at_once_make_one_directory() {
    let p = plan();
    let site = Fake::new(&p);
    let made = Dir { gid: p.gid, mode: p.mode, project: 70_001, layout: p.layout.clone(), ..Dir::of(70_001) };
    site.state.lock().raced = Some(made.clone());
    assert_eq!(make(&p, &site, true).unwrap(), Came::Kept);
    assert_eq!(site.only(), made);
}

const RULES: &str = "\
under = /m/home
space = 100G
[staff]
group = staff, admins
space = 1T
stripe = -c 2

[scratch]   # for everybody
under = /m/scratch
project = {id}

[students]
user = s*, anna

[projects]
of = group
under = /m/projects
group = p_*
mode = 2775
";

#[test]
fn the_first_rule_of_each_place_that_fits_counts() {
    let rules = rules::parse(RULES).unwrap();
    let names = |mut a: Account| -> Vec<String> {
        rules::fitting(&rules, &mut a).iter().map(|r| r.name.clone()).collect()
    };
    assert_eq!(names(anna()), ["staff", "scratch"]);
    assert_eq!(names(Account { groups: vec!["users".into()], ..anna() }), ["scratch", "students"]);
    let group = Account { name: "p_x".into(), of: Of::Group, id: 9, gid: Some(9), groups: vec![] };
    assert_eq!(names(group.clone()), ["projects"]);
    assert!(names(Account { name: "q".into(), ..group }).is_empty());
    let hard = |n: usize| rules[n].settings.space.unwrap().hard.unwrap();
    assert_eq!((hard(0), hard(2)), (1 << 40, 100 << 30), "what stands first is of all rules");
    let lines: Vec<String> = rules.iter().map(super::rule_line).collect();
    assert_eq!(
        lines,
        [
            "staff: /m/home/{name} of each user in group staff or admins, space 1.0T",
            "scratch: /m/scratch/{name} of each user, space 100.0G",
            "students: /m/home/{name} of each user named s* or anna, space 100.0G",
            "projects: /m/projects/{name} of each group in group p_*, space 100.0G",
        ]
    );
}

#[test]
fn the_example_of_the_manual_is_right() {
    let page = include_str!("../../../../../docs/man/nacre-userdir.8");
    let example = page.split(".SH EXAMPLES\n.nf\n").nth(1).and_then(|t| t.split(".fi\n").next());
    let all = rules::parse(&example.expect("an example").replace("\\-", "-")).unwrap();
    let names: Vec<&str> = all.iter().map(|r| r.name.as_str()).collect();
    assert_eq!(names, ["staff", "everybody", "scratch", "projects"]);
}

#[test]
fn every_mistake_in_rules_is_told_with_its_line() {
    for (text, line, why) in [
        ("", 1, "there is no rule"),
        ("user = x\n", 1, "cannot stand before the first rule"),
        ("[a]\nmode = 0700\n", 1, "rule 'a': it needs 'under = DIR'"),
        ("[a]\nunder = m\n", 2, "'m' is no path from / on"),
        ("[a]\nunder = /m\nmode = 8\n", 3, "'8' is no mode"),
        ("[a]\nunder = /m\nspace = lots\n", 3, "'lots' is no limit"),
        ("[a]\nunder = /m\nspace > 1T\n", 3, "'space' has '=' behind it, not '>'"),
        ("[a]\nunder = /m\nmode = 700\nmode = 750\n", 4, "'mode' is said twice"),
        ("[a]\nunder = /m\ncolour = red\n", 3, "'colour' is nothing that a rule has"),
        ("[a]\nunder = /m\nname = a/b\n", 3, "'a/b' is no name of a directory"),
        ("[a]\nunder = /m\nstripe = -c many\n", 3, "bad value 'many' of --stripe-count"),
        ("[a]\nunder = /m\nstripe = x\n", 3, "'x' is no option of lfs setstripe"),
        ("[a]\nunder = /m\npool = not/one\n", 3, "cannot use pool 'not/one'"),
        ("[a]\nunder = /m\nlimits = project\nspace = 1\n", 1, "limits of a project need one"),
        ("[a]\nunder = /m\nproject = no-such-project\n", 3, "there is no project"),
        ("[a]\nunder = /m\nof = host\n", 3, "of = user, or of = group"),
        ("[a]\nunder = /m\nof = group\nuser = x\n", 1, "'user' is for directories of users"),
        ("[a]\nunder = /m\nof = group\nlimits = user\nspace = 1\n", 1, "has no user whose limits"),
        ("[a]\nunder = /m\n[a]\nunder = /n\n", 3, "two rules of the name 'a'"),
    ] {
        let wrong = rules::parse(text).expect_err(text);
        let found = wrong.iter().any(|m| m.line == line && m.text.contains(why));
        assert!(found, "{text}: {wrong:?}");
    }
}

#[test]
fn directories_are_listed_with_limits() {
    let of = |hard| Standing { limit: model::quota::Limit { soft: 0, hard }, ..Standing::default() };
    let limits = Standings { space: of(1 << 40), inodes: of(1000), ..Standings::default() };
    let usage = Usage { inodes: 12, blocks: 5 << 11 };
    let path = "/m/home/anna".into();
    let (uid, gid, mode, project) = (70_001, 70_100, 0o700, 0);
    let ready = Row { path, uid, gid, mode, project, quota: None, state: "ready", usage, limits };
    let half = Row {
        path: "/m/home/bob".into(),
        uid: 0,
        project: 7,
        state: "half-made",
        usage: Usage::default(),
        limits: Standings::default(),
        ..ready.clone()
    };
    let expected = "\
User             Group        Mode  Project     Used    Limit   Inodes    Limit State        Directory
70001            70100        0700        0     5.0M     1.0T       12     1000 ready        /m/home/anna
root             70100        0700        7        0        -        0        - half-made    /m/home/bob
";
    assert_eq!(list::text(&[ready.clone(), half.clone()]), expected);
    let of = |r: &Row| (r.limited().of, r.limited().id);
    assert_eq!((of(&ready), of(&half)), ((QuotaType::User, 70_001), (QuotaType::Project, 7)));
    let own = QuotaId { of: QuotaType::Directory, id: 3 };
    assert_eq!(Row { quota: Some(own), ..half }.limited(), own, "its own limits come first");
    let shown = list::json(&[ready]);
    let first = &shown["directories"][0];
    assert_eq!((&first["mode"], &first["bytes_limit"]["hard"]), (&"0700".into(), &(1u64 << 40).into()));
}

#[test]
fn a_login_does_something_at_the_begin_of_a_session_alone() {
    assert_eq!(login::who(Some("open_session"), Some("anna")).unwrap().as_deref(), Some("anna"));
    for other in ["close_session", "auth", "account", "password"] {
        assert_eq!(login::who(Some(other), Some("anna")).unwrap(), None);
    }
    assert!(login::who(Some("open_session"), None).is_err());
    assert!(login::who(None, Some("anna")).unwrap_err().to_string().contains("pam_exec(8)"));
}

#[test]
fn options_are_checked() {
    let of = |args: &[&str]| super::command(&args.iter().map(OsString::from).collect::<Vec<_>>());
    for (args, part) in [
        (&[][..], "say what"),
        (&["make"], "'make' is none"),
        (&["add"], "whose directory? --user or --group"),
        (&["add", "--user", "root", "--group", "root"], "a user's or a group's"),
        (&["add", "--user", "no-such-user"], "unknown user 'no-such-user'"),
        (&["add", "--user", "root", "--yes"], "'--yes' says nothing to 'nacre userdir add'"),
        (&["add", "--user", "bin", "--mode", "9"], "--mode: '9' is no mode"),
        (&["add", "--user", "bin", "--under", "/m", "a/b"], "with --under DIR is a name, not 'a/b'"),
        (&["add", "--user", "root", "--under", "/tmp"], "root and its group have no limits"),
        (&["add", "--user", "bin", "a", "b"], "'b' is one too many"),
        (&["remove"], "which directory?"),
        (&["remove", "--user", "bin", "a", "b"], "named by their paths alone"),
        (&["check", "/nowhere/rules"], "cannot read '/nowhere/rules': No such file or directory"),
        (&["login", "--timeout", "0"], "bad value '0' of --timeout"),
        (&["list", "--file", "/nowhere/rules"], "cannot read '/nowhere/rules'"),
    ] {
        let told = of(args).expect_err("it is wrong").to_string();
        assert!(told.contains(part), "{args:?}: {told}");
    }
    assert_eq!(of(&["add", "--user", "bin", "--under", "/", "--file", "/dev/null"]).ok(), None);
}
