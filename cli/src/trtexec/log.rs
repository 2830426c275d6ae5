//! Lines as scripts expect them: time and severity in front, results to standard output, warnings and errors to standard
//! error.

use crate::terminal;
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

/// Writer of lines.
#[derive(Debug)]
pub struct Log {
    /// The command line, which the first and the last line name.
    command: String,
    pub verbose: bool,
}

impl Log {
    /// Writes the first line.
    pub fn start(words: &[String], verbose: bool) -> Log {
        let quoted = |w: &String| if w.contains(' ') { format!("'{w}'") } else { w.clone() };
        let command: Vec<String> = words.iter().map(quoted).collect();
        let log = Log { command: format!("kiln trtexec {}", command.join(" ")), verbose };
        log.verdict("RUNNING");
        log
    }

    /// Writes the first or the last line.
    pub fn verdict(&self, word: &str) {
        let version = env!("CARGO_PKG_VERSION");
        out(&format!("&&&& {word} Kiln.trtexec [Kiln v{version}] # {}", self.command));
    }

    /// A result.
    pub fn info(&self, text: impl AsRef<str>) {
        text.as_ref().lines().for_each(|l| out(&format!("[{}] [I] {l}", now())));
    }

    /// The head of a part.
    pub fn head(&self, text: &str) {
        out(&format!("[{}] [I] ", now()));
        self.info(format!("=== {text} ==="));
    }

    /// An explanation, where they are wanted.
    pub fn explain(&self, text: impl AsRef<str>) {
        if self.verbose {
            text.as_ref().lines().for_each(|l| out(&format!("[{}] [V] {l}", now())));
        }
    }

    /// A warning.
    pub fn warn(&self, text: impl AsRef<str>) {
        text.as_ref().lines().for_each(|l| err(&format!("[{}] [W] {l}", now())));
    }

    /// An error.
    pub fn error(&self, text: impl AsRef<str>) {
        text.as_ref().lines().for_each(|l| err(&format!("[{}] [E] {l}", now())));
    }
}

/// A reader that closed the pipe has seen enough: that is not a failure.
fn out(line: &str) {
    drop(writeln!(std::io::stdout(), "{}", terminal::shown(line)));
}

fn err(line: &str) {
    drop(writeln!(std::io::stderr(), "{}", terminal::shown(line)));
}

/// The time in UTC, as 01/31/2026-23:59:58.
fn now() -> String {
    stamp(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()))
}

fn stamp(seconds: u64) -> String {
    let (days, s) = (seconds / 86_400, seconds % 86_400);
    // Days since 1 March of the year 0: leap days are the last of their year then.
    let z = days + 719_468;
    let (era, day) = (z / 146_097, z % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let m = (5 * of_year + 2) / 153;
    let (month, date) = (if m < 10 { m + 3 } else { m - 9 }, of_year - (153 * m + 2) / 5 + 1);
    let year = era * 400 + year + u64::from(month <= 2);
    format!("{month:02}/{date:02}/{year}-{:02}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
}

#[cfg(test)]
mod tests {
    use super::stamp;

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(stamp(0), "01/01/1970-00:00:00");
        assert_eq!(stamp(951_782_399), "02/28/2000-23:59:59");
        assert_eq!(stamp(951_782_400), "02/29/2000-00:00:00");
        assert_eq!(stamp(1_795_500_000), "11/24/2026-06:00:00");
    }
}
