//! Instructions as they are executed.

use crate::types::{LANES, Lanes, Type};

/// Number of a register of a warp.
pub type Register = usize;

/// Operand that is read.
#[derive(Clone, Debug)]
pub enum Source {
    Register(Register),
    Constant(Box<Lanes>),
}

/// The value in all threads.
pub fn constant(value: u64) -> Source {
    Source::Constant(Box::new([value; LANES]))
}

/// Computation of each thread from its own registers.
pub type Compute = Box<dyn Fn([&Lanes; 4]) -> Lanes + Send + Sync>;

/// Place in memory: a base and a number of bytes behind it.
#[derive(Clone, Debug)]
pub struct Address {
    pub base: Source,
    pub offset: i64,
}

/// Part of memory that an instruction names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// The highest bits of the address name the part.
    Generic,
    Global,
    Shared,
    /// Shared memory of a block of the cluster, whose number is in the address.
    Cluster,
    Local,
    Param,
}

/// Change of a word in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Add,
    Min,
    Max,
    And,
    Or,
    Xor,
    Exchange,
    CompareExchange,
    Increment,
    Decrement,
}

/// Threads that a shuffle reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shuffle {
    Index,
    Butterfly,
    Up,
    Down,
}

/// Question to all threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vote {
    All,
    Any,
    Uniform,
    Ballot,
}

/// Type of the elements of a product's operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    F16,
    Bf16,
    Tf32,
    E4m3,
    E5m2,
    S8,
    U8,
}

/// Product of a warp from registers.
#[derive(Clone, Debug)]
pub struct Product {
    /// Bytes of a row of A.
    pub depth_bytes: usize,
    pub a_type: Element,
    pub b_type: Element,
    pub whole: bool,
    pub half_sums: bool,
    pub d: Vec<Register>,
    pub a: Vec<Source>,
    pub b: Vec<Source>,
    pub c: Vec<Source>,
    /// Places of the elements of A that are stored, and the threads that have them.
    pub sparse: Option<(Source, u64)>,
}

/// Operand A of a product of four warps.
#[derive(Clone, Debug)]
pub enum GroupOperand {
    Registers(Vec<Source>),
    Memory(Source),
}

/// Product of four warps with operands in shared memory.
#[derive(Clone, Debug)]
pub struct GroupProduct {
    pub a_type: Element,
    pub b_type: Element,
    pub whole: bool,
    pub half_sums: bool,
    pub d: Vec<Register>,
    pub a: GroupOperand,
    pub b: Source,
    /// Whether the sums so far count.
    pub keeps: Source,
    pub negative_a: bool,
    pub negative_b: bool,
    pub turned_a: bool,
    pub turned_b: bool,
    /// Places of the elements of A that are stored, and the threads that have them.
    pub sparse: Option<(Source, u64)>,
}

/// Copy of a box of a tensor into shared memory.
#[derive(Clone, Debug)]
pub struct BoxCopy {
    pub to: Source,
    pub map: Source,
    pub at: Vec<Source>,
    pub barrier: Source,
    /// Offsets of the window of a copy of windows.
    pub window: Vec<Source>,
    pub windows: bool,
    /// Whether a tensor in memory is written.
    pub stores: bool,
    /// Bits of the blocks of the cluster that get the box, at the same place; `None` for this block.
    pub blocks: Option<Source>,
}

/// Effect of an instruction.
pub enum Body {
    Compute {
        d: Register,
        s: Vec<Source>,
        f: Compute,
    },
    /// `fills` are the bits of a register, which signed values fill.
    Load {
        space: Space,
        of: Type,
        fills: u32,
        d: Vec<Option<Register>>,
        at: Address,
    },
    Store {
        space: Space,
        of: Type,
        s: Vec<Source>,
        at: Address,
    },
    Change {
        space: Space,
        of: Type,
        change: Change,
        d: Option<Register>,
        at: Address,
        s: Vec<Source>,
    },
    Branch {
        to: usize,
    },
    Return,
    Trap,
    /// Threads come to a barrier of the block, and wait there or not.
    Arrive {
        barrier: Source,
        threads: Option<Source>,
        waits: bool,
    },
    ClusterArrive,
    ClusterWait,
    /// Threads of the mask wait for each other.
    Together {
        mask: Source,
    },
    Shuffle {
        how: Shuffle,
        d: Register,
        found: Option<Register>,
        s: Vec<Source>,
    },
    Vote {
        how: Vote,
        negated: bool,
        d: Register,
        s: Source,
        mask: Source,
    },
    Reduce {
        of: Type,
        change: Change,
        d: Register,
        s: Source,
        mask: Source,
    },
    Match {
        d: Register,
        s: Source,
        mask: Source,
    },
    Elect {
        d: Register,
        mask: Source,
    },
    Active {
        d: Register,
    },
    LoadMatrices {
        d: Vec<Register>,
        at: Address,
        turned: bool,
    },
    StoreMatrices {
        s: Vec<Source>,
        at: Address,
        turned: bool,
    },
    Product(Box<Product>),
    GroupProduct(Box<GroupProduct>),
    /// Copy to shared memory of so many bytes, of which the last ones may be zeros.
    Copy {
        to: Address,
        from: Address,
        bytes: u64,
        read: Option<Source>,
    },
    CopyBox(Box<BoxCopy>),
    /// Copy of bytes in one piece, between these spaces.
    CopyBytes {
        to: Address,
        to_space: Space,
        from: Address,
        from_space: Space,
        bytes: Source,
        barrier: Option<Address>,
    },
    StoreRemote {
        of: Type,
        to: Address,
        s: Vec<Source>,
        barrier: Address,
    },
    BarrierInit {
        at: Address,
        count: Source,
    },
    BarrierArrive {
        at: Address,
        space: Space,
        count: Option<Source>,
        expected: Option<Source>,
    },
    BarrierExpect {
        at: Address,
        space: Space,
        bytes: Source,
    },
    BarrierTest {
        d: Register,
        at: Address,
        parity: Source,
    },
    /// Sets the value of a conditional node.
    Decide {
        handle: Source,
        value: Source,
    },
    Nothing,
}

/// Instruction with the predicate that it depends on.
pub struct Instruction {
    pub guard: Option<(Register, bool)>,
    pub body: Body,
    /// Its text, for messages.
    pub text: Box<str>,
}
