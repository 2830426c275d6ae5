//! `kiln plugin new`: a library of one layer to begin with.

use crate::failure::Failure;
use crate::print::Printer;
use clap::ValueEnum;
use std::path::{Path, PathBuf};

/// The C header, of which a library in C needs a copy.
const HEADER: &str = include_str!("../../../../plugins/include/kiln_plugin.h");
/// The header of C++ over it.
const CPP_HEADER: &str = include_str!("../../../../plugins/include/kiln_layer.hpp");
const C: &str = include_str!("template.c");
const CPP: &str = include_str!("template.cpp");
const RUST: &str = include_str!("template.rs.txt");
const CARGO: &str = include_str!("template.toml");

/// Start a library of custom layers: a folder with one layer that works
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of the library: lower-case letters, digits and _
    name: String,
    /// Language of the library
    #[arg(long, value_enum, default_value_t = Language::C)]
    lang: Language,
    /// Folder to make; default: the name
    #[arg(long, value_name = "FOLDER")]
    into: Option<PathBuf>,
    /// Folder of Kiln's SDK for Rust (plugins/sdk of its sources)
    #[arg(long, value_name = "FOLDER", default_value = "../kiln/plugins/sdk")]
    sdk: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Language {
    C,
    Cpp,
    Rust,
}

/// Runs the command.
pub fn run(args: &Args, out: &Printer) -> Result<(), Failure> {
    let name = &args.name;
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.len() <= 48
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if !plain {
        return Err(Failure::Input(format!(
            "the name \"{name}\", wants 1 to 48 lower-case letters, digits and _, the first a letter"
        )));
    }
    let folder = args.into.clone().unwrap_or_else(|| PathBuf::from(name));
    if folder.exists() {
        return Err(Failure::Input(format!("{} exists; name another folder with --into", folder.display())));
    }
    let fill =
        |text: &str| text.replace("@name@", name).replace("@Name@", &camel(name)).replace("@sdk@", &args.sdk);
    let library = format!("libkiln_layers_{name}{}", std::env::consts::DLL_SUFFIX);
    let build = match args.lang {
        Language::C => {
            write(&folder.join(format!("{name}.c")), &fill(C))?;
            write(&folder.join("kiln_plugin.h"), HEADER)?;
            format!("cc -std=c11 -shared -fPIC -fvisibility=hidden -I . -o {library} {name}.c -lm")
        }
        Language::Cpp => {
            write(&folder.join(format!("{name}.cpp")), &fill(CPP))?;
            write(&folder.join("kiln_layer.hpp"), CPP_HEADER)?;
            write(&folder.join("kiln_plugin.h"), HEADER)?;
            format!("c++ -std=c++17 -shared -fPIC -fvisibility=hidden -I . -o {library} {name}.cpp")
        }
        Language::Rust => {
            write(&folder.join("Cargo.toml"), &fill(CARGO))?;
            write(&folder.join("src/lib.rs"), &fill(RUST))?;
            "cargo build --release".to_owned()
        }
    };
    let at = if args.lang == Language::Rust { format!("target/release/{library}") } else { library };
    out.line(format!("cd {} && {build} && kiln plugin check {at}", folder.display()));
    Ok(())
}

/// "soft_clip" as "SoftClip".
fn camel(name: &str) -> String {
    let word = |w: &str| {
        let mut letters = w.chars();
        letters.next().map(|c| c.to_ascii_uppercase().to_string() + letters.as_str()).unwrap_or_default()
    };
    name.split('_').map(word).collect()
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let file = |source| Failure::File { path: path.to_owned(), source };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(file)?;
    }
    std::fs::write(path, text).map_err(file)
}
