"""Two commands at once on one run: each ends with its result or with one line, and the run is whole afterwards."""

import random
import time

from tasks import EITHER, TASKS, prepare, resumed, undisturbed
from world import READ, World, call, start


def attempt(world: World, seed: int) -> str | None:
    """Run two of a command, or a command and a search, at the same time."""
    chance = random.Random(seed)
    name = chance.choice([name for name in sorted(TASKS) if name not in EITHER])
    undisturbed(world, name)
    others = (TASKS[name].arguments, READ[chance.choice(("search", "info", "annotate", "feedback status"))])
    other = others[0] if chance.random() < 0.7 else others[1]
    with world.copy() as folder:
        prepare(TASKS[name], folder)
        first = start(*world.filled(TASKS[name].arguments), cwd=folder)
        time.sleep(chance.choice((0, 0, 0.01, 0.05, 0.2)))
        second = start(*world.filled(other), cwd=folder)
        for ended in (first.wait(), second.wait()):
            if (problem := ended.problem()) is not None:
                return f"{name} and {' '.join(other[:2])}: {problem}"
        for _ in range(2):  # what one of them said is wrong may need one more try
            ended = call(*world.filled(TASKS[name].resume or TASKS[name].arguments), cwd=folder)
        if (problem := resumed(world, name, folder)) is not None:
            return f"{name} and {' '.join(other[:2])}: {problem}"
    return None
