//! `kiln cache`: timing caches shown, merged and exported.

use crate::failure::Failure;
use crate::print::{Printer, time};
use clap::Subcommand;
use kiln::cache::{Candidate, Entry, TimingCache};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Show, merge and export timing caches
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show regions with all candidates and their times, the winner first
    Show {
        /// Timing caches; several are shown as merged
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Merge caches into one file; their order does not matter
    Merge {
        /// Timing caches
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Path of the merged cache; an existing file is replaced
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
    },
    /// Print JSON lines: a candidate each, with its key, rank, median and samples in nanoseconds
    Export {
        /// Timing caches; several are exported as merged
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
}

/// Runs the command.
pub fn run(args: &Args, out: &Printer) -> Result<(), Failure> {
    match &args.action {
        Action::Show { files } => show(&read(files)?, out),
        Action::Merge { files, output } => merge(&read(files)?, output, out)?,
        Action::Export { files } => {
            let lines: Vec<String> = lines(&read(files)?).iter().map(Value::to_string).collect();
            if !lines.is_empty() {
                out.raw(&lines.join("\n"));
            }
        }
    }
    Ok(())
}

fn read(files: &[PathBuf]) -> Result<TimingCache, Failure> {
    let mut all = TimingCache::new();
    for path in files {
        let bytes =
            TimingCache::read_file(path).map_err(|source| Failure::File { path: path.clone(), source })?;
        let one = TimingCache::recover(&bytes);
        let (one, lost) = one.map_err(|message| Failure::Cache { path: path.clone(), message })?;
        if let Some(lost) = lost {
            tracing::warn!("{}: {lost}", path.display());
        }
        all.merge(&one);
    }
    Ok(all)
}

/// Candidates from the fastest on; of equals the first by name, as the builder chooses.
fn ranked(e: &Entry) -> Vec<(&str, &Candidate)> {
    let mut all: Vec<(&str, &Candidate)> = e.candidates.iter().map(|(n, c)| (n.as_str(), c)).collect();
    all.sort_by(|a, b| a.1.median().total_cmp(&b.1.median()).then_with(|| a.0.cmp(b.0)));
    all
}

fn show(cache: &TimingCache, out: &Printer) {
    out.value(&Value::Array(lines(cache)));
    let mut rows = Vec::new();
    for (key, e) in cache.iter() {
        for (rank, (tactic, c)) in ranked(e).into_iter().enumerate() {
            let first = |s: &str| if rank == 0 { s.trim_end().to_owned() } else { String::new() };
            rows.push(vec![
                first(key),
                first(&e.region),
                first(&e.device),
                tactic.to_owned(),
                time(c.median()),
                c.samples.len().to_string(),
            ]);
        }
    }
    out.table(&["key", "region", "device", "tactic, the winner first", "median", "samples"], rows);
    out.line(format!("{} regions", cache.len()));
}

fn lines(cache: &TimingCache) -> Vec<Value> {
    let entry = |(key, e): (&str, &Entry)| -> Vec<Value> {
        let line = |(rank, (tactic, c)): (usize, (&str, &Candidate))| {
            json!({
                "key": key, "region": e.region, "target": e.target, "device": e.device, "driver": e.driver,
                "tactic": tactic, "rank": rank, "median_ns": c.median(), "samples_ns": c.samples,
                "source_hash": c.source_hash,
            })
        };
        ranked(e).into_iter().enumerate().map(line).collect()
    };
    cache.iter().flat_map(entry).collect()
}

fn merge(cache: &TimingCache, output: &Path, out: &Printer) -> Result<(), Failure> {
    cache.replace_file(output).map_err(|source| Failure::File { path: output.to_owned(), source })?;
    out.value(&json!({"output": output.display().to_string(), "regions": cache.len()}));
    out.line(format!("wrote {} ({} regions)", output.display(), cache.len()));
    Ok(())
}
