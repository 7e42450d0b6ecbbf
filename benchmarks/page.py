"""docs/benchmarks.md: the records as one table per topic."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE = DOCS / "benchmarks.md"
FIGURE = DOCS / "growth.png"
SCALE = DOCS / "scale.png"

# A record belongs to the first topic whose pattern matches the beginning of its name.
TOPICS = {
    "The machine": r"machine-",
    "Web scale": r"webscale-",
    "Growth": r"growth-",
    "Memory": r".*memory$",
    "Extraction": r"startup|features-|extract-|deep-|cluster-|catalogue-",
    "Codebook": r"codebook-",
    "Service": r"service-",
    "Quality": r".*-(map|quality|p1)(-|$)|fitting-|wsabie-single|musl-k",
    "Search": r"search-|knn-|milvus-|neighbours-(deep|visterms)-",
    "Training": r"",
}
ORDER = (
    *("Extraction", "Codebook", "Training", "Search", "Service", "Growth", "Web scale", "Memory", "Quality"),
    "The machine",
)

HEAD = """# Benchmarks

Written by `make bench` (speed) and `python -m experiments.studies NAME` (quality), which also keep the raw figures in
`benchmarks/results.json`. A peer ran in the same session,
on the same data. A ratio above 1 means that ours is better. Figures are medians where "measured" says so. Machines
differ: compare ratios. [performance.md](performance.md) explains the figures.
"""
COLUMNS = ("What", "Ours", "Peer", "Ratio", "Physical limit", "Measured")
FIGURES = {
    "Growth": "![Time a triplet, time a query, and memory, against the number of images](growth.png)",
    "Web scale": "![mAP against triplets, and time a triplet against the number of images](scale.png)",
}


def topic(record: dict) -> str:
    return next(name for name, pattern in TOPICS.items() if re.match(pattern, record["name"]))


def number(value: float) -> str:
    """Three digits, without an exponent."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def peer(record: dict) -> str:
    return ("more than " if record.get("at_least") else "") + number(record["peer"])


def line(record: dict) -> str:
    """A record as a line for the terminal."""
    ours = f"{number(record['ours'])} {record['unit']}"
    return f"{record['name']:28} {ours:24} {peer(record):>12} ({record['peer_name']})  ratio {record['ratio']:.2f}"


def row(record: dict) -> list[str]:
    more = "more than " if record.get("at_least") else ""
    # If the limit is a figure: how close ours comes to it.
    near = f"; ours takes {record['ours'] / record['bound']:.1f} times that" if "bound" in record else ""
    ratio = f"{record['ratio']:.2f}" if record["ratio"] < 100 else number(record["ratio"])
    return [
        f"`{record['name']}`: {record['what']}",
        f"{number(record['ours'])} {record['unit']}",
        f"{peer(record)}: {record['peer_name']}",
        f"{more}{ratio}",
        f"{record['limit']}{near}",
        f"{record['measured']}; `{record['command']}`",
    ]


def text(records: list[dict]) -> str:
    """The page."""
    page = HEAD
    for name in ORDER:
        rows = [row(record) for record in records if topic(record) == name]
        if rows:
            figure = f"\n{FIGURES[name]}\n" if name in FIGURES else ""
            page += f"\n## {name}\n{figure}\n{table(COLUMNS, rows)}"
    return page


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    names = "".join(f" {name} |" if name else " |" for name in head)
    lines = [f"|{names}", "|---" * len(head) + "|", *(f"| {' | '.join(cells)} |" for cells in rows)]
    return "".join(f"{line}\n" for line in lines)


def replace(page: Path, name: str, text: str) -> None:
    """Write what stands between two comments of a page."""
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
    before, _, rest = page.read_text().partition(begin)
    page.write_text(f"{before}{begin}\n{text}\n{end}{rest.partition(end)[2]}")


def write(records: list[dict]) -> None:
    """Write the page, and the figures whose records exist."""
    PAGE.write_text(text(records))
    drawn = {topic(record) for record in records}
    if "Growth" in drawn:
        from .growth import draw

        draw(records, FIGURE)
    if "Web scale" in drawn:
        from . import scale

        scale.draw(records, SCALE)
