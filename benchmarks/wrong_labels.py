"""The queue of wrong labels on the photos of Corel-5K with its 260 words: ``python -m benchmarks wrong_labels``.

The peer is one of the five regressions that judge the labels, by scikit-learn, times five. Beside it stands the
process that a service starts for its page, with a trained learner, until the page has the queue.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import warnings
from typing import Any

import numpy as np

from visterm.teaching import wrong_labels

from .photos import extracted, images_of
from .processes import RUN, temporary_folder, visterm
from .records import PROCESS, compared, record, seconds

AIM = 10.0  # seconds for the photos of a collection of this size


def run(quick: bool = False) -> list[dict]:
    kinds = ("visterms", "deep")
    return [*(compare(kind, quick) for kind in kinds), *(of_the_page(kind, quick) for kind in kinds)]


def of_the_page(kind: str, quick: bool) -> dict[str, Any]:
    run, _ = extracted("corel5k", kind)
    with temporary_folder() as runs:
        folder = shutil.copytree(run.folder, runs / RUN, ignore=lambda *_: ["overview"])
        visterm(runs, "train", "--learner", "oasis")
        words = [sys.executable, "-m", "visterm.teaching.overview", str(folder)]
        times = []
        for _ in range(1 if quick else 3):
            with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None
                next(
                    line for line in process.stdout if json.loads(line).get("phase") == "finding images that look alike"
                )
                process.terminate()
                _, status, used = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
            times.append(used.ru_utime + used.ru_stime)
            shutil.rmtree(folder / "overview")
    return record(
        f"service-queue-{kind}",
        f"the page's queue of labels to check, 4,992 photos with 260 words and OASIS ({kind}): from the start of the "
        "process until the queue is there",
        "what was asked",
        "the regression that judges the labels, `wrong-labels`",
        compared(float(np.median(times)), AIM, "s", 4992),
        measured=f"median of {len(times)}, processor time of the whole process",
    )


def compare(kind: str, quick: bool) -> dict[str, Any]:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    _, X, y, _ = images_of("corel5k", kind)
    rows = np.arange(X.shape[0])[:: 10 if quick else 1]
    X, y = X[rows], y[rows]
    ours = seconds(wrong_labels.judge_labels, X, y, clock=PROCESS)
    images, labels = (y > 0).nonzero()
    training = images % wrong_labels.N_FOLDS > 0
    regression = LogisticRegression(C=wrong_labels._INVERSE_REGULARIZATION, tol=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        peer = seconds(regression.fit, X[images[training]], labels[training], clock=PROCESS) * wrong_labels.N_FOLDS
    return record(
        f"wrong-labels-{kind}",
        f"judging the labels of {len(rows):,} photos of Corel-5K, {y.shape[1]} words ({kind})",
        "scikit-learn's LogisticRegression, a row for each label, in five folds",
        f"{AIM:g} s were asked",
        compared(ours, peer, "s", len(labels)),
        measured="processor time; the peer's of one fold, times five",
    )
