"""Choices of a drawn network: one generator of random numbers, and what was chosen, which holds throughout a network."""
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

FAMILIES = {}


def family(weight, oldest=13):
    """Registers a function from choices and a batch to a module, its arguments, and whether channels last suits it; `oldest` is the
    first version of ONNX's operators that it can be exported in."""

    def put(f):
        FAMILIES[f.__name__] = f, weight, oldest
        return f
    return put


class HardSwish(nn.Module):
    """Hardswish in the words of older exports."""

    def forward(self, x):
        return x * F.relu6(x + 3) / 6


class TanhGelu(nn.Module):
    """GELU by a polynomial inside tanh, written out as in older code."""

    def forward(self, x):
        return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


class ErfGelu(nn.Module):
    """GELU by erf, written out."""

    def forward(self, x):
        return x * 0.5 * (1.0 + torch.erf(x / 1.4142135623730951))


class QuickGelu(nn.Module):
    """x times the logistic function of 1.702 x."""

    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)


class Swish(nn.Module):
    """x times its logistic function, as two operators."""

    def forward(self, x):
        return x * torch.sigmoid(x)


class Rms(nn.Module):
    """RMS norm over the last axis, in f32 as decoders do it."""

    def __init__(self, d, inside=False):
        super().__init__()
        self.weight, self.inside = nn.Parameter(torch.ones(d)), inside

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        return (y * self.weight.float()).to(x.dtype) if self.inside else y.to(x.dtype) * self.weight


class OwnNorm(nn.Module):
    """Layer norm written out."""

    def __init__(self, d):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))

    def forward(self, x):
        c = x - x.mean(-1, keepdim=True)
        return c / torch.sqrt((c * c).mean(-1, keepdim=True) + 1e-5) * self.weight + self.bias


class ChannelNorm(nn.Module):
    """Layer norm over axis 1, by way of channels last."""

    def __init__(self, c):
        super().__init__()
        self.norm = nn.LayerNorm(c)

    def forward(self, x):
        return self.norm(x.movedim(1, -1)).movedim(-1, 1)


IMAGE_ACTS = {"relu": nn.ReLU, "relu6": nn.ReLU6, "leaky": lambda: nn.LeakyReLU(0.1), "silu": nn.SiLU, "swish": Swish, "hardswish": nn.Hardswish,
              "hardswish written out": HardSwish, "elu": nn.ELU, "mish": nn.Mish, "gelu": nn.GELU}
TOKEN_ACTS = {"gelu": nn.GELU, "tanh gelu": lambda: nn.GELU(approximate="tanh"), "gelu written out": ErfGelu,
              "tanh gelu written out": TanhGelu, "quick gelu": QuickGelu, "relu": nn.ReLU, "silu": nn.SiLU, "squared relu": lambda: Squared()}


class Squared(nn.Module):
    """The square of ReLU."""

    def forward(self, x):
        return F.relu(x).square()


class Draw(random.Random):
    """A generator that notes what it chose."""

    def __init__(self, seed):
        super().__init__(seed)
        self.notes = {}

    def pick(self, name, *choices):
        """A choice that the description of the network names; it is made once, as the layers of a network are alike."""
        if name not in self.notes:
            self.notes[name] = self.choice(choices)
        return self.notes[name]

    def style(self, name, table, among=None):
        """An entry of a table, the same throughout the network."""
        return table[self.pick(name, *(among or table))]

    def width(self, least, most, step=8):
        """Channels: a multiple of the step, rarely of one."""
        n = self.randint(least // step, most // step) * step
        return n + self.randint(1, step - 1) if self.random() < 0.08 and n < most else n

    def act(self):
        return self.style("activation", IMAGE_ACTS)()

    def token_act(self):
        return self.style("activation of tokens", TOKEN_ACTS)()

    def norm(self, c, rank=2):
        """A norm over the channels of an image, a sound or a video."""
        batch = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}[rank]
        groups = lambda c: nn.GroupNorm(max(g for g in (1, 2, 4, 8, 16, 32) if c % g == 0), c)
        table = {"batch": batch, "group": groups, "channels": ChannelNorm,
                 "instance": lambda c: {1: nn.InstanceNorm1d, 2: nn.InstanceNorm2d, 3: nn.InstanceNorm3d}[rank](c, affine=True)}
        return self.style("norm", table, ("batch", "batch", "batch", "batch", "group", "channels", "instance"))(c)

    def token_norm(self, d):
        table = {"layer": nn.LayerNorm, "layer written out": OwnNorm, "rms": Rms, "rms inside": lambda d: Rms(d, True)}
        return self.style("norm of tokens", table, ("layer", "layer", "layer written out", "rms", "rms inside"))(d)


def calm(module):
    """Random weights that keep the size of activations, with norms that are not the identity."""
    with torch.no_grad():
        for m in module.modules():
            if isinstance(m, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)):
                m.weight.normal_(std=1.2 / m.weight[0].numel() ** 0.5)
            elif isinstance(m, (nn.ConvTranspose1d, nn.ConvTranspose2d)):
                m.weight.normal_(std=1.2 / (m.weight.shape[0] * m.weight[0, 0].numel() / m.stride[0] ** (m.weight.dim() - 2)) ** 0.5)
            elif isinstance(m, nn.Embedding):
                m.weight.normal_(std=0.7)
            elif isinstance(getattr(m, "weight", None), nn.Parameter) and m.weight.dim() == 1:
                m.weight.uniform_(0.7, 1.3)
            if isinstance(getattr(m, "bias", None), nn.Parameter):
                m.bias.normal_(std=0.1)
            if isinstance(m, nn.modules.batchnorm._BatchNorm):
                m.running_mean.normal_(std=0.1)
                m.running_var.uniform_(0.7, 1.4)
    return module.eval()


def images(batch, channels, *size):
    return torch.randn(batch, channels, *size)


def ids(n, *shape):
    return torch.randint(0, n, shape)
