//! The expression form of plug-in layers: formulas over elements as scalar expressions.

use super::formula::{Formula, Meaning, Operation, no_function, unknown};
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::expr::{BinOp, Builder, CmpOp, Expr, Reg, UnOp};

/// The scalar expression of a formula over `x0`, `x1`, … of these types and fields that are one number.
pub fn expression(text: &str, fields: &Attrs, inputs: &[DType], output: DType) -> Result<Expr, OpError> {
    if let Some(t) = inputs.iter().chain([&output]).find(|t| !t.is_float() && !t.is_int()) {
        return Err(OpError::Unsupported(format!("an expression of {t}; floats and integers are taken")));
    }
    let mut m = Scalars { builder: Builder::new(inputs), inputs: inputs.len(), fields };
    let value = Formula::parse(text)?.value(&mut m)?;
    // A constant takes the type of the result.
    let result = m.register(value, output);
    Ok(m.builder.finish(result, output))
}

struct Scalars<'a> {
    builder: Builder,
    inputs: usize,
    fields: &'a Attrs,
}

/// A number that takes the type of what it is combined with, or a register.
#[derive(Clone, Copy)]
enum Operand {
    Number(f64, bool),
    Register(Reg),
}

impl Scalars<'_> {
    fn register(&mut self, v: Operand, like: DType) -> Reg {
        match v {
            Operand::Register(r) => r,
            Operand::Number(x, whole) => {
                let ty = kiln_ir::expr::compute_type(like);
                let ty = if !whole && !ty.is_float() { DType::F32 } else { ty };
                self.builder.constant(x, ty)
            }
        }
    }

    /// Registers of one type: floats where one is a float, else the wider integer.
    fn unify(&mut self, a: Operand, b: Operand) -> (Reg, Reg) {
        let ty = |m: &Self, v: Operand| match v {
            Operand::Register(r) => Some(m.builder.ty(r)),
            Operand::Number(_, true) => None,
            Operand::Number(_, false) => Some(DType::F32),
        };
        let both = [ty(self, a), ty(self, b)];
        let of = |t: DType| both.contains(&Some(t));
        let common = if of(DType::F32) {
            DType::F32
        } else if of(DType::I64) {
            DType::I64
        } else if of(DType::I32) {
            DType::I32
        } else if of(DType::Bool) && both[0] == both[1] {
            DType::Bool
        } else if of(DType::Bool) {
            DType::I32
        } else {
            DType::F32
        };
        let (a, b) = (self.register(a, common), self.register(b, common));
        (self.builder.cast(a, common), self.builder.cast(b, common))
    }

    fn float(&mut self, a: Operand) -> Reg {
        let r = self.register(a, DType::F32);
        self.builder.cast(r, DType::F32)
    }

    fn condition(&mut self, a: Operand) -> Reg {
        let r = self.register(a, DType::F32);
        self.builder.cast(r, DType::Bool)
    }
}

impl Meaning for Scalars<'_> {
    type Value = Operand;

    fn int(&mut self, n: i64) -> Result<Operand, OpError> {
        Ok(Operand::Number(n as f64, true))
    }

    fn float(&mut self, x: f64) -> Result<Operand, OpError> {
        Ok(Operand::Number(x, false))
    }

    fn name(&mut self, name: &str) -> Result<Operand, OpError> {
        let input = name.strip_prefix('x').and_then(|n| n.parse().ok()).filter(|&i: &usize| i < self.inputs);
        match (input, self.fields.get(name)) {
            (Some(i), _) => Ok(Operand::Register(self.builder.load(i))),
            (None, Some(Attr::Int(n))) => Ok(Operand::Number(*n as f64, true)),
            (None, Some(Attr::Float(x))) => Ok(Operand::Number(*x, false)),
            _ => Err(unknown(
                name,
                &format!("x0 to x{} or a field that is one number", self.inputs.saturating_sub(1)),
            )),
        }
    }

    fn neg(&mut self, a: Operand) -> Result<Operand, OpError> {
        Ok(match a {
            Operand::Number(x, whole) => Operand::Number(-x, whole),
            Operand::Register(r) => Operand::Register(self.builder.un(UnOp::Neg, r)),
        })
    }

    fn binary(&mut self, op: Operation, a: Operand, b: Operand) -> Result<Operand, OpError> {
        let (a, b) = self.unify(a, b);
        let arithmetic = match op {
            Operation::Add => Some(BinOp::Add),
            Operation::Sub => Some(BinOp::Sub),
            Operation::Mul => Some(BinOp::Mul),
            Operation::Div if self.builder.ty(a).is_float() => Some(BinOp::Div),
            Operation::Div => Some(BinOp::FloorDiv),
            Operation::Mod => Some(BinOp::Mod),
            _ => None,
        };
        let compared = match op {
            Operation::Eq => CmpOp::Eq,
            Operation::Ne => CmpOp::Ne,
            Operation::Lt => CmpOp::Lt,
            Operation::Le => CmpOp::Le,
            Operation::Gt => CmpOp::Gt,
            _ => CmpOp::Ge,
        };
        Ok(Operand::Register(match arithmetic {
            Some(_) if self.builder.ty(a) == DType::Bool => {
                return Err(OpError::Value(
                    "an expression computes with comparisons; use select(c, a, b)".into(),
                ));
            }
            Some(op) => self.builder.bin(op, a, b),
            None => self.builder.cmp(compared, a, b),
        }))
    }

    fn call(&mut self, name: &str, args: Vec<Operand>) -> Result<Operand, OpError> {
        /// Functions that keep the type of integers.
        const KEEP: [UnOp; 3] = [UnOp::Neg, UnOp::Abs, UnOp::Sign];
        let wanted = "a function of scalar expressions: exp(x), log(x), tanh(x), erf(x), sqrt(x), abs(x), min(x, y), \
                      max(x, y), pow(x, y), select(c, x, y) …";
        Ok(Operand::Register(match &args[..] {
            &[a] => match UnOp::from_name(name) {
                Some(UnOp::Not) => {
                    let c = self.condition(a);
                    self.builder.un(UnOp::Not, c)
                }
                Some(UnOp::BitNot) | None => return Err(no_function(name, 1, wanted)),
                Some(op) => {
                    let keep = KEEP.contains(&op);
                    let r = match a {
                        Operand::Register(r) if keep && self.builder.ty(r) != DType::Bool => r,
                        a => self.float(a),
                    };
                    self.builder.un(op, r)
                }
            },
            &[a, b] => match (BinOp::from_name(name), name) {
                (Some(op @ (BinOp::Min | BinOp::Max | BinOp::Mod | BinOp::Rem | BinOp::FloorDiv)), _) => {
                    let (a, b) = self.unify(a, b);
                    self.builder.bin(op, a, b)
                }
                (Some(op @ BinOp::Pow), _) => {
                    let (a, b) = (self.float(a), self.float(b));
                    self.builder.bin(op, a, b)
                }
                (Some(op @ (BinOp::And | BinOp::Or | BinOp::Xor)), _) => {
                    let (a, b) = (self.condition(a), self.condition(b));
                    self.builder.bin(op, a, b)
                }
                _ => return Err(no_function(name, 2, wanted)),
            },
            &[c, a, b] if name == "select" => {
                let c = self.condition(c);
                let (a, b) = self.unify(a, b);
                self.builder.select(c, a, b)
            }
            args => return Err(no_function(name, args.len(), wanted)),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ir::expr::Num;

    fn value(text: &str, inputs: &[(DType, Num)], output: DType) -> Result<Num, OpError> {
        let fields = Attrs::new().with("beta", 2.0).with("n", 3i64).with("mode", "x");
        let types: Vec<DType> = inputs.iter().map(|i| i.0).collect();
        let e = expression(text, &fields, &types, output)?;
        assert_eq!(e.result_type(), output);
        let elements: Vec<Num> = inputs.iter().map(|i| i.1).collect();
        Ok(e.eval(&elements, &mut Vec::new()))
    }

    #[test]
    fn formulas_over_elements() {
        let f = |x: f64| (DType::F32, Num::F(x));
        let i = |n: i64| (DType::I32, Num::I(n));
        for (text, inputs, wanted) in [
            ("beta * x0 + 1", vec![f(3.0)], 7.0),
            ("select(x0 < 0, -x0, x0 / n)", vec![f(-4.0)], 4.0),
            ("max(x0, x1) - min(x0, 0.5)", vec![f(1.0), f(2.0)], 1.5),
            ("abs(x0) * x1", vec![i(-3), f(0.5)], 1.5),
            ("exp(0) + pow(x0, 2)", vec![f(3.0)], 10.0),
            ("select(and(x0 > 1, not(x0 > 2)), 1, 0)", vec![f(1.5)], 1.0),
            ("n", vec![f(0.0)], 3.0),
        ] {
            assert_eq!(value(text, &inputs, DType::F32), Ok(Num::F(wanted)), "{text}");
        }
        assert_eq!(value("x0 / 2 + n", &[i(-3)], DType::I32), Ok(Num::I(1)));
    }

    #[test]
    fn wrong_formulas_are_refused() {
        let x = [(DType::F32, Num::F(1.0))];
        for (text, says) in [
            ("x1", "x0 to x0"),
            ("mode", "\"mode\""),
            ("sin(x0, x0)", "\"sin\" with 2"),
            ("(x0 > 1) + (x0 > 2)", "select(c, a, b)"),
            ("i0.d0 * x0", "\"i0.d0\""),
        ] {
            let e = value(text, &x, DType::F32).unwrap_err().to_string();
            assert!(e.contains(says), "{text}: {e}");
        }
        assert!(value("x0", &[(DType::Bool, Num::I(1))], DType::F32).is_err());
    }
}
