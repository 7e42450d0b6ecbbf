"""The page in a real browser: search box, examples, regions, home, albums, map, figures; by keys, on a phone."""

import os
import re
from urllib.parse import parse_qs, urlsplit

import pytest

pytest.importorskip("playwright.sync_api", reason="the browser tests need playwright")

from playwright.sync_api import expect

from visterm.pipeline.config.loading import load_config
from visterm.pipeline.console import Console
from visterm.pipeline.stages.features import features as features_stage
from visterm.pipeline.store.run import Run

PHONE = {"viewport": {"width": 390, "height": 780}, "is_mobile": True, "has_touch": True, "color_scheme": "dark"}
BOTH = pytest.mark.parametrize("page", [{}, PHONE], ids=["desktop", "phone"], indirect=True)
RANK = "#results [data-id]"
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("mapped")]


def no_overflow(page):
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]


@BOTH
def test_a_label_is_typed_and_opens_its_album(page):
    page.goto("")
    page.keyboard.press("/")
    expect(page.box).to_be_focused()
    page.keyboard.type("plu")
    option = page.get_by_role("option", name=re.compile("^plum"))
    expect(page.get_by_role("option").first).to_contain_text("plum")  # no longer all labels
    page.keyboard.press("ArrowDown")
    expect(option).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("plum")
    expect(page.locator("#album .tile")).to_have_count(19)
    assert "view=album&label=plum" in page.url
    no_overflow(page)


def test_an_id_and_a_file_name_are_searched_with(page, ids):
    page.goto("")
    page.box.fill(f"id:{ids['pear/4.jpg']}")
    page.box.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("pear/4.jpg")
    page.box.fill("fig/7")
    page.box.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("fig/7.jpg")
    page.box.fill("nothing of this name")
    page.box.press("Enter")
    expect(page.locator(".toast")).to_contain_text("Nothing here is called")


def test_filters_are_typed_and_removed(page, ids):
    page.ask(ids["pear/1.jpg"])
    page.box.fill("label:plum")
    page.box.press("Enter")
    expect(page.get_by_role("button", name="Remove filter: label: plum")).to_be_visible()
    page.wait_until("document.querySelectorAll('#results [data-id]').length === 19")
    page.box.fill("label:fig")
    page.box.press("Enter")
    expect(page.get_by_role("button", name="Remove filter: label: fig")).to_be_visible()
    page.wait_until("document.querySelector('#results .tile')?.ariaSetSize === '38'")
    page.reload()
    page.wait_until("document.querySelector('#results .tile')?.ariaSetSize === '38'")
    page.get_by_role("button", name="Remove filter: label: fig").click()
    page.get_by_role("button", name="Remove filter: label: plum").click()
    page.box.fill("-label:pear")
    page.box.press("Enter")
    expect(page.get_by_role("button", name="Remove filter: -label: pear")).to_be_visible()
    expect(page.locator("#query")).to_contain_text("Searched 57 images")


def test_what_is_typed_is_not_said_to_be_unknown_where_the_server_did_not_answer(page):
    page.goto("")
    page.route("**/api/suggest?*", lambda route: route.fulfill(body="<html>"))
    page.box.fill("plum")
    page.box.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("Cannot read the server's response (status 200).")
    expect(page.locator(".toast")).to_have_count(0)


def test_a_list_that_could_not_be_read_on_shows_more_after_another_try(page):
    state = {"total": 180, "next": None, "same_as_labels": False}
    state["albums"] = [{"name": f"label {i}", "images": 1, "covers": []} for i in range(60)]
    page.route("**/api/albums?*", lambda route: route.fulfill(json=state))
    page.goto("?view=albums")
    more = page.locator("#albums button.more")
    expect(more).to_have_text("Show more")
    page.route("**/api/albums?*", lambda route: route.fulfill(body="<html>"), times=1)
    more.click()
    expect(more).to_have_text("Cannot read the server's response (status 200). Try again")
    more.click()
    expect(page.locator("#albums .albums")).to_have_count(2)
    expect(more).to_have_text("Show more")


def test_filters_that_no_other_photo_passes_are_named_as_the_reason(page, ids):
    page.goto(f"?id={ids['pear/1.jpg']}&after=2999")
    expect(page.locator("#results")).to_contain_text("No other photo passes these filters.")


def test_filters_removed_faster_than_they_are_drawn_stay_removed(page, ids):
    page.ask(ids["pear/1.jpg"], "&label=plum&label=fig")
    page.evaluate("[...document.querySelectorAll('#chips .chip')].forEach((chip) => chip.click())")
    expect(page.locator("#query")).to_contain_text("Searched 76 images")
    assert "label" not in page.url


def test_a_filter_pressed_while_the_filters_are_drawn_is_removed(page, ids):
    page.ask(ids["pear/1.jpg"], "&label=plum&label=fig")
    page.get_by_role("button", name="Remove filter: label: fig").hover()
    page.mouse.down()
    page.evaluate("history.replaceState({}, '', location.href.replace('plum', 'pear'))")
    page.evaluate("dispatchEvent(new PopStateEvent('popstate'))")
    expect(page.locator("#chips")).to_contain_text("pear")
    page.mouse.up()
    expect(page.locator("#query")).to_contain_text("Searched 19 images")
    assert page.locator("#chips .chip").count() == 1


@BOTH
def test_a_query_of_three_images_with_weights(page, ids):
    page.ask(ids["pear/1.jpg"])
    alone = page.results()
    page.get_by_role("button", name="Add an example").first.click()
    expect(page.box).to_be_focused()
    page.keyboard.type(f"id:{ids['plum/1.jpg']}")
    expect(page.get_by_role("option").first).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.locator(".examples li:not(.add)")).to_have_count(2)
    assert f"example=id%3A{ids['plum/1.jpg']}" in page.url
    page.get_by_role("slider", name="Weight of example 2").focus()
    for number in range(15):
        page.keyboard.press("ArrowLeft")
        page.wait_for_timeout(300 * (number == 4))  # it searches, and the slider is drawn again
    page.wait_until("location.search.includes('-0.5')")
    expect(page.locator(".examples li.minus")).to_have_count(1)
    expect(page.locator("#query h1")).to_contain_text("−")
    assert page.results() != alone
    no_overflow(page)
    page.reload()
    expect(page.locator(".examples output").nth(1)).to_have_text("−0.5")
    page.get_by_role("button", name="Remove example 2").click()
    expect(page.locator(".examples")).to_have_count(0)
    page.wait_until(f"document.querySelector('{RANK}')?.dataset.id === '{alone[0]}'")


def test_an_example_removed_just_after_its_weight_changed_stays_away(page, ids):
    page.goto(f"/?id={ids['pear/1.jpg']}&example=id:{ids['plum/1.jpg']}&example=id:{ids['fig/1.jpg']}")
    expect(page.locator(".examples li:not(.add)")).to_have_count(3)
    page.evaluate("""() => {
        for (const [name, value] of [["example 2", -0.5], ["example 3", 0.5]]) {
            const slider = document.querySelector(`[aria-label="Weight of ${name}"]`);
            slider.value = value;
            slider.dispatchEvent(new Event("change"));
        }
        document.querySelector('[aria-label="Remove example 2"]').click();
    }""")
    page.wait_until("location.search.includes('0.5')")  # a quarter of a second later
    assert f"example=id%3A{ids['fig/1.jpg']}%400.5" in page.url
    assert f"id%3A{ids['plum/1.jpg']}" not in page.url
    expect(page.locator(".examples li:not(.add)")).to_have_count(2)


def test_old_links_show_what_they_showed(page, ids):
    """Their names of parameters were the page's own."""
    more = f"label=plum&label=fig&{{}}=fig&{{}}=id:{ids['plum/1.jpg']}@-0.5&{{}}={{}}"
    page.ask(ids["pear/1.jpg"], "&" + more.format("not_label", "example", "exclude_duplicates", "true"))
    wanted = page.results()
    assert len(wanted) == 18
    page.ask(ids["pear/1.jpg"], "&" + more.format("not", "also", "unique", "1"))
    assert page.results() == wanted
    expect(page.locator(".examples li.minus")).to_have_count(1)
    for name in ("label: plum", "-label: fig", "exact duplicates hidden"):
        expect(page.get_by_role("button", name=f"Remove filter: {name}")).to_be_visible()
    page.goto("?view=check&only=plum")
    expect(page.get_by_role("heading", name="Check the label plum")).to_be_visible()
    page.goto("?view=check&label=plum")
    expect(page.get_by_role("heading", name="Check the label plum")).to_be_visible()


def test_keys_add_and_subtract_a_result(page, ids):
    page.ask(ids["pear/1.jpg"])
    page.locator("#results a").first.focus()
    page.keyboard.press("p")
    expect(page.locator(".examples li:not(.add)")).to_have_count(2)
    page.locator("#results a").first.focus()
    page.keyboard.press("m")
    expect(page.locator(".examples li.minus")).to_have_count(1)


@BOTH
def test_a_region_is_drawn_by_pointer_and_by_keys(page, ids):
    page.ask(ids["pear/1.jpg"])
    whole = page.results()
    page.get_by_role("button", name="Search a region").click()
    page.pictures()
    stage = page.locator(".draw").bounding_box()
    page.mouse.move(stage["x"] + 4, stage["y"] + 4)
    page.mouse.down()
    page.mouse.move(stage["x"] + stage["width"] / 2, stage["y"] + stage["height"] / 2, steps=3)
    page.mouse.up()
    frame = page.locator(".frame")
    expect(frame).to_be_focused()
    width = frame.bounding_box()["width"]
    page.keyboard.press("Shift+ArrowLeft")
    assert frame.bounding_box()["width"] < width
    page.keyboard.press("ArrowRight")
    page.get_by_role("button", name="Search this region").click()
    page.wait_until("location.search.includes('region=')")
    expect(page.locator(".examples .region")).to_be_attached()
    expect(page.locator("#results .rank").first).to_be_visible()
    no_overflow(page)
    page.get_by_role("button", name="Search the whole image").click()
    page.wait_until(
        f"!location.search.includes('region=') && document.querySelector('{RANK}')?.dataset.id === '{whole[0]}'"
    )


def test_an_address_is_refused_with_words_or_fetched_where_that_is_allowed(page, ids):
    page.goto("")
    paste = """(text) => {
        const data = new DataTransfer();
        data.setData("text/plain", text);
        const options = { clipboardData: data, bubbles: true, cancelable: true };
        document.body.dispatchEvent(new ClipboardEvent("paste", options));
    }"""
    page.evaluate(paste, "https://example.org/cat.jpg")
    expect(page.locator(".toast")).to_contain_text("does not fetch web addresses")
    run = page.request.get("api/run").json()
    run["limits"]["fetch_urls"] = 1
    page.route("**/api/run", lambda route: route.fulfill(json=run))
    upload = 64 * "a"
    page.route("**/api/fetch", lambda route: route.fulfill(json={"upload": upload, "name": "cat.jpg"}))
    [answer] = page.request.get(f"search?id={ids['pear/2.jpg']}&k=48").json()
    page.route("**/search?*", lambda route: route.fulfill(json=[answer]))
    page.refusals = 1  # the picture of the made-up upload
    page.reload()
    page.box.fill("https://example.org/cat.jpg")
    page.box.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("cat.jpg")


@BOTH
def test_home_shows_what_there_is_and_each_page_has_an_address(page):
    page.goto("")
    expect(page.locator("#home .album")).to_have_count(4)
    expect(page.locator("#home")).to_contain_text("76 photos, the similar ones together")
    no_overflow(page)
    page.get_by_role("link", name="Photos that look alike").click()
    expect(page.locator("#alike .group h2")).to_have_text(
        ["One picture in 3 photos", "One scene in 3 photos", "3 pictures look alike"]
    )
    expect(page.get_by_role("button", name="Keep one, remove 2")).to_be_visible()
    expect(page.locator("#alike .blank h2")).to_have_text("1 photo is blank")
    expect(page.locator("#alike .blank button")).to_have_count(1)  # hidden until one is chosen; no "Not alike"
    no_overflow(page)
    page.go_back()
    page.get_by_role("link", name="Check these labels").click()
    expect(page.locator("#check")).to_contain_text("plum? 90 % of the nearest photos are pear.")
    no_overflow(page)
    page.go_back()
    page.get_by_role("link", name="See all").click()
    expect(page.locator("#added .tile").first).to_have_attribute("aria-setsize", "76")
    page.goto("?view=albums")
    with page.expect_download() as download:
        page.get_by_role("link", name="Labels as CSV").click()
    assert download.value.suggested_filename == "labels.csv"
    no_overflow(page)
    page.get_by_role("searchbox", name="Filter labels").fill("fi")
    expect(page.locator("#albums .album")).to_have_count(1)
    page.locator("#albums .album").click()
    page.locator("#album .tile a.open").first.click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("s")
    expect(page.locator("#results .rank").first).to_be_visible()


def test_one_of_a_group_is_kept_after_a_question(page):
    sent, answered = [], {"n_images": 74, "changed": 2, "undo": "x", "version": "1", "behind": None}

    def answer(route):
        sent.append(route.request.post_data_json)
        route.fulfill(json=answered)

    page.route("**/api/images/remove", answer)
    page.goto("?view=alike")
    expect(page.locator("#alike .group").first.locator(".under").first).to_have_text(
        re.compile(r"^\s*Keep[^/]+\.jpg\d+\s×\s\d+")
    )
    kept = page.get_by_role("radio").nth(1)
    kept.check()
    number = int(kept.get_attribute("value"))
    page.get_by_role("button", name="Keep one, remove 2").click()
    expect(page.get_by_role("dialog").get_by_role("listitem")).to_have_count(2)
    expect(page.get_by_role("dialog").get_by_role("listitem").first).to_have_text(
        re.compile(r"^\S+\.jpg \d+\s×\s\d+, \d+\sKB, \d{4}-\d\d-\d\d")
    )
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    assert sent == []
    page.get_by_role("button", name="Keep one, remove 2").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(page.locator(".toast")).to_contain_text("2 photos removed from the collection.")
    expect(page.locator("#alike .head button").last).to_have_text("Undo: 2 photos removed")
    assert len(sent[0]["ids"]) == 2
    assert number not in sent[0]["ids"]
    expect(page.locator("#alike .group")).to_have_count(2)
    expect(page.locator("#alike .head .quiet")).to_have_text("2 groups")
    scene, alike = page.locator("#alike .group").first, page.locator("#alike .group").last
    expect(scene.get_by_role("button", name=re.compile("^Keep"))).to_have_count(0)  # nothing is chosen
    expect(scene).to_contain_text("Choose which to keep")
    for box in scene.get_by_role("checkbox", name="Keep").all():
        box.check()
    expect(scene.get_by_role("button", name=re.compile("^Keep"))).to_have_count(0)  # all are kept
    kept = scene.get_by_role("checkbox").nth(1)
    scene.get_by_role("checkbox").nth(2).uncheck()
    number = int(kept.get_attribute("value"))
    scene.get_by_role("checkbox").nth(0).uncheck()
    expect(scene.get_by_text("Choose which to keep")).to_be_hidden()
    scene.get_by_role("button", name="Keep 1, remove 2").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(page.locator("#alike .group")).to_have_count(1)
    assert len(sent[1]["ids"]) == 2
    assert number not in sent[1]["ids"]
    expect(alike.get_by_role("button", name="Remove")).to_have_count(0)  # nothing is chosen
    alike.get_by_role("checkbox").nth(2).check()
    alike.get_by_role("button", name="Remove 1").click()
    expect(page.get_by_role("dialog")).to_contain_text("Its file stays on disk.")
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(page.locator("#alike .group")).to_have_count(0)
    page.route("**/api/images/restore", lambda route: route.fulfill(json=answered))
    page.keyboard.press("Control+z")
    expect(page.locator(".toast")).to_have_text("2 photos restored.")  # it offers no second Undo
    assert len(sent[2]["ids"]) == 1


def test_more_groups_are_those_that_follow_after_some_have_left(page):
    known, images = page.request.get("api/alike").json(), page.request.get("api/images?limit=60").json()
    groups = [known["groups"][0] | {"n_images": 2, "images": images[i : i + 2]} for i in range(0, 50, 2)]

    def answer(route):
        offset = int(parse_qs(urlsplit(route.request.url).query)["offset"][0])
        route.fulfill(json=known | {"groups": groups[offset : offset + 20], "total": len(groups)})

    def take(route):
        del groups[0]
        route.fulfill(json={"last": None})

    page.route(re.compile(r"/api/alike\?"), answer)
    page.route("**/api/alike/different", take)
    page.goto("?view=alike")
    shown = page.locator("#alike .group")
    for left in (20, 19, 18):
        expect(shown).to_have_count(left)
        shown.first.get_by_role("button", name="Not the same", exact=True).click()
    expect(shown).to_have_count(17)
    page.get_by_role("button", name="Show more").click()
    expect(shown).to_have_count(22)
    expect(page.get_by_role("button", name="Show more")).to_be_hidden()
    expect(page.locator("#alike .head .quiet")).to_have_text("22 groups")


@BOTH
def test_what_is_not_the_same_is_said_once_and_undone_after_a_reload(page):
    page.goto("?view=alike")
    titles, undo = page.locator("#alike .group h2"), page.locator("#alike .head button").first
    expect(titles).to_have_text(["One picture in 3 photos", "One scene in 3 photos", "3 pictures look alike"])
    expect(undo).to_be_hidden()
    page.get_by_role("button", name="Not the same: ").nth(1).press("Enter")
    expect(titles.first).to_have_text("One picture in 2 photos")
    expect(page.locator("#main")).to_be_focused()
    no_overflow(page)
    page.get_by_role("button", name="Not the same scene", exact=True).click()
    expect(titles).to_have_text(["One picture in 2 photos", "3 pictures look alike"])
    page.get_by_role("button", name="Not alike", exact=True).click()
    expect(titles).to_have_text(["One picture in 2 photos"])
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(titles).to_have_count(2)
    page.reload()
    expect(titles).to_have_text(["One picture in 2 photos", "3 pictures look alike"])
    undo.click()
    expect(titles).to_have_text(["One picture in 2 photos", "One scene in 3 photos", "3 pictures look alike"])
    undo.click()
    expect(titles).to_have_text(["One picture in 3 photos", "One scene in 3 photos", "3 pictures look alike"])
    expect(undo).to_be_hidden()


@BOTH
def test_the_map_moves_zooms_and_leads_to_photos(page):
    page.goto("?view=map")
    canvas = page.get_by_role("application", name=re.compile("Map of 76 photos"))
    expect(page.locator("#map .inview h2")).to_have_text("76 photos in view")
    expect(page.locator(".maplegend li")).to_have_count(4)
    no_overflow(page)
    page.locator(".maplegend button", has_text="plum").click()
    page.wait_until("location.search.includes('at=')")
    expect(page.locator("#map .inview h2")).not_to_have_text("76 photos in view")
    address = page.url
    page.reload()
    expect(page.locator("#map .inview h2")).not_to_have_text("76 photos in view")
    assert page.url == address
    canvas.focus()
    page.keyboard.press("0")
    page.wait_until("!location.search.includes('at=')")
    for _ in range(4):
        page.keyboard.press("+")
    page.keyboard.press("ArrowLeft")
    page.wait_until("location.search.includes('at=')")
    page.keyboard.press("Enter")
    expect(page.locator("#results .rank").first).to_be_visible()
    page.go_back()
    expect(canvas).to_be_visible()


def test_a_map_that_comes_when_another_page_is_shown_is_not_drawn(page):
    held = []
    page.route("**/api/map/points", lambda route: held.append(route))
    page.goto("?view=map")
    page.wait_until("performance.getEntriesByName(new URL('api/map', location)).length")
    page.get_by_role("link", name="Photos", exact=True).click()
    expect(page.locator("#photos .tile").first).to_be_visible()
    with page.expect_response("**/api/map/points"):
        held[0].continue_()
    page.wait_for_timeout(100)
    expect(page.locator("#map canvas")).to_have_count(0)


def test_a_map_that_is_not_drawn_can_be_drawn(page):
    state = {"ready": False, "current": False, "making": False, "phase": None, "share": 0, "problem": None}
    state |= {"version": None, "images": 0, "labels": [], "n_alike": None, "n_check": None}
    page.route("**/api/map", lambda route: route.fulfill(json=state))
    page.goto("?view=map")
    start = page.get_by_role("button", name="Look now")
    expect(start).to_be_visible()
    state |= {"making": True, "phase": "drawing the map", "share": 0.5}
    start.click()
    expect(page.get_by_role("progressbar")).to_be_visible()
    expect(page.locator("#map")).to_contain_text("You can go on searching")
    page.unroute("**/api/map")
    expect(page.get_by_role("application")).to_be_visible()


@BOTH
def test_figures(page):
    page.goto("?view=figures")
    expect(page.locator("#figures")).to_contain_text("Of the first ten results")
    expect(page.get_by_role("img", name=re.compile("^Precision at k of each ranking"))).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("OASIS"))).to_contain_text(re.compile(r"0\.\d{3}"))
    expect(page.locator(".bars li")).to_have_count(4)
    for title in (
        "Which labels are easy",
        "Labels that are confused",
        "Best queries",
        "Worst queries",
        "Before and after your marks",
    ):
        expect(page.get_by_role("heading", name=title)).to_be_visible()
    no_overflow(page)
    with page.expect_popup() as opened:
        page.get_by_role("link", name="Report").click()
    expect(opened.value.locator("#query-table th button").first).to_be_attached()  # its scripts run
    opened.value.close()


def test_names_of_any_script_and_length_fit(page):
    long, arabic = "x" * 4000, "صور العائلة"
    suggestions = {"labels": [{"name": long, "images": 1}, {"name": arabic, "images": 2}], "folders": [], "images": []}
    suggestions |= {"words": []}
    page.route("**/api/suggest?*", lambda route: route.fulfill(json=suggestions))
    page.goto("")
    page.box.fill("x")
    expect(page.get_by_role("option")).to_have_count(2)
    expect(page.get_by_role("option").nth(1).locator(".named")).to_have_css("direction", "rtl")
    no_overflow(page)
    covers = page.request.get("api/albums?limit=1").json()["albums"][0]["covers"]
    albums = {"total": 1, "same_as_labels": False, "albums": [{"name": long, "images": 1, "covers": covers}]}
    page.route("**/api/albums?*", lambda route: route.fulfill(json=albums))
    page.goto("?view=albums")
    expect(page.locator("#albums .album")).to_have_count(1)
    no_overflow(page)


@pytest.mark.parametrize("n", [1, 4])
def test_a_few_photos_without_labels_or_learners_while_another_command_works(page, serving, write_images, tmp_path, n):
    write_images(tmp_path / "photos", [f"{i}.jpg" for i in range(n)])
    run = Run(tmp_path / "runs" / "photos")
    features_stage(run, load_config(None, ["features.n_visterms=4"]), tmp_path / "photos", Console(quiet=True))
    with run.locked(), serving(run) as client:
        for state, words in (
            ("", "Drop an image"),
            ("?view=photos", f"{n} photo"),
            ("?view=albums", "No labels"),
            ("?view=figures", "No evaluation yet"),
            ("?view=alike", "Photos that look alike"),
            ("?view=check", "Check these labels"),
            ("?view=map", "Map of the collection"),
            ("?id=1", f"All {n - 1} results shown." if n > 1 else "The collection has no other image to compare with."),
        ):
            page.goto(f"{client.base_url}/{state}")
            expect(page.locator("#main")).to_contain_text(words, timeout=60_000)
            no_overflow(page)


def test_photos_by_date_and_a_period_of_them(page, serving, own, own_photos):
    page.set_default_timeout(20_000)
    for path in own_photos.rglob("*.*"):
        os.utime(path, (1_700_000_000, 1_700_000_000))  # November 2023
    for name, seconds in (("plum/1.jpg", 1_600_000_000), ("plum/2.jpg", 1_710_000_000)):  # September 2020, March 2024
        os.utime(own_photos / name, (seconds, seconds))
    features_stage(own, own.configure(None, []), own_photos, Console(quiet=True))
    with serving(own) as client:
        page.goto(f"{client.base_url}/?view=photos")
        page.get_by_role("link", name="By date").click()
        months = page.locator("#dates h2")
        expect(months).to_have_text(["March 2024", "November 2023", "September 2020"])
        expect(page.locator("#dates")).to_contain_text("19 photos do not say when they were taken")
        expect(page.locator("#dates .tile").first).to_have_attribute("data-index", "0")
        last = page.get_by_label("Last month")
        expect(last).to_have_attribute("aria-valuetext", "March 2024")
        last.press("ArrowLeft")  # February, in which there are none
        expect(page.locator(".timeline output")).to_have_text("September 2020 to February 2024: 18 photos")
        expect(months).to_have_text(["November 2023", "September 2020"])
        assert page.url.endswith("?view=dates&before=2024-03")
        page.reload()
        expect(page.get_by_label("Last month")).to_have_attribute("aria-valuetext", "February 2024")
        page.get_by_label("First month").press("PageUp")
        page.get_by_role("button", name="Remove filter: before 2024-03").click()
        expect(months.first).to_have_text("March 2024")
        assert page.violations() == []
        number = client.get("/api/images", params={"label": "pear"}).json()[0]["id"]
        page.goto(f"{client.base_url}/?id={number}&label=plum")
        expect(page.locator("#results .tile")).to_have_count(6)
        page.options(advanced=False)
        page.get_by_label("Taken from").fill("2024-01-01")
        expect(page.locator("#results .tile")).to_have_count(1)
        expect(page.locator("#chips")).to_contain_text("from 2024-01-01")


def test_options_opened_while_the_page_loads_are_those_of_its_results(page, serving, own):
    held = []
    page.route("**/api/run", lambda route: held.append(route), times=1)
    with serving(own) as client:
        with page.expect_request("**/api/run"):
            page.goto(f"{client.base_url}/?id=1", wait_until="commit")
        page.options(advanced=False)
        held[0].continue_()
        page.get_by_text("Hide marked images").wait_for()


def test_a_condition_on_a_field_is_a_filter_of_a_search(page, serving, own, own_photos):
    page.set_default_timeout(20_000)
    paths = sorted(path.relative_to(own_photos) for path in own_photos.rglob("*.*"))
    rows = [f"{path},{path.parts[0]},{'X100' if i % 2 else 'D70'}" for i, path in enumerate(paths)]
    manifest = own_photos / "metadata.csv"
    manifest.write_text("\n".join(["file_name,label,camera", *rows]))
    settings = own.configure(None, [f"collection.labels={manifest}"])
    features_stage(own, settings, own_photos, Console(quiet=True))
    with serving(own) as client:
        assert "camera" in client.get("/api/run").json()["fields"]
        page.goto(f"{client.base_url}/?id=1")
        page.options(advanced=False)
        page.get_by_label("Only where").fill("camera=X100")
        page.get_by_label("Only where").press("Enter")
        expect(page.locator("#chips")).to_contain_text("camera=X100")
        expect(page.locator("#results")).to_contain_text("All 9 results shown.")
        page.options(advanced=False)
        page.get_by_label("Only where").fill("camera=X10")
        page.refusals += 1
        page.get_by_label("Only where").press("Enter")
        expect(page.locator("#failure")).to_contain_text("did you mean X100?")


STATES = [
    "",
    "?view=albums",
    "?view=album&label=plum&not_label=fig",
    "?view=added",
    "?view=dates&label=plum",
    "?view=map",
    "?view=alike",
    "?view=check",
    "?view=figures",
]
STATES += ["judge?results=1"]


@pytest.mark.parametrize(
    "page",
    [{"color_scheme": "light"}, PHONE, {"viewport": {"width": 320, "height": 256}}],
    ids=["desktop", "phone", "zoom"],
    indirect=True,
)
def test_no_page_violates_what_axe_knows(page, ids, shown):
    faults = {}
    states = [*STATES, f"?id={ids['pear/1.jpg']}&example=id:{ids['plum/1.jpg']}@-0.5&region=0.1,0.1,0.5,0.5"]
    for state in states:
        page.refusals += state.startswith("judge") and not page.request.get("api/judge/results").ok  # no study yet
        page.goto(state, wait_until="networkidle")
        if violations := page.violations():
            faults[state] = violations
        if page.evaluate("document.documentElement.scrollWidth") > page.viewport_size["width"]:
            faults[f"{state}, width"] = True
    assert faults == {}
