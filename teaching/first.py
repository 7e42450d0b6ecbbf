"""The learner of a run without labels, before its first marks: OASIS that has learned nothing."""

from __future__ import annotations

from visterm.pipeline.errors import UserError
from visterm.pipeline.evaluation.calibration import NO_CALIBRATION
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.files import publish
from visterm.pipeline.store.models import TRAINED
from visterm.pipeline.store.records import make_record
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.teachers import TaughtImages, save_teachers
from visterm.pipeline.store.vectors import extractor_content, identity, vectors

FIRST = "oasis"  # the learner of a run that has none


def can_start(run: Run, learner: str) -> bool:
    """Whether marks may start a learner: it is not trained, and there is nothing else that it could learn from."""
    if learner != FIRST or FIRST in run.learners() or run.configure(None, []).collection.triplets is not None:
        return False
    with Collection(run.collection) as collection:
        return not collection.label_sizes()


def start_learner(run: Run) -> None:
    """Make OASIS as it is before the first step: W is the identity, and ranks as cosine does.

    UserError if another command is at work in the run, or has just trained OASIS.
    """
    from visterm.learners import LEARNERS

    config, kind = run.configure(None, []), LEARNERS[TRAINED[FIRST]]
    with Collection(run.collection) as collection:
        no_vectors = vectors(run, collection, collection.images()[:1])[:0]
    section = getattr(config, FIRST).model_dump()
    settings = {"init": "identity", "whiten": False, "click_cutoff": None, "validation_fraction": None}
    settings |= {"record_teachers": True, "random_state": config.seed, "n_jobs": config.compute.n_jobs}
    learner = kind(**section | settings).start(no_vectors.shape[1])
    inputs = {"extractor": extractor_content(run), "images": identity([]), "clicks": False}
    record = make_record("train", {FIRST: section, "seed": config.seed}, inputs)
    record["calibration"] = dict(NO_CALIBRATION)
    record["result"] = {"n_images": 0, "n_validation": 0, "steps": 0, "seconds": 0.0}
    with run.locked():
        if FIRST in run.learners():
            raise UserError(f"{run.folder}: {FIRST} was trained meanwhile; update again")
        with publish(run.learner(FIRST), record) as folder:
            learner.save(folder / "files")
            if learner.has_teachers:
                save_teachers(folder, TaughtImages(no_vectors, []))
