//! The flags of `trtexec`, as data: their values, what becomes of each, and the one sentence about it.

mod build;
mod measure;
mod model;
mod refused;
mod report;
mod tuning;

use super::settings::Settings;

/// Value of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// None: `--fp16`.
    None,
    /// One: `--onnx=model.onnx`, or `--onnx model.onnx`. The name stands for it in the help.
    Required(&'static str),
    /// One behind an equals sign, or none, which counts as this text.
    Optional(&'static str),
}

/// Puts a flag into the settings. The error says what is wrong with the value.
pub type Setter = fn(&mut Settings, &str) -> Result<(), String>;

/// Makes a value of Kiln's option of the flag's value.
pub type Translate = fn(&str) -> Result<String, String>;

/// Treatment of a flag.
#[derive(Clone, Copy)]
pub enum Class {
    /// It is an option of `kiln build`; without a value where the translation is empty.
    Build(&'static str, Translate),
    /// It is several options of `kiln build` without values.
    BuildAll(&'static [&'static str]),
    /// It sets something of its own.
    Own(Setter),
    /// It has no effect here, for this reason.
    Noted(&'static str),
    /// It is refused, for this reason.
    Refused(&'static str),
}

/// One flag.
#[derive(Clone, Copy)]
pub struct Flag {
    /// Name without the dashes.
    pub name: &'static str,
    /// Other spellings.
    pub aliases: &'static [&'static str],
    /// Value.
    pub value: Value,
    /// Treatment.
    pub class: Class,
    /// Line of the help.
    pub help: &'static str,
}

/// Tables by theme, with their heads in the help.
pub const TABLES: &[(&str, &[Flag])] = &[
    ("Model, shapes, inputs and outputs", model::FLAGS),
    ("Build", build::FLAGS),
    ("Build routes", tuning::FLAGS),
    ("Measurement", measure::FLAGS),
    ("Reports", report::FLAGS),
    ("Refused", refused::FLAGS),
];

/// All flags.
pub fn all() -> impl Iterator<Item = &'static Flag> {
    TABLES.iter().flat_map(|(_, flags)| *flags)
}

/// The flag of this name, without dashes.
pub fn find(name: &str) -> Option<&'static Flag> {
    all().find(|f| f.name == name || f.aliases.contains(&name))
}

/// A flag that is taken or noted, in the short form of the tables.
const fn flag(name: &'static str, value: Value, class: Class, help: &'static str) -> Flag {
    Flag { name, aliases: &[], value, class, help }
}

/// A flag without effect.
const fn noted(name: &'static str, value: Value, why: &'static str) -> Flag {
    Flag { name, aliases: &[], value, class: Class::Noted(why), help: why }
}

/// A flag that is refused.
const fn refused(name: &'static str, value: Value, why: &'static str) -> Flag {
    Flag { name, aliases: &[], value, class: Class::Refused(why), help: why }
}

impl Flag {
    const fn or(self, aliases: &'static [&'static str]) -> Flag {
        Flag { aliases, ..self }
    }
}

/// The translation of flags without a value.
fn nothing(_: &str) -> Result<String, String> {
    Ok(String::new())
}

/// The translation of values that both tools write alike.
fn same(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_flag_is_once_in_the_tables_and_says_what_becomes_of_it() {
        let mut seen = BTreeSet::new();
        for f in all() {
            for name in f.aliases.iter().chain([&f.name]) {
                assert!(seen.insert(*name), "{name} is there twice");
            }
            assert!(f.help.len() > 10, "{}", f.name);
            if let Class::Noted(why) | Class::Refused(why) = f.class {
                assert!(why.ends_with('.') && why.split(' ').count() > 3, "{}: {why}", f.name);
            }
        }
    }
}
