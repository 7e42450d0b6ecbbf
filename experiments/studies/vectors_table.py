"""Which vectors to take, visterms or deep.

Features, training and evaluation with the defaults of the commands, on 20 classes of Caltech-101 (40 training and 25
test images each), and on the flowers and the textures (36 and 24); see benchmarks/photos.py. Test images query test
images. Writes the table of docs/vectors.md, too.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from benchmarks import page
from benchmarks.photos import SETS, folder_of, settings_of
from benchmarks.records import FIRST, PROCESS, compared, record, seconds
from visterm.pipeline.config.loading import load_config
from visterm.pipeline.console import Console
from visterm.pipeline.stages.evaluate import evaluate
from visterm.pipeline.stages.extraction import ImageSource
from visterm.pipeline.stages.features import features
from visterm.pipeline.stages.train import train
from visterm.pipeline.store.records import read_metrics
from visterm.pipeline.store.run import Run

KINDS = ("visterms", "deep")
LEARNERS = ("oasis", "aroma", "wsabie")
PAGE = page.DOCS / "vectors.md"


def of_set(name: str, kind: str, quick: bool, learners: tuple[str, ...] = LEARNERS) -> list[dict]:
    """A record per learner, of one set of photos and one kind of vectors."""
    settings, images = [f"features.kind={kind}", *settings_of(name)], folder_of(name)
    if quick:
        settings += ["features.n_visterms=500", "split.train=10", "split.test=5"]
        settings += [f"{learner}.n_steps=20000" for learner in LEARNERS]
    config, console = load_config(None, settings), Console(quiet=True)
    with tempfile.TemporaryDirectory() as temporary:
        run = Run(Path(temporary) / name)
        summary = features(run, config, images, console)
        stored = sum(file.stat().st_size for file in (run.collection / "segments").rglob("*.npy"))
        milliseconds = processor_time(run, images)
        trained = {learner: train(run, config, learner, console)["seconds"] for learner in learners}
        metrics = read_metrics(evaluate(run, config, list(learners), console))
    maps = {system: figures["map"] for system, figures in metrics["systems"].items()}
    return [
        record(
            f"vectors-map-{name}-{kind}-{learner}",
            f"{learner} on {kind}: {SETS[name]}",
            "cosine on the same vectors",
            FIRST,
            compared(maps[learner], maps["cosine"], "mAP", metrics["n_queries"], higher=True),
            measured=f"defaults, {summary['n_images']} images, {metrics['n_queries']} queries, split.seed 0",
            train_seconds=float(trained[learner]),
            kilobytes_per_image=stored / summary["n_images"] / 1000,
            milliseconds_per_image=milliseconds,
        )
        for learner in learners
    ]


def processor_time(run: Run, folder: Path) -> float:
    """Milliseconds of one core per image, from file to vector."""
    files = run.extractor / "files"
    source = ImageSource(files, str(files), folder, 10**8, 256, "float32")
    images = [(i, str(path.relative_to(folder))) for i, path in enumerate(sorted(folder.glob("*/*.jpg"))[:128])]
    return 1000 * min([seconds(source.vectors, images, -1, clock=PROCESS) for _ in range(4)][1:]) / len(images)


def table(records: list[dict]) -> str:
    """The table of the page: a row per set and kind of vectors, of those that were measured."""
    head = ("Photos", "Vectors", "cosine", "OASIS", "AROMA", "WSABIE", "Training (OASIS, AROMA, WSABIE)", "An image")
    rows = []
    by_name = {record["name"]: record for record in records}
    for name, title in SETS.items():
        for kind in KINDS:
            names = [f"vectors-map-{name}-{kind}-{learner}" for learner in LEARNERS]
            these = [by_name.get(record) for record in names]
            first = next((record for record in these if record is not None), None)
            if first is None:
                continue
            figures = [f"{first['peer']:.3f}", *("-" if one is None else f"{one['ours']:.3f}" for one in these)]
            training = ", ".join("-" if one is None else f"{one['train_seconds']:.1f} s" for one in these)
            stored, spent = first["kilobytes_per_image"], first["milliseconds_per_image"]
            marker = f"<!-- bench: {' '.join(record for record in names if record in by_name)} -->"
            rows.append([title, kind, *figures, training, f"{stored:.1f} kB, {spent:.1f} ms {marker}"])
    return page.table(head, rows)


def write(records: list[dict]) -> None:
    """Replace the table of the page."""
    text = PAGE.read_text()
    PAGE.write_text(re.sub(r"(?<=\n)\| Photos \|.*?\n(?=\n)", lambda _: table(records), text, count=1, flags=re.DOTALL))


def run(quick: bool = False) -> list[dict]:
    sets = list(SETS)[1:2] if quick else SETS
    records = [one for name in sets for kind in KINDS for one in of_set(name, kind, quick)]
    if not quick:
        write(records)
    return records
