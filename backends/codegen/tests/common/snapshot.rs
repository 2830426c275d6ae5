//! Hashes of kernel texts, to compare two versions of a backend: `KILN_SNAPSHOT=FOLDER` writes FOLDER/NAME.txt, a line for each
//! operator, problem, form and tactic. `KILN_SNAPSHOT_TEXT=1` also writes each text, as FOLDER/NAME/HASH.txt.

use std::collections::BTreeSet;
use std::path::PathBuf;

/// The lines so far, where a snapshot is asked for.
pub struct Snapshot {
    name: String,
    folder: Option<PathBuf>,
    with_texts: bool,
    lines: String,
    written: BTreeSet<String>,
}

impl Snapshot {
    /// A snapshot of the backend of this name, as the environment asks for it.
    pub fn new(name: &str) -> Snapshot {
        Snapshot {
            name: name.to_owned(),
            folder: std::env::var_os("KILN_SNAPSHOT").map(PathBuf::from),
            with_texts: std::env::var_os("KILN_SNAPSHOT_TEXT").is_some_and(|v| v == "1"),
            lines: String::new(),
            written: BTreeSet::new(),
        }
    }

    /// Whether every text is wanted, those of equal types too.
    pub fn wanted(&self) -> bool {
        self.folder.is_some()
    }

    /// Adds the text of a tactic for a problem.
    pub fn add(&mut self, problem: &str, tactic: &str, text: &[u8]) {
        let Some(folder) = &self.folder else { return };
        let hash = blake3::hash(text).to_hex()[..16].to_owned();
        self.lines += &format!("{problem} {tactic} {hash}\n");
        if self.with_texts && self.written.insert(hash.clone()) {
            let folder = folder.join(&self.name);
            std::fs::create_dir_all(&folder).expect("the folder of the snapshot");
            std::fs::write(folder.join(format!("{hash}.txt")), text).expect("a text of the snapshot");
        }
    }

    /// Writes the lines.
    pub fn finish(self) {
        let Some(folder) = &self.folder else { return };
        std::fs::create_dir_all(folder).expect("the folder of the snapshot");
        std::fs::write(folder.join(format!("{}.txt", self.name)), &self.lines).expect("the snapshot");
    }
}
