"""Take the screenshots of the page in docs/screens: python tests/screenshots.py runs/NAME (make screenshots RUN=NAME).

The run needs OASIS and an evaluation. The pictures kept there show photos of Caltech-101 (CC BY 4.0). Marks are made in
a copy of the run.
"""

import shutil
import socket
import sys
import tempfile
import threading
from contextlib import closing
from pathlib import Path

import uvicorn
from playwright.sync_api import Page, sync_playwright

from visterm.pipeline.search.searcher import Searcher
from visterm.pipeline.store.run import Run
from visterm.service.app import create_app
from visterm.teaching.overview import make_overview

FOLDER = Path(__file__).parents[1] / "docs" / "screens"
DESKTOP = {"viewport": {"width": 1200, "height": 760}}
DARK = DESKTOP | {"color_scheme": "dark"}
PHONE = {"viewport": {"width": 390, "height": 760}, "is_mobile": True, "has_touch": True}


def photo(page: Page, index: int):
    return page.locator(f'#results .tile[data-index="{index}"]')


def select(page: Page) -> None:
    photo(page, 1).locator("a.open").focus()
    page.keyboard.press(" ")
    for _ in range(3):
        page.keyboard.press("Shift+ArrowRight")


def mark(page: Page) -> None:
    photo(page, 0).locator("a.open").focus()
    page.keyboard.press("a")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("a")
    photo(page, 5).locator("a.open").focus()
    page.keyboard.press("x")
    photo(page, 9).hover()


def explain(page: Page) -> None:
    photo(page, 1).locator("a.open").focus()
    page.keyboard.press("e")
    page.locator("#viewer .where").wait_for()


def compare_photos(page: Page) -> None:
    photo(page, 2).locator("a.open").click()
    page.keyboard.press("c")


def options(page: Page) -> None:
    page.locator("#options > summary").click()
    page.get_by_text("Advanced").click()


def type_name(page: Page) -> None:
    page.get_by_role("combobox").fill("b")
    page.get_by_role("option").nth(1).wait_for()
    page.keyboard.press("ArrowDown")


# name: look, address ({id}: an image), what to do there
STATES = {
    "start": (DESKTOP, "", None),
    "results": (DESKTOP, "?id={id}", lambda page: photo(page, 8).hover()),
    "results-dark": (DARK, "?id={id}", None),
    "results-phone": (PHONE, "?id={id}", None),
    "marks": (DESKTOP, "?id={id}", mark),
    "selection": (DESKTOP, "?id={id}", select),
    "viewer": (DESKTOP, "?id={id}", lambda page: photo(page, 3).locator("a.open").click()),
    "beside": (DESKTOP, "?id={id}", compare_photos),
    "explanation": (DESKTOP, "?id={id}", explain),
    "options": (DESKTOP, "?id={id}", options),
    "comparison": (DESKTOP, "?id={id}&with=cosine", None),
    "photos": (DESKTOP, "?view=photos", None),
    "search": (DESKTOP, "", type_name),
    "map": (DESKTOP, "?view=map", lambda page: page.wait_for_timeout(1500)),
    "map-phone": (PHONE, "?view=map", lambda page: page.wait_for_timeout(1500)),
    "albums": (DESKTOP, "?view=albums", None),
    "alike": (DESKTOP, "?view=alike", None),
    "check": (DESKTOP, "?view=check", None),
    "figures": (DESKTOP, "?view=figures", None),
}


def main(folder: Path) -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-headless-shell")
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as playwright:
        run = Run(Path(temporary) / folder.name)
        shutil.copytree(folder, run.folder, ignore=shutil.ignore_patterns("feedback*", "*.lock"))
        images = Searcher(run).images
        number = images[len(images) * 900 // 2470].id  # any one
        with closing(socket.create_server(("127.0.0.1", 0))) as listening:
            server = uvicorn.Server(uvicorn.Config(create_app(run), log_level="critical", ws="none"))
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
            thread.start()
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
            FOLDER.mkdir(exist_ok=True)
            make_overview(Searcher(run))
            for name, (look, address, act) in STATES.items():
                context = browser.new_context(base_url=f"http://127.0.0.1:{listening.getsockname()[1]}", **look)
                page = context.new_page()
                page.goto(address.format(id=number), wait_until="networkidle")
                if act is not None:
                    act(page)
                    page.wait_for_load_state("networkidle")
                page.wait_for_timeout(500)
                page.screenshot(path=FOLDER / f"{name}.jpg", type="jpeg", quality=72)
                context.close()
            browser.close()
            server.should_exit = True
            thread.join()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
