//! The context of passes, and the work that they share.

use super::Notes;
use super::folding::FoldWork;
use crate::BuildConfig;
use kiln_backend::{Backend, Target};

/// Constants larger than this, in bytes, are not evaluated in trials.
const TRIAL: u64 = 256 << 10;

/// Work of passes that counts for a whole build: the constants that they evaluate, and notes for the user. Trials have copies, which are
/// not kept.
#[derive(Clone, Debug)]
pub struct PassWork {
    /// The work that folding may do.
    pub folding: FoldWork,
    /// Notes of passes for the user.
    pub notes: Notes,
}

impl PassWork {
    /// The work of a build by these settings, of which nothing is done.
    pub fn new(config: &BuildConfig) -> PassWork {
        PassWork { folding: FoldWork::new(config.fold_budget), notes: Notes::default() }
    }
}

/// Context of passes: everything that they know beside the graph.
#[derive(Clone, Copy)]
pub struct PassCx<'a> {
    /// Settings of the build.
    pub config: &'a BuildConfig,
    /// Backend that will run the graph; asked whether it runs the layers that a pass wants to make.
    pub backend: &'a dyn Backend,
    /// Device that the graph will run on.
    pub target: &'a Target,
    /// Work that is shared by all passes of the build, or of the trial.
    pub work: &'a PassWork,
    /// Constants larger than this, in bytes, are not evaluated: in trials, which take them as constants nevertheless.
    pub evaluated: u64,
}

impl<'a> PassCx<'a> {
    /// The context of a build, whose passes evaluate constants of any size.
    pub fn new(
        config: &'a BuildConfig,
        backend: &'a dyn Backend,
        target: &'a Target,
        work: &'a PassWork,
    ) -> PassCx<'a> {
        PassCx { config, backend, target, work, evaluated: u64::MAX }
    }

    /// The context of a trial, whose work is a copy that is not kept. Large constants are not evaluated for it.
    pub(crate) fn trial<'b>(&self, work: &'b PassWork) -> PassCx<'b>
    where
        'a: 'b,
    {
        PassCx { work, evaluated: TRIAL, ..*self }
    }

    /// A copy of the context with other settings.
    pub(crate) fn with_config<'b>(&self, config: &'b BuildConfig) -> PassCx<'b>
    where
        'a: 'b,
    {
        PassCx { config, ..*self }
    }
}
