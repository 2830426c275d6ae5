//! The help: all flags of the tables, with what becomes of each.

use super::flags::{Class, Flag, TABLES, Value};
use super::routes;
use super::settings::Settings;

/// Text that is asked for instead of a run.
pub fn asked(s: &Settings) -> Option<String> {
    if let (false, Some(name)) = (s.help, &s.help_route) {
        return routes::help(name).ok();
    }
    match (s.help, s.version) {
        (true, _) => Some(help()),
        (false, true) => Some(format!("Kiln v{}", env!("CARGO_PKG_VERSION"))),
        (false, false) => None,
    }
}

fn help() -> String {
    let mut text = String::from(
        "Usage: kiln trtexec FLAGS\n\nTakes the flags of trtexec 10 and 11, and prints and stores results as it does.\n",
    );
    for (head, flags) in TABLES {
        text.push_str(&format!("\n{head}:\n"));
        flags.iter().for_each(|f| text.push_str(&line(f)));
    }
    text
}

fn line(f: &Flag) -> String {
    let value = match f.value {
        Value::None => String::new(),
        Value::Required(what) => format!("={what}"),
        Value::Optional(_) => "[=…]".to_owned(),
    };
    let aliases: String = f.aliases.iter().map(|a| format!(", --{a}")).collect();
    let state = match f.class {
        Class::Noted(_) => "no effect: ",
        Class::Refused(_) => "refused: ",
        Class::Build(..) | Class::BuildAll(_) | Class::Own(_) => "",
    };
    format!("  --{}{aliases}{value}\n        {state}{}\n", f.name, f.help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_has_every_flag() {
        let text = help();
        for f in super::super::flags::all() {
            assert!(text.contains(&format!("--{}", f.name)) && text.contains(f.help), "{}", f.name);
        }
    }
}
