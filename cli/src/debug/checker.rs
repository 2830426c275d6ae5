//! A command that decides whether a model is good, by its exit code or its output.

use crate::failure::Failure;
use crate::signals;
use regex::Regex;
use std::process::{Command, Stdio};

/// Options for the command that decides.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Check")]
pub struct CheckOptions {
    /// The command that decides: exit code 0 is good, another one fails. A single word with spaces is a line of the shell
    #[arg(long, value_name = "COMMAND", num_args = 1.., allow_hyphen_values = true)]
    pub check: Vec<String>,
    /// Exit codes that fail, instead of all but 0 [repeatable]
    #[arg(long, value_name = "CODE", conflicts_with = "ignore_fail_code")]
    pub fail_code: Vec<i32>,
    /// Exit codes that are good beside 0 [repeatable]
    #[arg(long, value_name = "CODE")]
    pub ignore_fail_code: Vec<i32>,
    /// Expressions, of which one in the output makes the check fail; then exit codes count only with --fail-code [repeatable]
    #[arg(long, value_name = "REGEX", value_parser = regex)]
    pub fail_regex: Vec<Regex>,
    /// Show the output of the command
    #[arg(long)]
    pub show_output: bool,
}

fn regex(text: &str) -> Result<Regex, String> {
    regex::RegexBuilder::new(text).size_limit(1 << 20).build().map_err(|e| e.to_string())
}

impl CheckOptions {
    /// Whether the command finds the model good.
    ///
    /// # Errors
    /// If it cannot be started, or a signal asks to end.
    pub fn is_good(&self) -> Result<bool, Failure> {
        let Some((program, words)) = self.check.split_first() else {
            return Err(Failure::Input("--check wants a command".into()));
        };
        let mut command = match (words.is_empty(), program.contains(' ')) {
            (true, true) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", program]);
                shell
            }
            _ => {
                let mut command = Command::new(program);
                command.args(words);
                command
            }
        };
        let fail =
            |e: std::io::Error| Failure::Input(format!("--check: \"{program}\" cannot be started: {e}"));
        let done = command.stdin(Stdio::null()).output().map_err(fail)?;
        if signals::received().is_some() {
            return Err(Failure::Input("stopped by a signal".into()));
        }
        let text =
            format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        if self.show_output {
            text.lines().for_each(|l| tracing::warn!("{}", crate::terminal::shown(l)));
        }
        // An end by a signal has no code; it fails.
        Ok(self.judges(done.status.code().unwrap_or(-1), &text))
    }

    /// Whether this outcome is good.
    fn judges(&self, code: i32, text: &str) -> bool {
        let by_code = match (self.fail_code.is_empty(), self.fail_regex.is_empty()) {
            (false, _) => self.fail_code.contains(&code),
            (true, true) => code != 0 && !self.ignore_fail_code.contains(&code),
            (true, false) => false,
        };
        !by_code && !self.fail_regex.iter().any(|r| r.is_match(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> CheckOptions {
        CheckOptions {
            check: Vec::new(),
            fail_code: Vec::new(),
            ignore_fail_code: Vec::new(),
            fail_regex: Vec::new(),
            show_output: false,
        }
    }

    #[test]
    fn codes_and_expressions_decide() {
        let o = options();
        assert!(o.judges(0, "error") && !o.judges(1, "") && !o.judges(-1, ""));
        let o = CheckOptions { fail_code: vec![3], ..options() };
        assert!(o.judges(1, "") && !o.judges(3, ""));
        let o = CheckOptions { ignore_fail_code: vec![3], ..options() };
        assert!(o.judges(3, "") && !o.judges(1, ""));
        let o = CheckOptions { fail_regex: vec![regex("err.r").unwrap()], ..options() };
        assert!(o.judges(1, "fine") && !o.judges(0, "an error"));
        let o = CheckOptions { fail_regex: vec![regex("err").unwrap()], fail_code: vec![2], ..options() };
        assert!(!o.judges(2, "fine") && o.judges(1, "fine"));
        assert!(regex("(").is_err());
    }

    #[test]
    fn commands_are_run_by_words_or_by_the_shell() {
        let good = |words: &[&str]| {
            let check = words.iter().map(|w| (*w).to_owned()).collect();
            CheckOptions { check, ..options() }.is_good()
        };
        assert!(good(&["true"]).unwrap() && !good(&["false"]).unwrap());
        assert!(good(&["test 1 = 1"]).unwrap() && !good(&["sh", "-c", "exit 4"]).unwrap());
        assert!(good(&["/no/such/program"]).is_err() && good(&[]).is_err());
    }
}
