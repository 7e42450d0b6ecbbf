"""Time of a filter of 100,000 images by label, folder, date and fields, beside the same conditions in pandas."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd

from visterm.pipeline.search.filters import AlbumRows, Fields
from visterm.pipeline.search.request import SearchRequest
from visterm.pipeline.store.fields import FieldsRow
from visterm.pipeline.store.images import Image

from .records import THREAD, race, record


def run(quick: bool = False) -> list[dict]:
    n = 10_000 if quick else 100_000
    rng = np.random.default_rng(0)
    labels, cameras = [f"label {i}" for i in range(50)], [f"camera {i}" for i in range(20)]
    paths = sorted(f"{rng.integers(100):02d}/{rng.integers(20):02d}/{i}.jpg" for i in range(n))
    label_of, camera_of = rng.choice(labels, n), rng.choice(cameras, n)
    speed_of = rng.integers(1, 65, n) * 100
    start = datetime.datetime(2010, 1, 1)
    date_of = [(start + datetime.timedelta(seconds=int(s))).isoformat() for s in rng.integers(0, 473_385_600, n)]
    images = [Image(i, path, "", {label_of[i]: 1.0}, None, 0, i) for i, path in enumerate(paths)]
    fields = Fields(
        [
            FieldsRow(date, "exif", {"camera": camera, "iso": str(speed)})
            for date, camera, speed in zip(date_of, camera_of, speed_of, strict=True)
        ]
    )
    albums = AlbumRows(images)
    table = pd.DataFrame(
        {
            "path": paths,
            "label": pd.Categorical(label_of),
            "camera": pd.Categorical(camera_of),
            "iso": speed_of,
            "date": pd.to_datetime(date_of),
        }
    )
    request = SearchRequest.of(
        label=["label 3", "label 7", "label 8"],
        not_label="label 9",
        folder="12",
        after="2015-03",
        before="2022",
        where=["camera!=camera 4", "iso>=400"],
    )
    wanted = request.filter

    def ours(_: int) -> np.ndarray:
        return wanted.rows(images, albums, fields)

    def peer(_: int) -> np.ndarray:
        passes = table.label.isin(["label 3", "label 7", "label 8"]) & (table.label != "label 9")
        passes &= table.path.str.startswith("12/") & (table.date >= "2015-03-01") & (table.date < "2022-01-01")
        passes &= (table.camera != "camera 4") & (table.iso >= 400)
        return np.flatnonzero(passes)

    np.testing.assert_array_equal(ours(0), peer(0))
    return [
        record(
            "filter-100k",
            f"a filter of {n:,} images by labels, folder, two dates and two fields",
            "the same conditions on a pandas DataFrame",
            "one read per image and condition",
            race(ours, peer, 5 if quick else 30, THREAD, unit="ms per filter"),
        )
    ]
