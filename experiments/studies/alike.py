"""Copies among photos, as ``visterm duplicates`` and the page find them.

To the photos of each set, copies of some of them are added: of half the sides, of JPEG quality 50, without a fortieth
of each side (a crop of 5 % of width and height), and mirrored. Groups of originals are real copies in the sets, or
errors: all of them were looked at, and `alike.json` lists them. A group that it does not list, and that joins more than
a photo with its copies, counts as wrong; its names are printed, to be looked at. So are, under "nearly", all pairs that
were compared at full size and not called one picture: how many of them show one says what is missed.

The cosine from which photos look alike is chosen for each kind of vectors: the smallest one at which, of the pairs that
do not show the same picture, 0.99 are of one class, and at most one photo in twenty looks like another one.

Sets have no labels of scenes. A second shot of some photos of each set is made: in perspective, without 10 to 25 % of
each side, in another light, with noise. Recall is that of these; errors are pairs of different classes, of some
likeness by deep vectors, that are said to be of one scene.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from itertools import permutations
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
import PIL.Image

from benchmarks.photos import extracted, to_dense
from benchmarks.processes import temporary_folder
from benchmarks.records import ELAPSED, PROCESS, compared, record, timed
from benchmarks.vectors import DATA
from visterm.pipeline.config.loading import load_config
from visterm.pipeline.console import Console
from visterm.pipeline.stages.features import features
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.images import Image
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.vectors import vectors
from visterm.teaching.duplicates import find_same_pictures, find_same_scenes
from visterm.teaching.groups import stars_of
from visterm.teaching.overview import ALIKE

SETS = {"flowers": "flowers", "textures": "textures", "corel5k": "Corel-5K", "caltech101": "Caltech-101"}
COPIES = 200  # of each set
KINDS = ("same", "unsure", "other"), ("unsure",)  # of pairs that were looked at
LOOKED_AT = Path(__file__).with_suffix(".json")
MARK = " copy"  # in the names of copies
WAYS = ("scaled", "JPEG 50", "cropped", "mirrored")
RECALL = 0.95  # asked, and a precision of 0.99
OF_CLASS = ("flowers", "textures", "caltech101")  # sets of one class per photo
SHOTS = 60  # of each set
SHOTS_FOUND = 0.8  # of the shots, asked
COMPARED = 0.65  # cosine of deep vectors from which pairs of different classes are compared
PRECISION, MOST = 0.99, 0.05  # of pairs that look alike those of one class; photos that look like another one


def copied(pixels: np.ndarray, way: str) -> np.ndarray:
    """A copy of a picture, uint8 (height, width, 3)."""
    height, width = pixels.shape[:2]
    if way == "scaled":
        return cv2.resize(pixels, (max(1, width // 2), max(1, height // 2)), interpolation=cv2.INTER_AREA)
    if way == "cropped":
        y, x = round(height / 40), round(width / 40)
        return pixels[y : height - y, x : width - x]
    return pixels[:, ::-1] if way == "mirrored" else pixels


class Groups(NamedTuple):
    """Groups of one picture: those of a set as it is, those with planted copies, and what is wrong in them."""

    of_set: int
    planted: int
    wrong: int  # groups
    offered: int  # photos, for removal
    wrongly_offered: int
    missed: int  # pairs of one picture by eye that were nearly found


def plant(name: str, folder: Path, n: int) -> list[tuple[str, str, str]]:
    """Link the photos of a set, and write copies of n of them; return the pairs of paths with the way of the copy."""
    paths = sorted(path for path in (DATA / name).rglob("*") if path.is_file() and path.suffix != ".csv")
    for path in paths:
        link = folder / path.relative_to(DATA / name)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path.resolve())
    pairs = []
    for number, i in enumerate(np.random.default_rng(0).permutation(len(paths))[:n].tolist()):
        own, way = paths[i].relative_to(DATA / name), WAYS[number % len(WAYS)]
        copy = own.with_name(f"{own.name}{MARK}.jpg")
        quality = 50 if way == "JPEG 50" else 90
        cv2.imwrite(str(folder / copy), copied(cv2.imread(str(paths[i])), way), [cv2.IMWRITE_JPEG_QUALITY, quality])
        pairs.append((own.as_posix(), copy.as_posix(), way))
    return pairs


def measure(name: str, n: int) -> tuple[list[dict], Groups]:
    """Recall of n planted copies, a record; and the groups of one picture."""
    with temporary_folder() as folder:
        planted = {tuple(sorted((own, copy))): way for own, copy, way in plant(name, folder, n)}
        paths = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        images = [Image(i, path, path, {}, None, 0, i) for i, path in enumerate(paths)]
        same, took = timed(find_same_pictures, folder, images, 100_000_000, clock=ELAPSED)
        sizes = {place: pixels_of(folder / paths[place]) for pair in same.pairs for place in pair}
    pairs = {tuple(sorted((paths[i], paths[j]))) for i, j in same.pairs}
    stars = stars_of([(i, j, value) for (i, j), value in same.pairs.items()], {}, sizes)
    groups = judged(name, [[paths[kept], *(paths[other] for other in others)] for kept, others in stars.items()])
    by_eye = json.loads(LOOKED_AT.read_text())["nearly"]["same"].get(name, [])
    groups = groups._replace(missed=sum(tuple(sorted(pair)) not in pairs for pair in by_eye))
    if not planted:
        return [], groups
    hits = {pair: pair in pairs for pair in planted}
    ways = {way: np.mean([hit for pair, hit in hits.items() if planted[pair] == way]).item() for way in WAYS}
    recall = sum(hits.values()) / len(hits)
    of_recall = record(
        f"alike-{name}",
        f"{SETS[name]}: planted copies that are found to show the same picture",
        f"{RECALL} asked",
        "1.0: all of them",
        {"ours": recall, "peer": RECALL, "ratio": recall / RECALL, "unit": "recall", "n": len(hits)},
        measured=f"once, {len(paths):,} photos in {took:.0f} s; "
        + ", ".join(f"{way} {share:.3f}" for way, share in ways.items()),
    )
    return [of_recall], groups


def pixels_of(path: Path) -> int:
    with PIL.Image.open(path) as picture:
        return picture.width * picture.height


def judged(name: str, groups: list[list[str]]) -> Groups:
    """Compare groups of one picture with those that were looked at; print the others that join several photos."""
    right = {pair for group in json.loads(LOOKED_AT.read_text())["right"][name] for pair in permutations(group, 2)}
    wrong, wrongly_offered, of_set = 0, 0, 0
    for kept, *others in groups:
        source = source_of(kept)
        of_set += any(source_of(other) != source for other in others)
        errors = [other for other in others if source_of(other) != source and (source, source_of(other)) not in right]
        if errors:
            print(f"    {name}, not listed as one picture: {', '.join([kept, *errors])}", flush=True)
        wrong, wrongly_offered = wrong + bool(errors), wrongly_offered + len(errors)
    offered = sum(len(group) - 1 for group in groups)
    return Groups(of_set, len(groups) - of_set, wrong, offered, wrongly_offered, 0)


def source_of(path: str) -> str:
    """The photo that a file is a copy of, or itself."""
    return path.removesuffix(f"{MARK}.jpg")


def of_groups(parts: list[Groups]) -> list[dict]:
    """Two records: the groups that are right, and those by eye that are found."""
    total = Groups(*(sum(values) for values in zip(*parts, strict=True)))
    n = total.of_set + total.planted
    of_found = record(
        "alike-groups",
        "groups of degree picture, of flowers, textures, objects, scenes and of files in many formats, that show one "
        "picture",
        f"{PRECISION} asked",
        "1.0: all of them",
        compared(1 - total.wrong / n, PRECISION, "of the groups", n, higher=True),
        measured=f"all {total.of_set} groups of the sets as they are, each looked at (experiments/studies/alike.json), "
        f"and {total.planted} of a photo and its planted copies; {total.wrongly_offered} of the {total.offered} photos "
        "that are offered for removal are not the same picture",
    )
    nearly = json.loads(LOOKED_AT.read_text())["nearly"]
    n_looked_at, n_unsure = (sum(len(pairs) for kind in kinds for pairs in nearly[kind].values()) for kinds in KINDS)
    by_eye = total.of_set + total.missed
    of_missed = record(
        "alike-by-eye",
        "of the groups and pairs of the sets as they are that show one picture by eye, those that are found",
        f"{RECALL} asked of planted copies",
        "1.0: all of them",
        compared(total.of_set / by_eye, RECALL, "of the groups", by_eye, higher=True),
        measured=f"all {total.of_set} groups that are found, and all {n_looked_at} pairs that were compared at full "
        f"size and not found, looked at: {total.missed} of them show one photo or drawing that was recoloured, edited "
        f"or cut along other margins, {n_unsure} cannot be told from another shot",
    )
    return [of_found, of_missed]


class Near(NamedTuple):
    """Pairs of photos of one set that do not show the same picture."""

    cosines: np.ndarray
    same_class: np.ndarray  # bool
    rows: np.ndarray  # (n_pairs, 2)
    n_photos: int


def near_pairs(name: str, kind: str, same: set[tuple[str, ...]]) -> Near:
    """The pairs of a set by one kind of vectors, but those of `same`."""
    run, _ = extracted(name, kind)
    with Collection(run.collection) as collection:
        images = collection.images()
        X = vectors(run, collection, images)
    cosines = to_dense(X @ X.T)
    i, j = np.nonzero(np.triu(cosines >= 0.5, 1))
    paths = [image.path for image in images]
    other = np.array([tuple(sorted((paths[a], paths[b]))) not in same for a, b in zip(i, j, strict=True)], bool)
    i, j = i[other], j[other]
    classes = np.array([path.split("/")[0] for path in paths])
    return Near(cosines[i, j], classes[i] == classes[j], np.column_stack([i, j]), len(images))


def of_limit(parts: list[Near], limit: float) -> tuple[float, float, int]:
    """Share of pairs of one class, share of photos in a pair, and number of pairs, from a cosine on."""
    chosen = [part.cosines >= limit for part in parts]
    n_pairs = sum(int(some.sum()) for some in chosen)
    right = sum(int(part.same_class[some].sum()) for part, some in zip(parts, chosen, strict=True))
    photos = sum(len(np.unique(part.rows[some])) for part, some in zip(parts, chosen, strict=True))
    return right / n_pairs if n_pairs else 1.0, photos / sum(part.n_photos for part in parts), n_pairs


def same_pictures(name: str) -> set[tuple[str, ...]]:
    """Pairs of paths of one set that show the same picture."""
    paths = sorted(path.relative_to(DATA / name).as_posix() for path in (DATA / name).rglob("*.jpg"))
    images = [Image(i, path, path, {}, None, 0, i) for i, path in enumerate(paths)]
    return {tuple(sorted((paths[i], paths[j]))) for i, j in find_same_pictures(DATA / name, images, 100_000_000).pairs}


def limits(names: tuple[str, ...]) -> list[dict]:
    """One record per kind of vectors."""
    same = {name: same_pictures(name) for name in names}
    records = []
    for kind, limit in ALIKE.items():
        parts = [near_pairs(name, kind, same[name]) for name in names]
        tried = np.round(np.arange(0.99, 0.5, -0.01), 2).tolist()
        fits = [of_limit(parts, one)[0] >= PRECISION and of_limit(parts, one)[1] <= MOST for one in tried]
        chosen = tried[fits.index(False) - 1]
        precision, share, n_pairs = of_limit(parts, limit)
        records.append(
            record(
                f"alike-limit-{kind}",
                f"pairs of one class among those that look alike, {kind}, cosine of {limit:g} or more",
                f"{PRECISION}, with at most {MOST:.0%} of the photos in a pair",
                "1.0: all of them",
                compared(precision, PRECISION, "of the pairs", n_pairs, higher=True),
                measured=f"{', '.join(names)}; without the same picture; {n_pairs} pairs, {share:.1%} of the photos; "
                f"chosen {chosen:g}; at 0.93, {of_limit(parts, 0.93)[2]} pairs",
            )
        )
    return records


def shot(pixels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Another shot of what a photo shows, uint8 (height, width, 3)."""
    size = np.array(pixels.shape[1::-1])
    kept = 1 - rng.uniform(0.1, 0.25)
    square = np.array([(0, 0), (1, 0), (1, 1), (0, 1)])
    corners = kept * square + rng.uniform(0, 1 - kept, 2) + rng.uniform(-0.04, 0.04, (4, 2))
    width, height = np.round(kept * size).astype(int).tolist()
    source, target = (np.float32(one) for one in (np.clip(corners, 0, 1) * size, square * (width, height)))
    seen = cv2.warpPerspective(pixels, cv2.getPerspectiveTransform(source, target), (width, height)) / 255
    light = rng.uniform(0.75, 1.25) * seen ** rng.uniform(0.7, 1.4) + rng.normal(0, 0.02, seen.shape)
    return np.clip(255 * light, 0, 255).astype(np.uint8)


def shots(name: str, n: int) -> dict[str, float]:
    """Recall of second shots: in all, and of those whose deep vectors look alike; shares that do, or are copies."""
    paths = sorted(path for path in (DATA / name).rglob("*") if path.suffix in (".jpg", ".jpeg"))
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "photos"
        folder.mkdir()
        for number, i in enumerate(rng.permutation(len(paths))[:n]):
            shutil.copy(paths[i], folder / f"{number:03}.jpg")
            cv2.imwrite(str(folder / f"{number:03} shot.jpg"), shot(cv2.imread(str(paths[i])), rng))
        run = Run(Path(temporary) / "run")
        features(run, load_config(None, ["features.kind=deep"]), folder, Console(quiet=True))
        with Collection(run.collection) as collection:
            images = collection.images()
            X = vectors(run, collection, images)
        place = {image.path: i for i, image in enumerate(images)}
        pairs = [tuple(sorted((place[f"{number:03}.jpg"], place[f"{number:03} shot.jpg"]))) for number in range(n)]
        copies = find_same_pictures(folder, images, 100_000_000).pairs
        scenes = set(find_same_scenes(folder, images, pairs, 100_000_000))
    hits = np.array([pair in scenes for pair in pairs])
    alike = np.array([X[a] @ X[b] >= ALIKE["deep"] for a, b in pairs])
    return {
        "recall": hits.mean().item(),
        "recall of alike": hits[alike].mean().item(),
        "alike": alike.mean().item(),
        "copies": np.mean([pair in copies for pair in pairs]).item(),
    }


def scenes(names: tuple[str, ...], classes: tuple[str, ...], n: int) -> list[dict]:
    """Two records: recall of second shots, and pairs of different classes that are told apart."""
    of_set = {name: shots(name, n) for name in names}
    recall = np.mean([figures["recall"] for figures in of_set.values()]).item()
    n_pairs, wrong, took = 0, [], 0.0
    for name in classes:
        part = near_pairs(name, "deep", set())
        run, _ = extracted(name, "deep")
        with Collection(run.collection) as collection:
            images = collection.images()
        pairs = [(a, b) for a, b in part.rows[(part.cosines >= COMPARED) & ~part.same_class].tolist()]
        called, seconds = timed(find_same_scenes, DATA / name, images, pairs, 100_000_000, clock=PROCESS)
        wrong += [(images[a].path, images[b].path) for a, b in called]
        n_pairs, took = n_pairs + len(pairs), took + seconds
    for pair in wrong:
        print(f"    one scene, of different classes: {', '.join(pair)}", flush=True)
    return [
        record(
            "alike-scene-shots",
            "second shots of a photo that are found to show the same scene",
            f"{SHOTS_FOUND} asked",
            "1.0: all of them",
            compared(recall, SHOTS_FOUND, "recall", n * len(of_set), higher=True),
            measured="; ".join(
                f"{name} {figures['recall']:.2f} ({figures['alike']:.2f} look alike by deep vectors, of these "
                f"{figures['recall of alike']:.2f}; {figures['copies']:.2f} are the same picture)"
                for name, figures in of_set.items()
            ),
        ),
        record(
            "alike-scene-classes",
            f"pairs of different classes, deep, cosine of {COMPARED:g} or more, that are not said to show one scene",
            f"{PRECISION} asked",
            "1.0: all of them",
            compared(1 - len(wrong) / n_pairs, PRECISION, "of the pairs", n_pairs, higher=True),
            measured=f"{', '.join(classes)}; {1000 * took / n_pairs:.0f} ms of processor time per pair, with reading",
        ),
    ]


def run(quick: bool = False) -> list[dict]:
    """One record per set, one of groups, one per kind of vectors, and two of scenes."""
    names = ["flowers"] if quick else SETS
    classes = OF_CLASS[: 1 if quick else None]
    measured = [measure(name, 20 if quick else COPIES) for name in names] + [measure("odd", 0)]
    return [
        *(one for records, _ in measured for one in records),
        *of_groups([groups for _, groups in measured]),
        *limits(classes),
        *scenes(tuple(names), classes, 20 if quick else SHOTS),
    ]
