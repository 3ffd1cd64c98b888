"""Sixteen 32-bit numbers taken at once: LLVM makes of it whatever the machine has, numba half of what some have."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from dataeff.kernel.memory import everywhere, pointer_to

LANES = 16
"""Numbers that `lower_lanes` lowers."""
AT_ONCE = 4
"""Values that it takes at a time, so that fewer comparisons wait for one another."""
_VECTOR = ir.VectorType(ir.IntType(32), LANES)


@intrinsic
def lower_lanes(typingctx: Any, least: Any, place: Any, factors: Any, addends: Any, values: Any, count: Any) -> Any:
    """Lower each of `LANES` numbers of `least` from `place` on to the smallest of factor * value + addend mod 2**32.

    They stay in registers from the first value to the last. All arrays are uint32, `factors` and `addends` begin at
    `place` too; `count` is a multiple of `AT_ONCE`. The caller guards the bounds.
    """
    signature = types.void(least, types.int64, factors, addends, values, types.int64)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        least, place, factors, addends, values, count = arguments
        least_type, _, factors_type, addends_type, values_type, _ = signature.args

        def lanes_of(array_type: Any, array: Any) -> Any:
            return builder.bitcast(pointer_to(context, builder, array_type, array, place), _VECTOR.as_pointer())

        def smaller(left: Any, right: Any) -> Any:
            return builder.select(builder.icmp_unsigned("<", left, right), left, right)

        factor = builder.load(lanes_of(factors_type, factors), align=4)
        addend = builder.load(lanes_of(addends_type, addends), align=4)
        target = lanes_of(least_type, least)
        lowest = cgutils.alloca_once(builder, _VECTOR)
        builder.store(builder.load(target, align=4), lowest)
        with cgutils.for_range(builder, builder.udiv(count, count.type(AT_ONCE))) as loop:
            first = builder.mul(loop.index, count.type(AT_ONCE))
            found = []
            for ahead in range(AT_ONCE):
                pointer = pointer_to(context, builder, values_type, values, builder.add(first, count.type(ahead)))
                value = everywhere(builder, builder.load(pointer), LANES)
                found.append(builder.add(builder.mul(factor, value), addend))
            while len(found) > 1:
                found = [smaller(left, right) for left, right in zip(found[::2], found[1::2], strict=True)]
            builder.store(smaller(builder.load(lowest), found[0]), lowest)
        builder.store(builder.load(lowest), target, align=4)
        return context.get_dummy_value()

    return signature, codegen
