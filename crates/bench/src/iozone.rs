//! `nacre bench iozone`: IOzone's throughput modes: records of files of their own, in its orders.

use crate::args::IozoneArgs;
use crate::crew::Stop;
use crate::ior::{DataPlan, bases};
use crate::layout::{FileLayout, Walk};
use crate::report;
use crate::run::{Row, Run, Unit, rate_of};
use anyhow::{Context, Result, bail};
use std::path::PathBuf;

const NAME: &str = "iozone.DUMMY";
/// Records between those of a stride, as IOzone's.
const STRIDE_DEFAULT: u64 = 17;

/// One of IOzone's tests: phases of a name, whether they write, in which order.
struct Test {
    name: &'static str,
    /// As its report calls those that work.
    workers: &'static str,
    write: bool,
    walk: Walk,
    random: bool,
}

fn tests(number: u8, stride: u64) -> Option<[Option<Test>; 2]> {
    let test = |name, workers, write, walk, random| Some(Test { name, workers, write, walk, random });
    let all = Walk::Forward;
    match number {
        0 => Some([
            test("write", "initial writers", true, all, false),
            test("rewrite", "rewriters", true, all, false),
        ]),
        1 => Some([
            test("read", "readers", false, all, false),
            test("reread", "re-readers", false, all, false),
        ]),
        2 => Some([
            test("random read", "random readers", false, all, true),
            test("random write", "random writers", true, all, true),
        ]),
        3 => Some([test("backward", "reverse readers", false, Walk::Backward, false), None]),
        5 => Some([test("stride", "stride readers", false, Walk::Stride(stride), false), None]),
        8 => Some([test("mixed", "mixed workload", true, Walk::Mixed, true), None]),
        _ => None,
    }
}

impl IozoneArgs {
    /// Takes in what can be said in more than one way, and refuses what makes no sense.
    pub fn settle(mut self) -> Result<IozoneArgs> {
        for p in &self.plus {
            match p.as_str() {
                "u" => {}
                "m" => bail!(
                    "-+m: hosts are not reached from here; run it on each, or give several mounts as --dirs"
                ),
                other => bail!("-+{other} is not known here"),
            }
        }
        if let Some(n) = self.threads_of_iozone {
            self.common.procs = n;
        }
        self.common.dirs.append(&mut self.directories);
        if self.common.dirs.is_empty() {
            self.common.dirs.push(PathBuf::from("."));
        }
        if self.tests.is_empty() {
            self.tests = vec![0, 1];
        }
        if let Some(n) = self.tests.iter().find(|n| tests(**n, STRIDE_DEFAULT).is_none()) {
            bail!(
                "-i {n}: there are 0 write/rewrite, 1 read/re-read, 2 random, 3 backward, 5 stride, 8 mixed"
            );
        }
        if !self.tests.contains(&0) && !self.keep_files {
            bail!(
                "-i 0 writes the files that the others work on (-w keeps them, and goes on with kept ones)"
            );
        }
        if self.record == 0 || self.record > 1 << 30 || self.size < self.record {
            bail!("-r {}: 1 byte to 1 GiB, and not more than -s {}", self.record, self.size);
        }
        if self.size.checked_mul(self.common.procs as u64).is_none_or(|t| t > i64::MAX as u64) {
            bail!("that is more than a file system can hold");
        }
        Ok(self)
    }

    fn plan(&self) -> Result<(DataPlan, Vec<PathBuf>)> {
        let (bases, folders) = bases(&self.common.dirs, None, NAME)?;
        let layout = FileLayout {
            procs: self.common.procs as u64,
            block: self.record,
            transfer: self.record,
            segments: self.size / self.record,
            shared: false,
        };
        let plan = DataPlan {
            layout,
            bases,
            shuffle: false,
            walk: Walk::Forward,
            direct: self.direct,
            fsync: self.fsync,
            fsync_each: false,
            verify: self.verify,
            read_from: 0,
            seconds: 0.0,
            wear_out: false,
            limit: None,
        };
        Ok((plan, folders))
    }
}

/// As IOzone's report has them, in kB a second.
fn paragraph(a: &IozoneArgs, workers: &str, row: &Row) -> String {
    let each: Vec<f64> = row.spans.iter().map(|s| rate_of(&[*s], Unit::MibPerSecond) * 1024.0).collect();
    let children: f64 = each.iter().sum();
    let most = each.iter().copied().fold(0.0, f64::max);
    let least = each.iter().copied().fold(f64::INFINITY, f64::min).min(most);
    let transfer = row.spans.iter().map(|s| s.bytes).min().unwrap_or(0) as f64 / 1024.0;
    let n = a.common.procs;
    let line = |what: &str, v: f64, unit: &str| format!("\t{what:<48}= {v:>11.2} {unit}\n");
    [
        line(&format!("Children see throughput for {n:>2} {workers}"), children, "kB/sec"),
        line(&format!("Parent sees throughput for {n:>2} {workers}"), row.rate * 1024.0, "kB/sec"),
        line("Min throughput per process", least, "kB/sec"),
        line("Max throughput per process", most, "kB/sec"),
        line("Avg throughput per process", children / each.len().max(1) as f64, "kB/sec"),
        line("Min xfer", transfer, "kB"),
    ]
    .concat()
}

fn iteration(a: &IozoneArgs, plan: &mut DataPlan, run: &mut Run<'_>) -> Result<()> {
    let mut numbers = a.tests.clone();
    numbers.sort_unstable();
    numbers.dedup();
    for number in numbers {
        let list = tests(number, a.stride).with_context(|| format!("-i {number}"))?;
        for t in list.into_iter().flatten() {
            if t.name == "write" {
                plan.remove()?;
            }
            (plan.walk, plan.shuffle) = (t.walk, t.random);
            let row = plan.phase(run, t.name, t.write)?;
            // only a time limit leaves some of a file unwritten
            plan.limit = None;
            report::paragraph(&a.common, &paragraph(a, t.workers, &row));
        }
    }
    Ok(())
}

/// Runs with settled options.
pub fn run(a: &IozoneArgs, stop: &Stop) -> Result<Vec<Row>> {
    let (mut plan, folders) = a.plan()?;
    let mut run = Run::start(&a.common, stop, folders)?;
    report::iozone_head(a);
    let mut result = run.repeat(a.iterations, |run| iteration(a, &mut plan, run));
    let rows = run.end();
    if !a.keep_files && !a.common.keep {
        result = result.and(plan.remove());
    }
    result.map(|()| rows)
}
