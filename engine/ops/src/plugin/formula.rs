//! Formulas of plug-in layers: text, its syntax tree, and meanings as sizes and as numbers.

use kiln_ir::dim::Dim;
use kiln_ir::error::OpError;

/// Longer texts are refused.
const MAX_TEXT: usize = 16 << 10;
/// Deeper nesting is refused.
const MAX_DEPTH: usize = 64;

/// A formula.
#[derive(Clone, Debug, PartialEq)]
pub enum Formula {
    /// A whole number.
    Int(i64),
    /// A number with a point or an exponent.
    Float(f64),
    /// A name: `i0.d1`, `eps`.
    Name(String),
    /// The negative.
    Neg(Box<Formula>),
    /// An operation on two formulas.
    Binary(Operation, Box<Formula>, Box<Formula>),
    /// A function.
    Call(String, Vec<Formula>),
}

/// An operation on two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Sum.
    Add,
    /// Difference.
    Sub,
    /// Product.
    Mul,
    /// Quotient, of integers rounded down.
    Div,
    /// Remainder with the sign of the divisor.
    Mod,
    /// Equal.
    Eq,
    /// Not equal.
    Ne,
    /// Less.
    Lt,
    /// Less or equal.
    Le,
    /// Greater.
    Gt,
    /// Greater or equal.
    Ge,
}

/// The operations in the order of how weakly they bind; longer signs first.
const LEVELS: [&[(&str, Operation)]; 3] = [
    &[
        ("==", Operation::Eq),
        ("!=", Operation::Ne),
        ("<=", Operation::Le),
        (">=", Operation::Ge),
        ("<", Operation::Lt),
        (">", Operation::Gt),
    ],
    &[("+", Operation::Add), ("-", Operation::Sub)],
    &[("*", Operation::Mul), ("/", Operation::Div), ("%", Operation::Mod)],
];

/// Meaning of the parts of a formula.
pub trait Meaning {
    /// Value of a part.
    type Value;

    /// A whole number.
    fn int(&mut self, n: i64) -> Result<Self::Value, OpError>;
    /// A number with a fraction.
    fn float(&mut self, x: f64) -> Result<Self::Value, OpError>;
    /// A name.
    fn name(&mut self, name: &str) -> Result<Self::Value, OpError>;
    /// The negative.
    fn neg(&mut self, a: Self::Value) -> Result<Self::Value, OpError>;
    /// An operation.
    fn binary(&mut self, op: Operation, a: Self::Value, b: Self::Value) -> Result<Self::Value, OpError>;
    /// A function.
    fn call(&mut self, name: &str, args: Vec<Self::Value>) -> Result<Self::Value, OpError>;
}

impl Formula {
    /// Reads a formula.
    pub fn parse(text: &str) -> Result<Formula, OpError> {
        if text.len() > MAX_TEXT {
            return Err(OpError::Value(format!(
                "a formula of {} bytes, at most {MAX_TEXT} are taken",
                text.len()
            )));
        }
        let mut parser = Parser { text, at: 0 };
        let formula = parser.level(0, 0)?;
        match parser.rest() {
            "" => Ok(formula),
            _ => Err(parser.wrong("the end or an operation")),
        }
    }

    /// The value of this formula by a meaning of its parts.
    pub fn value<M: Meaning>(&self, m: &mut M) -> Result<M::Value, OpError> {
        match self {
            Formula::Int(n) => m.int(*n),
            Formula::Float(x) => m.float(*x),
            Formula::Name(name) => m.name(name),
            Formula::Neg(a) => {
                let a = a.value(m)?;
                m.neg(a)
            }
            Formula::Binary(op, a, b) => {
                let (a, b) = (a.value(m)?, b.value(m)?);
                m.binary(*op, a, b)
            }
            Formula::Call(name, args) => {
                let args = args.iter().map(|a| a.value(m)).collect::<Result<_, _>>()?;
                m.call(name, args)
            }
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    /// The text that is not read yet, without white space in front.
    fn rest(&mut self) -> &'a str {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let trimmed = rest.trim_start();
        self.at += rest.len() - trimmed.len();
        trimmed
    }

    fn take(&mut self, sign: &str) -> bool {
        let found = self.rest().starts_with(sign);
        self.at += if found { sign.len() } else { 0 };
        found
    }

    fn wrong(&mut self, wanted: &str) -> OpError {
        let found: String = self.rest().chars().take(16).collect();
        let found = if found.is_empty() { "the end".to_owned() } else { format!("\"{found}\"") };
        OpError::Value(format!("formula \"{}\": {found} at byte {}, wants {wanted}", self.text, self.at))
    }

    fn level(&mut self, level: usize, depth: usize) -> Result<Formula, OpError> {
        if depth > MAX_DEPTH {
            return Err(OpError::Value(format!("a formula nested deeper than {MAX_DEPTH}")));
        }
        let Some(signs) = LEVELS.get(level) else { return self.factor(depth) };
        let mut left = self.level(level + 1, depth)?;
        let mut chained = 0;
        while let Some(&(_, op)) = signs.iter().find(|(sign, _)| self.take(sign)) {
            // The tree of a chain is as deep as the chain is long.
            chained += 1;
            if chained > MAX_DEPTH {
                return Err(OpError::Value(format!(
                    "a formula with a chain of more than {MAX_DEPTH} operations"
                )));
            }
            left = Formula::Binary(op, left.into(), self.level(level + 1, depth)?.into());
        }
        Ok(left)
    }

    fn factor(&mut self, depth: usize) -> Result<Formula, OpError> {
        if self.take("-") {
            return Ok(Formula::Neg(self.level(LEVELS.len(), depth + 1)?.into()));
        }
        if self.take("(") {
            let inner = self.level(0, depth + 1)?;
            return if self.take(")") { Ok(inner) } else { Err(self.wrong("\")\"")) };
        }
        let rest = self.rest();
        match rest.chars().next() {
            Some(c) if c.is_ascii_digit() || c == '.' => self.number(rest),
            Some(c) if c.is_ascii_alphabetic() || c == '_' => self.word(rest, depth),
            _ => Err(self.wrong("a number, a name or \"(\"")),
        }
    }

    fn number(&mut self, rest: &str) -> Result<Formula, OpError> {
        let mut exponent = false;
        let end = rest.find(|c: char| {
            let part = c.is_ascii_digit() || c == '.' || c == 'e' || (exponent && (c == '-' || c == '+'));
            exponent = c == 'e';
            !part
        });
        let word = &rest[..end.unwrap_or(rest.len())];
        let number = match word.parse::<i64>() {
            Ok(n) => Some(Formula::Int(n)),
            Err(_) => word.parse().ok().filter(|x: &f64| x.is_finite()).map(Formula::Float),
        };
        let number = number.ok_or_else(|| self.wrong("a number"))?;
        self.at += word.len();
        Ok(number)
    }

    fn word(&mut self, rest: &str, depth: usize) -> Result<Formula, OpError> {
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.'));
        let word = &rest[..end.unwrap_or(rest.len())];
        self.at += word.len();
        if !self.take("(") {
            return Ok(Formula::Name(word.to_owned()));
        }
        let mut args = vec![self.level(0, depth + 1)?];
        while self.take(",") {
            args.push(self.level(0, depth + 1)?);
        }
        if self.take(")") {
            Ok(Formula::Call(word.to_owned(), args))
        } else {
            Err(self.wrong("\",\" or \")\""))
        }
    }
}

/// The name of a part of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputPart {
    /// The size of a dimension.
    Size(usize),
    /// An element.
    Element(usize),
    /// The number of dimensions.
    Rank,
    /// The number of elements.
    Volume,
}

/// The input and its part that a name stands for: `i0.d1`, `i0.v3`, `i0.rank`, `i0.size`.
pub fn input_part(name: &str) -> Option<(usize, InputPart)> {
    let (input, part) = name.strip_prefix('i')?.split_once('.')?;
    let part = match (part, part.split_at_checked(1)?) {
        ("rank", _) => InputPart::Rank,
        ("size", _) => InputPart::Volume,
        (_, ("d", n)) => InputPart::Size(n.parse().ok()?),
        (_, ("v", n)) => InputPart::Element(n.parse().ok()?),
        _ => return None,
    };
    Some((input.parse().ok()?, part))
}

/// The refusal of a name that means nothing.
pub fn unknown(name: &str, wanted: &str) -> OpError {
    OpError::Value(format!("a formula names \"{name}\", wants {wanted}"))
}

/// The refusal of a function that is not known or has another number of arguments.
pub fn no_function(name: &str, args: usize, wanted: &str) -> OpError {
    OpError::Value(format!("a formula calls \"{name}\" with {args} arguments, wants {wanted}"))
}

const FUNCTIONS: &str = "min(a, b), max(a, b), ceildiv(a, b) or select(c, a, b)";

/// Formulas as sizes, where names are looked up.
pub struct Sizes<'a>(pub &'a dyn Fn(&str) -> Result<Dim, OpError>);

impl Meaning for Sizes<'_> {
    type Value = Dim;

    fn int(&mut self, n: i64) -> Result<Dim, OpError> {
        Ok(Dim::new(n))
    }

    fn float(&mut self, x: f64) -> Result<Dim, OpError> {
        Err(OpError::Value(format!("a size is made of {x}, wants integers")))
    }

    fn name(&mut self, name: &str) -> Result<Dim, OpError> {
        (self.0)(name)
    }

    fn neg(&mut self, a: Dim) -> Result<Dim, OpError> {
        Ok(-a)
    }

    fn binary(&mut self, op: Operation, a: Dim, b: Dim) -> Result<Dim, OpError> {
        match (op, a.as_const(), b.as_const()) {
            (Operation::Div | Operation::Mod, _, Some(0)) => {
                Err(OpError::Value("a size is divided by zero".into()))
            }
            (Operation::Add, ..) => Ok(a + b),
            (Operation::Sub, ..) => Ok(a - b),
            (Operation::Mul, ..) => Ok(a * b),
            (Operation::Div, ..) => Ok(a.floor_div(&b)),
            (Operation::Mod, ..) => Ok(a.modulo(&b)),
            (_, Some(a), Some(b)) => Ok(Dim::new(compare(op, a.cmp(&b)).into())),
            _ => {
                Err(OpError::Value("sizes are compared that are not known when the network is built".into()))
            }
        }
    }

    fn call(&mut self, name: &str, args: Vec<Dim>) -> Result<Dim, OpError> {
        match (name, &args[..]) {
            ("min", [a, b]) => Ok(a.min_with(b)),
            ("max", [a, b]) => Ok(a.max_with(b)),
            ("ceildiv", [_, b]) if b.is(0) => Err(OpError::Value("a size is divided by zero".into())),
            ("ceildiv", [a, b]) => Ok(a.ceil_div(b)),
            ("select", [c, a, b]) => match c.as_const() {
                Some(c) => Ok(if c != 0 { a.clone() } else { b.clone() }),
                None => Err(OpError::Value(
                    "select of sizes wants a condition that is known when the network is built".into(),
                )),
            },
            _ => Err(no_function(name, args.len(), FUNCTIONS)),
        }
    }
}

fn compare(op: Operation, found: std::cmp::Ordering) -> bool {
    match op {
        Operation::Eq => found.is_eq(),
        Operation::Ne => found.is_ne(),
        Operation::Lt => found.is_lt(),
        Operation::Le => found.is_le(),
        Operation::Gt => found.is_gt(),
        Operation::Ge => found.is_ge(),
        _ => false,
    }
}

/// A number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
}

impl Number {
    /// As a float.
    pub fn float(self) -> f64 {
        match self {
            Number::Int(n) => n as f64,
            Number::Float(x) => x,
        }
    }

    /// As an integer, if it is one.
    pub fn int(self) -> Option<i64> {
        match self {
            Number::Int(n) => Some(n),
            Number::Float(_) => None,
        }
    }

    /// Whether it is not zero.
    pub fn holds(self) -> bool {
        self.float() != 0.0
    }
}

/// Formulas as numbers, where names are looked up.
pub struct Numbers<'a>(pub &'a dyn Fn(&str) -> Result<Number, OpError>);

impl Numbers<'_> {
    fn beyond() -> OpError {
        OpError::Value("a formula has a value beyond 64 bits, or divides by zero".into())
    }
}

impl Meaning for Numbers<'_> {
    type Value = Number;

    fn int(&mut self, n: i64) -> Result<Number, OpError> {
        Ok(Number::Int(n))
    }

    fn float(&mut self, x: f64) -> Result<Number, OpError> {
        Ok(Number::Float(x))
    }

    fn name(&mut self, name: &str) -> Result<Number, OpError> {
        (self.0)(name)
    }

    fn neg(&mut self, a: Number) -> Result<Number, OpError> {
        match a {
            Number::Int(n) => n.checked_neg().map(Number::Int).ok_or_else(Numbers::beyond),
            Number::Float(x) => Ok(Number::Float(-x)),
        }
    }

    fn binary(&mut self, op: Operation, a: Number, b: Number) -> Result<Number, OpError> {
        let (Number::Int(a), Number::Int(b)) = (a, b) else {
            let (a, b) = (a.float(), b.float());
            return Ok(match op {
                Operation::Add => Number::Float(a + b),
                Operation::Sub => Number::Float(a - b),
                Operation::Mul => Number::Float(a * b),
                Operation::Div => Number::Float(a / b),
                Operation::Mod => Number::Float(a - b * (a / b).floor()),
                _ => Number::Int(a.partial_cmp(&b).map_or(op == Operation::Ne, |o| compare(op, o)).into()),
            });
        };
        let found = match op {
            Operation::Add => a.checked_add(b),
            Operation::Sub => a.checked_sub(b),
            Operation::Mul => a.checked_mul(b),
            Operation::Div => floor_div(a, b),
            Operation::Mod => floor_div(a, b).and_then(|q| a.checked_sub(q.checked_mul(b)?)),
            _ => Some(compare(op, a.cmp(&b)).into()),
        };
        found.map(Number::Int).ok_or_else(Numbers::beyond)
    }

    fn call(&mut self, name: &str, args: Vec<Number>) -> Result<Number, OpError> {
        match (name, &args[..]) {
            ("min", &[a, b]) => Ok(if b.float() < a.float() { b } else { a }),
            ("max", &[a, b]) => Ok(if b.float() > a.float() { b } else { a }),
            ("ceildiv", &[Number::Int(a), Number::Int(b)]) => {
                let q = a.checked_neg().and_then(|a| floor_div(a, b)).and_then(i64::checked_neg);
                q.map(Number::Int).ok_or_else(Numbers::beyond)
            }
            ("select", &[c, a, b]) => Ok(if c.holds() { a } else { b }),
            _ => Err(no_function(name, args.len(), FUNCTIONS)),
        }
    }
}

fn floor_div(a: i64, b: i64) -> Option<i64> {
    let (q, r) = (a.checked_div(b)?, a.checked_rem(b)?);
    if r != 0 && (r < 0) != (b < 0) { q.checked_sub(1) } else { Some(q) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Result<Number, OpError> {
        let name = |n: &str| match n {
            "i0.d1" => Ok(Number::Int(7)),
            "eps" => Ok(Number::Float(0.5)),
            _ => Err(unknown(n, "i0.d1 or eps")),
        };
        Formula::parse(text)?.value(&mut Numbers(&name))
    }

    #[test]
    fn numbers_follow_the_usual_precedence() {
        for (text, wanted) in [
            ("1 + 2 * i0.d1 - 3", 12),
            ("-(1 - 8) % 4", 3),
            ("-7 / 2", -4),
            ("ceildiv(i0.d1, 2) * min(2, 3)", 8),
            ("i0.d1 % 2 == 1", 1),
            ("select(i0.d1 < 4, 10, 20)", 20),
            ("max(1, 2 > 1)", 1),
        ] {
            assert_eq!(number(text), Ok(Number::Int(wanted)), "{text}");
        }
        assert_eq!(number("2 * eps + 1e-1 + .25"), Ok(Number::Float(1.35)));
    }

    #[test]
    fn sizes_are_symbolic() {
        let name = |n: &str| Ok(Dim::host(n.to_owned()));
        let size = |text: &str| Formula::parse(text).unwrap().value(&mut Sizes(&name)).map(|d| d.to_string());
        assert_eq!(size("2 * (i0.d0 + 1) - 2").unwrap(), "2*i0.d0");
        assert_eq!(size("ceildiv(i0.d0, 4)").unwrap(), "ceildiv(i0.d0, 4)");
        assert_eq!(size("select(3 > 2, i0.d0, 1)").unwrap(), "i0.d0");
        assert!(size("i0.d0 / 0").unwrap_err().to_string().contains("divided by zero"));
        assert!(size("0.5").unwrap_err().to_string().contains("wants integers"));
    }

    #[test]
    fn wrong_texts_are_refused_with_their_place() {
        for (text, says) in [
            ("", "the end at byte 0"),
            ("1 +", "wants a number"),
            ("(1", "wants \")\""),
            ("1 2", "\"2\" at byte 2"),
            ("f(1", "\",\" or \")\""),
            ("1..2", "wants a number"),
            ("9999999999 * 9999999999", "beyond 64 bits"),
            ("1 / 0", "divides by zero"),
            ("nothing", "\"nothing\""),
            ("sin(1)", "\"sin\" with 1 arguments"),
        ] {
            let e = number(text).unwrap_err().to_string();
            assert!(e.contains(says), "{text}: {e}");
        }
        let deep = "(".repeat(100) + "1" + &")".repeat(100);
        assert!(number(&deep).unwrap_err().to_string().contains("nested deeper"));
        let long = "1".to_owned() + &"+1".repeat(100);
        assert!(number(&long).unwrap_err().to_string().contains("chain"));
        assert!(number(&"1".repeat(20000)).unwrap_err().to_string().contains("bytes"));
    }

    #[test]
    fn parts_of_inputs_have_names() {
        assert_eq!(input_part("i2.d10"), Some((2, InputPart::Size(10))));
        assert_eq!(input_part("i0.v3"), Some((0, InputPart::Element(3))));
        assert_eq!(input_part("i1.rank"), Some((1, InputPart::Rank)));
        assert_eq!(input_part("i1.size"), Some((1, InputPart::Volume)));
        for none in ["i1.dd", "x0", "i.d1", "i1", "i1.", "eps"] {
            assert_eq!(input_part(none), None, "{none}");
        }
    }
}
