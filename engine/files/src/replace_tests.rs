use super::*;

const TEXT: Option<Content> = Some(Content { name: "a text", magic: b"text" });

fn names(folder: &Path) -> Vec<String> {
    let mut all: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    all.sort();
    all
}

#[test]
fn a_file_is_made_and_replaced_and_nothing_else_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    replace(&path, TEXT, b"text 1").unwrap();
    replace(&path, TEXT, b"text 2").unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"text 2");
    assert_eq!(names(folder.path()), ["a"]);
}

#[test]
fn an_abandoned_replacement_leaves_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    std::fs::write(&path, "old").unwrap();
    let mut new = Replacement::create(&path, None).unwrap();
    new.write_all(b"half of the n").unwrap();
    assert_eq!(names(folder.path()).len(), 2);
    drop(new);
    assert_eq!(names(folder.path()), ["a"]);
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
}

#[test]
fn foreign_contents_and_inputs_are_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    std::fs::write(&path, "a model").unwrap();
    let e = replace(&path, TEXT, b"text").unwrap_err();
    assert!(e.to_string().contains("not a text"), "{e}");
    std::fs::hard_link(&path, folder.path().join("same")).unwrap();
    let new = Replacement::create(&path, None).unwrap();
    let same = folder.path().join("same");
    let e = new.refuse_inputs([folder.path().join("no").as_path(), same.as_path()]).unwrap_err();
    assert!(e.to_string().contains("which is read"), "{e}");
    drop(new);
    std::fs::write(&path, "").unwrap();
    replace(&path, TEXT, b"text").unwrap();
    assert_eq!(names(folder.path()), ["model.onnx", "same"]);
}

#[cfg(unix)]
#[test]
fn devices_pipes_and_folders_are_refused_and_links_kept() {
    use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
    let folder = tempfile::tempdir().unwrap();
    let at = |n: &str| folder.path().join(n);
    let before = std::fs::metadata("/dev/null").unwrap().ino();
    let e = replace(Path::new("/dev/null"), None, b"x").unwrap_err().to_string();
    assert!(e.contains("a device"), "{e}");
    let after = std::fs::metadata("/dev/null").unwrap();
    assert!(after.file_type().is_char_device() && after.ino() == before);
    assert!(std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
    assert!(replace(&at("pipe"), None, b"x").unwrap_err().to_string().contains("a pipe"));
    assert!(replace(folder.path(), None, b"x").unwrap_err().to_string().contains("a folder"));
    symlink(at("nothing"), at("broken")).unwrap();
    assert!(replace(&at("broken"), None, b"x").unwrap_err().to_string().contains("link to nothing"));
    assert!(replace(&at("no/such"), None, b"x").unwrap_err().to_string().contains("folder does not exist"));

    std::fs::create_dir(at("real")).unwrap();
    std::fs::write(at("real/file"), "old").unwrap();
    std::fs::set_permissions(at("real/file"), std::fs::Permissions::from_mode(0o640)).unwrap();
    symlink(at("real/file"), at("link")).unwrap();
    replace(&at("link"), None, b"new").unwrap();
    assert!(at("link").symlink_metadata().unwrap().is_symlink());
    assert_eq!(std::fs::read(at("real/file")).unwrap(), b"new");
    assert_eq!(std::fs::metadata(at("real/file")).unwrap().mode() & 0o777, 0o640);
}

#[test]
fn leftovers_of_the_dead_are_removed_and_files_of_the_living_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let stale = format!(".a.{}{SUFFIX}", "0".repeat(DIGITS));
    let other = format!(".b.{}{SUFFIX}", "0".repeat(DIGITS));
    std::fs::write(folder.path().join(&stale), "torn").unwrap();
    std::fs::write(folder.path().join(&other), "torn").unwrap();
    let living = Replacement::create(&path, None).unwrap();
    assert!(!names(folder.path()).contains(&stale), "{:?}", names(folder.path()));
    replace(&path, None, b"x").unwrap();
    assert!(living.temporary.exists());
    living.commit().unwrap();
    assert_eq!(names(folder.path()), [other, "a".to_owned()]);
}

#[test]
fn long_names_have_temporary_names_that_fit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ü".repeat(120));
    replace(&path, None, b"x").unwrap();
    assert_eq!(names(folder.path()).len(), 1);
    let Some(name) = path.file_name() else { unreachable!() };
    let temporary = temporary_name(&path).unwrap();
    assert!(is_temporary_of(temporary.file_name().unwrap_or_default(), name));
}

#[test]
fn many_writers_of_one_file_leave_one_of_their_contents() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    std::thread::scope(|s| {
        for i in 0..8u8 {
            let path = &path;
            s.spawn(move || (0..20).for_each(|_| replace(path, None, &[i; 5000]).unwrap()));
        }
    });
    let found = std::fs::read(&path).unwrap();
    assert!(found.len() == 5000 && found.iter().all(|&b| b == found[0]));
    assert_eq!(names(folder.path()), ["a"]);
}
