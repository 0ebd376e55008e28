#!/usr/bin/env python3
"""Writes tests/unit/rope_table.h: rotary frequencies, cosines and sines as the papers define them.

Plain, linear ("position interpolation"), YaRN (Peng et al., 2023, in the form that model files mean: correction
dimensions rounded outwards, a linear ramp, magnitude 0.1 ln(factor) + 1) and Llama 3's division by wavelength. All in
Decimal with 50 digits, so that a large position loses nothing.

usage: tools/make_rope_table.py > tests/unit/rope_table.h
"""
from decimal import Decimal, ROUND_FLOOR, ROUND_CEILING, getcontext

getcontext().prec = 50
PI = Decimal("3.14159265358979323846264338327950288419716939937510")
POSITIONS = [0, 1, 17, 4095, 131071, 1000000]


def cos_sin(x):
    """Cosine and sine by reduction and Taylor's series."""
    turns = (x / (2 * PI)).to_integral_value()
    x -= turns * 2 * PI
    cos, sin, term, n = Decimal(0), Decimal(0), Decimal(1), 0
    while n < 20 or abs(term) > Decimal(10) ** -45:
        if n % 2 == 0:
            cos += term if n % 4 == 0 else -term
        else:
            sin += term if n % 4 == 1 else -term
        n += 1
        term = term * x / n
    return cos, sin


def base_frequencies(c):
    n = c["n_rot"]
    return [(-(Decimal(2 * i) / n) * Decimal(c["base"]).ln()).exp() for i in range(n // 2)]


def correction(c, turns, rounding):
    d = c["n_rot"] * (Decimal(c["context"]) / (turns * 2 * PI)).ln() / (2 * Decimal(c["base"]).ln())
    return d.to_integral_value(rounding)


def yarn(c):
    low = max(correction(c, 32, ROUND_FLOOR), Decimal(0))
    high = min(correction(c, 1, ROUND_CEILING), Decimal(c["n_rot"] - 1))
    if low == high:
        high += Decimal("0.001")
    out = []
    for i, f in enumerate(base_frequencies(c)):
        ramp = min(max((i - low) / (high - low), Decimal(0)), Decimal(1))
        out.append(f / c["factor"] * ramp + f * (1 - ramp))
    return out, Decimal("0.1") * Decimal(c["factor"]).ln() + 1


def llama3_factor(c, f):
    """What a frequency is divided by: a file holds these as rope_freqs.weight."""
    wavelength, low, high = 2 * PI / f, Decimal(1), Decimal(4)
    if wavelength < c["context"] / high:
        return Decimal(1)
    if wavelength > c["context"] / low:
        return Decimal(c["factor"])
    smooth = (c["context"] / wavelength - low) / (high - low)
    return 1 / ((1 - smooth) / c["factor"] + smooth)


def frequencies(c):
    plain = base_frequencies(c)
    if c["type"] == "LINEAR":
        return [f / c["factor"] for f in plain], Decimal(1)
    if c["type"] == "YARN":
        return yarn(c)
    if c["type"] == "LLAMA3":
        return [f / llama3_factor(c, f) for f in plain], Decimal(1)
    return plain, Decimal(1)


CASES = [
    dict(type="NONE", n_rot=64, base=10000, factor=1, context=1),
    dict(type="NONE", n_rot=128, base=1000000, factor=1, context=1),
    dict(type="LINEAR", n_rot=64, base=1000000, factor=8, context=1),
    dict(type="YARN", n_rot=128, base=1000000, factor=4, context=32768),
    dict(type="YARN", n_rot=64, base=10000, factor=40, context=4096),
    dict(type="YARN", n_rot=16, base=10000, factor=2, context=128),
    dict(type="LLAMA3", n_rot=128, base=500000, factor=8, context=8192),
    dict(type="LLAMA3", n_rot=64, base=500000, factor=32, context=8192),
]


def main():
    print("// Made by tools/make_rope_table.py: do not edit.\n// clang-format off")
    print("static const uint32_t rope_positions[] = {%s};" % ", ".join(map(str, POSITIONS)))
    print("static const struct rope_case rope_cases[] = {")
    for c in CASES:
        values, magnitude = frequencies(c)
        n = len(values)
        pairs = sorted({0, 1, n // 4, n // 3, n // 2, 2 * n // 3, 3 * n // 4, n - 1})
        print("    {CASE_%s, %d, %d, %d, %d, {" % (c["type"], c["n_rot"], c["base"], c["factor"], c["context"]))
        for i in pairs:
            divisor = llama3_factor(c, base_frequencies(c)[i]) if c["type"] == "LLAMA3" else Decimal(1)
            numbers = []
            for p in POSITIONS:
                cos, sin = cos_sin(p * values[i])
                numbers.append("{%.12e, %.12e}" % (cos * magnitude, sin * magnitude))
            print("        {%d, %.17e, %.9e," % (i, values[i], divisor))
            for first in range(0, len(numbers), 2):
                print("         %s%s%s" % ("{" if first == 0 else " ", ", ".join(numbers[first:first + 2]),
                                           "}}," if first + 2 >= len(numbers) else ","))
        print("    }},")
    print("};")
    print("// clang-format on")


if __name__ == "__main__":
    main()
