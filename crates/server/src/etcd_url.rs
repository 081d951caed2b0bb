//! The address of an etcd on a command line, and the password, which must not stand there: everybody on the
//! host can read command lines.

use etcd::{PASSWORD_FROM, Url};

const PASSWORD: &str = "NACRE_ETCD_PASSWORD";
const PASSWORD_FILE: &str = "NACRE_ETCD_PASSWORD_FILE";

/// As clap wants it. Of an address with a user the password is fetched at once, so that it is missed at once.
pub fn parse(text: &str) -> Result<Url, String> {
    let url: Url = text.parse()?;
    if url.user.is_none() {
        return Ok(url);
    }
    let password = match (std::env::var(PASSWORD_FILE), std::env::var(PASSWORD)) {
        (Ok(file), _) => {
            let text = world::sys::files::read_to_string(&file);
            let text =
                text.map_err(|e| format!("the password of etcd's user cannot be read from '{file}': {e}"))?;
            text.lines().next().unwrap_or_default().to_string()
        }
        (_, Ok(word)) => word,
        _ => return Err(format!("'{url}' names a user: {PASSWORD_FROM}")),
    };
    Ok(url.with_password(password))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_stands_in_no_command_line() {
        assert!(parse("etcd://a/x").is_ok());
        assert!(
            parse("etcd://me:secret@a/x").is_err_and(|e| !e.contains("secret") && e.contains(PASSWORD_FILE))
        );
        assert!(parse("etcd://me@a/x").is_err_and(|e| e.contains(PASSWORD)), "this test has none");
    }
}
