"""Every system, table and figure of the five papers: on which page it is, or why it is on none.

`write_coverage` links the pages that are in the folder and says how their findings hold, from their records.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from .claims import CLAIMS, PAPERS
from .pages import VERDICTS, markdown_table, read_records


class Row(NamedTuple):
    """A system, a table or a figure."""

    paper: str  # a key of `PAPERS`
    item: str
    where: str  # name of an experiment; or a path in the repository's docs; or "" if it is not repeated
    note: str = ""  # what is different; or why it is not repeated


WEB = "the web images, their queries and clicks are not public"
LABELS = "ImageNet of 15,952 labels and web data of 109,444 are not at hand: here categories of Caltech-101"
MANY = f"{LABELS}, and 1,452 words of subject lines, which decide"
ROWS = (
    Row("JMLR", "OASIS", "retrieval"),
    Row(
        "JMLR",
        "section 2.3: irrelevant images that nobody looked at",
        "",
        "needs queries whose images are mostly irrelevant: of 38 classes a label says which are",
    ),
    Row("JMLR", "Euclidean distance", "retrieval"),
    Row("JMLR", "MCML", "retrieval", "our own, by L-BFGS"),
    Row("JMLR", "LEGO", "retrieval", "of pairs, as compared; triplets beside it"),
    Row("JMLR", "LMNN", "retrieval", "metric-learn's, on principal components"),
    Row(
        "JMLR",
        "RCA, Xing's method (tried, not reported)",
        "retrieval",
        "baselines; of Xing's, on 10 classes here, the paper claims no more than that it is too slow",
    ),
    Row("JMLR", "figure 1: the algorithm", "api/learners.md"),
    Row("JMLR", "figure 2: the local binary pattern", "features.md"),
    Row("JMLR", "section 3: visterms by k-means", "seeds", "what another seed is worth"),
    Row("JMLR", "tables 1 to 3: the web data, and answers on it", "", WEB),
    Row("JMLR", "figure 3A: precision on web images", "scale.md", f"synthetic images, as many: {WEB}"),
    Row("JMLR", "figures 3B to 3D, appendix A: human evaluation", "../plugins/judge/README.md", "to be run by people"),
    Row(
        "JMLR",
        "figure 4: time against the number of images",
        "speed",
        "to early stopping, on synthetic images; LMNN beside it",
    ),
    Row("JMLR", "figure 5: mAP along the steps", "learning"),
    Row("JMLR", "figure 6, table 4: precision of all systems", "retrieval", "Caltech-101 in place of Caltech-256"),
    Row("JMLR", "table 5: training time of all systems", "speed"),
    Row("JMLR", "figure 7: averaged rankers", "variants"),
    Row("JMLR", "figure 8: symmetric variants", "variants"),
    Row("JMLR", "figure 9: positive semi-definite projections", "printed"),
    Row("JMLR", "section 7: classes that were not trained on", "open-world.md", "left to later work in the paper"),
    Row("JMLR", "theorem 1: a bound of mistakes", "details"),
    Row("JMLR", "section 5.3.2: LEGO's eta", "details"),
    Row("JMLR", "section 5.3.3: LMNN on training images", "details", "metric-learn's, on all principal components"),
    Row("JMLR", "section 6.1: the time of Dissim-OASIS", "details"),
    Row(
        "JMLR", "table 4, figure 7: 249 classes", "", "Caltech-256 is not at hand: 38 categories are, in the other rows"
    ),
    Row(
        "JMLR",
        "table 5, figure 4: fast LMNN, with active sets",
        "",
        "its authors' code; metric-learn's LMNN has no active sets",
    ),
    Row("NIPS", "section 4.1: clicks cut off at a share", "api/learners.md", f"`click_cutoff` takes a share; {WEB}"),
    Row("NIPS", "table 1: answers on the web data", "", WEB),
    Row("NIPS", "figure 1 (a): human evaluation", "../plugins/judge/README.md", "to be run by people"),
    Row("NIPS", "figure 1 (b): time against the number of images", "speed", "as figure 4 of JMLR"),
    Row("NIPS", "figure 2: precision of all systems", "retrieval", "as figure 6 of JMLR"),
    Row("NIPS", "table 2: training time of all systems", "speed", "as table 5 of JMLR"),
    Row("NIPS", "section 4.3.1, figure 3 (a): symmetric variants", "variants"),
    Row("NIPS", "section 4.3.2, figure 3 (b): positive semi-definite projections", "printed"),
    Row("NIPS", "abstract: metrics made of similarities", "retrieval", "against MCML, LEGO and LMNN"),
    Row("AROMA", "AROMA, diagonal and factored", "retrieval"),
    Row("AROMA", "HIER", "retrieval", "with the is-a table of the repository"),
    Row("AROMA", "ITML", "newsgroups", "metric-learn's, on principal components"),
    Row("AROMA", "figures 1 and 2: the algorithms", "api/learners.md"),
    Row("AROMA", "figure 3, left: precision of all systems", "retrieval"),
    Row("AROMA", "figure 3, middle and right: along the steps, and by r", "learning"),
    Row("AROMA", "section 5.1: the lead over OASIS, 0.33 against 0.22", "lead", "on other classes"),
    Row("AROMA", "section 5.1: the length of the rows, which is not given", "scales", "0.03 to 30 times unit length"),
    Row("AROMA", "figure 4: 20 Newsgroups", "newsgroups"),
    Row("AROMA", "theorems 1 and 2, lemma 3", "", "no figures; the bound of OASIS is checked: theorem 1 of JMLR"),
    Row("AROMA", "section 2: W that is not square", "", "see the notes of the class: one X and one y per fit"),
    Row("WSABIE", "WSABIE with WARP, AUC and OWPC", "annotation"),
    Row("WSABIE", "linear WARP", "annotation"),
    Row("WSABIE", "one-vs-rest, PAMIR-IA, exact and approximate k-NN", "annotation", "on several labels: corel"),
    Row("WSABIE", "tables 1 and 2: the data sets, and all systems on them", "annotation", MANY),
    Row("WSABIE", "table 3: labels near labels", "annotation", LABELS),
    Row("WSABIE", "table 4: sizes of the space, up to 500", "annotation"),
    Row("WSABIE", "table 5: WARP against AUC, with and without embedding", "annotation", "on words of subject lines"),
    Row("WSABIE", "table 6: time and memory", "annotation", "on words of subject lines"),
    Row("WSABIE", "table 7: ensembles, of several sizes and of equal ones", "annotation"),
    Row("WSABIE", "section 6.4: the leaf of approximate k-NN", "printed", "on words of subject lines"),
    Row("WSABIE", "table 8: annotations of images", "annotation", LABELS),
    Row("WSABIE", "figure 1: precision and sibling precision at k", "annotation"),
    Row("WSABIE", "figure 2: precision along training time", "annotation", "on words of subject lines"),
    Row("WSABIE", "PAMIR's own set, several labels", "corel", "not of this paper: of Grangier and Bengio, 2008"),
    Row("WSABIE", "PAMIR itself: photos ranked for words", "pamir", "of Grangier and Bengio, beside PAMIR-IA"),
    Row("MuSL", "MuSL; one metric, one per category, random and k-means grouping", "musl"),
    Row("MuSL", "figures 1 and 2: the idea and the algorithm", "api/learners.md"),
    Row("MuSL", "figure 3: the matrix L at three stages", "musl"),
    Row("MuSL", "section 3.1: the algorithm as printed", "printed", "merged-20"),
    Row("MuSL", "equation 9: r, the sharpness of the grouping", "musl_r", "from today's to a thousand times that"),
    Row("MuSL", "figure 4: the weights of an easy and of a difficult pair", "musl"),
    Row("MuSL", "figure 5A: Caltech-20", "musl", "settings of merged-20"),
    Row("MuSL", "figure 5B: accuracy by the number of metrics", "musl", "textures of DTD in place of UIUC"),
    Row("MuSL", "figures 6 and 7: the groups", "musl", "K = 3 with photos"),
    Row("MuSL", "figure 8: novel categories", "musl", "nine in place of ten"),
    Row("MuSL", "section 3.3: stability", "musl", "corrected for chance as by Lange et al., the share beside it"),
)


def write_coverage(folder: Path, names: Sequence[str]) -> None:
    """Write `coverage.md`.

    ValueError if a row names neither an experiment nor a page of docs, or an experiment or a claim is in no row.
    """
    docs = Path(__file__).resolve().parent.parent / "docs"
    for row in ROWS:
        if row.where and row.where not in names and not (docs / row.where).is_file():
            raise ValueError(f"{row.paper}, {row.item}: no experiment or page {row.where}")
    rows = {(row.paper, row.item) for row in ROWS if row.where in names}
    for name, claim in CLAIMS.items():
        if (claim.paper, claim.item) not in rows:
            raise ValueError(f"no row of an experiment has the claim {name}: {claim.paper}, {claim.item}")
    if missing := set(names) - {row.where for row in ROWS}:
        raise ValueError(f"no row of coverage names the experiment {min(missing)}")
    lines = [
        "# Where each system, table and figure of the papers is",
        "",
        f"Of {len(ROWS)} systems, tables and figures of the papers, {sum(row.where in names for row in ROWS)} have "
        f"a page of figures, {sum(row.where.endswith('.md') for row in ROWS)} are described where they are built, and "
        "for the others the reason is given.",
        "",
    ]
    for paper, title in PAPERS.items():
        rows = [[row.item, _link(folder, row.where), row.note] for row in ROWS if row.paper == paper]
        lines += [f"## {paper}", "", title, "", markdown_table(["", "Where", ""], rows), ""]
    lines += ["## Findings", "", "Verdicts on what the papers state, by page.", ""]
    counts = []
    for name, record in read_records(folder, names).items():
        verdicts = [one.verdict for one in record["findings"] if one.stated]
        counts.append([_link(folder, name), *(verdicts.count(verdict) or "" for verdict in VERDICTS)])
    lines += [markdown_table(["", *VERDICTS], counts)]
    (folder / "coverage.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _link(folder: Path, where: str) -> str:
    if where.endswith(".md"):
        name = where.removeprefix("../").removesuffix(".md").removesuffix("/README")
        return f"[{name}](../{where})"
    if (folder / f"{where}.md").is_file():
        return f"[{where}]({where}.md)"
    return f"`make reproduce ONLY={where}`" if where else "**not repeated**"
