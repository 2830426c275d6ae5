//! Values of flags: shapes, sizes, times, lists.

use crate::options::{Named, bytes, named};
use kiln::Verbosity;
use std::time::Duration;

/// Parts that commas separate; commas and quotes inside of quotes (`'` or `"`) are of the name there.
pub fn split(text: &str) -> Vec<String> {
    let (mut parts, mut quote) = (vec![String::new()], None);
    for c in text.chars() {
        match (c, quote) {
            (',', None) => parts.push(String::new()),
            ('\'' | '"', None) => quote = Some(c),
            (c, Some(q)) if c == q => quote = None,
            _ => parts.iter_mut().next_back().into_iter().for_each(|p| p.push(c)),
        }
    }
    parts.retain(|p| !p.is_empty());
    parts
}

/// The text without quotes.
pub fn unquoted(text: &str) -> String {
    text.replace(['\'', '"'], "")
}

/// Reads `name:1x3x224x224,'na:me':8,scalar:`.
pub fn shapes(text: &str) -> Result<Vec<Named>, String> {
    split(text).iter().map(|p| named(p)).collect()
}

/// Reads a whole number.
pub fn number(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "wanted a whole number".to_owned())
}

/// Reads a whole number from 1 on.
pub fn at_least_one<T: TryFrom<usize>>(text: &str) -> Result<T, String> {
    let n = number(text).ok().filter(|n| *n > 0).and_then(|n| T::try_from(n).ok());
    n.ok_or_else(|| "wanted a whole number from 1 on".to_owned())
}

/// Reads the number of contexts.
pub fn streams(text: &str) -> Result<usize, String> {
    number(text).ok().filter(|n| (1..=256).contains(n)).ok_or_else(|| "wanted 1 to 256".to_owned())
}

/// Reads a number of tactics; -1 is none.
pub fn max_tactics(text: &str) -> Result<Option<usize>, String> {
    if text == "-1" { Ok(None) } else { at_least_one(text).map(Some) }
}

/// Reads a number from 0 on.
pub fn decimal(text: &str) -> Result<f64, String> {
    let x: Option<f64> = text.parse().ok().filter(|x: &f64| x.is_finite() && *x >= 0.0);
    x.ok_or_else(|| "wanted a number from 0 on".to_owned())
}

/// Reads a number above 0.
pub fn positive(text: &str) -> Result<f64, String> {
    decimal(text).ok().filter(|x| *x > 0.0).ok_or_else(|| "wanted a number above 0".to_owned())
}

/// Reads seconds, to a year at most.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let s = decimal(text)?;
    if s <= 3.2e7 { Ok(Duration::from_secs_f64(s)) } else { Err("wanted a year at most".into()) }
}

/// Reads milliseconds.
pub fn milliseconds(text: &str) -> Result<Duration, String> {
    Ok(seconds(text)? / 1000)
}

/// Reads `90,95,99.9`.
pub fn percentiles(text: &str) -> Result<Vec<f64>, String> {
    let one = |p: &str| {
        let p: Option<f64> = p.trim().parse().ok().filter(|p| (0.0..=100.0).contains(p));
        p.ok_or_else(|| "wanted percentiles from 0 to 100, as 90,95,99".to_owned())
    };
    text.split(',').map(one).collect()
}

/// Takes one value alone.
pub fn only(found: &str, wanted: &str, why: &str) -> Result<(), String> {
    if found == wanted { Ok(()) } else { Err(format!("{why}; {wanted} is taken")) }
}

/// Detail in which an engine describes its layers.
pub fn verbosity(text: &str) -> Result<Verbosity, String> {
    match text {
        "layer_names_only" | "default" => Ok(Verbosity::Names),
        "detailed" | "verbose" => Ok(Verbosity::Detailed),
        "none" => Ok(Verbosity::None),
        _ => Err("wanted layer_names_only, detailed or none".into()),
    }
}

/// Form in which tensors between kernels are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DebugForm {
    Summary,
    Numpy,
    Text,
    Raw,
}

/// Reads `summary,numpy,string,raw`.
pub fn debug_forms(text: &str) -> Result<Vec<DebugForm>, String> {
    let one = |form: &str| match form {
        "summary" => Ok(DebugForm::Summary),
        "numpy" => Ok(DebugForm::Numpy),
        "string" => Ok(DebugForm::Text),
        "raw" => Ok(DebugForm::Raw),
        _ => Err("wanted summary, numpy, string or raw".to_owned()),
    };
    text.split(',').map(one).collect()
}

/// Memory of the device for weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Budget {
    Bytes(u64),
    /// Percent of all weights.
    Percent(f64),
    /// All but what a context wants.
    Automatic,
}

/// Reads `512M` or `50%`; -1 is the automatic limit, -2 none.
pub fn budget(text: &str) -> Result<Option<Budget>, String> {
    match text.strip_suffix('%') {
        _ if text == "-1" => Ok(Some(Budget::Automatic)),
        _ if text == "-2" => Ok(None),
        Some(part) => {
            let part = decimal(part).ok().filter(|p| *p <= 100.0);
            part.map(|p| Some(Budget::Percent(p))).ok_or_else(|| "wanted 0% to 100%".to_owned())
        }
        None => Ok(Some(Budget::Bytes(bytes(text)?))),
    }
}

/// A library of kernels, and whether kernels may come from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Kiln's name, if it has such a library.
    pub library: Option<&'static str>,
    /// Name as given.
    pub name: String,
    /// Allowed, or forbidden.
    pub on: bool,
}

/// Reads `-CUDNN,+CUBLAS_LT`.
pub fn tactic_sources(text: &str) -> Result<Vec<Source>, String> {
    let one = |part: &String| {
        let (on, name) = match part.split_at_checked(1) {
            Some(("+", name)) => (true, name),
            Some(("-", name)) => (false, name),
            _ => return Err(format!("\"{part}\" has no sign: wanted +{part} or -{part}")),
        };
        let library = match name.to_ascii_uppercase().as_str() {
            "CUBLAS" | "CUBLAS_LT" | "CUBLASLT" => Some("cublaslt"),
            "CUDNN" => Some("cudnn"),
            "EDGE_MASK_CONVOLUTIONS" | "JIT_CONVOLUTIONS" => None,
            _ => {
                return Err(
                    "wanted CUBLAS, CUBLAS_LT, CUDNN, EDGE_MASK_CONVOLUTIONS or JIT_CONVOLUTIONS".into()
                );
            }
        };
        Ok(Source { library, name: name.to_owned(), on })
    };
    split(text).iter().map(one).collect()
}

/// Reads `workspace:1024MiB,tacticDRAM:1G` as Kiln's pools, with notes on pools that it lacks.
pub fn pools(text: &str) -> Result<(Vec<String>, Vec<String>), String> {
    let (mut pools, mut notes) = (Vec::new(), Vec::new());
    for part in split(text) {
        let (name, size) = part.split_once(':').ok_or("wanted POOL:SIZE, as workspace:1024")?;
        let size = size.trim_end_matches('B').trim_end_matches('i');
        let size = if part.ends_with('B') && size.ends_with(|c: char| c.is_ascii_digit()) {
            format!("{size}B")
        } else {
            size.to_owned()
        };
        let pool = match name.to_ascii_lowercase().as_str() {
            "workspace" => "workspace",
            "tacticsharedmem" => "tactic-shared-memory",
            "tacticdram" => "tactic-dram",
            "dlasram" | "dlalocaldram" | "dlaglobaldram" => {
                notes.push(format!("--memPoolSize={part} has no effect: Kiln has no backend for DLA."));
                continue;
            }
            _ => {
                return Err(format!(
                    "\"{name}\" is no pool: wanted workspace, tacticSharedMem, tacticDRAM or DLA's"
                ));
            }
        };
        pools.push(format!("{pool}:{size}"));
    }
    Ok((pools, notes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_names_keep_their_commas() {
        assert_eq!(split("a:1,'b,c':2,\"d\":3"), ["a:1", "b,c:2", "d:3"]);
        let s = shapes("'x:0':1x3,y:scalar").unwrap();
        assert_eq!((s[0].name.as_str(), s[0].numbers.as_slice()), ("x:0", [1, 3].as_slice()));
        assert!(s[1].numbers.is_empty() && shapes("x").is_err());
    }

    #[test]
    fn sizes_have_units_of_one_or_three_letters() {
        let of = |t: &str| pools(t).map(|p| p.0.join(","));
        assert_eq!(of("workspace:1024").as_deref(), Ok("workspace:1024"));
        assert_eq!(of("workspace:1024MiB,tacticDRAM:2G").as_deref(), Ok("workspace:1024M,tactic-dram:2G"));
        assert_eq!(of("tacticSharedMem:48KiB").as_deref(), Ok("tactic-shared-memory:48K"));
        assert_eq!(of("workspace:7B").as_deref(), Ok("workspace:7B"));
        assert_eq!(of("tacticDram:1M").as_deref(), Ok("tactic-dram:1M"));
        assert!(of("disk:1").is_err() && of("workspace").is_err());
        assert_eq!(pools("dlaSRAM:1").unwrap().1.len(), 1);
    }

    #[test]
    fn sources_have_signs_and_are_named_in_capitals_or_not() {
        let found = tactic_sources("-CUDNN,+cublasLt").unwrap();
        assert_eq!(
            found.iter().map(|s| (s.library, s.on)).collect::<Vec<_>>(),
            [(Some("cudnn"), false), (Some("cublaslt"), true)]
        );
        assert!(tactic_sources("CUDNN").is_err() && tactic_sources("+NPP").is_err());
    }

    #[test]
    fn budgets_are_sizes_or_parts() {
        assert_eq!(budget("512K"), Ok(Some(Budget::Bytes(512 << 10))));
        assert_eq!(budget("25%"), Ok(Some(Budget::Percent(25.0))));
        assert_eq!((budget("-1"), budget("-2")), (Ok(Some(Budget::Automatic)), Ok(None)));
        assert!(budget("101%").is_err() && budget("-3").is_err());
    }

    #[test]
    fn lists_of_sources_and_percentiles_are_read() {
        let all = tactic_sources("-CUDNN,+CUBLAS,-EDGE_MASK_CONVOLUTIONS").unwrap();
        let found: Vec<_> = all.iter().map(|s| (s.library, s.on)).collect();
        assert_eq!(found, [(Some("cudnn"), false), (Some("cublaslt"), true), (None, false)]);
        assert!(tactic_sources("CUDNN").is_err() && tactic_sources("+NONE").is_err());
        assert_eq!(percentiles("50,99.9"), Ok(vec![50.0, 99.9]));
        assert!(percentiles("101").is_err() && percentiles("").is_err());
    }
}
