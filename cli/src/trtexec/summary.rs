//! The summary of a measurement, as text that scripts parse.

use super::settings::Settings;
use super::stats::{Summary, decimal};
use crate::query::Moments;

/// Coefficient of variance from which compute time counts as unstable, in percent.
const UNSTABLE: f64 = 1.0;

/// Lines of a part of the report, and warnings.
#[derive(Debug, Default)]
pub struct Text {
    pub lines: Vec<String>,
    pub warnings: Vec<String>,
}

/// Durations of one part of all runs, in milliseconds.
fn parts(runs: &[Moments], of: impl Fn(&Moments) -> f64) -> Vec<f64> {
    runs.iter().map(|m| of(m) / 1e6).collect()
}

/// Averages of so many runs each, a line for each group; the last one may be smaller.
pub fn averages(runs: &[Moments], group: usize) -> Vec<String> {
    let mean = |chunk: &[Moments], of: &dyn Fn(&Moments) -> f64| {
        decimal(chunk.iter().map(of).sum::<f64>() / 1e6 / chunk.len() as f64)
    };
    let line = |chunk: &[Moments]| {
        format!(
            "Average on {} runs - GPU latency: {} ms - Host latency: {} ms (enqueue {} ms)",
            chunk.len(),
            mean(chunk, &Moments::compute_ns),
            mean(chunk, &Moments::latency_ns),
            mean(chunk, &Moments::enqueue_ns),
        )
    };
    runs.chunks(group.max(1)).map(line).collect()
}

/// The summary of runs that took `wall` nanoseconds together. `device` are times of runs on the device alone, in
/// nanoseconds, where it can tell.
pub fn summary(runs: &[Moments], wall: f64, device: &[f64], s: &Settings) -> Text {
    let mut text = Text::default();
    let (latency, enqueue) = (parts(runs, Moments::latency_ns), parts(runs, Moments::enqueue_ns));
    let compute = parts(runs, Moments::compute_ns);
    let (h2d, d2h) = (parts(runs, Moments::input_ns), parts(runs, Moments::output_ns));
    let rate = runs.len() as f64 / (wall / 1e9).max(f64::MIN_POSITIVE);
    text.lines.push(format!("Throughput: {} qps", decimal(rate)));
    let rows = [
        ("Latency", &latency),
        ("Enqueue Time", &enqueue),
        ("H2D Latency", &h2d),
        ("GPU Compute Time", &compute),
        ("D2H Latency", &d2h),
    ];
    let of = |times: &[f64]| Summary::of(times, &s.percentiles);
    for (name, times) in rows {
        text.lines.extend(of(times).map(|s| format!("{name}: {s}")));
    }
    text.lines.push(format!("Total Host Walltime: {} s", decimal(wall / 1e9)));
    text.lines.push(format!("Total GPU Compute Time: {} s", decimal(compute.iter().sum::<f64>() / 1e3)));
    warn(&mut text, [&enqueue, &compute, &h2d, &d2h].map(|t| of(t)), device);
    text
}

fn warn(text: &mut Text, parts: [Option<Summary>; 4], device: &[f64]) {
    let [Some(enqueue), Some(compute), Some(h2d), Some(d2h)] = parts else { return };
    let mut say = |lines: &[String]| text.warnings.extend_from_slice(lines);
    let alone = Summary::of(device, &[]).map(|d| d.median / 1e6);
    if alone.is_some_and(|alone| enqueue.median > alone) {
        say(&[
            "* Throughput may be bound by Enqueue Time rather than GPU Compute: the device waits for launches."
                .into(),
            "  Take larger batches, or several contexts with --infStreams and --threads.".into(),
        ]);
    }
    for (name, part) in [("H2D", h2d), ("D2H", d2h)] {
        if part.median > compute.median {
            say(&[
                format!("* Throughput may be bound by host-to-device transfers ({name} Latency) rather than GPU Compute.")
                    .replace("host-to-device", if name == "H2D" { "host-to-device" } else { "device-to-host" }),
                "  Leave out --includeDataTransfers to measure without them.".into(),
            ]);
        }
    }
    let unstable = 100.0 * compute.variation;
    if unstable > UNSTABLE {
        say(&[
            format!("* GPU compute time is unstable, with coefficient of variance = {}%.", decimal(unstable)),
            "  Close other programs, fix the clocks of the device, or measure longer with --duration.".into(),
        ]);
    }
}

/// Definitions of the numbers in the summary.
pub fn definitions(backend: &str, transfers: bool, copies: bool) -> Vec<String> {
    let input = match (transfers, copies) {
        (false, _) => "inputs are set once; H2D and D2H Latency are 0".to_owned(),
        (true, false) => "H2D Latency is the copy of inputs into the context's memory, D2H Latency that of outputs".into(),
        (true, true) => {
            "H2D Latency is the host's copy of inputs, D2H Latency that of outputs; the device's own copy of inputs is part of \
             GPU Compute Time"
                .into()
        }
    };
    vec![
        format!("GPU stands for the device of the backend \"{backend}\""),
        "GPU Compute Time lasts from the call that starts a run until its results are there".into(),
        input,
        "Latency is the sum of H2D Latency, GPU Compute Time and D2H Latency".into(),
        "Enqueue Time is the time of the call that starts a run, which backends of the host's processor compute in".into(),
        "Throughput is the number of runs by Total Host Walltime".into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run with parts of so many milliseconds, from a given moment on.
    fn run(at: f64, h2d: f64, enqueue: f64, compute: f64, d2h: f64) -> Moments {
        let ms = |x: f64| x * 1e6;
        Moments {
            stream: 0,
            input: [ms(at), ms(at + h2d)],
            enqueue: [ms(at + h2d), ms(at + h2d + enqueue)],
            compute: [ms(at + h2d), ms(at + h2d + compute)],
            output: [ms(at + h2d + compute), ms(at + h2d + compute + d2h)],
        }
    }

    #[test]
    fn the_text_is_what_parsers_expect() {
        let runs: Vec<Moments> =
            (1..=10).map(|i| run(f64::from(i) * 10.0, 0.5, 0.25, f64::from(i), 0.125)).collect();
        let text = summary(&runs, 100e6, &[], &Settings::default());
        let wanted = [
            "Throughput: 100 qps",
            "Latency: min = 1.625 ms, max = 10.625 ms, mean = 6.125 ms, median = 6.125 ms, percentile(90%) = 9.625 ms, \
             percentile(95%) = 10.625 ms, percentile(99%) = 10.625 ms",
            "Enqueue Time: min = 0.25 ms, max = 0.25 ms, mean = 0.25 ms, median = 0.25 ms, percentile(90%) = 0.25 ms, \
             percentile(95%) = 0.25 ms, percentile(99%) = 0.25 ms",
            "H2D Latency: min = 0.5 ms, max = 0.5 ms, mean = 0.5 ms, median = 0.5 ms, percentile(90%) = 0.5 ms, \
             percentile(95%) = 0.5 ms, percentile(99%) = 0.5 ms",
            "GPU Compute Time: min = 1 ms, max = 10 ms, mean = 5.5 ms, median = 5.5 ms, percentile(90%) = 9 ms, \
             percentile(95%) = 10 ms, percentile(99%) = 10 ms",
            "D2H Latency: min = 0.125 ms, max = 0.125 ms, mean = 0.125 ms, median = 0.125 ms, percentile(90%) = 0.125 ms, \
             percentile(95%) = 0.125 ms, percentile(99%) = 0.125 ms",
            "Total Host Walltime: 0.1 s",
            "Total GPU Compute Time: 0.055 s",
        ];
        assert_eq!(text.lines, wanted);
        assert!(
            text.warnings.iter().any(|w| w.contains("coefficient of variance = 52.2")),
            "{:?}",
            text.warnings
        );
        let lines = averages(&runs, 4);
        assert_eq!(lines.len(), 3);
        assert_eq!(
            lines[2],
            "Average on 2 runs - GPU latency: 9.5 ms - Host latency: 10.125 ms (enqueue 0.25 ms)"
        );
    }

    #[test]
    fn warnings_name_what_bounds_the_throughput() {
        let of = |m: Moments, device: &[f64]| {
            summary(&[m, m], 1e6, device, &Settings::default()).warnings.join(" ")
        };
        assert_eq!(of(run(0.0, 0.0, 1.0, 1.0, 0.0), &[]), "");
        assert!(of(run(0.0, 0.0, 1.0, 1.0, 0.0), &[0.5e6]).contains("bound by Enqueue Time"));
        assert!(of(run(0.0, 2.0, 1.0, 1.0, 0.0), &[]).contains("host-to-device transfers (H2D Latency)"));
        assert!(of(run(0.0, 0.0, 1.0, 1.0, 2.0), &[]).contains("device-to-host transfers (D2H Latency)"));
    }
}
