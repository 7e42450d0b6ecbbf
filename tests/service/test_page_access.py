"""The page for everybody: no violation that axe-core knows, at any size and zoom; keys alone; little script."""

import gzip
import re
import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("playwright.sync_api", reason="the browser tests need playwright")

from playwright.sync_api import expect

from visterm.service import app as service_app

pytestmark = pytest.mark.slow

WEB = Path(service_app.__file__).parent / "web"
LOOKS = {  # the last one is 1280 x 1024 at 400 %
    "desktop": {"viewport": {"width": 1440, "height": 900}, "color_scheme": "light"},
    "phone": {"viewport": {"width": 390, "height": 780}, "color_scheme": "dark", "is_mobile": True, "has_touch": True},
    "zoom": {"viewport": {"width": 320, "height": 256}, "color_scheme": "light"},
}
MAX_BYTES = 95_000  # compressed, without comments and indentation; what is sent: test_both_pages_share_...
MAP = ("map.js", "mapdata.js", "wall.js")  # which stand in place of a library for maps


@pytest.mark.parametrize("page", LOOKS.values(), ids=LOOKS, indirect=True)
def test_no_state_violates_what_axe_knows_and_none_is_wider_than_the_screen(page, ids):
    number, other = ids["plum/2.jpg"], ids["plum/3.jpg"]
    faults = {}
    width = page.viewport_size["width"]

    def check(state):
        page.pictures()
        if violations := page.violations():
            faults[state] = violations
        if (wide := page.evaluate("document.documentElement.scrollWidth")) > width:
            faults[f"{state}, width"] = wide

    for state, (address, drawn) in {
        "start": ("", "#samples .gallery"),
        "photos": ("?view=photos", "#photos .tile"),
        "albums": ("?view=albums", ".album"),
        "concept": ("?view=concept&label=plum", "#concept .asked img"),
        "album": ("?view=album&label=plum", "#album .tile"),
        "comparison": (f"?id={number}&with=cosine", ".versus tbody tr"),
        "metrics": (f"?id={number}&learner=musl", "#tabs button"),
        "viewer": (f"?id={number}&open={other}", "#viewer .pane img"),
        "explanation": (f"?id={number}&open={other}&explain=1", "#viewer .explanation .where"),
        "figures": ("?view=figures", ".line-chart"),
        "unknown": ("?view=nothing", "#unknown h1"),
        "results": (f"?id={number}", "#results .tile"),
    }.items():
        page.goto(address)
        page.locator(drawn).first.wait_for(state="attached")
        check(state)
        if state == "album":
            page.get_by_role("button", name="Rename").click()
            check("renaming")
            page.keyboard.press("Escape")
    page.tile(0).locator("a.open").focus()
    page.keyboard.press("a")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("x")
    expect(page.locator("#marks .status")).to_have_text("Saved")
    check("marks")
    page.keyboard.press(" ")
    check("selection")
    page.locator("#selection").get_by_role("button", name="Remove").click()
    check("confirmation")
    page.keyboard.press("Escape")
    page.locator("#selection").get_by_role("button", name="Clear selection").click()
    page.options()
    page.locator("#options .info").first.click()
    check("options")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Clear marks").click()
    expect(page.locator("#marks .tray li")).to_have_count(0)
    assert faults == {}


@pytest.mark.parametrize(
    "page",
    [
        {"viewport": {"width": width, "height": 800}, "color_scheme": scheme}
        for width in (320, 1440)
        for scheme in ("light", "dark")
    ],
    indirect=True,
)
def test_an_explanation_violates_nothing_folded_and_open(page, ids):
    page.goto(f"?id={ids['plum/2.jpg']}&open={ids['plum/3.jpg']}&explain=1")
    expect(page.locator("#viewer .explanation .where")).to_be_visible()
    assert page.violations() == []
    page.locator("#viewer .numbers summary").click()
    page.locator("#viewer tr[data-pairs]").first.focus()
    expect(page.locator("#viewer .region.on")).to_have_count(2)
    assert page.violations() == []
    stage = page.locator("#viewer .stage")
    assert stage.evaluate("(node) => node.scrollWidth <= node.clientWidth")


@pytest.mark.parametrize("page", [LOOKS["zoom"]], indirect=True)
def test_at_400_percent_nothing_covers_the_results(page, ids):
    page.ask(ids["plum/2.jpg"])
    page.tile(0).locator("a.open").focus()
    page.keyboard.press("a")
    expect(page.locator("#marks .status")).to_have_text("Saved")
    page.locator("#toasts").evaluate("(node) => node.replaceChildren()")  # they pass
    page.tile(0).scroll_into_view_if_needed()
    covered = """() => {
        const { x, y, width, height } = document.querySelector('#results .tile:focus-within').getBoundingClientRect();
        const [cx, cy] = [x + width / 2, Math.min(y + height / 2, innerHeight - 5)];
        return !document.elementFromPoint(cx, cy)?.closest('.tile'); }"""
    assert not page.evaluate(covered)
    page.keyboard.press("Backspace")
    expect(page.locator("#marks .tray li")).to_have_count(0)


def test_the_page_has_no_frame_around_it_after_a_search(page, ids):
    page.goto("")
    page.locator("#samples a.open").first.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#results .tile").first).to_be_visible()
    page.evaluate("document.querySelector('#main').focus()")
    assert page.locator("#main").evaluate("(main) => getComputedStyle(main).outlineStyle") == "none"


def test_names_of_buttons_begin_with_what_they_show(page, ids):
    page.ask(ids["plum/2.jpg"], f"&open={ids['plum/3.jpg']}")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    page.options()
    wrong = page.evaluate(
        """() => [...document.querySelectorAll("button, a, summary")].filter((node) => {
            const parts = [...node.childNodes];
            const shown = parts.filter((part) => part.nodeType === 3 || !part.matches("[aria-hidden], kbd, .over"))
                .map((part) => part.textContent).join("").trim();
            const name = node.ariaLabel?.toLowerCase();
            return name && shown.length > 1 && !name.startsWith(shown.toLowerCase());
        }).map((node) => node.outerHTML)"""
    )
    assert wrong == []


def test_every_control_has_a_name_and_results_are_an_ordered_list(page, ids):
    page.ask(ids["plum/2.jpg"], f"&open={ids['plum/3.jpg']}")
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("button, select, input:not([hidden]), a")]
            .filter((node) => !(node.textContent.trim() || node.ariaLabel || node.labels?.length
                || node.querySelector("img[alt]:not([alt=''])"))).map((node) => node.outerHTML)"""
    )
    assert unnamed == []
    assert page.locator("#results > ol > li").count() > 10
    assert page.locator("#results img:not([alt]), #results img[alt='']").count() == 0


def test_an_address_that_does_not_exist_is_a_page_for_people_and_json_for_programs(page):
    page.refusals = 1
    page.goto("there/is/no/such/page")
    expect(page.get_by_role("heading", level=1)).to_have_text("There is no such page")
    page.get_by_role("link", name="Go to the start page").click()
    expect(page.locator("#samples .tile").first).to_be_visible()
    answer = page.request.get("there/is/none")
    assert (answer.status, answer.json()["ok"]) == (404, False)


@pytest.mark.parametrize("page", [LOOKS["phone"]], indirect=True)
def test_on_a_phone_fingers_find_their_targets(page, ids):
    page.ask(ids["plum/2.jpg"])
    page.locator("#options > summary").tap()
    for part in page.locator("button:visible:not(.info), summary:visible, select:visible").all():
        box = part.bounding_box()
        assert box["height"] >= 44, part.evaluate("(node) => node.outerHTML")
    page.keyboard.press("Escape")
    page.tile(1).locator("a.open").tap()
    viewer = page.get_by_role("dialog")
    expect(viewer.locator(".counter")).to_have_text("2 / 75")
    touch = page.context.new_cdp_session(page)

    def swipe(x, y, to_x, to_y):
        for kind, points in (
            ("touchStart", [{"x": x, "y": y}]),
            ("touchMove", [{"x": to_x, "y": to_y}]),
            ("touchEnd", []),
        ):
            touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    swipe(300, 300, 80, 310)
    expect(viewer.locator(".counter")).to_have_text("3 / 75")
    swipe(80, 300, 300, 310)
    expect(viewer.locator(".counter")).to_have_text("2 / 75")
    swipe(200, 200, 210, 420)
    expect(viewer).to_be_hidden()


def test_all_script_and_style_is_small():
    files = [file for file in (*WEB.rglob("*.js"), *WEB.rglob("*.css")) if file.name not in MAP]
    text = "\n".join(file.read_text() for file in sorted(files))
    code = re.sub(r"/\*\*.*?\*/|^\s*//.*?$|^\s+", "", text, flags=re.DOTALL | re.MULTILINE)
    assert 50_000 < len(gzip.compress(code.encode())) <= MAX_BYTES


def test_scripts_and_styles_are_bundled_without_a_warning(repository, tmp_path):
    node = shutil.which("node")
    if node is None or not (repository / "node_modules/esbuild").is_dir():
        pytest.skip("needs node and esbuild")
    done = subprocess.run([node, repository / "bundle.js", WEB, tmp_path], check=True, capture_output=True, text=True)
    assert done.stderr == ""


def test_the_viewer_zooms_compares_and_hides_its_details_by_keys(page, ids):
    page.ask(ids["plum/2.jpg"])
    page.tile(4).locator("a.open").focus()
    page.keyboard.press("Enter")
    viewer = page.get_by_role("dialog")
    image = viewer.locator(".pane img")
    expect(image).to_be_visible()
    page.keyboard.press("+")
    expect(image).to_have_attribute("style", re.compile(r"scale\(1\.25\)"))
    page.keyboard.press("0")
    expect(image).not_to_have_attribute("style", re.compile("scale"))
    image.dblclick()
    expect(image).to_have_attribute("style", re.compile("scale"))
    page.keyboard.press("c")
    expect(viewer.locator(".pane")).to_have_count(2)
    expect(viewer.get_by_role("img", name=re.compile("^Query, "))).to_be_visible()
    page.keyboard.press("c")
    expect(viewer.locator(".pane")).to_have_count(1)
    expect(viewer.locator(".side")).to_be_visible()
    page.keyboard.press("i")
    expect(viewer.locator(".side")).to_be_hidden()
    page.keyboard.press("i")
    viewer.locator(".film button").nth(2).click()
    expect(viewer.locator(".counter")).to_have_text("3 / 75")
    page.keyboard.press("Escape")
    expect(page.tile(2).locator("a.open")).to_be_focused()
