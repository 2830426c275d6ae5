"""Kinds of operators: functions from parameters to a module and its arguments in f32, on the processor."""
import torch
import torch.nn as nn
import torch.nn.functional as F

KINDS, TOUCHED = {}, {}
R = torch.randn


class Op(nn.Module):
    """A function of layers and tensors as a module."""

    def __init__(self, f, *layers):
        super().__init__()
        self.f, self.layers = f, nn.ModuleList(layers)

    def forward(self, *args):
        return self.f(*self.layers, *args)


class Stored(nn.Module):
    """A module whose first argument is stored with permuted axes."""

    def __init__(self, inner, perm):
        super().__init__()
        self.inner, self.perm = inner, perm

    def forward(self, x, *rest):
        return self.inner(x.permute(self.perm), *rest)


def kind(f):
    KINDS[f.__name__] = f
    return f


def touched(f):
    """The rule of the kind of the same name."""
    TOUCHED[f.__name__.removeprefix("of_")] = f
    return f


def laid_out(made, dtype, perm):
    """The module and its arguments with the type of elements, the first argument stored with permuted axes."""
    module, args = made
    integers = {"i32": torch.int32, "i64": torch.int64}.get(dtype)
    if integers:
        # Numbers of few digits, so that sums and products of them don't overflow.
        args = [(a * 8).round().to(integers) if a.is_floating_point() else a for a in args]
    if perm:
        module = Stored(module, perm)
        inverse = sorted(range(len(perm)), key=lambda i: perm[i])
        args = [args[0].permute(inverse).contiguous(), *args[1:]]
    return module.eval(), tuple(args)


def ids(n, *shape):
    return torch.randint(0, n, shape)


def rms(x):
    y = x.float()
    return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def rotated(x):
    half, n = x.shape[-1] // 2, x.shape[-2]
    place = torch.arange(n, device=x.device, dtype=torch.float32)[:, None]
    angle = place * torch.exp(-torch.arange(half, device=x.device) * (9.2 / half))
    c, s = (torch.cat((t, t), -1).to(x.dtype) for t in (angle.cos(), angle.sin()))
    return x * c + torch.cat((-x[..., half:], x[..., :half]), -1) * s


UNARY = {"gelu": F.gelu, "silu": F.silu, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "exp": lambda x: torch.exp(-x.abs()),
         "hardswish": F.hardswish, "mish": F.mish, "erf": torch.erf, "sqrt": lambda x: x.abs().sqrt(), "abs": torch.abs, "neg": torch.neg,
         "none": lambda x: x}
BINARY = {"add": torch.add, "mul": torch.mul, "sub": torch.sub, "max": torch.maximum, "less": torch.lt,
          "where": lambda x, y: torch.where(x > y, x, y * 2)}
REDUCE = {"sum": torch.sum, "mean": torch.mean, "amax": torch.amax, "amin": torch.amin,
          "norm": lambda x, d: torch.linalg.vector_norm(x, dim=d), "logsumexp": torch.logsumexp}


@kind
def softmax(shape, dim, log=False):
    f = torch.log_softmax if log else torch.softmax
    return Op(lambda x: f(x, dim)), (R(shape),)


@kind
def layer_norm(shape):
    return Op(lambda m, x: m(x), nn.LayerNorm(shape[-1])), (R(shape),)


@kind
def rms_norm(shape):
    return Op(rms), (R(shape),)


@kind
def group_norm(shape, groups, then="none"):
    return Op(lambda m, x: UNARY[then](m(x)), nn.GroupNorm(groups, shape[1])), (R(shape),)


@kind
def instance_norm(shape):
    layer = {3: nn.InstanceNorm1d, 4: nn.InstanceNorm2d, 5: nn.InstanceNorm3d}[len(shape)]
    return Op(lambda m, x: m(x), layer(shape[1], affine=True)), (R(shape),)


@kind
def unary(shape, f):
    return Op(UNARY[f]), (R(shape),)


@kind
def binary(shape, other, f):
    return Op(BINARY[f]), (R(shape), R(other))


@kind
def permuted(shape, perm):
    # Elements lie in the order of the result: an eager product of the view would keep theirs, and move none.
    return Op(lambda x: x.permute(perm).clone(memory_format=torch.contiguous_format)), (R(shape),)


@kind
def windows(shape, side):
    n, h, w, c = shape

    def parted(x):
        x = x.view(n, h // side, side, w // side, side, c).permute(0, 1, 3, 2, 4, 5)
        return x.reshape(-1, side * side, c) * 2
    return Op(parted), (R(shape),)


@kind
def roll(shape, by, dims):
    return Op(lambda x: torch.roll(x, by, dims)), (R(shape),)


@kind
def pixel_shuffle(shape, r):
    return Op(lambda x: F.pixel_shuffle(x, r)), (R(shape),)


@kind
def glu(shape, dim):
    return Op(lambda x: F.glu(x, dim)), (R(shape),)


@kind
def concat(shapes, dim):
    return Op(lambda *x: torch.cat(x, dim) * 2), tuple(R(s) for s in shapes)


@kind
def split(shape, dim, sizes):
    return Op(lambda x: tuple(y * 2 for y in x.split(sizes, dim))), (R(shape),)


@kind
def pad(shape, by, mode):
    return Op(lambda x: F.pad(x, by, mode=mode)), (R(shape),)


@kind
def rope(shape):
    return Op(rotated), (R(shape),)


@kind
def reduce(shape, dims, f):
    return Op(lambda x: REDUCE[f](x, dims)), (R(shape),)


@kind
def arg(shape, dim, f="argmax"):
    return Op(lambda x: getattr(torch, f)(x, dim)), (R(shape),)


@kind
def topk(shape, k, dim, largest=True):
    return Op(lambda x: x.topk(k, dim, largest)[0]), (R(shape),)


@kind
def sort(shape, dim, descending=False):
    return Op(lambda x: x.sort(dim, descending)[0]), (R(shape),)


@kind
def scan(shape, dim, f):
    return Op(lambda x: getattr(torch, f)(x, dim)), (R(shape),)


@kind
def embedding(rows, width, ids):  # pylint: disable=redefined-outer-name
    return Op(lambda m, i: m(i), nn.Embedding(rows, width)), (torch.randint(0, rows, ids),)


@touched
def of_embedding(rows, width, ids):  # pylint: disable=redefined-outer-name,unused-argument
    n = torch.Size(ids).numel()
    return n * (2 * width + 2)


@kind
def gather(shape, dim, count):
    at = list(shape)
    at[dim] = count
    return Op(lambda x, i: torch.gather(x, dim, i)), (R(shape), ids(shape[dim], *at))


@touched
def of_gather(shape, dim, count):
    n = torch.Size(shape).numel() // shape[dim] * count
    return 6 * n  # an index of eight bytes is four elements of two


@kind
def index_select(shape, dim, count):
    return Op(lambda x, i: x.index_select(dim, i)), (R(shape), ids(shape[dim], count))


@touched
def of_index_select(shape, dim, count):
    return 2 * torch.Size(shape).numel() // shape[dim] * count


@kind
def scatter_add(rows, width, count):
    at = ids(rows, count, 1).expand(-1, width).contiguous()
    return Op(lambda x, i, y: x.scatter_add(0, i, y)), (torch.zeros(rows, width), at, R(count, width))


@kind
def resize(shape, mode, factor=None, size=None, corners=None):
    corners = False if corners is None and mode in ("bilinear", "linear", "trilinear", "bicubic") else corners
    return Op(lambda x: F.interpolate(x, size=size, scale_factor=factor, mode=mode, align_corners=corners)), (R(shape),)


@kind
def grid_sample(shape, to, mode="bilinear", padding="zeros"):
    return Op(lambda x, g: F.grid_sample(x, g, mode, padding, False)), (R(shape), R(shape[0], *to, 2).clamp(-1, 1))


@kind
def pool(shape, kernel, stride, padding, f):
    call = getattr(F, f"{f}_pool{len(shape) - 2}d")
    return Op(lambda x: call(x, kernel, stride, padding)), (R(shape),)


@kind
def conv(shape, out, kernel, stride=1, padding=0, dilation=1, groups=1, transposed=False):  # pylint: disable=too-many-arguments
    layer = getattr(nn, f"Conv{'Transpose' if transposed else ''}{len(shape) - 2}d")
    layer = layer(shape[1], out, kernel, stride, padding, groups=groups, dilation=dilation)
    return Op(lambda m, x: m(x), layer), (R(shape),)


@kind
def einsum(form, a, b):
    return Op(lambda x, y: torch.einsum(form, x, y)), (R(a), R(b) / 8)


@kind
def matmul(a, b):
    return Op(torch.matmul), (R(a), R(b) / b[-2] ** 0.5)


@kind
def linear(shape, out, bias=False, then="none"):
    return Op(lambda m, x: UNARY[then](m(x)), nn.Linear(shape[-1], out, bias)), (R(shape),)


@kind
def swiglu(rows, width, inner):
    up = lambda: nn.Linear(width, inner, False)
    return Op(lambda g, u, d, x: d(F.silu(g(x)) * u(x)), up(), up(), nn.Linear(inner, width, False)), (R(rows, width),)


@kind
def recurrent(cell, steps, batch, width, hidden, both=False, layers=1):  # pylint: disable=too-many-arguments
    layer = getattr(nn, cell)(width, hidden, layers, bidirectional=both)
    return Op(lambda m, x: m(x)[0], layer), (R(steps, batch, width),)


@kind
def attention(batch, heads, rows, keys, depth, causal=False, bias=False, shared=1):  # pylint: disable=too-many-arguments
    q = R(batch, heads, rows, depth)
    k, v = (R(batch, heads // shared, keys, depth) for _ in range(2))

    def f(q, k, v, *b):
        if shared > 1:
            wide = lambda x: x[:, :, None].expand(-1, -1, shared, -1, -1).reshape(batch, heads, keys, depth)
            k, v = wide(k), wide(v)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=b[0] if b else None, is_causal=causal)
    return Op(f), (q, k, v) + ((R(1, heads, rows, keys),) if bias else ())
