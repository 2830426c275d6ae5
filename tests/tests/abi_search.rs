//! Search for libraries: their places, trust of their files, and their end.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]
#![cfg(unix)]

use kiln_runtime::plugin::{Found, Level, Origin, PluginError, Policy, Search, discover, find, load};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

mod abi;

use abi::{folder, mutant};

/// A fresh folder with copies of a library under these names.
fn place(name: &str, libraries: &[(&str, &Path)]) -> PathBuf {
    let dir = folder("search").join(name);
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    for (file, from) in libraries {
        fs::copy(from, dir.join(file)).unwrap();
    }
    dir
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn names(found: &[Found]) -> Vec<(Origin, String)> {
    let name = |f: &Found| match &f.outcome {
        Ok(info) => info.name.clone(),
        Err(PluginError::Shadowed { name, .. }) => format!("{name} shadowed"),
        Err(e) => format!("refused: {e}"),
    };
    found.iter().map(|f| (f.origin, name(f))).collect()
}

#[test]
fn places_are_searched_in_order() {
    let a = mutant("order_a", &["NAME=KILN_STR(\"a\")"]);
    let b = mutant("order_b", &["NAME=KILN_STR(\"b\")"]);
    let (fa, fb) = ("libkiln_backend_a.so", "libkiln_backend_b.so");
    let explicit = place("explicit", &[(fa, &a), ("libother.so", &a)]);
    let environment = place("environment", &[(fa, &a), (fb, &b)]);
    let user = place("user", &[(fb, &b)]);
    let cut = mutant("order_cut", &["NAME=KILN_STR(\"cut\")", "TABLE_SIZE=56"]);
    let readme = abi::root().join("README.md");
    let system =
        place("system", &[("libkiln_backend_broken.so", &*readme), ("libkiln_backend_cut.so", &*cut)]);
    let search = Search {
        explicit: vec![explicit.join(fa)],
        environment: Some(std::env::join_paths([&environment, Path::new("relative")]).unwrap()),
        user: Some(user.clone()),
        system: vec![folder("search").join("nowhere"), system],
    };
    let found = discover(&search, &Policy::default());
    let names = names(&found);
    let wanted = [
        (Origin::Explicit, "a"),
        (Origin::Environment, "a shadowed"),
        (Origin::Environment, "b"),
        (Origin::User, "b shadowed"),
    ];
    for (origin, name) in wanted {
        assert!(names.contains(&(origin, name.to_owned())), "{name} by {origin:?} in {names:?}");
    }
    assert!(matches!(found[3].outcome, Err(PluginError::Relative { .. })), "{names:?}");
    assert!(matches!(found[5].outcome, Err(PluginError::Open { .. })), "{names:?}");
    assert!(matches!(found[6].outcome, Err(PluginError::MissingSlot { .. })), "{names:?}");
    assert_eq!(found.len(), 7, "{names:?}");
    assert_eq!(find("b", &search.clone(), &Policy::default()).unwrap().info().path, environment.join(fb));
    let e = find("c", &search, &Policy::default()).map(drop).unwrap_err().to_string();
    assert!(e.contains("libkiln_backend_c.so") && e.contains(&user.display().to_string()), "{e}");
    let up = find("../explicit/a", &search, &Policy::default());
    assert!(matches!(up, Err(PluginError::NotFound { .. })));
}

#[test]
fn files_that_anyone_may_change_are_refused() {
    let library = mutant("trust", &["NAME=KILN_STR(\"trust\")"]);
    let file = "libkiln_backend_trust.so";
    let refused = |dir: &Path, what: &Path, bits: u32| {
        let who = if bits & 0o002 == 0 { "its group" } else { "anyone" };
        mode(what, bits);
        let e = load(&dir.join(file), &Policy::default()).map(drop).unwrap_err();
        assert!(matches!(&e, PluginError::Untrusted { .. }), "{e}");
        assert!(e.to_string().contains(&format!("{} is writable by {who}", what.display())), "{e}");
    };
    let dir = place("writable_file", &[(file, &library)]);
    refused(&dir, &dir.join(file), 0o666);
    refused(&dir, &dir.join(file), 0o664);
    let dir = place("writable_dir", &[(file, &library)]);
    refused(&dir, &dir, 0o777);
    refused(&dir, &dir, 0o1777);
    mode(&dir, 0o755);
    let outer = place("writable_above", &[]);
    let inner = outer.join("inner");
    fs::create_dir(&inner).unwrap();
    fs::copy(&library, inner.join(file)).unwrap();
    refused(&inner, &outer, 0o777);
    refused(&inner, &outer, 0o775);
    mode(&outer, 0o1777);
    assert!(load(&inner.join(file), &Policy::default()).is_ok(), "nobody can replace a folder of another's");
    mode(&outer, 0o755);
    // A link in a safe folder does not make its target safe.
    let target = place("link_target", &[(file, &library)]);
    let links = place("links", &[]);
    std::os::unix::fs::symlink(target.join(file), links.join(file)).unwrap();
    mode(&target, 0o777);
    let e = load(&links.join(file), &Policy::default()).map(drop).unwrap_err();
    mode(&target, 0o755);
    assert!(matches!(e, PluginError::Untrusted { .. }), "{e}");
}

#[test]
fn manifests_are_checked() {
    let library = mutant("manifest", &["NAME=KILN_STR(\"m\")"]);
    let file = "libkiln_backend_m.so";
    let dir = place("manifest", &[(file, &library)]);
    let path = dir.join(file);
    let strict = Policy { level: Level::Manifest, ..Policy::default() };
    let error = |policy: &Policy| load(&path, policy).map(drop).unwrap_err();
    assert!(matches!(error(&strict), PluginError::NoManifest { .. }));
    assert!(matches!(
        error(&Policy { level: Level::Off, ..Policy::default() }),
        PluginError::Disabled { .. }
    ));
    let hash = blake3::hash(&fs::read(&path).unwrap()).to_hex().to_string();
    let good =
        format!("file = \"{file}\"\nkind = \"backend\"\nabi = \"1.0\"\nblake3 = \"{hash}\"\nnews = 1\n");
    let write = |text: &str| fs::write(dir.join("m.kilnplugin.toml"), text).unwrap();
    for (from, to, field) in [
        (file, "libother.so", "file"),
        ("\"backend\"", "\"layers\"", "kind"),
        (&hash[..8], "00000000", "blake3"),
        ("kind = ", "kind ", "in all"),
    ] {
        write(&good.replacen(from, to, 1));
        match error(&Policy::default()) {
            PluginError::Manifest { field: f, .. } => assert_eq!(f, field),
            other => panic!("{field}: {other}"),
        }
    }
    write(&good.replace("1.0", "2.0"));
    assert!(matches!(error(&Policy::default()), PluginError::Major { .. }));
    write("kind = \"backend\"\n");
    assert!(matches!(error(&strict), PluginError::Manifest { field: "blake3", .. }));
    write(&good);
    assert_eq!(load(&path, &strict).unwrap().info().name, "m");
}

/// Child process that [`libraries_end_in_reverse_order`] starts; not a test of its own.
#[test]
#[ignore = "started by another test"]
fn child_that_loads_three() {
    for n in ["1", "2", "3"] {
        let path = mutant(&format!("end_{n}"), &[&format!("DEINIT=\"{n}\"")]);
        let plugin = load(&path, &Policy::default()).unwrap_or_else(|e| panic!("{}", e.chain()));
        std::mem::forget(plugin.backend().unwrap());
    }
}

#[test]
fn libraries_end_in_reverse_order() {
    let log = folder("search").join("deinit.txt");
    let _ = fs::remove_file(&log);
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_loads_three", "--ignored", "--quiet"])
        .env("KILN_TEST_DEINIT", &log)
        .status();
    assert!(status.unwrap().success());
    assert_eq!(fs::read_to_string(&log).unwrap(), "321");
}

#[test]
fn the_places_of_a_process() {
    let search = Search::from_env();
    let exe = std::env::current_exe().unwrap().canonicalize().unwrap();
    let beside = exe.parent().unwrap();
    assert_eq!(search.system[0], beside);
    assert!(search.system.contains(&beside.parent().unwrap().join("lib/kiln")));
    assert!(search.user.is_none_or(|p| p.is_absolute() && p.ends_with("kiln/plugins")));
    assert!(search.explicit.is_empty() && search.system.iter().all(|p| p.is_absolute()));
}
