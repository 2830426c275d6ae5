//! Builds for a part of a device: fewer multiprocessors, less memory.

use crate::{BuildConfig, BuildError};
use kiln_backend::{Program, Target};
use kiln_ir::ErrorCode;
use kiln_plan::SM_COUNT;

/// Makes a target as small as the settings say, after a check. Notes name what the target does not have.
///
/// # Errors
/// [`BuildError::Limit`] for none of something, or more than the device has.
pub(crate) fn apply(
    target: &mut Target,
    config: &mut BuildConfig,
    note: &mut dyn FnMut(String),
) -> Result<(), BuildError> {
    let limit = config.limit;
    let known = |n: u64| (n > 0).then_some(n);
    let has = [
        ("sms", limit.sms, target.numbers.get(SM_COUNT).copied()),
        ("memory", limit.memory, known(target.memory.total)),
    ];
    for (what, wanted, most) in has {
        let Some(wanted) = wanted else { continue };
        if wanted == 0 {
            return refuse(what, wanted, "nothing runs on none".into(), ErrorCode::InvalidArgument);
        }
        if let Some(most) = most.filter(|&most| wanted > most) {
            let message = format!("\"{}\" has {most}", target.device);
            return refuse(what, wanted, message, ErrorCode::UnsupportedState);
        }
    }
    match (limit.sms, target.numbers.contains_key(SM_COUNT)) {
        (Some(_), false) => note(format!(
            "backend {} counts no multiprocessors: the limit of sms has no effect",
            target.backend
        )),
        // The device cannot be told to leave multiprocessors out.
        (Some(sms), true) if !config.estimates && !config.locked => {
            config.estimates = true;
            note(format!(
                "kernels are chosen by the backend's model for {sms} multiprocessors: times would be those of the whole device"
            ));
        }
        _ => {}
    }
    limit.apply(target);
    Ok(())
}

/// Refuses a program that wants more memory than the limit: for weights and the activations of one context.
pub(crate) fn check_memory(program: &Program, config: &BuildConfig) -> Result<(), BuildError> {
    let Some(memory) = config.limit.memory else { return Ok(()) };
    let (weights, activations) = bytes(program);
    if weights.saturating_add(activations) <= memory {
        return Ok(());
    }
    let message = format!("weights have {weights} bytes, and the activations of a context {activations}");
    refuse("memory", memory, message, ErrorCode::FailedAllocation)
}

/// Bytes of weights and of activations, those of bodies of control flow included.
fn bytes(program: &Program) -> (u64, u64) {
    let weights = program.weights().map(|(_, t)| t.bytes().len() as u64).sum::<u64>();
    let bodies = program.steps.iter().flat_map(|s| &s.bodies).map(bytes);
    bodies.fold((weights, program.memory.arena), |(w, a), b| (w + b.0, a.saturating_add(b.1)))
}

fn refuse<T>(what: &'static str, limit: u64, message: String, code: ErrorCode) -> Result<T, BuildError> {
    Err(BuildError::Limit { what, limit, message, code })
}
