"""The page in a real browser: ``python -m benchmarks webpage [--quick]``.

`visterm serve`, a process of its own, and Chromium beside it. First all images of Caltech-101: pictures from outside,
of the flowers, are dropped on the page one after the other; the page's own clock says when the first results are
there, and when all thumbnails in view are painted. The first drop loads what later ones find in memory: it is told
apart. A service that starts for the first time reads all images and draws their map in the background; the record is
of drops after that, and has the time of drops meanwhile beside it.

Then 50,000 photos, parts of those of $VISTERM_DATA: the map of them, made in the background while the page is asked
for results, and scrolls of ten seconds through them: at two screens a second, where photos are loaded as they come; at
three, where they are loaded when the scroll slows down; and as a scroll bar is dragged, a screen a frame. A frame is
the time between two animation frames of the page; Chromium draws without a graphics processor, on the cores that the
service makes the thumbnails on.
"""

from __future__ import annotations

import base64
import json
import shutil
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from .photos import files_of
from .processes import serving, set_options, visterm
from .records import compared, record
from .vectors import DATA

CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
AIM = 150.0  # ms to the first results
AIM_MAP = 180.0  # s
AIM_FRAME = 50.0  # ms
N_MANY = 50_000
HAND, FASTER, DRAGGED = 2, 3, 60  # screens a second; the page loads no photos beyond 2.5
SECONDS, SCROLLS = 10, 5
PART = 0.6  # of a photo's sides
DROP = """(data) => new Promise((done) => {
    const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
    const files = new DataTransfer();
    files.items.add(new File([bytes], "given.jpg", { type: "image/jpeg" }));
    const begun = performance.now();
    let listed = null;
    const look = () => {
        const cards = [...document.querySelectorAll("#results .tile[data-index]")];
        if (cards.length && !document.querySelector("#results").hidden) {
            listed ??= performance.now() - begun;
            const seen = cards.filter((card) => card.getBoundingClientRect().top < innerHeight);
            const pictures = seen.map((card) => card.querySelector("img"));
            if (pictures.every((img) => img?.complete && img.naturalWidth))
                return done([listed, performance.now() - begun]);
        }
        requestAnimationFrame(look);
    };
    dispatchEvent(new DragEvent("drop", { dataTransfer: files, cancelable: true }));
    requestAnimationFrame(look);
})"""


@contextmanager
def browser(*arguments: str) -> Iterator[Any]:
    """A page of Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", *arguments])
        yield chromium.new_page(viewport={"width": 1280, "height": 860})
        chromium.close()


def drops(address: str, pictures: list[Path]) -> list[tuple[float, float]]:
    """Milliseconds to the first results and to all pictures in view, for each picture dropped on an empty page."""
    latencies = []
    with browser() as page:
        for picture in pictures:
            page.goto(address)
            page.wait_for_load_state("networkidle")
            latencies.append(tuple(page.evaluate(DROP, base64.b64encode(picture.read_bytes()).decode())))
    return latencies


SCROLL = """([seconds, screens]) => new Promise((done) => {
    const frames = [];
    let begun = null, last = null, peak = 0;
    const step = (now) => {
        begun ??= now;
        if (last !== null) frames.push(now - last);
        last = now;
        peak = Math.max(peak, performance.memory.usedJSHeapSize);
        if (now - begun > 1000 * seconds) return done({ frames, peak, top: scrollY });
        scrollBy(0, screens * innerHeight / 60);
        requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
})"""


def write_parts(folder: Path, n: int) -> None:
    """Write n parts of photos, the class of the photo as a folder."""
    cv2.setNumThreads(1)
    photos = files_of("caltech101", "flowers", "textures")
    photos += sorted((DATA / "corel5k").rglob("*.jp*g"))
    rng = np.random.default_rng(0)
    places = rng.random((n, 2))

    def write(number: int) -> None:
        source = photos[number % len(photos)]
        photo = cv2.imread(str(source))
        size = np.array(photo.shape[:2])
        top, left = (places[number] * (1 - PART) * size).astype(int)
        height, width = (PART * size).astype(int)
        target = folder / source.parent.name / f"{number}.jpg"
        target.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(target), photo[top : top + height, left : left + width])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, range(n)))


@contextmanager
def served(folder: Path, images: Path, *settings: str) -> Iterator[str]:
    """Make a run of some images, and serve it; the address."""
    for arguments in (["features", images], ["train", "--learner", "oasis"]):
        visterm(folder / "runs", *arguments, *set_options(settings))
    with serving(folder / "runs") as (port, _):
        yield f"http://127.0.0.1:{port}"


def scrolled(address: str, seconds: float, screens: float) -> tuple[np.ndarray, float]:
    """Milliseconds of each frame of a scroll at so many screens a second, and the peak of the page's heap, MB."""
    with browser("--enable-precise-memory-info") as page:
        page.goto(f"{address}/?view=photos")
        page.locator("#photos .tile").first.wait_for()
        page.wait_for_load_state("networkidle")
        scroll = page.evaluate(SCROLL, [seconds, screens])
    return np.array(scroll["frames"]), scroll["peak"] / 1e6


def in_words(counts: list[int]) -> str:
    return ", ".join(map(str, counts))


def answer(address: str, method: str = "GET") -> Any:
    headers = {"Origin": address, "Sec-Fetch-Site": "same-origin"}
    with urllib.request.urlopen(urllib.request.Request(address, method=method, headers=headers)) as response:
        return json.load(response)


def mapped(address: str) -> tuple[float, list[float]]:
    """Seconds until the map is there, and milliseconds of searches by id meanwhile."""
    ids = [image["id"] for image in answer(f"{address}/api/images?limit=50")]
    begun, searches = time.perf_counter(), []
    state = answer(f"{address}/api/map", "POST")
    while not state["current"]:
        if state["problem"]:
            raise RuntimeError(state["problem"])
        asked = time.perf_counter()
        answer(f"{address}/search?id={ids[len(searches) % len(ids)]}")
        searches.append(1000 * (time.perf_counter() - asked))
        time.sleep(0.5)
        state = answer(f"{address}/api/map")
    return time.perf_counter() - begun, searches


def dropped(folder: Path, quick: bool) -> dict:
    """The record of pictures dropped on the page."""
    images, flowers = DATA / "caltech101", sorted((DATA / "flowers").rglob("*.jpg"))
    settings = ("features.n_visterms=1000", f"oasis.n_steps={5_000 if quick else 60_000}")
    with served(folder, images, *settings) as address:
        pictures = flowers[:: len(flowers) // (6 if quick else 21)]
        begun = statistics.median(listed for listed, _ in drops(address, pictures[1::3])[1:])
        mapped(address)
        latencies = drops(address, pictures)
    (first, first_seen), later = latencies[0], latencies[1:]
    listed, seen = (statistics.median(times) for times in zip(*later, strict=True))
    n_images = sum(1 for _ in images.rglob("*.jpg"))
    return record(
        "service-page-drop",
        f"a picture dropped on the page, {n_images:,} images, to the first results; the first of all "
        f"{first:.0f} ms; with all thumbnails in view painted {seen:.0f} ms, the first time {first_seen:.0f} ms; while "
        f"the service still draws the map, after its first start, {begun:.0f} ms to the first results",
        "what is aimed at",
        "reading and describing the picture, some ms, and a frame of the browser",
        compared(listed, AIM, "ms", len(later)),
        measured=f"median of {len(later)} pictures, the slowest {max(listed for listed, _ in later):.0f} ms",
    )


def many(folder: Path, quick: bool) -> list[dict]:
    """The records of the map and of scrolling, of many photos."""
    n = 300 if quick else N_MANY
    n_visterms = 500 if quick else 10_000
    write_parts(folder / "photos", n)
    settings = (f"features.n_visterms={n_visterms}", "oasis.n_steps=500000")
    with served(folder, folder / "photos", *settings) as address:
        seconds, searches = mapped(address)
        scrolls = {
            speed: [scrolled(address, 2 if quick else SECONDS, speed) for _ in range(1 if quick else SCROLLS)]
            for speed in (HAND, FASTER, DRAGGED)
        }
    longest = [float(frames.max()) for frames, _ in scrolls[HAND]]
    slow = {speed: [int((frames > AIM_FRAME).sum()) for frames, _ in some] for speed, some in scrolls.items()}
    heap = max(peak for some in scrolls.values() for _, peak in some)
    frames = np.concatenate([frames for frames, _ in scrolls[HAND]])
    return [
        record(
            "service-page-map",
            f"the map of {n:,} photos, {n_visterms:,} visterms; searches by id meanwhile "
            f"{statistics.median(searches):.0f} ms",
            "what is aimed at",
            "UMAP itself, on one core, so that the same seed gives the same map",
            compared(seconds, AIM_MAP, "s", n),
            measured=f"once, in a process of low priority; {len(searches)} searches, the slowest "
            f"{max(searches):.0f} ms",
        ),
        record(
            "service-page-scroll",
            f"scrolling through {n:,} photos by hand: the longest frame; script heap {heap:.0f} MB at the peak",
            "what is aimed at",
            "16.7 ms: 60 frames a second",
            compared(statistics.median(longest), AIM_FRAME, "ms", len(frames)),
            measured=f"median of {SCROLLS} scrolls of {SECONDS} s at {HAND} screens a second, some "
            f"{len(frames) // len(longest)} frames each, of more than {AIM_FRAME:.0f} ms: {in_words(slow[HAND])}; "
            f"at {FASTER} screens a second {in_words(slow[FASTER])}, dragged {in_words(slow[DRAGGED])}; at {HAND} "
            f"the median {np.median(frames):.1f} ms, the 99th percentile {np.percentile(frames, 99):.0f} ms",
            slow_frames=slow[HAND],
            heap_mb=heap,
        ),
    ]


def run(quick: bool = False) -> list[dict]:
    if CHROMIUM is None:
        print("    left out: no chromium", file=sys.stderr)
        return []
    with tempfile.TemporaryDirectory(prefix="visterm-bench-") as name:
        few, lots = Path(name) / "few", Path(name) / "many"
        few.mkdir(), lots.mkdir()
        return [dropped(few, quick), *many(lots, quick)]
