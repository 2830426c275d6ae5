//! The source form of plug-in layers: kernel texts with launches by formulas.

use super::formula::{Formula, InputPart, Number, Numbers, input_part, unknown};
use super::packings::Packings;
use super::shapes::number;
use kiln_ir::attr::Attrs;
use kiln_ir::error::OpError;
use kiln_ir::infer::Fact;
use minicbor::{Decode, Encode};

/// More threads of a block, or bytes of shared memory, than any device has.
const MOST_THREADS: i64 = 1024;
const MOST_SHARED: i64 = 256 << 10;
/// Blocks of one dimension that WGSL has everywhere.
const MOST_GROUPS: i64 = 65535;
/// More parameters are refused.
const MOST_PARAMS: usize = 47;

/// Language of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Language {
    /// CUDA C++.
    #[n(1)]
    Cuda,
    /// WGSL.
    #[n(2)]
    Wgsl,
}

/// Element type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum ParamType {
    /// Unsigned integer of 32 bits.
    #[n(0)]
    U32,
    /// Signed integer of 32 bits.
    #[n(1)]
    I32,
    /// Float of 32 bits.
    #[n(2)]
    F32,
}

/// A parameter: a member of the structure `Params`.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct Param {
    /// Element type.
    #[n(0)]
    pub ty: ParamType,
    /// Name of the member.
    #[n(1)]
    pub name: String,
    /// Formula of its value.
    #[n(2)]
    pub formula: String,
}

/// A kernel in source form.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct KernelForm {
    /// Language of the text.
    #[n(0)]
    pub language: Language,
    /// Name of the tactic.
    #[n(1)]
    pub tactic: String,
    /// Formula that is not 0 where the kernel can run; empty: always.
    #[n(2)]
    pub condition: String,
    /// The text.
    #[n(3)]
    pub source: String,
    /// Name of the entry point.
    #[n(4)]
    pub entry: String,
    /// Formula of the number of blocks.
    #[n(5)]
    pub grid: String,
    /// Formula of the threads of a block.
    #[n(6)]
    pub block: String,
    /// Formula of the bytes of dynamic shared memory; empty: none.
    #[n(7)]
    pub shared: String,
    /// Parameters in order.
    #[n(8)]
    pub params: Vec<Param>,
    /// The launch in front that finds sizes, of a layer whose sizes a run finds.
    #[n(9)]
    pub count: Option<CountForm>,
}

/// A launch that finds sizes.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct CountForm {
    /// Name of the entry point.
    #[n(0)]
    pub entry: String,
    /// Formula of the number of blocks.
    #[n(1)]
    pub grid: String,
    /// Formula of the threads of a block.
    #[n(2)]
    pub block: String,
}

/// A launch of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelLaunch {
    /// Number of blocks.
    pub grid: u64,
    /// Words of the parameters.
    pub words: Vec<u32>,
}

impl Param {
    /// Reads a list, separated by semicolons: "u32 rows = i0.d0; f32 eps = eps".
    pub fn list(text: &str) -> Result<Vec<Param>, OpError> {
        let parts: Vec<&str> = text.split(';').map(str::trim).filter(|p| !p.is_empty()).collect();
        if parts.len() > MOST_PARAMS {
            return Err(OpError::Value(format!(
                "{} parameters, at most {MOST_PARAMS} are taken",
                parts.len()
            )));
        }
        parts.into_iter().map(Param::parse).collect()
    }

    fn parse(text: &str) -> Result<Param, OpError> {
        let parts = text.split_once('=').and_then(|(head, f)| Some((head.trim().split_once(' ')?, f.trim())));
        let param = parts.and_then(|((ty, name), formula)| {
            let ty = match ty {
                "u32" => ParamType::U32,
                "i32" => ParamType::I32,
                "f32" => ParamType::F32,
                _ => return None,
            };
            let name = name.trim();
            is_identifier(name).then(|| Param { ty, name: name.to_owned(), formula: formula.to_owned() })
        });
        let param = param.ok_or_else(|| {
            OpError::Value(format!(
                "parameter \"{text}\", wants a type u32, i32 or f32, a name and a formula: \"u32 n = i0.d0\""
            ))
        })?;
        Formula::parse(&param.formula)?;
        Ok(param)
    }
}

/// Whether a formula names one of these sizes.
fn names(formula: &str, sizes: &[String]) -> bool {
    formula
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.'))
        .any(|w| sizes.iter().any(|s| s == w))
}

/// Whether a text is an identifier of both languages.
pub fn is_identifier(s: &str) -> bool {
    s.starts_with(|c: char| c.is_ascii_alphabetic())
        && s.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Inputs and fields that formulas of a kernel refer to.
pub struct Site<'a> {
    /// Inputs.
    pub inputs: Vec<&'a Fact>,
    /// Fields.
    pub fields: &'a Attrs,
    /// Formats of the inputs.
    pub packings: &'a Packings,
    /// Names of sizes that the layer finds.
    pub open: &'a [String],
    /// Sizes that it has found.
    pub found: &'a [(String, i64)],
}

/// All tensors linear.
static LINEAR: Packings = Packings { inputs: Vec::new(), outputs: Vec::new() };

impl<'a> Site<'a> {
    /// Linear inputs of a layer that finds no sizes.
    pub fn new(inputs: Vec<&'a Fact>, fields: &'a Attrs) -> Site<'a> {
        Site { inputs, fields, packings: &LINEAR, open: &[], found: &[] }
    }

    /// The value of a formula; an error where it names sizes that are not known yet.
    pub fn number(&self, formula: &str) -> Result<Number, OpError> {
        Formula::parse(formula)?.value(&mut Numbers(&|name| self.name(name)))
    }

    fn int(&self, formula: &str, what: &str, range: std::ops::RangeInclusive<i64>) -> Result<i64, OpError> {
        let found = self.number(formula)?;
        found.int().filter(|n| range.contains(n)).ok_or_else(|| {
            OpError::Value(format!(
                "{what} \"{formula}\" is {}, wants {} to {}",
                found.float(),
                range.start(),
                range.end()
            ))
        })
    }

    fn name(&self, name: &str) -> Result<Number, OpError> {
        let Some((i, part)) = input_part(name) else {
            if let Some((_, n)) = self.found.iter().find(|f| f.0 == name) {
                return Ok(Number::Int(*n));
            }
            if self.open.iter().any(|n| n == name) {
                return Err(OpError::Unsupported(format!(
                    "the size \"{name}\" is found by the layer itself"
                )));
            }
            let wanted =
                "a part of an input (i0.d1), a field that is one number, or a size that the layer finds";
            return number(self.fields, name).ok_or_else(|| unknown(name, wanted));
        };
        let fact = self
            .inputs
            .get(i)
            .ok_or_else(|| unknown(name, &format!("one of {} inputs", self.inputs.len())))?;
        let open = || OpError::Unsupported(format!("\"{name}\" of a kernel is known during a run only"));
        let dims = Packings::dims(self.packings.input(i), &fact.ty.dims)?;
        let found = match part {
            InputPart::Rank => Some(dims.len() as i64),
            InputPart::Size(axis) => match dims.get(axis) {
                Some(d) => d.as_const(),
                None => return Err(unknown(name, &format!("one of {} dimensions", dims.len()))),
            },
            InputPart::Volume => dims.iter().try_fold(1i64, |n, d| n.checked_mul(d.as_const()?)),
            InputPart::Element(k) => fact.as_dims().and_then(|v| v.get(k)?.as_const()),
        };
        found.map(Number::Int).ok_or_else(open)
    }
}

impl KernelForm {
    /// Checks everything that does not depend on inputs.
    pub fn check(&self) -> Result<(), OpError> {
        if !is_identifier(&self.entry) {
            return Err(OpError::Value(format!(
                "entry point \"{}\", wants the name of a function",
                self.entry
            )));
        }
        if self.tactic.is_empty() || self.tactic.len() > 64 || self.source.is_empty() {
            let found = format!("tactic \"{}\" with a text of {} bytes", self.tactic, self.source.len());
            return Err(OpError::Value(format!("{found}, wants a name of 1 to 64 bytes and a text")));
        }
        if self.grid.is_empty() {
            return Err(OpError::Value(
                "a kernel without a number of blocks, wants a formula \"grid\"".into(),
            ));
        }
        let mut formulas: Vec<&String> = [&self.grid, &self.condition, &self.shared].into();
        match self.language {
            Language::Cuda => formulas.push(&self.block),
            Language::Wgsl if self.block.is_empty() && self.shared.is_empty() => {}
            Language::Wgsl => {
                let why =
                    "a WGSL text says its threads and shared memory itself, wants neither block nor shared";
                return Err(OpError::Value(why.into()));
            }
        }
        if self.language == Language::Cuda && self.block.is_empty() {
            return Err(OpError::Value(
                "a CUDA kernel without a number of threads, wants a formula \"block\"".into(),
            ));
        }
        if let Some(c) = &self.count {
            if !is_identifier(&c.entry) || c.entry == self.entry {
                let found = &c.entry;
                return Err(OpError::Value(format!(
                    "entry point \"{found}\" that finds sizes, wants the name of another function than \"{}\"",
                    self.entry
                )));
            }
            if c.grid.is_empty() || c.block.is_empty() != (self.language == Language::Wgsl) {
                let why = "a launch that finds sizes wants a formula of its blocks, and in CUDA C++ one of its threads";
                return Err(OpError::Value(why.into()));
            }
            formulas.extend([&c.grid, &c.block]);
        }
        formulas.into_iter().filter(|f| !f.is_empty()).try_for_each(|f| Formula::parse(f).map(drop))
    }

    /// The launch that finds sizes; none of a layer that finds none.
    pub fn count_launch(&self, site: &Site<'_>) -> Result<Option<KernelLaunch>, OpError> {
        let Some(c) = &self.count else { return Ok(None) };
        let words = self.params.iter().map(|p| match self.word(p, site) {
            // It names a size that this launch finds.
            Err(OpError::Unsupported(_)) if names(&p.formula, site.open) => Ok(0),
            word => word,
        });
        let words = words.collect::<Result<_, _>>()?;
        Ok(Some(KernelLaunch { grid: self.blocks(&c.grid, site)?, words }))
    }

    /// Threads of a block of the launch that finds sizes.
    pub fn count_threads(&self, site: &Site<'_>) -> Result<Option<u32>, OpError> {
        let threads = |c: &CountForm| Ok(site.int(&c.block, "block", 1..=MOST_THREADS)? as u32);
        self.count.as_ref().map(threads).transpose()
    }

    /// Whether the kernel takes inputs of these sizes; false where that depends on sizes that only a run knows.
    pub fn applies(&self, site: &Site<'_>) -> Result<bool, OpError> {
        match site.number(&self.condition) {
            _ if self.condition.is_empty() => Ok(true),
            Ok(n) => Ok(n.holds()),
            Err(OpError::Unsupported(_)) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// The launch for inputs whose sizes are known.
    pub fn launch(&self, site: &Site<'_>) -> Result<KernelLaunch, OpError> {
        let words = self.params.iter().map(|p| self.word(p, site));
        Ok(KernelLaunch { grid: self.blocks(&self.grid, site)?, words: words.collect::<Result<_, _>>()? })
    }

    fn blocks(&self, grid: &str, site: &Site<'_>) -> Result<u64, OpError> {
        let most = if self.language == Language::Wgsl { MOST_GROUPS } else { i64::from(i32::MAX) };
        Ok(site.int(grid, "grid", 0..=most)? as u64)
    }

    fn word(&self, p: &Param, site: &Site<'_>) -> Result<u32, OpError> {
        let value = site.number(&p.formula)?;
        let word = match p.ty {
            ParamType::F32 => Some((value.float() as f32).to_bits()),
            ParamType::U32 => value.int().and_then(|n| u32::try_from(n).ok()),
            ParamType::I32 => value.int().and_then(|n| i32::try_from(n).ok()).map(|n| n as u32),
        };
        word.ok_or_else(|| {
            OpError::Value(format!(
                "parameter \"{}\" is {}, beyond its type {:?}",
                p.name,
                value.float(),
                p.ty
            ))
        })
    }

    /// Threads of a block; they do not depend on sizes that only a run knows.
    pub fn threads(&self, site: &Site<'_>) -> Result<u32, OpError> {
        Ok(site.int(&self.block, "block", 1..=MOST_THREADS)? as u32)
    }

    /// Bytes of dynamic shared memory; they do not depend on sizes that only a run knows.
    pub fn shared(&self, site: &Site<'_>) -> Result<u32, OpError> {
        match self.shared.is_empty() {
            true => Ok(0),
            false => Ok(site.int(&self.shared, "shared", 0..=MOST_SHARED)? as u32),
        }
    }
}

/// Kernels as an attribute holds them.
pub fn encode(kernels: &[KernelForm]) -> Vec<u8> {
    minicbor::to_vec(kernels).unwrap_or_default()
}

/// Kernels of an attribute.
pub fn decode(bytes: &[u8]) -> Result<Vec<KernelForm>, OpError> {
    minicbor::decode(bytes).map_err(|e| OpError::Attr {
        name: "kernels".into(),
        found: e.to_string(),
        wanted: "a CBOR array of kernels".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ir::dim::Dim;
    use kiln_ir::dtype::DType;
    use kiln_ir::ty::TensorType;

    fn form() -> KernelForm {
        KernelForm {
            language: Language::Cuda,
            tactic: "rows".into(),
            condition: "i0.d1 % 4 == 0".into(),
            source: "x".into(),
            entry: "norm".into(),
            grid: "2 * i0.d0".into(),
            block: "min(i0.d1, 256)".into(),
            shared: "4 * i0.d1".into(),
            params: Param::list("u32 columns = i0.d1; f32 eps = eps; i32 n = -1").unwrap(),
            count: None,
        }
    }

    #[test]
    fn sizes_that_a_launch_finds() {
        let fields = Attrs::new().with("eps", 0.5);
        let x = Fact::of(TensorType::new(DType::F32, [3, 8]));
        let count = CountForm { entry: "count".into(), grid: "i0.d0".into(), block: "64".into() };
        let params = Param::list("u32 rows = i0.d0; u32 kept = min(n, 5)").unwrap();
        let k = KernelForm { count: Some(count), grid: "n".into(), params, ..form() };
        k.check().unwrap();
        let open = ["n".to_owned()];
        let site = Site { open: &open, ..Site::new(vec![&x], &fields) };
        assert_eq!(k.count_launch(&site), Ok(Some(KernelLaunch { grid: 3, words: vec![3, 0] })));
        assert_eq!(k.count_threads(&site), Ok(Some(64)));
        assert!(matches!(k.launch(&site), Err(OpError::Unsupported(_))));
        let found = [("n".to_owned(), 7)];
        let site = Site { open: &open, found: &found, ..Site::new(vec![&x], &fields) };
        assert_eq!(k.launch(&site), Ok(KernelLaunch { grid: 7, words: vec![3, 5] }));
        assert_eq!(decode(&encode(&[k.clone()])), Ok(vec![k.clone()]));
        let wrong = |count: CountForm| {
            KernelForm { count: Some(count), ..k.clone() }.check().unwrap_err().to_string()
        };
        let of = |entry: &str, grid: &str, block: &str| CountForm {
            entry: entry.into(),
            grid: grid.into(),
            block: block.into(),
        };
        assert!(wrong(of("norm", "1", "1")).contains("another function than \"norm\""));
        assert!(wrong(of("count", "", "1")).contains("a formula of its blocks"));
        assert!(wrong(of("count", "1", "")).contains("one of its threads"));
        assert!(wrong(of("count", "1 +", "1")).contains("wants a number"));
    }

    #[test]
    fn launches_follow_sizes_and_fields() {
        let fields = Attrs::new().with("eps", 0.5);
        let known = Fact::of(TensorType::new(DType::F32, [3, 8]));
        let site = Site::new(vec![&known], &fields);
        let k = form();
        k.check().unwrap();
        assert_eq!(k.applies(&site), Ok(true));
        let words = vec![8, 0.5f32.to_bits(), u32::MAX];
        assert_eq!(k.launch(&site), Ok(KernelLaunch { grid: 6, words }));
        assert_eq!((k.threads(&site), k.shared(&site)), (Ok(8), Ok(32)));
        let open = Fact::of(TensorType::new(DType::F32, [Dim::host("n"), 8.into()]));
        let site = Site::new(vec![&open], &fields);
        assert!(matches!(k.launch(&site), Err(OpError::Unsupported(_))));
        assert_eq!((k.applies(&site), k.threads(&site)), (Ok(true), Ok(8)));
        assert_eq!(decode(&encode(&[k.clone()])), Ok(vec![k]));
    }

    #[test]
    fn wrong_kernels_are_refused() {
        let refused = |change: fn(&mut KernelForm), says: &str| {
            let mut k = form();
            change(&mut k);
            let e = k.check().unwrap_err().to_string();
            assert!(e.contains(says), "{e}");
        };
        refused(|k| k.entry = "a b".into(), "\"a b\"");
        refused(|k| k.grid.clear(), "without a number of blocks");
        refused(|k| k.grid = "1 +".into(), "wants a number");
        refused(|k| k.block.clear(), "without a number of threads");
        refused(|k| k.language = Language::Wgsl, "neither block nor shared");
        refused(|k| k.tactic.clear(), "1 to 64 bytes");
        for text in ["u32 = 1", "f64 x = 1", "u32 x", "u32 1x = 2"] {
            assert!(Param::list(text).unwrap_err().to_string().contains("wants a type"), "{text}");
        }
        let x = Fact::of(TensorType::new(DType::F32, [3, 8]));
        let fields = Attrs::new().with("eps", 1.0);
        let site = Site::new(vec![&x], &fields);
        let k = KernelForm { grid: "-1".into(), params: Vec::new(), ..form() };
        assert!(k.launch(&site).unwrap_err().to_string().contains("wants 0 to"));
        let k = KernelForm { block: "2000".into(), ..form() };
        assert!(k.threads(&site).unwrap_err().to_string().contains("wants 1 to 1024"));
        let k = KernelForm { params: Param::list("u32 n = 0 - 1").unwrap(), ..form() };
        assert!(k.launch(&site).unwrap_err().to_string().contains("beyond its type"));
    }
}
