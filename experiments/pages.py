"""Pages of results: a template per experiment, with its prose, its claims and their rules, filled with its figures.

A template of experiments/templates extends `page.md.jinja`. Its lines are joined to paragraphs; a blank line begins the
next. In it, `claim` states what a paper found, what was found here, and the rule that judges it; `table` and `plot` set
rows and drawings. Other names in it are those of the module that measures, those of the experiment's own module, and
what this one's `facts` returns.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

from benchmarks.plots import PLACES, new_figure, save, series
from visterm.pipeline.console import count

from .claims import CLAIMS, PAPERS
from .measured.grids import HOPELESS, MOST_DOUBLINGS
from .statistics import TEST_PER_TRAIN, clearly_above, difference, interval, mean_and_error, plus_minus, ratio_text

# What judges a finding.
KINDS = {
    "paper": "what the paper states",
    "threshold": "a threshold of ours",
    "construction": "by construction",
}
VERDICTS = ("holds", "same direction", "does not hold", "open", "not comparable")
SIZES = ("inside", "excluded", "outside, no interval", "not comparable", "not measured")
FEWEST = 3  # repeats that a test needs

Results = list[dict[str, Any]]


@dataclass
class Finding:
    """A finding of a paper, and the corresponding result here."""

    paper: str  # what the paper found, with its figure where it gives one
    here: str  # the same in figures of this run
    agrees: bool  # by a rule over the results, never by hand; with a threshold of ours: whether that is met
    must: bool = False  # a broken learner would break it: the command fails where it does not hold
    why: str = ""  # why not, as far as it was found out; printed only where it does not hold
    of_paper: bool = True  # False for a check of our own, which is not counted with the papers' findings
    # "paper": the paper states the figure or the ordering that is judged. "threshold": how much is enough is ours.
    # "construction": it holds by the way the figures are made.
    kind: str = "paper"
    # Settings at the edge of what was tried in most folds: the best may lie beyond, so that the verdict is open.
    edges: str = ""
    name: str = ""  # of the claim in claims.py; "" for a check of our own
    # Of what the paper puts ahead, less the other: mean, both ends of the 95 % interval, number of repeats. None where
    # the rule looks at something else.
    difference: Sequence[float | None] | None = None
    base: float | None = None  # mean of the other
    # What is measured of a size of the unit "value": mean and both ends of the 95 % interval, if it has one.
    sized: Sequence[float | None] | None = None
    repeat: bool = False  # the same claim in another place, which is not counted again

    def __post_init__(self) -> None:
        self.agrees = bool(self.agrees)  # of NumPy, as rules over arrays give it, is not JSON
        if self.kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {self.kind!r}")
        # NaN is not JSON.
        self.difference, self.sized = (
            some and [None if one is None or one != one else one for one in some]
            for some in (self.difference, self.sized)
        )

    @property
    def verdict(self) -> str:
        """One of `VERDICTS`.

        By the 95 % interval of the difference: "holds" above zero, "does not hold" below it, "same direction" where it
        has zero within and the mean is ahead, "open" where the mean is not, repeats are too few for a test, or
        settings lie at the edge of the grid. Without a difference by the rule.
        """
        if self.name and not CLAIMS[self.name].comparable:
            return "not comparable"
        if self.edges:
            return "open"
        if self.difference is None:
            return "holds" if self.agrees else "does not hold"
        mean, clear = self.difference[0], self.sign
        if clear == "not tested":
            return "open"
        return {"clear +": "holds", "clear -": "does not hold"}.get(clear, "same direction" if mean > 0 else "open")

    @property
    def sign(self) -> str:
        """Whether the difference is clear, whatever the settings are; or whether the rule is met."""
        if self.difference is None:
            return "rule met" if self.agrees else "rule not met"
        _, low, high, n = self.difference
        if n is None or n < FEWEST or low is None or high is None:
            return "not tested"
        return "clear +" if low > 0 else "clear -" if high < 0 else "not clear"

    @property
    def size(self) -> str:
        """Where the paper's size lies, of `SIZES`: in the 95 % interval of what is measured; empty if it gives none."""
        claim = CLAIMS.get(self.name)
        if claim is None or not claim.size:
            return ""
        if not claim.comparable:
            return "not comparable"
        mean, low, high = self.measured_size
        if mean is None:
            return "not measured"
        has_interval = low is not None and high is not None
        low, high = (low, high) if has_interval else (mean, mean)
        if low <= max(claim.size) and high >= min(claim.size):
            return "inside"
        return "excluded" if has_interval else "outside, no interval"

    @property
    def measured_size(self) -> Sequence[float | None]:
        """Mean and both ends of the 95 % interval of what the paper gives a size of, in the unit of the claim."""
        unit, nothing = CLAIMS[self.name].unit, [None, None, None]
        if unit == "value":
            return self.sized or nothing
        ends = nothing if self.difference is None else self.difference[:3]
        if unit == "points":
            return ends
        return [None if end is None or not self.base else 1 + end / self.base for end in ends]

    @property
    def size_text(self) -> str:
        """The verdict on the size, and what is measured."""
        if not self.size:
            return "none given"
        mean, low, high = (one and (f"{one:.3g}" if abs(one) < 1000 else f"{one:,.0f}") for one in self.measured_size)
        times = " times" * (CLAIMS[self.name].unit == "times")
        return self.size + (f": {mean}{f' [{low}, {high}]' if low and high else ''}{times}" if mean else "")

    @property
    def stated(self) -> bool:
        """Whether it is a claim of a paper, which is counted."""
        return self.of_paper and not self.repeat

    @property
    def lead(self) -> str:
        """The difference and its 95 % interval."""
        if self.difference is None:
            return ""
        mean, low, high, n = self.difference
        largest = max(abs(end) for end in (mean, low, high) if end is not None)
        places = 1 if largest >= 0.5 else 4 if abs(mean) < 0.003 else 3
        ends = "" if low is None or high is None else f" [{low:.{places}f}, {high:.{places}f}]"
        return f"{mean:+.{places}f}{ends}, n = {n}"


class Plot(NamedTuple):
    """A figure, written as `<stem>.png`, and the numbers in it, written as `<stem>.csv`."""

    stem: str
    figure: Figure
    data: Sequence[dict[str, Any]]
    photos: bool = False  # it has some, so that 256 colours are enough to keep the file small


@dataclass
class Page:
    """One experiment: its text as Markdown, the findings and plots of its template, and its notes for other pages."""

    text: str = ""
    findings: list[Finding] = field(default_factory=list)
    plots: list[Plot] = field(default_factory=list)
    notes: Mapping[str, str] = field(default_factory=dict)

    def claim(
        self,
        name: str,
        agrees: Any,
        *,
        of: Sequence[tuple[Any, Any]] = (),
        per: float = TEST_PER_TRAIN,
        sized: Any = None,
        kind: str = "paper",
        must: bool = False,
        repeat: bool = False,
        edges: str = "",
        caller: Callable[[], str],
    ) -> str:
        """Add a finding; its text holds what the paper found, what was found here and, perhaps, why not, after `==`.

        `name` is that of the claim in claims.py, "" for a check of our own. `of` are pairs of what the paper puts ahead
        and the other, fold by fold: the pair that is least ahead counts, as the claim is about all of them. `per` are
        test images per training image, for the interval. `sized` is what is measured of a size of the unit "value": one
        value a fold, or one value, which has no interval.
        """
        paper, here, *why = (joined(part) for part in re.split(r"^==", caller(), flags=re.MULTILINE))
        leads = [(interval(ahead, behind, per), float(np.mean(behind))) for ahead, behind in of]
        least, base = min(
            leads, key=lambda one: one[0][1] if one[0][1] == one[0][1] else one[0][0], default=(None, None)
        )
        measured = None if sized is None else interval(np.atleast_1d(sized), np.zeros(np.size(sized)), per)[:3]
        finding = Finding(
            paper, here, agrees, must, "".join(why), bool(name), kind, edges, name, least, base, measured, repeat
        )
        self.findings.append(finding)
        return ""

    def plot(self, plot: Plot, *, caller: Callable[[], str]) -> str:
        """Add a plot, and show it over its caption."""
        self.plots.append(plot)
        stem, caption = plot.stem, joined(caller())
        return f"![{caption}]({stem}.png)\n\n{caption} ([numbers]({stem}.csv))\n\n"


def joined(text: str) -> str:
    """A paragraph's lines as one; those of a table and items of a list stay."""
    lines = "\n".join(line.strip() for line in text.splitlines() if line.strip())
    return re.sub(r"\n(?!\||- )", " ", lines)


def render(
    experiment: Any,
    results: Results,
    quick: bool = False,
    *,
    command: str = "",
    seconds: float = 0.0,
    noted: Sequence[str] = (),
) -> Page:
    """The page of an experiment's module, with what other experiments have `noted` for it."""
    page = Page()
    facts = experiment.facts(results)
    page.notes = facts.get("notes", {})
    names = vars(sys.modules[experiment.measure.__module__]) | vars(experiment) | facts
    given = {"claim": page.claim, "plot": page.plot, "findings": page.findings, "noted": noted}
    page.text = _fill(name_of(experiment), names | given, quick=quick, command=command, minutes=seconds / 60)
    return page


def name_of(experiment: Any) -> str:
    return experiment.__name__.rpartition(".")[2]


def _fill(template: str, names: Mapping[str, Any], **more: Any) -> str:
    text = _TEMPLATES.get_template(f"{template}.md.jinja").render(names, **more)
    return "\n\n".join(filter(None, map(joined, re.split(r"\n\s*\n", text)))) + "\n"


def write_page(folder: Path, experiment: Any, results: Results, *, command: str, code: str, quick: bool) -> None:
    """Write `<name>.md`, its PNG and CSV files, and `<name>.json` with the findings and the `code` they come from."""
    folder.mkdir(parents=True, exist_ok=True)
    name, seconds = name_of(experiment), sum(result["seconds"] for result in results)
    noted = notes_for(name, folder)
    page = render(experiment, results, quick=quick, command=command, seconds=seconds, noted=noted)
    for plot in page.plots:
        save(plot.figure, folder / f"{plot.stem}.png", few_colours=plot.photos)
        write_csv(folder / f"{plot.stem}.csv", plot.data)
    (folder / f"{name}.md").write_text(page.text, encoding="utf-8")
    record = {
        "title": page.text.splitlines()[0].removeprefix("# "),
        "command": command,
        "code": code,
        "quick": quick,
        "core_seconds": round(seconds),
        "vectors": checksums(results),
        "notes": dict(page.notes),
        "findings": [asdict(finding) for finding in page.findings],
    }
    (folder / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def checksums(results: Results) -> dict[str, list[str]]:
    """Checksums of the vectors that the results come from, by the set of images."""
    by_set: dict[str, set[str]] = {}
    for result in results:
        for name, some in result.get("checksums", {}).items():
            by_set.setdefault(name, set()).update(some)
    return {name: sorted(some) for name, some in sorted(by_set.items())}


def write_summary(folder: Path, codes: Mapping[str, str]) -> list[str]:
    """Write `README.md` from the records of the pages in the folder; the findings that must hold and do not.

    `codes` has what each experiment's results would come from now: a page that comes from other code is said to.
    """
    records = read_records(folder, codes)
    findings = [(name, finding) for name, record in records.items() for finding in record["findings"]]
    text = _fill(
        "README",
        {
            "records": records,
            "papers": PAPERS,
            "CLAIMS": CLAIMS,
            "tables": {key: claims_table(key, findings) for key in PAPERS},
            "earlier": [name for name, record in records.items() if record.get("code") != codes[name]],
            "of_print": [name for name, record in records.items() if "vectors" not in record],
            "count_text": count_text(one for _, one in findings),
            "unsettled": [
                CLAIMS[one.name] for _, one in findings if one.stated and one.verdict in ("open", "same direction")
            ],
            "repeats": other_table((n, one) for n, one in findings if one.repeat),
            "own": other_table((n, one) for n, one in findings if not one.of_paper),
            "minutes": sum(record["core_seconds"] for record in records.values()) / 60,
        },
    )
    (folder / "README.md").write_text(text, encoding="utf-8")
    return [
        f"{name}: {finding.paper} Here: {finding.here}"
        for name, finding in findings
        if finding.must and not finding.agrees
    ]


def render_again(folder: Path, codes: Mapping[str, str]) -> None:
    """Write the findings of each page in the folder again, from its record, as templates and verdicts are now.

    Figures and tables of results need the results: `make reproduce` writes them.
    """
    for name, record in read_records(folder, codes).items():
        page = folder / f"{name}.md"
        text = page.read_text(encoding="utf-8")
        before, heading, rest = text.partition(FINDINGS_BEGIN)
        _, figures, after = rest.partition(FINDINGS_END)
        if not (heading and figures):
            raise ValueError(f"{page} has no findings between {FINDINGS_BEGIN.strip()!r} and {FINDINGS_END.strip()!r}")
        own = "\n\n" + findings_text(record["findings"], notes_for(name, folder)) + "\n\n"
        page.write_text(before + heading.rstrip() + own + figures.lstrip() + after, encoding="utf-8")


FINDINGS_BEGIN, FINDINGS_END = "## What the paper found\n", "## Figures\n"


def read_records(folder: Path, names: Sequence[str] | Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """What `write_page` recorded of each page in the folder."""
    files = {name: folder / f"{name}.json" for name in names}
    records = {name: json.loads(file.read_text(encoding="utf-8")) for name, file in files.items() if file.is_file()}
    return {
        name: record | {"findings": [Finding(**finding) for finding in record["findings"]]}
        for name, record in records.items()
    }


def count_text(findings: Iterable[Finding]) -> str:
    """How many of the papers' claims have each verdict, and how many of their sizes."""
    counted = [one for one in findings if one.stated]
    verdicts, sizes = Counter(one.verdict for one in counted), Counter(one.size for one in counted if one.size)
    hold, same, against, undecided, other = (verdicts[verdict] for verdict in VERDICTS)
    inside, excluded, outside, others = (sizes[size] for size in SIZES[:4])
    return (
        f"Of {len(counted)} claims of the papers, {hold} hold here, {same} point the same way, {against} do not hold, "
        f"{undecided} are open, and {other} are not comparable. Of the {sizes.total()} sizes that they give, {inside} "
        f"lie in the interval here, {excluded} are excluded, {outside} differ from a figure without an interval, "
        f"and {others} are not comparable."
    )


def claims_table(paper: str, findings: Iterable[tuple[str, Finding]]) -> str:
    """A paper's claims in a line each, with a link to the page by its name."""
    rows = [
        [CLAIMS[one.name].words, CLAIMS[one.name].figure, one.lead, one.sign, one.size_text, one.verdict, f"[{page}]"]
        for page, one in findings
        if one.stated and CLAIMS[one.name].paper == paper
    ]
    return markdown_table(["Claim", "Paper", "Difference here", "Sign", "The paper's size", "Verdict", ""], rows)


def other_table(findings: Iterable[tuple[str, Finding]]) -> str:
    """Checks of our own, and claims in another place than the one that counts."""
    rows = [[one.paper, one.lead, one.verdict, f"[{page}]"] for page, one in findings]
    return markdown_table(["", "Difference", "Verdict", ""], rows)


def notes_for(page: str, folder: Path) -> list[str]:
    """What the experiments whose records are in the folder noted for this page."""
    records = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))]
    return [record["notes"][page] for record in records if page in record.get("notes", ())]


def findings_text(findings: Sequence[Finding], noted: Sequence[str] = ()) -> str:
    """The findings as a table, then why verdicts are open, why findings do not hold, and what others have noted."""
    rows = [[one.paper, one.here, one.lead, one.sign, one.size_text, one.verdict, _judged_by(one)] for one in findings]
    columns = ["The paper", "Here", "Difference, 95 % interval", "Sign", "The paper's size", "Verdict", "Judged by"]
    parts = [markdown_table(columns, rows)]
    parts += [f"*{one.paper}* {one.edges}" for one in findings if one.edges]
    reasons: dict[str, list[str]] = {}
    for one in findings:
        if one.verdict != "holds" and not one.edges and one.why:
            reasons.setdefault(one.why, []).append(f"*{one.paper}*")
    return "\n\n".join([*parts, *(f"{' '.join(papers)} {why}" for why, papers in reasons.items()), *noted])


def _judged_by(one: Finding) -> str:
    """What judges it; a threshold beside a difference is met or not, and does not decide."""
    if not one.of_paper:
        return "our own check"
    also = f", {'met' if one.agrees else 'not met'}" if one.kind == "threshold" and one.difference is not None else ""
    return f"{KINDS[one.kind]}{also}{', counted elsewhere' if one.repeat else ''}"


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table in Markdown."""
    body = ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns), *body])


def write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """The rows under the keys of the first; numbers with six significant digits."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({key: f"{cell:.6g}" if isinstance(cell, float) else cell for key, cell in row.items()})


# -- what several pages say and draw -----------------------------------------------------------------------------------


class Panel(NamedTuple):
    """One of a plot's axes."""

    curves: Mapping[str, tuple[Any, Any]]  # x and values (folds, len(x)) by name: means with standard errors are drawn
    axes: Mapping[str, Any]  # properties of the axes
    columns: Mapping[str, Any] = {}  # what the CSV file says of these curves in columns of its own
    finish: Callable[[Any], Any] | None = None  # draws more on the axes


def draw(
    stem: str,
    panels: Sequence[Panel],
    *,
    width: float | None = None,
    title: str | None = None,
    order: Sequence[str] = (),
) -> Plot:
    """Mean curves with standard errors in panels side by side, under one legend with this title.

    A system has its look of `PLACES`, other curves have theirs by their place in `order`, or as they come.
    """
    figure, axes = new_figure(len(panels), width=width)
    rows: list[dict[str, Any]] = []
    places = {name: place for place, name in enumerate(order)}
    for one, panel in zip(axes, panels, strict=True):
        for name, (x, values) in panel.curves.items():
            place = places.setdefault(name, len(places))
            mean, error = np.transpose([mean_and_error(column) for column in np.transpose(values)])
            series(one, name if name in PLACES else place, x, mean, error=error, label=name)
            rows += [
                {**panel.columns, "series": name, "x": at, "mean": float(m), "standard_error": float(e)}
                for at, m, e in zip(x, mean, error, strict=True)
            ]
        one.set(**panel.axes)
        for axis in (one.xaxis, one.yaxis):
            if axis.get_scale() == "log" and axis.get_view_interval().max() < 1e4:  # 60 in place of 6 x 10^1
                axis.set_major_formatter(LogFormatter())
                axis.set_minor_formatter(LogFormatter(labelOnlyBase=False))
        if panel.finish:
            panel.finish(one)
    lines = {name: line for one in axes for line, name in zip(*one.get_legend_handles_labels(), strict=True)}
    figure.legend(lines.values(), lines.keys(), loc="outside right center", frameon=False, title=title)
    return Plot(stem, figure, rows)


def set_ticks(ticks: Sequence[int]) -> Callable[[Any], None]:
    """Function that labels these places of a logarithmic x axis, and no others."""

    def finish(axes: Any) -> None:
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.set_xticks([], minor=True)

    return finish


def select(results: Results, **wanted: Any) -> Results:
    """The results that have these parameters."""
    return [one for one in results if all(one.get(key) == value for key, value in wanted.items())]


def open_text(systems: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Why a verdict over these systems is open: the settings at the edge of each in most folds; empty if none are."""
    texts = [f"{name}: {', '.join(names)}" for name, records in systems.items() if (names := at_edge(records))]
    return f"At the edge of what was tried in most folds: {'; '.join(texts)}." if texts else ""


def at_edge(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Settings that more than half of the records, one a fold, have at the edge."""
    counts = Counter(name for record in records for name in record.get("edges", ()))
    return [name for name, count in counts.items() if 2 * count > len(records)]


def settings_text(records: Sequence[Mapping[str, Any]], names: Sequence[str] = ()) -> str:
    """Chosen settings with the number of folds that chose each; a star marks those at the edge."""
    parts = []
    for name in names or records[0]["settings"]:
        chosen = Counter((r["settings"][name], name in r["edges"]) for r in records if name in r["settings"])
        cells = [f"{value:,.10g}{'*' * edge} ({n})" for (value, edge), n in sorted(chosen.items())]
        parts.append(f"{name} {', '.join(cells)}")
    return "; ".join(parts)


def settings_by_fold(records: Sequence[Mapping[str, Any]]) -> str:
    """Chosen settings, fold by fold; a star marks those at the edge."""
    texts = []
    for key in records[0]["settings"]:
        values = [f"{one['settings'][key]:g}" + "*" * (key in one["edges"]) for one in records]
        texts.append(f"{key} {', '.join(values)}")
    return "; ".join(texts)


_TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters |= {"f": format, "plus_minus": plus_minus, "mean": lambda values: float(np.mean(values))}
_TEMPLATES.globals |= {
    "clearly_above": clearly_above,
    "count": count,
    "difference": difference,
    "findings_text": findings_text,
    "plus_minus": plus_minus,
    "ratio_text": ratio_text,
    "table": markdown_table,
}
_TEMPLATES.globals["growth"] = joined(
    _TEMPLATES.get_template("growth.md.jinja").render(doublings=MOST_DOUBLINGS, hopeless=HOPELESS)
)
