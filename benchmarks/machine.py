"""Peak speeds of this machine, for the limits of the other benchmarks: ``python -m benchmarks machine [--quick]``.

Memory: the triad ``a = b + s c`` over arrays too large for any cache (STREAM), bytes counted as it does, 12 for each
number; the writes' own fetches of lines are not counted. Cache: reading an array of the size that a kernel keeps busy.
Lines: adding to one number in each 64-byte line of an array of the size of W, lines in random order, one access
independent of the next. Arithmetic: single-precision matrix products. As these are limits, the best time counts.
"""

import functools
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numba import njit
from threadpoolctl import threadpool_limits

COMMAND = "python -m benchmarks machine"
MB = 1 << 20
REPEATS = 7


@njit(cache=True, nogil=True)
def triad(a, b, c, s):
    for i in range(len(a)):
        a[i] = b[i] + s * c[i]


@njit(cache=True, nogil=True, fastmath=True)
def read(a, times):
    total = np.float32(0)
    for _ in range(times):
        for i in range(len(a)):
            total += a[i]
        a[0] = total  # else the compiler keeps one round only
    return total


@njit(cache=True, nogil=True)
def touch(a, lines):
    for line in lines:
        a[16 * np.int64(line)] += np.float32(1)


def seconds(function, arguments) -> float:
    """Least elapsed time of the function called with all tuples of arguments at once, one thread per tuple."""
    times = []
    with ThreadPoolExecutor(len(arguments)) as pool:
        for _ in range(REPEATS + 1):
            start = time.perf_counter()
            list(pool.map(lambda given: function(*given), arguments))
            times.append(time.perf_counter() - start)
    return min(times[1:])  # the first one compiles and touches the pages


@functools.cache
def memory_bandwidth(threads: int) -> float:
    """Bytes per second of all threads together."""
    n = 64 * MB // 4
    arguments = [(*(np.ones(n, np.float32) for _ in range(3)), np.float32(2)) for _ in range(threads)]
    return 12 * n * threads / seconds(triad, arguments)


@functools.cache
def cache_bandwidth(size: int) -> float:
    """Bytes per second that one core reads from an array of `size` bytes, repeatedly."""
    times = max(1, 256 * MB // size)
    return times * size / seconds(read, [(np.ones(size // 4, np.float32), times)])


@functools.cache
def line_seconds(size: int) -> float:
    """Seconds that one core takes to read and write back one random cache line of an array of `size` bytes."""
    a = np.zeros(size // 4, np.float32)
    lines = np.random.default_rng(0).integers(0, len(a) // 16, 1_000_000, np.uint32)
    return seconds(touch, [(a, lines)]) / len(lines)


@functools.cache
def flops(threads: int) -> float:
    """Additions and multiplications per second in a product of single-precision matrices."""
    A = np.ones((2000, 2000), np.float32)
    with threadpool_limits(threads):
        return 2 * 2000**3 / seconds(np.matmul, [(A, A)])


def run(quick: bool = False) -> list[dict]:
    common = {"n": REPEATS, "command": COMMAND, "limit": "itself one"}
    rows = (
        ("memory", "triad over 3 x 64 MB a thread", "GB/s", [memory_bandwidth(threads) / 1e9 for threads in (2, 1)]),
        (
            "flops",
            "product of 2,000 x 2,000 matrices, float32",
            "Gflop/s",
            [flops(threads) / 1e9 for threads in (2, 1)],
        ),
    )
    records = [
        {
            "name": f"machine-{name}",
            "what": what,
            "ours": two,
            "peer": one,
            "peer_name": "one thread",
            "ratio": two / one,
            "unit": unit,
            "measured": f"best of {REPEATS}, 2 threads, elapsed time",
            **common,
        }
        for name, what, unit, (two, one) in rows
    ]
    small, large = 4 * MB, 400 * MB
    rows = (
        ("cache", "reading an array of 4 MB, as W at d = 1,000", "GB/s", cache_bandwidth, 1e-9),
        (
            "lines",
            "random lines of 4 MB read and written",
            "million lines/s",
            lambda size: 1 / line_seconds(size),
            1e-6,
        ),
    )
    for name, what, unit, measure, scale in rows:
        near, far = measure(small) * scale, measure(large) * scale
        records.append(
            {
                "name": f"machine-{name}",
                "what": what,
                "ours": near,
                "peer": far,
                "peer_name": "400 MB, as W at d = 10,000",
                "ratio": near / far,
                "unit": unit,
                "measured": f"best of {REPEATS}, 1 thread, elapsed time",
                **common,
            }
        )
    return records
