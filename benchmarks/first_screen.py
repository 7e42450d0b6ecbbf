"""The first screen of a collection after its service starts: ``python -m benchmarks first_screen [--quick]``.

3,781 photos of Corel-5K with its words and a trained learner, `visterm serve` as a process of its own, and Chromium,
which loads the page once, when the service says its address. From the start of the service's process until the photos
are painted on the page, until its card says how many labels to check there are, and until the map is drawn; the same
after a restart, when the run has all of it. The figure is processor time, which other programs do not change; elapsed
times stand beside it.

Then decisions in the queue: the photos that it asks about are replaced by 12-megapixel ones of the same picture, as a
camera makes them, and 30 labels are kept by a click: processor time of the service from the click until the next photo
is on the page at 1,024 pixels, and until the next click, a second of looking later.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import cv2

from visterm.pipeline.store.run import Run
from visterm.teaching.overview import overview_folder

from .photos import enlarged, extracted
from .processes import RUN, serving, temporary_folder, visterm
from .records import compared, record
from .vectors import DATA
from .webpage import CHROMIUM, browser

PHOTOS, TIMES = 3781, 3
PATIENCE = 600.0  # seconds
AIMS = {"photos": 1.0, "queue": 10.0}  # seconds
DECISIONS, AIM_DECISION, LOOKING = 30, 150.0, 1000.0  # ms
# The moments, by the page's clock, at which it shows each part first; the progress bars that it showed, and its loads.
LOOK = """
    window.seen = {};
    const painted = (canvas) => {
        if (!canvas?.width || !canvas.clientWidth) return false;
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        let drawn = 0;
        for (let i = 3; i < data.length; i += 4) drawn += data[i] > 0;
        return 4 * drawn > 0.85 * data.length;
    };
    const of = (words) => [...document.querySelectorAll("#home .way")].find((way) => way.innerText.includes(words));
    setInterval(() => {
        const parts = {
            photos: () => painted(document.querySelector("#home canvas")),
            progress: () => document.querySelector("#home progress"),
            queue: () => /wrong/.test(of("Check these labels")?.innerText),
            alike: () => /[0-9]+ group/.test(of("look alike")?.innerText),
            map: () => /the similar ones together/.test(of("Map of")?.innerText)
                && !/soon/.test(of("Map of").innerText),
        };
        for (const [name, there] of Object.entries(parts))
            if (!(name in window.seen) && there()) window.seen[name] = Date.now() / 1000;
    }, 20);
"""

SHOWN = """() => {
    const photo = document.querySelector(".doubted img");
    return photo?.complete && Math.max(photo.naturalWidth, photo.naturalHeight);
}"""
DECIDE = """() => new Promise((done) => {
    const photo = () => document.querySelector(".doubted img");
    const [begun, before] = [performance.now(), photo().src];
    const look = () => {
        const { src, complete, naturalWidth } = photo() ?? {};
        if (src && src !== before && complete && naturalWidth) done(performance.now() - begun);
        else requestAnimationFrame(look);
    };
    document.querySelector(".doubt [data-name=no]").click();
    look();
})"""


def moments(runs: Path, page: Any, until: str) -> dict[str, float]:
    """Seconds from the start of the service until the page shows each part, and processor time of the service then."""
    begun, seconds = time.time(), {}
    with serving(runs) as (port, service):
        seconds["service"] = time.time() - begun
        page.goto(f"http://127.0.0.1:{port}/")
        opened = page.evaluate("performance.timeOrigin")
        while not {until, "photos"} <= seconds.keys():
            if time.time() - begun > PATIENCE or page.evaluate("performance.timeOrigin") != opened:
                raise RuntimeError(f"the page was loaded again, or shows no more than {seconds}")
            used = processor_seconds(service)
            for part, moment in page.evaluate("window.seen").items():
                seconds |= {} if part in seconds else {part: moment - begun, f"{part} used": used}
            page.wait_for_timeout(50)
    return seconds


def processor_seconds(service: int) -> float:
    """Processor time of the service and of the process that it started."""
    times, started = 0, Path(f"/proc/{service}/task").glob("*/children")
    for process in (service, *(child for file in started for child in file.read_text().split())):
        times += sum(map(int, Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]))
    return times / os.sysconf("SC_CLK_TCK")


def enlarge_asked(runs: Path, run: Run) -> None:
    """Give the run photos of its own, of a camera's size where the queue asks about them first."""
    from visterm.pipeline.store.catalogue import Collection

    photos = runs / "photos"
    shutil.copytree(DATA / "corel5k", photos, copy_function=lambda source, link: os.symlink(source, link))
    asked = [entry["id"] for entry in json.loads((overview_folder(run) / "check.json").read_text())]
    with Collection(run.collection) as collection:
        paths = {image.id: image.path for image in collection.images()}
    for number in list(dict.fromkeys(asked))[: 2 * DECISIONS]:
        pixels = enlarged(photo := photos / paths[number])
        photo.unlink()
        cv2.imwrite(str(photo), pixels)
    visterm(runs, "features", photos)


def decisions(runs: Path, page: Any, n: int) -> list[tuple[float, float, float]]:
    """Of n decisions, ms of the service's processor time to the next photo and the next click, and elapsed ones."""
    measured = []
    with serving(runs) as (port, service):
        address, clock = f"http://127.0.0.1:{port}/", (~service << 3) | 2  # of clock_gettime: of a process
        while True:
            with urllib.request.urlopen(f"{address}api/map") as answer:
                state = json.load(answer)
            if state["n_check"]:
                break
            time.sleep(1)
        page.goto(f"{address}?view=queue")
        page.wait_for_function(SHOWN)
        page.wait_for_timeout(3 * LOOKING)
        while len(measured) < n:
            begun = time.clock_gettime(clock)
            elapsed = page.evaluate(DECIDE)
            there = time.clock_gettime(clock)
            page.wait_for_timeout(LOOKING)
            if page.evaluate(SHOWN) == 1024:  # others are as small as the set's, where the queue was made again
                measured.append((1000 * (there - begun), 1000 * (time.clock_gettime(clock) - begun), elapsed))
    return measured


def measure(kind: str, quick: bool) -> Iterator[dict[str, Any]]:
    """Two records of a kind of vectors."""
    whole, _ = extracted("corel5k", kind)
    with temporary_folder() as runs, browser() as page:
        page.add_init_script(LOOK)
        run = Run(shutil.copytree(whole.folder, runs / RUN, ignore=lambda *_: ["overview"]))
        visterm(runs, "remove", *(f"id:{number}" for number in later(run)))
        visterm(runs, "train", "--learner", "oasis")
        first = []
        for left in range(0 if quick else TIMES - 1, -1, -1):
            shutil.rmtree(overview_folder(run), ignore_errors=True)
            first.append(moments(runs, page, "queue" if left else "map"))
        again = moments(runs, page, "map")
        enlarge_asked(runs, run)
        decided = decisions(runs, page, 5 if quick else DECISIONS)

    def of(part: str) -> float:
        return median(one[part] for one in first)

    for part, aim in AIMS.items():
        yield record(
            f"service-first-{part}-{kind}",
            f"the first screen of {PHOTOS:,} photos with 260 words and OASIS ({kind}), nothing made before: from the "
            f"start of the service's process until the page shows the {'labels to check' if part == 'queue' else part}",
            "what was asked",
            "the service itself, and for the queue the regression that judges the labels",
            compared(of(f"{part} used"), aim, "s", PHOTOS),
            measured=f"median of {len(first)}, processor time of the service and its process, without the browser's; "
            f"elapsed {of(part):.1f} s, the least {min(one[part] for one in first):.1f} s, at a load of "
            f"{os.getloadavg()[0]:.0f} on {os.cpu_count()} cores, where the service answers after "
            f"{of('service'):.1f} s, says progress after {of('progress'):.1f} s, and has the map after "
            f"{first[-1]['map']:.0f} s; after a restart {again[part]:.1f} s",
        )
    to_photo, to_click, elapsed = map(median, zip(*decided, strict=True))
    yield record(
        f"service-decision-{kind}",
        f"a decision in the queue of labels to check, {PHOTOS:,} photos ({kind}), those it asks about of 12 "
        "megapixels: from the click until the next photo is on the page at 1,024 pixels",
        "what was asked",
        "nothing: the next photos are fetched before",
        compared(to_photo, AIM_DECISION, "ms", len(decided)),
        measured=f"median of {len(decided)}, processor time of the service, the most "
        f"{max(one[0] for one in decided):.0f} ms; with saving the label and fetching ahead, until the next click, "
        f"{to_click:.0f} ms; elapsed {elapsed:.0f} ms",
    )


def later(run: Run) -> list[int]:
    """Ids of the photos after the first ones."""
    from visterm.pipeline.store.catalogue import Collection

    with Collection(run.collection) as collection:
        return [image.id for image in collection.images()][PHOTOS:]


def run(quick: bool = False) -> list[dict]:
    if CHROMIUM is None:
        print("    left out: no chromium", file=sys.stderr)
        return []
    return [one for kind in ("visterms", "deep") for one in measure(kind, quick)]
