"""The stage tune: the settings of a learner that suit the training images best."""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import math
import shutil
import statistics
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from visterm.extras import how_to_install
from visterm.files import replaced
from visterm.pipeline.config.loading import with_settings
from visterm.pipeline.config.models import Config, Settings
from visterm.pipeline.console import Console, count, duration, told_of_compiling
from visterm.pipeline.errors import UserError
from visterm.pipeline.stages.features import check_features
from visterm.pipeline.stages.fitting import constructor_parameters, labels_for
from visterm.pipeline.stages.train import world_settings
from visterm.pipeline.stages.vector_kinds import learned_from, reweight
from visterm.pipeline.store.checksums import Record
from visterm.pipeline.store.files import file_sha256, publish
from visterm.pipeline.store.labels import WAYS_TO_LABEL
from visterm.pipeline.store.models import TRAINED, check_learners
from visterm.pipeline.store.opened import OpenedRun, opened
from visterm.pipeline.store.records import is_up_to_date, make_record
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.supervision import check_labels
from visterm.pipeline.store.vectors import extractor_content, extractor_of, identity
from visterm.pipeline.workers import connected

from .search_spaces import search_space, value_of
from .trials import DEFAULT_BUDGET, Budget

if TYPE_CHECKING:
    from .trials import Curve, Trial

N_FOLDS = 4
_TF = "features.weighting.tf"


class Tuned(TypedDict, total=False):
    """The settings that a tuning chose, and how it searched."""

    learner: str
    up_to_date: bool  # was tuned already
    applied: bool
    best: Settings  # by full name; empty if none is better than those to start with
    before: Settings
    best_trial: int
    score: float
    own_score: float  # of the settings to start with
    measure: str
    n_folds: int
    n_images: int
    seconds: float
    budget: float
    most: int | None
    exhausted: bool
    trials: list[Settings]
    plot: str


def tune(
    run: Run,
    config: Config,
    learner_name: str,
    console: Console,
    *,
    budget: Budget = DEFAULT_BUDGET,
    search: Sequence[str] = (),
    apply: bool = False,
    force: bool = False,
) -> Tuned:
    """Choose settings of a learner by cross-validation on the training images; test images are not read.

    The settings to start with, and to compare with, are those of the configuration; `search` are texts ``C=0.1,1``:
    these settings and values instead of those of `search_spaces`. `apply` writes the chosen settings into the
    configuration of the run; `force` starts again even if they were tuned already, or a tuning was interrupted.

    UserError if there are no features yet, no labels, too few images, a budget too short, nothing to search, or a run
    that changed meanwhile.
    """
    check_learners([learner_name], TRAINED)
    if learner_name not in TRAINED:
        raise UserError(f"{learner_name} learns nothing and has no settings to tune; use --learner oasis")
    check_labels(config, "tune")
    with opened(run, config) as asked:
        check_features(asked)
        images = asked.images("train", labelled=True)
        if not images:
            raise UserError(f"run {run.name} has no labelled training images: {WAYS_TO_LABEL}")
        visterms = getattr(extractor_of(asked), "weighting_", None) is not None
        it = OpenedRun(asked, _settings_before(asked, learner_name), asked.catalogue)
        space = search_space(learner_name, it.config, visterms=visterms, given=search)
        record = _record(it, learner_name, space, visterms)
        result = None if force else _finished(it, learner_name, record, budget)
        is_tuned = result is not None
        if result is None:
            data = _Data(it, learner_name, visterms)
            _check_installed()
            checkpoint = _checkpoint(it, learner_name, record, force)
            if visterms:
                data.count_as_new(checkpoint / "as_new.npz", console)
            result = _tune(it.config, learner_name, data, space, checkpoint, console, budget)
            _check_unchanged(asked, learner_name)
            _publish(run.tuning(learner_name), record, result)
        if apply:
            tuned = with_settings(it.config, result["best"])
            reweight(OpenedRun(it, tuned, it.catalogue))
            run.save_config(tuned.model_copy(update={"search": config.search}))  # as asked for, not as it ranks
    plot = str(run.tuning(learner_name) / "tuning.png")
    return {"learner": learner_name, "up_to_date": is_tuned, "applied": apply, **result, "plot": plot}


class _Data:
    """The training images of a run, in folds."""

    def __init__(self, run: OpenedRun, learner_name: str, visterms: bool):
        from visterm.learners import LEARNERS

        self._run, self._images = run, run.images("train", labelled=True)
        self.y, self.names = labels_for(LEARNERS[TRAINED[learner_name]], run, learner_name, self._images)
        self.fold_of = _folds(self.y, run.config.seed, run.name)
        self.n_folds = int(self.fold_of.max()) + 1
        self._stored = run.catalogue.counts(self._images)
        self._as_new: Any = None
        self._visterms = visterms
        self.vectors = functools.lru_cache(maxsize=N_FOLDS)(self._vectors)

    def rows(self, fold: int) -> tuple[Any, Any]:
        """Rows to learn from, and held-out ones."""
        import numpy as np

        return np.flatnonzero(self.fold_of != fold), np.flatnonzero(self.fold_of == fold)

    def _vectors(self, fold: int, tf: str) -> tuple[Any, Any]:
        """Return vectors of all images, as they are and as those of new photos; idf is learned without the fold's."""
        from visterm.features import VistermWeighting

        if not self._visterms:
            return self._stored, self._stored
        weighting = VistermWeighting(tf=tf).fit(self._stored[self.rows(fold)[0]])
        X = weighting.transform(self._stored)
        return X, X if self._as_new is None else weighting.transform(self._as_new)

    def count_as_new(self, file: Path, console: Console) -> None:
        """Count the images of each fold once more, as if they had made no centre of the codebook.

        The counts are kept in a file, for an interrupted tuning. Of a forest, and where the codebook would now be made
        from other images, folds are measured by the counts as they are.
        """
        import numpy as np
        from scipy import sparse

        if file.exists():
            self._as_new = sparse.load_npz(file)
            return
        run, config, images = self._run, self._run.config, self._images
        extractor: Any = copy.copy(extractor_of(run))
        if extractor.palette_ is None:
            return
        paths, root = learned_from(run), run.catalogue.root
        if paths is None or root is None:
            console.say("the codebook would now be made from other images: folds are measured as it knows them")
            return
        extractor.set_params(n_jobs=config.compute.n_jobs, on_error="skip")
        row_of = {image.path: row for row, image in enumerate(images)}
        rows = np.array([row_of.get(path, -1) for path in paths])  # -1: it has no label
        fold_of = np.where(rows < 0, -1, self.fold_of[rows])
        groups = [np.flatnonzero(fold_of == fold).tolist() for fold in np.unique(fold_of[rows >= 0])]
        if len(groups) < 2:  # hardly any image of the codebook has a label
            return
        title = f"counting {count(sum(map(len, groups)), 'training image')} as new photos"
        with (
            connected(config, run, root / paths[0]) as cluster,
            told_of_compiling(console),
            console.phase(title, unit="images") as phase,
            warnings.catch_warnings(action="ignore", category=UserWarning),
        ):
            distribute = None if cluster is None else cluster.map
            try:
                counts = extractor.count_as_new(
                    [root / path for path in paths], groups, callback=phase.advance_to, distribute=distribute
                )
            except ValueError:
                console.say(f"{root}: no image can be read; held-out ones are measured as the codebook knows them")
                return
        as_new, chosen = sparse.vstack(counts, format="csr"), rows[np.concatenate(groups)]
        read = np.flatnonzero(np.diff(as_new.indptr))  # not the files that can no longer be read
        places = np.arange(len(images))
        places[chosen[read]] = len(images) + read
        self._as_new = sparse.vstack([self._stored, as_new], format="csr")[places]
        with replaced(file) as stream:
            sparse.save_npz(stream, self._as_new)


def _folds(y: Any, seed: int, name: str) -> Any:
    """Return the fold of each image: at most `N_FOLDS`, in each of which two classes have two images or more."""
    import numpy as np
    from scipy import sparse

    rng = np.random.default_rng([seed, 3])
    n = y.shape[0]
    fold_of = np.empty(n, int)
    if sparse.issparse(y):
        n_folds = min(N_FOLDS, n // 4)
        if n_folds < 2:
            raise UserError(f"run {name}: {count(n, 'labelled training image')} are too few; tuning needs eight")
        fold_of[rng.permutation(n)] = np.arange(n) % n_folds
        return fold_of
    classes, class_of, sizes = np.unique(y, return_inverse=True, return_counts=True)
    if len(classes) < 2:
        raise UserError(f"run {name}: the training images are all of one class, {classes[0]}; add images of another")
    n_folds = min(N_FOLDS, int(np.sort(sizes)[-2]) // 2)
    if n_folds < 2:
        raise UserError(
            f"run {name}: too few training images per class to learn from some and hold out others; at least two "
            f"classes need four, and {'no class has' if sizes.max() < 4 else 'only one class has'} so many"
        )
    for c in range(len(classes)):
        members = rng.permutation(np.flatnonzero(class_of == c))
        fold_of[members] = np.arange(len(members)) % n_folds
    return fold_of


def measure_fold(
    data: Any, config: Config, learner_name: str, settings: Mapping[str, Any], fold: int, tick: Callable[[], None]
) -> Curve:
    """Learn without the images of a fold, and measure on them; learners with steps are measured along the training."""
    from visterm.learners import LEARNERS
    from visterm.retrieval import evaluate_test_test

    kind: Any = LEARNERS[TRAINED[learner_name]]
    tried = with_settings(config, settings)
    parameters = constructor_parameters(kind, tried, learner_name, len(data.rows(fold)[0]), data.y, data.names)
    # One thread per trial. With refit a learner keeps no copy of its best state; the refit itself is not waited for.
    parameters |= {name: value for name, value in {"n_jobs": 1, "refit": True}.items() if name in parameters}
    learner = kind(**parameters)
    (X, as_new), y = data.vectors(fold, tried.features.weighting.tf), data.y
    training, held_out = data.rows(fold)
    if kind.validates:

        def progress(learner: Any) -> None:
            tick()
            if learner.phase_ == "refit":
                raise _Measured

        if as_new is not X:
            learner.measure_as_new(range(y.shape[0]), as_new)
        with contextlib.suppress(_Measured):
            learner.fit(X, y, validation_rows=held_out, progress=progress, **config.train.model_dump())
        checks = [e for e in learner.history_ if e["phase"] == "search" and e["validation"] is not None]
        return {"steps": [e["step"] for e in checks], "values": [float(e["validation"]) for e in checks]}
    learner.fit(X[training], y[training], progress=lambda _: tick())
    if learner.ranks_labels:
        value = learner.score(as_new[held_out], y[held_out])
    else:
        value = evaluate_test_test(learner, as_new[held_out], y[held_out]).mean_average_precision
    return {"steps": [0], "values": [float(value)]}


class _Measured(Exception):
    """The part of a training that is measured has ended."""


def _check_installed() -> None:
    try:
        importlib.import_module("optuna")
    except ModuleNotFoundError as error:
        raise UserError(f"tune needs {error.name}: {how_to_install('tune')}") from None


def _tune(
    config: Config,
    learner_name: str,
    data: _Data,
    space: Mapping[str, Sequence[Any]],
    checkpoint: Path,
    console: Console,
    budget: Budget,
) -> Tuned:
    """Search, or resume a search; return the result."""
    import joblib

    from .trials import Plan, Search

    n_images = count(len(data.fold_of), "training image")
    most = budget.trials
    total, unit = (math.ceil(budget.seconds), "s") if most is None else (most, "trials")
    with console.phase(f"tuning {learner_name} on {n_images}", total, unit) as phase:
        search = Search(
            checkpoint / "journal",
            space,
            {key: value_of(config, key) for key in space},
            functools.partial(measure_fold, data, config, learner_name),
            Plan(data.n_folds, joblib.effective_n_jobs(config.compute.n_jobs), config.seed, budget),
            progress=lambda seconds, ended, note: phase.advance_to(
                min(int(seconds) if most is None else ended, total), note=note
            ),
        )
        if resumed := int(search.seconds()):
            console.say(f"resuming after {duration(resumed)}")
            if most is None:
                phase.start_at(resumed)
        search.run()
        trials = search.trials()
    if trials and trials[0].state == "refused":
        shutil.rmtree(checkpoint)
        raise UserError(f"{learner_name}: {trials[0].reason}")
    if most is None and sum(trial.state in ("complete", "stopped") for trial in trials) < 2:
        first = f" (the settings to start with took {duration(search.seconds())})"
        shutil.rmtree(checkpoint)
        raise UserError(
            f"--budget: {duration(budget.seconds)} is too short for one trial of {learner_name} on {n_images}"
            f"{first if trials[0].state == 'complete' else ''}; "
            f"give more, such as --budget {max(1, math.ceil(budget.seconds / 20))}m"
        )
    figures: Tuned = {
        "n_folds": data.n_folds,
        "n_images": len(data.fold_of),
        "seconds": round(search.seconds(), 3),
        "budget": budget.seconds,
        "most": most,
        "exhausted": search.exhausted(),
    }
    return {**_chosen(config, learner_name, trials), **figures, "trials": [trial.as_json() for trial in trials]}


def _chosen(config: Config, learner_name: str, trials: Sequence[Trial]) -> Tuned:
    """Choose among the trials that were measured on all folds; return the settings and what they gain."""
    from visterm.learners import LEARNERS

    first = trials[0]
    best = max((trial for trial in trials if trial.state == "complete"), key=lambda trial: trial.score)
    gains = [a - b for a, b in zip(best.values, first.values, strict=True)]
    error = statistics.stdev(gains) / math.sqrt(len(gains)) if len(gains) > 1 else 0.0
    settings: Settings = {}
    # A gain within its standard error is chance, and settings that were chosen by chance can be worse on other images.
    if statistics.mean(gains) > error:
        settings = dict(best.settings)
        section = getattr(config, learner_name).model_dump()
        if best.step is not None and "validation_fraction" in section and config.train.learned_weight is not None:
            # The folds have found the number of steps: no images need to be held out for it, nor for a share.
            settings |= {f"{learner_name}.n_steps": best.step, f"{learner_name}.validation_fraction": None}
    kind = LEARNERS[TRAINED[learner_name]]
    return {
        "best": settings,
        "before": {key: value_of(config, key) for key in settings},
        "best_trial": best.number if settings else 0,
        "score": best.score if settings else first.score,
        "own_score": first.score,
        "measure": "P@1" if kind.ranks_labels else kind.validation_measure,
    }


# -- what lies on disk -------------------------------------------------------------------------------------------------


def _record(run: OpenedRun, learner_name: str, space: Mapping[str, Any], visterms: bool) -> Record:
    """Return the record of a tuning, which does not depend on its budget."""
    config = run.config
    counts: Any = extractor_content(run)
    if visterms:  # the weighting is tuned: palette and codebook decide
        counts = [file_sha256(path) for path in sorted((run.extractor / "files").glob("*.npy"))]
    return make_record(
        "tune",
        {
            learner_name: getattr(config, learner_name).model_dump(),
            "weighting": config.features.weighting.model_dump() if visterms else None,
            "seed": config.seed,
            "space": dict(space),
            "train": world_settings(config, learner_name),
        },
        {"counts": counts, "images": identity(run.images("train", labelled=True)), "clicks": run.clicks},
    )


def _settings_before(run: OpenedRun, learner_name: str) -> Config:
    """Return the configuration as it was before the settings that a tuning chose were applied, if they were."""
    result = (run.record(run.tuning(learner_name)) or {}).get("result", {"best": {}})
    if result["best"] and all(value_of(run.config, key) == value for key, value in result["best"].items()):
        return with_settings(run.config, result["before"])
    return run.config


def _finished(run: OpenedRun, learner_name: str, record: Record, budget: Budget) -> Tuned | None:
    """Return the result of the same tuning, if it is done and had as much time."""
    if not is_up_to_date(run.tuning(learner_name), record):
        return None
    result = (run.record(run.tuning(learner_name)) or {})["result"]
    if budget.trials is not None:
        enough = len(result["trials"]) >= budget.trials
    else:
        enough = result["most"] is None and result["budget"] >= budget.seconds
    return result if enough or result["exhausted"] else None


def _checkpoint(run: Run, learner_name: str, record: Record, force: bool) -> Path:
    """Return the folder of the journal: of an interrupted tuning, of a finished one with less time, or a new one."""
    folder = run.tuning(learner_name)
    checkpoint = folder.with_name(f"{learner_name}.checkpoint")
    if force:
        shutil.rmtree(checkpoint, ignore_errors=True)
    kept = run.record(checkpoint)
    if kept is not None and not is_up_to_date(checkpoint, record):
        raise UserError(
            f"{checkpoint} is of an interrupted tuning with other settings, values, images or labels: tune with those "
            "to resume it, or with --force to start again"
        )
    if kept is None:
        with publish(checkpoint, dict(record)):
            pass
        if not force and is_up_to_date(folder, record):
            shutil.copy(folder / "journal", checkpoint / "journal")
    return checkpoint


def _publish(folder: Path, record: Record, result: Tuned) -> None:
    """Keep the result, with its journal and a plot, in place of the checkpoint."""
    from .tuning_plot import write_tuning_plot

    checkpoint = folder.with_name(f"{folder.name}.checkpoint")
    with publish(folder, record) as target:
        shutil.copy(checkpoint / "journal", target / "journal")
        write_tuning_plot(target / "tuning.png", folder.name, result)
        record["result"] = result
    shutil.rmtree(checkpoint, ignore_errors=True)


def _check_unchanged(run: OpenedRun, learner_name: str) -> None:
    """Raise if images, labels or features are others than when the tuning began."""
    with contextlib.suppress(UserError):
        check_features(run)
        if identity(run.catalogue.images("train", labelled=True)) == identity(run.images("train", labelled=True)):
            return
    shutil.rmtree(run.tuning(learner_name).with_name(f"{learner_name}.checkpoint"), ignore_errors=True)
    raise UserError(
        f"run {run.name} changed while it was tuned (images, labels or features): the result is discarded; run the "
        "same command again"
    )
