"""Keywords of 10,000 photos, read as labels, beside ExifTool, which must be installed (libimage-exiftool-perl)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import exiv2
import numpy as np
from PIL import Image

from visterm.plugins.keywords.reading import read_keywords

from .peers import PeerError
from .processes import child_seconds, temporary_folder
from .records import Clock, race, record

PHOTOS, DIFFERENT, KEYWORDS = 10_000, 100, 10


def processor_seconds() -> float:
    """Seconds of this process and of the programs that it started."""
    return time.process_time() + child_seconds()


def write_photos(folder: Path, n: int) -> list[str]:
    """Write photos of 300 KB with ten keywords each, in a hierarchy and alone; most are links to some of them."""
    rng = np.random.default_rng(0)
    names = [f"{i:05}.jpg" for i in range(n)]
    for i, name in enumerate(names):
        if i >= DIFFERENT:
            os.link(folder / names[i % DIFFERENT], folder / name)
            continue
        Image.fromarray(rng.integers(0, 256, (480, 640, 3), np.uint8)).save(folder / name, quality=90)
        image = exiv2.ImageFactory.open(os.fspath(folder / name))
        image.readMetadata()
        words = [f"word {number}" for number in rng.choice(500, KEYWORDS, replace=False).tolist()]
        image.xmpData()["Xmp.dc.subject"] = words
        image.xmpData()["Xmp.lr.hierarchicalSubject"] = [f"Things|{word}" for word in words]
        image.xmpData()["Xmp.xmp.Rating"] = "4"
        image.writeMetadata()
    return names


def run(quick: bool = False) -> list[dict]:
    if shutil.which("exiftool") is None:
        raise PeerError("no exiftool; install ExifTool (libimage-exiftool-perl)")
    n = 1_000 if quick else PHOTOS
    with temporary_folder() as folder:
        photos = folder / "photos"
        photos.mkdir()
        names = write_photos(photos, n)

        def ours(turn: int) -> dict[str, set[str]]:
            memory = folder / f"memory-{turn}"  # which is empty: all files are read
            memory.mkdir()
            read = read_keywords(["keywords"], photos, names, memory, whole=True)
            shutil.rmtree(memory)
            return {name: set(read.labels(name) or ()) for name in names}

        def peer(_: int) -> dict[str, set[str]]:
            options = ("-json", "-q", "-fast2", "-Subject", "-HierarchicalSubject", "-Rating")
            done = subprocess.run(["exiftool", *options, photos], check=True, capture_output=True)
            return {os.path.basename(one["SourceFile"]): set(one["Subject"]) for one in json.loads(done.stdout)}

        assert ours(-1) == peer(0)
        return [
            record(
                "keywords-10k",
                f"reading the keywords of {n:,} photos as labels, with their hierarchy and ratings",
                "exiftool -json",
                "10 s asked",
                race(ours, peer, 3, Clock(processor_seconds, "1 core each, processor time"), unit="s"),
            )
        ]
