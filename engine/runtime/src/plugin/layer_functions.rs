//! The functions of layers of libraries, as the registry calls them.

use super::layer::LoadedLayer;
use super::native::LoadedNative;
use kiln_ir::attr::Attrs;
use kiln_ir::error::OpError;
use kiln_ir::tensor::Tensor;
use kiln_ir::ty::TensorType;
use kiln_ops::plugin::native::{NativeCall, NativeDevice, NativeRun};
use kiln_ops::plugin::record::{LayerFunctions, LayerRun};
use std::sync::Arc;

/// The functions of a layer of a library.
pub(super) struct Functions(pub(super) Arc<LoadedLayer>);

impl LayerFunctions for Functions {
    fn check(&self, fields: &Attrs) -> Result<(), OpError> {
        self.0.check(fields)
    }

    fn describe(&self, fields: &Attrs, inputs: &[TensorType]) -> Result<String, OpError> {
        self.0.describe(fields, inputs)
    }

    fn run(&self, run: &LayerRun<'_>) -> Result<Vec<Tensor>, OpError> {
        self.0.call(run)
    }

    fn attach(
        &self,
        fields: &Attrs,
        device: NativeDevice,
        tactic: &str,
        call: &NativeCall,
    ) -> Result<Box<dyn NativeRun>, OpError> {
        Ok(Box::new(LoadedNative::new(self.0.clone(), fields, device, tactic, call)?))
    }
}
