//! Kernels with their launches, as a build knows them.

use crate::Kernel;
use crate::planner::{HostPlanner, operands};
use crate::site::Site;
use crate::tabulate::{BuildSite, tabulated};
use kiln_backend::launch::{KernelOperands, LaunchProgram};
use kiln_backend::{BackendError, CompiledKernel, ShapeRange, Tactic};
use kiln_ops::generate::random::is_fresh;

/// Launches of a region's kernel.
pub struct Planned {
    /// Its operands.
    pub operands: KernelOperands,
    /// Its launches, where they depend on nothing that only a run knows.
    pub launches: Option<LaunchProgram>,
    /// The code that plans them.
    pub planner: HostPlanner,
}

impl Planned {
    /// Plans the launches of a region's kernel as far as they are known in a build. `lanes`: see [`operands`]; `rounds`: see
    /// [`Cx::rounds`](crate::site::Cx::rounds).
    ///
    /// # Errors
    /// Where the region has `ranges` of shapes, and the launches cannot be known at all of them.
    pub fn of(
        kernel: &'static Kernel,
        site: &Site<'_>,
        tactic: &Tactic,
        lanes: Vec<u32>,
        rounds: usize,
        ranges: Option<&[ShapeRange]>,
    ) -> Result<Planned, BackendError> {
        let operands = operands(site, lanes)?;
        let planner = HostPlanner::new(kernel, site.dialect);
        let launches = match (site.anchor.is_some_and(|(_, n)| is_fresh(&n.op)), ranges) {
            // Each run draws from a key of its own.
            (true, None) => None,
            (true, Some(_)) => {
                let why = "each run draws from another key, which a plan cannot hold; set a seed";
                return Err(BackendError::Unsupported(why.into()));
            }
            (false, _) => {
                let results = site.anchor.map(|(_, n)| n.outputs.len()).unwrap_or(0);
                let at = BuildSite {
                    graph: site.graph,
                    nodes: site.graph.nodes().map(|(id, _)| id).collect(),
                    operands: &operands,
                    tactic,
                    wanted: (0..results).map(|j| site.wanted(j)).collect(),
                    rounds,
                    planner: &planner,
                };
                match (at.recorded(), ranges) {
                    (None, Some(ranges)) => Some(tabulated(&at, ranges)?),
                    (recorded, _) => recorded,
                }
            }
        };
        Ok(Planned { operands, launches, planner })
    }

    /// The compiled kernel with these operands and launches.
    pub fn store(self, compiled: CompiledKernel) -> CompiledKernel {
        let launch_code = Some(self.planner.dialect.launch_code.to_owned());
        CompiledKernel { operands: Some(self.operands), launches: self.launches, launch_code, ..compiled }
    }
}
