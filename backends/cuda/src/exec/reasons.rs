//! Why the host walks a step of control flow, and what may be done about it.

use kiln_backend::assisted::Reason;

const fn because(why: &'static str, advice: &'static str) -> Reason {
    Reason { why, advice }
}

pub const NO_NODES: Reason =
    because("the driver has no conditional nodes", "install a driver of CUDA 12.8 or later");
pub const BEHIND: Reason =
    because("a layer before it waits for the host, which starts all that follows", "see that layer");
pub const BESIDE: Reason = kiln_backend::assisted::BESIDE;
pub const SIZE_OUTSIDE: Reason = because(
    "a size of what it reads or gives is not known before the run",
    "bound it: iterations by a constant or an input, what iterations carry and branches give by equal sizes",
);
pub const SIZE_INSIDE: Reason = because(
    "a size inside is not known before the run",
    "let tensors inside keep their sizes: as large as they may become, with a count of what is filled",
);
pub const LAYER_INSIDE: Reason = kiln_backend::assisted::INSIDE;
pub const CALLED_INSIDE: Reason = kiln_backend::assisted::CALLED;
pub const ITERATIONS: Reason = because(
    "the number of iterations, which bounds what is read or stacked, is known on the device only",
    "make the number of iterations a constant or an input of the network, a condition may end them before",
);
pub const MORE_ITERATIONS: Reason =
    because("there are more iterations than elements", "make no more iterations than there are elements");
pub const STACKED_LENGTH: Reason = because(
    "the length of what is stacked is known on the device only",
    "bound the iterations, and stack forward along the first axis where a condition ends them",
);
pub const STACKED_SIZE: Reason =
    because("what is stacked changes its size", "stack values of one size, as many as the output is long");
pub const CARRIED_SIZE: Reason = because(
    "a carried value changes its size",
    "carry a tensor as large as it may become, with a count of what is filled",
);
pub const BOUND: Reason = because(
    "the bound of what is stacked is too large to be allocated",
    "bound the iterations closer: up to 256 MiB are allocated for iterations that may not be made",
);
pub const OUTPUT_LENGTH: Reason = because(
    "the length of an output is known on the device only",
    "make the length a constant or an input of the network",
);
pub const PACKED: Reason =
    because("elements of its tensors share bytes", "let it take and stack elements of at least a byte");
pub const LONG_ROWS: Reason =
    because("an iteration takes or stacks rows of 4 GiB and more", "make elements of iterations smaller");
pub const BRANCH_SHAPES: Reason = because(
    "a branch that may not be taken does not fit the shapes of the run",
    "let both branches fit all shapes",
);
pub const BRANCH_SIZE: Reason = because(
    "a branch gives another size than the run says",
    "let both branches give results of the same sizes",
);
pub const NO_CONDITION: Reason = because("it has no condition", "");
pub const WANTED_SIZE: Reason = because(
    "a size that is decided on the device is needed for what follows",
    "let both branches give results of the same sizes, or let only the caller read them",
);
pub const BOUND_MEMORY: Reason = because(
    "memory bound to an output is smaller than the largest that it may become",
    "bind as much as the bounds of the output's dimensions come to",
);
