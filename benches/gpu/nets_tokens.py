"""Families of drawn networks over tokens: encoders, decoders, windows, mixers, experts."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from draw import Draw, family, ids, images


class Mlp(nn.Module):
    """Up, activation or gate, down."""

    def __init__(self, d: Draw, c, inner, bias=True):
        super().__init__()
        self.gated = d.pick("gated", False, False, True)
        self.fused = self.gated and d.pick("gate fused", True, False)
        self.up = nn.Linear(c, inner * (2 if self.fused else 1), bias)
        self.gate = nn.Linear(c, inner, bias) if self.gated and not self.fused else None
        self.act, self.down = d.token_act(), nn.Linear(inner, c, bias)

    def forward(self, x):
        if not self.gated:
            return self.down(self.act(self.up(x)))
        g, u = self.up(x).chunk(2, -1) if self.fused else (self.gate(x), self.up(x))
        return self.down(self.act(g) * u)


class Attention(nn.Module):
    """Heads in one of the ways that people write them."""

    def __init__(self, d: Draw, c, heads, bias=True, causal=False, context=None):
        super().__init__()
        self.heads, self.hd, self.causal = heads, c // heads, causal
        self.fused = context is None and d.pick("q, k, v", "one product", "three") == "one product"
        self.how = d.pick("attention", "sdpa", "sdpa", "products", "einsum")
        self.qkv = nn.Linear(c, 3 * c, bias) if self.fused else None
        self.q, self.k, self.v = (None,) * 3 if self.fused else (nn.Linear(c, c, bias), nn.Linear(context or c, c, bias), nn.Linear(context or c, c, bias))
        self.o = nn.Linear(c, c, bias)
        self.norm_heads = d.pick("norm of heads", False, False, True)
        self.nq, self.nk = (d.token_norm(self.hd), d.token_norm(self.hd)) if self.norm_heads else (None, None)

    def split(self, x):
        return x.view(x.shape[0], x.shape[1], self.heads, self.hd).transpose(1, 2)

    def forward(self, x, mask=None, context=None):
        b, t, c = x.shape
        if self.fused:
            q, k, v = self.qkv(x).view(b, t, 3, self.heads, self.hd).permute(2, 0, 3, 1, 4).unbind(0)
        else:
            z = x if context is None else context
            q, k, v = self.split(self.q(x)), self.split(self.k(z)), self.split(self.v(z))
        if self.norm_heads:
            q, k = self.nq(q), self.nk(k)
        y = attend(q, k, v, self.how, mask, self.causal)
        return self.o(y.transpose(1, 2).reshape(b, t, c))


def attend(q, k, v, how, mask=None, causal=False):
    if how == "sdpa":
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
    if how == "einsum":
        s = torch.einsum("bhid,bhjd->bhij", q, k) * q.shape[-1] ** -0.5
    else:
        s = torch.matmul(q, k.transpose(-1, -2)) / q.shape[-1] ** 0.5
    if causal:
        ahead = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).triu(1)
        s = s.masked_fill(ahead, float("-inf")) if how == "einsum" else torch.where(ahead, torch.full_like(s, -1e4), s)
    elif mask is not None:
        s = s + mask
    p = s.softmax(-1)
    return torch.einsum("bhij,bhjd->bhid", p, v) if how == "einsum" else p @ v


class Layer(nn.Module):
    """Attention and MLP with norms before, behind or parallel."""

    def __init__(self, d: Draw, c, heads, inner, causal=False, context=None):
        super().__init__()
        self.order = d.pick("norms", "before", "before", "behind", "parallel")
        bias = d.pick("biases", True, True, False)
        self.n1, self.n2, self.attention = d.token_norm(c), d.token_norm(c), Attention(d, c, heads, bias, causal)
        self.mlp = Mlp(d, c, inner, bias)
        self.cross, self.n3 = (Attention(d, c, heads, bias, False, context), d.token_norm(c)) if context else (None, None)

    def forward(self, x, mask=None, context=None):
        if self.order == "behind":
            x = self.n1(x + self.attention(x, mask))
            x = x if context is None else self.n3(x + self.cross(x, None, context))
            return self.n2(x + self.mlp(x))
        if self.order == "parallel":
            y = self.n1(x)
            x = x + self.attention(y, mask) + self.mlp(y)
        else:
            x = x + self.attention(self.n1(x), mask)
            x = x + self.mlp(self.n2(x))
        return x if context is None else x + self.cross(self.n3(x), None, context)


def shape(d, least=2, most=6, heads=(2, 3, 4, 6, 8, 12)):
    """Width, heads, inner width and layers."""
    n, hd = d.pick("heads", *heads), d.pick("head size", 32, 40, 48, 64, 64, 64, 80)
    c = n * hd
    return c, n, int(c * d.pick("inner / width", 2, 4, 4, 2.6667)) // 8 * 8, d.pick("layers", *range(least, most + 1))


class Patches(nn.Module):
    """Image tokens, a class token or means, layers, classes."""

    def __init__(self, d, size):
        super().__init__()
        c, heads, inner, n = shape(d)
        self.p = d.pick("patch", 8, 14, 16, 32)
        self.by = d.pick("patches by", "convolution", "reshape")
        self.embed = nn.Conv2d(3, c, self.p, self.p) if self.by == "convolution" else nn.Linear(3 * self.p ** 2, c)
        self.token = nn.Parameter(torch.randn(1, 1, c)) if d.pick("class token", True, False) else None
        self.place = nn.Parameter(torch.randn(1, (size // self.p) ** 2 + (self.token is not None), c) * 0.3)
        self.layers = nn.ModuleList(Layer(d, c, heads, inner) for _ in range(n))
        self.norm, self.out = d.token_norm(c), nn.Linear(c, d.choice((10, 100, 1000)))

    def forward(self, x):
        if self.by == "convolution":
            x = self.embed(x).flatten(2).transpose(1, 2)
        else:
            b, c, h, w = x.shape
            x = x.reshape(b, c, h // self.p, self.p, w // self.p, self.p).permute(0, 2, 4, 3, 5, 1).reshape(b, -1, self.p ** 2 * c)
            x = self.embed(x)
        if self.token is not None:
            x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), 1)
        x = x + self.place
        for f in self.layers:
            x = f(x)
        x = self.norm(x)
        return self.out(x[:, 0] if self.token is not None else x.mean(1))


@family(3, 14)
def patches(d, batch):
    size = d.pick("size", 112, 160, 224)
    m = Patches(d, size)
    size = size // m.p * m.p
    return m, (images(batch, 3, size, size),), False


class Encoder(nn.Module):
    """Embeddings of tokens, places and types, a mask, layers, a head for tokens or for the sequence."""

    def __init__(self, d, length):
        super().__init__()
        c, heads, inner, n = shape(d)
        vocab = d.pick("vocabulary", 1000, 8000, 21128)
        self.tokens, self.place = nn.Embedding(vocab, c), nn.Embedding(length, c)
        self.kinds = nn.Embedding(2, c) if d.pick("types", True, False) else None
        self.masked, self.norm = d.pick("mask", "none", "added", "truth"), d.token_norm(c)
        self.layers = nn.ModuleList(Layer(d, c, heads, inner) for _ in range(n))
        self.head = d.pick("head", "tokens", "pooled", "vocabulary")
        self.out = nn.Linear(c, {"tokens": 9, "pooled": c, "vocabulary": vocab}[self.head])

    def forward(self, x, mask=None):
        y = self.tokens(x) + self.place(torch.arange(x.shape[1], device=x.device))[None]
        if self.kinds is not None:
            y = y + self.kinds(torch.zeros_like(x))
        y = self.norm(y)
        m = None
        if self.masked != "none":
            m = (1.0 - mask[:, None, None].to(y.dtype)) * -1e4 if self.masked == "added" else mask[:, None, None] > 0
            if self.masked == "truth" and self.layers[0].attention.how != "sdpa":
                m = torch.where(m, 0.0, -1e4).to(y.dtype)
        for f in self.layers:
            y = f(y, m)
        return torch.tanh(self.out(y[:, 0])) if self.head == "pooled" else self.out(y)


@family(3, 14)
def encoder(d, batch):
    length = d.pick("length", 24, 64, 100, 128, 256, 384)
    m = Encoder(d, length)
    mask = torch.ones(batch, length, dtype=torch.int64)
    if m.masked != "none":
        mask[:, length * 3 // 4:] = torch.randint(0, 2, (batch, length - length * 3 // 4))
    return m, (ids(1000, batch, length),) + ((mask,) if m.masked != "none" else ()), False


class Decoder(nn.Module):
    """Rotary, grouped heads; a prompt, or one token behind a cache that is concatenated or written in place."""

    def __init__(self, d, length):
        super().__init__()
        c, self.heads, inner, n = shape(d, 2, 5)
        self.hd, self.kv = c // self.heads, self.heads // d.pick("queries a key", *[g for g in (1, 2, 3, 4, 8) if self.heads % g == 0])
        self.mode, self.turn = d.pick("mode", "prompt", "concat", "written"), d.pick("rotary", "halves", "halves", "pairs", "none")
        self.repeat, vocab = d.pick("repeat by", "expand", "repeat_interleave"), d.pick("vocabulary", 1000, 8000, 32000)
        self.embed, self.norm, self.length = nn.Embedding(vocab, c), d.token_norm(c), length
        self.how = d.pick("attention", "sdpa", "products")
        lin = lambda i, o: nn.Linear(i, o, False)
        self.layers = nn.ModuleList(nn.ModuleDict({"n1": d.token_norm(c), "n2": d.token_norm(c), "q": lin(c, c), "k": lin(c, self.kv * self.hd),
                                                   "v": lin(c, self.kv * self.hd), "o": lin(c, c), "m": Mlp(d, c, inner, False)}) for _ in range(n))
        self.head = lin(c, vocab)
        angle = torch.outer(torch.arange(length + 1).float(), 10000.0 ** (-torch.arange(0, self.hd, 2).float() / self.hd))
        self.register_buffer("cos", angle.cos(), False)
        self.register_buffer("sin", angle.sin(), False)

    def turned(self, x, at, n):
        c, s = self.cos[at:at + n], self.sin[at:at + n]
        if self.turn == "none":
            return x
        if self.turn == "pairs":
            a, b = x[..., 0::2], x[..., 1::2]
            return torch.stack((a * c - b * s, a * s + b * c), -1).flatten(-2)
        h = self.hd // 2
        c, s = torch.cat((c, c), -1), torch.cat((s, s), -1)
        return x * c + torch.cat((-x[..., h:], x[..., :h]), -1) * s

    def forward(self, tokens, *past):
        x, (b, t) = self.embed(tokens), tokens.shape
        at = {"prompt": 0, "concat": self.length, "written": self.length - 1}[self.mode]
        out = []
        for i, m in enumerate(self.layers):
            y = m["n1"](x)
            split = lambda z, n: z.view(b, t, n, self.hd).transpose(1, 2)
            q, k, v = split(m["q"](y), self.heads), split(m["k"](y), self.kv), split(m["v"](y), self.kv)
            q, k = self.turned(q, at, t), self.turned(k, at, t)
            if self.mode == "concat":
                k, v = torch.cat((past[2 * i], k), 2), torch.cat((past[2 * i + 1], v), 2)
            elif self.mode == "written":
                row = torch.full((1,), at, device=x.device, dtype=torch.int64)
                k, v = past[2 * i].index_copy(2, row, k), past[2 * i + 1].index_copy(2, row, v)
            out += [k, v]
            r = self.heads // self.kv
            if r > 1 and self.repeat == "expand":
                k, v = (z[:, :, None].expand(b, self.kv, r, z.shape[2], self.hd).reshape(b, self.heads, z.shape[2], self.hd) for z in (k, v))
            elif r > 1:
                k, v = k.repeat_interleave(r, 1), v.repeat_interleave(r, 1)
            a = attend(q, k, v, self.how, None, self.mode == "prompt")
            x = x + m["o"](a.transpose(1, 2).reshape(b, t, -1))
            x = x + m["m"](m["n2"](x))
        y = self.head(self.norm(x[:, -1:]))
        return (y, *out) if past else y


@family(4, 14)
def decoder(d, batch):
    length = d.pick("length", 64, 128, 300, 512, 1024)
    m = Decoder(d, length)
    t = length if m.mode == "prompt" else 1
    past = [] if m.mode == "prompt" else [torch.randn(batch, m.kv, length, m.hd) for _ in range(2 * len(m.layers))]
    return m, (ids(1000, batch, t), *past), False


class Windows(nn.Module):
    """Attention inside windows of an image, every other block shifted, with a bias by relative place and mask of the shift."""

    def __init__(self, d, c, heads, side, w, shift):
        super().__init__()
        self.heads, self.w, self.shift, self.n1, self.n2 = heads, w, shift, d.token_norm(c), d.token_norm(c)
        self.qkv, self.o, self.mlp = nn.Linear(c, 3 * c), nn.Linear(c, c), Mlp(d, c, 4 * c)
        self.grid = d.pick("parted", "windows", "windows", "grid") == "grid"
        self.table = nn.Parameter(torch.randn((2 * w - 1) ** 2, heads) * 0.5)
        at = torch.stack(torch.meshgrid(torch.arange(w), torch.arange(w), indexing="ij")).flatten(1)
        step = (at[:, :, None] - at[:, None]) + w - 1
        self.register_buffer("place", step[0] * (2 * w - 1) + step[1])
        if shift:
            part = torch.zeros(side, side)
            cuts = (slice(0, -w), slice(-w, -shift), slice(-shift, None))
            for n, (a, b) in enumerate((a, b) for a in cuts for b in cuts):
                part[a, b] = n
            p = part.view(side // w, w, side // w, w).transpose(1, 2).reshape(-1, w * w)
            self.register_buffer("mask", (p[:, None] != p[:, :, None]).float() * -100)

    def parts(self, x):
        b, h, w, c = x.shape
        if self.grid:
            return x.view(b, self.w, h // self.w, self.w, w // self.w, c).permute(0, 2, 4, 1, 3, 5).reshape(-1, self.w ** 2, c)
        return x.view(b, h // self.w, self.w, w // self.w, self.w, c).transpose(2, 3).reshape(-1, self.w ** 2, c)

    def whole(self, x, b, h, w):
        if self.grid:
            return x.view(b, h // self.w, w // self.w, self.w, self.w, -1).permute(0, 3, 1, 4, 2, 5).reshape(b, h, w, -1)
        return x.view(b, h // self.w, w // self.w, self.w, self.w, -1).transpose(2, 3).reshape(b, h, w, -1)

    def forward(self, x):
        b, h, w, c = x.shape
        y = self.n1(x)
        if self.shift:
            y = torch.roll(y, (-self.shift, -self.shift), (1, 2))
        y = self.parts(y)
        n, t, _ = y.shape
        q, k, v = self.qkv(y).view(n, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        s = (q * (c // self.heads) ** -0.5) @ k.transpose(-2, -1)
        s = s + self.table[self.place.flatten()].view(t, t, self.heads).permute(2, 0, 1)[None]
        if self.shift:
            s = (s.view(b, n // b, self.heads, t, t) + self.mask.to(s.dtype)[None, :, None]).view(n, self.heads, t, t)
        y = self.o((s.softmax(-1) @ v).transpose(1, 2).reshape(n, t, c))
        y = self.whole(y, b, h, w)
        if self.shift:
            y = torch.roll(y, (self.shift, self.shift), (1, 2))
        x = x + y
        return x + self.mlp(self.n2(x))


class Merge(nn.Module):
    """Four neighbours become one token of twice the width."""

    def __init__(self, d, c):
        super().__init__()
        self.norm, self.down = d.token_norm(4 * c), nn.Linear(4 * c, 2 * c, False)

    def forward(self, x):
        y = torch.cat((x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]), -1)
        return self.down(self.norm(y))


class Pixelwise(nn.Module):
    """Image to channels last and, at the end, to classes."""

    def __init__(self, stem, body, c):
        super().__init__()
        self.stem, self.body, self.norm, self.out = stem, body, nn.LayerNorm(c), nn.Linear(c, 100)

    def forward(self, x):
        return self.out(self.norm(self.body(self.stem(x).permute(0, 2, 3, 1))).mean((1, 2)))


@family(3, 14)
def windowed(d, batch):
    w, heads = d.pick("window", 4, 7, 8), d.pick("heads", 2, 3, 4)
    c, side, layers = heads * d.pick("head size", 16, 24, 32), w * 4, []
    stages = d.pick("stages", 1, 2)
    width = c
    for stage in range(stages):
        if stage:
            layers.append(Merge(d, width))
            width, side, heads = 2 * width, side // 2, 2 * heads
        for i in range(d.pick("pairs", 1, 2) * 2):
            grid = d.notes.get("parted") == "grid"
            layers.append(Windows(d, width, heads, side, w, w // 2 if i % 2 and not grid else 0))
    p = d.pick("patch", 2, 4)
    size = p * w * 4
    return Pixelwise(nn.Conv2d(3, c, p, p), nn.Sequential(*layers), width), (images(batch, 3, size, size),), False


class Mixer(nn.Module):
    """An MLP over places, then one over channels; or a gate over places."""

    def __init__(self, d, t, c):
        super().__init__()
        self.n1, self.n2, self.how = d.token_norm(c), d.token_norm(c), d.pick("mixing", "mlp", "gate", "pool", "fourier-like")
        self.places = Mlp(d, t, 2 * t) if self.how == "mlp" else nn.Linear(t, t)
        self.mlp = Mlp(d, c, 3 * c)

    def forward(self, x):
        y = self.n1(x)
        if self.how == "pool":
            y = F.avg_pool1d(y.transpose(1, 2), 3, 1, 1).transpose(1, 2) - y
        elif self.how == "gate":
            a, b = y.chunk(2, -1)
            y = torch.cat((a * self.places(b.transpose(1, 2)).transpose(1, 2), b), -1)
        else:
            y = self.places(y.transpose(1, 2)).transpose(1, 2)
        x = x + y
        return x + self.mlp(self.n2(x))


class Mean(nn.Module):
    """Means over tokens, and classes."""

    def __init__(self, c, n=100):
        super().__init__()
        self.out = nn.Linear(c, n)

    def forward(self, x):
        return self.out(x.mean(1))


class Tokens(nn.Module):
    """Patches of an image as tokens."""

    def __init__(self, c, p):
        super().__init__()
        self.embed = nn.Conv2d(3, c, p, p)

    def forward(self, x):
        return self.embed(x).flatten(2).permute(0, 2, 1)


@family(2, 14)
def mixer(d, batch):
    c, p, side = d.width(96, 512, 16), d.pick("patch", 8, 16), d.pick("side", 7, 8, 12, 14)
    c = c // 2 * 2
    layers = [Mixer(d, side * side, c) for _ in range(d.pick("layers", 2, 4, 6))]
    return nn.Sequential(Tokens(c, p), *layers, Mean(c)), (images(batch, 3, side * p, side * p),), False


class Experts(nn.Module):
    """A gate over experts, all computed: in a loop, as stacked products, or only the best by a mask."""

    def __init__(self, d, c, inner, n):
        super().__init__()
        self.how, self.k, self.gate = d.pick("experts", "loop", "stacked", "einsum"), d.pick("best", 1, 2, n), nn.Linear(c, n)
        self.act = d.token_act()
        if self.how == "loop":
            self.each = nn.ModuleList(nn.Sequential(nn.Linear(c, inner), d.token_act(), nn.Linear(inner, c)) for _ in range(n))
        else:
            self.up, self.down = nn.Parameter(torch.randn(n, c, inner) / c ** 0.5), nn.Parameter(torch.randn(n, inner, c) / inner ** 0.5)

    def forward(self, x):
        b, t, c = x.shape
        p = self.gate(x).softmax(-1)
        if self.k < p.shape[-1]:
            least = p.topk(self.k, -1)[0][..., -1:]
            p = torch.where(p >= least, p, torch.zeros_like(p))
            p = p / p.sum(-1, keepdim=True)
        if self.how == "loop":
            y = torch.stack([f(x) for f in self.each], -1)
            return (y * p[:, :, None]).sum(-1)
        if self.how == "stacked":
            y = self.act(x.reshape(1, b * t, c) @ self.up) @ self.down
            return (y * p.reshape(b * t, -1).t()[:, :, None]).sum(0).view(b, t, c)
        y = torch.einsum("btei,eic->btec", self.act(torch.einsum("btc,eci->btei", x, self.up)), self.down)
        return torch.einsum("btec,bte->btc", y, p)


@family(2, 14)
def experts(d, batch):
    c, heads, _, n = shape(d, 1, 3, (2, 4, 6))
    length = d.pick("length", 16, 64, 128)

    class Net(nn.Module):
        """Layers of attention and experts over embedded tokens."""

        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(1000, c)
            count = d.pick("count", 4, 6, 8)
            inner = d.width(64, 384, 32)
            self.layers = nn.ModuleList(nn.ModuleList((d.token_norm(c), Attention(d, c, heads), d.token_norm(c), Experts(d, c, inner, count)))
                                        for _ in range(n))
            self.out = Mean(c)

        def forward(self, x):
            x = self.tokens(x)
            for n1, a, n2, e in self.layers:
                x = x + a(n1(x))
                x = x + e(n2(x))
            return self.out(x)
    return Net(), (ids(1000, batch, length),), False


@family(2, 14)
def cross(d, batch):
    """A decoder that looks at an encoded text or picture."""
    c, heads, inner, n = shape(d, 1, 4)
    t, s, other = d.pick("length", 32, 100, 256), d.pick("context", 77, 49, 200), d.pick("context width", 96, 256, 512)

    class Net(nn.Module):
        """Queries that are learned or given, and layers with a context."""

        def __init__(self):
            super().__init__()
            self.queries = nn.Parameter(torch.randn(1, t, c)) if d.pick("queries", "learned", "given") == "learned" else None
            self.layers, self.out = nn.ModuleList(Layer(d, c, heads, inner, False, other) for _ in range(n)), nn.Linear(c, 92)
            self.box = nn.Sequential(nn.Linear(c, c), nn.ReLU(), nn.Linear(c, 4))

        def forward(self, context, *x):
            x = x[0] if x else self.queries.expand(context.shape[0], -1, -1)
            for f in self.layers:
                x = f(x, None, context)
            return torch.cat((self.out(x), self.box(x).sigmoid()), -1)
    m = Net()
    given = () if m.queries is not None else (torch.randn(batch, t, c),)
    return m, (torch.randn(batch, s, other), *given), False
