//! Hosts that are reached by ssh(1): a daemon in each one's namespaces, keys and known hosts of the test.

use crate::cluster::{kit, ok_within};
use crate::hosts::Hosts;
use anyhow::Result;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// What is the same for all hosts.
pub struct Sshd {
    dir: PathBuf,
}

impl Sshd {
    /// `bin` gets an `ssh` that goes by the test's keys, from the network of the namespace `network`.
    pub fn new(dir: &Path, bin: &Path, network: &str) -> Result<Sshd> {
        fs::create_dir(dir)?;
        let s = Sshd { dir: dir.to_path_buf() };
        for key in ["host", "user"] {
            let mut c = Command::new("ssh-keygen");
            c.args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f"]).arg(dir.join(key));
            ok_within(&mut c, LIMIT)?;
        }
        fs::copy(dir.join("user.pub"), dir.join("authorized_keys"))?;
        fs::write(dir.join("known_hosts"), "")?;
        let at = dir.display();
        let user =
            format!("IdentityFile {at}/user\nIdentitiesOnly yes\nUserKnownHostsFile {at}/known_hosts\n");
        fs::write(dir.join("ssh_config"), user)?;
        let ssh = format!("#!/bin/sh\nexec nsenter --net={network} /usr/bin/ssh -F {at}/ssh_config \"$@\"\n");
        fs::write(bin.join("ssh"), ssh)?;
        ok_within(Command::new("chmod").arg("755").arg(bin.join("ssh")), LIMIT)?;
        Ok(s)
    }

    /// Lines of a shell in the host's namespaces, which start its daemon. Programs of `bin` are found there.
    pub fn started(&self, number: u32, bin: &Path) -> Result<String> {
        let (at, bin, address) = (self.dir.display(), bin.display(), Hosts::address(number));
        let config = format!(
            "ListenAddress {address}\nHostKey {at}/host\nAuthorizedKeysFile {at}/authorized_keys\n\
             PermitRootLogin prohibit-password\nPasswordAuthentication no\nUsePAM no\nStrictModes no\n\
             PidFile none\nPrintMotd no\nSetEnv PATH={bin}:/usr/sbin:/usr/bin:/sbin:/bin\n"
        );
        let file = self.dir.join(format!("sshd_config.{number}"));
        fs::write(&file, config)?;
        // It wants a user of its own; a root without a password is not locked.
        Ok(format!(
            "mkdir -p /run/sshd; chmod 755 /run/sshd
             grep -v '^sshd:' /etc/passwd >{at}/passwd.{number}
             echo 'sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin' >>{at}/passwd.{number}
             sed 's/^root:[^:]*:/root:*:/' /etc/shadow >{at}/shadow.{number}
             mount --bind {at}/passwd.{number} /etc/passwd; mount --bind {at}/shadow.{number} /etc/shadow
             {} -f {}\n",
            kit("sshd").display(),
            file.display()
        ))
    }

    /// An administrator has looked at the host's key.
    pub fn trust(&self, number: u32) -> Result<()> {
        let key = fs::read_to_string(self.dir.join("host.pub"))?;
        self.append("known_hosts", &format!("{} {key}", Hosts::address(number)))
    }

    /// The name is that of a host.
    pub fn named(&self, name: &str, number: u32) -> Result<()> {
        self.append("ssh_config", &format!("Host {name}\n  HostName {}\n", Hosts::address(number)))
    }

    fn append(&self, name: &str, text: &str) -> Result<()> {
        let mut file = fs::File::options().append(true).open(self.dir.join(name))?;
        Ok(file.write_all(text.as_bytes())?)
    }
}
