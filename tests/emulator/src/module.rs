//! Reads modules of PTX.

use crate::addresses::SHARED_START;
use crate::decode;
use crate::instruction::Instruction;
use crate::names::Names;
use crate::text::{length, number};
use crate::types::Type;
use std::collections::HashMap;

/// Values that a thread is started with, in registers of these names.
pub const SPECIAL: [&str; 24] = [
    "%tid.x",
    "%tid.y",
    "%tid.z",
    "%ntid.x",
    "%ntid.y",
    "%ntid.z",
    "%ctaid.x",
    "%ctaid.y",
    "%ctaid.z",
    "%nctaid.x",
    "%nctaid.y",
    "%nctaid.z",
    "%laneid",
    "%warpid",
    "%cluster_ctarank",
    "%cluster_nctarank",
    "%clusterid.x",
    "%nclusterid.x",
    "%smid",
    "%nsmid",
    "%clock",
    "%clock64",
    "%globaltimer",
    "%dynamic_smem_size",
];

/// Kernel of a module.
pub struct Kernel {
    pub code: Vec<Instruction>,
    pub registers: usize,
    /// Bytes of shared memory whose size is fixed.
    pub shared: u64,
    /// Alignment of the shared memory that a launch adds.
    pub shared_alignment: u64,
    pub local: u64,
    pub cluster: u32,
    /// Most threads of a block.
    pub threads: Option<u32>,
    pub parameter: u64,
}

/// Constants and variables in global memory.
pub struct Module {
    pub kernels: HashMap<String, Kernel>,
    /// Memory of the variables: kept where it is.
    pub variables: Vec<Box<[u64]>>,
}

/// A statement with its end removed.
enum Statement<'a> {
    Open,
    Close,
    Label(&'a str),
    Text(&'a str),
}

/// The text without comments.
fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        out.push_str(line.split("//").next().unwrap_or_default());
        out.push('\n');
    }
    out
}

/// Splits the body of a function into statements. Braces that belong to an operand stay in it.
fn statements(body: &str) -> Vec<Statement<'_>> {
    let (mut out, mut rest) = (Vec::new(), body);
    loop {
        rest = rest.trim_start();
        let Some(first) = rest.chars().next() else { return out };
        match first {
            '{' => {
                out.push(Statement::Open);
                rest = &rest[1..];
            }
            '}' => {
                out.push(Statement::Close);
                rest = &rest[1..];
            }
            _ => {
                let name =
                    rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$')).unwrap_or(rest.len());
                if name > 0 && rest[name..].starts_with(':') && !rest[name..].starts_with("::") {
                    out.push(Statement::Label(&rest[..name]));
                    rest = &rest[name + 1..];
                    continue;
                }
                let end = rest.find(';').unwrap_or(rest.len());
                out.push(Statement::Text(rest[..end].trim()));
                rest = rest.get(end + 1..).unwrap_or_default();
            }
        }
    }
}

/// `name<n>` as the names with numbers, others as they are.
fn names_of(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    for one in text.split(',').map(str::trim) {
        match one.split_once('<') {
            Some((name, n)) => {
                let n: usize = n.trim_end_matches('>').parse().unwrap_or(0);
                out.extend((0..n).map(|k| format!("{name}{k}")));
            }
            None => out.push(one.to_owned()),
        }
    }
    out
}

/// A declared variable: alignment, name, bytes, and what it is started with.
struct Variable<'a> {
    alignment: u64,
    name: &'a str,
    bytes: u64,
    start: Vec<u8>,
}

fn variable(text: &str) -> Result<Variable<'_>, String> {
    let wrong = || format!("cannot read the variable `{text}`");
    let (declared, start) = text.split_once('=').map_or((text, None), |(a, b)| (a.trim(), Some(b.trim())));
    let mut alignment = 1;
    let mut words = declared.split_whitespace();
    let mut of = None;
    let mut name = "";
    while let Some(word) = words.next() {
        match word {
            ".align" => alignment = words.next().and_then(|n| n.parse().ok()).ok_or_else(wrong)?,
            w if w.starts_with('.') => of = Type::of(&w[1..]).or(of),
            w => name = w,
        }
    }
    let of = of.ok_or_else(wrong)?;
    let (name, count) = match name.split_once('[') {
        Some((name, n)) => {
            let n = n.trim_end_matches(']');
            (name, if n.is_empty() { 0 } else { n.parse::<u64>().map_err(|_| wrong())? })
        }
        None => (name, 1),
    };
    let bytes = count.checked_mul(u64::from(of.bytes())).filter(|&n| n <= 1 << 30).ok_or_else(wrong)?;
    let mut values = Vec::new();
    for one in
        start.unwrap_or_default().trim_matches(['{', '}']).split(',').map(str::trim).filter(|s| !s.is_empty())
    {
        let v = number(one).ok_or_else(wrong)?;
        values.extend_from_slice(&v.to_le_bytes()[..of.bytes() as usize]);
    }
    Ok(Variable { alignment: alignment.max(u64::from(of.bytes())), name, bytes, start: values })
}

impl Module {
    /// Reads a module.
    pub fn read(text: &str) -> Result<Module, String> {
        let text = without_comments(text);
        let mut module = Module { kernels: HashMap::new(), variables: Vec::new() };
        let mut symbols: HashMap<&str, u64> = HashMap::new();
        let mut dynamic: HashMap<&str, u64> = HashMap::new();
        let mut shared: Vec<&str> = Vec::new();
        let mut rest = text.as_str();
        while let Some(at) = rest.find(|c: char| !c.is_whitespace()) {
            rest = &rest[at..];
            if [".version", ".target", ".address_size"].iter().any(|d| rest.starts_with(d)) {
                rest = rest.split_once('\n').map_or("", |(_, r)| r);
                continue;
            }
            let semicolon = rest.find(';').unwrap_or(rest.len());
            let is_function = [".entry", ".func"].iter().any(|f| rest[..semicolon].contains(f));
            if is_function && !rest[..semicolon].contains('{') {
                // A declaration of a function elsewhere.
                rest = rest.get(semicolon + 1..).unwrap_or_default();
                continue;
            }
            if is_function {
                let open = rest.find('{').unwrap_or(rest.len());
                let end = closing(rest, open).ok_or("a function does not end")?;
                let (head, body) = (&rest[..open], &rest[open + 1..end]);
                let (name, kernel) = function(head, body, &symbols, &dynamic, &shared)?;
                module.kernels.insert(name, kernel);
                rest = &rest[end + 1..];
                continue;
            }
            let declaration = rest[..semicolon].trim();
            rest = rest.get(semicolon + 1..).unwrap_or_default();
            if declaration.starts_with(".extern .shared") {
                let v = variable(declaration)?;
                dynamic.insert(v.name, v.alignment);
                continue;
            }
            if declaration.contains(".shared") {
                shared.push(declaration);
                continue;
            }
            let v = variable(declaration)?;
            let mut words = vec![0u64; (v.bytes as usize).div_ceil(8) + 2].into_boxed_slice();
            let misaligned = words.as_ptr() as u64 % 16;
            for (i, b) in v.start.iter().enumerate() {
                let at = i + misaligned as usize;
                words[at / 8] |= u64::from(*b) << (at % 8 * 8);
            }
            symbols.insert(v.name, words.as_ptr() as u64 + misaligned);
            module.variables.push(words);
        }
        Ok(module)
    }
}

/// Position of the brace that belongs to the one at `open`.
fn closing(text: &str, open: usize) -> Option<usize> {
    let mut depth = 0;
    for (i, c) in text.bytes().enumerate().skip(open) {
        match c {
            b'{' => depth += 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    return Some(i);
                }
            }
            _ => {}
        }
    }
    None
}

/// Number behind a directive.
fn directive(head: &str, name: &str) -> Option<u32> {
    let behind = head.split_once(name)?.1.trim_start();
    behind.split([',', ' ', '\n', '\t']).next()?.parse().ok()
}

fn function<'a>(
    head: &'a str,
    body: &'a str,
    symbols: &HashMap<&'a str, u64>,
    dynamic: &HashMap<&'a str, u64>,
    of_module: &[&'a str],
) -> Result<(String, Kernel), String> {
    let entry = head.split_once(".entry").ok_or_else(|| format!("a function that is no kernel: {head}"))?.1;
    let (name, parameters) = entry.split_once('(').ok_or("a kernel without parameters")?;
    let (parameters, rest) = parameters.split_once(')').ok_or("parameters without an end")?;
    let mut names = Names { symbols: symbols.clone(), ..Names::default() };
    names.scopes.push(HashMap::new());
    SPECIAL.iter().for_each(|s| names.declare(s));
    let mut parameter = 0u64;
    for p in parameters.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        let v = variable(p)?;
        parameter = parameter.next_multiple_of(v.alignment);
        names.symbols.insert(v.name, parameter);
        parameter += v.bytes;
    }
    let (mut shared, mut local) = (SHARED_START, 0u64);
    let mut alignment = 16;
    let statements = statements(body);
    for declaration in of_module {
        let v = variable(declaration)?;
        shared = shared.next_multiple_of(v.alignment);
        names.symbols.insert(v.name, shared);
        shared += v.bytes;
    }
    // Variables and labels first: they are used in front of where they are.
    let (mut count, mut open, mut seen) = (0, vec![0usize], 0);
    for s in &statements {
        match s {
            Statement::Open => {
                seen += 1;
                open.push(seen);
            }
            Statement::Close => _ = open.pop(),
            Statement::Label(l) => {
                let scope = open.last().copied().unwrap_or(0);
                names.labels.insert(format!("{scope}:{l}"), count);
            }
            Statement::Text(t) if t.starts_with(".shared") => {
                let v = variable(t)?;
                shared = shared.next_multiple_of(v.alignment);
                names.symbols.insert(v.name, shared);
                shared += v.bytes;
            }
            Statement::Text(t) if t.starts_with(".local") || t.starts_with(".param") => {
                let v = variable(t)?;
                local = local.next_multiple_of(v.alignment);
                names.symbols.insert(v.name, local);
                local += v.bytes;
                if t.starts_with(".param") {
                    names.passed.push(v.name);
                }
            }
            Statement::Text(t) if t.starts_with('.') || t.is_empty() => {}
            Statement::Text(t) => count += length(t),
        }
    }
    for (&name, &a) in dynamic {
        alignment = alignment.max(a);
        names.symbols.insert(name, shared.next_multiple_of(a));
    }
    let mut code = Vec::new();
    for s in &statements {
        match s {
            Statement::Open => names.enter(),
            Statement::Close => names.leave(),
            Statement::Label(_) => {}
            Statement::Text(t) if t.starts_with(".reg") => {
                let declared = t.split_whitespace().skip(2).collect::<Vec<_>>().join(" ");
                names_of(&declared).iter().for_each(|n| names.declare(n));
            }
            Statement::Text(t) if t.starts_with('.') || t.is_empty() => {}
            Statement::Text(t) => {
                let made = decode::instructions(t, &names).map_err(|e| format!("{e}, in `{t}`"))?;
                if made.len() != length(t) {
                    return Err(format!("`{t}` is {} instructions", made.len()));
                }
                code.extend(made);
            }
        }
    }
    let kernel = Kernel {
        code,
        registers: names.next,
        shared: shared.next_multiple_of(alignment),
        shared_alignment: alignment,
        local,
        cluster: directive(rest, ".reqnctapercluster").unwrap_or(1).max(1),
        threads: directive(rest, ".maxntid").or_else(|| directive(rest, ".reqntid")),
        parameter,
    };
    Ok((name.trim().to_owned(), kernel))
}
