//! Archives: zip files whose entries are arrays.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Cursor, Read, Seek, Write};
use std::path::Path;

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use crate::npy::{head, read_elements, read_header};
use crate::{Array, NpyType, NpzError};

/// Compression of the entries of a written archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Stored without compression, like `numpy.savez`.
    Stored,
    /// Deflated, like `numpy.savez_compressed`.
    Deflated,
}

/// The most that deflate can make of one byte.
const DEFLATE_RATIO: u64 = 1032;

/// Reads all arrays of an archive file by name (the entry's without `.npy`).
pub fn read_npz(path: impl AsRef<Path>) -> Result<BTreeMap<String, Array>, NpzError> {
    read_npz_where(path, |_, _, _| Ok(true))
}

/// Reads the arrays of an archive file that `wants` takes, by name. It is asked with the name, type and shape of each
/// array, from its header; what it does not take is not inflated. Its first error ends the reading.
pub fn read_npz_where<E: From<NpzError>>(
    path: impl AsRef<Path>,
    wants: impl FnMut(&str, NpyType, &[u64]) -> Result<bool, E>,
) -> Result<BTreeMap<String, Array>, E> {
    let path = path.as_ref();
    let io = |source| NpzError::Io { path: path.to_owned(), source };
    let file = kiln_files::open_regular(path).map_err(io)?;
    let length = file.metadata().map_err(io)?.len();
    read_archive(std::io::BufReader::new(file), length, wants)
}

/// Reads all arrays of an archive in memory.
pub fn read_npz_bytes(bytes: &[u8]) -> Result<BTreeMap<String, Array>, NpzError> {
    read_archive(Cursor::new(bytes), bytes.len() as u64, |_, _, _| Ok(true))
}

fn read_archive<E: From<NpzError>>(
    file: impl Read + Seek,
    length: u64,
    mut wants: impl FnMut(&str, NpyType, &[u64]) -> Result<bool, E>,
) -> Result<BTreeMap<String, Array>, E> {
    let mut archive = ZipArchive::new(file).map_err(|error| NpzError::Archive(error.to_string()))?;
    let mut arrays = BTreeMap::new();
    let mut left = length;
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).map_err(|error| NpzError::Archive(error.to_string()))?;
        let entry_name = entry.name().map_err(|error| NpzError::Archive(error.to_string()))?.into_owned();
        let fail = |source| NpzError::Entry { name: entry_name.clone(), source: Box::new(source) };
        let refuse = |reason: &str| fail(NpzError::Archive(reason.into()));
        let name = entry_name.strip_suffix(".npy").ok_or_else(|| refuse("its name does not end in .npy"))?;
        let packed = entry.compressed_size();
        left = left.checked_sub(packed).ok_or_else(|| refuse("the entries together exceed the file"))?;
        let header = read_header(&mut entry).map_err(fail)?;
        if !wants(name, header.dtype, &header.shape)? {
            continue;
        }
        let array = read_elements(header, &mut entry, packed.saturating_mul(DEFLATE_RATIO)).map_err(fail)?;
        if arrays.insert(name.to_owned(), array).is_some() {
            return Err(refuse("the name occurs twice").into());
        }
    }
    Ok(arrays)
}

/// First bytes of archives, the empty one excepted.
const ARCHIVE: kiln_files::Content = kiln_files::Content { name: "an archive of arrays", magic: b"PK" };

/// Replaces an archive file as a whole or not at all: see [`kiln_files::Replacement`]. A file that is there must be an
/// archive. Equal arrays give equal bytes: entries are sorted and bear no time.
pub fn write_npz(
    path: impl AsRef<Path>,
    arrays: &BTreeMap<String, Array>,
    compression: Compression,
) -> Result<(), NpzError> {
    let arrays = arrays.iter().map(|(name, array)| (name.as_str(), Ok(Cow::Borrowed(array))));
    write_npz_from(path, arrays, compression)
}

/// As [`write_npz`], with arrays that are made one after the other, in the order of their names, and dropped as soon as they are written.
pub fn write_npz_from<'a>(
    path: impl AsRef<Path>,
    arrays: impl IntoIterator<Item = (&'a str, Result<Cow<'a, Array>, NpzError>)>,
    compression: Compression,
) -> Result<(), NpzError> {
    let path = path.as_ref();
    let io = |source| NpzError::Io { path: path.to_owned(), source };
    let file = kiln_files::Replacement::create(path, Some(ARCHIVE)).map_err(io)?;
    let mut place = Place { inner: std::io::BufWriter::new(file), at: 0, failed: None };
    let written = write(&mut place, arrays, compression);
    if let Some(source) = place.failed {
        return Err(io(source));
    }
    written?;
    let file = place.inner.into_inner().map_err(|e| io(e.into_error()))?;
    file.commit().map_err(io)
}

/// The bytes of an archive.
pub fn write_npz_bytes(
    arrays: &BTreeMap<String, Array>,
    compression: Compression,
) -> Result<Vec<u8>, NpzError> {
    let arrays = arrays.iter().map(|(name, array)| (name.as_str(), Ok(Cow::Borrowed(array))));
    let mut bytes = Cursor::new(Vec::new());
    write(&mut bytes, arrays, compression)?;
    Ok(bytes.into_inner())
}

/// The place of an archive that keeps its first error, and takes no more after it: a writer of archives that fails tries to end the archive
/// when it is dropped, and would say on stderr that it can't.
struct Place<W> {
    inner: W,
    /// The position in the archive, which goes on after an error.
    at: u64,
    failed: Option<io::Error>,
}

impl<W> Place<W> {
    /// Calls a function unless something failed before.
    fn keep(&mut self, f: impl FnOnce(&mut W) -> io::Result<()>) {
        if self.failed.is_none() {
            self.failed = f(&mut self.inner).err();
        }
    }
}

impl<W: Write> Write for Place<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.keep(|w| w.write_all(bytes));
        self.at += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.keep(W::flush);
        Ok(())
    }
}

impl<W: Seek> Seek for Place<W> {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        let mut found = match to {
            io::SeekFrom::Start(at) => at,
            io::SeekFrom::Current(by) | io::SeekFrom::End(by) => self.at.saturating_add_signed(by),
        };
        self.keep(|w| w.seek(to).map(|at| found = at));
        self.at = found;
        Ok(found)
    }
}

/// Writes an archive, entry by entry.
fn write<'a>(
    place: impl Write + Seek,
    arrays: impl IntoIterator<Item = (&'a str, Result<Cow<'a, Array>, NpzError>)>,
    compression: Compression,
) -> Result<(), NpzError> {
    let method = match compression {
        Compression::Stored => CompressionMethod::Stored,
        Compression::Deflated => CompressionMethod::Deflated,
    };
    let mut writer = ZipWriter::new(place);
    for (name, array) in arrays {
        let fail = |source| NpzError::Entry { name: name.to_owned(), source: Box::new(source) };
        let array = array.map_err(fail)?;
        let head = head(&array).map_err(fail)?;
        let options = SimpleFileOptions::default()
            .compression_method(method)
            .last_modified_time(zip::DateTime::default())
            .large_file(u32::try_from(head.len() + array.data.len()).is_err());
        let started = writer.start_file(format!("{name}.npy"), options).map_err(io::Error::from);
        let written =
            started.and_then(|()| writer.write_all(&head)).and_then(|()| writer.write_all(&array.data));
        written.map_err(|error| fail(NpzError::Archive(error.to_string())))?;
    }
    writer.finish().map_err(|error| NpzError::Archive(error.to_string()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A place that takes so many bytes.
    struct Small(Cursor<Vec<u8>>, usize);

    impl Write for Small {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            match self.0.position() as usize + bytes.len() <= self.1 {
                true => self.0.write(bytes),
                false => Err(io::Error::other("full")),
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Seek for Small {
        fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
            self.0.seek(to)
        }
    }

    #[test]
    fn a_place_keeps_its_first_error_and_lets_archives_end() {
        let array = Array::from_f32(&[100], &[1.0; 100]).unwrap();
        for (room, compression) in
            (0..1000).flat_map(|n| [(n, Compression::Stored), (n, Compression::Deflated)])
        {
            let mut place = Place { inner: Small(Cursor::default(), room), at: 0, failed: None };
            let arrays = ["a", "b"].map(|name| (name, Ok(Cow::Borrowed(&array))));
            write(&mut place, arrays, compression).unwrap();
            let whole = place.failed.is_none();
            assert!(whole || place.failed.is_some_and(|e| e.to_string() == "full"), "{room}");
            assert_eq!(read_npz_bytes(place.inner.0.get_ref()).is_ok(), whole, "{room}");
        }
    }
}
