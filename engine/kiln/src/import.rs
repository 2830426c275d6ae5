//! Models that are networks: ONNX files, texts, and networks of the API.

use crate::Error;
use crate::model::{Content, Model};
use kiln_files::read_regular;
use kiln_ir::Graph;
use kiln_network::Network;
use kiln_onnx::{ImportOptions, ModelFile};
use kiln_plan::{Plan, graph_io};
use std::path::Path;

/// First bytes of a network's text; no ONNX file begins with them.
const TEXT: &[u8] = b"graph ";
/// The longest text of a network, in bytes: weights of any size come by seed.
const TEXT_LIMIT: u64 = 64 << 20;

/// The network of a file that begins with `start`.
pub(crate) fn import(path: &Path, start: &[u8]) -> Result<Model, Error> {
    let fail = |source| Error::File { path: path.to_owned(), source };
    if start.starts_with(TEXT) {
        let bytes = read_regular(path, TEXT_LIMIT).map_err(fail)?;
        let graph = Graph::from_text(&String::from_utf8_lossy(&bytes)).and_then(|g| g.verify().map(|()| g));
        let fail = |source| Error::Text { path: path.to_owned(), source };
        return Ok(graph.map_err(fail)?.into());
    }
    let fail = |e| Error::Import { path: path.to_owned(), source: Box::new(e) };
    let done = kiln_onnx::parse_file(path, &ImportOptions::default()).map_err(fail)?;
    Ok(Model { notes: done.report.notes, ..done.network.lower()?.into() })
}

/// The network of these bytes; `name` stands for the file in errors.
pub(crate) fn import_bytes(bytes: Vec<u8>, folder: Option<&Path>, name: &Path) -> Result<Model, Error> {
    if bytes.starts_with(TEXT) {
        let graph = Graph::from_text(&String::from_utf8_lossy(&bytes)).and_then(|g| g.verify().map(|()| g));
        let fail = |source| Error::Text { path: name.to_owned(), source };
        return Ok(graph.map_err(fail)?.into());
    }
    let fail = |e| Error::Import { path: name.to_owned(), source: Box::new(e) };
    let file = ModelFile::from_bytes(bytes, folder).map_err(fail)?;
    let checked = kiln_onnx::Model::check(&file).map_err(fail)?;
    let done = kiln_onnx::import(&checked, &ImportOptions::default()).map_err(fail)?;
    Ok(Model { notes: done.report.notes, ..done.network.lower()?.into() })
}

impl Model {
    /// The network to build, and the importer's notes. A plan has it if it was built with
    /// `BuildOptions::portable`.
    ///
    /// # Errors
    /// [`Error::NotPortable`] if the plan does not store its network.
    pub(crate) fn into_network(self) -> Result<(Graph, Vec<String>), Error> {
        let stored = |plan: Plan| {
            let name = plan.header.name;
            plan.network.ok_or(Error::NotPortable { name })
        };
        let graph = match self.content {
            Content::Graph(g) => *g,
            Content::Plan(plan) => stored(*plan)?,
            Content::PlanFile(path, _) => stored(Plan::open(&path)?)?,
        };
        Ok((graph, self.notes))
    }
}

impl From<Graph> for Model {
    fn from(graph: Graph) -> Model {
        let io = graph_io(&graph);
        Model { content: Content::Graph(Box::new(graph)), io, notes: Vec::new(), implicit_batch: false }
    }
}

impl TryFrom<&Network> for Model {
    type Error = Error;

    fn try_from(network: &Network) -> Result<Model, Error> {
        Ok(Model { implicit_batch: network.has_implicit_batch(), ..network.lower()?.into() })
    }
}
