"""The open world: classes that a learner was trained on, and others: ``python -m benchmarks open [--quick]``.

Half of the classes are trained on ("seen"), the other half are not ("unseen"). Test images query test images: of seen
classes among these, of unseen ones among those, and all of them in one gallery ("both"). Of images with several words,
half of the words are seen, and an image with another word is unseen. Learners have the defaults of ``visterm train``,
beside cosine and the same learners as they were before there was an open world: no class held out, all of what is
learned counts, vectors as they are. Means of class splits; vectors as ``visterm features`` makes them.

What was measured is kept in build/bench/open, a file for each set, kind of vectors and learner, so that an interrupted
benchmark resumes; delete a file to measure it again. Writes the tables of docs/open-world.md.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from visterm.learners import LEARNERS, Blend, Cosine, SimilarityLearner
from visterm.learners.blend import effective
from visterm.learners.validation import SHARES, average_precisions, mean_of
from visterm.pipeline.config.loading import with_settings
from visterm.pipeline.config.models import Config
from visterm.pipeline.console import Console
from visterm.pipeline.stages.train import constructor_parameters
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.models import TRAINED
from visterm.pipeline.store.vectors import supervision, vectors
from visterm.retrieval import ExactIndex

from .choosing import open_set
from .growth import median_in_turns
from .page import DOCS
from .vectors import CACHE, DATA

COMMAND = "python -m benchmarks open"
SETS = {
    "caltech101": "Caltech-101, 38 classes",
    "flowers": "flowers, 9 classes",
    "textures": "textures, 9 classes",
    "corel5k": "Corel-5K, 260 words",
}
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


def images_of(name: str, kind: str) -> tuple[Config, Any, Any, list[str]]:
    """Configuration, vectors and labels of all images of a set, and the names of the labels."""
    run, config = open_set(name, kind, Console(quiet=True))
    with Collection(run.collection) as collection:
        images = collection.images("train", "validation", "test", labelled=True)
        y, names = supervision(images, clicks=False)
        return config, vectors(run, collection, images), y, names


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
        some = y[rows]
        relevant = (some @ some.T).toarray() > 0 if sp.issparse(y) else some[:, None] == some
        yield Split(np.flatnonzero(known & ~test), rows, known[rows], relevant)


def measures(scores: np.ndarray, split: Split) -> list[list[float]]:
    """MAP and precision at 1 of the three worlds; scores of all test images as queries of all."""
    measured = []
    for rows in (split.seen, ~split.seen, np.ones(len(scores), bool)):
        part, relevant = scores[np.ix_(rows, rows)], split.relevant[np.ix_(rows, rows)]
        own = np.arange(len(part))
        mean = mean_of(average_precisions(part, relevant, own))
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
    started = time.perf_counter()
    learner.fit(X, y, **({} if before else config.train.model_dump()))
    return learner, time.perf_counter() - started


def of_set(name: str, kind: str, learner: str, n_splits: int) -> dict[str, Any]:
    """Figures of every split: cosine, and a learner before and now, with its seconds and shares."""
    config, X, y, names = images_of(name, kind)
    found: dict[str, Any] = {"cosine": [], "before": [], "now": [], "seconds": [], "share": [], "curve": []}
    for split in class_splits(y, n_splits):
        test, data = X[split.test], (config, X[split.training], y[split.training], names)
        cosine = test @ test.T
        found["cosine"].append(measures(cosine.toarray() if sp.issparse(cosine) else cosine, split))
        before, seconds_before = fitted(learner, *data, before=True)
        now, seconds = fitted(learner, *data)
        found["before"].append(measures(before.similarity(test, test), split))
        found["now"].append(measures(effective(now).similarity(test, test), split))
        found["seconds"].append([seconds_before, seconds])
        found["share"].append(now.learned_)
        if learner == "oasis":
            curve = [measures(Blend(now, share).similarity(test, test), split) for share in SHARES]
            found["curve"].append(curve)
        print(
            f"    {name} {kind} {learner}: share {now.learned_:g}, mAP {np.round(found['now'][-1], 3)[:, 0]}, "
            f"before {np.round(found['before'][-1], 3)[:, 0]}, s {seconds_before:.1f} to {seconds:.1f}",
            flush=True,
        )
    return found


def means(found: dict[str, Any], which: str) -> np.ndarray:
    """Means over splits: (3 worlds, mAP and precision at 1)."""
    return np.mean(found[which], axis=0)


def record_of(name: str, kind: str, learner: str, found: dict[str, Any]) -> dict:
    """The mixture of both worlds."""
    cosine, before, now = (means(found, which) for which in ("cosine", "before", "now"))
    best, of = max((cosine[2, 0], "cosine"), (before[2, 0], f"{learner} before there was an open world"))
    return {
        "name": f"open-{name}-{kind}-{learner}",
        "what": f"{learner}, {SETS[name]}, {kind}: mAP of all test images, half of the classes trained on",
        "ours": now[2, 0],
        "peer": best,
        "peer_name": of,
        "ratio": now[2, 0] / best,
        "limit": "1.0: every image of the query's class first",
        "unit": "mAP",
        "n": len(found["cosine"]),
        "measured": f"means of {len(found['cosine'])} class splits",
        "command": COMMAND,
        "map": {
            which: dict(zip(WORLDS, means(found, which)[:, 0].tolist(), strict=True))
            for which in ("cosine", "before", "now")
        },
    }


def search_times(learner: str, n_queries: int = 64, repeats: int = 31) -> list[dict]:
    """Exact search by another share than the index was made with: milliseconds of a query in a batch.

    Beside search by all of what was learned, and by cosine.
    """
    config, X, y, names = images_of("caltech101", "deep")
    model, _ = fitted(learner, config, X, y, names)
    shared = ExactIndex(Blend(model, 0.5), X)
    shared.learner = Blend(model, 0.2)
    peers = {"all": ("search by all of what was learned", model), "cosine": ("cosine", Cosine().fit(X))}
    return [
        _search_record(learner, name, shared, title, ExactIndex(peer, X), X[:n_queries], repeats)
        for name, (title, peer) in peers.items()
    ]


def _search_record(
    learner: str, name: str, shared: ExactIndex, title: str, other: ExactIndex, Q: Any, repeats: int
) -> dict:
    ours, peer = (
        1000 * seconds / Q.shape[0]
        for seconds in median_in_turns(lambda _: shared.search(Q, 100), lambda _: other.search(Q, 100), repeats)
    )
    return {
        "name": f"open-search-{learner}-{name}",
        "what": f"exact search by a share of {learner}: {shared.gallery_.shape[1]} numbers an image, {title} "
        f"{other.gallery_.shape[1]}",
        "ours": ours,
        "peer": peer,
        "peer_name": title,
        "ratio": peer / ours,
        "limit": "a share of a learner whose gallery side is not the vectors reads these, too",
        "unit": "ms",
        "n": Q.shape[0],
        "measured": f"processor time, median of {repeats} in turns, {shared.n_gallery} images, k = 100, one thread",
        "command": COMMAND,
    }


# ---------------------------------------------------------------------------------------------------- what is written


Results = dict[tuple[str, str, str], dict[str, Any]]  # by set, kind of vectors and learner


def table(results: Results, kind: str, measure: int) -> str:
    """Seen, unseen and both by set and learner: cosine, before and now."""
    rows = "| seen / unseen / both | cosine | before | now | share | training, s |\n|---|---|---|---|---|---|\n"
    for (name, of, learner), found in results.items():
        if of != kind:
            continue
        words = [
            " / ".join(f"{figure:.3f}" for figure in means(found, which)[:, measure])
            for which in ("cosine", "before", "now")
        ]
        shares = sorted({f"{share:g}" for share in found["share"]}, key=float)
        seconds = np.sum(found["seconds"], axis=0)
        rows += f"| {SETS[name].partition(',')[0]}, {learner} | {' | '.join(words)} | {', '.join(shares)} | "
        rows += f"{seconds[0]:.1f} to {seconds[1]:.1f} |\n"
    return rows


def curves(results: Results) -> str:
    """MAP of OASIS by the share of what was learned."""
    rows = "| seen / unseen / both | " + " | ".join(f"{share:g}" for share in SHARES) + " |\n|---"
    rows += "|---" * len(SHARES) + "|\n"
    for (name, kind, learner), found in results.items():
        if learner == "oasis":
            curve = np.mean(found["curve"], axis=0)[:, :, 0]
            cells = [" / ".join(f"{figure:.3f}" for figure in figures) for figures in curve]
            rows += f"| {SETS[name].partition(',')[0]}, {kind} | {' | '.join(cells)} |\n"
    return rows


def bounds(results: Results) -> str:
    """What was asked for of OASIS and AROMA, and what was measured: a row for each bound."""
    rows = "| OASIS and AROMA | Asked | Measured: the worst two |\n|---|---|---|\n"
    some = {key: found for key, found in results.items() if key[2] in ("oasis", "aroma")}
    for measure, title in enumerate(("mAP", "P@1")):
        figures = {
            key: [means(found, which)[:, measure] for which in ("cosine", "before", "now")]
            for key, found in some.items()
        }
        for text, asked, worst in (
            ("unseen, less cosine", "-0.005", _worst(figures, lambda c, b, n: n[1] - c[1])),
            ("both, of cosine", "1", _worst(figures, lambda c, b, n: n[2] / c[2])),
            ("both, of before", "1", _worst(figures, lambda c, b, n: n[2] / b[2])),
            ("seen, of before", "0.95", _worst(figures, lambda c, b, n: n[0] / b[0])),
        ):
            rows += f"| {title}, {text} | at least {asked} | {worst} |\n"
        deep = [found for key, found in figures.items() if key[1] == "deep"]
        gains = np.mean([[n[1] / c[1], n[2] / max(c[2], b[2])] for c, b, n in deep], axis=0)
        rows += f"| {title}, unseen, deep sets, mean | 1.02 of cosine | {gains[0]:.3f} |\n"
        rows += f"| {title}, both, deep sets, mean | 1.10 of the better of cosine and before | {gains[1]:.3f} |\n"
    seconds = np.sum([np.sum(found["seconds"], axis=0) for found in some.values()], axis=0)
    return rows + f"| training time | 1.3 times | {seconds[1] / seconds[0]:.2f} times |\n"


def _worst(figures: dict[tuple[str, str, str], list], figure: Callable[..., float]) -> str:
    worst = sorted((float(figure(*found)), *key) for key, found in figures.items())
    return "; ".join(f"{value:.3f} ({learner}, {name}, {kind})" for value, name, kind, learner in worst[:2])


def of_both(results: Results) -> str:
    """MAP of all test images in one gallery, deep vectors: a row for each learner."""
    sets = [name for name in SETS if (name, "deep", "oasis") in results]
    rows = f"| | {' | '.join(SETS[name].partition(',')[0] for name in sets)} |\n{'|---' * (len(sets) + 1)}|\n"
    for learner in ("cosine", *NAMES):
        cells = []
        for name in sets:
            found = results.get((name, "deep", "oasis" if learner == "cosine" else learner))
            cells.append(f"{means(found, 'cosine' if learner == 'cosine' else 'now')[2, 0]:.3f}" if found else "")
        rows += f"| {learner} | {' | '.join(cells)} |\n"
    return rows


def write(results: Results) -> None:
    """Replace the tables of the pages."""
    parts = [bounds(results)]
    for kind in KINDS:
        if any(key[1] == kind for key in results):
            parts.append(f"**{kind}, mAP**\n\n{table(results, kind, 0)}")
            parts.append(f"**{kind}, precision at 1**\n\n{table(results, kind, 1)}")
    parts.append(f"**OASIS by the share of what was learned, mAP**\n\n{curves(results)}")
    replace(PAGE, "open", "\n".join(parts))
    replace(DOCS / "choosing.md", "both", of_both(results))


def replace(page: Path, name: str, text: str) -> None:
    """Write what stands between two comments of a page."""
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
    before, _, rest = page.read_text().partition(begin)
    page.write_text(f"{before}{begin}\n{text}\n{end}{rest.partition(end)[2]}")


def run(quick: bool = False) -> list[dict]:
    """Measure the learners, sets and kinds of vectors that are not kept, and write the pages."""
    if not (DATA / "caltech101").is_dir():
        print(f"  skipped: no images at {DATA}")
        return []
    folder = CACHE / "open"
    folder.mkdir(parents=True, exist_ok=True)
    results: Results = {}
    for key in [("flowers", "deep", "oasis")] if quick else itertools.product(SETS, KINDS, NAMES):
        file = folder / f"{'-'.join(key)}{'-quick' if quick else ''}.json"
        if not file.exists():
            file.write_text(json.dumps(of_set(*key, 2 if quick else SPLITS)))
        results[key] = json.loads(file.read_text())
    records = [record_of(*key, found) for key, found in results.items()]
    if not quick:
        write(results)
        records += [record for learner in ("oasis", "wsabie") for record in search_times(learner)]
    return records
