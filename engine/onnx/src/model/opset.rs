//! Operator sets: which version of each is meant.

use std::collections::BTreeMap;

use crate::error::OnnxError;
use crate::proto::OperatorSetIdProto;

/// The newest version of the standard operators that the importer knows of: that of onnx 1.23.
pub const MAX_OPSET: i64 = 28;

/// The version in force of each operator set, by domain. The standard one has the domain "".
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Opsets(BTreeMap<String, i64>);

impl Opsets {
    /// Reads a list of imports. Versions of the standard set are checked here, others by whoever knows the set.
    pub(super) fn read(imports: &[OperatorSetIdProto]) -> Result<Self, OnnxError> {
        let mut opsets = BTreeMap::new();
        for import in imports {
            let domain = canonical_domain(&import.domain);
            if domain.is_empty() && !(1..=MAX_OPSET).contains(&import.version) {
                let domain = "ai.onnx".to_owned();
                return Err(OnnxError::UnsupportedOpset { domain, found: import.version, max: MAX_OPSET });
            }
            match opsets.insert(domain.to_owned(), import.version) {
                Some(first) if first != import.version => {
                    let domain = import.domain.clone();
                    return Err(OnnxError::DuplicateOpset { domain, first, second: import.version });
                }
                _ => {}
            }
        }
        Ok(Self(opsets))
    }

    /// Operator set of models from before operator sets were numbered.
    pub(super) fn first() -> Self {
        Self(BTreeMap::from([(String::new(), 1)]))
    }

    /// The version of a domain's operators, if the domain is imported.
    pub fn version(&self, domain: &str) -> Option<i64> {
        self.0.get(canonical_domain(domain)).copied()
    }

    /// All domains and versions.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        self.0.iter().map(|(domain, version)| (domain.as_str(), *version))
    }
}

/// The domain under which operators are looked up: the two names of the standard one are made one.
pub(super) fn canonical_domain(domain: &str) -> &str {
    if domain == "ai.onnx" { "" } else { domain }
}
