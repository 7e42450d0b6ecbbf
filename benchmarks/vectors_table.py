"""Which vectors to take, visterms or deep: ``python -m benchmarks vectors_table [--quick]``.

Features, training and evaluation with the defaults of the commands, on 20 classes of Caltech-101 (40 training and 25
test images each), and on the flowers and the textures (36 and 24); see benchmarks/vectors.py. Test images query test
images. Writes the table of docs/vectors.md, too.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
from pathlib import Path

import yaml

from visterm.pipeline.config.loading import load_config
from visterm.pipeline.console import Console
from visterm.pipeline.stages.evaluate import evaluate
from visterm.pipeline.stages.extraction import ImageSource
from visterm.pipeline.stages.features import features
from visterm.pipeline.stages.train import train
from visterm.pipeline.store.run import Run

from .page import DOCS
from .vectors import DATA

COMMAND = "python -m benchmarks vectors_table"
SETS = {"caltech101-20": "Caltech-101, 20 classes", "flowers": "flowers, 9 classes", "textures": "textures, 9 classes"}
KINDS = ("visterms", "deep")
LEARNERS = ("oasis", "aroma", "wsabie")
PAGE = DOCS / "vectors.md"


def of_set(name: str, kind: str, quick: bool, learners: tuple[str, ...] = LEARNERS) -> list[dict]:
    """A record per learner, of one set of photos and one kind of vectors."""
    settings = [f"features.kind={kind}"]
    folder = "caltech101" if name.startswith("caltech101") else name
    if folder == "caltech101":
        classes = yaml.safe_load((DATA / "sets.yaml").read_text())[name]
        settings += [f"collection.classes={json.dumps(classes)}", "split.train=40", "split.test=25"]
    if quick:
        settings += ["features.n_visterms=500", "split.train=10", "split.test=5"]
        settings += [f"{learner}.n_steps=20000" for learner in LEARNERS]
    config, console = load_config(None, settings), Console(quiet=True)
    with tempfile.TemporaryDirectory() as temporary:
        run = Run(Path(temporary) / name)
        summary = features(run, config, DATA / folder, console)
        stored = sum(file.stat().st_size for file in (run.collection / "segments").rglob("*.npy"))
        milliseconds = processor_time(run, folder)
        trained = {learner: train(run, config, learner, console)["seconds"] for learner in learners}
        evaluate(run, config, list(learners), console)
        (file,) = run.folder.glob("evaluations/*/metrics.json")
        metrics = json.loads(file.read_text())
    cosine = metrics["systems"]["cosine"]["map"]
    return [
        {
            "name": f"vectors-map-{name}-{kind}-{learner}",
            "what": f"{learner} on {kind}: {SETS[name]}",
            "ours": metrics["systems"][learner]["map"],
            "peer": cosine,
            "peer_name": "cosine on the same vectors",
            "ratio": metrics["systems"][learner]["map"] / cosine,
            "limit": "1.0: every image of the query's class first",
            "unit": "mAP",
            "n": metrics["n_queries"],
            "measured": f"defaults, {summary['n_images']} images, {metrics['n_queries']} queries, split.seed 0",
            "command": COMMAND,
            "train_seconds": float(trained[learner]),
            "kilobytes_per_image": stored / summary["n_images"] / 1000,
            "milliseconds_per_image": milliseconds,
        }
        for learner in learners
    ]


def processor_time(run: Run, folder: str) -> float:
    """Milliseconds of one core per image, from file to vector."""
    files = run.extractor / "files"
    source = ImageSource(files, str(files), DATA / folder, 10**8, 256)
    paths = [path.relative_to(DATA / folder) for path in sorted((DATA / folder).glob("*/*.jpg"))[:128]]
    images = [(i, str(path)) for i, path in enumerate(paths)]
    times = []
    for _ in range(4):
        start = time.process_time()
        source.vectors(images, -1)
        times.append(time.process_time() - start)
    return 1000 * min(times[1:]) / len(images)


def table(records: list[dict]) -> str:
    """The table of the page: a row per set and kind of vectors, of those that were measured."""
    rows = "| Photos | Vectors | cosine | OASIS | AROMA | WSABIE | Training (OASIS, AROMA, WSABIE) | An image |\n"
    rows += "|---|---|---|---|---|---|---|---|\n"
    by_name = {record["name"]: record for record in records}
    for name, title in SETS.items():
        for kind in KINDS:
            names = [f"vectors-map-{name}-{kind}-{learner}" for learner in LEARNERS]
            these = [by_name.get(record) for record in names]
            first = next((record for record in these if record is not None), None)
            if first is None:
                continue
            figures = [f"{first['peer']:.3f}", *("-" if one is None else f"{one['ours']:.3f}" for one in these)]
            seconds = ", ".join("-" if one is None else f"{one['train_seconds']:.1f} s" for one in these)
            stored, spent = first["kilobytes_per_image"], first["milliseconds_per_image"]
            marker = f"<!-- bench: {' '.join(record for record in names if record in by_name)} -->"
            cells = [title, kind, *figures, seconds, f"{stored:.1f} kB, {spent:.1f} ms {marker}"]
            rows += f"| {' | '.join(cells)} |\n"
    return rows


def write(records: list[dict]) -> None:
    """Replace the table of the page."""
    text = PAGE.read_text()
    PAGE.write_text(re.sub(r"(?<=\n)\| Photos \|.*?\n(?=\n)", lambda _: table(records), text, count=1, flags=re.DOTALL))


def run(quick: bool = False) -> list[dict]:
    if not (DATA / "caltech101").is_dir():
        print(f"    left out: no {DATA / 'caltech101'}", file=sys.stderr)
        return []
    sets = list(SETS)[1:2] if quick else SETS
    records = [record for name in sets for kind in KINDS for record in of_set(name, kind, quick)]
    if not quick:
        write(records)
    return records
