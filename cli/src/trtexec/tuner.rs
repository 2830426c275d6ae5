//! The tuner over build routes: builds an engine by each, measures it, and keeps the fastest.

use super::drive;
use super::engine::{self, Opened};
use super::inputs;
use super::log::Log;
use super::routes::{self, Choices, Route, Search};
use super::settings::{Pair, Settings};
use super::stats::{Summary, decimal};
use crate::failure::Failure;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Share of the time by which values of a setting must differ to matter.
const MATTERS: f64 = 0.01;

/// The longest line of a file of times that is read.
const LONGEST_LINE: usize = 64 << 10;

/// Times by route, and the fastest engine.
struct Tuner<'a> {
    s: &'a Settings,
    log: &'a Log,
    begin: Instant,
    /// Milliseconds by route; none where the build failed.
    known: HashMap<String, Option<f64>>,
    key: String,
    best: Option<(f64, Route, Option<Opened>)>,
    count: usize,
}

/// Builds and measures routes, and returns the fastest engine; none where routes are only listed.
///
/// # Errors
/// [`Failure::Input`] where no route can be built; errors of files.
pub fn tune(s: &Settings, log: &Log) -> Result<Option<Opened>, Failure> {
    let t = &s.tuning;
    log.head("Tuning");
    if t.dry_run {
        let all = routes::combinations(&t.choices);
        all.iter().enumerate().for_each(|(i, r)| log.info(format!("Route {i}: {}", routes::text(r))));
        return Ok(None);
    }
    let mut tuner =
        Tuner { s, log, begin: Instant::now(), known: HashMap::new(), key: key(s)?, best: None, count: 0 };
    if let (Some(path), true) = (&t.cache, t.resume) {
        tuner.known = read(path, &tuner.key)?;
        log.info(format!("{} routes are known from {}", tuner.known.len(), path.display()));
    }
    match t.search {
        Search::Full => tuner.all(&t.choices)?,
        Search::Fast => drop(tuner.one_by_one()?),
        Search::Mixed => {
            let fewer = tuner.one_by_one()?;
            tuner.all(&fewer)?;
        }
    }
    let Some((ms, route, opened)) = tuner.best.take() else {
        return Err(Failure::Input("no build route gave an engine: see the warnings above".into()));
    };
    log.info(format!("Best build route: {} ({} ms)", routes::text(&route), decimal(ms)));
    let opened = match opened {
        Some(opened) => opened,
        None => engine::open(&with_route(s, &route), log)?,
    };
    if let Some(path) = &s.save_engine {
        opened.save(path, s)?;
    }
    Ok(Some(opened))
}

/// The settings of a build by a route, which stores nothing.
fn with_route(s: &Settings, route: &Route) -> Settings {
    let mut one = s.clone();
    one.route.retain(|(name, _)| !route.iter().any(|(n, _)| n == name));
    one.route.extend(route.iter().copied());
    one.save_engine = None;
    one
}

impl Tuner<'_> {
    /// Tries all combinations.
    fn all(&mut self, choices: &Choices) -> Result<(), Failure> {
        routes::combinations(choices).iter().try_for_each(|r| self.time(r).map(drop))
    }

    /// Tries one setting after the other. Returns the choices that are left where only settings that matter keep their values.
    fn one_by_one(&mut self) -> Result<Choices, Failure> {
        let choices = self.s.tuning.choices.clone();
        let mut route: Route = choices.iter().filter_map(|(n, v)| Some((*n, *v.first()?))).collect();
        let mut left = Vec::new();
        for (i, (name, values)) in choices.iter().enumerate() {
            let mut times = Vec::new();
            for value in values {
                let mut one = route.clone();
                one[i].1 = value;
                if let Some(ms) = self.time(&one)? {
                    times.push((ms, *value));
                }
            }
            times.sort_by(|a, b| a.0.total_cmp(&b.0));
            let (Some(first), Some(last)) = (times.first(), times.last()) else {
                left.push((*name, values.clone()));
                continue;
            };
            route[i].1 = first.1;
            let matters = last.0 > first.0 * (1.0 + MATTERS);
            left.push((*name, if matters { values.clone() } else { vec![first.1] }));
        }
        Ok(left)
    }

    /// Milliseconds of a route; none where it fails, or where the time is up.
    fn time(&mut self, route: &Route) -> Result<Option<f64>, Failure> {
        let text = routes::text(route);
        if let Some(&known) = self.known.get(&text) {
            if let Some(ms) = known {
                self.keep(ms, route, None);
            }
            return Ok(known);
        }
        if self.s.tuning.limit.is_some_and(|l| self.begin.elapsed() >= l) {
            self.log.warn(format!("--tuningTimeOut: {text} was not tried"));
            return Ok(None);
        }
        let n = self.count;
        self.count += 1;
        let found = self.measure(route);
        let line = match &found {
            Ok((ms, _)) => json!({"key": self.key, "route": text, "ms": ms}),
            Err(e) => json!({"key": self.key, "route": text, "error": e.to_string()}),
        };
        if let Some(path) = &self.s.tuning.cache {
            append(path, &line)?;
        }
        let ms = match found {
            Ok((ms, opened)) => {
                self.log.info(format!("Route {n}: {text}: {} ms", decimal(ms)));
                if let (true, Some(path)) = (self.s.tuning.save_all, &self.s.save_engine) {
                    opened.save(&numbered(path, n), self.s)?;
                }
                self.keep(ms, route, Some(opened));
                Some(ms)
            }
            Err(e @ Failure::File { .. }) => return Err(e),
            Err(e) => {
                self.log.warn(format!("Route {n}: {text} fails: {e}"));
                None
            }
        };
        self.known.insert(text, ms);
        Ok(ms)
    }

    fn measure(&self, route: &Route) -> Result<(f64, Opened), Failure> {
        let s = with_route(self.s, route);
        let opened = engine::open(&s, self.log)?;
        let none = Pair::default();
        let first = s.pairs.values().next().unwrap_or(&none);
        let inputs = inputs::read(&first.inputs, &opened.engine, &s, self.log)?;
        let m = drive::measure(&opened.engine, &inputs, &s)?;
        let runs: Vec<f64> = m.runs.iter().map(|r| r.compute[1] - r.compute[0]).collect();
        let times = if m.device.is_empty() { &runs } else { &m.device };
        let median = Summary::of(times, &[]).map_or(f64::INFINITY, |t| t.median);
        Ok((median / 1e6, opened))
    }

    fn keep(&mut self, ms: f64, route: &Route, opened: Option<Opened>) {
        if self.best.as_ref().is_none_or(|(best, ..)| ms < *best) {
            self.best = Some((ms, route.clone(), opened));
        }
    }
}

/// The file of a route's engine beside that of the best one.
fn numbered(path: &Path, n: usize) -> PathBuf {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let end = path.extension().map_or_else(String::new, |e| format!(".{}", e.to_string_lossy()));
    path.with_file_name(format!("{name}.route{n}{end}"))
}

/// Key of times of routes: the model and all other settings of the build.
fn key(s: &Settings) -> Result<String, Failure> {
    let mut hash = DefaultHasher::new();
    if let Some(path) = &s.onnx {
        let file = |source| Failure::File { path: path.clone(), source };
        std::fs::read(path).map_err(file)?.hash(&mut hash);
    }
    format!("{:?} {:?} {:?} {:?} {:?}", s.options, s.pools, s.profiles, s.shapes, s.route).hash(&mut hash);
    env!("CARGO_PKG_VERSION").hash(&mut hash);
    Ok(format!("{:016x}", hash.finish()))
}

/// Times of a file that are of this key; lines that cannot be read are left out.
fn read(path: &Path, key: &str) -> Result<HashMap<String, Option<f64>>, Failure> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(HashMap::new()),
        Err(source) => return Err(Failure::File { path: path.to_owned(), source }),
    };
    let mut known = HashMap::new();
    for line in BufReader::new(file).lines() {
        let line = line.map_err(|source| Failure::File { path: path.to_owned(), source })?;
        let value: Value = match serde_json::from_str(&line) {
            Ok(value) if line.len() <= LONGEST_LINE => value,
            _ => continue,
        };
        if let (Some(found), Some(route)) = (value["key"].as_str(), value["route"].as_str())
            && found == key
        {
            known.insert(route.to_owned(), value["ms"].as_f64());
        }
    }
    Ok(known)
}

fn append(path: &Path, line: &Value) -> Result<(), Failure> {
    let mut open = File::options();
    let written = open.create(true).append(true).open(path).and_then(|mut f| writeln!(f, "{line}"));
    written.map_err(|source| Failure::File { path: path.to_owned(), source })
}
