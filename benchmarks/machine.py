"""Peak speeds of this machine, for the limits of the other benchmarks: ``python -m benchmarks machine [--quick]``.

Memory: the triad ``a = b + s c`` over arrays too large for any cache (STREAM), bytes counted as it does, 12 for each
number; the writes' own fetches of lines are not counted. Cache: reading an array of the size that a kernel keeps busy.
Lines: adding to one number in each 64-byte line of an array of the size of W, lines in random order, one access
independent of the next. Arithmetic: single-precision matrix products. As these are limits, the best time counts.
"""

import functools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numba import njit
from threadpoolctl import threadpool_limits

from .records import ELAPSED, compared, record, seconds

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


def least_seconds(function, arguments) -> float:
    """Least elapsed time of the function called with all tuples of arguments at once, one thread per tuple."""
    with ThreadPoolExecutor(len(arguments)) as pool:
        times = [
            seconds(lambda: list(pool.map(lambda given: function(*given), arguments)), clock=ELAPSED)
            for _ in range(REPEATS + 1)
        ]
    return min(times[1:])  # the first one compiles and touches the pages


@functools.cache
def memory_bandwidth(threads: int) -> float:
    """Bytes per second of all threads together."""
    n = 64 * MB // 4
    arguments = [(*(np.ones(n, np.float32) for _ in range(3)), np.float32(2)) for _ in range(threads)]
    return 12 * n * threads / least_seconds(triad, arguments)


@functools.cache
def cache_bandwidth(size: int) -> float:
    """Bytes per second that one core reads from an array of `size` bytes, repeatedly."""
    times = max(1, 256 * MB // size)
    return times * size / least_seconds(read, [(np.ones(size // 4, np.float32), times)])


@functools.cache
def line_seconds(size: int) -> float:
    """Seconds that one core takes to read and write back one random cache line of an array of `size` bytes."""
    a = np.zeros(size // 4, np.float32)
    lines = np.random.default_rng(0).integers(0, len(a) // 16, 1_000_000, np.uint32)
    return least_seconds(touch, [(a, lines)]) / len(lines)


@functools.cache
def flops(threads: int) -> float:
    """Additions and multiplications per second in a product of single-precision matrices."""
    A = np.ones((2000, 2000), np.float32)
    with threadpool_limits(threads):
        return 2 * 2000**3 / least_seconds(np.matmul, [(A, A)])


def run(quick: bool = False) -> list[dict]:
    small, large = 4 * MB, 400 * MB
    cores = "one thread", "2 threads"
    sizes = "400 MB, as W at d = 10,000", "1 thread"
    rows = (
        ("memory", "triad over 3 x 64 MB a thread", "GB/s", *cores, [memory_bandwidth(n) / 1e9 for n in (2, 1)]),
        ("flops", "product of 2,000 x 2,000 matrices, float32", "Gflop/s", *cores, [flops(n) / 1e9 for n in (2, 1)]),
        (
            *("cache", "reading an array of 4 MB, as W at d = 1,000", "GB/s", *sizes),
            [cache_bandwidth(size) / 1e9 for size in (small, large)],
        ),
        (
            *("lines", "random lines of 4 MB read and written", "million lines/s", *sizes),
            [1e-6 / line_seconds(size) for size in (small, large)],
        ),
    )
    return [
        record(
            f"machine-{name}",
            what,
            peer_name,
            "itself one",
            compared(ours, peer, unit, REPEATS, higher=True),
            measured=f"best of {REPEATS}, {threads}, elapsed time",
        )
        for name, what, unit, peer_name, threads, (ours, peer) in rows
    ]
