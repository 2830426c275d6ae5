//! Tactics: the ways to run a region.

use crate::field;
use minicbor::{Decode, Encode};
use std::collections::BTreeMap;
use std::ops::Not;

/// One way to run a region, named with its parameters, never by index.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct Tactic {
    /// Family and variant: "matmul.tiled".
    #[n(0)]
    pub name: String,
    /// Parameters: tile sizes, stages. Sorted by name.
    #[cbor(n(1), skip_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, i64>,
    /// Scratch memory in bytes that the step wants while it runs, at the region's maximal shapes.
    #[cbor(n(2), skip_if = "field::is_zero")]
    pub workspace: u64,
    /// Whether it yields the same bits every time.
    #[cbor(n(3), with = "field::yes", has_nil)]
    pub deterministic: bool,
    /// Identifies the sources that the kernel's text is written from, so that changed kernels are timed again.
    #[cbor(n(4), skip_if = "String::is_empty")]
    pub source_hash: String,
    /// Expected time in nanoseconds at the region's optimal shapes, if the backend has a model; the engine times the
    /// most promising ones only.
    #[cbor(n(5), decode_with = "field::time", nil = "field::no_time")]
    pub estimate_ns: Option<f64>,
    /// Whether it does not write results that no other region reads, so that these need no memory. Else it may
    /// write them.
    #[cbor(n(6), skip_if = "Not::not")]
    pub leaves_unread: bool,
    /// Note for the build report if it is chosen, such as faster tactics and the reason why they are refused
    /// here. May be empty.
    #[cbor(n(7), skip_if = "String::is_empty")]
    pub note: String,
}

impl Tactic {
    /// A deterministic tactic without parameters, scratch or estimate.
    pub fn plain(name: &str) -> Tactic {
        Tactic {
            name: name.to_owned(),
            params: BTreeMap::new(),
            workspace: 0,
            deterministic: true,
            source_hash: String::new(),
            estimate_ns: None,
            leaves_unread: false,
            note: String::new(),
        }
    }

    /// Hash of a kernel's source, for [`Tactic::source_hash`].
    pub fn hash_of(source: &str) -> String {
        blake3::hash(source.as_bytes()).to_hex()[..16].to_owned()
    }

    /// Sets a parameter; for building in a chain.
    pub fn with(mut self, name: &str, value: i64) -> Tactic {
        self.params.insert(name.to_owned(), value);
        self
    }

    /// Name and parameters as text: "matmul.tiled(m=64,n=64)".
    pub fn id(&self) -> String {
        if self.params.is_empty() {
            return self.name.clone();
        }
        let params: Vec<String> = self.params.iter().map(|(k, v)| format!("{k}={v}")).collect();
        format!("{}({})", self.name, params.join(","))
    }
}
