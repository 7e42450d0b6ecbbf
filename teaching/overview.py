"""An overview of a collection: a map in two dimensions, groups of images that look alike, and labels to check.

All of it follows from which images are near each other. The map is made from the learned similarity: vectors are
projected onto the main directions of learned queries, where the learner's matrix is small, and UMAP lays the nearest
neighbours out in the plane. Images that look alike are near without any learning, in all of their visterms; some of
them show one scene, and some images one picture. A label is to be checked where all other images say that another one
fits much better (`wrong_labels`); the nearest images by the learned similarity are evidence, and in a very large
collection they judge.

    runs/<run>/overview/    points.npy, ids.npy, alike.json, check.json, record.json

`visterm serve` makes it in the background, in a process of low priority:
``python -m visterm.teaching.overview runs/<run>``.
"""

from __future__ import annotations

import functools
import json
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from visterm import sparse
from visterm.extras import how_to_install
from visterm.pipeline.errors import UserError
from visterm.pipeline.store.files import publish
from visterm.pipeline.store.records import fingerprint, is_up_to_date, make_record, read_record
from visterm.pipeline.store.run import Run
from visterm.pipeline.workers import work_for_service

from .different import DifferentPictures
from .duplicates import (
    ALIGNED_CORRELATION,
    EVENED_TOLERANCE,
    SCENE_KEYPOINTS,
    SamePictures,
    find_same_pictures,
    find_same_scenes,
)
from .groups import Pair, Pairs, among, group_pairs, stars_of, with_equal
from .same_picture import DIFFERENCE
from .wrong_labels import labels_to_check, rules_of_checks

if TYPE_CHECKING:
    from visterm.pipeline.config.models import Config
    from visterm.pipeline.search.searcher import Searcher

N_DIRECTIONS = 64  # main directions of the vectors
N_NEIGHBORS = 15
MAX_LAID_OUT = 60_000  # images that UMAP lays out; others are put between their nearest ones
MIN_LAID_OUT = 16  # fewer are laid out by their two main directions
ALIKE = {"visterms": 0.84, "spatial": 0.9, "deep": 0.87}  # cosine from which two images look alike; see `alike_limit`
ALIKE_OTHER = 0.93  # of tables and other networks, of which nothing is known
_FITTED_ON = 20_000  # images that the main directions are computed from
_DENSE_ENTRIES = 40_000_000  # of learned queries, which are dense: some 160 MB
_ROWS_AT_ONCE = 512
_LISTED = 2000  # labels to check that are kept


class Overview(NamedTuple):
    """Result of `read_overview`; parts are None until they are there for the first time."""

    ids: np.ndarray  # int64 (n_images,), of the images on the map
    points: np.ndarray | None  # float32 (n_images, 2), places on the map, from 0 to 1
    alike: Pairs | None  # that `groups.group_pairs` makes groups of
    # The worst fit first: ``{"id", "label", "probability", "share", "suggested", "suggested_probability",
    # "suggested_share"}``, a label and the one that fits better, the probability of each as all other images say (None
    # where there are too many images), and the share of the nearest images that have it.
    check: list[dict[str, Any]] | None
    record: dict[str, Any]


def alike_limit(config: Config) -> float:
    """Cosine from which two images look alike, by their vectors; ``python -m experiments.studies alike`` chose it."""
    if config.collection.vectors.file is not None or config.features.kind == "onnx":
        return ALIKE_OTHER
    if config.features.kind == "deep":
        return ALIKE["deep"]
    return ALIKE["visterms" if config.features.cells == [1] else "spatial"]


def overview_record(searcher: Searcher) -> dict[str, Any]:
    """Make the record of the overview of a run as it is now; see `is_up_to_date`."""
    learner = searcher.default_learner()
    return make_record(
        "overview",
        {
            "seed": searcher.config.seed,
            "n_neighbors": N_NEIGHBORS,
            "alike": alike_limit(searcher.config),
            "crops": ALIGNED_CORRELATION,
            "pictures": [EVENED_TOLERANCE, DIFFERENCE],
            "scenes": SCENE_KEYPOINTS,
            "check": rules_of_checks(),
        },
        {"collection": searcher.gallery.fingerprint, "learner": fingerprint(learner, searcher._trained.get(learner))},
    )


def overview_folder(run: Run) -> Path:
    """The folder of a run's overview."""
    return run.folder / "overview"


def read_overview(run: Run) -> Overview | None:
    """Read the overview that a run keeps, up to date or not; None if there is none that can be read."""
    folder = overview_folder(run)

    def part(name: str) -> Any:
        file = folder / name
        if not file.exists():
            return None
        return np.load(file, allow_pickle=False) if file.suffix == ".npy" else json.loads(file.read_text())

    try:
        record = read_record(folder)
        if record is None:
            return None
        ids, points = np.load(folder / "ids.npy", allow_pickle=False), part("points.npy")
        alike, check = part("alike.json"), part("check.json")
        if alike is not None and (not isinstance(alike, dict) or alike.keys() != Pairs.__annotations__.keys()):
            raise ValueError("groups of an earlier version")
    except (UserError, OSError, ValueError):  # it is made again
        return None
    return Overview(ids, points, cast(Pairs, alike), check, record)


def make_overview(searcher: Searcher, *, tell: Callable[[str, float], None] = lambda phase, share: None) -> Overview:
    """Make the overview of a run and keep it there; read it if it is up to date.

    Each part is kept as soon as it is made, beside those of the overview before.

    Parameters
    ----------
    searcher : Searcher
    tell : callable, optional
        Called with each phase in words and the share of the work that is done.

    Returns
    -------
    Overview

    Raises
    ------
    UserError
        The package umap-learn is missing, the run cannot be written, or the directory of the images is gone: then the
        groups that look alike are those of before.
    """
    import scipy.linalg  # noqa: F401  # brings a BLAS of its own, which only limits what is loaded

    from visterm.learners.sums import one_thread

    run, record = searcher.run, overview_record(searcher)
    folder = overview_folder(run)
    kept = read_overview(run)
    if kept is not None and is_up_to_date(folder, record):
        return kept
    made = kept or Overview(np.zeros(0, np.int64), None, None, None, {})
    look = functools.cache(lambda: _look(searcher))
    with one_thread():  # in the background: BLAS's other threads take longer, and that from the service
        tell("projecting the images", 0.02)
        learned = _projected(searcher, look)
        tell("finding the nearest images", 0.15)
        neighbors, distances = _nearest(learned, N_NEIGHBORS)
    tell("judging the labels", 0.25)
    made = _keep(searcher, made._replace(check=labels_to_check(searcher, neighbors, _LISTED)), finished=False)
    tell("finding images that look alike", 0.4)
    with one_thread():
        plain = _unit_rows(look())
    gone = pictures_gone(searcher)
    if gone is None:
        made = _keep(searcher, made._replace(alike=_pairs(searcher, _nearest(plain, N_NEIGHBORS)[0])), finished=False)
    tell("drawing the map", 0.5)
    points = _laid_out(learned, neighbors, distances, searcher.config.seed)
    made = _keep(searcher, made._replace(ids=searcher.images.ids, points=points), finished=gone is None)
    if gone is not None:
        raise UserError(gone)
    tell("done", 1.0)
    return made


def _keep(searcher: Searcher, overview: Overview, *, finished: bool) -> Overview:
    """Keep the parts of an overview that are there; one that is not finished is not up to date."""
    record = overview_record(searcher)
    if not finished:
        record["inputs"]["finished"] = False
    searcher.run.check_exists()
    with publish(overview_folder(searcher.run), record) as target:
        np.save(target / "ids.npy", overview.ids)
        if overview.points is not None:
            np.save(target / "points.npy", overview.points)
        for name, part in (("alike", overview.alike), ("check", overview.check)):
            if part is not None:
                (target / f"{name}.json").write_text(json.dumps(part))
    return overview._replace(record=record)


def find_duplicates(searcher: Searcher) -> list[dict[str, Any]]:
    """Find images that show the same picture, the same scene, or look alike, as their vectors are nearly equal.

    Pictures are the same whatever their size, encoding and brightness, if one is mirrored, and if one is a crop of nine
    tenths of each side or more: at up to 1,200 pixels they agree in every place. Pictures that look alike show the same
    scene if many of their keypoints agree; so do drawings and pages, if one is mirrored. Images of one colour, and
    those whose files are gone, are in no group.

    Parameters
    ----------
    searcher : Searcher
        Its groups are those that the page shows; `make_overview` keeps them.

    Returns
    -------
    list of dict
        ``{"ids": [...], "degree", "same", "similarity"}``: images of the same picture (degree "picture"), then pictures
        of the same scene ("scene"), with one image for each picture, then those that look alike ("alike"), with one for
        each scene; of each degree the largest groups first, at most 2,000. The first id is that of the image to keep,
        with which each of the others was compared: the largest image of a picture, else the one with the most
        duplicates. `same` is whether they show the same picture. The similarity is the smallest of the pairs with the
        first image: a correlation of pixels for pictures and mirrored drawings, else a cosine of vectors. Images that
        people said are different are in no group together.
    """
    return groups_of(searcher, compared_pairs(searcher))


def compared_pairs(searcher: Searcher) -> Pairs:
    """Find the pairs that `groups_of` makes groups of, and the images of one colour; not those whose files are gone."""
    if (problem := pictures_gone(searcher)) is not None:
        searcher._console.warn(problem)
    pairs = _pairs(searcher, _nearest(_unit_rows(_look(searcher)), N_NEIGHBORS)[0])
    of_pairs = (id_ for kind in (pairs["same"], pairs["alike"]) for pair in kind for id_ in pair[:2])
    ids = {*of_pairs, *pairs["blank"]}
    gone = searcher.deleted(searcher.place[id_] for id_ in ids)
    return among(pairs, ids - {searcher.images[row].id for row in gone})


def pictures_gone(searcher: Searcher) -> str | None:
    """Say that no pictures can be compared, as the directory of the images is gone, and what to do; None otherwise."""
    if searcher.config.collection.vectors.file is not None or searcher.root.is_dir():
        return None
    follow = f"'visterm features IMAGES {searcher.run.option}' follows images that were moved"
    return f"{searcher.root} is gone: pictures cannot be compared, and their copies only look alike; {follow}"


def groups_of(searcher: Searcher, pairs: Pairs) -> list[dict[str, Any]]:
    """Make the groups that `find_duplicates` describes, of pairs of images of the run."""
    parts = DifferentPictures(searcher.run.different).parts_of(searcher.images)
    sizes = dict(zip(searcher.images.ids.tolist(), pixels_of(searcher), strict=True))
    return group_pairs(pairs, parts, sizes)


def pixels_of(searcher: Searcher) -> list[int]:
    """Number of pixels of each image; 0 of imported vectors."""
    return searcher.images.sizes.astype(int).prod(axis=1).tolist()


def _look(searcher: Searcher) -> np.ndarray:
    """Vectors by their main directions, at most N_DIRECTIONS."""
    X: Any = searcher.X
    rows = _fitted_rows(X)
    size = min(N_DIRECTIONS, X.shape[1] - 1, len(rows) - 1)
    if size < 2:
        few = X[:, : min(2, X.shape[1])]
        return few.toarray() if sparse.issparse(few) else np.asarray(few)
    return np.ascontiguousarray(X @ _directions(X[rows], size, searcher.config.seed).T, np.float32)


def _fitted_rows(X: Any) -> np.ndarray:
    """Rows that the main directions are computed from."""
    return np.linspace(0, X.shape[0] - 1, min(X.shape[0], _FITTED_ON)).astype(np.intp)


def _projected(searcher: Searcher, look: Callable[[], np.ndarray]) -> np.ndarray:
    """Vectors of few dimensions as the learner compares them, float32 with unit rows; `look` makes those of `_look`."""
    from visterm.retrieval.stored import gallery_sides

    X: Any = searcher.X
    n_features = X.shape[1]
    rows = _fitted_rows(X)
    if min(n_features, len(rows)) < 3:
        return _unit_rows(look())
    learner: Any = searcher.blend(searcher.default_learner())
    if not learner.linear:
        return _unit_rows(look())
    # The directions in which learned queries differ: those of the plain vectors hold little of what was learned.
    few = rows[:: max(1, len(rows) * n_features // _DENSE_ENTRIES)]
    size = min(N_DIRECTIONS, n_features - 1, len(few) - 1)
    directions = _directions(learner.transform_query(X[few]), size, searcher.config.seed)
    whole: Any = searcher.learner(searcher.default_learner())
    if directions.shape[1] != n_features or not whole.keeps_columns:  # both sides lie in a space of their own: WSABIE
        learned = gallery_sides(whole, X)
        learned = learned.toarray() if sparse.issparse(learned) else learned
        if learner is not whole:  # a share of it, beside how images look: each with the root of its weight
            plain, share = np.sqrt(1 - learner.learned_weight), np.sqrt(learner.learned_weight * learner.scale)
            learned = np.hstack([plain * look(), share * learned])
        return _unit_rows(learned)
    sides = sparse.csr_matrix(directions) if sparse.issparse(X) else directions
    matrix = learner.linear_query(directions) @ sides.T  # full as they are: a third of the time that sparse rows take
    matrix = matrix.toarray() if sparse.issparse(matrix) else np.asarray(matrix)
    # A map is symmetric: what the matrix does both ways counts. Directions in which it makes images that share them
    # less similar have no place in it.
    values, bases = np.linalg.eigh((matrix + matrix.T).astype(np.float64) / 2)
    projected = np.asarray(X @ directions.T)
    if (center := learner.center()) is not None:
        projected = projected - center @ directions.T
    learned = projected @ (bases * np.sqrt(np.maximum(values, 0))).astype(np.float32)
    return _unit_rows(learned)


def _directions(vectors: Any, size: int, seed: int) -> np.ndarray:
    """The main directions of some vectors, float32 (size, n_features)."""
    from sklearn.utils.extmath import randomized_svd

    return np.asarray(randomized_svd(vectors, size, n_oversamples=10, n_iter=3, random_state=seed)[2], np.float32)


def _unit_rows(vectors: np.ndarray) -> np.ndarray:
    vectors = np.asarray(vectors, np.float32)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def _nearest(vectors: np.ndarray, k: int, among: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The k nearest rows of each row, itself excluded, and their cosine distances; exact, so the same every time."""
    among = vectors if among is None else among
    own = among is vectors
    k = min(k, len(among) - own)
    indices = np.zeros((len(vectors), k), np.int32)
    distances = np.zeros((len(vectors), k), np.float32)
    for start in range(0, len(vectors), _ROWS_AT_ONCE):
        scores = vectors[start : start + _ROWS_AT_ONCE] @ among.T
        here = np.arange(len(scores))
        if own:
            scores[here, start + here] = -2
        best = np.argpartition(-scores, k - 1, axis=1)[:, :k] if k < scores.shape[1] else np.argsort(-scores, axis=1)
        values = np.take_along_axis(scores, best, axis=1)
        order = np.argsort(-values, axis=1, kind="stable")
        indices[start + here] = np.take_along_axis(best, order, axis=1)
        distances[start + here] = np.maximum(1 - np.take_along_axis(values, order, axis=1), 0)
    return indices, distances


def _laid_out(vectors: np.ndarray, neighbors: np.ndarray, distances: np.ndarray, seed: int) -> np.ndarray:
    """Places of the images on the map, from 0 to 1."""
    n = len(vectors)
    flat = _main_plane(vectors)
    if n < MIN_LAID_OUT:
        return _scaled(flat)
    if n <= MAX_LAID_OUT:
        return _scaled(_umap(vectors, neighbors, distances, flat, seed))
    chosen = np.linspace(0, n - 1, MAX_LAID_OUT).astype(np.intp)
    landmarks = vectors[chosen]
    places = _umap(landmarks, *_nearest(landmarks, N_NEIGHBORS), flat[chosen], seed)
    nearest, apart = _nearest(vectors, 3, landmarks)
    shares = 1 / (apart + 1e-3)
    points = (places[nearest] * shares[:, :, None]).sum(axis=1) / shares.sum(axis=1)[:, None]
    points[chosen] = places
    return _scaled(points)


def _umap(
    vectors: np.ndarray, neighbors: np.ndarray, distances: np.ndarray, start: np.ndarray, seed: int
) -> np.ndarray:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of TensorFlow, which nobody needs
            from umap import UMAP
    except ModuleNotFoundError as error:
        raise UserError(f"the map needs {error.name}: {how_to_install('serve')}") from None
    itself = np.arange(len(vectors), dtype=np.int32)[:, None]
    k = neighbors.shape[1] + 1
    known = (np.hstack([itself, neighbors]), np.hstack([np.zeros_like(distances[:, :1]), distances]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a seed means one thread
        model = UMAP(
            n_neighbors=k,
            min_dist=0.15,
            metric="cosine",
            n_epochs=200,
            init=start * 10 / max(float(np.abs(start).max()), 1e-9),
            precomputed_knn=(*known, None),
            random_state=seed,
            n_jobs=1,
        )
        return model.fit_transform(vectors)


def _main_plane(vectors: np.ndarray) -> np.ndarray:
    """Places by the two main directions, (n_images, 2)."""
    centred = vectors - vectors.mean(axis=0)
    if centred.shape[1] < 2 or len(centred) < 2:
        return np.hstack([centred, np.zeros((len(centred), 2))])[:, :2].astype(np.float32)
    _, bases = np.linalg.eigh(centred.T.astype(np.float64) @ centred)
    bases = bases[:, -2:]
    bases = bases * np.sign(bases[np.abs(bases).argmax(axis=0), [0, 1]])  # else their signs are left to chance
    return (centred @ bases).astype(np.float32)


def _scaled(points: np.ndarray) -> np.ndarray:
    """Fit places into the unit square, without stretching; a few far outliers are drawn in."""
    low, high = np.percentile(points, [0.2, 99.8], axis=0)
    side = max(float((high - low).max()), 1e-6)
    places = 0.5 + (np.clip(points, low - 0.03 * side, high + 0.03 * side) - (low + high) / 2) / (1.08 * side)
    return places.astype(np.float32)


def _pairs(searcher: Searcher, neighbors: np.ndarray) -> Pairs:
    """Find the pairs that groups of duplicates are made of, by ids."""
    images, X = searcher.images, searcher.X
    pictures = SamePictures({}, [], set())
    max_pixels = searcher.config.collection.max_pixels
    if compared := searcher.config.collection.vectors.file is None:
        pictures = find_same_pictures(searcher.root, images, max_pixels)
    blank = np.zeros(len(images), bool)
    blank[pictures.blank] = True
    of_file = defaultdict(list)
    for row, image in enumerate(images):
        if not blank[row]:
            of_file[image.sha256].append(row)
    copies = {pair: value for pair, value in pictures.pairs.items() if pair not in pictures.mirrored}
    same = with_equal(copies, {rows[0]: rows[1:] for rows in of_file.values()})
    # The image that is kept of each picture is compared itself, in place of those that it stands for.
    kept = np.arange(len(images))
    for row, others in stars_of(same, {}, dict(enumerate(pixels_of(searcher)))).items():
        kept[[*others]] = row
    pairs = np.column_stack([np.repeat(np.arange(len(images)), neighbors.shape[1]), neighbors.ravel().astype(np.intp)])
    pairs = np.unique(np.sort(np.vstack([pairs, kept[pairs]]), axis=1), axis=0)
    left, right = pairs[(pairs[:, 0] != pairs[:, 1]) & ~blank[pairs].any(axis=1)].T
    starts = range(0, max(len(left), 1), 100_000)
    similar = np.concatenate([_cosines(X, left[i : i + 100_000], right[i : i + 100_000]) for i in starts])
    near = similar >= alike_limit(searcher.config)
    alike = dict(zip(zip(left[near].tolist(), right[near].tolist(), strict=True), similar[near].tolist(), strict=True))
    scene: list[tuple[int, int]] = []
    if compared:
        scene = find_same_scenes(searcher.root, images, list(alike.keys() - {pair[:2] for pair in same}), max_pixels)
    ids = images.ids.tolist()

    def by_ids(of_kind: Iterable[Pair]) -> list[Pair]:
        return [(ids[a], ids[b], round(min(value, 1.0), 4)) for a, b, value in of_kind]

    return {
        "same": by_ids(same),
        "scene": by_ids(
            [(a, b, alike[a, b]) for a, b in scene] + [(*pair, pictures.pairs[pair]) for pair in pictures.mirrored]
        ),
        "alike": by_ids((a, b, value) for (a, b), value in alike.items()),
        "blank": [ids[row] for row in pictures.blank],
    }


def _cosines(X: Any, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Cosines of pairs of rows, which have unit length."""
    if sparse.issparse(X):
        return np.asarray(X[left].multiply(X[right]).sum(axis=1)).ravel()
    return np.einsum("ij,ij->i", X[left], X[right])


def _main(folder: str) -> int:
    """Make the overview of a run for the service."""
    from visterm.pipeline.search.searcher import Searcher
    from visterm.pipeline.stages.estimators import import_estimators

    import_estimators()

    def work(tell: Callable[[Any], None]) -> None:
        make_overview(Searcher(Run(Path(folder))), tell=lambda phase, share: tell({"phase": phase, "share": share}))

    return work_for_service(work)


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1]))
