//! Models that are networks, and the networks of models.

use crate::Error;
use crate::model::{Content, Model};
use kiln_ir::Graph;
use kiln_network::Network;
use kiln_plan::{Plan, graph_io};

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
