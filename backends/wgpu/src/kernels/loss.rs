//! Losses: sums by one workgroup.

use kiln_backend::{BackendError, Tactic};
use kiln_codegen::long::repeated;
use kiln_codegen::loss::{each, given, params};
use kiln_codegen::site::{Cx, Site};
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch, Views, plain};

pub const KERNELS: &[Kernel] = &[Kernel {
    name: "nll_loss",
    ops: &["nll_loss"],
    epilogue: true,
    views: Views::Whole,
    side_results: false,
    tactics: |_| plain("nll_loss"),
    source,
    launch,
}];

fn source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let code = given(site)?;
    if each(site.op()?)? {
        return Ok(Body::element("loss/nll_loss", "nll_loss").with(code));
    }
    let body = Body::of("loss/nll_loss", vec![Entry::blocks("nll_loss_all", 64)]).with(code);
    Ok(Body { scratch: true, ..body })
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let w = params(cx)?.words()?;
    if each(cx.op()?)? {
        return Ok(vec![Launch::map(0, w)]);
    }
    let count: usize = cx.shape(1)?.iter().product();
    let launch = Launch::map(0, w).on(Grid::Groups(1));
    // Rounds of 64 targets; the last launch sums up 64 threads.
    let all = repeated(cx, &launch, (count.div_ceil(64) + 64, 1), 64 * 12)?;
    let targets = |n: u32| (n as usize * 64).min(count) as u32;
    let cut = all.into_iter().map(|l| Launch { span: (targets(l.span.0), targets(l.span.1)), ..l });
    let mut out: Vec<Launch> = cut.filter(|l| l.span.0 < l.span.1).collect();
    if out.is_empty() {
        out.push(launch.scratch(16));
    }
    Ok(out)
}
