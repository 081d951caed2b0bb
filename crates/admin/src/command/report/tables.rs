//! Tables for people: words to the left, numbers to the right.

/// Columns from the first that is of numbers on are set to the right, but for a last one of words.
pub fn table(heads: &[&str], words: &[usize], rows: &[Vec<String>]) -> Vec<String> {
    let width =
        |i: usize| rows.iter().map(|r| r[i].chars().count()).chain([heads[i].len()]).max().unwrap_or(0);
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut out = String::new();
        for (i, cell) in cells.enumerate() {
            let w = widths[i];
            let text = if words.contains(&i) { format!("{cell:<w$}") } else { format!("{cell:>w$}") };
            out.push_str(&text);
            out.push_str("  ");
        }
        out.trim_end().to_string()
    };
    let mut out = vec![line(&mut heads.iter().copied())];
    out.extend(rows.iter().map(|r| line(&mut r.iter().map(String::as_str))));
    out
}

/// `12.3%` of a whole.
pub fn share(part: u64, whole: u64) -> String {
    let tenths = if whole == 0 { 0 } else { u128::from(part) * 1000 / u128::from(whole) };
    format!("{}.{}%", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_aligned() {
        let rows = vec![vec!["a".into(), "12".into()], vec!["longer".into(), "3".into()]];
        assert_eq!(
            table(&["name", "files"], &[0], &rows),
            ["name    files", "a          12", "longer      3"]
        );
        assert_eq!(
            (share(1, 3), share(5, 0), share(u64::MAX, u64::MAX)),
            ("33.3%".into(), "0.0%".into(), "100.0%".into())
        );
    }
}
