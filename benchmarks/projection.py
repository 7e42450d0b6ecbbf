"""Estimated resources for many images, from the measured records: ``python -m benchmarks.projection``.

Reads benchmarks/results.json and prints the table of docs/scale.md. Every line grows with the number of images as its
formula says; nothing here was run at these sizes. Prices are not measured: they are round figures for rented machines.
"""

from __future__ import annotations

import json

from . import page
from .__main__ import RESULTS

IMAGES = {100e6: "100 million images", 10e9: "10 billion images"}
ENTRIES = 70  # visterms of an image
# Values in single precision, columns, and the end of the row; where parts have less than 2^31 entries.
VECTOR_BYTES = ENTRIES * 8 + 4
DIRECTIONS = 512  # numbers of an embedding in Milvus
NUMBERS = 1280  # of a deep vector
MACHINE_GB = 256
MACHINE_CORES = 32
CORE_HOUR = 0.05  # dollars, with 8 GB of memory
GB_MONTH = 0.05  # dollars, of disk
HOURS_A_MONTH = 730


def table(records: dict[str, dict]) -> str:
    """Markdown table: one row per part, one column for each of `IMAGES`."""
    rows: list[list[str]] = []

    def add(what: str, formula) -> None:
        rows.append([what, *(formula(n) for n in IMAGES)])

    core_hours = 2 * records["extract-10000-2cores"]["ours"] / 1000 / 3600  # an image
    row = {
        place: 1e6 * records["catalogue-memory"][place] / records["catalogue-memory"]["n"] for place in ("ours", "peer")
    }
    scan = records["catalogue-scan"]["ours"] / records["catalogue-scan"]["n"]
    training = records["webscale-training"]
    exact, lists = records["search-1m"], records["search-two-stage-1m"]
    entries = ENTRIES / 35  # the record was measured with 35 per image

    def memory(n: float) -> float:
        return n * (2 * VECTOR_BYTES + row["ours"])  # by rows and, for the lists, by columns

    def machines(n: float) -> int:
        return int(-(-memory(n) // (0.75e9 * MACHINE_GB)))  # a quarter stays free

    add("extraction, core-hours", lambda n: number(n * core_hours))
    add("the same, dollars", lambda n: number(n * core_hours * CORE_HOUR))
    add("vectors on disk", lambda n: size(n * VECTOR_BYTES))
    add("catalogue on disk", lambda n: size(n * row["peer"]))
    add("dollars a month for both", lambda n: number(n * (VECTOR_BYTES + row["peer"]) / 1e9 * GB_MONTH))
    add("comparing all files with the catalogue, one process", lambda n: hours(n * scan / 3600))
    add("rows of the catalogue in memory, to search", lambda n: size(n * row["ours"]))
    add(
        f"learning from {training['n'] / 1e6:.0f}M triplets, two cores, W of 400 MB",
        lambda n: hours(training["ours"] / 60),
    )
    add("exact search, two cores, a query", lambda n: hours(n * exact["ours"] * entries / exact["n"] / 3.6e6))
    add("two stages, two cores, a query", lambda n: hours(n * lists["ours"] * entries / lists["n"] / 3.6e6))
    add("two stages, memory in all", lambda n: size(memory(n)))
    add(f"machines of {MACHINE_GB} GB and {MACHINE_CORES} cores to search", lambda n: number(machines(n)))
    add(
        "two stages there, each machine its part",
        lambda n: hours(n * lists["ours"] * entries / lists["n"] / 3.6e6 / machines(n)),
    )
    add("these machines, dollars a month", lambda n: number(machines(n) * MACHINE_CORES * CORE_HOUR * HOURS_A_MONTH))
    add(f"embeddings of {DIRECTIONS} numbers in Milvus", lambda n: size(n * DIRECTIONS * 4))
    return page.table(("", *IMAGES.values()), rows)


def deep_table(records: dict[str, dict]) -> str:
    """Markdown table of deep vectors: one row per part, 100 million images, trained on a sample."""
    n, one = 100e6, {name: records[name]["ours"] / 1000 / 3600 for name in ("deep-extract", "deep-extract-12mp")}
    building, links = records["million-index"], 32
    graph = NUMBERS + 2 * links * 4 + 24  # 8 bits per number, ids of neighbours, an id and places
    neighbours = records["neighbours-deep-100000-bytes"]["ours"]
    catalogue = 1e6 * records["catalogue-memory"]["ours"] / records["catalogue-memory"]["n"]
    rows = [
        ["extraction, photos of 300 x 240, core-hours", number(n * 2 * one["deep-extract"])],
        [
            "extraction, photos of 12 megapixels, of which decoding is most, core-hours",
            number(n * 2 * one["deep-extract-12mp"]),
        ],
        ["vectors on disk, float16", size(n * 2 * NUMBERS)],
        ["graph of the index, on disk and, to search, in memory", size(n * graph)],
        [
            "building it, two cores, if time grows with the number of images alone",
            hours(n * building["ours"] / building["n"] / 3600),
        ],
        ["the gallery's neighbours on disk", size(n * neighbours)],
        ["rows of the catalogue in memory, to search", size(n * catalogue)],
        [
            f"machines of {MACHINE_GB} GB to search: graph and catalogue, a quarter free",
            number(-(-n * (graph + catalogue) // (0.75e9 * MACHINE_GB))),
        ],
        ["training OASIS on a sample of 4 million, whitened vectors on disk", size(4e6 * 4 * NUMBERS)],
        ["exported as int8 with scales", size(n * (NUMBERS + 4))],
        ["the same as codes of 64 bytes (product quantisation), in FAISS outside of visterm", size(n * 64)],
    ]
    return page.table(("", "100 million photos"), rows)


def number(value: float) -> str:
    """Two significant digits."""
    return f"{float(f'{value:.2g}'):,.0f}" if value >= 10 else f"{value:.2g}"


def size(n_bytes: float) -> str:
    for unit in ("GB", "TB"):
        n_bytes /= 1e9 if unit == "GB" else 1e3
        if n_bytes < 1000:
            break
    return f"{number(n_bytes)} {unit}"


def hours(value: float) -> str:
    for unit, least, factor in (("days", 48, 1 / 24), ("h", 2, 1), ("min", 2 / 60, 60)):
        if value >= least:
            return f"{number(value * factor)} {unit}"
    return f"{number(3600 * value)} s"


if __name__ == "__main__":
    records = {record["name"]: record for record in json.loads(RESULTS.read_text())}
    print(table(records), deep_table(records), sep="\n", end="")
