"""Products with items of -1 and +1 are sums of signed vectors: looked up, not multiplied.

    h = X Z'    the similarities of items X (B,N) with memories Z (M,N)
    g = D'X     the gradient's way back, D (B,M)

Both add up, for every row of signs, vectors v_k with those signs. Four v_k have but 16 signed sums. These are
written down once, for a few memories at a time, so that they stay in the first-level cache, and serve all
rows: one addition in place of four multiplications. 32 signs are a word of bits, for eight such tables.

A row of signs is an item (k runs over neurons, v is Z') or a neuron (k runs over items, v is D). Loops run on
vectors of a fixed width which the compiler would not make by itself: it cannot know that sums and tables
do not overlap.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from engramma.kernels.numba.loops import LOOP

LINE = 128  # bytes of one table entry: two cache lines, 16 memories in float64 and 32 in float32
# What is left over by lines of this length goes into shorter ones: how long a line is, in quarters of it,
# travels in the type of an argument, as the vertex does.
WHOLE, HALF, QUARTER = (0, 0, 0, 0), (0, 0), (0,)
WORD = 32  # signs in a word
TABLES = WORD // 4
INT64 = ir.IntType(64)


def _width(kind: Any, line: Any) -> int:
    """Elements of a line."""
    return line.count * LINE // 4 // _size(kind)


def _vector(context: Any, builder: Any, kind: Any, array: Any, at: Any, width: int) -> Any:
    """A pointer to the elements of a flat array that begin with element `at`."""
    element = context.get_value_type(kind.dtype)
    whole = ir.VectorType(element, width)
    first = builder.gep(context.make_array(kind)(context, builder, array).data, [at])
    return builder.bitcast(first, whole.as_pointer())


def _size(kind: Any) -> int:
    return kind.dtype.bitwidth // 8


def _look_up(typing, sums, at, tables, word, line):
    """sums[at : at + width] += the entries of the eight tables that the word's eight times four bits name."""
    del typing

    def code(context, builder, signature, args):
        kind, _, other, _, long = signature.args
        width, bits = _width(kind, long), builder.zext(args[3], INT64)

        def entry(table: int) -> Any:
            four = builder.and_(builder.lshr(bits, INT64(4 * table)), INT64(15))
            place = builder.mul(builder.add(four, INT64(16 * table)), INT64(width))
            return builder.load(_vector(context, builder, other, args[2], place, width), align=_size(kind))

        parts = [entry(table) for table in range(TABLES)]
        while len(parts) > 1:
            parts = [builder.fadd(a, b) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        here = _vector(context, builder, kind, args[0], args[1], width)
        whole = builder.fadd(builder.load(here, align=_size(kind)), parts[0])
        builder.store(whole, here, align=_size(kind))
        return context.get_dummy_value()

    return types.void(sums, at, tables, word, line), code


look_up: Any = intrinsic(_look_up)


def _write_down(typing, lines, tables, table, line):
    """All 16 signed sums of the four lines of one table; bit k of an entry's number is the sign of line k."""
    del typing

    def code(context, builder, signature, args):
        kind, other, _, long = signature.args
        width = _width(kind, long)
        start = builder.mul(args[2], INT64(4 * width))

        def at(array: Any, of: Any, base: Any, line: int) -> Any:
            return _vector(context, builder, of, array, builder.add(base, INT64(line * width)), width)

        a, b, c, d = (builder.load(at(args[0], kind, start, k), align=_size(kind)) for k in range(4))
        first = [builder.fneg(builder.fadd(a, b)), builder.fsub(a, b), builder.fsub(b, a), builder.fadd(a, b)]
        last = [builder.fneg(builder.fadd(c, d)), builder.fsub(c, d), builder.fsub(d, c), builder.fadd(c, d)]
        base = builder.mul(args[2], INT64(16 * width))
        for high, two in enumerate(last):
            for low, one in enumerate(first):
                entry = at(args[1], other, base, 4 * high + low)
                builder.store(builder.fadd(one, two), entry, align=_size(kind))
        return context.get_dummy_value()

    return types.void(lines, tables, table, line), code


write_down: Any = intrinsic(_write_down)


@njit(**LOOP)
def pack(x, words):
    """The signs of items x (B,N) as bits of words (B, N/32 and the rest); False where one is not -1 or +1."""
    bipolar = True
    for b in range(x.shape[0]):
        for w in range(words.shape[1]):
            bits = np.uint32(0)
            for k in range(min(WORD, x.shape[1] - WORD * w)):
                value = x[b, WORD * w + k]
                bits |= np.uint32(value > 0) << np.uint32(k)
                bipolar &= abs(value) == 1
            words[b, w] = bits
    return bipolar


@njit(**LOOP)
def turned(words, count):
    """The signs of `count` neurons over 32 items a word: (count, B/32 and the rest), what is beyond -1."""
    out = np.empty((count, -(-words.shape[0] // WORD)), np.uint32)
    for block in range(out.shape[1]):
        items = min(WORD, words.shape[0] - WORD * block)
        for w in range(words.shape[1]):
            for k in range(min(WORD, count - WORD * w)):
                bits = np.uint32(0)
                for b in range(items):
                    bits |= ((words[WORD * block + b, w] >> np.uint32(k)) & np.uint32(1)) << np.uint32(b)
                out[WORD * w + k, block] = bits
    return out


@njit(**LOOP)
def _scratch(count, like):
    """Zeros that begin with a cache line: an entry that straddles three lines takes half as long again."""
    raw = np.zeros(count + 64 // like.itemsize, like.dtype)
    return raw[(-raw.ctypes.data % 64) // like.itemsize :]


@njit(**LOOP)
def signed_sums(words, v, out):
    """out (rows,M): for every row of signs, the sum of the vectors v (K,M) with these signs."""
    width = LINE // v.itemsize
    whole = v.shape[1] // width * width
    _summed(words, v, out, 0, whole, WHOLE)
    left = v.shape[1] - whole
    if left > width // 2:
        _summed(words, v, out, whole, v.shape[1], WHOLE)
    elif left > width // 4:
        _summed(words, v, out, whole, v.shape[1], HALF)
    elif left > 0:
        _summed(words, v, out, whole, v.shape[1], QUARTER)


@njit(**LOOP)
def _summed(words, v, out, start, end, line):
    """`signed_sums` of the memories from `start` to `end`, a line at a time."""
    width = len(line) * LINE // 4 // v.itemsize
    sums = _scratch(words.shape[0] * width, v)
    lines, tables = _scratch(WORD * width, v), _scratch(16 * TABLES * width, v)
    for first in range(start, end, width):
        some = min(width, end - first)
        sums[:] = 0
        for w in range(words.shape[1]):
            lines[:] = 0
            for k in range(min(WORD, v.shape[0] - WORD * w)):
                for m in range(some):
                    lines[k * width + m] = v[WORD * w + k, first + m]
            for table in range(TABLES):
                write_down(lines, tables, table, line)
            for row in range(words.shape[0]):
                look_up(sums, row * width, tables, words[row, w], line)
        for row in range(words.shape[0]):
            for m in range(some):
                out[row, first + m] = sums[row * width + m]
