"""Machine instructions that numba does not offer: unaligned loads and stores, and counting bits."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


def pointer_to(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    """LLVM code for the address of an array's element."""
    return cgutils.gep_inbounds(builder, context.make_array(array_type)(context, builder, array).data, index)


def everywhere(builder: Any, value: Any, lanes: int) -> Any:
    """LLVM code for a vector whose lanes are all `value`."""
    nothing = ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined)
    one = builder.insert_element(nothing, value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(one, nothing, ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes))


@intrinsic
def load_u64(typingctx: Any, array: Any, index: Any) -> Any:
    """Eight bytes of a uint8 array from `index` on, little-endian, as uint64. The caller guards the bounds."""
    signature = types.uint64(array, index)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = pointer_to(context, builder, signature.args[0], arguments[0], arguments[1])
        word = builder.bitcast(pointer, ir.IntType(64).as_pointer())
        return builder.load(word, align=1)

    return signature, codegen


@intrinsic
def store_u64(typingctx: Any, array: Any, index: Any, value: Any) -> Any:
    """Write a uint64 as eight bytes of a uint8 array from `index` on, little-endian. The caller guards the bounds."""
    signature = types.void(array, index, types.uint64)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = pointer_to(context, builder, signature.args[0], arguments[0], arguments[1])
        builder.store(arguments[2], builder.bitcast(pointer, ir.IntType(64).as_pointer()), align=1)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def trailing_zeros(typingctx: Any, value: Any) -> Any:
    """Zero bits below the lowest set bit of a uint64; 64 for 0."""
    signature = types.uint64(types.uint64)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return signature, codegen


@intrinsic
def count_ones(typingctx: Any, value: Any) -> Any:
    """How many bits of a uint64 are set."""
    signature = types.uint64(types.uint64)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return signature, codegen


@intrinsic
def copy_from_address(typingctx: Any, array: Any, index: Any, address: Any, count: Any) -> Any:
    """Copy `count` bytes that stand at a machine address to a uint8 array, from `index` on. The caller guards all."""
    signature = types.void(array, index, types.uint64, types.int64)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target = pointer_to(context, builder, signature.args[0], arguments[0], arguments[1])
        source = builder.inttoptr(arguments[2], target.type)
        cgutils.raw_memcpy(builder, target, source, arguments[3], 1)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def prefetch(typingctx: Any, address: Any) -> Any:
    """Ask for the cache line at a machine address, which need not be valid."""
    signature = types.void(types.uint64)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer_type = ir.IntType(8).as_pointer()
        flag = ir.IntType(32)
        function_type = ir.FunctionType(ir.VoidType(), [pointer_type, flag, flag, flag])
        function = cgutils.get_or_insert_function(builder.module, function_type, "llvm.prefetch.p0")
        pointer = builder.inttoptr(arguments[0], pointer_type)
        builder.call(function, [pointer, flag(0), flag(3), flag(1)])
        return context.get_dummy_value()

    return signature, codegen
