"""The first screen: nothing on it jumps, it shows photos, few requests bring it, and what it says is there at once."""

import re
import time

import pytest

pytest.importorskip("playwright.sync_api", reason="the browser tests need playwright")

from playwright.sync_api import expect

from benchmarks.first_screen import LOOK
from visterm.service import routes_pages

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("mapped")]
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
DESKTOP = {"viewport": {"width": 1280, "height": 800}}
BOTH = pytest.mark.parametrize("page", [DESKTOP, PHONE], ids=["desktop", "phone"], indirect=True)
PATIENCE = 120  # seconds
LONG_PATIENCE = 600  # of what is made at low priority, which waits for all else that the machine does
MAX_SHIFT = 0.1  # what counts as good: https://web.dev/articles/cls
# Kept from the first moment on; what follows a click or a key within half a second is meant to move.
OBSERVE = """
    window.shift = 0;
    new PerformanceObserver((list) => {
        for (const { value, hadRecentInput } of list.getEntries()) if (!hadRecentInput) window.shift += value;
    }).observe({ type: "layout-shift", buffered: true });
"""


def shift(page):
    """How much of the page moved, and how far, after all is there."""
    page.wait_for_load_state("networkidle")
    page.pictures()
    page.wait_for_timeout(200)  # for the observer
    return page.evaluate("window.shift")


@BOTH
@pytest.mark.parametrize("late", ["/api/(home|map/points)", "/api/images|/search[?]"])
def test_nothing_jumps_on_the_first_page_and_among_results(page, ids, late):
    page.add_init_script(OBSERVE)
    page.route(re.compile(late), lambda route: (page.wait_for_timeout(500), route.continue_()))
    page.goto("")
    expect(page.locator("#samples .tile").first).to_be_visible()
    assert shift(page) < MAX_SHIFT
    page.ask(ids["plum/2.jpg"])
    assert shift(page) < MAX_SHIFT
    page.locator("#main").evaluate("(main) => main.prepend(document.createElement('textarea'))")
    page.locator("#main textarea").evaluate("(late) => (late.style.height = '400px')")
    page.wait_until(f"window.shift > {MAX_SHIFT}")  # it is measured


def expect_photos(page, selector, share):
    """Wait until this share of the pixels of a canvas is drawn, with many colours: photos, not dots."""
    deadline = time.monotonic() + PATIENCE
    while (seen := wall(page, selector))["drawn"] <= share or seen["colors"] <= 500:
        assert time.monotonic() < deadline, seen
        page.wait_for_timeout(50)


def wall(page, selector):
    """The share of the pixels of a canvas that are drawn, and how many colours there are among some of them."""
    return page.locator(selector).evaluate(
        """(canvas) => {
            const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            let drawn = 0;
            const colors = new Set();
            for (let i = 0; i < data.length; i += 4) {
                drawn += data[i + 3] > 0;
                if (i % 400 === 0) colors.add((data[i] << 16) + (data[i + 1] << 8) + data[i + 2]);
            }
            return { drawn: (4 * drawn) / data.length, colors: colors.size };
        }"""
    )


@BOTH
def test_the_first_screen_shows_photos_and_what_can_be_asked(page):
    page.goto("")
    canvas = page.locator("#home canvas")
    expect(canvas).to_be_visible()
    expect_photos(page, "#home canvas", 0.9)
    box = canvas.bounding_box()
    assert box["y"] + box["height"] < page.viewport_size["height"]
    expect(page.locator(".drop")).to_contain_text("a label, a file name or an id")
    assert page.violations() == []


def test_what_becomes_known_appears_without_loading_the_page_again(page, site):
    home = site.get("/api/home").json()
    known = {key: home["map"][key] for key in ("ready", "version", "images", "n_alike", "n_check")}
    home["map"] |= {"ready": False, "making": False, "current": False, "phase": None, "share": 0.0}
    home["map"] |= {"version": None, "images": 0, "n_alike": None, "n_check": None}
    page.clock.install()
    page.route("**/api/home", lambda route: route.fulfill(json=home))
    page.route("**/api/map", lambda route: route.fulfill(json=home["map"]))
    page.goto("")
    cards = page.locator("#home .ways")
    expect(cards).to_contain_text("The photos in rows; no map yet")
    expect_photos(page, "#home canvas", 0.9)  # before the clock is moved on: a request that takes long is given up
    for _ in range(12):  # on a busy machine it takes a while until the service begins
        with page.expect_response("**/api/map"):
            page.clock.fast_forward(10_000)
    home["map"] |= {"making": True, "phase": "judging", "share": 0.3}
    page.clock.fast_forward(10_000)
    expect_photos(page, "#home canvas", 0.9)
    expect(cards.get_by_role("progressbar")).to_be_visible()
    expect(cards.locator("li", has_text="Check these labels")).to_contain_text("Looking for them")
    assert page.violations() == []
    home["map"] |= {"share": 0.6, "n_check": known["n_check"], "version": "2"}
    expect(cards.locator("li", has_text="Check these labels")).to_contain_text("1 label is probably wrong")
    expect(cards.locator("li", has_text="look alike")).to_contain_text("Looking for them")
    home["map"] |= known | {"making": False, "current": True}
    expect(cards).to_contain_text("76 photos, the similar ones together")
    expect(cards.get_by_role("progressbar")).to_have_count(0)


def test_pages_that_need_the_overview_show_that_the_service_begins_with_it(page, site):
    state = site.get("/api/map").json() | {"ready": False, "current": False, "n_alike": None, "n_check": None}
    page.clock.install()
    page.route("**/api/map", lambda route: route.fulfill(json=state))
    for view in ("check", "alike", "map"):
        state["making"] = False
        page.goto(f"?view={view}")
        expect(page.get_by_role("button", name="Look now")).to_be_visible()
        state["making"] = True
        page.clock.fast_forward(10_000)
        expect(page.locator("main").get_by_role("progressbar")).to_be_visible()


@BOTH
def test_the_map_is_a_wall_of_photos_at_every_zoom(page):
    page.goto("?view=map")
    canvas = page.get_by_role("application")
    expect(canvas).to_be_visible()
    for _ in range(4):
        expect_photos(page, ".mapbox canvas", 0.88)
        canvas.press("+")
        page.wait_for_timeout(350)  # it moves
    assert page.violations() == []


NARROW = PHONE | {"viewport": {"width": 320, "height": 640}, "color_scheme": "dark"}


@pytest.mark.parametrize("page", [PHONE, NARROW], ids=["phone", "narrow"], indirect=True)
def test_on_a_phone_marks_and_search_are_one_tap_below_the_photo(page, ids):
    page.ask(ids["plum/2.jpg"])
    page.tile(1).locator("a.open").tap()
    viewer, bar = page.get_by_role("dialog"), page.get_by_role("group", name="This photo")
    expect(bar.get_by_role("button")).to_have_count(3)
    photo = viewer.locator(".view").bounding_box()
    for button in bar.get_by_role("button").all():
        box = button.bounding_box()
        assert min(box["width"], box["height"]) >= 44
        assert box["y"] >= photo["y"] + photo["height"]
        assert box["x"] + box["width"] <= page.viewport_size["width"]
    assert page.violations() == []
    for name, other in (("Relevant", "Not relevant"), ("Not relevant", "Relevant")):
        bar.get_by_role("button", name=name, exact=True).tap()
        expect(bar.get_by_role("button", name=name, exact=True)).to_have_attribute("aria-pressed", "true")
        expect(bar.get_by_role("button", name=other, exact=True)).to_have_attribute("aria-pressed", "false")
    bar.get_by_role("button", name="Not relevant").tap()  # takes the mark back
    expect(bar.get_by_role("button", name="Not relevant")).to_have_attribute("aria-pressed", "false")
    shown = int(re.search(r"open=(\d+)", page.url)[1])
    bar.get_by_role("button", name="Search with this").tap()
    expect(viewer).to_be_hidden()
    page.wait_until(f"location.search.includes('id={shown}')")


@pytest.mark.parametrize("page", [PHONE], indirect=True)
def test_on_a_phone_suggestions_are_as_wide_as_the_page(page, ids):
    page.goto("")
    box = page.get_by_role("combobox", name="Search by photo")
    box.fill("pear")
    suggestions = page.get_by_role("listbox", name="Suggestions")
    expect(suggestions.get_by_role("option").first).to_be_visible()
    assert suggestions.bounding_box()["width"] >= 360
    assert suggestions.bounding_box()["y"] < 80, "right below the field"
    label = suggestions.get_by_role("option").first.locator(".quiet")
    assert label.evaluate("(node) => node.scrollWidth <= node.clientWidth"), "the number is whole"
    box.fill("xylophone")
    page.keyboard.press("Enter")
    words = page.locator(".toast")
    expect(words).to_contain_text("Nothing here is called")
    assert words.locator("button").bounding_box()["y"] > words.bounding_box()["y"] + 40, "below the words"


def test_on_a_wide_screen_the_marks_are_at_the_side(page, ids):
    page.ask(ids["plum/2.jpg"])
    page.tile(1).locator("a.open").click()
    expect(page.get_by_role("dialog").get_by_role("button", name="Relevant", exact=True)).to_have_count(1)
    expect(page.locator(".taps")).to_be_hidden()


@pytest.fixture
def bundled_site(bundle, site):
    """Address of the site, with the bundle of a wheel."""
    if bundle is None:
        # Users need no node: a wheel made without it carries the modules, which all tests use then.
        pytest.skip("no esbuild to bundle the page; `make check` installs it where npm is there")
    return str(site.base_url)


class Loads:
    """What a page loads over the network that is no picture: kilobytes, as they are sent, by address."""

    def __init__(self, page):
        self._kinds, self._addresses, self.sent, self.kept = {}, {}, {}, set()
        network = page.context.new_cdp_session(page)
        network.on("Network.requestWillBeSent", self._asked)
        network.on("Network.responseReceived", self._answered)
        network.on("Network.loadingFinished", self._finished)
        network.send("Network.enable")

    def _asked(self, event):
        self._addresses[event["requestId"]] = event["request"]["url"]

    def _answered(self, event):
        self._kinds[event["requestId"]] = event["type"]
        if event["response"].get("fromDiskCache"):
            self.kept.add(self._addresses[event["requestId"]])

    def _finished(self, event):
        number = event["requestId"]
        if self._kinds.get(number) != "Image" and not self._addresses[number].startswith("data:"):
            self.sent[self._addresses[number]] = event["encodedDataLength"] / 1000


@BOTH
def test_ten_requests_and_110_kilobytes_bring_the_first_page(page, bundled_site):
    loads = Loads(page)
    page.goto(bundled_site)
    expect(page.locator("#samples .tile").first).to_be_visible()
    page.wait_for_load_state("networkidle")
    assert 5 <= len(loads.sent) <= 10, loads.sent
    assert 40 < sum(loads.sent.values()) < 110, loads.sent
    code = {address for address in loads.sent if "/static/" in address}
    assert sorted(address.rsplit(".")[-1] for address in code) == ["css", "css", "js", "js"]
    page.goto("about:blank")
    page.goto(bundled_site)
    expect(page.locator("#samples .tile").first).to_be_visible()
    page.wait_for_load_state("networkidle")
    assert loads.kept >= code  # they are not even asked for


def test_both_pages_share_what_both_load_and_are_small(bundle):
    if bundle is None:
        pytest.skip("no esbuild to bundle the page; `make check` installs it where npm is there")
    sizes = {file.name: file.stat().st_size for file in bundle.glob("*.gz")}
    assert sum(sizes.values()) <= 85_000, sizes
    heads = {page: (bundle / f"{page}.html").read_text() for page in ("index", "judge")}
    of_page = {page: {name for name in sizes if name.removesuffix(".gz") in head} for page, head in heads.items()}
    assert {name.partition("-")[0] for name in of_page["index"] & of_page["judge"]} == {"shared"}
    for page, head in heads.items():
        assert len(of_page[page]) == 4
        assert re.search(r'modulepreload" href="static/shared-\w+\.js">\n<script type="module"', head)  # at once
    assert sum(sizes[name] for name in of_page["judge"]) <= 16_000, sizes


def test_the_modules_of_a_checkout_are_the_page(page, shown, serving, monkeypatch, tmp_path, ids):
    """Other tests have the bundle, where it can be made."""
    monkeypatch.setattr(routes_pages, "BUNDLE", tmp_path)
    loads = Loads(page)
    with serving(shown) as client:
        page.goto(f"{client.base_url}/?id={ids['plum/2.jpg']}")
        expect(page.locator("#results .rank").first).to_be_visible()
        assert f"{client.base_url}/static/search/results.js" in loads.sent
        page.goto(f"{client.base_url}/?view=map")
        expect(page.get_by_role("application")).to_be_visible()
        page.goto(f"{client.base_url}/judge")
        expect(page.locator("#stage")).not_to_be_empty()


@pytest.fixture
def pear(page, own, serving):
    """The viewer over a pear among results, which have been asked for with the label plum before; the pear's id."""
    with serving(own) as client:
        # A service on another machine, or a run with very many images: half a second until an edit is there.
        page.route("**/api/labels", lambda route: (page.wait_for_timeout(500), route.continue_()))
        images = {image["path"]: image["id"] for image in client.get("/api/images").json()}
        page.goto(f"{client.base_url}/?id={images['fig/1.jpg']}&label=plum")
        assert len(page.results()) == 6
        page.get_by_role("button", name="Remove filter: label: plum").click()
        page.wait_until("document.querySelectorAll('#results [data-id]').length > 6")
        page.locator(f"#results [data-id='{images['pear/3.jpg']}'] a.open").click()
        expect(page.get_by_role("dialog").get_by_label("Add a label")).to_be_visible()
        yield images["pear/3.jpg"]


# Milliseconds from sending a label to the frame that shows it.
SHOWN_AFTER = """(label) => new Promise((done) => {
    const labels = () => [...document.querySelectorAll("#viewer .labels li bdi")].map((node) => node.textContent);
    const start = performance.now();
    const look = () => labels().includes(label) ? done(performance.now() - start) : requestAnimationFrame(look);
    const field = document.querySelector("#viewer .label-field input");
    field.value = label;
    field.form.requestSubmit();
    requestAnimationFrame(look);
})"""


def test_a_label_is_seen_at_once_and_the_search_right_after_uses_it(page, pear):
    # The fastest of three, as other programs may have the machine just then; without that each takes half a second.
    assert min(page.evaluate(SHOWN_AFTER, label) for label in ("fig", "ripe", "plum")) < 200
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.filter_by("plum")
    expect(page.get_by_role("button", name="Remove filter: label: plum")).to_be_visible()
    results = page.results()
    assert len(results) == 7
    assert pear in results


def test_a_label_that_is_not_kept_goes_again_with_words(page, pear):
    page.unroute("**/api/labels")
    page.refusals, held = 1, []
    page.route("**/api/labels", lambda route: held.append(route))
    labels = page.get_by_role("dialog").locator(".labels li bdi")
    page.evaluate(SHOWN_AFTER, "plum")
    while not held:
        page.wait_for_timeout(10)
    page.refuse(held[0], "the disk is full; nothing was changed", 507)
    expect(page.locator(".toast")).to_contain_text("The label was not changed: the disk is full")
    expect(labels).to_have_text(["pear"])


@pytest.mark.timeout(4 * LONG_PATIENCE)
def test_photos_come_first_then_the_queue_and_the_map_without_loading_the_page_again(page, own_shown, serving):
    """A collection that nothing is known of yet, and the service's own process."""
    page.add_init_script(LOOK)
    with serving(own_shown, settings={"overview": True}) as client:
        page.goto(str(client.base_url))
        opened = page.evaluate("performance.timeOrigin")
        for part in ("queue", "alike", "map"):  # each by itself: they are made at low priority
            page.wait_until(f"'{part}' in seen", LONG_PATIENCE)
        seen = page.evaluate("seen")
        assert page.evaluate("performance.timeOrigin") == opened
    assert max(seen["photos"], seen["progress"]) < seen["queue"] <= seen["alike"] <= seen["map"], seen
