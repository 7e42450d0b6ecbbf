"""kill -9 while marks are added and while versions are made: what was confirmed is there, and the model is whole."""

import random

import numpy as np
import pytest
from running import said_until_killed

from visterm.learners import load_learner
from visterm.pipeline import Searcher
from visterm.pipeline.config.loading import load_config
from visterm.pipeline.console import Console
from visterm.pipeline.stages.features import features
from visterm.pipeline.stages.train import train
from visterm.pipeline.store.run import Run
from visterm.teaching.feedback import FeedbackTrainer
from visterm.teaching.marks import RelevanceMarks

pytestmark = pytest.mark.slow


MARKER = """
import sys
from pathlib import Path
from visterm.pipeline.store.images import Image
from visterm.teaching.marks import RelevanceMarks
marks = RelevanceMarks(Path(sys.argv[1]))
number = int(sys.argv[2])
while True:
    number += 1
    marks.add("a" * 64, Image(number, "a.jpg", f"{number:064x}", {}, None, 0, 0), 1, learner="oasis")
    print(number, flush=True)
"""


def test_what_add_confirmed_survives_kill(tmp_path):
    marks, confirmed = RelevanceMarks(tmp_path / "feedback.sqlite"), 0
    wait = random.Random(0)
    for _ in range(5):
        said = said_until_killed(MARKER, marks.file, confirmed, lines=1, seconds=wait.uniform(0, 0.1))
        images = [mark.image for mark in marks.of("a" * 64)]
        assert images == list(range(1, len(images) + 1))  # no gap, nothing twice
        assert len(images) in (said[-1], said[-1] + 1)  # the last one may be written and not yet confirmed
        confirmed = len(images)
    assert confirmed >= 5


UPDATER = """
import itertools
import sys
from pathlib import Path
from visterm.pipeline import Searcher
from visterm.teaching import feedback as update
from visterm.teaching.feedback import FeedbackTrainer
from visterm.pipeline.store.run import Run
run = Run(Path(sys.argv[1]))
update.MAX_FALL = 1.0
images, trainer = Searcher(run).images, FeedbackTrainer(run)
start = len(trainer.marks.export())
for number in itertools.count(start + 2):
    trainer.marks.add(images[0].sha256, images[number % 30], 1 if number % 2 else -1, learner="oasis")
    answer = trainer.update()
    print(answer["to_version"], flush=True)
"""


def test_a_kill_in_an_update_leaves_one_version_or_the_next(tmp_path, write_images):
    write_images(tmp_path / "fruit", [f"{c}/{i}.jpg" for c in ("apple", "pear") for i in range(16)])
    run = Run(tmp_path / "runs/fruit")
    config = load_config(
        None, ["features.n_visterms=60", "oasis.n_steps=20000", "oasis.validation_fraction=null", "compute.n_jobs=1"]
    )
    features(run, config, tmp_path / "fruit", Console(quiet=True))
    train(run, config, "oasis", Console(quiet=True))
    base = np.array(load_learner(run.learner("oasis") / "files").W_)
    wait = random.Random(1)
    for _ in range(3):
        said = said_until_killed(UPDATER, run.folder, lines=2, seconds=wait.uniform(0, 0.3))
        trainer = FeedbackTrainer(run)
        confirmed = trainer.version("oasis")
        assert confirmed in (said[-1], said[-1] + 1)
        assert not np.array_equal(trainer.load("oasis").W_, base)
    assert trainer.update()["accepted"] or trainer.update()["to_version"] == confirmed
    trainer.reset()
    np.testing.assert_array_equal(trainer.load("oasis").W_, base)
    kept = {path.name for path in run.feedback("oasis").iterdir() if path.is_dir()}
    assert all(name.isdigit() for name in kept)  # nothing half-written stays
    assert Searcher(run).search("id:1", k=3, learner="oasis")[0]["results"]
