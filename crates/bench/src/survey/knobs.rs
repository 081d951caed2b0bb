//! What a survey is told: variables of the environment, as the classical scripts have them, or the same as
//! operands (`size=64`), which come first.

use anyhow::{Context, Result, bail};
use clap::Parser;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// Options of every survey.
#[derive(Parser, Clone, Debug, Default)]
#[command(disable_version_flag = true)]
pub struct Flags {
    /// One JSON document instead of lines
    #[arg(long)]
    pub json: bool,
    /// Draws what was measured as SVG
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// No live progress
    #[arg(long, short = 'q')]
    pub quiet: bool,
    /// Of sgpdd: what lies on the devices may be lost: do not ask
    #[arg(long)]
    pub destroy: bool,
    /// Of ost: MB that each OST is written and read
    #[arg(short = 's', value_name = "MB", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub megabytes: Option<u64>,
    /// VARIABLE=VALUE instead of a variable of the environment; of ost and mds also the mount
    pub operands: Vec<String>,
}

impl Flags {
    /// Refuses those that mean nothing to a survey.
    pub fn check(&self, survey: &str) -> Result<()> {
        for (option, of, is_given) in
            [("-s", "ost", self.megabytes.is_some()), ("--destroy", "sgpdd", self.destroy)]
        {
            if is_given && survey != of {
                bail!("'{option}' says nothing to 'nacre survey {survey}': it is of '{of}'");
            }
        }
        Ok(())
    }
}

/// Variables by name, and the operands that are none.
#[derive(Clone, Debug, Default)]
pub struct Knobs {
    values: BTreeMap<String, String>,
    pub operands: Vec<String>,
}

impl Knobs {
    /// Those of `known` that are set. An operand that sets another is a mistake; a variable of the
    /// environment may be anybody's.
    pub fn new(known: &[&str], operands: &[String], env: impl Fn(&str) -> Option<String>) -> Result<Knobs> {
        let mut knobs = Knobs::default();
        for name in known {
            // set to nothing is not set, as in the shell's ${name:-default}
            if let Some(v) = env(name).filter(|v| !v.trim().is_empty()) {
                knobs.values.insert((*name).to_string(), v);
            }
        }
        for o in operands {
            match o.split_once('=') {
                Some((name, v)) if known.contains(&name) => {
                    knobs.values.insert(name.to_string(), v.to_string());
                }
                Some((name, _)) if !name.contains('/') => {
                    bail!("'{name}' is no variable of this survey; it knows {}", known.join(", "))
                }
                _ => knobs.operands.push(o.clone()),
            }
        }
        Ok(knobs)
    }

    /// As operands alone say it.
    #[cfg(test)]
    pub fn of_words(known: &[&str], words: &[&str]) -> Result<Knobs> {
        let operands: Vec<String> = words.iter().map(|s| (*s).to_string()).collect();
        Knobs::new(known, &operands, |_| None)
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    pub fn number(&self, name: &str, default: u64, range: RangeInclusive<u64>) -> Result<u64> {
        let Some(text) = self.text(name) else { return Ok(default) };
        let n: u64 = text.trim().parse().with_context(|| format!("{name}='{text}' is no number"))?;
        if !range.contains(&n) {
            bail!("{name}={n}: from {} to {}", range.start(), range.end());
        }
        Ok(n)
    }

    pub fn words(&self, name: &str, default: &str) -> Vec<String> {
        self.text(name).unwrap_or(default).split_whitespace().map(str::to_string).collect()
    }

    /// From `NAMElo` to `NAMEhi`, each twice the one before. Where only `lo` is given and is above the
    /// default of `hi`, it is the only one.
    pub fn doubling(&self, name: &str, default: (u64, u64), range: RangeInclusive<u64>) -> Result<Vec<u64>> {
        let low = self.number(&format!("{name}lo"), default.0, range.clone())?;
        let high = self.number(&format!("{name}hi"), default.1.max(low), range)?;
        if low > high {
            bail!("{name}lo={low} is more than {name}hi={high}");
        }
        Ok(std::iter::successors(Some(low), |n| n.checked_mul(2).filter(|n| *n <= high)).collect())
    }

    /// As a document has them.
    pub fn json(&self) -> serde_json::Value {
        serde_json::json!(self.values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knobs(env: &[(&str, &str)], operands: &[&str]) -> Result<Knobs> {
        let operands: Vec<String> = operands.iter().map(|s| (*s).to_string()).collect();
        let find = |n: &str| env.iter().find(|(k, _)| *k == n).map(|(_, v)| (*v).to_string());
        Knobs::new(&["size", "thrlo", "thrhi", "targets"], &operands, find)
    }

    #[test]
    fn operands_come_before_the_environment() {
        let k = knobs(&[("size", "24576"), ("thrlo", ""), ("HOME", "x")], &["thrhi=8", "/mnt/a=b"]).unwrap();
        assert_eq!(k.number("size", 1, 1..=1 << 30).unwrap(), 24_576);
        assert_eq!(k.doubling("thr", (1, 4), 1..=4096).unwrap(), [1, 2, 4, 8]);
        assert_eq!(k.operands, ["/mnt/a=b"]);
        assert_eq!(knobs(&[("size", "1")], &["size=2"]).unwrap().text("size"), Some("2"));
        assert_eq!(knobs(&[], &[]).unwrap().words("targets", "a  b"), ["a", "b"]);
    }

    #[test]
    fn flags_of_other_surveys_are_refused() {
        let flags = |args: &[&str]| Flags::try_parse_from(args).unwrap();
        let said = |args, survey| flags(args).check(survey).map_err(|e| e.to_string());
        let (s, destroy) = (&["x", "-s", "5"], &["x", "--destroy"]);
        assert_eq!((said(s, "ost"), said(destroy, "sgpdd")), (Ok(()), Ok(())));
        assert_eq!(said(s, "all"), Err("'-s' says nothing to 'nacre survey all': it is of 'ost'".into()));
        for survey in ["all", "obdfilter", "ost", "mds"] {
            assert!(said(destroy, survey).unwrap_err().contains("it is of 'sgpdd'"), "{survey}");
            assert_eq!(said(&["x", "--json", "-q", "--plot", "f"], survey), Ok(()));
        }
    }

    #[test]
    fn mistakes_have_words() {
        let says = |r: Result<Vec<u64>>, part: &str| {
            let text = format!("{:#}", r.unwrap_err());
            assert!(text.contains(part), "{text}");
        };
        assert!(knobs(&[], &["sise=2"]).unwrap_err().to_string().contains("it knows size"));
        let thr = |lo: &str, hi: &str| {
            knobs(&[("thrlo", lo), ("thrhi", hi)], &[]).unwrap().doubling("thr", (1, 16), 1..=64)
        };
        says(thr("8", "4"), "more than thrhi=4");
        says(thr("x", "4"), "no number");
        says(thr("0", "4"), "from 1 to 64");
        assert_eq!(thr("32", "").unwrap(), [32]);
        assert_eq!(thr("3", "13").unwrap(), [3, 6, 12]);
    }
}
