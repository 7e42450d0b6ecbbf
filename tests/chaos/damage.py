"""Every file of a finished run damaged in every way, under every command.

A command must end with one line and exit code 2, or with the results of a whole run: because it did not need the file,
or because it made it again. What it leaves behind must be whole, or be called damaged.
"""

import json
import os
import random
from pathlib import Path

from world import READ, WRITE, World, call, compared, state, steady

KINDS = ("deleted", "emptied", "truncated", "flipped", "garbled", "folder", "loop")
_EDITED = ("config.yaml",)  # a user's file: another value in it is a wish, not damage
_FOR_PEOPLE = ("skipped.txt",)


def attempt(world: World, seed: int) -> str | None:
    """Damage one file, run one command; return what went wrong."""
    chance = random.Random(seed)
    files = [file for file in world.files() if file not in _FOR_PEOPLE]
    file, kind = chance.choice(files), chance.choice(KINDS)
    name = chance.choice(sorted(READ | WRITE))
    wanted, wanted_state = world.reference(name)
    with world.copy() as folder:
        place = folder / "runs/fruit" / file
        if not damaged(place, kind, chance):
            return None
        ended = call(*world.filled((READ | WRITE)[name]), cwd=folder)
        what = f"{file} {kind}, {name}"
        if (problem := ended.problem()) is not None:
            return f"{what}: {problem}"
        if ended.code == 2 or file in _EDITED:
            return None
        told = ended.err + (ended.out if name == "repair" else "")
        if name in READ and not same_output(name, ended.out, wanted.out) and "damaged" not in ended.out + ended.err:
            return f"{what}: silently another output: {ended.out[:200]!r} instead of {wanted.out[:200]!r}"
        if (difference := compared(state(folder), wanted_state, told if name in WRITE else "")) is not None:
            return f"{what}: {difference}; it said {ended.err[-300:]!r}"
    return None


def same_output(name: str, out: str, wanted: str) -> bool:
    """Whether two outputs are equal but for times; what info says of one artifact may differ, as it says so."""
    if name == "info":
        a, b = json.loads(out), json.loads(wanted)
        return {k: v for k, v in a.items() if k in _FIRM} == {k: v for k, v in b.items() if k in _FIRM}
    if name == "feedback status":
        a, b = json.loads(out), json.loads(wanted)
        return bool(a["relevant"] == b["relevant"] and a["not"] == b["not"])
    return steady(out) == steady(wanted)


_FIRM = ("images", "pending", "classes", "splits", "excluded")


def damaged(place: Path, kind: str, chance: random.Random) -> bool:
    """Damage a file, which may have hard links elsewhere; return False where the kind would change nothing."""
    data = bytearray(place.read_bytes())
    if kind in ("emptied", "truncated", "flipped", "garbled") and not data:
        return False
    place.unlink()
    if kind == "deleted":
        return True
    if kind == "folder":
        place.mkdir()
        (place / "file").write_bytes(b"x")
        return True
    if kind == "loop":
        os.symlink(place.name, place)
        return True
    before = bytes(data)
    if kind == "emptied":
        data.clear()
    elif kind == "truncated":
        del data[chance.randrange(len(data)) :]
    elif kind == "flipped":
        place_of = chance.randrange(len(data))
        data[place_of] ^= 1 << chance.randrange(8)
    else:
        start = chance.randrange(len(data))
        end = min(len(data), start + chance.choice((4, 64, 1024)))
        data[start:end] = chance.randbytes(end - start)
    place.write_bytes(data)
    return bytes(data) != before


def repaired(world: World, seed: int) -> str | None:
    """Damage the catalogue and perhaps a segment; `repair` must restore all of it."""
    chance = random.Random(seed)
    with world.copy() as folder:
        run = folder / "runs/fruit"
        if not damaged(run / "collection/catalogue.sqlite", chance.choice(KINDS), chance):
            return None
        if chance.random() < 0.3:
            segments = sorted((run / "collection/segments").iterdir())
            damaged(chance.choice(sorted(chance.choice(segments).iterdir())), chance.choice(KINDS), chance)
        first = call("search", "id:7", "--learner", "oasis", "--json", cwd=folder)
        if (problem := first.problem()) is not None:
            return f"search: {problem}"
        ended = call("repair", "--json", cwd=folder)
        if ended.code or (problem := ended.problem()) is not None:
            return f"repair: {ended.code} {ended.err[-300:]}"
        now, wanted = state(folder), world.reference("features")[1]
        if now != wanted:
            return f"repair: {compared(now, wanted) or 'a part is still damaged'}; {json.loads(ended.out)['lost']}"
    return None


def people(world: World, seed: int) -> str | None:
    """Damage label edits, what is said to differ, marks or ratings, or their copy; `repair` must keep every row."""
    chance = random.Random(seed)
    with world.copy() as folder:
        name = (
            chance.choice(("label_edits", "different", "feedback", "judgements"))
            + chance.choice(("", ".copy"))
            + ".sqlite"
        )
        kind = chance.choice(KINDS)
        if not damaged(folder / "runs/fruit" / name, kind, chance):
            return None
        ended = call("repair", "--json", cwd=folder)
        if ended.code or ended.noise():
            return f"{name} {kind}: {ended.code} {ended.err[-300:]}"
        now, wanted = state(folder), world.reference("features")[1]
        if now != wanted:
            return f"{name} {kind}: {compared(now, wanted) or 'a part is still damaged'}"
    return None
