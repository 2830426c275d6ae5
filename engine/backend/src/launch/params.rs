//! Parameters of kernels: numbers and lists of numbers that travel with a launch, declared once as a Rust structure.
//!
//! [`params!`](crate::params!) declares a structure whose fields are numbers (`u32`, `i32`, `f32`, `i64`), arrays (`[u32; 6]`) or lists of
//! them. A launch
//! carries the structure as words of 32 bits: the fields in order, where a list is its first word and its count, then the
//! contents of the lists. Code generation prints the same structure for kernels from its [`Layout`].

use crate::BackendError;
use linkme::distributed_slice;

/// The layouts of all structures that the program declares.
#[distributed_slice]
pub static LAYOUTS: [Layout];

/// The type of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// 32 bits without a sign.
    U32,
    /// 32 bits with a sign.
    I32,
    /// A float of 32 bits.
    F32,
    /// 64 bits with a sign, the lower half first.
    I64,
}

impl Number {
    /// Words that it takes.
    pub fn words(self) -> u32 {
        if self == Number::I64 { 2 } else { 1 }
    }
}

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One number.
    One(Number),
    /// Any count of numbers, which kernels read by `item(list, i)`.
    List(Number),
    /// As many numbers, at fixed places among the fields.
    Array(Number, usize),
}

impl Kind {
    /// Words among the fields; the contents of lists are elsewhere.
    pub fn words(self) -> u32 {
        match self {
            Kind::One(n) => n.words(),
            Kind::List(_) => 2,
            Kind::Array(n, count) => n.words() * count as u32,
        }
    }
}

/// One field.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Name of the field, the same in all languages.
    pub name: &'static str,
    /// Type of the field.
    pub kind: Kind,
}

/// A structure of parameters.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Name of the structure, the same in all languages.
    pub name: &'static str,
    /// Fields of the structure.
    pub fields: &'static [Field],
}

/// The words of a structure as they are written.
pub struct Words {
    head: Vec<u32>,
    /// Contents of each list, and the position of its first word in `head`.
    lists: Vec<(usize, Vec<u32>)>,
}

impl Words {
    /// An empty list of words.
    pub fn new() -> Words {
        Words { head: Vec::new(), lists: Vec::new() }
    }

    /// Adds a field.
    pub fn put(&mut self, field: &Field, value: &impl Value) -> Result<(), BackendError> {
        let refused =
            |why: String| BackendError::Unsupported(format!("\"{}\" of a launch: {why}", field.name));
        match field.kind {
            Kind::One(n) | Kind::Array(n, _) => {
                let mut written = Vec::new();
                value.write(n, &mut written).map_err(refused)?;
                self.head.extend(written);
            }
            Kind::List(n) => {
                let mut written = Vec::new();
                value.write(n, &mut written).map_err(refused)?;
                self.lists.push((self.head.len(), written.clone()));
                self.head.extend([0, written.len() as u32 / n.words()]);
            }
        }
        Ok(())
    }

    /// All words, with the contents of the lists behind the fields.
    pub fn finish(mut self) -> Vec<u32> {
        for (start, contents) in std::mem::take(&mut self.lists) {
            self.head[start] = self.head.len() as u32;
            self.head.extend(contents);
        }
        self.head
    }
}

impl Default for Words {
    fn default() -> Words {
        Words::new()
    }
}

/// Value that a field can be set to.
pub trait Value {
    /// Adds its words; refuses numbers that do not fit.
    fn write(&self, of: Number, to: &mut Vec<u32>) -> Result<(), String>;
}

impl Value for usize {
    fn write(&self, _: Number, to: &mut Vec<u32>) -> Result<(), String> {
        to.push(u32::try_from(*self).map_err(|_| format!("{self} does not fit into 32 bits"))?);
        Ok(())
    }
}

impl Value for i64 {
    fn write(&self, of: Number, to: &mut Vec<u32>) -> Result<(), String> {
        match of {
            Number::I64 => to.extend([*self as u32, (*self >> 32) as u32]),
            _ => {
                let n = i32::try_from(*self)
                    .map_err(|_| format!("{self} does not fit into 32 bits with a sign"))?;
                to.push(n as u32);
            }
        }
        Ok(())
    }
}

impl Value for f32 {
    fn write(&self, _: Number, to: &mut Vec<u32>) -> Result<(), String> {
        to.push(self.to_bits());
        Ok(())
    }
}

impl<T: Value> Value for Vec<T> {
    fn write(&self, of: Number, to: &mut Vec<u32>) -> Result<(), String> {
        self.iter().try_for_each(|v| v.write(of, to))
    }
}

impl<T: Value, const N: usize> Value for [T; N] {
    fn write(&self, of: Number, to: &mut Vec<u32>) -> Result<(), String> {
        self.iter().try_for_each(|v| v.write(of, to))
    }
}

/// Declares a structure of parameters: its Rust form and its [`Layout`]. A `u32` is set by a `usize`, `i32` and `i64` by an `i64`, a
/// list by a vector.
#[macro_export]
macro_rules! params {
    ($(#[$doc:meta])* $vis:vis struct $name:ident { $($(#[$of:meta])* $field:ident: $kind:tt,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default)]
        $vis struct $name {
            $($(#[$of])* pub $field: $crate::params!(@type $kind),)*
        }

        impl $name {
            /// The structure as kernels see it.
            pub const LAYOUT: $crate::launch::params::Layout = $crate::launch::params::Layout {
                name: stringify!($name),
                fields: &[
                    $($crate::launch::params::Field { name: stringify!($field), kind: $crate::params!(@kind $kind) },)*
                ],
            };

            /// The words of a launch.
            pub fn words(&self) -> Result<Vec<u32>, $crate::BackendError> {
                let mut fields = Self::LAYOUT.fields.iter();
                let mut words = $crate::launch::params::Words::new();
                $(if let Some(field) = fields.next() {
                    words.put(field, &self.$field)?;
                })*
                Ok(words.finish())
            }
        }

        const _: () = {
            #[$crate::linkme::distributed_slice($crate::launch::params::LAYOUTS)]
            #[linkme(crate = $crate::linkme)]
            static LAYOUT: $crate::launch::params::Layout = $name::LAYOUT;
        };
    };
    (@type u32) => { usize };
    (@type i32) => { i64 };
    (@type f32) => { f32 };
    (@type i64) => { i64 };
    (@type [$of:tt; $n:tt]) => { [$crate::params!(@type $of); $n] };
    (@type [$of:tt]) => { Vec<$crate::params!(@type $of)> };
    (@kind [$of:tt; $n:tt]) => { $crate::launch::params::Kind::Array($crate::params!(@number $of), $n) };
    (@kind [$of:tt]) => { $crate::launch::params::Kind::List($crate::params!(@number $of)) };
    (@kind $of:tt) => { $crate::launch::params::Kind::One($crate::params!(@number $of)) };
    (@number u32) => { $crate::launch::params::Number::U32 };
    (@number i32) => { $crate::launch::params::Number::I32 };
    (@number f32) => { $crate::launch::params::Number::F32 };
    (@number i64) => { $crate::launch::params::Number::I64 };
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    crate::params! {
        /// Every type of field.
        struct ExampleParams {
            /// A count.
            count: u32,
            /// Dimensions of the example.
            dims: [u32],
            /// A limit.
            limit: f32,
            /// Large steps.
            steps: [i64],
            /// A start.
            start: i64,
            /// Two sizes.
            sizes: [u32; 2],
        }
    }

    fn example() -> ExampleParams {
        ExampleParams {
            count: 7,
            dims: vec![2, 3],
            limit: 1.5,
            steps: vec![-1],
            start: 1 << 33,
            sizes: [4, 5],
        }
    }

    #[test]
    fn lists_stand_behind_the_fields_and_are_found_by_their_first_word() {
        let words = example().words().unwrap();
        assert_eq!(words[..8], [7, 10, 2, 1.5f32.to_bits(), 12, 1, 0, 2]);
        assert_eq!(words[8..], [4, 5, 2, 3, u32::MAX, u32::MAX]);
    }

    #[test]
    fn numbers_that_do_not_fit_are_refused_by_name() {
        let e = ExampleParams { count: 1 << 32, ..example() }.words().unwrap_err();
        assert!(e.to_string().contains("\"count\"") && e.to_string().contains("4294967296"), "{e}");
    }

    #[test]
    fn structures_of_the_program_are_listed() {
        assert!(super::LAYOUTS.iter().any(|l| l.name == "ExampleParams" && l.fields.len() == 6));
    }
}
