"""Commands with work to do, that an attempt interrupts, and what an undisturbed one leaves behind."""

import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from world import SETTINGS, World, call, state

_SETTINGS = tuple(part for setting in SETTINGS for part in ("--set", setting))


class Task(NamedTuple):
    """A command, how its run looks before it, and how it is resumed."""

    arguments: tuple[str, ...]
    without: tuple[str, ...] = ()  # removed from the copy of the finished run before
    emptied: tuple[str, ...] = ()
    resume: tuple[str, ...] | None = None  # None: the same command


TASKS = {
    "features": Task(("features", "{images}", "--run", "fruit", *_SETTINGS), ("",)),
    "features force": Task(("features", "--force")),
    "add": Task(("add", "{more}/fig", "--label", "fig")),
    "remove": Task(("remove", "--label", "plum", "--dry-run"), resume=("remove", "id:9")),
    "remove one": Task(("remove", "id:9")),
    "compact": Task(("compact",)),
    "train": Task(("train", "--learner", "oasis"), ("learners/oasis", "feedback")),
    "train force": Task(("train", "--learner", "aroma", "--force"), resume=("train", "--learner", "aroma")),
    "train wsabie": Task(("train", "--learner", "wsabie"), ("learners/wsabie",)),
    "evaluate": Task(("evaluate", "--learner", "oasis"), ("evaluations",)),
    "evaluate all": Task(("evaluate", "--learner", "all", "--force")),
    "index": Task(("index", "--learner", "oasis"), ("index",)),
    "search": Task(("search", "id:3", "--learner", "oasis")),
    "annotate": Task(("annotate", "id:3", "--learner", "wsabie")),
    "explain": Task(("explain", "id:3", "id:5", "--learner", "oasis")),
    "info": Task(("info",)),
    "feedback update": Task(("feedback", "update"), ("feedback",)),
    "feedback undo": Task(("feedback", "undo"), resume=("feedback", "status")),
    "feedback reset": Task(("feedback", "reset"), resume=("feedback", "status")),
    "judge results": Task(("judge", "results")),
    "repair": Task(("repair",), emptied=("collection/catalogue.sqlite",)),
}
if find_spec("optuna"):
    TASKS["tune"] = Task(("tune", "--learner", "oasis", "--trials", "2", "--search", "C=0.03,0.1"))
# Where an interruption before or after the change are both right, as the command is not one to repeat.
EITHER = ("feedback undo", "feedback reset")


def prepare(task: Task, folder: Path) -> None:
    """Bring a copy of the finished run to where a task begins."""
    place = folder / "runs/fruit"
    for name in task.without:
        shutil.rmtree(place / name if name else folder / "runs", ignore_errors=True)
    for name in task.emptied:
        (place / name).unlink()
        (place / name).touch()


def undisturbed(world: World, name: str) -> tuple[float, Any]:
    """The seconds that a task takes, and what it leaves behind."""

    def make() -> Any:
        task = TASKS[name]
        with world.copy() as folder:
            prepare(task, folder)
            ended = call(*world.filled(task.arguments), cwd=folder)
            assert not ended.code, (name, ended)
            resumed = call(*world.filled(task.resume or task.arguments), cwd=folder)
            assert not resumed.code, (name, resumed)
            return ended.seconds, state(folder)

    seconds, left = world.once(f"undisturbed {name}", make)
    return seconds, left


def resumed(world: World, name: str, folder: Path, changed: Callable[[], Any] | None = None) -> str | None:
    """Resume an interrupted task; return how its end differs from an undisturbed one."""
    task = TASKS[name]
    ended = call(*world.filled(task.resume or task.arguments), cwd=folder)
    if ended.code:
        return f"does not resume: {ended.code}, {ended.err[-300:]}"
    now, wanted = state(folder), undisturbed(world, name)[1]
    if name in EITHER:
        now, wanted = ({key: value for key, value in one.items() if key != "updated"} for one in (now, wanted))
    if now == wanted:
        return None
    parts = [key for key in wanted if now.get(key) != wanted[key]] if isinstance(now, dict) else [now]
    shown = [f"{part}: {str(now[part])[:150]} instead of {str(wanted[part])[:150]}" for part in parts if part in wanted]
    return f"ends otherwise: {'; '.join(shown) or parts}"
