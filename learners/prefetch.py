"""Ask the processor for cache lines ahead of their use, from inside a kernel.

A learner of a large W spends its time waiting for memory, and knows its next triplet before it has learned the present
one. Numba has no prefetch; LLVM has, and this passes it on. A hint only: results never depend on it.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]  # it ships no types
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

# W larger than this does not stay in a processor's cache, and asking ahead pays (at 4 MB it costs a fifth).
PREFETCH_BYTES = 32 << 20

_READ, _KEEP, _DATA = 0, 3, 1
_LINE_BITS = 4  # 16 float32 are a cache line of 64 bytes


@intrinsic
def _prefetch(typingctx, array, i, j):
    """Hint that array[i, j] will be read soon."""

    def codegen(context, builder, signature, arguments):
        kind = signature.args[0]
        value = context.make_array(kind)(context, builder, arguments[0])
        address = cgutils.get_item_pointer(context, builder, kind, value, arguments[1:])
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), [byte, word, word, word]), "llvm.prefetch.p0"
        )
        builder.call(function, [builder.bitcast(address, byte), word(_READ), word(_KEEP), word(_DATA)])
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp), codegen


@njit(cache=True, nogil=True)
def prefetch_entries(W, row, columns, n):
    """Ask for W[row, columns[:n]], a float32 matrix and sorted columns: once for each cache line."""
    last = np.int64(-1)
    for j in range(n):
        line = np.int64(columns[j]) >> _LINE_BITS
        if line != last:
            last = line
            _prefetch(W, row, columns[j])  # type: ignore[call-arg]  # Numba passes the typing context
