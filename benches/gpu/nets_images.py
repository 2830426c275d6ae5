"""Families of drawn networks over images: classification, dense prediction, detection, generation."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from draw import Draw, family, images


def unit(d: Draw, i, o, k=3, stride=1, groups=1, act=True, dilation=1):  # pylint: disable=too-many-arguments
    """Convolution, norm, activation."""
    layers = [nn.Conv2d(i, o, k, stride, dilation * (k // 2), dilation, groups, bias="batch" not in d.notes.get("norm", "batch")), d.norm(o)]
    return nn.Sequential(*layers, *([d.act()] if act else []))


class Squeeze(nn.Module):
    """Squeeze and excite, by convolutions or by linear layers."""

    def __init__(self, d, c):
        super().__init__()
        inner, self.linear = max(4, c // d.choice((4, 8, 16))), d.pick("squeeze by", "convolutions", "linear layers") != "convolutions"
        layer = nn.Linear if self.linear else lambda i, o: nn.Conv2d(i, o, 1)
        self.down, self.up, self.act = layer(c, inner), layer(inner, c), d.act()
        self.gate = d.choice((torch.sigmoid, F.hardsigmoid))

    def forward(self, x):
        y = x.mean((2, 3), keepdim=not self.linear)
        y = self.gate(self.up(self.act(self.down(y))))
        return x * (y[:, :, None, None] if self.linear else y)


class Residual(nn.Module):
    """f(x) plus x or a projection of it, an activation behind the sum if there is one."""

    def __init__(self, f, skip=None, act=None, scale=None):
        super().__init__()
        self.f, self.skip, self.act = f, skip or nn.Identity(), act or nn.Identity()
        self.scale = nn.Parameter(torch.full((scale, 1, 1), 0.5)) if scale else None

    def forward(self, x):
        y = self.f(x)
        return self.act(self.skip(x) + (y if self.scale is None else y * self.scale))


class Shuffle(nn.Module):
    """Channels of groups interleaved."""

    def __init__(self, groups):
        super().__init__()
        self.groups = groups

    def forward(self, x):
        b, c, h, w = x.shape
        return x.view(b, self.groups, c // self.groups, h, w).transpose(1, 2).reshape(b, c, h, w)


class Head(nn.Module):
    """Means over pixels, and classes."""

    def __init__(self, d, c):
        super().__init__()
        self.how = d.pick("pooling", "mean", "adaptive", "max and mean")
        self.out = nn.Linear(c * (2 if "max" in self.how else 1), d.choice((10, 100, 365, 1000)))

    def forward(self, x):
        if self.how == "mean":
            return self.out(x.mean((2, 3)))
        y = F.adaptive_avg_pool2d(x, 1).flatten(1)
        return self.out(y if self.how == "adaptive" else torch.cat((x.amax((2, 3)), y), 1))


def stem(d, c):
    how = d.pick("stem", "7x7 and pool", "3x3", "three 3x3", "4x4 patches")
    if how == "7x7 and pool":
        return nn.Sequential(unit(d, 3, c, 7, 2), nn.MaxPool2d(3, 2, 1)), 4
    if how == "3x3":
        return unit(d, 3, c, 3, 2), 2
    if how == "three 3x3":
        return nn.Sequential(unit(d, 3, c // 2 or 1, 3, 2), unit(d, c // 2 or 1, c // 2 or 1), unit(d, c // 2 or 1, c, 3, 2)), 4
    return nn.Sequential(nn.Conv2d(3, c, 4, 4), d.norm(c)), 4


@family(3)
def residual(d, batch):
    groups = d.pick("width of a group", None, None, 4, 8, 16, 24)
    bottleneck, before, squeeze = d.pick("bottleneck", True, False), d.pick("norm first", True, False, False), d.pick("squeeze", False, True)
    widths = [d.width(32, 96)]
    c = widths[0] if not groups else max(groups, widths[0] // groups * groups)
    first, scale = stem(d, c)
    layers, out = [first], c

    def block(i, o, stride):
        inner = o // 2 if bottleneck else o
        n = 1
        if groups:
            inner = max(groups, inner // groups * groups)
            n = inner // groups
        f = [unit(d, i, inner, 1), unit(d, inner, inner, 3, stride, n), *([Squeeze(d, inner)] if squeeze else []), unit(d, inner, o, 1, act=False)]
        if not bottleneck:
            f = [unit(d, i, inner, 3, stride, 1), *([Squeeze(d, inner)] if squeeze else []), unit(d, inner, o, 3, 1, n, act=False)]
        if before:
            f = [d.norm(i), d.act(), *f]
        skip = None
        if i != o or stride > 1:
            skip = unit(d, i, o, 1, stride, act=False) if d.random() < 0.7 else nn.Sequential(nn.AvgPool2d(stride), nn.Conv2d(i, o, 1))
        return Residual(nn.Sequential(*f), skip, None if before else d.act())
    for stage in range(d.pick("stages", 2, 3, 4)):
        o = out if stage == 0 else out * 2
        for i in range(d.randint(1, 3)):
            layers.append(block(out, o, 2 if i == 0 and stage else 1))
            out = o
    size = d.pick("size", 96, 128, 160, 224)
    return nn.Sequential(*layers, Head(d, out)), (images(batch, 3, size, size),), True


@family(3)
def inverted(d, batch):
    c = d.width(16, 32)
    layers, squeeze, k = [unit(d, 3, c, 3, 2)], d.pick("squeeze", True, False), d.pick("kernel", 3, 3, 5, 7)
    for stage in range(d.pick("stages", 3, 4, 5)):
        o = d.width(c, c * 2)
        for i in range(d.randint(1, 3)):
            stride = 2 if i == 0 and stage < 4 else 1
            inner = c * d.choice((2, 3, 4, 6))
            f = [unit(d, c, inner, 1), unit(d, inner, inner, k, stride, inner), *([Squeeze(d, inner)] if squeeze else []),
                 unit(d, inner, o, 1, act=False)]
            f = nn.Sequential(*f)
            layers.append(Residual(f) if stride == 1 and c == o else f)
            c = o
    size = d.pick("size", 128, 192, 224, 240)
    return nn.Sequential(*layers, unit(d, c, 4 * c, 1), Head(d, 4 * c)), (images(batch, 3, size, size),), True


class Dense(nn.Module):
    """Each layer sees the results of all before it."""

    def __init__(self, d, c, growth, n):
        super().__init__()
        make = lambda i: nn.Sequential(d.norm(i), d.act(), nn.Conv2d(i, 4 * growth, 1), d.norm(4 * growth), d.act(),
                                       nn.Conv2d(4 * growth, growth, 3, padding=1))
        self.layers = nn.ModuleList(make(c + i * growth) for i in range(n))

    def forward(self, x):
        seen = [x]
        for f in self.layers:
            seen.append(f(torch.cat(seen, 1)))
        return torch.cat(seen, 1)


@family(2)
def dense(d, batch):
    growth, c = d.pick("growth", 12, 16, 24, 32), d.width(24, 64)
    layers = [unit(d, 3, c, 3, 2)]
    for _ in range(d.pick("stages", 2, 3)):
        n = d.randint(3, 6)
        layers.append(Dense(d, c, growth, n))
        c += n * growth
        layers += [d.norm(c), d.act(), nn.Conv2d(c, c // 2, 1), nn.AvgPool2d(2)]
        c //= 2
    size = d.pick("size", 96, 128, 224)
    return nn.Sequential(*layers, Head(d, c)), (images(batch, 3, size, size),), True


class Branches(nn.Module):
    """Branches of one input, concatenated or added."""

    def __init__(self, parts, added=False):
        super().__init__()
        self.parts, self.added = nn.ModuleList(parts), added

    def forward(self, x):
        y = [f(x) for f in self.parts]
        return sum(y[1:], y[0]) if self.added else torch.cat(y, 1)


@family(3)
def inception(d, batch):
    c = d.width(32, 96)
    layers, same = [unit(d, 3, c, 3, 2), nn.MaxPool2d(3, 2, 1)], d.pick("branches of one width", True, False)
    for _ in range(d.pick("blocks", 2, 3, 4)):
        w = lambda base=d.width(16, 96): base if same else d.width(16, 96)
        a, b, e, f, g = w(), w(), w(), w(), w()
        parts = [unit(d, c, a, 1), nn.Sequential(unit(d, c, b, 1), unit(d, b, b, 3)),
                 nn.Sequential(unit(d, c, e, 1), unit(d, e, e, 3), unit(d, e, e, 3)), nn.Sequential(nn.AvgPool2d(3, 1, 1), unit(d, c, f, 1))]
        long = nn.Sequential(nn.Conv2d(c, g, (1, 7), padding=(0, 3)), nn.Conv2d(g, g, (7, 1), padding=(3, 0)), d.norm(g), d.act())
        if d.random() < 0.5:
            parts, f = parts[:3] + [long], g
        layers.append(Branches(parts))
        c = a + b + e + f
        if d.random() < 0.4:
            layers.append(nn.MaxPool2d(2))
    size = d.pick("size", 128, 192, 299)
    return nn.Sequential(*layers, Head(d, c)), (images(batch, 3, size, size),), True


class Unet(nn.Module):
    """Encoder and decoder with skips."""

    def __init__(self, d, c, depth):
        super().__init__()
        self.join, self.up = d.pick("skip", "concat", "concat", "add"), d.pick("up", "transposed", "bilinear", "nearest", "shuffle")
        pair = lambda i, o: nn.Sequential(unit(d, i, o), unit(d, o, o))
        w = [c * 2 ** i for i in range(depth + 1)]
        self.stem, self.down = pair(3, c), nn.ModuleList(pair(w[i], w[i + 1]) for i in range(depth))
        ups = {"transposed": lambda i, o: nn.ConvTranspose2d(i, o, 2, 2), "shuffle": lambda i, o: nn.Sequential(nn.Conv2d(i, 4 * o, 1), nn.PixelShuffle(2)),
               "bilinear": lambda i, o: nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False), nn.Conv2d(i, o, 1)),
               "nearest": lambda i, o: nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(i, o, 3, padding=1))}
        self.ups = nn.ModuleList(ups[self.up](w[i + 1], w[i]) for i in reversed(range(depth)))
        self.merge = nn.ModuleList(pair(w[i] * (2 if self.join == "concat" else 1), w[i]) for i in reversed(range(depth)))
        self.out = nn.Conv2d(c, d.choice((1, 2, 21)), 1)
        self.pool = nn.AvgPool2d(2) if d.pick("down", "max", "mean") == "mean" else nn.MaxPool2d(2)

    def forward(self, x):
        x = self.stem(x)
        skips = []
        for f in self.down:
            skips.append(x)
            x = f(self.pool(x))
        for up, f in zip(self.ups, self.merge):
            x, s = up(x), skips.pop()
            x = f(torch.cat((s, x), 1) if self.join == "concat" else s + x)
        return torch.sigmoid(self.out(x))


@family(3)
def unet(d, batch):
    size = d.pick("size", 96, 128, 192, 256)
    return Unet(d, d.width(16, 48), d.pick("depth", 2, 3, 4)), (images(batch, 3, size, size),), True


class Wide(nn.Module):
    """Depthwise convolution, norm, and an MLP over channels last."""

    def __init__(self, d, c, k):
        super().__init__()
        self.dw, self.norm = nn.Conv2d(c, c, k, padding=k // 2, groups=c), nn.LayerNorm(c)
        self.up, self.act, self.down = nn.Linear(c, 4 * c), d.token_act(), nn.Linear(4 * c, c)
        self.gamma = nn.Parameter(torch.full((c,), 0.4)) if d.pick("layer scale", True, False) else None

    def forward(self, x):
        y = self.down(self.act(self.up(self.norm(self.dw(x).permute(0, 2, 3, 1)))))
        y = y if self.gamma is None else self.gamma * y
        return x + y.permute(0, 3, 1, 2)


@family(2)
def convnext(d, batch):
    c, k = d.width(32, 96), d.pick("kernel", 7, 7, 5, 9)
    from draw import ChannelNorm
    layers = [nn.Conv2d(3, c, 4, 4), ChannelNorm(c)]
    for stage in range(d.pick("stages", 2, 3, 4)):
        if stage:
            layers += [ChannelNorm(c), nn.Conv2d(c, 2 * c, 2, 2)]
            c *= 2
        layers += [Wide(d, c, k) for _ in range(d.randint(1, 3))]
    size = d.pick("size", 128, 192, 224)
    return nn.Sequential(*layers, Head(d, c)), (images(batch, 3, size, size),), True


@family(1)
def shuffled(d, batch):
    groups = d.pick("groups", 2, 3, 4, 8)
    c = groups * d.randint(8, 24)
    layers = [unit(d, 3, c, 3, 2), nn.MaxPool2d(3, 2, 1)]
    for _ in range(d.pick("blocks", 2, 4, 6)):
        f = nn.Sequential(unit(d, c, c, 1, 1, groups), Shuffle(groups), unit(d, c, c, 3, 1, c, act=False), unit(d, c, c, 1, 1, groups, act=False))
        layers.append(Residual(f, act=d.act()))
    return nn.Sequential(*layers, Head(d, c)), (images(batch, 3, 160, 160),), True


class Pyramid(nn.Module):
    """Detection: a backbone, a feature pyramid, towers for classes and boxes at each level, boxes decoded from a grid."""

    def __init__(self, d, c, levels):
        super().__init__()
        self.shared, classes, self.side = d.pick("heads", "shared", "one a level") == "shared", d.choice((1, 20, 80)), 4
        w = [c * 2 ** i for i in range(levels)]
        self.stem = nn.Sequential(unit(d, 3, c, 3, 2), unit(d, c, c, 3, 2))
        self.stages = nn.ModuleList(nn.Sequential(unit(d, w[max(0, i - 1)], w[i], 3, 2), unit(d, w[i], w[i])) for i in range(levels))
        f = d.width(32, 96)
        self.lateral = nn.ModuleList(nn.Conv2d(x, f, 1) for x in w)
        self.smooth = nn.ModuleList(unit(d, f, f) for _ in w)
        n = d.pick("depth of a head", 1, 2, 3)
        tower = lambda o: nn.Sequential(*[unit(d, f, f) for _ in range(n)], nn.Conv2d(f, o, 3, padding=1))
        count = 1 if self.shared else levels
        self.classes, self.boxes = nn.ModuleList(tower(classes) for _ in range(count)), nn.ModuleList(tower(4) for _ in range(count))
        self.kept = d.pick("kept", None, None, 100)

    def forward(self, x):
        x, maps = self.stem(x), []
        for f in self.stages:
            x = f(x)
            maps.append(x)
        maps = [f(m) for f, m in zip(self.lateral, maps)]
        for i in reversed(range(len(maps) - 1)):
            maps[i] = maps[i] + F.interpolate(maps[i + 1], scale_factor=2.0, mode="nearest")
        maps = [f(m) for f, m in zip(self.smooth, maps)]
        at = (lambda i: 0) if self.shared else (lambda i: i)
        flat = lambda y: y.flatten(2).transpose(1, 2)
        scores = torch.cat([flat(self.classes[at(i)](m)) for i, m in enumerate(maps)], 1).sigmoid()
        boxes = []
        for i, m in enumerate(maps):
            y, step = flat(self.boxes[at(i)](m)), 8 * 2 ** i
            h, w = m.shape[2:]
            gy, gx = torch.meshgrid(torch.arange(h, device=x.device), torch.arange(w, device=x.device), indexing="ij")
            grid = torch.stack((gx, gy), -1).reshape(1, h * w, 2).to(x.dtype)
            boxes.append(torch.cat(((y[..., :2].sigmoid() + grid) * step / 64, y[..., 2:].clamp(-3, 3).exp()), -1))
        boxes = torch.cat(boxes, 1)
        if not self.kept:
            return torch.cat((scores, boxes), -1)
        best, at = scores.amax(-1).topk(self.kept, 1)
        return best, torch.gather(boxes, 1, at[..., None].expand(-1, -1, 4))


@family(3)
def detection(d, batch):
    size = d.pick("size", 128, 192, 256, 320)
    return Pyramid(d, d.width(16, 40), d.pick("levels", 2, 3)), (images(batch, 3, size, size),), True


class Atrous(nn.Module):
    """Segmentation: dilated branches, means over the image, classes resized to the input."""

    def __init__(self, d, c):
        super().__init__()
        self.stem, self.body = stem(d, c)[0], nn.Sequential(unit(d, c, 2 * c, 3, 2), unit(d, 2 * c, 2 * c, 3, dilation=2))
        f = d.width(32, 96)
        self.parts = nn.ModuleList([unit(d, 2 * c, f, 1), *[unit(d, 2 * c, f, 3, dilation=x) for x in d.pick("dilations", (2, 4), (3, 6, 9), (6, 12, 18))]])
        self.mean, self.join = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(2 * c, f, 1), d.act()), unit(d, f * (len(self.parts) + 1), f, 1)
        self.out, self.corners = nn.Conv2d(f, d.choice((5, 19, 21, 150)), 1), d.pick("corners aligned", False, True)

    def forward(self, x):
        y = self.body(self.stem(x))
        m = self.mean(y).expand(-1, -1, *y.shape[2:])
        y = self.out(self.join(torch.cat([f(y) for f in self.parts] + [m], 1)))
        return F.interpolate(y, size=x.shape[2:], mode="bilinear", align_corners=self.corners)


@family(2)
def segmentation(d, batch):
    size = d.pick("size", 129, 192, 256)
    return Atrous(d, d.width(24, 64)), (images(batch, 3, size, size),), True


class Super(nn.Module):
    """Super-resolution: residual blocks without norms, dense or plain, and pixel shuffles."""

    def __init__(self, d, c, n, r):
        super().__init__()
        self.first = nn.Conv2d(3, c, 3, padding=1)
        one = lambda: nn.Sequential(nn.Conv2d(c, c, 3, padding=1), d.act(), nn.Conv2d(c, c, 3, padding=1))
        self.blocks = nn.Sequential(*[Residual(one(), scale=c) for _ in range(n)])
        self.up, self.r = nn.Sequential(nn.Conv2d(c, 3 * r * r, 3, padding=1), nn.PixelShuffle(r)), r

    def forward(self, x):
        y = self.first(x)
        return self.up(y + self.blocks(y)) + F.interpolate(x, scale_factor=float(self.r), mode="bicubic", align_corners=False)


@family(2)
def super_resolution(d, batch):
    size = d.pick("size", 48, 64, 96, 120)
    return Super(d, d.width(24, 64), d.pick("blocks", 2, 4, 6), d.pick("factor", 2, 3, 4)), (images(batch, 3, size, size),), True


class Pixels(nn.Module):
    """Image decoder of group norms, SiLU and upsampling, with attention over pixels, steered by a time or a text if there is one."""

    def __init__(self, d, widths):
        super().__init__()
        w = widths[0]
        self.stem, self.heads = nn.Conv2d(4, w, 3, padding=1), d.pick("heads", 1, 1, 4)
        self.norm, self.qkv, self.o = self.group(w), nn.Conv2d(w, 3 * w, 1), nn.Conv2d(w, w, 1)
        self.time = nn.Sequential(nn.Linear(64, 128), nn.SiLU(), nn.Linear(128, 128)) if d.pick("time", True, False) else None
        blocks = []
        for o in widths:
            blocks.append(nn.ModuleDict({"n1": self.group(w), "c1": nn.Conv2d(w, o, 3, padding=1), "n2": self.group(o), "c2": nn.Conv2d(o, o, 3, padding=1),
                                         "s": nn.Conv2d(w, o, 1), "u": nn.Conv2d(o, o, 3, padding=1), **({"t": nn.Linear(128, 2 * o)} if self.time else {})}))
            w = o
        self.blocks, self.last, self.out = nn.ModuleList(blocks), self.group(w), nn.Conv2d(w, 3, 3, padding=1)

    @staticmethod
    def group(c):
        return nn.GroupNorm(max(g for g in (4, 8, 16, 32) if c % g == 0), c)

    def forward(self, x, *time):
        x = self.stem(x)
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, 3, self.heads, c // self.heads, h * w).transpose(3, 4).unbind(1)
        y = F.scaled_dot_product_attention(q, k, v).transpose(2, 3).reshape(b, c, h, w)
        x = x + self.o(y)
        t = None
        if self.time:
            f = torch.exp(torch.arange(32, device=x.device) * -0.2878)
            angle = time[0].float()[:, None] * f
            t = self.time(torch.cat((angle.sin(), angle.cos()), -1).to(x.dtype))
        for m in self.blocks:
            y = m["n2"](m["c1"](F.silu(m["n1"](x))))
            if t is not None:
                scale, shift = m["t"](F.silu(t))[:, :, None, None].chunk(2, 1)
                y = y * (1 + scale) + shift
            x = m["s"](x) + m["c2"](F.silu(y))
            x = m["u"](F.interpolate(x, scale_factor=2.0, mode="nearest"))
        return self.out(F.silu(self.last(x)))


@family(3, 14)
def image_decoder(d, batch):
    base = 32 * d.randint(2, 8)
    m = Pixels(d, [base, max(32, base // 2), max(32, base // 4)][: d.pick("stages", 2, 3)])
    side = d.pick("side", 16, 24, 32)
    return m, (torch.randn(batch, 4, side, side),) + ((torch.rand(batch) * 8,) if m.time else ()), True
