//! Models, from which engines are made, and the one loader of files.

use crate::Error;
use kiln_files::{open_regular, read_regular};
use kiln_ir::Graph;
use kiln_network::Network;
use kiln_onnx::ImportOptions;
use kiln_plan::{IoTensor, MAGIC, Plan, PlanHeader, graph_io};
use std::io::Read;
use std::path::{Path, PathBuf};

/// First bytes of a network's text; no ONNX file begins with them.
const TEXT: &[u8] = b"graph ";
/// The longest text of a network, in bytes: weights of any size come by seed.
const TEXT_LIMIT: u64 = 64 << 20;

/// Source of an engine: a network that is to be built, or a plan that is to be loaded.
///
/// ```
/// # let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/digits");
/// use kiln::Model;
///
/// let model = Model::open(format!("{folder}/lenet_a.onnx"))?;
/// let names: Vec<&str> = model.io_tensors().iter().map(|t| t.name.as_str()).collect();
/// assert_eq!(names, ["input", "logits"]);
/// assert!(model.plan().is_none(), "it is not built yet");
/// # Ok::<(), kiln::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Model {
    pub(crate) content: Content,
    io: Vec<IoTensor>,
    notes: Vec<String>,
}

/// Content of a model. A plan file is read when its engine is made.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    Graph(Box<Graph>),
    PlanFile(PathBuf, Box<PlanHeader>),
    Plan(Box<Plan>),
}

impl Model {
    /// Opens an ONNX model, a plan, or a network as text. The content of the file decides which.
    ///
    /// # Errors
    /// [`Error::File`] if the file cannot be read; [`Error::Import`] if it is not a model that Kiln
    /// runs; [`Error::Plan`] if it is a damaged plan; [`Error::Text`] if it is a wrong text.
    pub fn open(path: impl AsRef<Path>) -> Result<Model, Error> {
        let path = path.as_ref();
        let fail = |source| Error::File { path: path.to_owned(), source };
        let mut start = Vec::new();
        open_regular(path).and_then(|f| f.take(8).read_to_end(&mut start)).map_err(fail)?;
        if start == MAGIC {
            let header = Box::new(PlanHeader::peek(path)?);
            let io = header.io.clone();
            return Ok(Model { io, content: Content::PlanFile(path.to_owned(), header), notes: Vec::new() });
        }
        if start.starts_with(TEXT) {
            let bytes = read_regular(path, TEXT_LIMIT).map_err(fail)?;
            let graph =
                Graph::from_text(&String::from_utf8_lossy(&bytes)).and_then(|g| g.verify().map(|()| g));
            let fail = |source| Error::Text { path: path.to_owned(), source };
            return Ok(graph.map_err(fail)?.into());
        }
        let fail = |e| Error::Import { path: path.to_owned(), source: Box::new(e) };
        let done = kiln_onnx::parse_file(path, &ImportOptions::default()).map_err(fail)?;
        Ok(Model { notes: done.report.notes, ..done.network.lower()?.into() })
    }

    /// Inputs, then outputs.
    pub fn io_tensors(&self) -> &[IoTensor] {
        &self.io
    }

    /// The header of a plan; `None` for a network that is to be built.
    pub fn plan(&self) -> Option<&PlanHeader> {
        match &self.content {
            Content::Graph(_) => None,
            Content::PlanFile(_, header) => Some(header),
            Content::Plan(plan) => Some(&plan.header),
        }
    }

    /// Changes and assumptions of the importer.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

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
        Model { content: Content::Graph(Box::new(graph)), io, notes: Vec::new() }
    }
}

impl From<Plan> for Model {
    fn from(plan: Plan) -> Model {
        Model { io: plan.header.io.clone(), content: Content::Plan(Box::new(plan)), notes: Vec::new() }
    }
}

impl TryFrom<&Network> for Model {
    type Error = Error;

    fn try_from(network: &Network) -> Result<Model, Error> {
        Ok(network.lower()?.into())
    }
}

macro_rules! from_paths {
    ($($path:ty),*) => {$(
        impl TryFrom<$path> for Model {
            type Error = Error;

            /// Opens the file: see [`Model::open`].
            fn try_from(path: $path) -> Result<Model, Error> {
                Model::open(path)
            }
        }
    )*};
}
from_paths!(&str, &String, &Path, &PathBuf, PathBuf);
