"""A similarity of posts, the experiment on 20 Newsgroups: ``python -m experiments newsgroups [--quick]``.

Crammer, Chechik: Adaptive Regularization for Weight Matrices, ICML 2012, section 5.2 and figure 4. A post is a tf-idf
vector of the 1,000 terms that say most about its group (information gain); test posts query each other. AROMA, OASIS,
ITML and the cosine, in five splits of 65 % to learn from and 35 % to rank.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.model_selection import train_test_split

from benchmarks.metric_learn_peer import Linear, learn_metric
from benchmarks.peers import PeerError
from benchmarks.plots import legend, mean_series, new_figure
from benchmarks.statistics import clearly_above, difference, plus_minus
from benchmarks.vectors import CACHE, DATA, keep
from visterm.learners import AROMA, OASIS, Cosine
from visterm.pipeline.console import count
from visterm.retrieval import ExactIndex, evaluate_index, relevance_from_labels

from .grids import ROUNDS, RULE, Curve, Grid, Point, open_text, search
from .pages import Finding, Page, Plot, Table
from .protocol import CURVE, ONE_PAIR, choose

ALONE = False
SOURCES: tuple[str, ...] = ("benchmarks/metric_learn_peer.py", "benchmarks/peers.py")

N_TERMS = 1000
TEST_SHARE = 0.35
N_REPEATS = 3  # of the split, and of everything learned from it
N_QUERIES = 1000  # test posts that ask; all test posts are ranked
N_INNER_FOLDS = 2

# Headers that name or reveal the group of a post; the site of the paper's splits removes them.
NAMES_GROUP = re.compile(r"^(xref|path|newsgroups|followup-to|date)\s*:.*\n", re.IGNORECASE | re.MULTILINE)
MESSAGE_ID = re.compile(r"^message-id\s*:\s*(\S+)", re.IGNORECASE | re.MULTILINE)
TERM = r"(?u)\b[a-z][a-z]+\b"  # words of two letters or more: numbers name hosts and dates
# A term in fewer than three posts is uninformative about other posts.
COUNTED = {"stop_words": "english", "min_df": 3, "token_pattern": TERM}

PASS_STEPS = 100_000
# Settings tried first: validation chooses, and grids grow.
AXES = {"OASIS": (0.3, 1.0, 3.0), "AROMA diagonal": (0.1, 1.0, 10.0), "AROMA factored": (0.1, 1.0, 10.0)}
MOST_STEPS = {"OASIS": 500_000, "AROMA diagonal": 500_000, "AROMA factored": 200_000}  # a step of it takes 0.1 ms
# metric-learn's ITML takes seconds for a hundred constraints at d = 1,000: it learns from principal components (of
# 100 and 200 a fifth of the posts chose 200 each time), and for few sweeps. A fifth of the posts says how many.
ITML = {"random_state": 0}
ITML_POINTS: list[Point] = [{"n_components": 200, "max_iter": sweeps} for sweeps in (3, 10)]
ITML_QUERIES = 500  # of these posts
TRACED = (2000, 4000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000)
# With the C and the two r of the paper, and OASIS with other C; from zero and without a limit to its steps it is AROMA
# that learns no covariance.
NO_LIMIT = 1e9
TRACES = (
    *(("OASIS", C) for C in (0.03, 0.1, 0.3, 1.0, 3.0)),
    *((form, r) for form in ("AROMA diagonal", "AROMA factored") for r in (0.01, 1.0)),
    ("OASIS from zero", NO_LIMIT),
)
QUICK_TRACES = (("OASIS", 0.1), ("AROMA diagonal", 0.01), ("OASIS from zero", NO_LIMIT))
SENSITIVITY_R, SENSITIVITY_STEPS = (0.001, 0.01, 0.1, 1.0, 10.0), 100_000


# -- posts -------------------------------------------------------------------------------------------------------------


def read_posts() -> list[tuple[str, str, str]]:
    """Headers, body and group of each post; of a cross-posted one, the first copy only."""
    posts, seen = [], set()
    with gzip.open(DATA / "newsgroups.jsonl.gz", "rt", encoding="utf-8") as file:
        for line in file:
            post = json.loads(line)
            headers, _, body = post["text"].partition("\n\n")
            found = MESSAGE_ID.search(headers)
            name = found[1] if found else post["text"]
            if name not in seen:
                seen.add(name)
                posts.append((headers, body, post["label"]))
    return posts


@cache
def count_terms() -> tuple[sp.csr_array, np.ndarray]:
    """How often each post has each term, and the group of each post; cached under build/bench."""
    source = DATA / "newsgroups.jsonl.gz"
    made_from = zlib.crc32(f"{NAMES_GROUP.pattern}{MESSAGE_ID.pattern}{COUNTED}{source.stat().st_size}".encode())

    def write(path: Path) -> None:
        posts = read_posts()
        texts = [f"{NAMES_GROUP.sub('', headers + chr(10))}\n{body}" for headers, body, _ in posts]
        X = CountVectorizer(**COUNTED, dtype=np.int32).fit_transform(texts)
        groups = np.array([group for _, _, group in posts])
        np.savez_compressed(path, y=groups, data=X.data, indices=X.indices, indptr=X.indptr, shape=X.shape)

    kept = keep(CACHE / f"newsgroups-{made_from:08x}.npz", write)
    with np.load(kept) as found:
        counts = sp.csr_array((found["data"], found["indices"], found["indptr"]), tuple(found["shape"]))
        return counts, found["y"]


def information_gain(has: sp.csr_array, y: np.ndarray) -> np.ndarray:
    """Information gain of each term's presence about the class, in bits: H(class) - H(class | has the term or not).

    Yang, Pedersen: A Comparative Study on Feature Selection in Text Categorization, ICML 1997.

    Parameters
    ----------
    has : bool of shape (n, n_terms)
    y : array of shape (n,)
    """
    classes, codes = np.unique(y, return_inverse=True)
    members = sp.csr_array((np.ones(len(y)), (codes, np.arange(len(y)))), (len(classes), len(y)))
    total = np.bincount(codes).astype(float)[:, None]
    with_term = (members @ has.astype(float)).toarray()  # (n_classes, n_terms)
    gain = np.full(has.shape[1], entropy(total / len(y))[0])
    for part in (with_term, total - with_term):
        size = part.sum(axis=0)
        gain -= size / len(y) * entropy(part / np.maximum(size, 1))
    return gain


def entropy(p: np.ndarray) -> np.ndarray:
    """Entropy of each column, in bits."""
    return -(p * np.log2(np.where(p > 0, p, 1))).sum(axis=0)


def load_split(repeat: int) -> tuple[sp.csr_array, np.ndarray, sp.csr_array, np.ndarray]:
    """X, y of the training posts and X, y of the test posts; terms and idf come from the training posts only."""
    counts, y = count_terms()
    learned, asked = train_test_split(np.arange(len(y)), test_size=TEST_SHARE, stratify=y, random_state=repeat)
    gain = information_gain(counts[learned] > 0, y[learned])
    terms = np.sort(np.argsort(-gain, kind="stable")[:N_TERMS])
    weigh = TfidfTransformer().fit(counts[learned][:, terms])
    X, Q = (sp.csr_array(weigh.transform(counts[rows][:, terms])).astype(np.float32) for rows in (learned, asked))
    return X, y[learned], Q, y[asked]


# -- measures ----------------------------------------------------------------------------------------------------------


def figures(system: Any, X: sp.csr_array, y: np.ndarray, n_queries: int = N_QUERIES) -> dict[str, Any]:
    """`map`, and `precision` at 1 to `CURVE`, of test posts drawn at random that query all other test posts."""
    queries = np.random.default_rng(0).choice(len(y), n_queries, replace=False)
    relevance = relevance_from_labels(y[queries], y, exclude=queries)
    found = evaluate_index(ExactIndex(system, X), X[queries], relevance, exclude=queries, max_k=CURVE)
    return {"map": found.mean_average_precision, "precision": found.precision_curve.tolist()}


def make(system: str, value: float, **parameters: Any) -> Any:
    """A learner by the name it has on the page; its C or r is `value`."""
    parameters |= ONE_PAIR
    if system.startswith("OASIS"):
        return OASIS(C=value, init="zero" if system.endswith("zero") else "identity", random_state=0, **parameters)
    return AROMA(covariance=system.removeprefix("AROMA "), r=value, random_state=0, **parameters)


def grid_of(system: str) -> Grid:
    """Values of C or r, and the learner."""
    learner = make(system, AXES[system][0], n_steps=MOST_STEPS[system], pass_steps=PASS_STEPS)
    return Grid(learner, {"r" if system.startswith("AROMA") else "C": AXES[system]})


def settings_chosen(chosen: Any, grid: Grid, edges: list[str]) -> dict[str, Any]:
    """The settings that were tried, as chosen, with the number of steps; and those at the edge."""
    names = [*grid.axes, *(["n_steps"] if hasattr(chosen, "n_steps") else [])]
    return {"settings": {name: chosen.get_params()[name] for name in names}, "edges": edges}


# -- jobs --------------------------------------------------------------------------------------------------------------


def jobs(quick: bool) -> list[dict[str, Any]]:
    systems = ["cosine", "OASIS", "AROMA diagonal"] + ([] if quick else ["AROMA factored", "ITML"])
    repeats = 1 if quick else N_REPEATS
    # Long ones first.
    found = [
        {"part": "system", "system": system, "repeat": repeat, "small": quick}
        for system in reversed(systems)
        for repeat in range(repeats)
    ]
    traces, n_traced = (QUICK_TRACES, 1) if quick else (TRACES, N_REPEATS)
    found += [
        {"part": "trace", "system": system, "value": value, "repeat": repeat}
        for system, value in reversed(traces)
        for repeat in range(n_traced)
    ]
    return found + [
        {"part": "sensitivity", "system": system, "value": r, "repeat": repeat}
        for system in ([] if quick else ["AROMA factored", "AROMA diagonal"])
        for r in SENSITIVITY_R
        if (system, r) not in TRACES  # which pass by the same number of steps
        for repeat in range(N_REPEATS)
    ]


def measure(part: str, system: str, repeat: int, value: float = 0.0, small: bool = False) -> dict[str, Any]:
    X, y, Q, y_query = load_split(repeat)
    if part == "trace":
        trace: dict[str, list[float]] = {"p@1": [], "p@10": [], "mAP": []}

        def look(learner: Any) -> None:
            if learner.n_steps_ in TRACED:
                found = figures(learner, Q, y_query, N_QUERIES // 2)
                for name, figure in zip(
                    trace, (found["precision"][0], found["precision"][9], found["map"]), strict=True
                ):
                    trace[name].append(figure)

        make(system, value, n_steps=TRACED[-1], pass_steps=TRACED[0]).fit(X, y, callback=look)
        return {"trace": trace}
    if part == "sensitivity":
        learner = make(system, value, n_steps=SENSITIVITY_STEPS, pass_steps=5000).fit(X, y)
        return {"precision_at_10": figures(learner, Q, y_query, N_QUERIES // 2)["precision"][9]}
    if system == "cosine":
        return figures(Cosine().fit(X), Q, y_query)
    if system == "ITML":
        try:
            return measure_itml(X, y, Q, y_query)
        except PeerError as error:
            return {"failed": str(error)}
    grid = grid_of(system)
    if small:
        grid = replace(grid.small(), learner=clone(grid.learner).set_params(n_steps=2 * PASS_STEPS))
    fixed = small or system == "AROMA factored"
    chosen, edges = choose(grid, X, y, n_folds=N_INNER_FOLDS, rounds=0 if fixed else ROUNDS)
    found = figures(chosen.fit(X, y), Q, y_query)
    return found | settings_chosen(chosen, grid, edges)


def measure_itml(X: Any, y: np.ndarray, Q: Any, y_query: np.ndarray) -> dict[str, Any]:
    """ITML; sweeps by the mean average precision of a fifth of the posts to learn from."""
    shown, held_out = train_test_split(np.arange(len(y)), test_size=0.2, stratify=y, random_state=0)

    def learned(rows: np.ndarray, point: Point) -> Linear:
        return Linear(learn_metric("itml", X[rows], y[rows], threads=1, **ITML, **point)[0])

    def measure(points: list[Point]) -> list[Curve]:
        systems = [learned(shown, point) for point in points]
        return [[(None, figures(system, X[held_out], y[held_out], ITML_QUERIES)["map"])] for system in systems]

    chosen = search(ITML_POINTS, measure, rounds=0)
    found = figures(learned(np.arange(len(y)), chosen.point), Q, y_query)
    return found | {"settings": chosen.point, "edges": chosen.edges}


# -- page --------------------------------------------------------------------------------------------------------------

PAGE_SYSTEMS = ("cosine", "ITML", "OASIS", "AROMA diagonal", "AROMA factored")
PAGE_LARGE = 0.05  # of the rival's figure: the least lead that is called large


def page_collect(results: list[dict[str, Any]]) -> tuple[dict, dict, dict]:
    """Results of systems by name, traces by name and value, sensitivity by name and r: lists over repeats."""
    systems, traces, sensitivity = {}, {}, {}
    for result in results:
        system, value = result["system"], result.get("value")
        if result["part"] == "system":
            systems.setdefault(system, []).append(result)
        elif result["part"] == "trace":
            traces.setdefault((system, value), []).append(result["trace"])
        else:
            sensitivity.setdefault((system, value), []).append(result["precision_at_10"])
    if sensitivity:
        at = TRACED.index(SENSITIVITY_STEPS)
        sensitivity |= {key: [trace["p@10"][at] for trace in found] for key, found in traces.items()}
    return (
        {name: found for name, found in systems.items() if not any("failed" in one for one in found)},
        traces,
        sensitivity,
    )


def page_label(system: str, value: float) -> str:
    if value == NO_LIMIT:
        return f"{system}, no limit C"
    return f"{system}, {'r' if system.startswith('AROMA') else 'C'} = {value:g}"


def page_clearly(first: list[float], second: list[float]) -> bool:
    return clearly_above(first, second, 35 / 65)  # the split


def page_large(first: list[float], second: list[float]) -> bool:
    """Whether the first is above the second clearly and by a large margin."""
    return page_clearly(first, second) and np.mean(first) > (1 + PAGE_LARGE) * np.mean(second)


def page_steps_to_reach(goal: float, trace: np.ndarray) -> float:
    """Steps at which a trace first reaches the goal, interpolated over log steps; infinite if never."""
    above = np.flatnonzero(trace >= goal)
    if not len(above):
        return np.inf
    if not (i := above[0]):
        return float(TRACED[0])
    share = (goal - trace[i - 1]) / (trace[i] - trace[i - 1])
    return float(np.exp(np.log(TRACED[i - 1]) + share * np.log(TRACED[i] / TRACED[i - 1])))


def page_lead(forms: dict[str, list[float]], rival: list[float]) -> str:
    return "; ".join(f"{name.removeprefix('AROMA ')} {difference(found, rival)}" for name, found in forms.items())


def page_edges(systems: dict, *names: str) -> str:
    """Why a verdict over these systems is open; empty if it is not."""
    return open_text({name: systems[name] for name in names})


def page_leads(systems: dict, traces: dict) -> list[Finding]:
    """AROMA beside OASIS and ITML, after all steps."""
    names = [name for name in PAGE_SYSTEMS if name.startswith("AROMA") and name in systems]
    top = {name: [result["precision"][0] for result in found] for name, found in systems.items()}
    findings = []
    if (names[0], 1.0) in traces:
        last = {key: [one["p@1"][-1] for one in found] for key, found in traces.items()}
        as_run = {name: last[name, 1.0] for name in names}
        findings.append(
            Finding(
                "Both forms of AROMA (r = 1) outperform OASIS (C = 0.1) by large after 500,000 steps (figure 4, left).",
                f"precision at 1, AROMA less OASIS, {np.mean(last['OASIS', 0.1]):.3f}: "
                + page_lead(as_run, last["OASIS", 0.1]),
                all(page_large(found, last["OASIS", 0.1]) for found in as_run.values()),
                why=f"Both are clearly above OASIS, but one or both by less than {PAGE_LARGE:.0%}."
                if all(page_clearly(found, last["OASIS", 0.1]) for found in as_run.values())
                else "",
                kind="threshold",
            )
        )
    chosen = {name: top[name] for name in names}
    at_10 = {name: [result["precision"][9] for result in systems[name]] for name in ["OASIS", *names]}
    findings.append(
        Finding(
            "Both forms of AROMA outperform OASIS by large (here: settings and numbers of steps of each chosen).",
            f"precision at 1, AROMA less OASIS, {np.mean(top['OASIS']):.3f}: {page_lead(chosen, top['OASIS'])} (at 10: "
            f"{page_lead({name: at_10[name] for name in names}, at_10['OASIS'])})",
            all(page_large(found, top["OASIS"]) for found in chosen.values()),
            edges=page_edges(systems, "OASIS", *names),
            why=f"Here C is chosen. Precision at 10 of OASIS after {TRACED[-1]:,} steps is "
            + ", ".join(
                f"{np.mean([one['p@10'][-1] for one in found]):.3f} at C = {C:g}"
                for (name, C), found in sorted(traces.items())
                if name == "OASIS"
            )
            + ".",
            kind="threshold",
        )
    )
    if "ITML" in systems:
        findings.append(
            Finding(
                "Both forms of AROMA outperform ITML by large.",
                f"precision at 1, AROMA less ITML, {np.mean(top['ITML']):.3f}: {page_lead(chosen, top['ITML'])}",
                all(page_large(found, top["ITML"]) for found in chosen.values()),
                edges=page_edges(systems, "ITML", *names),
                kind="threshold",
            )
        )
    maps = {name: [result["map"] for result in found] for name, found in systems.items()}
    findings.append(
        Finding(
            "Learned similarities are far above the cosine: OASIS by 0.15 in mAP.",
            f"mAP of OASIS {plus_minus(maps['OASIS'])}, of the cosine {plus_minus(maps['cosine'])}",
            np.mean(maps["OASIS"]) > np.mean(maps["cosine"]) + 0.15,
            edges=page_edges(systems, "OASIS"),
            must=True,
            of_paper=False,
            kind="threshold",
        )
    )
    return findings


def page_learning(traces: dict) -> list[Finding]:
    """AROMA beside OASIS while they learn; the paper's r = 0.01 and C = 0.1."""
    names = [name for name in PAGE_SYSTEMS if (name, 0.01) in traces]
    at = TRACED.index(100_000)

    def mean(system: str, value: float, measure: str = "p@10") -> np.ndarray:
        return np.mean([one[measure] for one in traces[system, value]], axis=0)

    oasis, diagonal = mean("OASIS", 0.1), mean("AROMA diagonal", 0.01)
    with_it, without_it = mean("AROMA diagonal", 0.01, "mAP")[-1], mean("OASIS from zero", NO_LIMIT, "mAP")[-1]
    limited, limit = max((mean(name, C, "mAP")[-1], C) for name, C in traces if name == "OASIS")
    findings = [
        Finding(
            "AROMA (here: diagonal) lies above OASIS in precision at 10 for most of the steps (figure 4, middle; "
            "here: by 0.015 after 100,000 and after all).",
            f"r = 0.01, C = 0.1, after 100,000 steps diagonal AROMA {diagonal[at]:.3f}, OASIS {oasis[at]:.3f}; after "
            f"{TRACED[-1]:,} {diagonal[-1]:.3f} and {oasis[-1]:.3f}",
            min(diagonal[at] - oasis[at], diagonal[-1] - oasis[-1]) > 0.015,
            must=True,
            kind="threshold",
        ),
        Finding(
            "The covariance is what helps (section 4; here: by 0.007 in mAP over OASIS from zero without a limit C, "
            "which takes the same steps without one).",
            f"mAP after {TRACED[-1]:,} steps: diagonal AROMA, r = 0.01, {with_it:.3f}, without covariance "
            f"{without_it:.3f}; OASIS with the best limit, C = {limit:g}, {limited:.3f}",
            with_it - without_it > 0.007,
            must=True,
            kind="threshold",
        ),
    ]
    ratios = {
        (name, measure, C): TRACED[-1] / page_steps_to_reach(mean("OASIS", C, measure)[-1], mean(name, 0.01, measure))
        for C in (0.1, 1.0)
        if ("OASIS", C) in traces
        for measure in ("p@10", "mAP")
        for name in names
    }
    findings.append(
        Finding(
            "It takes OASIS ten times more steps to get to the same precision, and to the same mAP (here: five times).",
            f"{TRACED[-1]:,} steps of OASIS are so many times those of AROMA with r = 0.01 to the same: "
            + ", ".join(
                f"{f'{ratio:.1f}' if ratio else 'not reached'} ({name}, {measure}, C = {C:g})"
                for (name, measure, C), ratio in ratios.items()
            ),
            min(ratio for (*_, C), ratio in ratios.items() if C == 0.1) >= 5,
            why="A figure above 1 is in favour of AROMA. How much faster it is may depend on C, which bounds the "
            "steps of OASIS.",
            kind="threshold",
        )
    )
    if len(names) == 2:
        factored = mean("AROMA factored", 0.01)
        ahead = factored > diagonal
        findings.append(
            Finding(
                "Factored AROMA has the higher precision during most of the learning and converges faster; diagonal "
                "AROMA reaches the same level after 500,000 steps (here: to 0.02).",
                f"r = 0.01, factored above diagonal at {ahead.sum()} of {len(ahead)} looks; after 20,000 steps "
                f"{factored[TRACED.index(20_000)]:.3f} and {diagonal[TRACED.index(20_000)]:.3f}, after {TRACED[-1]:,} "
                f"{factored[-1]:.3f} and {diagonal[-1]:.3f}",
                ahead.mean() > 0.5 and abs(factored[-1] - diagonal[-1]) < 0.02,
                kind="threshold",
            )
        )
    return findings


def page_robust(traces: dict, sensitivity: dict) -> list[Finding]:
    """Sensitivity to C and r; only in the full experiment."""
    at = TRACED.index(SENSITIVITY_STEPS)
    oasis = {
        C: np.mean([one["p@10"] for one in found], axis=0) for (name, C), found in traces.items() if name == "OASIS"
    }
    last = {C: found[-1] for C, found in sorted(oasis.items())}
    rival = [one["p@10"][at] for one in traces["OASIS", 0.1]]
    names = ("AROMA diagonal", "AROMA factored")
    above = {
        name: [r for r in SENSITIVITY_R if page_clearly(sensitivity[name, r][: len(rival)], rival)] for name in names
    }
    return [
        Finding(
            "AROMA's gain is preserved across a large regime of r (figure 4, right; here: its lead over OASIS with "
            "C = 0.1, r from 0.01 to 10).",
            f"{SENSITIVITY_STEPS:,} steps, precision at 10 of OASIS {oasis[0.1][at]:.3f}; "
            + "; ".join(
                f"{name} "
                + ", ".join(f"{np.mean(sensitivity[name, r]):.3f} at r = {r:g}" for r in SENSITIVITY_R)
                + f", clearly above at {', '.join(f'{r:g}' for r in above[name]) or 'none'}"
                for name in names
            ),
            all(r in above[name] for name in names for r in SENSITIVITY_R if 0.01 <= r <= 10),
            why="A large r keeps steps short: after as few of them AROMA may not have come as far.",
            kind="threshold",
        ),
        Finding(
            f"OASIS was robust to the choice of C (caption of figure 4; here: to 5 %, C from {min(last):g} to "
            f"{max(last):g}).",
            f"precision at 10 after {TRACED[-1]:,} steps: "
            + ", ".join(f"{p:.3f} at C = {C:g}" for C, p in last.items()),
            min(last.values()) > 0.95 * max(last.values()),
            why="A small C bounds the steps: what is compared is also how far OASIS has come after so many.",
            kind="threshold",
        ),
    ]


def page_plots(systems: dict, traces: dict, sensitivity: dict) -> list[Plot]:
    figure, (axes,) = new_figure()
    rows = []
    for name in (name for name in PAGE_SYSTEMS if name in systems):
        rows += mean_series(axes, name, range(1, CURVE + 1), [one["precision"] for one in systems[name]], name)
    axes.set(xlabel="number of posts ranked first, k", ylabel="precision at k", ylim=(0, None))
    legend(figure, axes)
    plots = [Plot("newsgroups-precision", "Precision at k of test posts that query each other.", figure, rows)]

    figure, panels = new_figure(2)
    rows = []
    # OASIS first; some values of C are skipped to keep the curves distinct.
    names = sorted(traces, key=lambda key: (key[0] != "OASIS", key))
    drawn = {key: traces[key] for key in names if key not in (("OASIS", 0.03), ("OASIS", 3.0))}
    for axes, measure, title in zip(panels, ("p@10", "mAP"), ("precision at 10", "mAP"), strict=True):
        for place, ((name, value), found) in enumerate(drawn.items()):
            curves = mean_series(axes, place, TRACED, [one[measure] for one in found], page_label(name, value))
            rows += [{"measure": measure, **row} for row in curves]
        axes.set(xlabel="steps (triplets)", ylabel=title, xscale="log")
    legend(figure, panels[0])
    plots.append(Plot("newsgroups-steps", "Precision at 10 and mAP on test posts while learning.", figure, rows))
    if sensitivity:
        figure, (axes,) = new_figure()
        rows = []
        for name in ("AROMA diagonal", "AROMA factored"):
            curves = np.transpose([sensitivity[name, r] for r in SENSITIVITY_R])
            rows += mean_series(axes, name, SENSITIVITY_R, curves, name)
        axes.set(xlabel="regulariser r", ylabel="precision at 10", xscale="log")
        legend(figure, axes)
        caption = f"Sensitivity to r: precision at 10 after {SENSITIVITY_STEPS:,} steps."
        plots.append(Plot("newsgroups-r", caption, figure, rows))
    return plots


def page_chosen(found: list[dict[str, Any]]) -> str:
    """Chosen settings by repeat; a star marks the edge of the grid."""
    texts = []
    for key in found[0]["settings"]:
        values = [f"{one['settings'][key]:g}" + "*" * (key in one["edges"]) for one in found]
        texts.append(f"{key} {', '.join(values)}")
    return "; ".join(texts)


def page(results: list[dict[str, Any]]) -> Page:
    systems, traces, sensitivity = page_collect(results)
    rows = [
        [
            name,
            plus_minus([result["map"] for result in systems[name]]),
            *(plus_minus([result["precision"][k - 1] for result in systems[name]]) for k in (1, 10, 50)),
            page_chosen(systems[name]) if "settings" in systems[name][0] else "",
        ]
        for name in PAGE_SYSTEMS
        if name in systems
    ]
    findings = [*page_leads(systems, traces), *page_learning(traces)]
    if sensitivity:
        findings += page_robust(traces, sensitivity)
    failed = {result["failed"] for result in results if "failed" in result}
    return Page(
        title="A similarity of posts: 20 Newsgroups",
        source="K. Crammer, G. Chechik: *Adaptive Regularization for Weight Matrices*, ICML 2012, section 5.2 and "
        "figure 4. The paper gives curves and no table.",
        protocol="Posts of 20 newsgroups, each post once where it went to several groups, without the headers that the "
        "paper's source removes because they tell the group (Xref, Newsgroups, Path, Followup-To, Date). Stop words "
        f"removed, no stemming, words of letters only; the {N_TERMS:,} terms of the highest information gain, tf-idf, "
        "unit rows; idf is that of scikit-learn, smoothed, log((1 + n) / (1 + df)) + 1, as the paper does not say "
        "which it takes, and this one is that of most programs for text (visterms have log(n / df), as their papers "
        "say). "
        f"65 % of each group to learn from, 35 % to test, {count(len(systems['OASIS']), 'repeat')}. Terms, idf, "
        "settings and numbers of steps come from the posts to learn from, settings by cross-validation in "
        f"{N_INNER_FOLDS} folds, to stay within the time of all experiments; up to {MOST_STEPS['OASIS']:,} steps at "
        "first. "
        f"{RULE} Factored AROMA has {MOST_STEPS['AROMA factored']:,} steps at most, and its grid does not grow. "
        f"{N_QUERIES:,} test posts drawn at random query all other test posts "
        f"(about 6,800); {N_QUERIES // 2} in the curves over steps and r. "
        f"ITML is metric-learn's, on {ITML_POINTS[0]['n_components']} principal components, since it cannot finish on "
        "all terms, and for few sweeps: a fifth of the posts to learn from chooses how many; other parameters "
        "are its defaults, as in the paper"
        + (f"; it did not finish here ({'; '.join(sorted(failed))})" if failed else "")
        + ". Means and standard errors over repeats. One system is above another clearly if a t test over the "
        f"repeats says so (one-sided, p < 0.025), and by large if clearly and by {PAGE_LARGE:.0%} or more.",
        findings=findings,
        parts=[
            Table(
                "Test posts query each other; settings as chosen, repeat by repeat (* at the edge of those tried)",
                ["", "mAP", "precision at 1", "at 10", "at 50", "chosen"],
                rows,
            ),
            *page_plots(systems, traces, sensitivity),
        ],
    )
