//! Build routes: named settings of the builder, each with a few values, and expressions of them as `-fuse=[on|off] -level=2`.

use kiln::{BuildOptions, DType, Narrowing, Sparsity};
use std::path::PathBuf;
use std::time::Duration;

/// The most routes that are tried.
const MOST_ROUTES: usize = 1024;

/// A named setting.
pub struct Knob {
    /// Name without the dash.
    pub name: &'static str,
    /// Values.
    pub values: &'static [&'static str],
    /// Line of the help.
    pub help: &'static str,
    set: fn(&mut BuildOptions, &str),
}

const SWITCH: &[&str] = &["on", "off"];

/// All settings; the level sets several others, and so comes first.
pub const KNOBS: &[Knob] = &[
    Knob {
        name: "level",
        values: &["0", "1", "2", "3", "4", "5"],
        help: "Trouble that the build takes, as --builderOptimizationLevel",
        set: |o, v| o.config.set_optimization_level(v.parse().unwrap_or(3)),
    },
    Knob {
        name: "fuse",
        values: SWITCH,
        help: "Several layers in one kernel",
        set: |o, v| o.config.fuse = v == "on",
    },
    Knob {
        name: "search",
        values: SWITCH,
        help: "Formats and cuts are tried",
        set: |o, v| o.config.search = v == "on",
    },
    Knob {
        name: "fold",
        values: SWITCH,
        help: "Layers of constants are computed by the build",
        set: |o, v| o.config.fold = v == "on",
    },
    Knob {
        name: "tf32",
        values: SWITCH,
        help: "Products of f32 may round operands to TF32",
        set: |o, v| o.config.tf32 = v == "on",
    },
    Knob {
        name: "fp16",
        values: SWITCH,
        help: "Layers may run in f16",
        set: |o, v| permit(o, DType::F16, v == "on"),
    },
    Knob {
        name: "bf16",
        values: SWITCH,
        help: "Layers may run in bf16",
        set: |o, v| permit(o, DType::BF16, v == "on"),
    },
    Knob {
        name: "narrowing",
        values: &["faster", "everywhere"],
        help: "Layers that run in permitted types",
        set: |o, v| {
            o.config.narrowing = if v == "everywhere" { Narrowing::Everywhere } else { Narrowing::Faster };
        },
    },
    Knob {
        name: "sparsity",
        values: &["disable", "enable"],
        help: "Use of weights of which two of four neighbours are 0",
        set: |o, v| {
            o.config.sparsity = if v == "enable" { Sparsity::Enable } else { Sparsity::Disable };
        },
    },
    Knob {
        name: "estimates",
        values: SWITCH,
        help: "Kernels are chosen by estimates instead of times",
        set: |o, v| o.config.estimates = v == "on",
    },
];

fn permit(o: &mut BuildOptions, dtype: DType, on: bool) {
    o.config.reduced.retain(|d| *d != dtype);
    if on {
        o.config.reduced.push(dtype);
    }
}

/// Values by the names of their settings, in the order of [`KNOBS`].
pub type Route = Vec<(&'static str, &'static str)>;

/// Values to try, by setting.
pub type Choices = Vec<(&'static str, Vec<&'static str>)>;

/// Order in which routes are tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Search {
    /// One setting after the other, each with the best values of those before.
    Fast,
    /// All combinations.
    #[default]
    Full,
    /// As fast, then all combinations of the settings that mattered.
    Mixed,
}

/// A search over routes.
#[derive(Clone, Debug, Default)]
pub struct Tuning {
    pub choices: Choices,
    pub search: Search,
    /// File of times by route, in lines of JSON.
    pub cache: Option<PathBuf>,
    /// Time after which no further route is begun.
    pub limit: Option<Duration>,
    /// Take times of the file instead of measuring again.
    pub resume: bool,
    pub save_all: bool,
    pub dry_run: bool,
}

fn knob(name: &str) -> Result<&'static Knob, String> {
    KNOBS.iter().find(|k| k.name == name).ok_or_else(|| {
        let known: Vec<&str> = KNOBS.iter().map(|k| k.name).collect();
        format!("there is no setting \"{name}\"; there are {}", known.join(", "))
    })
}

fn value(k: &'static Knob, text: &str) -> Result<&'static str, String> {
    let found = k.values.iter().copied().find(|v| *v == text);
    found.ok_or_else(|| format!("-{}={text}: wanted one of {}", k.name, k.values.join(", ")))
}

/// Reads an expression. A setting without values stands for all of them.
pub fn choices(text: &str) -> Result<Choices, String> {
    let mut all: Choices = Vec::new();
    for word in text.trim_matches(['\'', '"']).split_whitespace() {
        let Some(word) = word.strip_prefix('-') else {
            return Err(format!("\"{word}\" is no setting of the build, wanted -NAME=VALUE or -NAME=[A|B]"));
        };
        let (name, given) = word.split_once('=').map_or((word, None), |(n, v)| (n, Some(v)));
        let k = knob(name)?;
        let values = match given {
            None => k.values.to_vec(),
            Some(v) => {
                let inner = v.strip_prefix('[').and_then(|v| v.strip_suffix(']')).unwrap_or(v);
                inner.split('|').map(|v| value(k, v)).collect::<Result<Vec<_>, _>>()?
            }
        };
        if all.iter().any(|(n, _)| *n == k.name) {
            return Err(format!("-{name} is given twice"));
        }
        all.push((k.name, values));
    }
    let place = |name: &str| KNOBS.iter().position(|k| k.name == name);
    all.sort_by_key(|(name, _)| place(name));
    let count = all.iter().try_fold(1usize, |n, (_, v)| n.checked_mul(v.len()));
    match count {
        Some(n) if n <= MOST_ROUTES => Ok(all),
        _ => Err(format!("the expression makes more than {MOST_ROUTES} routes: give fewer values")),
    }
}

/// Reads one route.
pub fn fixed(text: &str) -> Result<Route, String> {
    let all = choices(text)?;
    let one = |(name, values): (&'static str, Vec<&'static str>)| match values[..] {
        [value] => Ok((name, value)),
        _ => Err(format!("-{name} has {} values, wanted one: --tuneBuildRoutes tries several", values.len())),
    };
    all.into_iter().map(one).collect()
}

/// All combinations.
pub fn combinations(choices: &Choices) -> Vec<Route> {
    let mut all: Vec<Route> = vec![Vec::new()];
    for (name, values) in choices {
        let longer = |route: &Route| -> Vec<Route> {
            values.iter().map(|v| route.iter().copied().chain([(*name, *v)]).collect()).collect()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

/// Puts a route into the options of a build.
pub fn apply(route: &Route, options: &mut BuildOptions) {
    for k in KNOBS {
        for (_, value) in route.iter().filter(|(name, _)| *name == k.name) {
            (k.set)(options, value);
        }
    }
}

/// A route as an expression.
pub fn text(route: &Route) -> String {
    let words: Vec<String> = route.iter().map(|(name, value)| format!("-{name}={value}")).collect();
    if words.is_empty() { "the usual one".into() } else { words.join(" ") }
}

/// The settings with their values, or one of them.
pub fn help(name: &str) -> Result<String, String> {
    let line = |k: &Knob| format!("  -{}=[{}]\n        {}\n", k.name, k.values.join("|"), k.help);
    if name.is_empty() {
        let all: String = KNOBS.iter().map(line).collect();
        return Ok(format!("Settings of --setBuildRoute and --tuneBuildRoutes:\n{all}"));
    }
    knob(name.trim_start_matches('-')).map(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_read_and_combined() {
        let all = choices("-fuse=[on|off] -level=2 -tf32").unwrap();
        assert_eq!(all, [("level", vec!["2"]), ("fuse", vec!["on", "off"]), ("tf32", vec!["on", "off"])]);
        let routes = combinations(&all);
        assert_eq!(routes.len(), 4);
        assert_eq!(text(&routes[1]), "-level=2 -fuse=on -tf32=off");
        assert_eq!(fixed("'-fuse=off'").unwrap(), [("fuse", "off")]);
        for (wrong, words) in [
            ("fuse=on", "wanted -NAME"),
            ("-fuses=on", "there are level, fuse"),
            ("-fuse=maybe", "one of on, off"),
            ("-fuse=on -fuse=off", "twice"),
            ("-level -fuse -search -fold -tf32 -fp16 -bf16 -narrowing -sparsity -estimates", "1024"),
        ] {
            assert!(choices(wrong).unwrap_err().contains(words), "{wrong}");
        }
        assert!(fixed("-fuse").unwrap_err().contains("2 values"));
    }

    #[test]
    fn each_value_of_each_setting_changes_the_options() {
        for k in KNOBS {
            let of = |v: &str| {
                let mut o = BuildOptions::default();
                (k.set)(&mut o, v);
                format!("{o:?}")
            };
            for (i, a) in k.values.iter().enumerate() {
                assert!(k.values[..i].iter().all(|b| of(a) != of(b)), "-{}={a}", k.name);
            }
            assert!(help("").unwrap().contains(k.help) && help(k.name).unwrap().contains(k.help));
        }
    }
}
