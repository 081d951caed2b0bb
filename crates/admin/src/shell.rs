//! Words as a shell reads them.

/// Characters that a shell leaves alone.
fn plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-./:=,@%+".contains(c)
}

/// `word` as a shell reads it back.
pub fn quoted(word: &str) -> String {
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_string();
    }
    let quoted = format!("'{}'", word.replace('\'', r"'\''"));
    assert!(quoted.len() >= 2 && !quoted.contains('\0'), "a shell reads the word back");
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_a_shell() {
        assert_eq!(quoted("ip=10.0.0.1"), "ip=10.0.0.1");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("x;y"), "'x;y'");
    }
}
