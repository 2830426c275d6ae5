//! Resources of a kernel, from the compiler's log.

/// Resources of one entry point.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// The entry point.
    pub entry: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Static shared memory of a block in bytes.
    pub shared: u32,
    /// Bytes that a thread stores outside of registers for want of them.
    pub spilled: u32,
    /// Bytes of a thread's memory outside of registers, for whatever reason.
    pub stack: u32,
    /// Whether products by `wgmma` wait for each other, as the compiler could not keep several under way.
    pub serialized: bool,
}

/// The number before a text.
fn before(line: &str, what: &str) -> Option<u32> {
    let (head, _) = line.split_once(what)?;
    head.rsplit(' ').next()?.parse().ok()
}

/// Entry points of a log that was made with `--ptxas-options=-v`, in its order.
pub fn resources(log: &str) -> Vec<Resources> {
    let mut all: Vec<Resources> = Vec::new();
    let mut serialized: Vec<&str> = Vec::new();
    for line in log.lines() {
        if line.contains("wgmma.mma_async instructions are serialized") {
            serialized.extend(line.rsplit('\'').nth(1));
        }
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            let entry = rest.split('\'').next().unwrap_or_default().to_owned();
            all.push(Resources { entry, ..Resources::default() });
        }
        let Some(last) = all.last_mut() else { continue };
        if let Some(n) = before(line, " bytes stack frame") {
            last.stack = n;
        }
        if let Some(n) = before(line, " bytes spill stores") {
            last.spilled = n;
        }
        if let Some(n) = before(line, " registers") {
            last.registers = n;
            last.shared = before(line, " bytes smem").unwrap_or(0);
        }
    }
    for r in &mut all {
        r.serialized = serialized.contains(&r.entry.as_str());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_by_entry_point() {
        let log = "ptxas info    : (C7515) Potential Performance Loss: wgmma.mma_async instructions are serialized due to non \
                   wgmma instructions in the function 'gemm'\n\
                   ptxas info    : 0 bytes gmem\n\
                   ptxas info    : Compiling entry function 'gemm' for 'sm_90a'\n\
                   ptxas info    : Function properties for gemm\n    \
                   16 bytes stack frame, 12 bytes spill stores, 20 bytes spill loads\n\
                   ptxas info    : Used 168 registers, used 3 barriers, 16 bytes cumulative stack size, 1024 bytes smem\n\
                   ptxas info    : Compiling entry function 'sum' for 'sm_90a'\n\
                   ptxas info    : Used 20 registers, used 0 barriers\n";
        let of = |entry: &str, registers, shared, spilled| Resources {
            entry: entry.into(),
            registers,
            shared,
            spilled,
            stack: if spilled > 0 { 16 } else { 0 },
            serialized: entry == "gemm",
        };
        assert_eq!(resources(log), [of("gemm", 168, 1024, 12), of("sum", 20, 0, 0)]);
        assert!(resources("nothing").is_empty());
    }
}
