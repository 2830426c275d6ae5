//! Finding and opening a vendor's library, and its blobs.

use crate::library::{candidates, open};
use kiln_backend::BackendError;

/// A library by its files' names, newest first, the variable that may name it, and what installs it.
pub struct Name {
    pub title: &'static str,
    pub files: &'static [&'static str],
    pub variable: &'static str,
    pub package: &'static str,
}

impl Name {
    /// Opens the library and finds its functions.
    pub fn load<T>(&self, find: fn(&libloading::Library) -> Result<T, &'static str>) -> Result<T, String> {
        let tried = candidates(self.variable, self.files);
        let Some((library, path)) = open(&tried) else {
            let names: Vec<String> = tried.iter().map(|p| p.display().to_string()).collect();
            return Err(format!(
                "{} is not installed (tried {}); `pip install {}` and let {} name its folder, or leave this tactic \
                 source out",
                self.title,
                names.join(", "),
                self.package,
                self.variable
            ));
        };
        let table = find(&library)
            .map_err(|symbol| format!("{path} lacks {symbol}; install a newer {}", self.title))?;
        // The functions stay valid for the life of the process.
        std::mem::forget(library);
        Ok(table)
    }
}

/// A library that is not there is asked for by name: building without it would hide that.
pub fn missing(why: &str) -> BackendError {
    BackendError::Io(why.to_owned())
}

/// Blob of a library's step in a plan: one line of words.
pub struct Blob {
    pub version: u64,
    pub words: Vec<u64>,
}

impl Blob {
    pub fn write(&self, magic: &str) -> Vec<u8> {
        let words: Vec<String> = self.words.iter().map(|w| format!("{w:x}")).collect();
        format!("{magic} {} {}", self.version, words.join(" ")).into_bytes()
    }

    /// Reads `words` words; the version must be that of the library here.
    pub fn read(
        blob: &[u8],
        magic: &str,
        title: &str,
        here: u64,
        words: usize,
    ) -> Result<Blob, BackendError> {
        let text =
            std::str::from_utf8(blob.get(..blob.len().min(4096)).unwrap_or_default()).unwrap_or_default();
        let mut parts = text.split(' ');
        let wrong =
            || BackendError::Incompatible(format!("a step's blob is none of {title}; build the plan again"));
        if parts.next() != Some(magic) {
            return Err(wrong());
        }
        let version = parts.next().and_then(|v| v.parse().ok()).ok_or_else(wrong)?;
        if version != here {
            return Err(BackendError::Incompatible(format!(
                "the plan has steps of {title} {version}, here is {here}; build the plan again"
            )));
        }
        let all: Option<Vec<u64>> = parts.map(|w| u64::from_str_radix(w, 16).ok()).collect();
        let words = all.filter(|w| w.len() == words).ok_or_else(wrong)?;
        Ok(Blob { version, words })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn blobs_come_apart_again_and_versions_must_be_equal() {
        let blob = Blob { version: 130_002, words: vec![1, u64::MAX, 0] }.write("kiln-x-1");
        let back = Blob::read(&blob, "kiln-x-1", "x", 130_002, 3).unwrap();
        assert_eq!(back.words, [1, u64::MAX, 0]);
        let error =
            |magic, here, words| Blob::read(&blob, magic, "x", here, words).err().unwrap().to_string();
        assert!(error("kiln-x-1", 130_003, 3).contains("x 130002, here is 130003"));
        assert!(error("kiln-y-1", 130_002, 3).contains("none of x"));
        assert!(error("kiln-x-1", 130_002, 4).contains("none of x"));
        assert!(Blob::read(b"\xff", "kiln-x-1", "x", 1, 0).is_err());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_library_without_a_function_says_which_and_what_to_do() {
        let old = Name { title: "cuOld", files: &["libc.so.6"], variable: "KILN_OLD", package: "nvidia-old" };
        let why = old.load(|_| Err::<(), _>("cuOldNewest")).unwrap_err();
        assert_eq!(why, "libc.so.6 lacks cuOldNewest; install a newer cuOld");
    }

    #[test]
    fn a_library_that_is_not_there_says_what_installs_it() {
        let none = Name {
            title: "cuNone",
            files: &["libkiln-none.so.0"],
            variable: "KILN_NONE",
            package: "nvidia-none",
        };
        let why = none.load(|_| Ok(())).unwrap_err();
        assert!(why.contains("libkiln-none.so.0") && why.contains("pip install nvidia-none"), "{why}");
    }
}
