#!/usr/bin/env python3
"""Writes kernels/control/copies.ptx from copies.cu by NVRTC (KILN_NVRTC: its folder; by default .cache/nvrtc)."""
import ctypes
import glob
import os
import pathlib
import re

root = pathlib.Path(__file__).resolve().parent.parent
folder = os.environ.get("KILN_NVRTC", str(root / ".cache/nvrtc"))
for name in sorted(glob.glob(folder + "/libnvrtc*.so*"), reverse=True):
    library = ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
    if hasattr(library, "nvrtcCompileProgram"):
        nvrtc = library
source = (root / "kernels/control/copies.cu").read_bytes()
options = [b"--gpu-architecture=compute_80", b"--std=c++20", b"--relocatable-device-code=true"]
program = ctypes.c_void_p()
nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"copies.cu", 0, None, None)
failed = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
get = ("nvrtcGetProgramLogSize", "nvrtcGetProgramLog") if failed else ("nvrtcGetPTXSize", "nvrtcGetPTX")
size = ctypes.c_size_t()
getattr(nvrtc, get[0])(program, ctypes.byref(size))
text = ctypes.create_string_buffer(size.value)
getattr(nvrtc, get[1])(program, text)
text = text.value.decode()
if failed:
    raise SystemExit(text)
# What it needs of PTX is older: so older drivers take it.
text = re.sub(r"^\.version .*$", ".version 8.0", text, flags=re.M)
text = re.sub(r"^//.*\n", "", text, flags=re.M).lstrip()
mark = 0xCBF29CE484222325
for byte in source:
    mark = (mark ^ byte) * 0x100000001B3 % 2**64
head = f"// Written by scripts/flow_ptx.py from copies.cu, FNV-1a {mark:016x}\n"
(root / "kernels/control/copies.ptx").write_text(head + text)
