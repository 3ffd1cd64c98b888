"""Many bytes compared by one machine instruction, which numba does not offer; a bit for each byte is the answer."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from dataeff.kernel.memory import pointer_to

BLOCK = 64
"""Bytes that `between` looks at."""


def _everywhere(builder: Any, value: Any, width: int) -> Any:
    """LLVM code for a vector of one byte's value."""
    nothing = ir.Constant(ir.VectorType(ir.IntType(8), width), ir.Undefined)
    one = builder.insert_element(nothing, value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(one, nothing, ir.Constant(ir.VectorType(ir.IntType(32), width), [0] * width))


def _comparison(width: int) -> Any:
    """An intrinsic that looks at `width` bytes."""

    @intrinsic
    def compare(typingctx: Any, array: Any, index: Any, first: Any, last: Any) -> Any:
        signature = types.uint64(array, index, types.uint8, types.uint8)
        vector = ir.VectorType(ir.IntType(8), width)

        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array, index, first, last = arguments
            pointer = pointer_to(context, builder, signature.args[0], array, index)
            some = builder.load(builder.bitcast(pointer, vector.as_pointer()), align=1)
            above = builder.sub(some, _everywhere(builder, first, width))
            inside = builder.icmp_unsigned("<=", above, _everywhere(builder, builder.sub(last, first), width))
            bits = builder.bitcast(inside, ir.IntType(width))
            return bits if width == 64 else builder.zext(bits, ir.IntType(64))

        return signature, codegen

    return compare


between = _comparison(BLOCK)
"""`between(array, index, first, last)`: which of 64 bytes of a uint8 array from `index` on are `first` to `last`, as
the bits of a uint64, the first byte's lowest. The caller guards the bounds."""
between_16 = _comparison(16)
"""The same of 16 bytes, in the lowest 16 bits."""


@intrinsic
def sharing(typingctx: Any, array: Any, index: Any, bits: Any) -> Any:
    """Which of 64 bytes of a uint8 array from `index` on share a bit with `bits`, as the bits of a uint64, the first
    byte's lowest. The caller guards the bounds."""
    signature = types.uint64(array, index, types.uint8)
    vector = ir.VectorType(ir.IntType(8), BLOCK)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, index, bits = arguments
        pointer = pointer_to(context, builder, signature.args[0], array, index)
        some = builder.load(builder.bitcast(pointer, vector.as_pointer()), align=1)
        shared = builder.and_(some, _everywhere(builder, bits, BLOCK))
        return builder.bitcast(builder.icmp_unsigned("!=", shared, ir.Constant(vector, None)), ir.IntType(BLOCK))

    return signature, codegen
