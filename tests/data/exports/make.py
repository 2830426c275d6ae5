#!/usr/bin/env python3
"""Small networks as PyTorch's exporter writes them: the blocks of common models, with few channels.

Each gets NAME.onnx, and NAME.npz with its inputs and PyTorch's outputs in f32. Needs torch, torchvision and transformers.
usage: make.py OUT
"""
import sys

import numpy as np
import torch
import torch.nn as nn


def bert():
    from transformers import BertConfig, BertModel
    config = BertConfig(vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
                        max_position_embeddings=32)

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.m = BertModel(config, add_pooling_layer=False)

        def forward(self, input_ids, attention_mask):
            return self.m(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
    mask = torch.ones(2, 12, dtype=torch.int64)
    mask[1, 9:] = 0
    return Encoder(), (torch.randint(0, 60, (2, 12)), mask)


class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h, self.ln1, self.ln2 = h, nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.o = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x, k_past, v_past):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4).unbind(0)
        k, v = torch.cat([k_past, k], 2), torch.cat([v_past, v], 2)
        a = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.o(a.transpose(1, 2).reshape(b, t, d))
        return x + self.down(nn.functional.gelu(self.up(self.ln2(x)), approximate="tanh")), k, v


class Decoder(nn.Module):
    """One step of a decoder with an explicit key/value cache."""

    def __init__(self, layers=2, d=32, h=4, vocab=50):
        super().__init__()
        self.emb, self.pos = nn.Embedding(vocab, d), nn.Embedding(64, d)
        self.blocks = nn.ModuleList([Block(d, h) for _ in range(layers)])
        self.ln, self.head = nn.LayerNorm(d), nn.Linear(d, vocab, bias=False)

    def forward(self, token, position, kv):
        x = self.emb(token) + self.pos(position)
        out = []
        for i, b in enumerate(self.blocks):
            x, k, v = b(x, kv[i, 0], kv[i, 1])
            out.append(torch.stack([k, v]))
        return self.head(self.ln(x)), torch.stack(out)


def decoder():
    return Decoder(), (torch.randint(0, 50, (2, 1)), torch.full((2, 1), 9), torch.randn(2, 2, 2, 4, 9, 8))


def vit():
    from torchvision.models import VisionTransformer
    m = VisionTransformer(image_size=32, patch_size=8, num_layers=2, num_heads=4, hidden_dim=32, mlp_dim=64,
                          num_classes=10)
    nn.init.normal_(m.heads.head.weight, std=0.1)
    return m, (torch.randn(2, 3, 32, 32),)


def swin():
    from torchvision.models import SwinTransformer
    m = SwinTransformer([4, 4], 16, [2, 2], [2, 4], [4, 4], num_classes=10)
    return m, (torch.randn(2, 3, 64, 64),)


def convnext():
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt
    m = ConvNeXt([CNBlockConfig(16, 32, 2), CNBlockConfig(32, None, 2)], num_classes=10)
    return m, (torch.randn(2, 3, 32, 32),)


def mobilenet():
    from torchvision.models import mobilenet_v3_large
    return mobilenet_v3_large(width_mult=0.2, num_classes=10), (torch.randn(1, 3, 64, 64),)


def efficientnet():
    from torchvision.models.efficientnet import EfficientNet, MBConvConfig
    m = EfficientNet([MBConvConfig(1, 3, 1, 8, 8, 1), MBConvConfig(6, 5, 2, 8, 16, 2)], 0.2, last_channel=32,
                     num_classes=10)
    return m, (torch.randn(1, 3, 32, 32),)


class UNet(nn.Module):
    def __init__(self, base=4):
        super().__init__()
        c = [base * 2 ** i for i in range(3)]

        def pair(i, o):
            return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(),
                                 nn.Conv2d(o, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU())
        self.down = nn.ModuleList([pair(3, c[0])] + [pair(c[i], c[i + 1]) for i in range(2)])
        self.up = nn.ModuleList([nn.ConvTranspose2d(c[i + 1], c[i], 2, 2) for i in reversed(range(2))])
        self.merge = nn.ModuleList([pair(2 * c[i], c[i]) for i in reversed(range(2))])
        self.head = nn.Conv2d(c[0], 2, 1)

    def forward(self, x):
        skips = []
        for i, d in enumerate(self.down):
            x = d(x if i == 0 else nn.functional.max_pool2d(x, 2))
            skips.append(x)
        skips.pop()
        for u, m in zip(self.up, self.merge):
            x = m(torch.cat([skips.pop(), u(x)], 1))
        return self.head(x)


def unet():
    return UNet(), (torch.randn(1, 3, 16, 16),)


def conditioned(m):
    """Batch norms with statistics of their own, so that folding them shows."""
    for x in m.modules():
        if isinstance(x, nn.BatchNorm2d):
            x.running_mean.normal_(std=0.1)
            x.running_var.uniform_(0.5, 1.5)
            x.weight.data.uniform_(0.8, 1.2)
            x.bias.data.normal_(std=0.1)
    return m


def main():
    out = sys.argv[1]
    torch.backends.mha.set_fastpath_enabled(False)
    for make in [bert, decoder, vit, swin, convnext, mobilenet, efficientnet, unet]:
        torch.manual_seed(0)
        name = make.__name__
        m, args = make()
        m = conditioned(m.eval())
        with torch.inference_mode():
            y = m(*args)
            y = y if isinstance(y, (tuple, list)) else (y,)
            ins, outs = [f"input_{i}" for i in range(len(args))], [f"output_{i}" for i in range(len(y))]
            torch.onnx.export(m, args, f"{out}/{name}.onnx", input_names=ins, output_names=outs, opset_version=18,
                              dynamo=False)
        tensors = zip(ins + outs, [*args, *y])
        np.savez_compressed(f"{out}/{name}.npz", **{k: v.numpy() for k, v in tensors})


main()
