//! The text of an instruction: its name, its operands, and what they stand for.

use crate::instruction::{Address, Register, Source, Space, constant};
use crate::names::Names;
use crate::types::{Type, mask};

/// A number as PTX writes it.
pub fn number(text: &str) -> Option<u64> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |d| (true, d.trim_start()));
    let value = if let Some(hex) = digits.strip_prefix("0f").or_else(|| digits.strip_prefix("0F")) {
        u64::from(u32::from_str_radix(hex, 16).ok()?)
    } else if let Some(hex) = digits.strip_prefix("0d").or_else(|| digits.strip_prefix("0D")) {
        u64::from_str_radix(hex, 16).ok()?
    } else if let Some(hex) = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        u64::from_str_radix(hex.trim_end_matches(['U', 'u']), 16).ok()?
    } else {
        digits.trim_end_matches(['U', 'u']).parse().ok()?
    };
    Some(if negative { value.wrapping_neg() } else { value })
}

/// The text's guard and the rest.
pub fn guard(text: &str) -> (Option<(&str, bool)>, &str) {
    let Some(rest) = text.strip_prefix('@') else { return (None, text) };
    let (name, rest) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let negated = name.starts_with('!');
    (Some((name.trim_start_matches('!'), !negated)), rest.trim_start())
}

/// Operands, split at the commas outside of brackets and braces.
pub fn operands(text: &str) -> Vec<&str> {
    let (mut out, mut depth, mut from) = (Vec::new(), 0, 0);
    for (i, c) in text.char_indices() {
        match c {
            '{' | '[' | '(' => depth += 1,
            '}' | ']' | ')' => depth -= 1,
            ',' if depth == 0 => {
                out.push(text[from..i].trim());
                from = i + 1;
            }
            _ => {}
        }
    }
    let last = text[from..].trim();
    if !last.is_empty() {
        out.push(last);
    }
    out
}

/// Number of instructions that a statement becomes: comparisons with two results are two, changes of neighbours as many as those.
pub fn length(text: &str) -> usize {
    let (_, rest) = guard(text);
    if rest.starts_with("red.") && rest.contains('{') {
        return rest.split(',').count() - 1;
    }
    let first =
        rest.split_once(char::is_whitespace).map_or("", |(_, o)| operands(o).first().copied().unwrap_or(""));
    if rest.starts_with("setp") && first.contains('|') {
        return 2;
    }
    match rest.starts_with("mov.") && first.starts_with('{') {
        true => first.split(',').filter(|d| d.trim_matches(['{', '}', ' ']) != "_").count(),
        false => 1,
    }
}

/// Names, operands and modifiers of one instruction.
pub struct Text<'a> {
    pub parts: Vec<&'a str>,
    pub operands: Vec<&'a str>,
    pub names: &'a Names<'a>,
}

impl<'a> Text<'a> {
    /// Whether a modifier is there.
    pub fn has(&self, part: &str) -> bool {
        self.parts.contains(&part)
    }

    /// The last type in the name.
    pub fn last_type(&self) -> Result<Type, String> {
        self.parts
            .iter()
            .rev()
            .find_map(|p| Type::of(p))
            .ok_or_else(|| "an instruction without a type".into())
    }

    /// All types in the name.
    pub fn types(&self) -> Vec<Type> {
        self.parts.iter().filter_map(|p| Type::of(p)).collect()
    }

    /// The text of operand `i`.
    pub fn operand(&self, i: usize) -> Result<&'a str, String> {
        self.operands.get(i).copied().ok_or_else(|| format!("operand {i} is missing"))
    }

    /// The register that operand `i` is.
    pub fn destination(&self, i: usize) -> Result<Register, String> {
        self.names.register(self.operand(i)?)
    }

    /// The value of operand `i`.
    pub fn source(&self, i: usize, of: Type) -> Result<Source, String> {
        self.value(self.operand(i)?, of)
    }

    /// The values of all operands from `first` on.
    pub fn sources(&self, first: usize, of: Type) -> Result<Vec<Source>, String> {
        (first..self.operands.len()).map(|i| self.source(i, of)).collect()
    }

    /// The value that a text names.
    pub fn value(&self, text: &str, of: Type) -> Result<Source, String> {
        if let Some(name) = text.strip_prefix('!') {
            return Err(format!("a negated operand {name}"));
        }
        if text == "true" || text == "false" {
            return Ok(constant(u64::from(text == "true")));
        }
        if let Some(n) = number(text) {
            return Ok(constant(n & mask(of.bits().max(if of == Type::Pred { 1 } else { 8 }))));
        }
        if let Some(address) = self.names.symbol(text) {
            return Ok(constant(address));
        }
        self.names.register(text).map(Source::Register)
    }

    /// The items in the braces of operand `i`, or the operand alone.
    pub fn items(&self, i: usize) -> Result<Vec<&'a str>, String> {
        let text = self.operand(i)?;
        Ok(text.trim_matches(['{', '}']).split(',').map(str::trim).collect())
    }

    /// The registers in the braces of operand `i`.
    pub fn destinations(&self, i: usize) -> Result<Vec<Register>, String> {
        self.items(i)?.into_iter().map(|n| self.names.register(n)).collect()
    }

    /// The values in the braces of operand `i`.
    pub fn list(&self, i: usize, of: Type) -> Result<Vec<Source>, String> {
        self.items(i)?.into_iter().map(|n| self.value(n, of)).collect()
    }

    /// The place in the brackets of operand `i`.
    pub fn address(&self, i: usize) -> Result<Address, String> {
        self.place(self.operand(i)?.trim_matches(['[', ']']))
    }

    /// The place that a text names.
    pub fn place(&self, text: &str) -> Result<Address, String> {
        let (base, offset) = match text.split_once('+') {
            Some((base, n)) => {
                (base.trim(), number(n.trim()).ok_or_else(|| format!("cannot read the offset {n}"))? as i64)
            }
            None => (text.trim(), 0),
        };
        Ok(Address { base: self.value(base, Type::Bits(64))?, offset })
    }

    /// The memory of the place that operand `i` is: parameters of calls are in a thread's own.
    pub fn space_at(&self, i: usize) -> Result<Space, String> {
        let inside = self.operand(i)?.trim_matches(['[', ']']);
        let passed = self.names.is_passed(inside.split('+').next().unwrap_or_default());
        Ok(if passed { Space::Local } else { self.space() })
    }

    /// The memory that the name says.
    pub fn space(&self) -> Space {
        let found = self.parts.iter().find_map(|p| match *p {
            "global" => Some(Space::Global),
            "shared" | "shared::cta" => Some(Space::Shared),
            "shared::cluster" => Some(Space::Cluster),
            "local" => Some(Space::Local),
            "param" => Some(Space::Param),
            _ => None,
        });
        found.unwrap_or(Space::Generic)
    }
}
