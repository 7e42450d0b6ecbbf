"""Mutated images, tables and configurations: refused with a reason, without noise, in bounded time and memory."""

import io
import os
import random
import resource
import string
import subprocess
import sys
from pathlib import Path

from world import CLASSES, World, call, in_child

IMAGES_EACH, CONFIGURATIONS_EACH = 34, 50
_MOST_BYTES = 1_400_000_000  # beyond what a process takes before it reads an image: docs/reliability.md says so
_HEIC = Path(__file__).parents[1] / "features/picture.heic"
_SEEDS: list[tuple[str, bytes]] = []
_LARGE = (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\0", b"\x80\0\0\0", b"\0\x01\0\0", b"\xff\xfe\0\0")


def images(world: World, seed: int) -> str | None:
    """Extract a folder of mutated images."""
    chance = random.Random(seed)
    with world.copy() as folder:
        for i in range(IMAGES_EACH):
            ending, data = chance.choice(_image_seeds())
            place = folder / f"images/{chance.choice(CLASSES)}/{i}{ending}"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(_mutated(data, chance))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        report = folder / "peak"

        def note_the_peak() -> None:
            leave = os._exit

            def leave_with_peak(code: int) -> None:
                report.write_text(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))
                leave(code)

            # Of this child process alone; mypy takes os._exit for a function that never returns.
            os._exit = leave_with_peak  # type: ignore[assignment]

        small = ("--set", "features.n_visterms=10", "--set", "compute.n_jobs=1", "--set", "collection.labels=none")
        ended = call("features", "images", "--run", "mutants", *small, cwd=folder, before=note_the_peak)
        if (problem := ended.problem()) is not None:
            return problem
        if odd := [line for line in ended.err.splitlines() if not line.startswith(_LINES) and "images" not in line]:
            return f"noise: {odd[:3]}"
        peak = 1024 * (int(report.read_text()) - before) if report.exists() else 0
        if peak > _MOST_BYTES:
            return f"{peak / 1e9:.2f} GB of memory"
    return None


def large(world: World, seed: int) -> str | None:
    """Read an image at the limit, of one kind of pixels."""
    mode, ending, side = _AT_THE_LIMIT[seed % len(_AT_THE_LIMIT)]
    with world.copy() as folder:
        return in_child(lambda: _read_large(folder / f"large{ending}", mode, side)) or None


_AT_THE_LIMIT = (
    ("RGB", ".png", 9990), ("RGB", ".jpg", 9990), ("RGBA", ".png", 8650), ("P", ".png", 9990), ("I;16", ".png", 9990),
    ("F", ".tif", 8650), ("CMYK", ".tif", 8650),
)  # fmt: skip


def _read_large(file: Path, mode: str, side: int) -> str:
    """Read it in a process of its own, as memory that was used before would hide the peak."""
    from PIL import Image

    Image.new(mode, (side, side)).save(file, **({"compress_level": 1} if file.suffix == ".png" else {}))
    program = (
        "import re, sys; from visterm.features import read_image; "
        "peak = lambda: 1024 * int(re.search('VmHWM: *\\t* *([0-9]+)', open('/proc/self/status').read())[1]); "
        "before = peak(); read_image(sys.argv[1]); print(peak() - before)"
    )
    done = subprocess.run([sys.executable, "-c", program, file], capture_output=True, text=True, check=False)
    if done.returncode:
        return f"{mode}{file.suffix}: {done.stderr[-300:]}"
    peak = int(done.stdout)
    return f"{mode}{file.suffix}: {peak / 1e9:.2f} GB" if peak > _MOST_BYTES else ""


_LINES = ("warning: ", "visterm: ", "learning ", "extracting", "reading dates", "kept for later", "run ", "files of")


def _image_seeds() -> list[tuple[str, bytes]]:
    """Small images of every format, depth and kind that is read."""
    if _SEEDS:
        return _SEEDS
    import numpy as np
    from PIL import Image

    rng = np.random.default_rng(0)
    smooth = np.kron(rng.integers(0, 255, (12, 16, 3)), np.ones((6, 6, 1))).astype(np.uint8)
    colour = Image.fromarray(smooth)
    grey16 = Image.fromarray(smooth[:, :, 0].astype(np.uint16) * 257)
    deep = Image.fromarray(smooth[:, :, 0].astype(np.float32) / 255)
    alpha = colour.convert("RGBA")
    alpha.putalpha(colour.convert("L"))
    exif = Image.Exif()
    exif[0x0112] = 6
    for ending, image, options in (
        (".jpg", colour, {}), (".jpg", colour, {"progressive": True}), (".jpg", colour, {"exif": exif}),
        (".jpg", colour.convert("CMYK"), {}), (".jpg", colour.convert("L"), {}), (".png", colour, {}),
        (".png", alpha, {}), (".png", grey16, {}), (".png", colour.convert("P"), {"transparency": 3}),
        (".png", colour.convert("1"), {}), (".webp", colour, {}), (".webp", alpha, {"lossless": True}),
        (".bmp", colour, {}), (".bmp", colour.convert("P"), {}), (".tiff", colour, {}), (".tiff", deep, {}),
        (".tif", colour, {"compression": "tiff_lzw"}), (".tif", grey16, {"compression": "tiff_adobe_deflate"}),
        (".tif", colour, {"compression": "jpeg"}), (".tif", alpha, {"compression": "packbits"}),
        (".gif", colour, {}), (".gif", colour.convert("P"), {"transparency": 3}), (".avif", colour, {"exif": exif}),
        (".avif", alpha, {}),
    ):  # fmt: skip
        stream = io.BytesIO()
        # mypy takes images from a table of several types for objects.
        image.save(stream, {".jpg": "JPEG", ".tif": "TIFF"}.get(ending, ending[1:].upper()), **options)  # type: ignore[attr-defined]
        _SEEDS.append((ending, stream.getvalue()))
    _SEEDS.append((".heic", _HEIC.read_bytes()))
    return _SEEDS


def _mutated(data: bytes, chance: random.Random) -> bytes:
    """Change bytes as damage and malice do."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 4, 16))):
        if not changed:
            break
        at = chance.randrange(len(changed)) if chance.random() < 0.6 else chance.randrange(min(len(changed), 200))
        kind = chance.randrange(8)
        if kind == 0:
            changed[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            changed[at] = chance.randrange(256)
        elif kind == 2:
            del changed[at:]
        elif kind == 3:
            del changed[at : at + chance.choice((1, 2, 4, 64))]
        elif kind == 4:
            changed[at:at] = changed[at : at + chance.choice((1, 8, 100))]
        elif kind == 5:
            changed[at : at + 4] = chance.choice(_LARGE)
        elif kind == 6:
            changed[at : at + 2] = chance.choice(_LARGE)[:2]
        else:
            changed[at:at] = chance.randbytes(chance.choice((1, 4, 300)))
    return bytes(changed)


# ---------------------------------------------------------------------------------------------------------- tables

_CELLS = (
    "", "apple/1.jpg", "nan", "inf", "-1", "0", "1e39", "1e400", "1" * 5000, "=1+1", "\0", "\x1b[31m", '"', ",", "\n",
    "\r", "../../etc/passwd", "/", "a" * 200_000, "\udcff", "é", "\ufeff", "apple/1.jpg\0", "None", " ", "\u2028",
)  # fmt: skip


def tables(world: World, seed: int) -> str | None:
    """Read a mutated table, and search afterwards."""
    chance = random.Random(seed)
    with world.copy() as folder:
        kind = chance.choice(("labels", "clicks", "is_a", "npy", "npz", "sparse", "parquet", "arrow", "ids"))
        arguments = _table(folder, kind, chance)
        if arguments is None:
            return None
        ended = call(*world.filled(arguments), cwd=folder)
        if (problem := ended.problem()) is not None:
            return f"{kind}: {problem}"
        if ended.code == 2 and len(ended.err.splitlines()[-1]) > 1000:
            return f"{kind}: a line of {len(ended.err.splitlines()[-1]):,} characters"
        run = arguments[arguments.index("--run") + 1]
        if ended.code == 0 and kind != "is_a":
            after = call("search", "id:3", "--run", run, "--learner", "cosine", "--format", "csv", cwd=folder)
            if (problem := after.problem()) is not None:
                return f"{kind}, search afterwards: {problem}"
    return None


def _table(folder: Path, kind: str, chance: random.Random) -> list[str] | None:
    """Write a mutated table; return the command that reads it."""
    import numpy as np
    from scipy import sparse

    rng = np.random.default_rng(chance.randrange(1 << 30))
    paths = [f"{label}/{i}.jpg" for label in CLASSES for i in range(12)]
    if kind in ("labels", "clicks", "is_a"):
        head = {"labels": "path,label", "clicks": "query,path,count", "is_a": "label,parent"}[kind]
        lines = {
            "labels": [f"{path},{path.split('/')[0]}" for path in paths],
            "clicks": [f"{path.split('/')[0]},{path},3" for path in paths],
            "is_a": [f"{label},fruit" for label in CLASSES],
        }[kind]
        file = folder / f"{kind}.csv"
        file.write_bytes(_csv([head, *lines], chance))
        if kind == "is_a":
            return ["evaluate", "--learner", "oasis", "--run", "fruit", "--set", f"evaluate.is_a={file}"]
        return ["features", "{images}", "--run", "fruit", "--set", f"collection.{kind}={file}"]
    X = rng.normal(size=(20, 6)).astype(chance.choice(("f2", "f4", "f8", "i4", "c8", "?", "U3", ">f4")))
    ids = np.array([f"a/{i}" for i in range(20)])
    ids_file = folder / "ids.txt"
    ids_file.write_text("\n".join(ids) + "\n")
    file = folder / f"vectors.{ {'sparse': 'npz', 'ids': 'npy'}.get(kind, kind) }"
    with open(file, "wb") as stream:
        if kind in ("npy", "ids"):
            np.save(stream, X)
        elif kind == "npz":
            np.savez(stream, vector=X, id=ids)
        elif kind == "sparse":
            matrix = sparse.random(20, 6, 0.5, "csr", dtype=np.float32, random_state=0)
            parts = {name: getattr(matrix, name) for name in ("data", "indices", "indptr")}
            parts["shape"] = np.array(matrix.shape, chance.choice(("i8", "f8", "U4", "i2")))
            which = chance.choice(sorted(parts))
            if chance.random() < 0.5:
                parts[which] = chance.choice(
                    (parts[which][:-1], parts[which] * 1000, parts[which].astype("f4"), -parts[which])
                ) if parts[which].dtype.kind != "U" else parts[which]  # fmt: skip
            np.savez(stream, format=b"csr", id=ids, **parts)
        else:
            try:
                import pyarrow as pa
                import pyarrow.parquet as pq
            except ImportError:
                return None
            numbers = rng.normal(size=(20, 6)).astype("f4")
            table = pa.table({"id": list(ids), "vector": list(numbers)})
            if kind == "arrow":
                pa.ipc.new_stream(stream, table.schema).write_table(table)
            else:
                pq.write_table(table, stream)
    if kind == "ids":
        ids_file.write_bytes(_csv(list(ids), chance))
    elif chance.random() < 0.8:
        data = file.read_bytes()
        if kind in ("npy", "npz", "sparse") and chance.random() < 0.4:  # the header, which is a text
            at = data.find(b"{'descr'")
            header = bytearray(data)
            for _ in range(chance.choice((1, 2, 6))):
                header[at + chance.randrange(80)] = ord(chance.choice(string.printable))
            file.write_bytes(header)
        else:
            file.write_bytes(_mutated(data, chance))
    with_ids = [] if kind in ("npz", "sparse", "parquet", "arrow") else ["--ids", str(ids_file)]
    return ["features", "--vectors", str(file), *with_ids, "--run", "vectors"]


def _csv(lines: list[str], chance: random.Random) -> bytes:
    """Put odd cells into a table, or change its bytes."""
    if chance.random() < 0.4:
        return _mutated("\n".join(lines).encode(), chance)
    for _ in range(chance.choice((1, 2, 5))):
        row = chance.randrange(len(lines))
        cells = lines[row].split(",")
        cells[chance.randrange(len(cells))] = chance.choice(_CELLS)
        lines[row] = ",".join(cells)
    return "\n".join(lines).encode("utf-8", "surrogateescape")


# -------------------------------------------------------------------------------------------------- configurations

_VALUES = (
    "2020-99-99", "0x_", "!!int abc", "9" * 5000, "[" * 3000, "{a: " * 3000, "*a", "&a [*a, *a]", "1e400", ".nan",
    "-.inf", "null", "!!python/object/apply:os.system [ls]", "!!binary abc", "!!set {a}", "!!timestamp x", "'", '"\\',
    "\t", "- a", "? a", "%TAG", "0b", "0o9", "1:99:99", "~", "yes", "[]", "{}", "[1, a, null]", "-1", "0", "1e-320",
    "\0", "\x07", "\ufeff", "| text", "> text", "a: b: c", "18446744073709551616", "!!float x", "<<: 1", "../..",
    "/dev/zero", "/", "", "é", "\ud800", "=1", "@a", "`",
)  # fmt: skip


def configurations(world: World, seed: int) -> str | None:
    """Read mutated configurations and settings; a part of them through a command."""
    chance = random.Random(seed)
    texts = [_configuration(chance) for _ in range(CONFIGURATIONS_EACH)]
    with world.copy() as folder:
        wrong = in_child(lambda: _read_all(folder, texts))
        if wrong:
            return str(wrong)[:400]
        (folder / "odd.yaml").write_text(texts[0], encoding="utf-8", errors="surrogatepass")
        setting = (
            f"{chance.choice(_keys())}={chance.choice(_VALUES)}".replace("\0", "").encode("utf-8", "replace").decode()
        )
        for arguments in (("info", "--run", "fruit"), ("features", "--run", "fruit", "--set", setting)):
            if arguments[0] == "info":
                os.unlink(folder / "runs/fruit/config.yaml")
                (folder / "runs/fruit/config.yaml").write_bytes((folder / "odd.yaml").read_bytes())
            else:
                os.unlink(folder / "runs/fruit/config.yaml")
                os.link(world.base / "runs/fruit/config.yaml", folder / "runs/fruit/config.yaml")
            ended = call(*arguments, cwd=folder)
            if (problem := ended.problem()) is not None:
                return f"{arguments}: {problem}"[:600]
    return None


def _read_all(folder: Path, texts: list[str]) -> list[str]:
    """Read configurations; return what is wrong with how they are refused."""
    from visterm.pipeline.config.loading import load_config
    from visterm.pipeline.errors import UserError

    wrong, file = [], folder / "one.yaml"
    for text in texts:
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
        try:
            load_config(file)
        except UserError as error:
            if len(str(error)) > 1000 + len(str(file)):
                wrong.append(f"{text[:60]!r}: a message of {len(str(error)):,} characters")
        except BaseException as error:
            wrong.append(f"{text[:60]!r}: {type(error).__name__}: {error}"[:200])
    return wrong


def _keys() -> list[str]:
    from visterm.pipeline.config.models import Config

    return [f"{section}.{key}" if isinstance(value, dict) else section
            for section, value in Config().model_dump().items()
            for key in (value if isinstance(value, dict) else [""])]  # fmt: skip


def _configuration(chance: random.Random) -> str:
    from visterm.pipeline.config.models import Config

    if chance.random() < 0.1:  # aliases that stand for billions of values
        lines = [
            "a: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]",
            *(f"b{i}: &a{i + 1} [{', '.join([f'*a{i}'] * 9)}]" for i in range(9)),
        ]
        return "\n".join(lines)
    text = Config().to_yaml()
    kind = chance.randrange(3)
    if kind == 0:
        return _mutated(text.encode(), chance).decode("utf-8", "replace")
    section, _, key = chance.choice(_keys()).partition(".")
    value = chance.choice(_VALUES)
    if kind == 1:
        return f"{section}:\n  {key}: {value}\n" if key else f"{section}: {value}\n"
    lines = text.splitlines()
    row = chance.randrange(len(lines))
    lines[row] = f"{lines[row].partition(':')[0]}: {value}"
    return "\n".join(lines)
