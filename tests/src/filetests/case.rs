//! The cases of a file.

use kiln_builder::{BuildConfig, Constraints, Refit};
use kiln_ir::DType;

/// One case.
#[derive(Clone, Debug)]
pub struct Case {
    /// Sentence that the case shows.
    pub title: String,
    /// Names of passes, in order.
    pub passes: Vec<String>,
    /// Settings of its passes.
    pub settings: Settings,
    /// Lines before the graph, as they are.
    head: String,
    /// The graph before.
    pub input: String,
    /// The text that must come out.
    pub expected: String,
}

/// `#! set key=value …`.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `reduced=f16`, `strong_types=true`, `obey=true`, `prefer=true`, `fold=false`, `fuse=false`, `fold_limit=…`, `refit=all`.
    pub config: BuildConfig,
    /// `backend=wgpu`: who is asked what it can run; the CPU backend if not given.
    pub backend: String,
    /// `tolerance=1e-2`: the greatest difference of outputs, relative where they are greater than 1.
    pub tolerance: f64,
    /// `sizes=2,3`: for each set, what all symbols are; 3 then 4 if not given.
    pub sizes: Vec<i64>,
    /// `inputs=positive`: floats lie in [0.5, 2) instead of [-2, 2).
    pub positive: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            config: BuildConfig::default(),
            backend: "cpu".into(),
            tolerance: 1e-5,
            sizes: vec![3, 4],
            positive: false,
        }
    }
}

impl Settings {
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let wrong = || format!("{key}={value} is no setting");
        let flag = || value.parse::<bool>().map_err(|_| wrong());
        match key {
            "reduced" => self.config.reduced = vec![value.parse::<DType>().map_err(|_| wrong())?],
            "strong_types" => self.config.strong_types = flag()?,
            "obey" if flag()? => self.config.constraints = Constraints::Obey,
            "prefer" if flag()? => self.config.constraints = Constraints::Prefer,
            "fold" => self.config.fold = flag()?,
            "fuse" => self.config.fuse = flag()?,
            "fold_limit" => self.config.fold_limit = value.parse().map_err(|_| wrong())?,
            "refit" if value == "all" => self.config.refit = Refit::All,
            "backend" => self.backend = value.into(),
            "tolerance" => self.tolerance = value.parse().map_err(|_| wrong())?,
            "sizes" => {
                self.sizes =
                    value.split(',').map(|n| n.parse().map_err(|_| wrong())).collect::<Result<_, _>>()?;
            }
            "inputs" if value == "positive" => self.positive = true,
            _ => return Err(wrong()),
        }
        Ok(())
    }
}

impl Case {
    /// The case as text, with another expectation.
    pub fn with_expected(&self, expected: &str) -> String {
        format!("{}{}#=>\n{}\n\n", self.head, self.input, expected.trim_end())
    }
}

/// The cases of a text.
pub fn parse(text: &str) -> Result<Vec<Case>, String> {
    let mut starts: Vec<usize> = text.match_indices("\n## ").map(|(i, _)| i + 1).collect();
    if text.starts_with("## ") {
        starts.insert(0, 0);
    }
    if starts.first() != Some(&0) {
        return Err("a file starts with `## ` and the title of a case".into());
    }
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    starts.iter().zip(ends).map(|(&from, to)| case(&text[from..to])).collect()
}

fn case(text: &str) -> Result<Case, String> {
    let is_head = |l: &&str| l.starts_with('#') && !l.starts_with("#=>");
    let head: String = text.split_inclusive('\n').take_while(is_head).collect();
    let title = head.lines().next().and_then(|l| l.strip_prefix("## ")).unwrap_or_default().to_owned();
    let wrong = |what: String| format!("case \"{title}\": {what}");
    let (input, expected) = text[head.len()..]
        .split_once("#=>\n")
        .ok_or_else(|| wrong("no line `#=>` before the expectation".into()))?;
    let (mut passes, mut settings) = (Vec::new(), Settings::default());
    for line in head.lines().filter_map(|l| l.strip_prefix("#! ")) {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("run") => passes.extend(words.map(str::to_owned)),
            Some("set") => {
                for word in words {
                    let (k, v) = word.split_once('=').ok_or_else(|| wrong(format!("`{word}` has no `=`")))?;
                    settings.set(k, v).map_err(wrong)?;
                }
            }
            _ => return Err(wrong(format!("`#! {line}` is neither `run` nor `set`"))),
        }
    }
    if passes.is_empty() {
        return Err(wrong("no line `#! run …` says what to run".into()));
    }
    let (input, expected) = (input.to_owned(), expected.trim_end().to_owned());
    Ok(Case { title, passes, settings, head, input, expected })
}
