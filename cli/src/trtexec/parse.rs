//! Words of a command line as flags with their values.

use super::flags::{self, Class, Flag, Value};
use super::settings::Settings;

/// A flag with its value, which is empty where it has none.
pub struct Given {
    pub flag: &'static Flag,
    pub value: String,
}

/// Reads `--flag`, `--flag=value` and, of flags that want a value, `--flag value`.
///
/// # Errors
/// A sentence on the first word that is wrong.
pub fn parse(words: &[String]) -> Result<Vec<Given>, String> {
    let mut all = Vec::new();
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        let Some(text) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else {
            return Err(format!("\"{word}\" is not a flag: values stand behind their flag, as --onnx=FILE"));
        };
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text, None),
        };
        let flag = flags::find(name).ok_or_else(|| unknown(name))?;
        let value = match (flag.value, value) {
            (Value::None, None) => String::new(),
            (Value::None, Some(v)) => return Err(format!("--{name} takes no value, and \"{v}\" is given")),
            (Value::Optional(default), None) => default.to_owned(),
            (Value::Required(_) | Value::Optional(_), Some(v)) => v,
            (Value::Required(what), None) => {
                let next = words.next_if(|w| !w.starts_with("--"));
                next.cloned().ok_or_else(|| format!("--{name} wants a value: --{name}={what}"))?
            }
        };
        all.push(Given { flag, value });
    }
    Ok(all)
}

/// The settings that flags make, checked together.
pub fn settings(given: &[Given]) -> Result<Settings, String> {
    let mut s = Settings::default();
    given.iter().try_for_each(|g| g.apply(&mut s))?;
    s.check()?;
    Ok(s)
}

/// The refusal of an unknown flag, with the one that is most like it.
fn unknown(name: &str) -> String {
    let near = flags::all().map(|f| f.name).min_by_key(|n| distance(n, name));
    let near = near.filter(|n| distance(n, name) <= 3);
    let hint = near.map_or_else(String::new, |n| format!(" Is --{n} meant?"));
    format!("--{name} is not a flag of trtexec: `kiln trtexec --help` lists all.{hint}")
}

/// Number of letters to change, add or leave out.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.to_lowercase().chars().take(64).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.to_lowercase().chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = corner + usize::from(x != *y);
            corner = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(corner + 1);
        }
    }
    row[b.len()]
}

impl Given {
    /// Puts the flag into the settings.
    ///
    /// # Errors
    /// The refusal of the flag, or a fault of its value.
    pub fn apply(&self, s: &mut Settings) -> Result<(), String> {
        let (name, value) = (self.flag.name, self.value.as_str());
        if matches!(self.flag.value, Value::Required(_)) && value.is_empty() {
            return Err(format!("--{name} wants a value, and it is empty"));
        }
        let wrong = |e: String| format!("--{name}={value}: {e}");
        match self.flag.class {
            Class::Build(option, translate) => {
                let value = translate(value).map_err(wrong)?;
                s.option(option, &value);
            }
            Class::BuildAll(options) => options.iter().for_each(|o| s.option(o, "")),
            Class::Own(set) => set(s, value).map_err(wrong)?,
            Class::Noted(why) => s.notes.push(format!("--{name} has no effect: {why}")),
            Class::Refused(why) => return Err(format!("--{name} is refused: {why}")),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(words: &[&str]) -> Result<Vec<(&'static str, String)>, String> {
        let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
        Ok(parse(&words)?.into_iter().map(|g| (g.flag.name, g.value)).collect())
    }

    #[test]
    fn values_stand_behind_an_equals_sign_or_the_flag() {
        let ok =
            given(&["--onnx=a=b.onnx", "--saveEngine", "e.plan", "--fp16", "--streams", "2", "-v"]).unwrap();
        let wanted = [
            ("onnx", "a=b.onnx"),
            ("saveEngine", "e.plan"),
            ("fp16", ""),
            ("infStreams", "2"),
            ("verbose", ""),
        ];
        assert_eq!(ok, wanted.map(|(n, v)| (n, v.to_owned())));
        assert_eq!(given(&["--saveAllDebugTensors"]).unwrap()[0].1, "summary");
    }

    /// Values of flags that not every text is one for.
    const SAMPLES: [(&str, &str); 25] = [
        ("minShapes", "x:1"),
        ("optShapes", "x:1"),
        ("maxShapes", "x:1"),
        ("shapes", "x:1"),
        ("profile", "1"),
        ("loadInputs", "x:f"),
        ("loadRefOutputs", "x:f"),
        ("accuracyAlgorithm", "cos"),
        ("memPoolSize", "workspace:1"),
        ("tacticSources", "-CUDNN"),
        ("percentile", "50"),
        ("profilingVerbosity", "none"),
        ("saveDebugTensors", "x:f"),
        ("saveAllDebugTensors", "raw"),
        ("infStreams", "2"),
        ("weightStreamingBudget", "5%"),
        ("includeDataTransfers", ""),
        ("hardwareCompatibilityLevel", "ampere+"),
        ("runtimePlatform", "sameAsBuild"),
        ("useRuntime", "full"),
        ("setBuildRoute", "-fuse=off"),
        ("helpBuildRoute", "fuse"),
        ("tuneBuildRoutes", "-fuse"),
        ("tuneBuildRouteFile", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/routes.txt")),
        ("tuningSearch", "fast"),
    ];

    #[test]
    fn each_flag_that_is_taken_changes_the_settings() {
        // Flags that only a further value of their own would change.
        const SAME: [&str; 3] = ["runtimePlatform", "useRuntime", "noDataTransfers"];
        for flag in flags::all() {
            let sample = SAMPLES.iter().find(|s| s.0 == flag.name).map(|s| s.1);
            let value = match flag.value {
                Value::None => "",
                Value::Required(_) | Value::Optional(_) => sample.unwrap_or("7"),
            };
            let mut s = Settings::default();
            let before = format!("{s:?}");
            let done = Given { flag, value: value.to_owned() }.apply(&mut s);
            let changed = format!("{s:?}") != before;
            match flag.class {
                Class::Refused(_) => assert!(done.is_err(), "--{}", flag.name),
                _ => {
                    assert!(done.is_ok(), "--{}: {done:?}", flag.name);
                    assert_eq!(changed, !SAME.contains(&flag.name), "--{}", flag.name);
                }
            }
        }
    }

    #[test]
    fn wrong_words_are_named() {
        let of = |words: &[&str]| given(words).unwrap_err();
        assert!(of(&["model.onnx"]).contains("\"model.onnx\" is not a flag"));
        assert!(of(&["--fp61"]).contains("Is --fp16 meant?"));
        assert!(of(&["--qqqqqqqqqq"]).ends_with("lists all."));
        assert!(of(&["--fp16=1"]).contains("takes no value"));
        assert!(
            of(&["--onnx"]).contains("--onnx=FILE") && of(&["--onnx", "--fp16"]).contains("wants a value")
        );
    }
}
