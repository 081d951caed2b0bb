//! How servers and mounts are started and stopped, as lines of a shell: by systemd's units, or as plain
//! processes.

use super::file::{Cluster, Host, PlannedMount, PlannedTarget, Role, Service};
use crate::shell::quoted;
use model::limits;
use serde_json::json;

/// A file that a host is to have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlannedFile {
    pub path: String,
    pub text: String,
}

impl PlannedFile {
    /// The line that writes it.
    pub fn line(&self) -> String {
        let lines: Vec<String> = self.text.lines().map(quoted).collect();
        format!("printf '%s\\n' {} | install -D -m 644 /dev/stdin {}", lines.join(" "), quoted(&self.path))
    }
}

/// The unit that serves a file system's targets of one host.
pub fn unit(c: &Cluster) -> String {
    format!("nacre-target@{}", c.fsname)
}

/// Where that unit finds its folders.
pub fn unit_file(c: &Cluster) -> String {
    format!("/etc/nacre/{}", c.fsname)
}

/// A path as systemd-escape(1) makes a unit's name of it.
fn escaped(path: &str) -> String {
    let mut out = String::new();
    for (i, b) in path.trim_matches('/').bytes().enumerate() {
        match b {
            b'/' => out.push('-'),
            b'.' if i == 0 => out.push_str("\\x2e"),
            b if b.is_ascii_alphanumeric() || b":_.".contains(&b) => out.push(char::from(b)),
            b => out.push_str(&format!("\\x{b:02x}")),
        }
    }
    out
}

/// The unit of a mount.
pub fn mount_unit(m: &PlannedMount) -> String {
    format!("{}.mount", escaped(&m.dir))
}

/// Options of nacred on a host.
fn options(c: &Cluster, host: &Host) -> String {
    let mut words = vec!["--nid".to_string(), host.nids.join(",")];
    if c.port != limits::PORT {
        words.extend(["--port".to_string(), c.port.to_string()]);
    }
    words.extend(c.metrics_of(host).into_iter().flat_map(|at| ["--metrics".to_string(), at]));
    words.join(" ")
}

/// What the unit of a host reads, with these targets.
pub fn served_file(c: &Cluster, host: &Host, targets: &[&PlannedTarget]) -> PlannedFile {
    let dirs: Vec<&str> = targets.iter().map(|t| t.dir.as_str()).collect();
    let text = format!("TARGETS=\"{}\"\nOPTIONS=\"{}\"\n", dirs.join(" "), options(c, host));
    PlannedFile { path: unit_file(c), text }
}

/// Options of a mount on a host: its own, and what the file says elsewhere.
pub fn mount_options(c: &Cluster, host: &Host, m: &PlannedMount) -> String {
    let number = c.mounts_of(&host.name).position(|x| x == m).unwrap_or(0);
    let port = (c.port != limits::PORT).then(|| format!("port={}", c.port));
    let metrics = c.metrics_of_mount(host, number).map(|at| format!("metrics={at}"));
    let own = Some(m.options.clone()).filter(|o| !o.is_empty());
    [own, port, metrics].into_iter().flatten().collect::<Vec<_>>().join(",")
}

fn mount_file(c: &Cluster, host: &Host, m: &PlannedMount) -> PlannedFile {
    let extra = mount_options(c, host, m);
    let options = if extra.is_empty() { "_netdev".to_string() } else { format!("_netdev,{extra}") };
    let text = format!(
        "[Unit]\nDescription=Nacre file system {}\nWants=network-online.target\nAfter=network-online.target {}.service\n\n\
         [Mount]\nWhat={}\nWhere={}\nType=nacre\nOptions={options}\n\n[Install]\nWantedBy=remote-fs.target\n",
        c.fsname,
        unit(c),
        c.source(m),
        m.dir
    );
    PlannedFile { path: format!("/etc/systemd/system/{}", mount_unit(m)), text }
}

/// Where Prometheus finds the metrics of everybody (`file_sd_configs`).
pub fn monitor_file(c: &Cluster) -> PlannedFile {
    let serves = |h: &&Host| c.may_serve(&h.name).next().is_some();
    let servers = c.hosts.iter().filter(serves).filter_map(|h| Some((c.metrics_of(h)?, h, "server")));
    let mounts = c.hosts.iter().flat_map(|h| {
        (0..c.mounts_of(&h.name).count()).filter_map(move |n| Some((c.metrics_of_mount(h, n)?, h, "client")))
    });
    let one = |(at, h, role): (String, &Host, &str)| {
        json!({"targets": [at], "labels": {"fsname": c.fsname, "host": h.name, "role": role,
               "location": h.location.clone().unwrap_or_default()}})
    };
    let all: Vec<_> = servers.chain(mounts).map(one).collect();
    PlannedFile { path: c.monitor_file.clone(), text: format!("{:#}\n", json!(all)) }
}

/// All files that a host is to have, but for [`served_file`], which depends on what it serves at the moment.
pub fn own_files(c: &Cluster, host: &Host) -> Vec<PlannedFile> {
    let mut out = Vec::new();
    if c.service == Service::Systemd {
        out.extend(c.mounts_of(&host.name).map(|m| mount_file(c, host, m)));
    }
    if host.has(Role::Monitor) {
        out.push(monitor_file(c));
    }
    out
}

/// Those whose text is asked for.
pub fn files_of(c: &Cluster, host: &Host) -> Vec<PlannedFile> {
    let mut out = own_files(c, host);
    let homes: Vec<&PlannedTarget> = c.homes(&host.name).collect();
    if c.service == Service::Systemd && !homes.is_empty() {
        out.push(served_file(c, host, &homes));
    }
    out
}

fn folders(targets: &[&PlannedTarget]) -> String {
    targets.iter().map(|t| quoted(&t.dir)).collect::<Vec<_>>().join(" ")
}

/// Has a host serve these targets, of which none is served there yet.
pub fn start(c: &Cluster, host: &Host, targets: &[&PlannedTarget]) -> String {
    match c.service {
        Service::Systemd => {
            format!("{} && systemctl enable --now {}", served_file(c, host, targets).line(), unit(c))
        }
        Service::Process => {
            let options = quoted(&options(c, host));
            let port = if c.port == limits::PORT { String::new() } else { format!("--port {} ", c.port) };
            let log = format!("/var/log/nacre/{}.log", c.fsname);
            format!("nacre ha start {port}--log {log} --options {options} {}", folders(targets))
        }
    }
}

/// The same, of a server that runs already with less, or otherwise: `running` are the folders it has.
pub fn restart(c: &Cluster, host: &Host, targets: &[&PlannedTarget], running: &[String]) -> String {
    match c.service {
        Service::Systemd => {
            format!("{} && systemctl restart {}", served_file(c, host, targets).line(), unit(c))
        }
        Service::Process => {
            let old: Vec<String> = running.iter().map(|d| quoted(d)).collect();
            format!("nacre ha stop {} && {}", old.join(" "), start(c, host, targets))
        }
    }
}

/// Ends the server of these folders on a host, for good.
pub fn stop(c: &Cluster, running: &[String]) -> String {
    let dirs: Vec<String> = running.iter().map(|d| quoted(d)).collect();
    let stop = format!("nacre ha stop {}", dirs.join(" "));
    match c.service {
        Service::Systemd => format!("{{ systemctl disable --now {} 2>/dev/null; {stop}; }}", unit(c)),
        Service::Process => stop,
    }
}

/// Mounts it on a host.
pub fn mount(c: &Cluster, host: &Host, m: &PlannedMount) -> String {
    let dir = quoted(&m.dir);
    match c.service {
        Service::Systemd => {
            let file = mount_file(c, host, m);
            let unit = quoted(&mount_unit(m));
            let write = file.line();
            format!("mkdir -p {dir} && {write} && systemctl daemon-reload && systemctl enable --now {unit}")
        }
        Service::Process => {
            let extra = mount_options(c, host, m);
            let options = if extra.is_empty() { "retry=20".to_string() } else { format!("retry=20,{extra}") };
            format!("mkdir -p {dir} && mount.nacre {} {dir} -o {}", quoted(&c.source(m)), quoted(&options))
        }
    }
}

/// Takes a mount away.
pub fn unmount(c: &Cluster, m: &PlannedMount) -> String {
    let dir = quoted(&m.dir);
    match c.service {
        Service::Systemd => {
            let unit = mount_unit(m);
            format!(
                "systemctl disable --now {} 2>/dev/null; if mountpoint -q {dir}; then umount {dir}; fi; rm -f {}",
                quoted(&unit),
                quoted(&format!("/etc/systemd/system/{unit}"))
            )
        }
        Service::Process => format!("umount {dir}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_named_as_systemd_names_them() {
        // What `systemd-escape --path` of version 252 prints.
        for (path, name) in [
            ("/mnt/demo", "mnt-demo"),
            ("/mnt/my-fs", "mnt-my\\x2dfs"),
            ("/.hidden/a b", "\\x2ehidden-a\\x20b"),
            ("/srv/x_1:2.3", "srv-x_1:2.3"),
        ] {
            assert_eq!(escaped(path), name);
        }
    }

    #[test]
    fn a_file_is_written_by_a_line_that_keeps_every_character() {
        let f = PlannedFile { path: "/etc/nacre/demo".into(), text: "A=\"x y\"\nB='q'\n".into() };
        assert_eq!(
            f.line(),
            "printf '%s\\n' 'A=\"x y\"' 'B='\\''q'\\''' | install -D -m 644 /dev/stdin /etc/nacre/demo"
        );
    }
}
