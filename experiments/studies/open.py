"""The open world: classes that a learner was trained on, and others.

Half of the classes are trained on ("seen"), the other half are not ("unseen"). Test images query test images: of seen
classes among these, of unseen ones among those, and all of them in one gallery ("both"). Of images with several words,
half of the words are seen, and an image with another word is unseen. Learners have the defaults of ``visterm train``,
beside cosine and the same learners as they were before there was an open world: no class held out, all of what is
learned counts, vectors as they are. Means of class splits; vectors as ``visterm features`` makes them.

What was measured is kept in build/bench/open, a file for each set, kind of vectors and learner and for each of its
splits, so that an interrupted benchmark resumes; delete the files to measure again. Writes the tables of
docs/open-world.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from benchmarks.page import DOCS, replace, table
from benchmarks.photos import ALL_LABELS, images_of, relevance_of, to_dense
from benchmarks.records import ELAPSED, FIRST, PROCESS, compared, kept_in, race, record, timed
from benchmarks.vectors import CACHE
from visterm.learners import LEARNERS, Blend, Cosine, SimilarityLearner
from visterm.learners.blend import effective
from visterm.learners.validation import SHARES, mean_average_precision
from visterm.pipeline.config.loading import with_settings
from visterm.pipeline.config.models import Config
from visterm.pipeline.stages.fitting import constructor_parameters
from visterm.pipeline.store.models import TRAINED
from visterm.retrieval import ExactIndex

SETS = ALL_LABELS
KINDS = ("deep", "visterms", "spatial")
NAMES = ("oasis", "aroma", "wsabie", "ovr", "hier")
SPLITS = 5
TEST_SHARE = 0.4
WORLDS = ("seen", "unseen", "both")
PAGE = DOCS / "open-world.md"
BEFORE = {  # settings of the papers' protocol
    "oasis": {"oasis.whiten": False},
    "aroma": {"aroma.whiten": False, "aroma.init": "zero"},
    "wsabie": {"wsabie.whiten": False},
    "ovr": {},
    "hier": {},
}


class Split(NamedTuple):
    """Rows to train on and rows of test images, with what is known of these."""

    training: np.ndarray
    test: np.ndarray
    seen: np.ndarray  # bool, of test images
    relevant: np.ndarray  # bool (n_test, n_test)


def class_splits(y: Any, n_splits: int) -> Iterator[Split]:
    """Draw which classes are seen, and the test images.

    Test images come in a random order: nine in ten pairs of visterm vectors have nothing in common, and equal scores
    rank by place, which in the order of the files is that of the classes.
    """
    for seed in range(n_splits):
        rng = np.random.default_rng(seed)
        test = np.zeros(y.shape[0], bool)
        if sp.issparse(y):
            others = np.isin(np.arange(y.shape[1]), rng.permutation(y.shape[1])[: y.shape[1] // 2])
            known = np.asarray(y @ others.astype(float)).ravel() == 0
            test[rng.permutation(len(test))[: round(TEST_SHARE * len(test))]] = True
        else:
            classes = np.unique(y)
            known = np.isin(y, rng.permutation(classes)[: (len(classes) + 1) // 2])
            for one in classes:
                rows = rng.permutation(np.flatnonzero(y == one))
                test[rows[: round(TEST_SHARE * len(rows))]] = True
        rows = rng.permutation(np.flatnonzero(test))
        yield Split(np.flatnonzero(known & ~test), rows, known[rows], relevance_of(y[rows]))


def measures(scores: np.ndarray, split: Split) -> list[list[float]]:
    """MAP and precision at 1 of the three worlds; scores of all test images as queries of all."""
    measured = []
    for rows in (split.seen, ~split.seen, np.ones(len(scores), bool)):
        part, relevant = scores[np.ix_(rows, rows)], split.relevant[np.ix_(rows, rows)]
        own = np.arange(len(part))
        mean = mean_average_precision(part, relevant, own)
        part[own, own] = -np.inf
        measured.append([mean, float(relevant[own, part.argmax(axis=1)].mean())])
    return measured


def fitted(
    name: str, config: Config, X: Any, y: Any, names: list[str], *, before: bool = False
) -> tuple[SimilarityLearner, float]:
    """A learner, trained as the command does, and the seconds that took."""
    kind: Any = LEARNERS[TRAINED[name]]
    settings = with_settings(config, BEFORE[name]) if before else config
    learner = kind(**constructor_parameters(kind, settings, name, X.shape[0], y, names))
    options = {} if before else config.train.model_dump()
    return timed(lambda: learner.fit(X, y, **options), clock=ELAPSED)


def of_split(name: str, kind: str, learner: str, seed: int) -> dict[str, Any]:
    """Figures of one split: cosine, and a learner before and now, with its seconds and share."""
    config, X, y, names = images_of(name, kind)
    *_, split = class_splits(y, seed + 1)
    test, data = X[split.test], (config, X[split.training], y[split.training], names)
    cosine = test @ test.T
    before, seconds_before = fitted(learner, *data, before=True)
    now, seconds = fitted(learner, *data)
    part = {
        "cosine": measures(to_dense(cosine), split),
        "before": measures(before.similarity(test, test), split),
        "now": measures(effective(now).similarity(test, test), split),
        "seconds": [seconds_before, seconds],
        "share": now.learned_weight_,
    }
    if learner == "oasis":
        part["curve"] = [measures(Blend(now, share).similarity(test, test), split) for share in SHARES]
    print(
        f"    {name} {kind} {learner}: share {now.learned_weight_:g}, mAP {np.round(part['now'], 3)[:, 0]}, "
        f"before {np.round(part['before'], 3)[:, 0]}, s {seconds_before:.1f} to {seconds:.1f}",
        flush=True,
    )
    return part


def of_set(name: str, kind: str, learner: str, n_splits: int) -> dict[str, list]:
    """Figures of all splits; each split is kept, since AROMA takes minutes for one."""
    files = [CACHE / "open" / "splits" / f"{name}-{kind}-{learner}-{seed}.json" for seed in range(n_splits)]
    parts = [kept_in(file, lambda seed=seed: of_split(name, kind, learner, seed)) for seed, file in enumerate(files)]
    return {figure: [part[figure] for part in parts] for figure in parts[0]}


def means(result: dict[str, Any], which: str) -> np.ndarray:
    """Means over splits: (3 worlds, mAP and precision at 1)."""
    return np.mean(result[which], axis=0)


def record_of(name: str, kind: str, learner: str, result: dict[str, Any]) -> dict:
    """The mixture of both worlds."""
    cosine, before, now = (means(result, which) for which in ("cosine", "before", "now"))
    best, of = max((cosine[2, 0], "cosine"), (before[2, 0], f"{learner} before there was an open world"))
    return record(
        f"open-{name}-{kind}-{learner}",
        f"{learner}, {SETS[name]}, {kind}: mAP of all test images, half of the classes trained on",
        of,
        FIRST,
        compared(now[2, 0], best, "mAP", len(result["cosine"]), higher=True),
        measured=f"means of {len(result['cosine'])} class splits",
        map={
            which: dict(zip(WORLDS, means(result, which)[:, 0].tolist(), strict=True))
            for which in ("cosine", "before", "now")
        },
    )


def search_times(learner: str, n_queries: int = 64, repeats: int = 31) -> list[dict]:
    """Exact search by another share than the index was made with: milliseconds of a query in a batch.

    Beside search by the share that it was made with, by all of what was learned, and by cosine.
    """
    config, X, y, names = images_of("caltech101", "deep")
    model, _ = fitted(learner, config, X, y, names)
    shared, Q = ExactIndex(Blend(model, 0.5), X), X[:n_queries]
    shared.learner = Blend(model, 0.2)
    records = []
    for name, title, peer in (
        ("own", "search by the share of the index", Blend(model, 0.5)),
        ("all", "search by all of what was learned", model),
        ("cosine", "cosine", Cosine().fit(X)),
    ):
        other = ExactIndex(peer, X)
        runs = (lambda _: shared.search(Q, 100), lambda _, other=other: other.search(Q, 100))
        times = race(*runs, repeats, PROCESS, unit="ms", things=n_queries, n=n_queries)
        measured = f"processor time, median of {repeats} in turns, {shared.n_gallery} images, k = 100, one thread"
        records.append(
            record(
                f"open-search-{learner}-{name}",
                f"exact search by a share of {learner}: {shared.gallery_.shape[1]} numbers an image, {title} "
                f"{other.gallery_.shape[1]}",
                title,
                "a share of a learner whose gallery side is not the vectors reads these, too",
                times,
                measured=measured,
            )
        )
    return records


# ---------------------------------------------------------------------------------------------------- what is written


Results = dict[tuple[str, str, str], dict[str, Any]]  # by set, kind of vectors and learner


def title_of(name: str) -> str:
    return SETS[name].partition(",")[0]


def triple(figures: Iterable[float]) -> str:
    """Figures of the three worlds, as a cell."""
    return " / ".join(f"{figure:.3f}" for figure in figures)


def of_kind(results: Results, kind: str, measure: int) -> str:
    """Seen, unseen and both by set and learner: cosine, before and now."""
    rows = []
    for (name, of, learner), result in results.items():
        if of == kind:
            cells = [triple(means(result, which)[:, measure]) for which in ("cosine", "before", "now")]
            shares = sorted({f"{share:g}" for share in result["share"]}, key=float)
            before, now = np.sum(result["seconds"], axis=0)
            times = f"{before:.1f} to {now:.1f}"
            rows.append([f"{title_of(name)}, {learner}", *cells, ", ".join(shares), times])
    return table(("seen / unseen / both", "cosine", "before", "now", "share", "training, s"), rows)


def curves(results: Results) -> str:
    """MAP of OASIS by the share of what was learned."""
    rows = [
        [f"{title_of(name)}, {kind}", *map(triple, np.mean(result["curve"], axis=0)[:, :, 0])]
        for (name, kind, learner), result in results.items()
        if learner == "oasis"
    ]
    return table(("seen / unseen / both", *(f"{share:g}" for share in SHARES)), rows)


def bounds(results: Results) -> str:
    """What was asked for, of OASIS and AROMA unless others are named, and what was measured: a row for each bound."""
    rows = []
    some = {key: result for key, result in results.items() if key[2] in ("oasis", "aroma")}
    for measure, title in enumerate(("mAP", "P@1")):
        figures = {
            key: [means(result, which)[:, measure] for which in ("cosine", "before", "now")]
            for key, result in some.items()
        }
        rows += [
            [f"{title}, {text}", f"at least {asked}", _worst(figures, figure)]
            for text, asked, figure in (
                ("unseen, less cosine", "-0.005", lambda c, b, n: n[1] - c[1]),
                ("both, of cosine", "1", lambda c, b, n: n[2] / c[2]),
                ("both, of before", "1", lambda c, b, n: n[2] / b[2]),
                ("seen, of before", "0.95", lambda c, b, n: n[0] / b[0]),
            )
        ]
        deep = [systems for key, systems in figures.items() if key[1] == "deep"]
        unseen, both = np.mean([[n[1] / c[1], n[2] / max(c[2], b[2])] for c, b, n in deep], axis=0)
        rows.append([f"{title}, unseen, deep sets, mean", "1.02 of cosine", f"{unseen:.3f}"])
        rows.append([f"{title}, both, deep sets, mean", "1.10 of the better of cosine and before", f"{both:.3f}"])
    others = {
        key: [means(result, which)[:, 0] for which in ("cosine", "now")]
        for key, result in results.items()
        if key not in some
    }
    rows.append(["mAP, unseen, less cosine, of the others", "at least -0.01", _worst(others, lambda c, n: n[1] - c[1])])
    before, now = np.sum([np.sum(result["seconds"], axis=0) for result in some.values()], axis=0)
    rows.append(["training time", "1.3 times", f"{now / before:.2f} times"])
    return table(("OASIS and AROMA", "Asked", "Measured: the worst two"), rows)


def _worst(figures: dict[tuple[str, str, str], list], figure: Callable[..., float]) -> str:
    worst = sorted((float(figure(*systems)), *key) for key, systems in figures.items())
    return "; ".join(f"{value:.3f} ({learner}, {name}, {kind})" for value, name, kind, learner in worst[:2])


def of_both(results: Results) -> str:
    """MAP of all test images in one gallery, deep vectors: a row for each learner, and the whitening alone."""
    sets, rows = [name for name in SETS if (name, "deep", "oasis") in results], []
    for learner in ("cosine", *NAMES):
        key, which = ("oasis", "cosine") if learner == "cosine" else (learner, "now")
        of_sets = [results.get((name, "deep", key)) for name in sets]
        rows.append([learner, *(f"{means(one, which)[2, 0]:.3f}" if one else "" for one in of_sets)])
        if learner == "cosine":  # the curve begins at the weight 0
            alone = [np.mean(one["curve"], axis=0)[0, 2, 0] if one else np.nan for one in of_sets]
            rows.append(["whitening alone", *(f"{one:.3f}" for one in alone)])
    return table(("", *map(title_of, sets)), rows)


def write(results: Results) -> None:
    """Replace the tables of the pages."""
    parts = [bounds(results)]
    for kind in KINDS:
        if any(key[1] == kind for key in results):
            parts.append(f"**{kind}, mAP**\n\n{of_kind(results, kind, 0)}")
            parts.append(f"**{kind}, precision at 1**\n\n{of_kind(results, kind, 1)}")
    parts.append(f"**OASIS by the weight of the learner, mAP**\n\n{curves(results)}")
    replace(PAGE, "open", "\n".join(parts))
    replace(DOCS / "choosing.md", "both", of_both(results))


def run(quick: bool = False) -> list[dict]:
    """Measure the learners, sets and kinds of vectors that are not kept, and write the pages."""
    results: Results = {}
    for key in [("flowers", "deep", "oasis")] if quick else itertools.product(SETS, KINDS, NAMES):
        file = CACHE / "open" / f"{'-'.join(key)}{'-quick' if quick else ''}.json"
        results[key] = kept_in(file, lambda key=key: of_set(*key, 2 if quick else SPLITS))
    records = [record_of(*key, result) for key, result in results.items()]
    if not quick:
        write(results)
        records += [one for learner in ("oasis", "wsabie") for one in search_times(learner)]
    return records
