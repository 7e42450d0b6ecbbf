"""From a dropped picture to results in a real browser: ``python -m benchmarks webpage [--quick]``.

All images of Caltech-101 at 1,000 visterms, `visterm serve`, a process of its own, and Chromium beside it. Pictures
from outside, of the flowers, are dropped on the page one after the other; the page's own clock says when the first
results are there, and when all thumbnails in view are painted. The first drop loads what later ones find in memory: it
is told apart.
"""

from __future__ import annotations

import base64
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from .service import VISTERM, environment
from .vectors import DATA

COMMAND = "python -m benchmarks webpage"
AIM = 1000.0  # ms
DROP = """(data) => new Promise((done) => {
    const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
    const files = new DataTransfer();
    files.items.add(new File([bytes], "given.jpg", { type: "image/jpeg" }));
    const begun = performance.now();
    let listed = null;
    const look = () => {
        const cards = [...document.querySelectorAll("#results .card")];
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


def drops(port: str, pictures: list[Path]) -> list[tuple[float, float]]:
    """Milliseconds to the first results and to all pictures in view, for each picture dropped on an empty page."""
    from playwright.sync_api import sync_playwright

    found = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 860})
        for picture in pictures:
            page.goto(f"http://127.0.0.1:{port}/")
            page.wait_for_load_state("networkidle")
            found.append(tuple(page.evaluate(DROP, base64.b64encode(picture.read_bytes()).decode())))
        browser.close()
    return found


def run(quick: bool = False) -> list[dict]:
    images, flowers = DATA / "caltech101", sorted((DATA / "flowers").rglob("*.jpg"))
    if not images.is_dir() or not flowers or shutil.which("chromium") is None:
        print(f"    left out: no {images}, or no chromium", file=sys.stderr)
        return []
    with tempfile.TemporaryDirectory(prefix="visterm-bench-") as name:
        folder = Path(name)
        for arguments in (["features", images], ["train", "--learner", "oasis"]):
            settings = ["--set", "features.n_visterms=1000", "--set", f"oasis.n_steps={5_000 if quick else 60_000}"]
            command = [VISTERM, "--quiet", *arguments, "--run", "bench", *settings]
            subprocess.run(command, env=environment(folder), check=True, capture_output=True)
        serving = subprocess.Popen(
            [VISTERM, "--quiet", "serve", "--run", "bench", "--port", "0"],
            env=environment(folder),
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            port = serving.stdout.readline().strip().rstrip("/").rpartition(":")[2]
            found = drops(port, flowers[:: len(flowers) // (3 if quick else 21)])
        finally:
            serving.terminate()
            serving.wait(30)
    (first, first_seen), later = found[0], found[1:]
    listed, seen = (statistics.median(times) for times in zip(*later, strict=True))
    n_images = sum(1 for _ in images.rglob("*.jpg"))
    return [
        {
            "name": "service-page-drop",
            "what": f"a picture dropped on the page, {n_images:,} images, to the first results; the first of all "
            f"{first:.0f} ms; with all thumbnails in view painted {seen:.0f} ms, the first time {first_seen:.0f} ms",
            "ours": listed,
            "peer": AIM,
            "peer_name": "what is aimed at",
            "ratio": AIM / listed,
            "limit": "reading and describing the picture, some ms, and a frame of the browser",
            "unit": "ms",
            "n": len(later),
            "measured": f"median of {len(later)} pictures, the slowest {max(listed for listed, _ in later):.0f} ms",
            "command": COMMAND,
        }
    ]
