"""The one place with hand-written LLVM code, on names of Numba that are not part of its public interface.

Numba has no vectors: a plain loop loads and stores the sums of all queries for every entry of the gallery. Here they
stay in registers. Over a gallery of a million images (`search-1m`: d = 10,000, 45 entries per image, blocks of 32
queries) a query took 3.1 ms this way and 6.5 ms with the fastest plain loop, on Numba 0.68.1. Measure again when Numba
changes: if it pays less than 1.3 times, the plain loop in tests/retrieval/test_intrinsics.py is to replace it.
"""

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]  # it ships no types
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .index import LANES, LINES


@intrinsic
def sum_row(typingctx: Any, indices: Any, data: Any, start: Any, stop: Any, queries: Any, scores: Any, r: Any) -> Any:
    """``scores[r] = sum_p data[p] * queries[indices[p]]`` over start <= p < stop; rows of LINES * LANES float32.

    The columns of a row are added one entry after the other, as the plain loop adds them: the same bytes.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        indices, data, queries, scores = (
            context.make_array(signature.args[i])(context, builder, arguments[i]).data for i in (0, 1, 4, 5)
        )
        start, stop, r = arguments[2], arguments[3], arguments[6]
        word, lane = ir.IntType(64), ir.IntType(32)
        vector = ir.VectorType(ir.FloatType(), LANES)
        zeros = ir.Constant(vector, [0.0] * LANES)
        first_lane = ir.Constant(ir.VectorType(lane, LANES), [0] * LANES)

        def line(array: Any, row: Any, number: int) -> Any:
            place = builder.add(builder.mul(row, word(LINES * LANES)), word(number * LANES))
            return builder.bitcast(builder.gep(array, [place]), vector.as_pointer())

        totals = [cgutils.alloca_once(builder, vector) for _ in range(LINES)]  # LLVM keeps them in registers
        for total in totals:
            builder.store(zeros, total)
        with cgutils.for_range_slice(builder, start, stop, word(1)) as (p, _):
            column = builder.load(builder.gep(indices, [p]))
            if column.type.width < word.width:
                column = builder.zext(column, word)
            value = builder.insert_element(zeros, builder.load(builder.gep(data, [p])), lane(0))
            values = builder.shuffle_vector(value, zeros, first_lane)  # the value in every lane
            for number, total in enumerate(totals):
                products = builder.fmul(values, builder.load(line(queries, column, number), align=4))
                builder.store(builder.fadd(builder.load(total), products), total)
        for number, total in enumerate(totals):
            builder.store(builder.load(total), line(scores, r, number), align=4)
        return context.get_dummy_value()

    return types.void(indices, data, types.int64, types.int64, queries, scores, types.int64), codegen
