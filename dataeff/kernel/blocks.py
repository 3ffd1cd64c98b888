"""Many bytes compared by one machine instruction, which numba does not offer; a bit for each byte is the answer."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from dataeff.kernel.memory import everywhere, pointer_to

BLOCK = 64
"""Bytes that are looked at together."""
_VECTOR = ir.VectorType(ir.IntType(8), BLOCK)


def _block(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    """LLVM code for the 64 bytes of an array from `index` on."""
    pointer = builder.bitcast(pointer_to(context, builder, array_type, array, index), _VECTOR.as_pointer())
    return builder.load(pointer, align=1)


@intrinsic
def between(typingctx: Any, array: Any, index: Any, first: Any, last: Any) -> Any:
    """Which of 64 bytes of a uint8 array from `index` on are `first` to `last`, as the bits of a uint64, the first
    byte's lowest. The caller guards the bounds."""
    signature = types.uint64(array, index, types.uint8, types.uint8)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, index, first, last = arguments
        some = _block(context, builder, signature.args[0], array, index)
        above = builder.sub(some, everywhere(builder, first, BLOCK))
        inside = builder.icmp_unsigned("<=", above, everywhere(builder, builder.sub(last, first), BLOCK))
        return builder.bitcast(inside, ir.IntType(BLOCK))

    return signature, codegen


@intrinsic
def sharing(typingctx: Any, array: Any, index: Any, bits: Any) -> Any:
    """Which of 64 bytes of a uint8 array from `index` on share a bit with `bits`, as the bits of a uint64, the first
    byte's lowest. The caller guards the bounds."""
    signature = types.uint64(array, index, types.uint8)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, index, bits = arguments
        some = _block(context, builder, signature.args[0], array, index)
        shared = builder.and_(some, everywhere(builder, bits, BLOCK))
        return builder.bitcast(builder.icmp_unsigned("!=", shared, ir.Constant(_VECTOR, None)), ir.IntType(BLOCK))

    return signature, codegen
