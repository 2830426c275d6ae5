//! Whether a plan runs on a device.

use crate::PlanHeader;
use crate::limit::SM_COUNT;
use kiln_backend::{MemoryRules, Target};
use std::collections::BTreeMap;

/// The advice of every refusal.
const REBUILD: &str = "build the plan again for it";

/// The number of a target that says how much memory the threads of a block share.
const SHARED: &str = "shared_memory";

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compatibility {
    /// Reason why the plan does not run; `None` if it does.
    pub refusal: Option<String>,
    /// Differences that may cost speed or memory.
    pub warnings: Vec<String>,
}

impl Compatibility {
    /// Whether it runs.
    pub fn ok(&self) -> bool {
        self.refusal.is_none()
    }

    fn refuse(&mut self, reason: String) {
        self.refusal.get_or_insert(reason);
    }
}

impl PlanHeader {
    /// Compares the device that the plan was built for with another. Kernels are native code: another backend,
    /// another version of it (unless the plan is version-compatible), another architecture, a missing feature and tighter memory
    /// rules refuse. Anything that kernels were only chosen by warns.
    pub fn check_compatibility(&self, device: &Target) -> Compatibility {
        // Without `..`: a new field must be decided on here.
        let Target {
            backend,
            version,
            arch,
            device: name,
            driver: _,
            features,
            numbers,
            memory,
            uuid: _,
            traits,
        } = &self.target;
        let mut c = Compatibility::default();
        for (what, built, here, needed) in [
            ("the backend", backend, &device.backend, true),
            ("the backend's version", version, &device.version, !self.version_compatible),
            ("the architecture", arch, &device.arch, !device.runs_code_for(arch)),
        ] {
            if built != here && needed {
                c.refuse(format!("{what} is \"{here}\", the plan was built for \"{built}\"; {REBUILD}"));
            }
        }
        if let Some(f) = features.iter().find(|f| !device.has(f)) {
            c.refuse(format!(
                "the device \"{}\" lacks \"{f}\", which kernels may use; {REBUILD}",
                device.device
            ));
        }
        memory_rules(&mut c, memory, &device.memory);
        if name != &device.device {
            c.warnings.push(format!(
                "the plan was built on \"{name}\", this is \"{}\": its kernels may not be the fastest here",
                device.device
            ));
        }
        // Code for many architectures is bound to the least of their shared memory, not to that of the build's device.
        let both = || Some((numbers.get(SHARED)?, device.numbers.get(SHARED)?));
        let least = if arch.ends_with('+') { both() } else { None };
        if let Some((built, here)) = least
            && here < built
        {
            c.refuse(format!(
                "a block has {here} bytes of shared memory, kernels may want {built}; {REBUILD}"
            ));
        }
        // A plan for a part of a device runs on all that have as much.
        let part = |n: &str, built: u64| {
            n == SM_COUNT && self.limit.sms.is_some() && device.numbers.get(n) >= Some(&built)
        };
        let compared = |(n, built): &(&String, &u64)| (least.is_none() || *n != SHARED) && !part(n, **built);
        numbers_differ(&mut c, numbers.iter().filter(compared), &device.numbers);
        // Traits that either side does not know say nothing.
        numbers_differ(&mut c, traits.iter().filter(|(n, _)| device.traits.contains_key(*n)), &device.traits);
        c
    }
}

fn memory_rules(c: &mut Compatibility, built: &MemoryRules, here: &MemoryRules) {
    let MemoryRules { alignment, max_binding, in_place, total } = *built;
    if alignment == 0 || here.alignment == 0 || alignment % here.alignment != 0 {
        c.refuse(format!(
            "tensors are aligned to {alignment} bytes, the device wants {}; {REBUILD}",
            here.alignment
        ));
    }
    if max_binding > here.max_binding {
        c.refuse(format!("kernels may bind {max_binding} bytes, the device {}; {REBUILD}", here.max_binding));
    }
    if in_place && !here.in_place {
        c.refuse(format!("values share memory inside a kernel, which the device does not allow; {REBUILD}"));
    }
    if here.total != 0 && here.total < total {
        c.warnings.push(format!("the device has {} bytes of memory, that of the build {total}", here.total));
    }
}

fn numbers_differ<'a>(
    c: &mut Compatibility,
    built: impl Iterator<Item = (&'a String, &'a u64)>,
    here: &BTreeMap<String, u64>,
) {
    for (name, value) in built {
        let now = here.get(name);
        if now != Some(value) {
            let now = now.map_or_else(|| "unknown".to_owned(), u64::to_string);
            c.warnings.push(format!("{name} is {now}, was {value} where the plan was built"));
        }
    }
}
