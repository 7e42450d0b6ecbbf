"""Trials of settings: cross-validation with successive halving, kept in a journal, within a time.

Each trial is measured on one fold, the better half on a second one, and the better half of these on all: settings that
fail cost a quarter of those that do well (K. Jamieson, A. Talwalkar: Non-stochastic best arm identification and
hyperparameter optimization, AISTATS 2016; L. Li et al.: A system for massively parallel hyperparameter tuning, MLSys
2020). Optuna proposes the settings (TPE: values that did well are drawn more often) and keeps the journal.

Trials are proposed in batches, and depend on the seed and on the results of earlier batches alone: two threads or a
kill change nothing. How many trials fit into the time is estimated once, and kept in the journal.
"""

from __future__ import annotations

import json
import math
import statistics
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

from visterm.pipeline.config.models import Settings

BATCH = 8  # trials that are proposed together
_USED = 0.95  # of the time is planned; the rest is for trials that take longer than others
_PROPOSALS = 3  # until one of the settings that are left is drawn

Curve = dict[str, list]  # "steps" and "values": a measure along a training
Measure = Callable[[Mapping[str, Any], int, Callable[[], None]], Curve]  # of settings and fold; calls back often


class OutOfTime(Exception):
    """The time is over."""


class Trial(NamedTuple):
    """One trial, as tables and plots show it."""

    number: int
    settings: dict[str, Any]
    values: list[float]  # per fold, at `step`
    step: int | None  # with the best mean over the folds; None for learners without steps
    seconds: float
    state: str  # "complete", "stopped" by halving, "unfinished" or "refused"
    reason: str = ""  # why it was refused

    @property
    def score(self) -> float:
        """Mean over the folds so far."""
        return sum(self.values) / len(self.values) if self.values else math.nan

    def as_json(self) -> Settings:
        """Return the trial for the record of a tuning."""
        return self._asdict() | {"score": self.score if self.values else None}


class Budget(NamedTuple):
    """How long to search."""

    seconds: float = 300.0
    trials: int | None = None  # in place of those that fit into the seconds


DEFAULT_BUDGET = Budget()


class Plan(NamedTuple):
    """How to search."""

    n_folds: int
    n_jobs: int  # threads that measure
    seed: int
    budget: Budget


class Search:
    """A search for the best settings.

    ``space`` has the values of each setting, ``start`` the settings to start with. ``progress`` is called with the
    seconds spent, the number of trials that ended, and a note.
    """

    def __init__(
        self,
        journal: Path,
        space: Mapping[str, Sequence[Any]],
        start: Mapping[str, Any],
        measure: Measure,
        plan: Plan,
        progress: Callable[[float, int, str], None] = lambda seconds, ended, note: None,
    ):
        import optuna  # of an extra: this module is imported without it, too
        import optuna.storages.journal

        self._optuna = optuna
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        journal.with_name(journal.name + ".lock").unlink(missing_ok=True)  # of a killed process: the run is locked
        _drop_half_a_line(journal)
        self._study = optuna.create_study(
            storage=optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(journal))),
            study_name="tune",
            direction="maximize",
            load_if_exists=True,
        )
        # As JSON, since Optuna's choices are plain values, and a setting may be a list.
        self._choices = {key: [json.dumps(value) for value in values] for key, values in space.items()}
        self._start = {key: json.dumps(start[key]) for key in space}
        self._measure, self._progress = measure, progress
        self._n_folds, self._n_jobs, self._seed, (self._budget, self._most) = plan
        self._rungs = sorted({1, min(2, plan.n_folds), plan.n_folds})  # folds after which the better half goes on
        self._started = time.perf_counter() - self._clock()

    def run(self) -> bool:
        """Try settings until the plan is done; return whether the time was over before."""
        try:
            if not self._asked():
                self._study.enqueue_trial(self._start)
            self._run_batch(1)
            if self.trials()[0].state == "refused":
                return False
            while (n_trials := self._wanted()) > len(self._asked()) or self._running():
                self._run_batch(min(n_trials, 1 + BATCH * math.ceil(len(self._asked()) / BATCH)))
                if self.exhausted():
                    break
        except OutOfTime:
            return True
        return False

    def seconds(self) -> float:
        """Seconds spent, those before a kill included."""
        return time.perf_counter() - self._started

    def exhausted(self) -> bool:
        """Whether all settings were tried."""
        return len(self._asked()) == math.prod(map(len, self._choices.values())) and not self._running()

    def trials(self) -> list[Trial]:
        """The trials so far; the first one has the settings to start with."""
        return [self._shown(number, trial) for number, trial in enumerate(self._asked())]

    # -- the plan ------------------------------------------------------------------------------------------------------

    def _wanted(self) -> int:
        """Number of trials, with the first one; estimated from the first one, then from the first batch."""
        if self._most is not None:
            return self._most
        plan = self._study.user_attrs.get("plan", {})
        if plan.get("budget") == self._budget:
            return plan["trials"]
        n, clock = len(self._asked()), self._clock()
        first = self._study.user_attrs.get("first")
        if first is None:
            first = clock
            self._study.set_user_attr("first", first)
        if n == 1:  # halving takes as long as two folds per trial, and the first one took all of them
            each = first / self._n_folds * min(2, self._n_folds)
        else:
            each = (clock - first) / (n - 1)
        n_trials = n + max(0, int((_USED * self._budget - clock) / max(each, 1e-3)))
        if n > BATCH or n_trials <= 1 + BATCH:
            self._study.set_user_attr("plan", {"budget": self._budget, "trials": n_trials})
            return n_trials
        return 1 + BATCH

    def _clock(self) -> float:
        """Seconds until the last result in the journal."""
        folds = [fold for trial in self._asked() for fold in _folds(trial).values()]
        return max((fold["clock"] for fold in folds), default=0.0)

    # -- trials --------------------------------------------------------------------------------------------------------

    def _asked(self) -> list[Any]:
        """Trials in order, without repeated proposals."""
        trials = self._study.get_trials(deepcopy=False)
        # A kill may leave one with some of its settings.
        return [t for t in trials if len(t.params) == len(self._choices) and "repeated" not in t.user_attrs]

    def _running(self) -> list[Any]:
        return [
            self._optuna.Trial(self._study, trial._trial_id)
            for trial in self._asked()
            if trial.state == self._optuna.trial.TrialState.RUNNING
        ]

    def _propose(self) -> None:
        """Start a trial with settings that were not tried."""
        distributions: Any = {
            key: self._optuna.distributions.CategoricalDistribution(values) for key, values in self._choices.items()
        }
        for attempt in range(_PROPOSALS + 1):
            tried = [trial.params for trial in self._asked()]
            # A sampler per proposal: what it draws does not depend on whether a kill was before.
            seed = self._seed + 1000 * len(tried) + attempt
            self._study.sampler = self._optuna.samplers.TPESampler(seed=seed)
            if attempt == _PROPOSALS:
                self._study.enqueue_trial(self._left(tried, seed))
            trial = self._study.ask(distributions)
            if trial.params not in tried:
                return
            trial.set_user_attr("repeated", True)
            self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)

    def _left(self, tried: list[dict[str, str]], seed: int) -> dict[str, str]:
        """Draw settings that were not tried."""
        import numpy as np
        from sklearn.model_selection import ParameterGrid

        untried = [settings for settings in ParameterGrid(self._choices) if settings not in tried]
        return untried[int(np.random.default_rng(seed).integers(len(untried)))]

    def _run_batch(self, n_trials: int) -> None:
        """Propose settings until there are so many trials, then run those that are not finished."""
        if not any(_folds(trial) for trial in self._running()):  # else the batch is a killed one, and complete
            total = math.prod(map(len, self._choices.values()))
            while len(self._asked()) < min(n_trials, total):
                self._propose()
        running = self._running()
        for n_folds in self._rungs:
            self._measure_folds([(t, fold) for t in running for fold in range(n_folds) if str(fold) not in _folds(t)])
            running = self._better_half(running, n_folds)

    def _better_half(self, running: list[Any], n_folds: int) -> list[Any]:
        """End the trials that are done, refused, or in the worse half of all that were measured on so many folds.

        Optuna's pruner for this decides when a trial reports, so that those that report first go on too easily.
        """
        measured = []
        for trial in running:
            folds = _folds(trial)
            if any("error" in fold for fold in folds.values()):
                self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
                continue
            values, _ = best_step([folds[str(fold)] for fold in range(n_folds)])
            mean = sum(values) / n_folds
            with warnings.catch_warnings(action="ignore"):  # of a value that a killed process has reported
                trial.report(mean, n_folds)
            measured.append((trial, mean))
        seen = [t.intermediate_values[n_folds] for t in self._asked() if n_folds in t.intermediate_values]
        going_on = []
        for trial, mean in measured:
            if n_folds == self._n_folds:
                self._study.tell(trial, mean)
            elif mean < statistics.median(seen):
                self._study.tell(trial, state=self._optuna.trial.TrialState.PRUNED)
            else:
                going_on.append(trial)
        return going_on

    def _measure_folds(self, jobs: list[tuple[Any, int]]) -> None:
        """Measure trials on folds, several at a time; OutOfTime if the budget ends before."""
        ended = threading.Event()

        def tick() -> None:
            if ended.is_set():
                raise OutOfTime

        def work(trial: Any, fold: int) -> Settings:
            tick()
            started = time.perf_counter()
            try:
                result: dict[str, Any] = dict(self._measure(_settings(trial), fold, tick))
                if not all(map(math.isfinite, result["values"])):
                    result = {"error": "the measure is not finite"}
            except ValueError as error:
                result = {"error": str(error)}
            return result | {"seconds": time.perf_counter() - started}

        with ThreadPoolExecutor(self._n_jobs) as pool:
            pending: dict[Future, tuple[Any, int]] = {pool.submit(work, *job): job for job in jobs}
            try:
                while pending:
                    done, _ = wait(pending, timeout=0.2, return_when=FIRST_COMPLETED)
                    for future in done:
                        trial, fold = pending.pop(future)
                        trial.set_user_attr(f"fold {fold}", future.result() | {"clock": self.seconds()})
                    self._report_progress()
                    if pending and self._most is None and self.seconds() > self._budget:
                        raise OutOfTime
            finally:
                ended.set()
                pool.shutdown(cancel_futures=True)

    def _report_progress(self) -> None:
        trials = self._asked()
        complete = [trial.value for trial in trials if trial.state == self._optuna.trial.TrialState.COMPLETE]
        ended = sum(trial.state.is_finished() for trial in trials)
        best = f", best {max(complete):.3f}" if complete else ""
        self._progress(self.seconds(), ended, f"{ended} of {len(trials)} trials{best}")

    def _shown(self, number: int, trial: Any) -> Trial:
        folds = _folds(trial)
        reasons = [fold["error"] for fold in folds.values() if "error" in fold]
        measured = [folds[fold] for fold in sorted(folds) if "error" not in folds[fold]]
        values, step = best_step(measured) if measured else ([], None)
        states = {
            self._optuna.trial.TrialState.COMPLETE: "complete",
            self._optuna.trial.TrialState.PRUNED: "stopped",
            self._optuna.trial.TrialState.FAIL: "refused",
        }
        seconds = sum(fold["seconds"] for fold in folds.values())
        state = states.get(trial.state, "unfinished")
        return Trial(number, _settings(trial), values, step, seconds, state, reasons[0] if reasons else "")


def best_step(curves: Sequence[Curve]) -> tuple[list[float], int | None]:
    """Return the values of each fold at the step with the best mean, and that step; None without steps.

    One step for all folds: the best of each would flatter the settings, as their number of steps would be chosen by the
    images that measure them.
    """
    common = set.intersection(*(set(curve["steps"]) for curve in curves))
    steps = sorted(common - {0}) or sorted(common)  # no model has no steps
    by_step = [dict(zip(curve["steps"], curve["values"], strict=True)) for curve in curves]
    best = max(steps, key=lambda step: sum(values[step] for values in by_step))
    return [values[best] for values in by_step], best or None


def _settings(trial: Any) -> Settings:
    return {key: json.loads(text) for key, text in trial.params.items()}


def _folds(trial: Any) -> dict[str, dict[str, Any]]:
    """Results by fold."""
    return {key.removeprefix("fold "): value for key, value in trial.user_attrs.items() if key.startswith("fold ")}


def _drop_half_a_line(journal: Path) -> None:
    """Remove what a kill left of a line at the end of the journal."""
    if journal.exists() and not (text := journal.read_bytes()).endswith(b"\n"):
        journal.write_bytes(text[: text.rfind(b"\n") + 1])
