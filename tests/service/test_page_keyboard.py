"""Each flow of the page by keyboard alone, at the size of a desktop and of a phone."""

import re

import pytest

pytest.importorskip("playwright.sync_api", reason="the browser tests need playwright")

from playwright.sync_api import expect

from visterm.pipeline import Searcher
from visterm.plugins.judge.judgements import Judgements
from visterm.plugins.judge.tasks import draw_tasks

PHONE = {"viewport": {"width": 390, "height": 780}, "is_mobile": True, "has_touch": True}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("mapped"),
    pytest.mark.parametrize("page", [{}, PHONE], ids=["desktop", "phone"], indirect=True),
]
ENOUGH = 150  # presses of Tab: more controls than any page has


@pytest.fixture
def keys(page):
    """The page without pointer: `tab(locator)` goes on with Tab until it is there, `press(locator)` and Enter."""

    def tab(locator):
        locator.first.wait_for()
        for _ in range(ENOUGH):
            if locator.evaluate_all("nodes => nodes.includes(document.activeElement)"):
                return
            page.keyboard.press("Tab")
        raise AssertionError(f"not reached by Tab: {locator}")

    def press(locator, key="Enter"):
        tab(locator)
        page.keyboard.press(key)

    page.tab, page.press_at = tab, press
    return page


def button(page, name, exact=False):
    return page.get_by_role("button", name=name, exact=exact)


def search(page, text):
    page.keyboard.press("/")
    expect(page.box).to_be_focused()
    page.keyboard.type(text)
    page.keyboard.press("Enter")


def photo(page):
    """The photo that Tab leads to: one of a gallery."""
    return page.locator("#results a.open")


def test_search_examples_and_filters(keys, ids):
    keys.goto("")
    search(keys, f"id:{ids['pear/1.jpg']}")
    alone = keys.results()
    expect(photo(keys).first).to_be_focused()
    keys.keyboard.press("ArrowRight")
    keys.keyboard.press("p")
    expect(keys.locator(".examples li:not(.add)")).to_have_count(2)
    keys.tab(keys.get_by_role("slider", name="Weight of example 2"))
    for _ in range(15):
        keys.keyboard.press("ArrowLeft")
    expect(keys.locator(".examples li.minus")).to_have_count(1)
    keys.press_at(button(keys, "Remove example 2"))
    expect(keys.locator(".examples")).to_have_count(0)
    search(keys, "label:plum")
    chip = button(keys, "Remove filter: label: plum")
    expect(keys.locator("#end")).to_have_text("All 19 results shown.")
    keys.press_at(chip)
    expect(chip).to_have_count(0)
    keys.wait_until(f"document.querySelector('#results [data-id]')?.dataset.id === '{alone[0]}'")


def test_a_file_is_chosen(keys, shown, ids):
    keys.goto("")
    with keys.expect_file_chooser() as chooser:
        keys.press_at(button(keys, "Choose an image"))
    chooser.value.set_files(Searcher(shown).root / "pear/3.jpg")
    assert ids["pear/3.jpg"] in keys.results()
    assert "upload=" in keys.url


def test_a_region(keys, ids):
    keys.ask(ids["pear/1.jpg"])
    keys.press_at(button(keys, "Search a region"))
    frame = keys.locator(".frame")
    keys.tab(frame)
    before = frame.bounding_box()
    for _ in range(4):
        keys.keyboard.press("Shift+ArrowLeft")
    keys.keyboard.press("ArrowRight")
    after = frame.bounding_box()
    assert after["width"] < before["width"]
    assert after["x"] > before["x"]
    keys.press_at(button(keys, "Search this region"))
    keys.wait_until("location.search.includes('region=')")
    keys.press_at(button(keys, "Search the whole image"))
    keys.wait_until("!location.search.includes('region=')")


def test_the_viewer_and_an_explanation(keys, ids):
    keys.ask(ids["pear/1.jpg"])
    keys.press_at(photo(keys))
    viewer = keys.locator("#viewer")
    title = viewer.locator("#viewer-title")
    expect(viewer).to_be_visible()
    first = title.text_content()
    keys.keyboard.press("ArrowRight")
    expect(title).not_to_have_text(first)
    keys.keyboard.press("e")
    expect(viewer.locator(".explanation .where")).to_have_text(re.compile("^The score (comes|is)"))
    expect(viewer.locator(".explanation table")).to_be_hidden()
    keys.press_at(viewer.get_by_text("Numbers"))
    expect(viewer.locator(".explanation table")).to_be_visible()
    keys.tab(viewer.locator("tr[data-pairs]").first)
    expect(viewer.locator(".region.on")).to_have_count(2)
    keys.keyboard.press("e")
    keys.press_at(viewer.get_by_role("button", name="Compare with query"))
    expect(viewer.locator(".pane")).to_have_count(2)
    keys.keyboard.press("Escape")
    expect(viewer).to_be_hidden()
    expect(keys.tile(1).locator("a.open")).to_be_focused()


def test_marks_teach_and_can_be_undone(keys, serving, own_shown, ids):
    with serving(own_shown) as client:
        keys.goto(f"{client.base_url}/?id={ids['fig/2.jpg']}")
        keys.tab(photo(keys))
        for key in "aaxxaa":
            keys.keyboard.press(key)
            keys.keyboard.press("ArrowRight")
        expect(keys.locator("#marks")).to_contain_text("4 relevant, 2 not relevant")
        keys.keyboard.press("Backspace")
        expect(keys.locator("#marks")).to_contain_text("3 relevant, 2 not relevant")
        expect(keys.locator("#marks .status")).to_have_text("Saved")
        keys.press_at(button(keys, "Update ranking"))
        note = keys.locator("#notes .note")
        expect(note).to_contain_text(re.compile(r"5 marks \(3 relevant, 2 not relevant\)|kept"))


def test_several_are_selected_exported_and_removed(keys, serving, own_shown, ids):
    with serving(own_shown) as client:
        keys.goto(f"{client.base_url}/?id={ids['fig/2.jpg']}")
        expect(keys.locator("#end")).to_have_text("All 75 results shown.")
        keys.tab(photo(keys))
        keys.keyboard.press(" ")
        keys.keyboard.press("Shift+ArrowRight")
        bar = keys.locator("#selection")
        expect(bar).to_contain_text("2 photos selected")
        with keys.expect_download():
            keys.press_at(bar.get_by_role("button", name="Export CSV"))
        keys.press_at(bar.get_by_role("button", name="Remove"))
        dialog = keys.locator("#confirm")
        keys.press_at(dialog.get_by_role("button", name="Remove 2 photos"))
        expect(keys.locator("#end")).to_have_text("All 73 results shown.")
        keys.press_at(keys.locator(".toast").get_by_role("button", name="Undo"))
        expect(keys.locator("#end")).to_have_text("All 75 results shown.")


def test_two_learners_side_by_side_and_photos_of_another_size(keys, ids):
    keys.ask(ids["pear/1.jpg"])
    keys.press_at(keys.locator("#options > summary"))
    height = keys.tile(0).bounding_box()["height"]
    keys.tab(keys.get_by_label("Photo size"))
    for _ in range(20):
        keys.keyboard.press("ArrowLeft")
    keys.wait_until(f"document.querySelector('#results .tile').getBoundingClientRect().height < {height}")
    keys.press_at(keys.locator("#options details summary"))
    keys.tab(keys.get_by_label("Compare with"))
    keys.keyboard.type("Pl")  # Plain look
    expect(keys.locator("#compare")).to_be_visible()


def test_home_leads_everywhere(keys):
    keys.goto("")
    keys.press_at(keys.get_by_role("link", name="Photos that look alike"))
    keys.press_at(keys.get_by_role("radio"), "ArrowRight")
    keys.press_at(button(keys, "Keep one, remove 2"))
    expect(keys.get_by_role("dialog")).to_be_visible()
    keys.keyboard.press("Escape")
    expect(keys.get_by_role("dialog")).to_be_hidden()
    keys.press_at(keys.get_by_role("link", name="visterm, start page"))
    keys.press_at(keys.get_by_role("link", name="Check these labels"))
    expect(keys.locator("#check")).to_contain_text("plum? 90 % of the nearest photos are pear.")
    keys.press_at(keys.get_by_role("navigation", name="Pages").get_by_role("link", name="Albums"))
    keys.tab(keys.get_by_role("searchbox", name="Filter labels"))
    keys.keyboard.type("fi")
    expect(keys.locator("#albums .album")).to_have_count(1)
    keys.press_at(keys.locator("#albums .album"))
    keys.press_at(keys.locator("#album .tile a.open"))
    expect(keys.get_by_role("dialog")).to_be_visible()
    keys.keyboard.press("s")
    assert keys.results()


def test_the_map(keys):
    keys.goto("?view=map")
    keys.press_at(keys.locator(".maplegend button", has_text="plum"))
    keys.wait_until("location.search.includes('at=')")
    keys.tab(keys.get_by_role("application", name=re.compile("Map of 76 photos")))
    keys.keyboard.press("0")
    keys.wait_until("!location.search.includes('at=')")
    for _ in range(4):
        keys.keyboard.press("+")
    keys.keyboard.press("ArrowLeft")
    keys.wait_until("location.search.includes('at=')")
    keys.keyboard.press("Enter")
    assert keys.results()


def test_figures_lead_to_queries(keys):
    keys.goto("?view=figures")
    keys.press_at(keys.locator("#figures a[href*='id=']"))
    assert keys.results()


def test_a_judge_decides(keys, serving, own_shown):
    tasks = draw_tasks(Searcher(own_shown), "oasis", n_queries=1, k=2, n_random=1)
    Judgements(own_shown.folder / "judgements.sqlite").create(tasks, learner="oasis", version="0")
    with serving(own_shown) as client:
        keys.goto(f"{client.base_url}/judge")
        keys.tab(keys.get_by_label("Your name"))
        keys.keyboard.type("Ada")
        keys.press_at(button(keys, "Start"))
        expect(keys.locator(".count")).to_have_text("0 / 3")
        for i, key in enumerate("ax", start=1):
            keys.keyboard.press(key)
            expect(keys.locator(".count")).to_have_text(f"{i} / 3")
        keys.press_at(button(keys, "Cannot say"))
        expect(keys.get_by_role("heading", name="Done. Thank you!")).to_be_visible()
