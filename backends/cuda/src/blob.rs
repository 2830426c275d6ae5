//! Blobs: what a plan stores of a kernel. One line of text, then the cubin.

use kiln_backend::BackendError;

/// What the host has to know about a cubin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The architecture that it was made for.
    pub arch: String,
    /// How many addresses the parameter has.
    pub bindings: u32,
    /// Entry points with the threads of their blocks.
    pub entries: Vec<(String, u32)>,
}

/// Kernels wait for what they depend on since version 2, and can be switched off since version 3.
const MAGIC: &str = "kiln-cuda-3";
/// Heads are short; a longer first line is no head.
const MAX_HEAD: usize = 4096;

impl Head {
    /// The blob of a cubin.
    pub fn blob(&self, cubin: &[u8]) -> Vec<u8> {
        let entries: Vec<String> = self.entries.iter().map(|(n, t)| format!("{n}:{t}")).collect();
        let mut out = format!("{MAGIC} {} {} {}\n", self.arch, self.bindings, entries.join(" ")).into_bytes();
        out.extend_from_slice(cubin);
        out
    }

    /// Takes a blob apart.
    pub fn parse(blob: &[u8]) -> Result<(Head, &[u8]), BackendError> {
        let bad = || {
            BackendError::Incompatible(
                "the blob is no kernel of the cuda backend; build the plan again".into(),
            )
        };
        let end = blob.iter().take(MAX_HEAD).position(|&b| b == b'\n').ok_or_else(bad)?;
        let (line, rest) = blob.split_at(end);
        let line = std::str::from_utf8(line).map_err(|_| bad())?;
        let mut words = line.split(' ');
        if words.next() != Some(MAGIC) {
            return Err(bad());
        }
        let arch = words.next().ok_or_else(bad)?.to_owned();
        let bindings = words.next().and_then(|n| n.parse().ok()).filter(|n| *n <= 256).ok_or_else(bad)?;
        let entries = words.map(|w| {
            let (name, threads) = w.split_once(':')?;
            let threads = threads.parse().ok().filter(|n| (1..=1024).contains(n))?;
            Some((name.to_owned(), threads))
        });
        let entries = entries.collect::<Option<Vec<_>>>().ok_or_else(bad)?;
        let cubin = rest.get(1..).unwrap_or_default();
        if !cubin.starts_with(b"\x7fELF") {
            return Err(bad());
        }
        Ok((Head { arch, bindings, entries }, cubin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blobs_come_apart_again() {
        let head = Head {
            arch: "sm_90a".into(),
            bindings: 3,
            entries: vec![("main0".into(), 256), ("rows".into(), 64)],
        };
        let blob = head.blob(b"\x7fELF...");
        assert_eq!(Head::parse(&blob), Ok((head, &b"\x7fELF..."[..])));
        for cut in 0..blob.len() - 3 {
            assert!(Head::parse(&blob[..cut]).is_err(), "{cut} bytes");
        }
        assert!(Head::parse(b"kiln-cuda-1 sm_80 3 main0:4096\n\x7fELF").is_err());
    }
}
