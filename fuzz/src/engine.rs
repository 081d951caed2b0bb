//! The process of one target: mutate, execute, keep what reaches new code.

use crate::Options;
use crate::alloc;
use crate::coverage::Coverage;
use crate::mutate::{Random, mutate};
use crate::target::{self, Target};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// One execution may take so long.
const SLOW: Duration = Duration::from_secs(2);
/// Inputs kept in memory.
const CORPUS_MAX: usize = 4096;
/// Executions with an unchanged corpus after which a fresh start from the samples is made once.
const STALE: u64 = 200_000;

/// Runs one target until its time is over, or one file. True if nothing crashed.
pub fn run(o: &Options) -> Result<bool, String> {
    let t = target::find(o.only.as_deref().unwrap_or("")).ok_or("no target")?;
    if let Some(file) = &o.replay {
        let input = std::fs::read(file).map_err(|e| format!("{file}: {e}"))?;
        (t.run)(&input);
        println!("{}: {} bytes, no crash", t.name, input.len());
        return Ok(true);
    }
    std::panic::set_hook(Box::new(|_| {}));
    let mut e = Engine::new(t, o)?;
    let end = Instant::now() + Duration::from_secs(o.seconds);
    let ok = e.samples() && e.explore(end);
    println!("{} {} {}", e.executions, e.coverage.reached, e.corpus.len());
    Ok(ok)
}

struct Engine<'a> {
    target: &'a Target,
    random: Random,
    coverage: Coverage,
    corpus: Vec<Vec<u8>>,
    samples: usize,
    /// Holds the input being executed, for a process that dies.
    current: File,
    crash_file: String,
    executions: u64,
}

impl<'a> Engine<'a> {
    fn new(target: &'a Target, o: &Options) -> Result<Engine<'a>, String> {
        let path = format!("{}/artifacts/{}.current", o.folder, target.name);
        let current = File::create(&path).map_err(|e| format!("{path}: {e}"))?;
        let seed = target.name.bytes().fold(o.seed, |s, b| s.wrapping_mul(31).wrapping_add(u64::from(b)));
        let mut corpus: Vec<Vec<u8>> = (target.samples)();
        let mut files: Vec<_> = std::fs::read_dir(format!("{}/corpus/{}", o.folder, target.name))
            .map(|d| d.flatten().map(|f| f.path()).collect())
            .unwrap_or_default();
        files.sort();
        corpus.extend(files.iter().filter_map(|p| std::fs::read(p).ok()));
        corpus.push(Vec::new());
        Ok(Engine {
            target,
            random: Random::new(seed),
            coverage: Coverage::new(),
            samples: corpus.len(),
            corpus,
            current,
            crash_file: format!("{}/artifacts/{}.crash", o.folder, target.name),
            executions: 0,
        })
    }

    /// Executes what the corpus starts with.
    fn samples(&mut self) -> bool {
        (0..self.samples).all(|i| {
            let input = self.corpus[i].clone();
            self.execute(&input).is_some()
        })
    }

    fn explore(&mut self, end: Instant) -> bool {
        let mut since_news = 0u64;
        while Instant::now() < end {
            // New finds are tried more often than old ones.
            let n = self.corpus.len();
            let pick = if self.random.one_in(2) {
                n - 1 - self.random.below(n.min(64))
            } else {
                self.random.below(n)
            };
            let mut input = self.corpus[pick].clone();
            let other = self.corpus[self.random.below(n)].clone();
            mutate(&mut self.random, &mut input, &other, self.target.words, self.target.max_bytes);
            if let Some(fix) = self.target.fix
                && !self.random.one_in(16)
            {
                fix(&mut input);
            }
            match self.execute(&input) {
                None => return false,
                Some(true) if self.corpus.len() < CORPUS_MAX => {
                    self.corpus.push(input);
                    since_news = 0;
                }
                Some(_) => since_news += 1,
            }
            if since_news == STALE {
                self.corpus.truncate(self.samples);
            }
        }
        true
    }

    /// Executes one input: whether it reached something new; `None` after a crash.
    fn execute(&mut self, input: &[u8]) -> Option<bool> {
        let mut record = (input.len() as u32).to_le_bytes().to_vec();
        record.extend_from_slice(input);
        let _ = self.current.write_all_at(&record, 0);
        self.executions += 1;
        if self.coverage.available() {
            self.coverage.clear();
        }
        let baseline = alloc::baseline();
        let start = Instant::now();
        let run = self.target.run;
        let result = catch_unwind(AssertUnwindSafe(|| run(input)));
        let took = start.elapsed();
        let peak = alloc::peak_since(baseline);
        let what = match result {
            Err(p) => Some(format!("panic: {}", panic_text(p.as_ref()))),
            Ok(()) if alloc::refused() => Some("an allocation of over 1 GiB".into()),
            Ok(()) if peak > alloc::EXECUTION_MAX_BYTES => Some(format!("{peak} bytes allocated")),
            Ok(()) if took > SLOW => Some(format!("took {took:?}")),
            Ok(()) => None,
        };
        if let Some(what) = what {
            let _ = std::fs::write(&self.crash_file, input);
            eprintln!("{}: {what} (input of {} bytes in {})", self.target.name, input.len(), self.crash_file);
            return None;
        }
        Some(self.coverage.available() && self.coverage.harvest())
    }
}

fn panic_text(p: &(dyn std::any::Any + Send)) -> String {
    match (p.downcast_ref::<&str>(), p.downcast_ref::<String>()) {
        (Some(s), _) => (*s).to_string(),
        (_, Some(s)) => s.clone(),
        _ => "no text".into(),
    }
}
