"""Families of drawn networks over sound, video, series, tables, points and graphs."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from draw import Draw, family, ids
from nets_tokens import Attention, Layer, Mlp, attend, shape


class Waves(nn.Module):
    """Sound to a spectrum of filters, a stack of dilated convolutions, masks, and back."""

    def __init__(self, d: Draw):
        super().__init__()
        c, k, inner = d.width(64, 320, 16), d.pick("filter", 16, 20, 32), d.width(64, 256, 16)
        self.first, self.last = nn.Conv1d(1, c, k, k // 2, bias=False), nn.ConvTranspose1d(c, 1, k, k // 2, bias=False)
        self.norm, self.down = nn.GroupNorm(1, c), nn.Conv1d(c, inner, 1)
        act = lambda: nn.PReLU() if d.pick("PReLU", True, False) else d.act()
        one = lambda i: nn.Sequential(nn.Conv1d(inner, 2 * inner, 1), act(), nn.GroupNorm(1, 2 * inner),
                                      nn.Conv1d(2 * inner, 2 * inner, 3, padding=2 ** i, dilation=2 ** i, groups=2 * inner), act(),
                                      nn.GroupNorm(1, 2 * inner), nn.Conv1d(2 * inner, inner, 1))
        self.layers, self.mask = nn.ModuleList(one(i) for _ in range(d.pick("stacks", 1, 2)) for i in range(d.pick("layers", 3, 5))), nn.Conv1d(inner, c, 1)

    def forward(self, x):
        x = self.first(x)
        y = self.down(self.norm(x))
        for f in self.layers:
            y = y + f(y)
        return self.last(x * torch.sigmoid(self.mask(y)))


@family(3)
def sound_masks(d, batch):
    return Waves(d), (torch.randn(batch, 1, d.pick("samples", 4000, 8000, 16000)),), False


class Vocoder(nn.Module):
    """A spectrum to sound: transposed convolutions, each with residual stacks of several dilations."""

    def __init__(self, d, bands):
        super().__init__()
        c = d.width(64, 192, 16)
        self.first, ups, stacks = nn.Conv1d(bands, c, 7, padding=3), [], []
        for r in d.pick("factors", (8, 4), (5, 4, 2), (8, 8)):
            ups.append(nn.ConvTranspose1d(c, c // 2, 2 * r, r, r // 2 + r % 2, output_padding=r % 2))
            c //= 2
            stacks.append(nn.ModuleList(nn.Conv1d(c, c, k, padding=k // 2 * n, dilation=n) for k in (3, 7) for n in (1, 3)))
        self.ups, self.stacks, self.last, self.slope = nn.ModuleList(ups), nn.ModuleList(stacks), nn.Conv1d(c, 1, 7, padding=3), d.choice((0.1, 0.2))

    def forward(self, x):
        x = self.first(x)
        for up, stack in zip(self.ups, self.stacks):
            x = up(F.leaky_relu(x, self.slope))
            for f in stack:
                x = x + f(F.leaky_relu(x, self.slope))
        return torch.tanh(self.last(F.leaky_relu(x, self.slope)))


@family(2)
def vocoder(d, batch):
    bands = d.pick("bands", 40, 80)
    return Vocoder(d, bands), (torch.randn(batch, bands, d.pick("frames", 50, 100, 200)),), False


class Conformer(nn.Module):
    """Half MLP, attention, a gated depthwise convolution, half MLP."""

    def __init__(self, d, c, heads, k):
        super().__init__()
        self.n = nn.ModuleList(d.token_norm(c) for _ in range(5))
        self.a, self.b, self.attention = Mlp(d, c, 4 * c), Mlp(d, c, 4 * c), Attention(d, c, heads)
        self.wide, self.dw, self.bn, self.narrow = nn.Conv1d(c, 2 * c, 1), nn.Conv1d(c, c, k, padding=k // 2, groups=c), nn.BatchNorm1d(c), nn.Conv1d(c, c, 1)

    def forward(self, x):
        x = x + 0.5 * self.a(self.n[0](x))
        x = x + self.attention(self.n[1](x))
        y = F.glu(self.wide(self.n[2](x).transpose(1, 2)), 1)
        x = x + self.narrow(F.silu(self.bn(self.dw(y)))).transpose(1, 2)
        return self.n[4](x + 0.5 * self.b(self.n[3](x)))


@family(2, 14)
def conformer(d, batch):
    c, heads, _, n = shape(d, 1, 3, (2, 4, 6))

    class Net(nn.Module):
        """Frames subsampled by two convolutions, then conformer layers."""

        def __init__(self):
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(1, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 32, 3, 2, 1), nn.ReLU())
            self.join = nn.Linear(32 * 20, c)
            k = d.pick("kernel", 15, 31)
            self.layers, self.out = nn.ModuleList(Conformer(d, c, heads, k) for _ in range(n)), nn.Linear(c, d.pick("classes", 40, 1000))

        def forward(self, x):
            y = self.stem(x[:, None])
            b, k, t, f = y.shape
            y = self.join(y.transpose(1, 2).reshape(b, t, k * f))
            for m in self.layers:
                y = m(y)
            return self.out(y).log_softmax(-1)
    return Net(), (torch.randn(batch, d.pick("frames", 100, 256, 400), 80),), False


class Speech(nn.Module):
    """Strided convolutions over samples, then an encoder: with a convolution as its places."""

    def __init__(self, d):
        super().__init__()
        c, heads, inner, n = shape(d, 1, 4, (2, 4, 8))
        w, self.norms = d.width(64, 256, 16), d.pick("norm of the front", "group", "layer", "none")
        k = ((10, 5), (3, 2), (3, 2), (2, 2))
        self.front = nn.ModuleList(nn.Conv1d(1 if i == 0 else w, w, a, b, bias=False) for i, (a, b) in enumerate(k))
        self.group, self.layer, self.into = nn.GroupNorm(w, w), nn.ModuleList(nn.LayerNorm(w) for _ in k), nn.Linear(w, c)
        self.place, self.layers, self.out = nn.Conv1d(c, c, 32, padding=16, groups=max(1, c // 48) if c % 48 == 0 else 8), \
            nn.ModuleList(Layer(d, c, heads, inner) for _ in range(n)), nn.Linear(c, 32)

    def forward(self, x):
        x = x[:, None]
        for i, f in enumerate(self.front):
            x = f(x)
            if self.norms == "group" and i == 0:
                x = self.group(x)
            elif self.norms == "layer":
                x = self.layer[i](x.transpose(1, 2)).transpose(1, 2)
            x = F.gelu(x)
        x = self.into(x.transpose(1, 2))
        x = x + F.gelu(self.place(x.transpose(1, 2))[..., :-1]).transpose(1, 2)
        for f in self.layers:
            x = f(x)
        return self.out(x)


@family(2, 14)
def speech(d, batch):
    return Speech(d), (torch.randn(batch, d.pick("samples", 4000, 10000, 16000)),), False


class Video(nn.Module):
    """3-D convolutions, whole or as a spatial and a temporal one, with residuals."""

    def __init__(self, d, c):
        super().__init__()
        how, self.stem = d.pick("convolution", "whole", "split", "depthwise"), nn.Sequential(nn.Conv3d(3, c, (3, 5, 5), (1, 2, 2), (1, 2, 2)), d.norm(c, 3), d.act())

        def conv(i, o, stride=1):
            if how == "whole":
                return nn.Conv3d(i, o, 3, stride, 1, bias=False)
            if how == "split":
                return nn.Sequential(nn.Conv3d(i, o, (1, 3, 3), (1, stride, stride), (0, 1, 1), bias=False), d.norm(o, 3), d.act(),
                                     nn.Conv3d(o, o, (3, 1, 1), (stride, 1, 1), (1, 0, 0), bias=False))
            return nn.Sequential(nn.Conv3d(i, i, 3, stride, 1, groups=i), nn.Conv3d(i, o, 1))
        self.blocks, self.skips = nn.ModuleList(), nn.ModuleList()
        for i in range(d.pick("blocks", 1, 2, 3)):
            o, stride = (c, 1) if i == 0 else (2 * c, 2)
            self.blocks.append(nn.Sequential(conv(c, o, stride), d.norm(o, 3), d.act(), conv(o, o), d.norm(o, 3)))
            self.skips.append(nn.Identity() if c == o else nn.Conv3d(c, o, 1, stride))
            c = o
        self.act, self.out = d.act(), nn.Linear(c, 400)

    def forward(self, x):
        x = self.stem(x)
        for f, s in zip(self.blocks, self.skips):
            x = self.act(f(x) + s(x))
        return self.out(x.mean((2, 3, 4)))


@family(3)
def video(d, batch):
    size = d.pick("size", 56, 80, 112)
    return Video(d, d.width(16, 40)), (torch.randn(min(batch, 4), 3, d.pick("frames", 4, 8), size, size),), False


class Volume(nn.Module):
    """U-Net over volumes."""

    def __init__(self, d, c):
        super().__init__()
        pair = lambda i, o: nn.Sequential(nn.Conv3d(i, o, 3, padding=1), d.norm(o, 3), d.act(), nn.Conv3d(o, o, 3, padding=1), d.norm(o, 3), d.act())
        self.a, self.b, self.c, self.out = pair(1, c), pair(c, 2 * c), pair(3 * c, c), nn.Conv3d(c, 3, 1)

    def forward(self, x):
        a = self.a(x)
        b = self.b(F.max_pool3d(a, 2))
        return self.out(self.c(torch.cat((F.interpolate(b, scale_factor=2.0, mode="trilinear", align_corners=False), a), 1)))


@family(1)
def volume(d, batch):
    side = d.pick("side", 24, 32, 48)
    return Volume(d, d.width(8, 24)), (torch.randn(min(batch, 2), 1, side, side, side),), False


class Recurrent(nn.Module):
    """Recurrent layers over features, embedded tokens or columns of an image."""

    def __init__(self, d):
        super().__init__()
        self.source, hidden = d.pick("source", "features", "tokens", "image"), d.pick("hidden", 64, 96, 128, 200, 256)
        both, cell = d.pick("directions", 1, 2) == 2, d.pick("cell", "LSTM", "GRU", "LSTM")
        self.embed = nn.Embedding(500, 64)
        self.columns = nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
                                     nn.MaxPool2d((4, 2)))
        width = {"features": 40, "tokens": 64, "image": 256}[self.source]
        self.rnn = getattr(nn, cell)(width, hidden, d.pick("layers", 1, 2), batch_first=True, bidirectional=both)
        self.last, self.out = d.pick("reads", "all", "last") == "last", nn.Linear(hidden * (2 if both else 1), d.choice((10, 37, 80)))

    def forward(self, x):
        if self.source == "tokens":
            x = self.embed(x)
        elif self.source == "image":
            x = self.columns(x).permute(0, 3, 1, 2).flatten(2)
        y = self.rnn(x)[0]
        return self.out(y[:, -1] if self.last else y)


@family(2)
def recurrent(d, batch):
    m, t = Recurrent(d), d.pick("steps", 20, 50, 100)
    x = {"features": lambda: torch.randn(batch, t, 40), "tokens": lambda: ids(500, batch, t), "image": lambda: torch.randn(batch, 1, 32, 4 * t)}[m.source]()
    return m, (x,), False


class Tables(nn.Module):
    """Recommendation: embeddings of many features, dense features, interactions, a tower."""

    def __init__(self, d):
        super().__init__()
        n, c, self.how = d.pick("tables", 8, 16, 26, 40), d.pick("width", 8, 16, 32, 64), d.pick("interaction", "products", "cross", "pairs", "concat")
        rows = [d.choice((100, 1000, 5000)) for _ in range(n)] if d.pick("sizes of tables", "equal", "different") == "different" else [1000] * n
        self.tables, self.rows, self.bottom = nn.ModuleList(nn.Embedding(r, c) for r in rows), rows, nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, c), nn.ReLU())
        self.per, self.stacked = d.pick("ids", "one", "one", "bag"), d.pick("read by", "columns", "one table") == "one table" and len(set(rows)) == 1
        flat = (n + 1) * c
        width = {"products": c + (n + 1) * n // 2, "cross": flat, "pairs": c + flat, "concat": flat}[self.how]
        self.cross = nn.ModuleList(nn.Linear(flat, flat) for _ in range(2)) if self.how == "cross" else None
        self.top = nn.Sequential(nn.Linear(width, 256), nn.ReLU(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 1))
        self.register_buffer("pairs", torch.triu_indices(n + 1, n + 1, 1), False)

    def forward(self, dense, at):
        x = self.bottom(dense)
        e = [t(at[:, i]) for i, t in enumerate(self.tables)]
        if self.per == "bag":
            e = [y.sum(1) for y in e]
        if self.how in ("products", "pairs"):
            z = torch.stack([x, *e], 1)
            if self.how == "products":
                s = z @ z.transpose(1, 2)
                y = torch.cat((x, s[:, self.pairs[0], self.pairs[1]]), 1)
            else:
                s = z.sum(1)
                y = torch.cat((0.5 * (s * s - (z * z).sum(1)), z.flatten(1)), 1)
        else:
            y = x0 = torch.cat([x, *e], 1)
            for f in self.cross or ():
                y = x0 * f(y) + y
        return torch.sigmoid(self.top(y))


@family(3)
def tables(d, batch):
    m, batch = Tables(d), batch * d.pick("rows", 16, 128, 512)
    at = [torch.randint(0, r, (batch,) if m.per == "one" else (batch, 5)) for r in m.rows]
    return m, (torch.randn(batch, 13), torch.stack(at, 1)), False


class Tasks(nn.Module):
    """Experts that several tasks share through gates of their own, and a tower each."""

    def __init__(self, d):
        super().__init__()
        i, e, c, n = d.width(32, 256), d.pick("experts", 4, 6, 8), d.width(32, 128), d.pick("tasks", 2, 3, 5)
        one = lambda a, b: nn.Sequential(nn.Linear(a, 2 * b), nn.ReLU(), nn.Linear(2 * b, b), nn.ReLU())
        self.experts, self.gates = nn.ModuleList(one(i, c) for _ in range(e)), nn.ModuleList(nn.Linear(i, e) for _ in range(n))
        self.towers, self.i = nn.ModuleList(nn.Sequential(nn.Linear(c, 32), nn.ReLU(), nn.Linear(32, 1)) for _ in range(n)), i

    def forward(self, x):
        y = torch.stack([f(x) for f in self.experts], 1)
        return torch.cat([t((g(x).softmax(-1)[:, :, None] * y).sum(1)) for g, t in zip(self.gates, self.towers)], -1)


@family(2)
def tasks(d, batch):
    m = Tasks(d)
    return m, (torch.randn(batch * d.pick("rows", 16, 128), m.i),), False


class Points(nn.Module):
    """Points through shared layers and the greatest over all, or over neighbours that are looked for."""

    def __init__(self, d):
        super().__init__()
        self.k, c = d.pick("neighbours", 0, 0, 8, 16), d.width(32, 96)
        unit = lambda i, o: nn.Sequential(nn.Conv1d(i, o, 1), nn.BatchNorm1d(o), d.act())
        edge = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 1), nn.BatchNorm2d(o), d.act())
        self.near = nn.Sequential(edge(6, c), edge(c, c)) if self.k else unit(3, c)
        self.wide, self.tower = nn.Sequential(unit(c, 2 * c), unit(2 * c, 4 * c)), nn.Sequential(unit(5 * c, 2 * c), nn.Conv1d(2 * c, 13, 1))

    def forward(self, x):
        y = x
        if self.k:
            square = (x * x).sum(1)
            far = square[:, :, None] + square[:, None] - 2 * x.transpose(1, 2) @ x
            at = far.topk(self.k, -1, largest=False)[1]
            b, c, n = x.shape
            near = torch.gather(x[:, :, None].expand(b, c, n, n), 3, at[:, None].expand(b, c, n, self.k))
            y = torch.cat((near - x[..., None], x[..., None].expand_as(near)), 1)
        y = self.near(y)
        y = y.amax(-1) if self.k else y
        g = self.wide(y).amax(2, keepdim=True)
        return self.tower(torch.cat((y, g.expand(-1, -1, y.shape[2])), 1))


@family(2)
def points(d, batch):
    return Points(d), (torch.randn(batch, 3, d.pick("points", 128, 256, 500, 1024)),), True


class Graph(nn.Module):
    """Messages along edges: gathered, computed, added at their targets; or products with an adjacency matrix."""

    def __init__(self, d):
        super().__init__()
        c, self.by, n = d.width(32, 128), d.pick("messages", "edges", "matrix"), d.pick("layers", 2, 3, 4)
        self.first, self.layers, self.out = nn.Linear(16, c), nn.ModuleList(), nn.Linear(c, 7)
        for _ in range(n):
            self.layers.append(nn.ModuleList((nn.Linear(c, c), nn.Linear(c, c), d.token_norm(c))))
        self.act = d.token_act()

    def forward(self, x, at):
        x = self.first(x)
        for own, other, norm in self.layers:
            y = other(x)
            if self.by == "edges":
                y = torch.zeros_like(x).scatter_add(0, at[1][:, None].expand(-1, x.shape[1]), self.act(y[at[0]]))
            else:
                y = at.to(x.dtype) @ y
            x = x + self.act(norm(own(x) + y))
        return self.out(x)


@family(2, 16)
def graph(d, batch):
    m, n = Graph(d), d.pick("nodes", 200, 1000, 2700)
    at = ids(n, 2, n * d.choice((3, 8))) if m.by == "edges" else (torch.rand(n, n) < 0.01).float() * 0.2
    return m, (torch.randn(n, 16), at), False


class Axes(nn.Module):
    """Attention along rows, then along columns, or over time and space in turn."""

    def __init__(self, d, c, heads):
        super().__init__()
        self.heads, self.how = heads, d.pick("attention", "einsum", "sdpa", "products")
        self.n, self.qkv, self.o, self.m, self.mlp = d.token_norm(c), nn.Linear(c, 3 * c), nn.Linear(c, c), d.token_norm(c), Mlp(d, c, 2 * c)

    def forward(self, x):
        b, r, t, c = x.shape
        q, k, v = (z.view(b, r, t, self.heads, -1) for z in self.qkv(self.n(x)).chunk(3, -1))
        if self.how == "einsum":
            s = torch.einsum("brihd,brjhd->brhij", q, k) * (c // self.heads) ** -0.5
            y = torch.einsum("brhij,brjhd->brihd", s.softmax(-1), v)
        else:
            q, k, v = (z.reshape(b * r, t, self.heads, -1).transpose(1, 2) for z in (q, k, v))
            y = attend(q, k, v, self.how).transpose(1, 2)
        x = x + self.o(y.reshape(b, r, t, c))
        return (x + self.mlp(self.m(x))).transpose(1, 2)


@family(2, 14)
def axial(d, batch):
    heads = d.pick("heads", 2, 4, 6)
    c, p, side = heads * d.pick("head size", 16, 32, 40), d.pick("patch", 4, 8), d.pick("side", 12, 16, 28)

    class Net(nn.Module):
        """An even number of layers, each along the other axis."""

        def __init__(self):
            super().__init__()
            self.stem, self.out = nn.Conv2d(3, c, p, p), nn.Linear(c, 100)
            self.layers = nn.ModuleList(Axes(d, c, heads) for _ in range(2 * d.pick("pairs", 1, 2)))

        def forward(self, x):
            x = self.stem(x).permute(0, 2, 3, 1)
            for f in self.layers:
                x = f(x)
            return self.out(x.mean((1, 2)))
    return Net(), (torch.randn(batch, 3, p * side, p * side),), False
