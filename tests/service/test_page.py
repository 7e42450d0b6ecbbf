"""The page in a real browser, on a real run behind the real service: asking, results, the dialog."""

import base64
import re
from pathlib import Path

import pytest

pytest.importorskip("playwright.sync_api", reason="the browser tests need playwright")

from playwright.sync_api import expect

from visterm.service import app as service_app

WEB = Path(service_app.__file__).parent / "web"
MARKUP = "<img src=x onerror=alert(1)>"


def ranks(page):
    return [int(text) for text in page.locator("#results .tile[data-index] .rank").all_text_contents()]


def all_results(page, n):
    expect(page.locator("#end")).to_have_text(f"All {n} results shown.")


def photo(shown):
    return shown.folder.parents[1] / "photos" / "pear" / "3.jpg"


def test_a_click_on_a_sample_searches_with_it(page):
    page.goto("")
    samples = page.locator("#samples .tile")
    expect(samples.first).to_have_attribute("aria-setsize", "24")
    name = samples.nth(4).get_by_role("img").get_attribute("alt").removeprefix("Search with ")
    samples.nth(4).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(name)
    all_results(page, 75)
    shown = ranks(page)
    assert shown == list(range(1, len(shown) + 1))
    assert len(shown) < 75  # only those near the screen are in the document
    expect(page.locator("#query")).to_contain_text(re.compile(r"Searched 7[56] images in \d"))
    expect(page.locator("#live")).to_contain_text("75 results by Learned similarity (OASIS)")
    expect(page.locator("#results .tile[data-index] a.open").first).to_be_focused()  # keys act at once


@pytest.mark.slow
def test_a_picked_file_has_an_address_that_lasts(page, shown):
    page.goto("")
    with page.expect_file_chooser() as chosen:
        page.get_by_role("button", name="Choose an image").click()
    chosen.value.set_files(photo(shown))
    expect(page.get_by_role("heading", level=1)).to_have_text("3.jpg")
    expect(page.locator("#results .rank").first).to_be_visible()  # not just a skeleton
    assert "upload=" in page.url
    first = page.locator("#results .tile[data-index] img").evaluate_all("nodes => nodes.map((node) => node.alt)")
    page.reload()
    expect(page.locator("#results .rank").first).to_be_visible()  # not just a skeleton
    assert (
        page.locator("#results .tile[data-index] img").evaluate_all("nodes => nodes.map((node) => node.alt)") == first
    )


@pytest.mark.parametrize("way", ["drop", pytest.param("paste", marks=pytest.mark.slow)])
def test_an_image_is_dropped_or_pasted(page, shown, way):
    page.goto("")
    given = {"data": base64.b64encode(photo(shown).read_bytes()).decode(), "way": way}
    page.evaluate(
        """({ data, way }) => {
            const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
            const files = new DataTransfer();
            files.items.add(new File([bytes], "given.jpg", { type: "image/jpeg" }));
            if (way === "drop") {
                window.dispatchEvent(new DragEvent("dragenter", { dataTransfer: files }));
                window.wasShown = !document.querySelector("#dropping").hidden;
                window.dispatchEvent(new DragEvent("drop", { dataTransfer: files, cancelable: true }));
            } else document.body.dispatchEvent(new ClipboardEvent("paste", { clipboardData: files, bubbles: true }));
        }""",
        given,
    )
    page.get_by_role("button", name="Search by it").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("given.jpg")
    expect(page.locator("#dropping")).to_be_hidden()
    if way == "drop":
        assert page.evaluate("window.wasShown")


@pytest.mark.slow
def test_a_file_that_is_no_image_is_refused_and_the_results_stay(page, ids, tmp_path):
    page.refusals = 1
    page.ask(ids["pear/1.jpg"])
    page.evaluate("scrollTo(0, 600)")
    (tmp_path / "<b>notes.png").write_text("no image")
    page.locator("#file").set_input_files(tmp_path / "<b>notes.png")
    expect(page.get_by_role("alert")).to_contain_text("<b>notes.png: ")
    expect(page.get_by_role("button", name="Dismiss")).to_be_in_viewport()
    expect(page.get_by_role("button", name="Try again")).to_have_count(0)  # it would be no image again
    all_results(page, 75)
    page.get_by_role("button", name="Dismiss").click()
    expect(page.get_by_role("alert")).to_be_empty()


@pytest.mark.slow
def test_a_picture_that_cannot_be_kept_is_searched_with_all_the_same(page, shown, ids):
    [answer] = page.request.get(f"search?id={ids['pear/2.jpg']}&k=48").json()
    page.route(re.compile("/search$"), lambda route: route.fulfill(json=[answer]))  # it names no upload
    gone = []  # the picture itself, each time that the query is drawn
    page.on("response", lambda response: gone.append(response.url) if response.status == 404 else None)
    page.goto("")
    page.locator("#file").set_input_files(photo(shown))
    expect(page.get_by_role("heading", level=1)).to_have_text("3.jpg")
    expect(page.locator("#end")).to_contain_text("results shown")
    expect(page.locator("#notes")).to_contain_text("could not store this image")
    expect(page.locator("#query .word")).to_have_text("3.jpg")  # in place of the picture
    page.pictures()
    assert len(set(gone)) == 1
    page.refusals = len(gone)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("address", "words"), [("?id=99999", "no image 99999"), (f"?upload={64 * '0'}", "upload the picture again")]
)
def test_an_address_of_something_gone_says_what_to_do_and_leaves_the_start(page, address, words):
    page.refusals = 1
    page.goto(address)
    expect(page.get_by_role("alert")).to_contain_text(words)
    expect(page.locator("#results")).to_be_hidden()
    page.locator("#samples .tile").first.click()
    all_results(page, 75)
    expect(page.get_by_role("alert")).to_be_empty()


@pytest.mark.parametrize("page", [{"viewport": {"width": 720, "height": 450}}], indirect=True)
def test_at_200_percent_the_links_of_a_query_do_not_cover_its_name(page, ids):
    page.ask(ids["plum/2.jpg"])
    name, links = (page.locator(f"#query {part}").bounding_box() for part in ("h1", ".links"))
    assert name["width"] > 250
    assert name["y"] + name["height"] <= links["y"]


def test_a_link_is_copied_where_the_browser_has_no_clipboard(page, ids):
    page.ask(ids["plum/2.jpg"])
    page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    copy = page.get_by_role("button", name="Copy link")
    copy.press("Enter")
    expect(page.locator("#toasts")).to_contain_text("Link copied.")
    expect(copy).to_be_focused()
    page.box.focus()
    page.keyboard.press("Control+v")
    assert page.box.input_value().endswith(f"?id={ids['plum/2.jpg']}&learner=oasis")


def test_a_page_that_is_asked_for_twice_is_one_step_back(page, ids):
    page.ask(ids["plum/2.jpg"])
    for _ in range(2):
        page.get_by_role("link", name="Photos", exact=True).click()
        expect(page.locator("#photos .tile").first).to_be_visible()
    page.go_back()
    page.wait_until("location.search.startsWith('?id=')")


@pytest.mark.slow
def test_a_service_that_comes_back_is_asked_again(page):
    page.refusals = 4  # it is asked again by itself
    page.route("**/api/run", lambda route: page.refuse(route, "too many requests", 429))
    page.goto("")
    expect(page.get_by_role("alert")).to_contain_text("too many requests")
    page.unroute("**/api/run")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator("#samples .tile").first).to_have_attribute("aria-setsize", "24")
    expect(page.get_by_role("alert")).to_be_empty()


@pytest.mark.slow
def test_results_stay_usable_when_the_next_question_fails(page, ids):
    page.refusals = 4
    page.ask(ids["pear/1.jpg"])
    page.route("**/search?*", lambda route: page.refuse(route, "too many requests", 429))
    page.tile(3).get_by_role("button", name="Search with this").click()
    expect(page.get_by_role("alert")).to_contain_text("too many requests")
    expect(page.get_by_role("heading", level=1)).to_have_text("pear/1.jpg")
    page.tile(0).locator("a.open").click()
    expect(page.get_by_role("dialog").locator(".counter")).to_have_text("1 / 75")
    assert f"id={ids['pear/1.jpg']}" in page.url


@pytest.mark.slow
def test_samples_that_come_late_leave_the_results_alone(page, shown):
    held = []
    page.route("**/api/images?*", lambda route: held.append(route))
    page.goto("")
    page.locator("#file").set_input_files(photo(shown))
    all_results(page, 76)
    held[0].continue_()
    page.wait_until("document.querySelector('#samples .gallery')")
    expect(page.locator("#start")).to_be_hidden()
    expect(page.tile(0)).to_be_visible()


@pytest.mark.slow
def test_a_search_that_is_cancelled_leaves_the_page_as_it_was(page):
    page.clock.install()
    page.goto("")
    page.route("**/search?*", lambda route: None)  # no answer ever
    page.locator("#samples .tile").first.click()
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
    page.clock.fast_forward(2000)
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#start")).to_be_visible()
    expect(page.locator("#results")).to_be_hidden()
    expect(page.get_by_role("alert")).to_be_empty()


@pytest.mark.slow
def test_markup_in_names_and_labels_stays_text(page, ids):
    page.ask(ids[f"fig/{MARKUP}.jpg"])
    expect(page.get_by_role("heading", level=1)).to_have_text(f"fig/{MARKUP}.jpg")
    page.filter_by("<b>nut")
    expect(page.get_by_role("button", name="Remove filter: label: <b>nut")).to_be_visible()
    expect(page.locator("#results .labels").first).to_have_text("<b>nut")
    page.goto(f"?id={ids['fig/1.jpg']}&open={ids[f'fig/{MARKUP}.jpg']}")
    expect(page.locator("#viewer .path")).to_have_text(f"fig/{MARKUP}.jpg")
    assert page.locator("img[src=x], #main b").count() == 0


def few_first(page):
    """Let the first answer have 20 results; the others follow in columns. The page loads modules: one is changed."""

    def shorten(route):
        route.fulfill(
            body=(WEB / "core/state.js").read_text().replace("PAGE = 100", "PAGE = 20"), content_type="text/javascript"
        )

    page.route(re.compile(r"^http://[^/]+/(\?|$)"), lambda route: route.fulfill(path=WEB / "index.html"))
    page.route("**/static/core/state.js", shorten)


def test_all_results_follow_the_first_ones_and_back_restores_the_place(page, ids):
    few_first(page)
    page.set_viewport_size({"width": 800, "height": 500})
    page.ask(ids["plum/2.jpg"])
    all_results(page, 75)
    page.evaluate("document.querySelector('#grid').lastElementChild; scrollTo(0, document.body.scrollHeight)")
    expect(page.tile(74).locator(".pill")).to_be_attached()  # its label has been read
    [answer] = page.request.get(f"search?id={ids['plum/2.jpg']}&k=75").json()
    assert int(page.tile(74).get_attribute("data-id")) == answer["results"][74]["id"]
    expect(page.tile(74).get_by_role("img")).to_have_attribute(
        "alt", re.compile(f"Result 75, .*{answer['results'][74]['labels'][0]}")
    )
    page.wait_until("scrollY > 500 && history.state.scroll === scrollY")
    before = page.evaluate("scrollY")
    page.tile(74).get_by_role("button", name="Search with this").evaluate("(button) => button.click()")  # no scrolling
    page.wait_until("scrollY === 0")
    page.go_back()
    page.wait_until(f"Math.abs(scrollY - {before}) < 3")
    expect(page.tile(74)).to_be_in_viewport()


@pytest.mark.slow
def test_a_result_can_be_opened_while_more_are_loaded(page, ids):
    few_first(page)
    held = []
    page.route("**/search/columns?*", lambda route: held.append(route))
    page.ask(ids["plum/2.jpg"])
    page.tile(0).locator("a.open").click()
    counter = page.get_by_role("dialog").locator(".counter")
    expect(counter).to_have_text("1 / 20")
    page.wait_until("document.querySelector('#end').textContent === 'Loading more …'")
    page.keyboard.press("Escape")
    while not held:
        page.wait_for_timeout(10)
    held[0].continue_()
    all_results(page, 75)
    expect(page.tile(0).locator("a.open")).to_be_focused()
    page.keyboard.press("Enter")
    expect(counter).to_have_text("1 / 75")


@pytest.mark.slow
def test_keys_move_among_the_photos_and_one_photo_is_a_tab_stop(page, ids):
    page.set_viewport_size({"width": 900, "height": 500})
    page.ask(ids["plum/2.jpg"])
    assert page.locator('#results a.open[tabindex="0"]').count() == 1
    page.tile(0).locator("a.open").focus()
    page.keyboard.press("ArrowRight")
    expect(page.tile(1).locator("a.open")).to_be_focused()
    page.keyboard.press("ArrowDown")
    box, below = page.tile(1).bounding_box(), page.locator(".tile:focus-within").bounding_box()
    assert below["y"] > box["y"]
    assert abs(below["x"] + below["width"] / 2 - box["x"] - box["width"] / 2) < box["width"]
    page.keyboard.press("ArrowUp")
    expect(page.tile(1).locator("a.open")).to_be_focused()
    page.keyboard.press("End")
    expect(page.tile(74).locator("a.open")).to_be_focused()
    expect(page.tile(74)).to_be_in_viewport(ratio=1)
    page.keyboard.press("Home")
    expect(page.tile(0).locator("a.open")).to_be_focused()
    assert page.locator('#results a.open[tabindex="0"]').count() == 1
    query = page.get_by_role("heading", level=1).text_content()
    page.keyboard.press("s")
    expect(page.get_by_role("heading", level=1)).not_to_have_text(query)


@pytest.mark.slow
def test_filters_are_chips_that_can_be_taken_away(page, ids):
    page.ask(ids["plum/2.jpg"])
    page.filter_by("pear")
    all_results(page, 19)
    assert set(page.locator("#results .labels").all_text_contents()) == {"pear"}
    page.get_by_role("button", name="Remove filter: label: pear").click()
    all_results(page, 75)
    expect(page.locator("#options > summary")).to_be_focused()
    page.go_back()
    all_results(page, 19)


@pytest.mark.slow
def test_a_label_that_no_image_has_is_refused_in_words(page, ids):
    page.ask(ids["plum/2.jpg"])
    page.filter_by("grapes")
    expect(page.locator(".toast")).to_contain_text("Nothing here is called “label:grapes”.")
    all_results(page, 75)


@pytest.mark.slow
def test_metrics_of_musl_are_tabs(page, ids):
    page.ask(ids["plum/2.jpg"], "&learner=musl")
    tabs = page.locator("#tabs button")
    assert tabs.count() >= 2
    number = int(re.search(r"\((\d+)\)", tabs.nth(1).text_content())[1])
    tabs.nth(1).click()
    all_results(page, 75)
    expect(page.locator("#live")).to_contain_text(f"{number} results")
    expect(tabs.nth(1)).to_have_attribute("aria-pressed", "true")
    expect(tabs.nth(1)).to_be_focused()


@pytest.mark.slow
def test_results_follow_the_share_of_what_was_learned(page, ids):
    for number in (ids[f"fig/{i}.jpg"] for i in range(1, 19)):  # one whose first result changes
        (whole,), (look,), (chosen,) = (
            page.request.get(f"search?id={number}&{asked}").json()
            for asked in ("learned_weight=1", "learner=cosine", "")
        )
        if whole["results"][0]["id"] != look["results"][0]["id"]:
            break
    page.ask(number)
    slider = page.get_by_role("slider", name="Weight of the learned similarity")
    assert (whole["learned_weight"], look["learned_weight"], chosen["learned_weight"] < 1) == (1, 1, True)
    expect(slider).to_have_value(str(chosen["learned_weight"]))  # what training chose
    assert "learned_weight" not in page.url
    first_of_all, first_by_look = (str(answer["results"][0]["id"]) for answer in (whole, look))
    assert first_of_all != first_by_look
    slider.focus()
    page.keyboard.press("Home")
    expect(slider).to_have_attribute("aria-valuetext", "0 % of the learned similarity")
    expect(page.tile(0)).to_have_attribute("data-id", first_by_look)
    expect(slider).to_be_focused()
    assert page.url.endswith("&learned_weight=0")
    page.tile(0).locator("a.open").focus()
    with page.expect_response("**/explain?*learned_weight=0*") as explained:
        page.keyboard.press("e")
    assert explained.value.json()["neighbours"]["score"] == pytest.approx(look["results"][0]["score"], abs=2e-5)
    page.keyboard.press("Escape")
    page.wait_for_url(lambda address: "open" not in address)
    page.reload()
    expect(slider).to_have_value("0")
    slider.focus()
    page.keyboard.press("End")
    expect(page.tile(0)).to_have_attribute("data-id", first_of_all)
    assert page.url.endswith("&learned_weight=1")
    page.ask(number, "&learner=cosine")
    expect(slider).to_be_hidden()


@pytest.mark.slow
def test_a_learner_that_was_chosen_stays_until_another_one_is(page, ids):
    page.ask(ids["pear/1.jpg"])
    expect(page.locator("#query")).not_to_contain_text("Ranked by")
    page.options()
    page.get_by_label("Ranked by").select_option("cosine")
    expect(page.locator("#query")).to_contain_text("Ranked by plain look, as chosen; held-out photos recommend")
    page.goto(f"?id={ids['plum/2.jpg']}")
    expect(page.locator("#query")).to_contain_text("Ranked by plain look")
    page.goto("")
    page.locator("#samples a.open").first.click()
    expect(page.locator("#query")).to_contain_text("Ranked by plain look")
    assert page.violations() == []
    page.locator("#query").get_by_role("button", name="Rank by").click()
    expect(page.locator("#query")).not_to_contain_text("Ranked by")
    page.goto(f"?id={ids['plum/2.jpg']}")
    expect(page.locator("#query")).to_contain_text("Searched")
    expect(page.locator("#query")).not_to_contain_text("Ranked by")


def test_words_that_name_labels_lead_to_photos_and_unknown_ones_to_a_concept(page):
    box = page.locator("#q")
    page.goto("")
    box.fill("figs and a plumm")
    expect(page.get_by_role("option", name="fig + plum")).to_be_visible()
    page.keyboard.press("Enter")
    page.wait_until("location.search === '?text=figs+and+a+plumm'")
    expect(page.locator("#results .tile").first).to_be_visible()
    assert page.violations() == []
    box.fill("sunset over there")
    page.get_by_role("option", name="Show three photos of it").click()
    page.wait_until("location.search === '?view=photos'")
    expect(page.locator("#toasts")).to_contain_text("Select three photos that show it")
    assert page.violations() == []


def test_unknown_words_of_an_address_are_answered_as_those_of_the_search_box(page):
    page.refusals = 1
    page.goto("?text=sunset+over+there")
    alert = page.get_by_role("alert")
    for words in ("Nothing here is called “sunset over there”.", "Try a part of a label or file name."):
        expect(alert).to_contain_text(words)
    expect(alert).not_to_contain_text("Request failed")
    assert page.violations() == []
    alert.get_by_role("button", name="Show three photos of it").click()
    page.wait_until("location.search === '?view=photos'")
    expect(page.locator("#toasts")).to_contain_text("Select three photos that show it")
    expect(alert).to_be_empty()


def test_plain_look_that_is_recommended_says_why(page, site, ids):
    run = site.get("/api/run").json()
    run |= {"default_learner": "cosine"}
    run["held_out"] = {"map": {"oasis": 0.5, "cosine": 0.512}, "first": {"oasis": 0.6, "cosine": 0.71}}
    page.route("**/api/run", lambda route: route.fulfill(json=run))
    page.goto(f"?id={ids['plum/2.jpg']}&learner=cosine")
    why = "OASIS is not clearly better (mAP 0.50 against 0.51, first result right 60 % against 71 %)."
    expect(page.locator("#query")).to_contain_text(f"Ranked by plain look: on held-out photos, {why}")
    page.get_by_role("button", name="Rank by OASIS").click()
    page.wait_until("location.search.includes('learner=oasis')")
    expect(page.locator("#query")).to_contain_text("OASIS, as chosen; on held-out photos it is not clearly better than")


def test_the_dialog_lies_over_the_grid_and_gives_the_focus_back(page, ids):
    page.ask(ids["plum/2.jpg"])
    card = page.tile(20)
    card.scroll_into_view_if_needed()
    kept = page.evaluate("scrollY")
    node = card.element_handle()
    card.locator("a.open").click()
    viewer = page.get_by_role("dialog")
    expect(viewer.get_by_role("heading", name="Result 21")).to_be_visible()
    expect(viewer.locator(".counter")).to_have_text("21 / 75")
    page.keyboard.press("ArrowRight")
    expect(viewer.locator(".counter")).to_have_text("22 / 75")
    page.keyboard.press("ArrowLeft")
    expect(viewer.locator(".counter")).to_have_text("21 / 75")
    page.keyboard.press("Escape")
    expect(viewer).to_be_hidden()
    expect(card.locator("a.open")).to_be_focused()
    assert abs(page.evaluate("scrollY") - kept) < 3
    assert node.evaluate("(node) => node.isConnected"), "the grid was drawn again"
    page.wait_for_url(lambda url: "open" not in url)  # the dialog closes first, then the browser goes back
    page.go_forward()
    expect(viewer.locator(".counter")).to_have_text("21 / 75")
    page.locator("#viewer").evaluate("(viewer) => viewer.close()")  # as browsers may, without asking
    expect(viewer).to_be_hidden()
    page.wait_for_url(lambda url: "open" not in url)
    expect(card.locator("a.open")).to_be_focused()
    page.go_forward()
    expect(viewer).to_be_visible()
    page.locator("#viewer .close").evaluate("(button) => { button.click(); button.click(); }")
    page.wait_for_url(lambda url: "open" not in url)
    expect(viewer).to_be_hidden()
    all_results(page, 75)
    page.go_back()
    page.wait_for_url("about:blank")


@pytest.mark.slow
def test_search_with_the_image_in_the_dialog(page, ids):
    page.ask(ids["plum/2.jpg"], f"&open={ids['plum/3.jpg']}")
    page.get_by_role("dialog").get_by_role("button", name="Search with this").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("plum/3.jpg")
    expect(page.get_by_role("dialog")).to_be_hidden()


@pytest.mark.slow
def test_what_is_marked_in_the_dialog_can_be_undone_there(page, ids):
    page.ask(ids["fig/4.jpg"])
    page.locator("#results .tile[data-index] a.open").first.click()
    viewer = page.get_by_role("dialog")
    page.keyboard.press("x")
    pressed = viewer.get_by_role("button", name="Not relevant")
    expect(pressed).to_have_attribute("aria-pressed", "true")
    viewer.locator(".toast").get_by_role("button", name="Undo").click()
    expect(pressed).to_have_attribute("aria-pressed", "false")


@pytest.mark.slow
def test_an_explanation_names_the_images_that_taught_it(page, ids):
    page.ask(ids["plum/2.jpg"], "&learner=oasis")
    page.tile(0).locator("a.open").focus()
    page.keyboard.press("e")
    taught = page.get_by_role("dialog").locator(".teachers")
    words = expect(taught.locator("p").first)
    number = r"-?[\d.]+"
    words.to_have_text(
        re.compile(
            rf"^Score {number}: the same without learning {number}, "
            rf"(learned for every result of this query {number}, )?learned about these two {number}\.$"
        )
    )
    total, *parts = map(float, re.findall(r"-?\d+\.?\d*", taught.locator("p").first.text_content()))
    assert total == pytest.approx(sum(parts), abs=0.01)
    few = taught.locator("details").get_attribute("open") is not None  # they carry half of it
    expect(taught.locator("summary")).to_contain_text("at least half" if few else "Many pairs share it")
    if not few:
        taught.locator("summary").click()
    lines = taught.get_by_role("region", name="For").locator("tbody tr")
    assert 1 <= lines.count() <= 4
    first = lines.first.locator("td")
    expect(first.nth(1)).to_have_text(re.compile("was (put with|kept apart from)"))
    expect(first.nth(3)).to_have_text(re.compile(r"^(both \S+|\S+ and \S+)$"))
    assert float(first.nth(4).text_content()) > 0
    for picture in lines.locator("img").all():
        picture.scroll_into_view_if_needed()
        expect(picture).to_have_js_property("complete", True)
        assert picture.evaluate("(image) => image.naturalWidth") > 0
        assert picture.get_attribute("alt") in ids
    shown = [float(cell) for cell in taught.locator("tbody td:last-child").all_text_contents()]
    rest = taught.locator("p").last.text_content()
    assert re.match(r"^The other [\d,]+ together: ", rest)
    rest = float(re.search(rf"({number})\.$", rest)[1])
    assert sum(shown) + rest == pytest.approx(parts[-1], abs=0.02)


def test_an_explanation_is_a_sentence_a_heat_map_and_regions(page, ids):
    page.ask(ids["plum/2.jpg"])
    page.tile(0).locator("a.open").focus()
    page.keyboard.press("e")
    viewer = page.get_by_role("dialog")
    photos = viewer.get_by_role("img", name=re.compile("heat map of where the score comes from; outlined: "))
    expect(photos).to_have_count(2)
    sentence = viewer.locator(".where").text_content()
    assert re.search(r"of the query \(\d+ of \d+ cells\).* of the result \(\d+ of \d+\)", sentence)
    regions = viewer.locator(".region")
    shapes = regions.locator(".line").evaluate_all("(all) => all.map((path) => path.getAttribute('d'))")
    assert len(shapes) >= 2
    assert all(re.fullmatch(r"(M[\d.]+ [\d.]+L[\d.]+ [\d.]+){4,}", shape) for shape in shapes)
    opacities = viewer.locator(".heat rect").evaluate_all("(all) => all.map((rect) => +rect.getAttribute('opacity'))")
    assert len(opacities) > 30
    assert 0 <= min(opacities) < max(opacities) <= 1
    rows = viewer.locator("tr[data-pairs]")
    expect(rows.first).to_be_hidden()  # numbers are folded away
    viewer.get_by_text("Numbers").click()
    n = rows.count()
    assert 1 <= n <= 3
    expect(viewer.locator(".crop")).to_have_count(2 * n)
    shares = viewer.locator(".numbers tbody td:nth-last-child(2)").all_text_contents()
    assert sum(int(share.split()[0]) for share in shares) == pytest.approx(100, abs=2)
    assert sum(int(share.split()[0]) for share in shares[:-1]) >= 49
    rows.last.focus()
    expect(viewer.locator(".region.on")).to_have_count(2)
    expect(viewer.locator(".joined .joint")).to_be_visible()  # a line between the two
    left, right = (viewer.locator(".region.on rect").nth(i).bounding_box() for i in (0, 1))
    line = viewer.locator(".joint line").first.bounding_box()
    assert abs(line["x"] - left["x"] - left["width"] / 2) < 6
    assert abs(line["x"] + line["width"] - right["x"] - right["width"] / 2) < 6
    heat = "(node) => getComputedStyle(node).opacity"
    assert viewer.locator(".heat").first.evaluate(heat) == "0.8"
    viewer.get_by_role("slider").fill("0")
    assert viewer.locator(".heat").first.evaluate(heat) == "0"
    assert viewer.locator(".overlay image").first.evaluate("(node) => getComputedStyle(node).filter") == "grayscale(0)"
    page.keyboard.press("e")
    expect(viewer.locator(".overlay")).to_have_count(0)
    assert "explain" not in page.url
    page.keyboard.press("Escape")
    page.options()
    page.get_by_label("Ranked by").select_option("musl")
    expect(page.locator("#live")).to_contain_text("results by Learned similarity per label (MuSL)")
    page.keyboard.press("Escape")
    page.tile(0).locator("a.open").focus()
    page.keyboard.press("e")
    expect(viewer).to_contain_text(re.compile(r"The metric of this result compares \d+ visterms?: \d+ agree"))
