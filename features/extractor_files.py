"""Extractors on disk: arrays as .npy, settings as JSON, each with a checksum; nothing is ever unpickled."""

from __future__ import annotations

import io
import json
import pathlib
import re
import zlib
from tokenize import TokenError
from typing import Any

import numpy as np

from visterm.files import replaced

from .codebook import Codebook
from .color import Palette
from .decoding import StrPath
from .texture import N_PATTERNS
from .visterms import VistermWeighting
from .weights import ARRAYS, FORMAT, FORMATS, new_array, read_array, read_saved


def save_extractor(extractor: Any, folder: StrPath) -> None:
    """Write a fitted extractor; see `VistermExtractor.save`."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    codebook = extractor.codebook_
    if extractor.palette_ is None:
        arrays = {"filters": codebook.filters_, "nodes": codebook.nodes_, "roots": codebook.roots_}
    else:
        arrays = {"palette": extractor.palette_.colors_, "codebook": codebook.centers_}
    arrays["idf"] = extractor.weighting_.idf_
    settings = extractor.get_params()
    if not isinstance(extractor.random_state, (int, np.integer)):
        settings["random_state"] = None  # the state of a generator is not a setting
    crc32 = {}
    for name, array in arrays.items():
        data = io.BytesIO()
        np.save(data, np.ascontiguousarray(array, dtype=ARRAYS[name]), allow_pickle=False)
        crc32[name] = zlib.crc32(data.getvalue())
        with replaced(new_array(folder, name, crc32[name])) as file:
            file.write(data.getvalue())
    record = {
        "format": FORMAT,
        "settings": settings,
        "n_images": extractor.weighting_.n_images_,
        "crc32": crc32,
    }
    with replaced(folder / "extractor.json") as file:
        file.write((json.dumps(record, indent=2, default=_plain) + "\n").encode())
    for name in arrays:  # until here, the files of the old extractor stood
        new_array(folder, name, crc32[name]).replace(folder / f"{name}.npy")
    for path in folder.iterdir():  # of another kind of codebook, or of a process that was killed
        is_array = path.suffix in (".npy", ".tmp") and re.split("[-.]", path.name)[0] in ARRAYS
        if is_array and path.name.removesuffix(".npy") not in arrays:
            path.unlink()


def load_extractor(cls: type, folder: StrPath) -> Any:
    """Read an extractor as an object of the class; see `VistermExtractor.load`."""
    folder, record = read_saved(folder)
    try:
        extractor = cls(
            **FORMATS[record["format"]] | record["settings"] | {"cells": tuple(record["settings"]["cells"])}
        )
        n_centers = extractor._layout().per_cell
        shapes: dict[str, tuple] = {"idf": (extractor.n_visterms,)}
        if extractor.codebook == "forest":
            shapes |= {"filters": (None, 13), "nodes": (None, 3), "roots": (extractor.n_trees,)}
        else:
            shapes |= {
                "palette": (extractor.n_colors, 3),
                "codebook": (None, extractor.n_colors + N_PATTERNS),  # fewer than n_centers of few blocks
            }
        arrays = {name: read_array(folder, name, record["crc32"][name], shapes[name]) for name in shapes}
        if extractor.codebook == "forest":
            extractor.palette_ = None
            extractor.codebook_ = extractor._forest().set_trees(arrays["filters"], arrays["nodes"], arrays["roots"])
        else:
            extractor.palette_ = Palette(n_colors=extractor.n_colors).set_colors(arrays["palette"])
            if not 1 <= len(arrays["codebook"]) <= n_centers:
                raise ValueError(f"codebook.npy has {len(arrays['codebook'])} centres, not up to {n_centers}")
            extractor.codebook_ = Codebook(n_visterms=n_centers).set_centers(arrays["codebook"])
        n_images = int(record["n_images"])
    except (OSError, ValueError, TypeError, KeyError, EOFError, TokenError) as error:
        raise ValueError(f"the extractor in {folder} is damaged: {error}") from error
    extractor.weighting_ = VistermWeighting(tf=extractor.tf)
    extractor.weighting_.idf_ = arrays["idf"]
    extractor.weighting_.n_images_ = n_images
    return extractor


def _plain(value: Any) -> Any:
    """Convert NumPy numbers for JSON."""
    return value.item() if isinstance(value, np.generic) else str(value)
