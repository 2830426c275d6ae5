//! Networks of files and of bytes: ONNX models and texts.

use crate::Error;
use kiln_files::read_regular;
use kiln_ir::Graph;
use kiln_onnx::{ImportOptions, ModelFile};
use std::path::Path;

/// First bytes of a network's text; no ONNX file begins with them.
const TEXT: &[u8] = b"graph ";
/// The longest text of a network, in bytes: weights of any size come by seed.
const TEXT_LIMIT: u64 = 64 << 20;

/// A network, and the importer's notes.
pub(crate) type Imported = (Graph, Vec<String>);

/// The network of a file that begins with `start`.
pub(crate) fn import(path: &Path, start: &[u8]) -> Result<Imported, Error> {
    let fail = |source| Error::File { path: path.to_owned(), source };
    if start.starts_with(TEXT) {
        let bytes = read_regular(path, TEXT_LIMIT).map_err(fail)?;
        let graph = Graph::from_text(&String::from_utf8_lossy(&bytes)).and_then(|g| g.verify().map(|()| g));
        let fail = |source| Error::Text { path: path.to_owned(), source };
        return Ok((graph.map_err(fail)?, Vec::new()));
    }
    let fail = |e| Error::Import { path: path.to_owned(), source: Box::new(e) };
    let done = kiln_onnx::parse_file(path, &ImportOptions::default()).map_err(fail)?;
    Ok((done.network.lower()?, done.report.notes))
}

/// The network of these bytes; `name` stands for the file in errors.
pub(crate) fn import_bytes(bytes: Vec<u8>, folder: Option<&Path>, name: &Path) -> Result<Imported, Error> {
    if bytes.starts_with(TEXT) {
        let graph = Graph::from_text(&String::from_utf8_lossy(&bytes)).and_then(|g| g.verify().map(|()| g));
        let fail = |source| Error::Text { path: name.to_owned(), source };
        return Ok((graph.map_err(fail)?, Vec::new()));
    }
    let fail = |e| Error::Import { path: name.to_owned(), source: Box::new(e) };
    let file = ModelFile::from_bytes(bytes, folder).map_err(fail)?;
    let checked = kiln_onnx::Model::check(&file).map_err(fail)?;
    let done = kiln_onnx::import(&checked, &ImportOptions::default()).map_err(fail)?;
    Ok((done.network.lower()?, done.report.notes))
}
