#!/usr/bin/env python3
"""Cuts the feed-forward of a dense llama GGUF into experts, without requantizing: its mixture-of-experts twin.

The hidden units of each layer are dealt to N experts, so that the sum over all experts is what the dense layer gives.
With a router of zeros every gate is 1/N (all experts used), so the down projection takes a factor of N: a power of two,
which F16 block scales hold exactly. The twin is the same function as the dense model, in exact arithmetic.

Overflow: up times 2^K and down times 2^-K is still the same function, but the source of the down projection is 2^K times
larger. An engine that rounds it to F16 without care gives inf and then NaN.

Needs Python's standard library only. tools/cached_twin.py makes a twin once and keeps it.
"""
import argparse
import array
import struct
import sys

from gguf_file import DTYPES, F32, STRING, U32, Failure, Reader, Writer

# Where the F16 scales of a block are, in units of 2 bytes. (K-quants: d, and dmin where there is one.)
SCALE_FIELDS = {"F16": [0], "Q4_0": [0], "Q5_0": [0], "Q8_0": [0], "Q4_1": [0, 1], "Q5_1": [0, 1], "Q4_K": [0, 1],
                "Q5_K": [0, 1], "Q6_K": [104], "Q3_K": [54], "Q2_K": [40, 41]}
LOW_NIBBLE = bytes(byte & 15 for byte in range(256))
HIGH_NIBBLE = bytes(byte >> 4 for byte in range(256))


def half_table(factor):
    """For each F16 pattern that of the value times a power of two, or None where F16 does not hold it exactly."""
    table = []
    for bits in range(1 << 16):
        value = struct.unpack("<e", struct.pack("<H", bits))[0] * factor
        try:
            packed = struct.pack("<e", value)
        except OverflowError:
            packed = None
        exact = packed is not None and struct.unpack("<e", packed)[0] == value
        table.append(struct.unpack("<H", packed)[0] if exact else None)
    return table


class Scaler:
    """Multiplies tensors by powers of two, exactly or not at all."""

    def __init__(self):
        self.tables = {}

    def scale(self, name, data, dtype, factor, advice):
        if factor == 1:
            return data
        if dtype == "F32":
            values = array.array("f", data)
            return array.array("f", [value * factor for value in values]).tobytes()
        if dtype not in SCALE_FIELDS:
            raise Failure(f"{name}: blocks of {dtype} cannot be scaled")
        if factor not in self.tables:
            self.tables[factor] = half_table(factor)
        table = self.tables[factor]
        words = array.array("H", data)
        stride = DTYPES[dtype][2] // 2
        for field in SCALE_FIELDS[dtype]:
            scaled = [table[bits] for bits in words[field::stride]]
            if None in scaled:
                raise Failure(f"{name}: the scales of {dtype} times {factor:g} are not exact in F16{advice}")
            words[field::stride] = array.array("H", scaled)
        return words.tobytes()


def block_levels(block, dtype):
    """The 16 values that a block of 4 bits can hold, as F32 has them. Products are exact in F64."""
    if dtype == "Q4_1":
        d, m = struct.unpack_from("<2e", block)
        levels = [d * q + m for q in range(16)]
    else:
        d = struct.unpack_from("<e", block)[0]
        levels = [d * (q - 8) for q in range(16)]
    return struct.unpack("<16f", struct.pack("<16f", *levels))


def convert_nibbles(data, dtype, form, convert):
    """Blocks of 4 bits → plain values: each block's 16 levels are converted and packed with `form`, then looked up."""
    size, width = DTYPES[dtype][2], struct.calcsize("<" + form)
    out = bytearray()
    for begin in range(0, len(data), size):
        block = data[begin:begin + size]
        levels = struct.pack("<16" + form, *convert(block_levels(block, dtype)))
        nibbles = block[size - 16:].translate(LOW_NIBBLE) + block[size - 16:].translate(HIGH_NIBBLE)
        values = bytearray(32 * width)
        for byte in range(width):
            values[byte::width] = nibbles.translate(levels[byte::width] + bytes(240))
        out += values
    return bytes(out)


def plain_values(data, dtype):
    """All values of a tensor in F32."""
    if dtype == "F32":
        return array.array("f", data)
    if dtype == "F16":
        return struct.unpack(f"<{len(data) // 2}e", data)
    values = array.array("f")
    for begin in range(0, len(data), DTYPES[dtype][2]):
        d = struct.unpack_from("<e", data, begin)[0]
        values.extend([d * q for q in struct.unpack_from("<32b", data, begin + 2)])
    return values


def convert(name, data, dtype, form, factor, half_factor):
    """Blocks → F16 or F32 values times `factor`. To F16 they are rounded as values times half_factor (0: factor)."""
    half_factor = half_factor or factor

    def scaled(values):
        if form == "f" or factor == half_factor:
            return [value * factor for value in values]
        halves = f"<{len(values)}e"
        rounded = struct.unpack(halves, struct.pack(halves, *[value * half_factor for value in values]))
        shifted = [value * (factor / half_factor) for value in rounded]
        if list(struct.unpack(halves, struct.pack(halves, *shifted))) != shifted:
            raise Failure(f"{name}: what --round-for makes exact is not exact in F16 for this --overflow")
        return shifted

    try:
        if dtype in ("Q4_0", "Q4_1"):
            return convert_nibbles(data, dtype, form, scaled)
        if dtype not in ("F32", "F16", "Q8_0"):
            raise Failure(f"{name}: {dtype} is not converted; --down-f16 and --down-f32 take F32, F16, Q8_0, Q4_0, Q4_1")
        values = plain_values(data, dtype)
        return b"".join(struct.pack(f"<{len(part)}{form}", *scaled(part))
                        for part in (values[i:i + 4096] for i in range(0, len(values), 4096)))
    except OverflowError as error:
        raise Failure(f"{name}: some weights times {factor:g} do not fit F16; use --down-f32") from error


def router_row_major(seed, layer, count):
    """Multiples of 1/1024 in [-1/8, 1/8): the top byte of splitmix64 of (seed, layer, index)."""
    mask = (1 << 64) - 1
    values = []
    for index in range(count):
        z = (index + ((seed * 1000 + layer + 1) << 32)) * 0x9E3779B97F4A7C15 & mask
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
        z ^= z >> 31
        values.append(((z >> 56) - 128) / 1024)
    return struct.pack(f"<{count}f", *values)


class Cutter:
    """What becomes of each tensor of the dense model."""

    def __init__(self, reader, options):
        self.reader, self.options, self.scaler = reader, options, Scaler()
        self.n_expert, self.used = options.experts, options.used or options.experts
        hidden = reader.value("llama.feed_forward_length")
        if hidden % self.n_expert:
            raise Failure(f"{hidden} hidden units do not cut into {self.n_expert} experts")
        self.part = hidden // self.n_expert
        scales = options.exps_scale
        self.up_factor, self.down_factor = 2.0 ** options.overflow, self.used * 2.0 ** -options.overflow
        self.up_in_weights = 1.0 if scales else self.up_factor
        self.down_in_weights = 1.0 if scales else self.down_factor
        # What --round-for rounds at.
        self.half_factor = 0 if scales or options.round_for is None else self.used * 2.0 ** -options.round_for

    def rows_of_units(self, name, tensor, factor):
        """gate, up [k, hidden]: an expert's rows lie together already."""
        yield self.scaler.scale(name, self.reader.data(tensor), tensor.dtype, factor, "")

    def columns_of_units(self, name, tensor, dtype):
        """down [hidden, n]: each row is cut between blocks, and the pieces are put together by expert."""
        data, size = self.reader.data(tensor), DTYPES[tensor.dtype][2]
        row = len(data) // tensor.dims[1]
        piece = row // self.n_expert
        assert piece % size == 0
        for expert in range(self.n_expert):
            cut = b"".join(data[begin:begin + piece] for begin in range(expert * piece, len(data), row))
            if dtype == tensor.dtype and not (dtype == "F16" and self.half_factor):
                yield self.scaler.scale(name, cut, dtype, self.down_in_weights, "; use --down-f16 or --down-f32")
            else:
                yield convert(name, cut, tensor.dtype, "e" if dtype == "F16" else "f", self.down_in_weights,
                              self.half_factor if dtype == "F16" else 0)

    def add_router(self, writer, prefix, n_embd):
        layer, seed = int(prefix.split(".")[1]), self.options.router_seed
        count = n_embd * self.n_expert
        writer.add_tensor(f"{prefix}.ffn_gate_inp.weight", [n_embd, self.n_expert], "F32",
                          lambda: [bytes(4 * count) if seed is None else router_row_major(seed, layer, count)])
        if self.options.exps_scale:
            for kind, factor in (("up", self.up_factor), ("down", self.down_factor)):
                writer.add_tensor(f"{prefix}.ffn_{kind}_exps.scale", [self.n_expert], "F32",
                                  lambda factor=factor: [struct.pack("<f", factor) * self.n_expert])

    def add_tensor(self, writer, name, tensor):
        words = name.split(".")
        kind = words[2] if words[0] == "blk" else ""
        if kind not in ("ffn_gate", "ffn_up", "ffn_down"):
            writer.add_tensor(name, tensor.dims, tensor.dtype, lambda: [self.reader.data(tensor)])
            return
        prefix = f"{words[0]}.{words[1]}"
        new = f"{prefix}.{kind}_exps.{words[3]}"
        block = DTYPES[tensor.dtype][1]
        if words[3] != "weight":
            raise Failure(f"{name}: feed-forward biases are not cut")
        if kind != "ffn_down":
            factor = self.up_in_weights if kind == "ffn_up" else 1.0
            writer.add_tensor(new, [tensor.dims[0], self.part, self.n_expert], tensor.dtype,
                              lambda: self.rows_of_units(name, tensor, factor))
            return
        if self.part % block:
            raise Failure(f"{name}: {self.part} hidden units are not whole blocks of {block}")
        dtype = "F16" if self.options.down_f16 else "F32" if self.options.down_f32 else tensor.dtype
        writer.add_tensor(new, [self.part, tensor.dims[1], self.n_expert], dtype,
                          lambda: self.columns_of_units(name, tensor, dtype))
        self.add_router(writer, prefix, tensor.dims[1])

    def add_keys(self, writer):
        replaced = ("llama.feed_forward_length", "general.name", "general.size_label", "general.alignment")
        for key, (_, _, data) in self.reader.keys.items():
            if key not in replaced:
                writer.add_raw_key(data)
        name = self.reader.value("general.name") if "general.name" in self.reader.keys else "model"
        writer.add_key("general.name", STRING, f"{name} cut into {self.n_expert} experts, 2^{self.options.overflow}")
        writer.add_key("llama.feed_forward_length", U32, self.part)
        writer.add_key("llama.expert_count", U32, self.n_expert)
        writer.add_key("llama.expert_used_count", U32, self.used)


def power_of_two(text):
    value = int(text)
    if value < 1 or value & (value - 1):
        raise argparse.ArgumentTypeError(f"{value} is not a power of two")
    return value


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dense", help="a GGUF file of the llama architecture")
    parser.add_argument("moe", help="the twin to write")
    parser.add_argument("--experts", type=power_of_two, default=4, metavar="N", help="a power of two (4)")
    parser.add_argument("--used", type=power_of_two, metavar="U",
                        help="experts a token uses (all). With fewer than all and a router of zeros ties decide, so "
                             "this is fit for measuring speed only")
    parser.add_argument("--overflow", type=int, default=0, metavar="K",
                        help="up times 2^K, down times 2^-K (0). The scales must stay exact in F16")
    down = parser.add_mutually_exclusive_group()
    down.add_argument("--down-f16", action="store_true", help="the down projection becomes F16, rounded")
    down.add_argument("--down-f32", action="store_true", help="the down projection becomes F32, exact for every K")
    parser.add_argument("--round-for", type=int, metavar="K",
                        help="with --down-f16: round as --overflow K would, so that twins of different K are equal")
    parser.add_argument("--exps-scale", action="store_true",
                        help="weights stay as they are; the factors go into tensors ffn_{up,down}_exps.scale")
    parser.add_argument("--router-seed", type=int, metavar="S",
                        help="a router that chooses, from a fixed sequence: no twin of the dense model any more")
    options = parser.parse_args()
    if options.used and options.used > options.experts:
        parser.error("--used is more than --experts")
    if options.router_seed is not None and options.router_seed < 0:
        parser.error("--router-seed must not be negative")
    return options


def main():
    options = arguments()
    try:
        with Reader(options.dense) as reader:
            architecture = reader.value("general.architecture")
            if architecture != "llama":
                raise Failure(f"{options.dense}: only the llama architecture is cut, and this is {architecture}")
            if "llama.expert_count" in reader.keys:
                raise Failure(f"{options.dense}: has experts already")
            cutter, writer = Cutter(reader, options), Writer()
            writer.add_key("general.architecture", STRING, architecture)
            del reader.keys["general.architecture"]
            cutter.add_keys(writer)
            for name, tensor in reader.tensors.items():
                cutter.add_tensor(writer, name, tensor)
            writer.write(options.moe)
    except (Failure, OSError) as error:
        print(f"make_moe_from_dense: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
