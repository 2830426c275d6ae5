//! `kiln cache`: timing caches shown, merged, exported and edited.

use crate::failure::Failure;
use crate::print::{Printer, time};
use clap::Subcommand;
use kiln::cache::{Candidate, Entry, TimingCache};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Show, merge, export and edit timing caches
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
        /// Show the region of this key, or of the only one that begins so
        #[arg(long, value_name = "KEY")]
        key: Option<String>,
    },
    /// Let builds take a tactic for a region whatever its time is
    Pin {
        /// The timing cache
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Key of the region, or its beginning
        #[arg(long, value_name = "KEY")]
        key: String,
        /// The tactic with its parameters; without it the fastest is taken again
        #[arg(long, value_name = "TACTIC")]
        tactic: Option<String>,
    },
    /// Change or remove times
    Edit {
        /// The timing cache
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Key of the region, or its beginning
        #[arg(long, value_name = "KEY")]
        key: String,
        /// The tactic with its parameters; without it --remove takes the whole region
        #[arg(long, value_name = "TACTIC", required_unless_present = "remove")]
        tactic: Option<String>,
        /// Times of the tactic in nanoseconds, instead of those that were taken
        #[arg(
            long,
            value_name = "NS",
            value_delimiter = ',',
            required_unless_present = "remove",
            conflicts_with = "remove"
        )]
        samples: Vec<f64>,
        /// Remove the times, which the next build takes again
        #[arg(long)]
        remove: bool,
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
        Action::Show { files, key } => {
            let mut cache = read(files)?;
            if let Some(start) = key {
                let key = cache.key_of(start).map_err(Failure::Input)?;
                cache = cache.part([&key]);
            }
            show(&cache, out);
        }
        Action::Merge { files, output } => merge(files, output, out)?,
        Action::Pin { file, key, tactic } => {
            change(file, key, out, |cache, key| cache.pin(key, tactic.as_deref()))?;
        }
        Action::Edit { file, key, tactic, samples, remove } => {
            change(file, key, out, |cache, key| match (tactic, remove) {
                (Some(tactic), true) => cache.remove_candidate(key, tactic),
                (Some(tactic), false) => cache.set_samples(key, tactic, samples.clone()),
                (None, _) => {
                    cache.remove(key);
                    Ok(())
                }
            })?;
        }
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

/// Candidates as the builder chooses: a pinned one, then from the fastest on; of equals the first by name.
fn ranked(e: &Entry) -> Vec<(&str, &Candidate)> {
    let mut all: Vec<(&str, &Candidate)> = e.candidates.iter().map(|(n, c)| (n.as_str(), c)).collect();
    let pinned = |n: &str| e.pinned.as_deref() == Some(n);
    all.sort_by(|a, b| {
        let times = a.1.median().total_cmp(&b.1.median());
        pinned(b.0).cmp(&pinned(a.0)).then(times).then_with(|| a.0.cmp(b.0))
    });
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
                if e.pinned.as_deref() == Some(tactic) {
                    format!("{tactic} (pinned)")
                } else {
                    tactic.to_owned()
                },
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
                "source_hash": c.source_hash, "pinned": e.pinned.as_deref() == Some(tactic),
            })
        };
        ranked(e).into_iter().enumerate().map(line).collect()
    };
    cache.iter().flat_map(entry).collect()
}

/// Replaces a file by several caches, under its lock.
fn merge(files: &[PathBuf], output: &Path, out: &Printer) -> Result<(), Failure> {
    let fail = |source| Failure::File { path: output.to_owned(), source };
    let mut refused = None;
    // The caches are read under the lock: the output may be one of them.
    let merged = TimingCache::update_file(output, |cache| match read(files) {
        Ok(all) => {
            *cache = all;
            Ok(cache.len())
        }
        Err(e) => {
            refused = Some(e);
            Err("the caches cannot be read".into())
        }
    });
    let regions = match (merged, refused) {
        (_, Some(e)) => return Err(e),
        (merged, None) => merged.map_err(fail)?,
    };
    out.value(&json!({"output": output.display().to_string(), "regions": regions}));
    out.line(format!("wrote {} ({regions} regions)", output.display()));
    Ok(())
}

/// Changes the entry of a key in a file, under its lock.
fn change(
    file: &Path,
    start: &str,
    out: &Printer,
    f: impl Fn(&mut TimingCache, &str) -> Result<(), String>,
) -> Result<(), Failure> {
    if let Err(source) = std::fs::metadata(file) {
        return Err(Failure::File { path: file.to_owned(), source });
    }
    let mut refused = None;
    let edit = |cache: &mut TimingCache| {
        let key = cache.key_of(start)?;
        f(cache, &key)?;
        Ok((cache.part([&key]), key))
    };
    let changed = TimingCache::update_file(file, |cache| {
        edit(cache).inspect_err(|why: &String| refused = Some(why.clone()))
    });
    let (entry, key) = changed.map_err(|source| match refused {
        Some(why) => Failure::Input(format!("{}: {why}", file.display())),
        None => Failure::File { path: file.to_owned(), source },
    })?;
    if entry.is_empty() {
        out.value(&Value::Array(Vec::new()));
        out.line(format!("removed {key}"));
    } else {
        show(&entry, out);
    }
    Ok(())
}
