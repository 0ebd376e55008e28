#!/usr/bin/env python3
"""Makes tests/data/blocks.gguf: blocks of every format that mote decodes, and what they decode to.

usage: make_blocks.py OUTPUT.gguf        (needs the Python packages gguf and numpy)

For a format FMT: FMT.blocks (I8: the bytes of its blocks) and FMT.values (F32: gguf-py's decoding of them). The first
blocks have regular bit patterns and scales at the edges of F16's range (MXFP4: of the exponents whose values are finite);
the others are random with any finite scale.
"""
import sys

import gguf
import numpy as np

# Where in a block the F16 scales lie (byte offsets).
FORMATS = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
           "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "MXFP4": []}
EDGES = [0x0001, 0x03FF, 0x7BFF, 0xFBFF, 0x8000, 0x0400, 0x3C00, 0xBC00]
EXPONENTS = [0, 1, 2, 252, 251, 127, 128, 3]  # MXFP4's byte 0
PATTERNS = [0x00, 0xFF, 0x55, 0xAA, 0x0F, 0xF0, 0x33, 0xCC]
N_RANDOM = 4


def make_blocks(name, size, scales, rng):
    blocks = rng.integers(0, 256, (len(EDGES) + N_RANDOM, size), dtype=np.uint8)
    for i, pattern in enumerate(PATTERNS):
        blocks[i] = pattern
    for i in range(len(blocks)):
        for k, at in enumerate(scales):
            half = EDGES[(i + k) % len(EDGES)] if i < len(EDGES) else int(rng.integers(0, 0x7C00)) | int(rng.integers(2)) << 15
            blocks[i, at], blocks[i, at + 1] = half & 255, half >> 8
        if name == "MXFP4":
            blocks[i, 0] = EXPONENTS[i] if i < len(EXPONENTS) else int(rng.integers(0, 253))
    return blocks


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    rng = np.random.default_rng(18)
    writer = gguf.GGUFWriter(sys.argv[1], "none")
    for name, scales in FORMATS.items():
        kind = gguf.GGMLQuantizationType[name]
        blocks = make_blocks(name, gguf.GGML_QUANT_SIZES[kind][1], scales, rng)
        values = gguf.quants.dequantize(blocks, kind).astype(np.float32).reshape(-1)
        assert np.isfinite(values).all()
        writer.add_tensor(name.lower() + ".blocks", blocks.reshape(-1).view(np.int8))
        writer.add_tensor(name.lower() + ".values", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
