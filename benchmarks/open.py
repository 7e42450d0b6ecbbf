"""The open world: classes that a learner was trained on, and others: ``python -m benchmarks open [--quick]``.

Half of the classes are trained on ("seen"), the other half are not ("unseen"). Test images query test images: of seen
classes among these, of unseen ones among those, and all of them in one gallery ("both"). Of images with several words,
half of the words are seen, and an image with another word is unseen. Learners have the defaults of ``visterm train``,
beside cosine and the same learners as they were before there was an open world: no class held out, all of what is
learned counts, vectors as they are. Means of class splits; vectors as ``visterm features`` makes them.

What was measured is kept in build/bench/open, a file for each set and kind of vectors, so that an interrupted
benchmark resumes; delete a file to measure it again. Writes the tables of docs/open-world.md.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from visterm.learners import LEARNERS, Blend, SimilarityLearner
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


def of_set(name: str, kind: str, n_splits: int) -> dict[str, Any]:
    """Figures of every split, by system: cosine, and each learner before and now."""
    config, X, y, names = images_of(name, kind)
    found: dict[str, Any] = {"cosine": []} | {
        learner: {"before": [], "now": [], "seconds": [], "share": [], "curve": []} for learner in NAMES
    }
    for split in class_splits(y, n_splits):
        test = X[split.test]
        cosine = test @ test.T
        found["cosine"].append(measures(cosine.toarray() if sp.issparse(cosine) else cosine, split))
        for learner in NAMES:
            data = config, X[split.training], y[split.training], names
            before, seconds_before = fitted(learner, *data, before=True)
            now, seconds = fitted(learner, *data)
            own = found[learner]
            own["before"].append(measures(before.similarity(test, test), split))
            own["now"].append(measures(effective(now).similarity(test, test), split))
            own["seconds"].append([seconds_before, seconds])
            own["share"].append(now.learned_)
            if learner == "oasis":
                curve = [measures(Blend(now, share).similarity(test, test), split) for share in SHARES]
                own["curve"].append(curve)
            print(
                f"    {name} {kind} {learner}: share {now.learned_:g}, mAP {np.round(own['now'][-1], 3)[:, 0]}, "
                f"before {np.round(own['before'][-1], 3)[:, 0]}, s {seconds_before:.1f} to {seconds:.1f}",
                flush=True,
            )
    return found


def means(found: dict[str, Any], learner: str, which: str) -> np.ndarray:
    """Means over splits: (3 worlds, mAP and precision at 1)."""
    return np.mean(found["cosine"] if which == "cosine" else found[learner][which], axis=0)


def records_of(name: str, kind: str, found: dict[str, Any]) -> list[dict]:
    """A record for each learner: the mixture of both worlds."""
    records = []
    for learner in NAMES:
        cosine, before, now = (means(found, learner, which) for which in ("cosine", "before", "now"))
        best, of = max((cosine[2, 0], "cosine"), (before[2, 0], f"{learner} before there was an open world"))
        records.append(
            {
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
            }
        )
    return records


def search_times(learner: str, n_queries: int = 64, repeats: int = 31) -> dict:
    """Exact search by a share of a learner, beside search by all of it: milliseconds of a query in a batch."""
    config, X, y, names = images_of("caltech101", "deep")
    model, _ = fitted(learner, config, X, y, names)
    whole, shared = ExactIndex(model, X), ExactIndex(Blend(model, 0.5), X)
    shared.learner = Blend(model, 0.2)  # another share than the index was made with
    ours, peer = (
        1000 * seconds / n_queries
        for seconds in median_in_turns(
            lambda _: shared.search(X[:n_queries], 100), lambda _: whole.search(X[:n_queries], 100), repeats
        )
    )
    return {
        "name": f"open-search-{learner}",
        "what": f"exact search by a share of {learner}: {shared.gallery_.shape[1]} numbers an image, for all of it "
        f"{whole.gallery_.shape[1]}",
        "ours": ours,
        "peer": peer,
        "peer_name": "search by all of what was learned",
        "ratio": peer / ours,
        "limit": "a share of a learner whose gallery side is not the vectors reads these, too",
        "unit": "ms",
        "n": n_queries,
        "measured": f"processor time, median of {repeats} in turns, {X.shape[0]} images, k = 100, one thread",
        "command": COMMAND,
    }


# ---------------------------------------------------------------------------------------------------- what is written


def table(results: dict[str, dict], kind: str, measure: int) -> str:
    """Seen, unseen and both by set and learner: cosine, before and now; bold: what falls below its bound."""
    rows = "| seen / unseen / both | cosine | before | now | share | training, s |\n|---|---|---|---|---|---|\n"
    for name, title in SETS.items():
        found = results.get(f"{name}-{kind}")
        for learner in NAMES if found else ():
            cosine, before, now = (means(found, learner, which)[:, measure] for which in ("cosine", "before", "now"))
            words = [" / ".join(f"{figure:.3f}" for figure in figures) for figures in (cosine, before, now)]
            share = f"{min(found[learner]['share']):g} to {max(found[learner]['share']):g}"
            seconds = np.sum(found[learner]["seconds"], axis=0)
            rows += f"| {title.partition(',')[0]}, {learner} | {' | '.join(words)} | {share} | "
            rows += f"{seconds[0]:.1f} to {seconds[1]:.1f} |\n"
    return rows


def curves(results: dict[str, dict]) -> str:
    """MAP of OASIS by the share of what was learned."""
    rows = "| seen / unseen / both | " + " | ".join(f"{share:g}" for share in SHARES) + " |\n|---"
    rows += "|---" * len(SHARES) + "|\n"
    for kind in KINDS:
        for name, title in SETS.items():
            if found := results.get(f"{name}-{kind}"):
                curve = np.mean(found["oasis"]["curve"], axis=0)[:, :, 0]
                cells = [" / ".join(f"{figure:.3f}" for figure in figures) for figures in curve]
                rows += f"| {title.partition(',')[0]}, {kind} | {' | '.join(cells)} |\n"
    return rows


def bounds(results: dict[str, dict]) -> str:
    """What was asked for, and what was measured: a row for each bound."""
    rows = "| OASIS and AROMA | Asked | Measured, worst set |\n|---|---|---|\n"
    for measure, title in enumerate(("mAP", "P@1")):
        found = {
            (name, learner): [means(one, learner, which)[:, measure] for which in ("cosine", "before", "now")]
            for name, one in results.items()
            for learner in ("oasis", "aroma")
        }
        deep = [figures for (name, _), figures in found.items() if name.endswith("-deep")]
        for text, asked, worst in (
            ("unseen, less cosine", "-0.005", _worst(found, lambda c, b, n: n[1] - c[1])),
            ("both, of cosine", "1", _worst(found, lambda c, b, n: n[2] / c[2])),
            ("both, of before", "1", _worst(found, lambda c, b, n: n[2] / b[2])),
            ("seen, of before", "0.95", _worst(found, lambda c, b, n: n[0] / b[0])),
        ):
            rows += f"| {title}, {text} | at least {asked} | {worst} |\n"
        gains = np.mean([[n[1] / c[1], n[2] / max(c[2], b[2])] for c, b, n in deep], axis=0)
        rows += f"| {title}, unseen, deep sets, mean | 1.02 of cosine | {gains[0]:.3f} |\n"
        rows += f"| {title}, both, deep sets, mean | 1.10 of the better of cosine and before | {gains[1]:.3f} |\n"
    seconds = np.sum([one[name]["seconds"] for one in results.values() for name in ("oasis", "aroma")], axis=(0, 1))
    return rows + f"| training time | 1.3 times | {seconds[1] / seconds[0]:.2f} times |\n"


def _worst(found: dict[tuple[str, str], list], figure: Any) -> str:
    worst = sorted((float(figure(*figures)), *names) for names, figures in found.items())
    return "; ".join(f"{value:.3f} ({learner}, {name})" for value, name, learner in worst[:2])


def of_both(results: dict[str, dict]) -> str:
    """MAP of all test images in one gallery, deep vectors: a row for each learner."""
    sets = [name for name in SETS if f"{name}-deep" in results]
    rows = f"| | {' | '.join(SETS[name].partition(',')[0] for name in sets)} |\n{'|---' * (len(sets) + 1)}|\n"
    for learner in ("cosine", *NAMES):
        figures = [means(results[f"{name}-deep"], learner, "now" if learner != "cosine" else learner) for name in sets]
        rows += f"| {learner} | {' | '.join(f'{figure[2, 0]:.3f}' for figure in figures)} |\n"
    return rows


def write(results: dict[str, dict]) -> None:
    """Replace the tables of the page."""
    parts = [f"{bounds(results)}"]
    for kind in KINDS:
        n_splits = [len(one["cosine"]) for name, one in results.items() if name.endswith(f"-{kind}")]
        if n_splits:
            parts.append(f"**{kind}, mAP** ({min(n_splits)} class splits)\n\n{table(results, kind, 0)}")
            parts.append(f"**{kind}, precision at 1**\n\n{table(results, kind, 1)}")
    parts.append(f"**OASIS by the share of what was learned, mAP**\n\n{curves(results)}")
    text = "\n".join(parts)
    replace(PAGE, "open", text)
    replace(DOCS / "choosing.md", "both", of_both(results))


def replace(page: Path, name: str, text: str) -> None:
    """Write what stands between two comments of a page."""
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
    before, _, rest = page.read_text().partition(begin)
    page.write_text(f"{before}{begin}\n{text}\n{end}{rest.partition(end)[2]}")


def run(quick: bool = False) -> list[dict]:
    """Measure the sets and kinds of vectors that are not kept, and write the page."""
    if not (DATA / "caltech101").is_dir():
        print(f"  skipped: no images at {DATA}")
        return []
    folder = CACHE / "open"
    folder.mkdir(parents=True, exist_ok=True)
    wanted = ("flowers-deep",) if quick else tuple(f"{name}-{kind}" for kind in KINDS for name in SETS)
    results = {}
    for key in wanted:
        file = folder / f"{key}{'-quick' if quick else ''}.json"
        if not file.exists():
            found = of_set(*key.split("-"), 2 if quick else SPLITS)
            file.write_text(json.dumps(found))
        results[key] = json.loads(file.read_text())
    records = [record for key, found in results.items() for record in records_of(*key.split("-"), found)]
    if not quick:
        write(results)
        records += [search_times(learner) for learner in ("oasis", "wsabie")]
    return records
