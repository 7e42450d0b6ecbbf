"""Signals at random moments of a command: what is on disk is the old state or the new one, and the command resumes."""

import contextlib
import os
import random
import signal
import time
from pathlib import Path

from tasks import TASKS, prepare, resumed, undisturbed
from world import World, in_child, start

_SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGTERM)


def attempt(world: World, seed: int) -> str | None:
    """Interrupt a command, perhaps its second try too, then let it end."""
    chance = random.Random(seed)
    if chance.random() < 0.1:
        return _people(world, chance)
    name = chance.choice(sorted(TASKS))
    task, (seconds, _) = TASKS[name], undisturbed(world, name)
    with world.copy() as folder:
        prepare(task, folder)
        for _ in range(chance.choice((1, 1, 2))):
            number = chance.choice(_SIGNALS)
            arguments = task.resume if _ and task.resume else task.arguments
            command = start(*world.filled(arguments), cwd=folder)
            time.sleep(chance.uniform(0, 1.05 * seconds))
            os.kill(command.pid, number)
            ended = command.wait()
            if number != signal.SIGKILL:
                if ended.code not in (0, 128 + number, -number):  # -number: before the command has handlers
                    return f"{name}, {signal.Signals(number).name}: {ended.problem() or ended.code}: {ended.err[-300:]}"
                if ended.code == 128 + number and "visterm: interrupted" not in ended.err:
                    return f"{name}, {signal.Signals(number).name}: no line: {ended.err[-300:]!r}"
                if ended.noise():
                    return f"{name}, {signal.Signals(number).name}: {ended.err[-300:]}"
            elif ended.code not in (0, -number):
                return f"{name}: {ended.problem()}"
        if (problem := resumed(world, name, folder)) is not None:
            return f"{name}: {problem}"
    return None


def _people(world: World, chance: random.Random) -> str | None:
    """Kill a process that keeps label edits, marks and ratings: each that was acknowledged is there."""
    with world.copy() as folder:
        acknowledged = folder / "acknowledged"
        pid = os.fork()
        if not pid:
            try:
                _mark(folder / "runs/fruit", acknowledged)
            finally:
                os._exit(1)
        time.sleep(chance.uniform(0.05, 0.6))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        numbers = [line.split() for line in acknowledged.read_text().splitlines()] if acknowledged.exists() else []
        kept = in_child(lambda: _kept(folder / "runs/fruit"))
        lost = [line for line in numbers if len(line) == 2 and int(line[1]) not in kept[line[0]]]
        return (
            f"label edits, marks or ratings: {len(lost)} of {len(numbers)} acknowledged ones are lost" if lost else None
        )


def _mark(folder: Path, acknowledged: Path) -> None:
    from visterm.pipeline.search.searcher import Searcher
    from visterm.plugins.judge.judgements import Judgements
    from visterm.teaching.labels import LabelEditor
    from visterm.teaching.marks import RelevanceMarks

    searcher = Searcher(folder)
    labels = LabelEditor(searcher.run)
    marks, judgements = RelevanceMarks(searcher.run.marks), Judgements(searcher.run.judgements)
    study = judgements.study()
    with open(acknowledged, "w", buffering=1) as out:
        for i in range(10_000):
            image = searcher.images[i % len(searcher.images)]
            out.write(f"marks {marks.add(searcher.images[0].sha256, image, 1, learner='oasis')}\n")
            (edit,) = labels.edit([(image.id, f"label {i}", 1)])
            out.write(f"edits {edit.number}\n")
            task = i % len(study.tasks)
            candidate = study.tasks[task].candidates[0].id
            out.write(f"ratings {judgements.decide('bob', task, candidate, 'not')}\n")


def _kept(folder: Path) -> dict[str, list[int]]:
    import sqlite3

    numbers = {}
    of_people = (
        ("edits", "label_edits", "edits"),
        ("marks", "feedback", "marks"),
        ("ratings", "judgements", "decisions"),
    )
    for name, file, table in of_people:
        with contextlib.closing(sqlite3.connect(folder / f"{file}.sqlite")) as db, db:
            numbers[name] = [number for (number,) in db.execute(f"SELECT number FROM {table}")]
    return numbers
