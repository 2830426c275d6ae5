//! An installation of the libraries that were built, and programs against it, by the commands of the page.

use super::data::root;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The folder that cargo builds into.
pub fn built() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let found = exe.ancestors().skip(1).find(|d| d.join("libkiln.so").is_file() && d.join("deps").is_dir());
    found.unwrap_or_else(|| panic!("libkiln.so is not built: run cargo build --workspace --lib")).to_owned()
}

/// A folder with an installation, removed at the end.
pub struct Installed {
    folder: tempfile::TempDir,
}

impl Installed {
    pub fn new() -> Installed {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let installed = Installed { folder };
        let mut command = Command::new("bash");
        command.arg(root().join("scripts/install_c.sh")).arg(installed.prefix()).arg(built());
        succeeded(command.output().unwrap(), "scripts/install_c.sh");
        installed
    }

    /// A folder for files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn prefix(&self) -> PathBuf {
        self.folder().join("prefix")
    }

    /// A shell in the root of the workspace that finds the installation, as the page has it.
    pub fn shell(&self, script: &str) -> Output {
        let mut command = Command::new("bash");
        command.args(["-euo", "pipefail", "-c", script]).current_dir(root());
        command.env("PKG_CONFIG_PATH", self.prefix().join("lib/pkgconfig"));
        command.env("CMAKE_PREFIX_PATH", self.prefix()).env("LD_LIBRARY_PATH", self.prefix().join("lib"));
        command.env("PREFIX", self.prefix()).env("OUT", self.folder()).output().unwrap()
    }

    /// Compiles a program with all warnings as errors; `package` is that of pkg-config.
    pub fn compile(&self, source: &Path, package: &str) -> PathBuf {
        let out = self.folder().join(source.file_stem().unwrap());
        let cpp = source.extension().is_some_and(|e| e == "cpp");
        let compiler = if cpp { "c++ -std=c++17" } else { "cc -std=c11" };
        let script = format!(
            "{compiler} -Wall -Wextra -Werror -pedantic -g '{}' $(pkg-config --cflags --libs {package}) -lpthread -o '{}'",
            source.display(),
            out.display()
        );
        // strdup and pthreads beside strict C11.
        succeeded(self.shell(&script.replace("-std=c11", "-std=c11 -D_POSIX_C_SOURCE=200809L")), &script);
        out
    }

    /// Runs a program with arguments and returns its standard output.
    pub fn run(&self, program: &Path, arguments: &[&str]) -> String {
        let quoted: Vec<String> = arguments.iter().map(|a| format!("'{a}'")).collect();
        let suppressions = root().join("capi/full/tests/c_api/valgrind.supp");
        let valgrind = match std::env::var_os("KILN_VALGRIND") {
            Some(_) => format!(
                "valgrind --quiet --error-exitcode=9 --leak-check=full --show-leak-kinds=definite \
                 --errors-for-leak-kinds=definite --suppressions='{}' ",
                suppressions.display()
            ),
            None => String::new(),
        };
        let script = format!("{valgrind}'{}' {}", program.display(), quoted.join(" "));
        succeeded(self.shell(&script), &script)
    }
}

/// The standard output of a command that succeeded.
pub fn succeeded(out: Output, what: &str) -> String {
    let (text, errors) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{what}: {:?}\n{text}\n{errors}", out.status);
    text.into_owned()
}
