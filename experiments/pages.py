"""Pages of results: what was measured, what the paper found, whether the two agree, and with which command."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.plots import save


@dataclass
class Table:
    """Rows of text or numbers under a caption."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


@dataclass
class Plot:
    """A figure, written as `<stem>.png`, and the numbers in it, written as `<stem>.csv`."""

    stem: str
    caption: str
    figure: Figure
    data: Sequence[dict[str, Any]]


@dataclass
class Finding:
    """A finding of a paper, and the corresponding result here.

    Parameters
    ----------
    paper : str
        What the paper found, with its figure where it gives one.
    here : str
        The same in figures of this run.
    agrees : bool
        By a rule over the results, never by hand.
    must : bool
        A broken learner would break it: the command fails where it does not hold.
    why : str
        Why not, as far as it was found out; printed only where it does not agree.
    of_paper : bool
        False for a check of our own, which is not counted with the papers' findings.
    """

    paper: str
    here: str
    agrees: bool
    must: bool = False
    why: str = ""
    of_paper: bool = True

    def __post_init__(self) -> None:
        self.agrees = bool(self.agrees)  # of NumPy, as rules over arrays give it, is not JSON


@dataclass
class Page:
    """One experiment: its parts are paragraphs (text), tables and plots, in order."""

    title: str
    source: str
    protocol: str
    findings: list[Finding]
    parts: list[str | Table | Plot] = field(default_factory=list)


def write_page(folder: Path, name: str, page: Page, *, command: str, code: str, quick: bool, seconds: float) -> None:
    """Write `<name>.md`, its PNG and CSV files, and `<name>.json` with the findings and the `code` they come from."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"# {page.title}", ""]
    if quick:
        lines += ["**Quick run: fewer folds and settings than the full experiment.**", ""]
    lines += [
        page.source,
        "",
        page.protocol,
        "",
        f"Written by `{command}`; {seconds / 60:.0f} minutes of one core.",
        "",
    ]
    lines += ["## What the paper found", "", *_findings(page.findings), "## Figures", ""]
    for part in page.parts:
        if isinstance(part, Table):
            lines += [f"**{part.caption}**", "", *markdown_table(part.columns, part.rows), ""]
        elif isinstance(part, Plot):
            save(part.figure, folder / f"{part.stem}.png")
            write_csv(folder / f"{part.stem}.csv", part.data)
            lines += [f"![{part.caption}]({part.stem}.png)", "", f"{part.caption} ([numbers]({part.stem}.csv))", ""]
        else:
            lines += [part, ""]
    (folder / f"{name}.md").write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
    record = {
        "title": page.title,
        "command": command,
        "code": code,
        "quick": quick,
        "core_seconds": round(seconds),
        "findings": [asdict(finding) for finding in page.findings],
    }
    (folder / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def write_summary(folder: Path, codes: Mapping[str, str]) -> list[str]:
    """Write `README.md` from the records of the pages in the folder; the findings that must hold and do not.

    `codes` has what each experiment's results would come from now: a page that comes from other code is said to.
    """
    records = {
        name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        for name in codes
        if (folder / f"{name}.json").exists()
    }
    findings = [finding for record in records.values() for finding in record["findings"]]
    agreeing = [finding["agrees"] for finding in findings if finding["of_paper"]]
    own = [finding["agrees"] for finding in findings if not finding["of_paper"]]
    lines = [
        "# The papers, reproduced",
        "",
        f"{sum(agreeing)} of {len(agreeing)} findings of the papers that were looked at hold on the data at hand too, "
        f"and {sum(own)} of {len(own)} checks of our own beside them. Each page says what was done, gives tables and "
        "figures with the numbers beneath them, and says why a finding is not repeated, where that was found out. "
        "`make reproduce` writes all of it, `make reproduce QUICK=1` a smaller version; these pages "
        f"took {sum(record['core_seconds'] for record in records.values()) / 60:.0f} minutes of one core in all.",
        "",
    ]
    for name, record in records.items():
        lines += [f"## [{record['title']}]({name}.md)", "", f"`{record['command']}`", ""]
        if record.get("code") != codes[name]:
            lines += ["**These are results of earlier code: run the command again.**", ""]
        lines += _findings([Finding(**finding) for finding in record["findings"]])
    (folder / "README.md").write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
    return [
        f"{name}: {finding['paper']} Here: {finding['here']}"
        for name, record in records.items()
        for finding in record["findings"]
        if finding["must"] and not finding["agrees"]
    ]


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Markdown lines of a table."""
    body = ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns), *body]


def write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """The rows under the keys of the first; numbers with six significant digits."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({key: f"{cell:.6g}" if isinstance(cell, float) else cell for key, cell in row.items()})


def _findings(findings: Sequence[Finding]) -> list[str]:
    rows = [[finding.paper, finding.here, "yes" if finding.agrees else "**no**"] for finding in findings]
    lines = [*markdown_table(["The paper", "Here", "Agrees"], rows), ""]
    reasons: dict[str, list[str]] = {}
    for finding in findings:
        if not finding.agrees and finding.why:
            reasons.setdefault(finding.why, []).append(f"*{finding.paper}*")
    for why, papers in reasons.items():
        lines += [f"{' '.join(papers)} {why}", ""]
    return lines
