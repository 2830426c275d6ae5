//! Support of networks by backends, layer by layer.

use super::{all_backends, digits};
use kiln::network::{ActivationKind, ElementwiseOp};
use kiln::{
    Backend, BackendError, Backends, BuildConfig, DType, Engine, EngineBuilder, Network, Target, TensorType,
};
use kiln_backend::{Device, Region, Tactic};
use std::sync::Arc;

/// A backend without softmax, which compiles nothing and opens no device.
struct Picky(Arc<dyn Backend>);

impl Backend for Picky {
    fn name(&self) -> &str {
        "picky"
    }

    fn targets(&self) -> Result<Vec<Target>, BackendError> {
        let own = |t: Target| Target { backend: "picky".into(), ..t };
        Ok(self.0.targets()?.into_iter().map(own).collect())
    }

    fn tactics(&self, region: &Region, target: &Target) -> Result<Vec<Tactic>, BackendError> {
        if region.graph.nodes().any(|(_, n)| n.op.name() == "softmax") {
            return Err(BackendError::Unsupported("softmax is too hard".into()));
        }
        self.0.tactics(region, target)
    }

    fn compile(&self, _: &Region, _: &Tactic, _: &Target) -> Result<Vec<u8>, BackendError> {
        panic!("a question compiles nothing")
    }

    fn open(&self, _: &Target) -> Result<Arc<dyn Device>, BackendError> {
        panic!("a question opens no device")
    }
}

fn picky() -> EngineBuilder {
    let mut backends = Backends::new();
    backends.register(Arc::new(Picky(all_backends().get(kiln::CPU).unwrap()))).unwrap();
    Engine::builder().backends(backends).backend("picky")
}

/// softmax(x + x), or in the branch of a conditional.
fn network(inside: bool) -> Network {
    let mut net = Network::new("net");
    let x = net.add_input("x", TensorType::new(DType::F32, [2, 3])).unwrap();
    let sum = net.add_elementwise(x, x, ElementwiseOp::Sum).unwrap().set_name("sum").unwrap();
    let mut y = sum.output(0).unwrap();
    if !inside {
        y = net.add_softmax(y).unwrap().set_name("soft").unwrap().output(0).unwrap();
    } else {
        let c = net.add_input("c", TensorType::new(DType::Bool, [0i64; 0])).unwrap();
        let choice = net.add_if_conditional().unwrap();
        net.set_condition(choice, c).unwrap();
        let i = net.add_if_input(choice, y).unwrap().output(0).unwrap();
        let soft = net.add_softmax(i).unwrap().set_name("soft").unwrap().output(0).unwrap();
        y = net.add_if_output(choice, soft, y).unwrap().output(0).unwrap();
    }
    let y = net.add_activation(y, ActivationKind::Relu).unwrap().set_name("last").unwrap().output(0).unwrap();
    net.mark_output(y, "y").unwrap();
    net
}

#[test]
fn layers_that_a_backend_refuses_are_named_with_the_reason() {
    for inside in [false, true] {
        let support = picky().network_support(&network(inside)).unwrap();
        assert_eq!(support.backend, "picky");
        let refused: Vec<_> = support.refused().map(|l| (l.layer.as_str(), l.refused.as_deref())).collect();
        let layer = if inside { "if.0 true / soft" } else { "soft" };
        assert_eq!(refused, [(layer, Some("softmax is too hard"))], "{:?}", support.layers);
        let names: Vec<&str> = support.layers.iter().map(|l| l.layer.as_str()).collect();
        assert!(["sum", "last"].iter().all(|n| names.contains(n)), "{names:?}");
        assert!(!picky().is_network_supported(&network(inside)).unwrap());
    }
    // The settings of the build that would follow change nothing.
    let config = BuildConfig { locked: true, ..BuildConfig::default() };
    assert!(!picky().config(config).is_network_supported(&network(false)).unwrap());
    assert!(picky().max_batch(2).network_support(&network(false)).is_err());
}

#[test]
fn every_backend_takes_a_trained_classifier() {
    let backends = all_backends();
    for name in backends.names() {
        let builder = Engine::builder().backends(backends.clone()).backend(name);
        let support = builder.network_support(digits("lenet_a.onnx").as_str()).unwrap();
        assert!(support.is_supported(), "{name}: {:?}", support.layers);
        assert!(support.layers.iter().any(|l| l.layer.contains("/conv1/Conv")), "{:?}", support.layers);
    }
}
