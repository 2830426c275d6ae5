//! Turns the text of an instruction into what it does.

use crate::instruction::{
    Address, Body, BoxCopy, Change, Element, GroupOperand, GroupProduct, Instruction, Product, Shuffle,
    Source, Space, Vote, constant,
};
use crate::names::Names;
use crate::text::{Text, guard, number, operands};
use crate::types::Type;
use crate::{arithmetic, convert};

/// The instructions of a statement.
pub fn instructions(text: &str, names: &Names<'_>) -> Result<Vec<Instruction>, String> {
    let (guarded, rest) = guard(text);
    let guarded =
        guarded.map(|(name, wanted)| Ok::<_, String>((names.register(name)?, wanted))).transpose()?;
    let (name, arguments) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let t = Text { parts: name.split('.').collect(), operands: operands(arguments), names };
    let of = |body| Instruction {
        guard: guarded,
        body,
        text: text.split_whitespace().collect::<Vec<_>>().join(" ").into(),
    };
    if let Some(all) = arithmetic::several(&t)?.or(changes(&t)?) {
        return Ok(all.into_iter().map(of).collect());
    }
    Ok(vec![of(body(&t)?)])
}

/// The changes of neighbours in memory that one instruction makes; each is atomic, not all of them together.
fn changes(t: &Text<'_>) -> Result<Option<Vec<Body>>, String> {
    if t.parts[0] != "red" || !t.operand(1)?.starts_with('{') {
        return Ok(None);
    }
    let of = t.last_type()?;
    let change = t.parts.iter().find_map(|p| change(p)).ok_or("an unknown change of memory")?;
    let at = t.address(0)?;
    let neighbour = |(k, s): (usize, Source)| {
        let at = Address { base: at.base.clone(), offset: at.offset + k as i64 * i64::from(of.bytes()) };
        Body::Change { space: t.space(), of, change, d: None, at, s: vec![s] }
    };
    Ok(Some(t.list(1, of)?.into_iter().enumerate().map(neighbour).collect()))
}

fn body(t: &Text<'_>) -> Result<Body, String> {
    let b32 = Type::Bits(32);
    Ok(match t.parts[0] {
        "ld" | "ldu" => {
            let (space, of) = (t.space_at(1)?, t.last_type()?);
            let named = |n: &str| if n == "_" { Ok(None) } else { t.names.register(n).map(Some) };
            let d = t.items(0)?.into_iter().map(named).collect::<Result<_, _>>()?;
            let fills = if t.operand(0)?.contains("%rd") { 64 } else { 32 };
            Body::Load { space, of, fills, d, at: t.address(1)? }
        }
        "st" if t.has("async") => Body::StoreRemote {
            of: t.last_type()?,
            to: t.address(0)?,
            s: t.list(1, t.last_type()?)?,
            barrier: t.address(2)?,
        },
        "st" => {
            let (space, of) = (t.space_at(0)?, t.last_type()?);
            Body::Store { space, of, s: t.list(1, of)?, at: t.address(0)? }
        }
        "atom" | "red" => {
            let of = t.last_type()?;
            let change = t.parts.iter().find_map(|p| change(p)).ok_or("an unknown change of memory")?;
            let first = usize::from(t.parts[0] == "atom");
            let d = match first {
                1 if t.operand(0)? != "_" => Some(t.destination(0)?),
                _ => None,
            };
            Body::Change {
                space: t.space(),
                of,
                change,
                d,
                at: t.address(first)?,
                s: t.sources(first + 1, of)?,
            }
        }
        "bra" => Body::Branch { to: t.names.label(t.operand(0)?)? },
        "ret" | "exit" => Body::Return,
        "trap" | "brkpt" => Body::Trap,
        "bar" if t.has("warp") => Body::Together { mask: t.source(0, b32)? },
        "barrier" if t.has("cluster") => {
            if t.has("arrive") {
                Body::ClusterArrive
            } else {
                Body::ClusterWait
            }
        }
        "bar" | "barrier" if t.has("sync") || t.has("arrive") => Body::Arrive {
            barrier: t.source(0, b32)?,
            threads: if t.operands.len() > 1 { Some(t.source(1, b32)?) } else { None },
            waits: t.has("sync"),
        },
        "shfl" => {
            let (d, found) = match t.operand(0)?.split_once('|') {
                Some((d, p)) => (t.names.register(d.trim())?, Some(t.names.register(p.trim())?)),
                None => (t.destination(0)?, None),
            };
            let how = match *t.parts.get(2).unwrap_or(&"") {
                "idx" => Shuffle::Index,
                "bfly" => Shuffle::Butterfly,
                "up" => Shuffle::Up,
                "down" => Shuffle::Down,
                other => return Err(format!("a shuffle {other}")),
            };
            Body::Shuffle { how, d, found, s: t.sources(1, b32)? }
        }
        "vote" => {
            let how = match *t.parts.get(2).unwrap_or(&"") {
                "all" => Vote::All,
                "any" => Vote::Any,
                "uni" => Vote::Uniform,
                "ballot" => Vote::Ballot,
                other => return Err(format!("a vote {other}")),
            };
            let asked = t.operand(1)?;
            let s = t.value(asked.trim_start_matches('!'), Type::Pred)?;
            Body::Vote {
                how,
                negated: asked.starts_with('!'),
                d: t.destination(0)?,
                s,
                mask: t.source(2, b32)?,
            }
        }
        "redux" => {
            let of = t.last_type()?;
            let change = t.parts.iter().find_map(|p| change(p)).ok_or("an unknown reduction")?;
            Body::Reduce { of, change, d: t.destination(0)?, s: t.source(1, of)?, mask: t.source(2, b32)? }
        }
        "match" if t.has("any") => {
            Body::Match { d: t.destination(0)?, s: t.source(1, t.last_type()?)?, mask: t.source(2, b32)? }
        }
        "activemask" => Body::Active { d: t.destination(0)? },
        "elect" => {
            let d = t.operand(0)?.split('|').next_back().unwrap_or_default().trim();
            Body::Elect { d: t.names.register(d)?, mask: t.source(1, b32)? }
        }
        "ldmatrix" => Body::LoadMatrices { d: t.destinations(0)?, at: t.address(1)?, turned: t.has("trans") },
        "stmatrix" => Body::StoreMatrices { at: t.address(0)?, s: t.list(1, b32)?, turned: t.has("trans") },
        "mma" => product(t)?,
        "wgmma" if t.has("mma_async") => group_product(t)?,
        "cp" if t.has("bulk") => bulk(t)?,
        "cp" if t.has("commit_group") || t.has("wait_group") || t.has("wait_all") => Body::Nothing,
        "cp" if t.has("ca") || t.has("cg") => Body::Copy {
            to: t.address(0)?,
            from: t.address(1)?,
            bytes: number(t.operand(2)?).ok_or("a copy of unknown size")?,
            read: if t.operands.len() > 3 { Some(t.source(3, b32)?) } else { None },
        },
        "mbarrier" => barrier(t)?,
        "call" => {
            let name = t.operands.iter().find(|o| !o.starts_with('(')).copied().unwrap_or_default();
            let arguments = t.operands.last().copied().unwrap_or_default();
            if name.trim_start_matches("uni").trim() != "cudaGraphSetConditional" {
                return Err(format!("a call of {name}"));
            }
            let mut places = arguments.trim_matches(['(', ')']).split(',').map(|p| t.names.symbol(p.trim()));
            let place = |p: Option<Option<u64>>| p.flatten().map(constant).ok_or("an unknown argument");
            Body::Decide { handle: place(places.next())?, value: place(places.next())? }
        }
        "griddepcontrol" | "membar" | "fence" | "wgmma" | "setmaxnreg" | "nanosleep" | "prefetch"
        | "prefetchu" | "discard" | "applypriority" | "pmevent" | "createpolicy" => Body::Nothing,
        _ => match convert::body(t)? {
            Some(b) => b,
            None => arithmetic::body(t)?,
        },
    })
}

fn change(part: &str) -> Option<Change> {
    Some(match part {
        "add" => Change::Add,
        "min" => Change::Min,
        "max" => Change::Max,
        "and" => Change::And,
        "or" => Change::Or,
        "xor" => Change::Xor,
        "exch" => Change::Exchange,
        "cas" => Change::CompareExchange,
        "inc" => Change::Increment,
        "dec" => Change::Decrement,
        _ => return None,
    })
}

fn element(part: &str) -> Option<Element> {
    Some(match part {
        "f16" => Element::F16,
        "bf16" => Element::Bf16,
        "tf32" => Element::Tf32,
        "e4m3" => Element::E4m3,
        "e5m2" => Element::E5m2,
        "s8" => Element::S8,
        "u8" => Element::U8,
        _ => return None,
    })
}

/// The types of sums and of both operands at the end of a product's name.
fn product_types(parts: &[&str]) -> Result<(bool, bool, Element, Element), String> {
    let wrong = || format!("a product of unknown types: {parts:?}");
    let sums = parts.first().copied().ok_or_else(wrong)?;
    let a = parts.get(1).and_then(|p| element(p)).ok_or_else(wrong)?;
    let b = parts.get(2).and_then(|p| element(p)).ok_or_else(wrong)?;
    Ok((sums == "s32", sums == "f16", a, b))
}

/// Number between two letters of a shape such as `m16n8k32`.
fn depth(parts: &[&str]) -> Option<usize> {
    parts
        .iter()
        .find(|p| p.starts_with('m') && p.contains('n') && p.contains('k'))?
        .rsplit_once('k')?
        .1
        .parse()
        .ok()
}

fn element_bytes(of: Element) -> usize {
    match of {
        Element::F16 | Element::Bf16 => 2,
        Element::Tf32 => 4,
        _ => 1,
    }
}

fn product(t: &Text<'_>) -> Result<Body, String> {
    let shape = t.parts.iter().position(|p| *p == "col").ok_or("a product of other layouts")?;
    let (whole, half_sums, a_type, b_type) = product_types(&t.parts[shape + 1..])?;
    let sparse = t.parts.iter().any(|p| p.starts_with("sp"));
    let b32 = Type::Bits(32);
    let k = depth(&t.parts).ok_or("a product of unknown depth")?;
    if !t.parts.iter().any(|p| p.starts_with("m16n8k")) {
        return Err("a product that is not 16 by 8".into());
    }
    Ok(Body::Product(Box::new(Product {
        depth_bytes: k * element_bytes(b_type),
        a_type,
        b_type,
        whole,
        half_sums,
        d: t.destinations(0)?,
        a: t.list(1, b32)?,
        b: t.list(2, b32)?,
        c: t.list(3, b32)?,
        sparse: if sparse {
            Some((t.source(4, b32)?, number(t.operand(5)?).ok_or("no selector")?))
        } else {
            None
        },
    })))
}

fn group_product(t: &Text<'_>) -> Result<Body, String> {
    let shape = t.parts.iter().position(|p| p.starts_with("m64n")).ok_or("a product of other shape")?;
    let (whole, half_sums, a_type, b_type) = product_types(&t.parts[shape + 1..])?;
    let b64 = Type::Bits(64);
    let a = match t.operand(1)?.starts_with('{') {
        true => GroupOperand::Registers(t.list(1, Type::Bits(32))?),
        false => GroupOperand::Memory(t.source(1, b64)?),
    };
    // Places and selector are in front of the rest.
    let sparse = t.has("sp");
    let rest = if sparse { 5 } else { 3 };
    let immediate = |i: usize| t.operands.get(rest + i).and_then(|o| number(o)).unwrap_or(0) as i64;
    let turns = if matches!(a, GroupOperand::Registers(_)) {
        (false, immediate(3) == 1)
    } else {
        (immediate(3) == 1, immediate(4) == 1)
    };
    let halves = matches!(a_type, Element::F16 | Element::Bf16);
    let selector = || number(t.operand(4)?).ok_or("no selector".to_owned());
    Ok(Body::GroupProduct(Box::new(GroupProduct {
        a_type,
        b_type,
        whole,
        half_sums,
        d: t.destinations(0)?,
        a,
        b: t.source(2, b64)?,
        keeps: t.source(rest, Type::Pred)?,
        negative_a: !whole && immediate(1) == -1,
        negative_b: !whole && immediate(2) == -1,
        turned_a: halves && turns.0,
        turned_b: halves && turns.1,
        sparse: if sparse { Some((t.source(3, Type::Bits(32))?, selector()?)) } else { None },
    })))
}

fn bulk(t: &Text<'_>) -> Result<Body, String> {
    if t.has("commit_group") || t.has("wait_group") || t.parts.contains(&"prefetch") {
        return Ok(Body::Nothing);
    }
    let b32 = Type::Bits(32);
    let box_of = |i: usize| -> Result<(Source, Vec<Source>), String> {
        let inside = t.operand(i)?.trim_matches(['[', ']']);
        let (map, at) = inside.split_once(',').ok_or("a box without coordinates")?;
        let at = at.trim().trim_matches(['{', '}']).split(',').map(|c| t.value(c.trim(), b32));
        Ok((t.value(map.trim(), Type::Bits(64))?, at.collect::<Result<_, _>>()?))
    };
    if !t.has("tensor") {
        let spaces: Vec<Space> = t
            .parts
            .iter()
            .filter_map(|p| match *p {
                "global" => Some(Space::Global),
                "shared::cta" => Some(Space::Shared),
                "shared::cluster" => Some(Space::Cluster),
                _ => None,
            })
            .collect();
        let [to_space, from_space] = spaces[..] else { return Err("a copy between unknown spaces".into()) };
        let barrier = if t.operands.len() > 3 { Some(t.address(3)?) } else { None };
        return Ok(Body::CopyBytes {
            to: t.address(0)?,
            to_space,
            from: t.address(1)?,
            from_space,
            bytes: t.source(2, b32)?,
            barrier,
        });
    }
    let stores =
        t.parts.iter().position(|p| *p == "global") < t.parts.iter().position(|p| p.starts_with("shared"));
    if stores {
        let (map, at) = box_of(0)?;
        let to = t.address(1)?.base;
        let barrier = constant(0);
        return Ok(Body::CopyBox(Box::new(BoxCopy {
            to,
            map,
            at,
            barrier,
            window: Vec::new(),
            windows: false,
            stores,
            blocks: None,
        })));
    }
    let (map, at) = box_of(1)?;
    let windows = t.has("im2col");
    let last = 3 + usize::from(windows);
    let blocks = if t.has("multicast::cluster") { Some(t.source(last, Type::Bits(16))?) } else { None };
    Ok(Body::CopyBox(Box::new(BoxCopy {
        to: t.address(0)?.base,
        map,
        at,
        barrier: t.address(2)?.base,
        window: if windows { t.list(3, Type::Bits(16))? } else { Vec::new() },
        windows,
        stores,
        blocks,
    })))
}

fn barrier(t: &Text<'_>) -> Result<Body, String> {
    let b32 = Type::Bits(32);
    let space = t.space();
    Ok(match t.parts[1] {
        "init" => Body::BarrierInit { at: t.address(0)?, count: t.source(1, b32)? },
        "inval" => Body::Nothing,
        "arrive" => {
            let last = if t.operands.len() > 2 { Some(t.source(2, b32)?) } else { None };
            let (count, expected) = if t.has("expect_tx") { (None, last) } else { (last, None) };
            if t.operand(0)? != "_" {
                return Err("a barrier's state is used".into());
            }
            Body::BarrierArrive { at: t.address(1)?, space, count, expected }
        }
        "expect_tx" => Body::BarrierExpect { at: t.address(0)?, space, bytes: t.source(1, b32)? },
        "try_wait" | "test_wait" if t.has("parity") => {
            Body::BarrierTest { d: t.destination(0)?, at: t.address(1)?, parity: t.source(2, b32)? }
        }
        other => return Err(format!("mbarrier.{other}")),
    })
}
