//! Models, from which engines are made, and the one loader of files.

use crate::Error;
#[cfg(feature = "build")]
use crate::import::{Imported, import, import_bytes};
use kiln_files::open_regular;
use kiln_plan::{IoTensor, MAGIC, Plan, PlanHeader};
use std::io::Read;
use std::path::{Path, PathBuf};

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
    pub(crate) io: Vec<IoTensor>,
    pub(crate) notes: Vec<String>,
    /// Whether the network leaves the batch out of its dimensions.
    #[cfg(feature = "build")]
    pub(crate) implicit_batch: bool,
}

/// Content of a model. A plan file is read when its engine is made.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    #[cfg(feature = "build")]
    Graph(Box<kiln_ir::Graph>),
    PlanFile(PathBuf, Box<PlanHeader>),
    Plan(Box<Plan>),
}

/// Networks cannot be imported without the feature `build`.
#[cfg(not(feature = "build"))]
enum Imported {}

impl Model {
    #[cfg(feature = "build")]
    fn of_network((graph, notes): Imported) -> Model {
        Model { notes, ..graph.into() }
    }

    #[cfg(not(feature = "build"))]
    fn of_network(none: Imported) -> Model {
        match none {}
    }

    fn of_plan(io: Vec<IoTensor>, content: Content) -> Model {
        Model {
            io,
            content,
            notes: Vec::new(),
            #[cfg(feature = "build")]
            implicit_batch: false,
        }
    }

    /// Opens an ONNX model, a plan, or a network as text. The content of the file decides which. Without the feature `build` only
    /// plans are opened.
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
            let content = Content::PlanFile(path.to_owned(), header);
            return Ok(Model::of_plan(io, content));
        }
        import(path, &start).map(Model::of_network)
    }

    /// Reads an ONNX model, a plan, or a network as text from memory. External data of a model is looked for in `folder`; without
    /// one such data is an error.
    ///
    /// ```
    /// # let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/digits/lenet_a.onnx");
    /// let bytes = std::fs::read(file).expect("a model");
    /// let model = kiln::Model::from_bytes(bytes, None)?;
    /// assert_eq!(model.io_tensors()[0].name, "input");
    /// assert!(kiln::Model::from_bytes(vec![1, 2, 3], None).is_err());
    /// # Ok::<(), kiln::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Model::open`]; the file is named "the model in memory".
    pub fn from_bytes(bytes: Vec<u8>, folder: Option<&Path>) -> Result<Model, Error> {
        if bytes.starts_with(MAGIC) {
            return Ok(Plan::read(bytes)?.into());
        }
        import_bytes(bytes, folder, Path::new("the model in memory")).map(Model::of_network)
    }

    /// Inputs, then outputs.
    pub fn io_tensors(&self) -> &[IoTensor] {
        &self.io
    }

    /// The header of a plan; `None` for a network that is to be built.
    pub fn plan(&self) -> Option<&PlanHeader> {
        match &self.content {
            #[cfg(feature = "build")]
            Content::Graph(_) => None,
            Content::PlanFile(_, header) => Some(header),
            Content::Plan(plan) => Some(&plan.header),
        }
    }

    /// Changes and assumptions of the importer.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

#[cfg(not(feature = "build"))]
fn import(path: &Path, _: &[u8]) -> Result<Imported, Error> {
    Err(Error::NoPlan { path: path.to_owned() })
}

#[cfg(not(feature = "build"))]
fn import_bytes(_: Vec<u8>, _: Option<&Path>, name: &Path) -> Result<Imported, Error> {
    Err(Error::NoPlan { path: name.to_owned() })
}

impl From<Plan> for Model {
    fn from(plan: Plan) -> Model {
        let io = plan.header.io.clone();
        Model::of_plan(io, Content::Plan(Box::new(plan)))
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
