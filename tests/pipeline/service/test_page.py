"""The page and the judging page in a real browser, on a real run behind the real service."""

import base64
import json
import re
import shutil
import socket
import threading
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("playwright.sync_api", reason="the browser tests need playwright")

import uvicorn
from playwright import sync_api

from visterm.pipeline.config.loading import load_config
from visterm.pipeline.console import Console
from visterm.pipeline.human_eval.judgements import Judgements
from visterm.pipeline.human_eval.tasks import draw_tasks
from visterm.pipeline.search.searcher import Searcher
from visterm.pipeline.service import app as service_app
from visterm.pipeline.stages.evaluate import evaluate as evaluate_stage
from visterm.pipeline.stages.features import features as features_stage
from visterm.pipeline.stages.train import train as train_stage
from visterm.pipeline.store.run import Run

expect = sync_api.expect
PATIENCE = 30_000  # milliseconds: of a machine that is busy with other things
expect.set_options(timeout=PATIENCE)
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="the browser tests need chromium")

SETTINGS = [
    *("features.n_visterms=40", "oasis.n_steps=300", "musl.n_metrics=2", "musl.n_bits=4"),
    *("split.train=12", "split.test=6", "compute.n_jobs=1"),
]
PICTURES = "[...document.images].every((image) => image.complete || image.loading === 'lazy')"
MARKUP = "<img src=x onerror=alert(1)>"
WEB = Path(service_app.__file__).parent / "web"


@pytest.fixture(scope="module")
def made(tmp_path_factory, write_images):
    """A run of 76 images, some named in markup, with two learners and figures."""
    folder = tmp_path_factory.mktemp("page")
    classes = ("pear", "plum", "fig", "<b>nut")
    write_images(folder / "photos", [f"{name}/{i}.jpg" for name in classes for i in range(19)])
    (folder / "photos/fig/0.jpg").rename(folder / f"photos/fig/{MARKUP}.jpg")
    run, config, quiet = Run(folder / "runs" / "photos"), load_config(None, SETTINGS), Console(quiet=True)
    features_stage(run, config, folder / "photos", quiet)
    for learner in ("oasis", "musl"):
        train_stage(run, config, learner, quiet)
    evaluate_stage(run, config, "oasis", quiet)
    return run


def _served(run):
    """Serve a run in a thread; yield its address."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        config = uvicorn.Config(service_app.create_app(run), log_level="critical", access_log=False, ws="none")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(scope="module")
def site(made):
    yield from _served(made)


@pytest.fixture(scope="module")
def browser():
    """One for this file: while it runs, an event loop does, too, which other tests need for themselves."""
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture(params=[{}])
def page(request, browser, site):
    """An empty page of the site; afterwards its console must hold no error but those expected (`page.refusals`)."""
    context = browser.new_context(base_url=site, **({"viewport": {"width": 1280, "height": 860}} | request.param))
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    errors = []
    page.refusals = 0
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("dialog", lambda dialog: (errors.append(dialog.message), dialog.dismiss()))
    yield page
    wait_until(page, PICTURES)
    while len(refused := [error for error in errors if error.startswith("Failed to load resource")]) < page.refusals:
        page.wait_for_event("console")
    context.close()
    assert [error for error in errors if error not in refused] == []
    assert len(refused) == page.refusals


phone = pytest.mark.parametrize(
    "page", [{"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True}], indirect=True
)


@pytest.fixture(scope="module")
def ids(made):
    """Path to id."""
    return {image.path: image.id for image in Searcher(made).images}


def wait_until(page, condition):
    """Wait for a condition in the page, whose policy forbids the eval that `wait_for_function` needs to ask twice."""
    page.evaluate(
        f"""() => new Promise((done, fail) => {{
            const end = performance.now() + {PATIENCE};
            const look = () => ({condition}) ? done()
                : performance.now() > end ? fail(new Error("not so in time")) : setTimeout(look, 10);
            look();
        }})"""
    )


def ranks(page):
    return [int(text) for text in page.locator("#results .card .rank").all_text_contents()]


def ask(page, number, more=""):
    page.goto(f"?id={number}{more}", wait_until="commit")
    page.locator("#results .rank").first.wait_for()  # not just a skeleton; asks more often than expect()


def problem(text, status):
    """What `route.fulfill` takes for an error of the service."""
    body = json.dumps({"ok": False, "error": text, "status": status})
    return {"status": status, "body": body, "content_type": "application/json"}


def photo(made):
    return made.folder.parents[1] / "photos" / "pear" / "3.jpg"


def test_a_click_on_a_sample_searches_with_it(page):
    page.goto("")
    samples = page.locator("#samples .card")
    expect(samples).to_have_count(12)
    name = samples.nth(4).locator(".name").text_content()
    samples.nth(4).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(name)
    expect(page.locator("#results .card")).to_have_count(48)
    assert ranks(page) == list(range(1, 49))
    expect(page.locator("#query")).to_contain_text(re.compile(r"Searched 7[56] images in \d"))
    expect(page.locator("#live")).to_contain_text("48 results by oasis")
    expect(page.locator("#results .card a.open").first).to_be_focused()  # keys act at once


def test_a_picked_file_has_an_address_that_lasts(page, made):
    page.goto("")
    with page.expect_file_chooser() as chosen:
        page.get_by_role("button", name="Choose an image").click()
    chosen.value.set_files(photo(made))
    expect(page.get_by_role("heading", level=1)).to_have_text("3.jpg")
    expect(page.locator("#results .rank").first).to_be_visible()  # not just a skeleton
    assert "upload=" in page.url
    first = page.locator("#results .card img").evaluate_all("nodes => nodes.map((node) => node.alt)")
    page.reload()
    expect(page.locator("#results .rank").first).to_be_visible()  # not just a skeleton
    assert page.locator("#results .card img").evaluate_all("nodes => nodes.map((node) => node.alt)") == first


@pytest.mark.parametrize("way", ["drop", "paste"])
def test_an_image_is_dropped_or_pasted(page, made, way):
    page.goto("")
    given = {"data": base64.b64encode(photo(made).read_bytes()).decode(), "way": way}
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
    expect(page.get_by_role("heading", level=1)).to_have_text("given.jpg")
    expect(page.locator("#dropping")).to_be_hidden()
    if way == "drop":
        assert page.evaluate("window.wasShown")


def test_a_file_that_is_no_image_is_refused_and_the_results_stay(page, ids, tmp_path):
    page.refusals = 1
    ask(page, ids["pear/1.jpg"])
    page.locator("#results .card").nth(40).scroll_into_view_if_needed()
    (tmp_path / "<b>notes.png").write_text("no image")
    page.locator("#file").set_input_files(tmp_path / "<b>notes.png")
    expect(page.get_by_role("alert")).to_contain_text("<b>notes.png: ")
    expect(page.get_by_role("button", name="Dismiss")).to_be_in_viewport()
    expect(page.get_by_role("button", name="Try again")).to_have_count(0)  # it would be no image again
    expect(page.locator("#results .card")).to_have_count(48)
    page.get_by_role("button", name="Dismiss").click()
    expect(page.get_by_role("alert")).to_be_empty()


def test_a_picture_that_cannot_be_kept_is_searched_with_all_the_same(page, made, ids):
    page.refusals = 1  # the picture itself
    [answer] = page.request.get(f"search?id={ids['pear/2.jpg']}&k=48").json()
    page.route(re.compile("/search$"), lambda route: route.fulfill(json=[answer]))  # it names no upload
    page.goto("")
    page.locator("#file").set_input_files(photo(made))
    expect(page.get_by_role("heading", level=1)).to_have_text("3.jpg")
    expect(page.locator("#results .card")).to_have_count(48)
    expect(page.locator("#notes")).to_contain_text("could not store this image")
    expect(page.locator("#query .word")).to_have_text("3.jpg")  # in place of the picture


@pytest.mark.parametrize(
    ("address", "words"), [("?id=99999", "no image 99999"), (f"?upload={64 * '0'}", "upload the picture again")]
)
def test_an_address_of_something_gone_says_what_to_do_and_leaves_the_start(page, address, words):
    page.refusals = 1
    page.goto(address)
    expect(page.get_by_role("alert")).to_contain_text(words)
    expect(page.locator("#results")).to_be_hidden()
    page.locator("#samples .card").first.click()
    expect(page.locator("#results .card")).to_have_count(48)
    expect(page.get_by_role("alert")).to_be_empty()


def test_a_service_that_comes_back_is_asked_again(page):
    page.refusals = 1
    page.route("**/api/run", lambda route: route.fulfill(**problem("too many requests", 429)))
    page.goto("")
    expect(page.get_by_role("alert")).to_contain_text("too many requests")
    page.unroute("**/api/run")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator("#samples .card")).to_have_count(12)
    expect(page.get_by_role("alert")).to_be_empty()


def test_results_stay_usable_when_the_next_question_fails(page, ids):
    page.refusals = 1
    ask(page, ids["pear/1.jpg"])
    page.route("**/search?*", lambda route: route.fulfill(**problem("too many requests", 429)))
    page.locator("#results .card").nth(3).get_by_role("button", name="Search with this image").click()
    expect(page.get_by_role("alert")).to_contain_text("too many requests")
    expect(page.get_by_role("heading", level=1)).to_have_text("pear/1.jpg")
    page.unroute("**/search?*")
    page.get_by_role("button", name="Load more").click()
    expect(page.locator("#results .card")).to_have_count(75)
    assert len(set(page.locator("#results .card").evaluate_all("nodes => nodes.map((node) => node.dataset.id)"))) == 75
    assert f"id={ids['pear/1.jpg']}" in page.url


def test_samples_that_come_late_leave_the_results_alone(page, made):
    held = []
    page.route("**/api/images?*", lambda route: held.append(route))
    page.goto("")
    page.locator("#file").set_input_files(photo(made))
    expect(page.locator("#results .card")).to_have_count(48)
    held[0].continue_()
    expect(page.locator("#samples .card")).to_have_count(12)
    page.get_by_role("button", name="Load more").click()
    expect(page.locator("#results .card")).to_have_count(76)
    expect(page.locator("#start")).to_be_hidden()


def test_a_search_that_is_cancelled_leaves_the_page_as_it_was(page):
    page.clock.install()
    page.goto("")
    page.route("**/search?*", lambda route: None)  # no answer ever
    page.locator("#samples .card").first.click()
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
    page.clock.fast_forward(2000)
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#start")).to_be_visible()
    expect(page.locator("#results")).to_be_hidden()
    expect(page.get_by_role("alert")).to_be_empty()


def test_markup_in_names_and_labels_stays_text(page, ids):
    ask(page, ids[f"fig/{MARKUP}.jpg"])
    expect(page.get_by_role("heading", level=1)).to_have_text(f"fig/{MARKUP}.jpg")
    page.get_by_label("Filter by label").select_option("<b>nut")
    expect(page.get_by_role("button", name="Remove filter: label: <b>nut")).to_be_visible()
    expect(page.locator("#results .labels").first).to_have_text("<b>nut")
    page.goto(f"?id={ids['fig/1.jpg']}&open={ids[f'fig/{MARKUP}.jpg']}&k=76")
    expect(page.locator("#viewer .path")).to_have_text(f"fig/{MARKUP}.jpg")
    assert page.locator("img[src=x], #main b").count() == 0


def test_more_results_are_loaded_and_back_restores_place_and_number(page, ids):
    ask(page, ids["plum/2.jpg"])
    page.get_by_role("button", name="Load more").click()
    expect(page.locator("#results .card")).to_have_count(75)
    assert ranks(page) == list(range(1, 76))
    expect(page.locator("#results .card").nth(48).locator("a.open")).to_be_focused()
    expect(page.get_by_text("All 75 results shown.")).to_be_visible()
    assert "k=96" in page.url
    page.locator("#results .card").nth(60).scroll_into_view_if_needed()
    wait_until(page, "scrollY > 500 && history.state.scroll === scrollY")
    before = page.evaluate("scrollY")
    page.locator("#results .card").nth(60).get_by_role("button", name="Search with this image").click()
    expect(page.locator("#results .card")).to_have_count(48)
    wait_until(page, "scrollY === 0")
    page.go_back()
    expect(page.locator("#results .card")).to_have_count(75)
    wait_until(page, f"Math.abs(scrollY - {before}) < 3")
    page.go_forward()
    expect(page.locator("#results .card")).to_have_count(48)


def test_a_result_can_be_opened_while_more_are_loaded(page, ids):
    held = []
    page.route("**/search?*offset=48*", lambda route: held.append(route))
    ask(page, ids["plum/2.jpg"])
    page.get_by_role("button", name="Load more").click()
    page.locator("#results .card a.open").first.click()
    expect(page.get_by_role("dialog")).to_be_visible()
    held[0].continue_()
    expect(page.locator("#results .card")).to_have_count(75)
    expect(page.get_by_role("dialog").locator(".counter")).to_have_text("1 / 75")


def test_keys_move_among_the_cards_and_one_card_is_a_tab_stop(page, ids):
    ask(page, ids["plum/2.jpg"])
    cards = page.locator("#results .card")
    assert page.locator('#results a.open[tabindex="0"]').count() == 1
    cards.first.locator("a.open").focus()
    page.keyboard.press("ArrowRight")
    expect(cards.nth(1).locator("a.open")).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(cards.nth(7).locator("a.open")).to_be_focused()
    page.keyboard.press("End")
    expect(cards.last.locator("a.open")).to_be_focused()
    page.keyboard.press("Home")
    expect(cards.first.locator("a.open")).to_be_focused()
    assert page.locator('#results a.open[tabindex="0"]').count() == 1
    query = page.get_by_role("heading", level=1).text_content()
    page.keyboard.press("s")
    expect(page.get_by_role("heading", level=1)).not_to_have_text(query)
    page.get_by_label("Filter by label").select_option("pear")  # 19 cards: the last row has one
    expect(cards.nth(19)).to_have_count(0)
    place = "node => [node.closest('.card').offsetLeft, node.closest('.card').offsetTop]"
    cards.nth(17).locator("a.open").focus()
    page.keyboard.press("End")
    left, top = page.locator(":focus").evaluate(place)
    page.keyboard.press("ArrowUp")
    now = page.locator(":focus").evaluate(place)
    assert now[0] == left
    assert now[1] < top


def test_filters_are_chips_that_can_be_taken_away(page, ids):
    ask(page, ids["plum/2.jpg"])
    page.get_by_label("Filter by label").select_option("pear")
    expect(page.locator("#results .card")).to_have_count(19)
    assert set(page.locator("#results .labels").all_text_contents()) == {"pear"}
    page.get_by_role("button", name="Remove filter: label: pear").click()
    expect(page.locator("#results .card")).to_have_count(48)
    expect(page.get_by_label("Filter by label")).to_be_focused()
    page.go_back()
    expect(page.locator("#results .card")).to_have_count(19)


def test_metrics_of_musl_are_tabs(page, ids):
    ask(page, ids["plum/2.jpg"], "&learner=musl")
    tabs = page.locator("#tabs button")
    assert tabs.count() >= 2
    number = int(re.search(r"\((\d+)\)", tabs.nth(1).text_content())[1])
    tabs.nth(1).click()
    expect(page.locator("#results .card")).to_have_count(number)
    expect(tabs.nth(1)).to_have_attribute("aria-pressed", "true")
    expect(tabs.nth(1)).to_be_focused()


def test_the_dialog_lies_over_the_grid_and_gives_the_focus_back(page, ids):
    ask(page, ids["plum/2.jpg"])
    card = page.locator("#results .card").nth(20)
    card.scroll_into_view_if_needed()
    kept = page.evaluate("scrollY")
    node = card.element_handle()
    card.locator("a.open").click()
    viewer = page.get_by_role("dialog")
    expect(viewer.get_by_role("heading", name="Result 21")).to_be_visible()
    expect(viewer.locator(".counter")).to_have_text("21 / 48")
    page.keyboard.press("ArrowRight")
    expect(viewer.locator(".counter")).to_have_text("22 / 48")
    page.keyboard.press("ArrowLeft")
    expect(viewer.locator(".counter")).to_have_text("21 / 48")
    page.keyboard.press("Escape")
    expect(viewer).to_be_hidden()
    expect(card.locator("a.open")).to_be_focused()
    assert abs(page.evaluate("scrollY") - kept) < 3
    assert node.evaluate("(node) => node.isConnected"), "the grid was drawn again"
    page.go_forward()
    expect(viewer.locator(".counter")).to_have_text("21 / 48")
    page.locator("#viewer").evaluate("(viewer) => viewer.close()")  # as browsers may, without asking
    expect(viewer).to_be_hidden()
    page.wait_for_url(lambda url: "open" not in url)
    expect(card.locator("a.open")).to_be_focused()
    page.go_forward()
    expect(viewer).to_be_visible()
    page.locator("#viewer .close").evaluate("(button) => { button.click(); button.click(); }")
    page.wait_for_url(lambda url: "open" not in url)
    expect(viewer).to_be_hidden()
    expect(page.locator("#results .card")).to_have_count(48)
    page.go_back()
    assert page.url == "about:blank"


def test_search_with_the_image_in_the_dialog(page, ids):
    ask(page, ids["plum/2.jpg"], f"&open={ids['plum/3.jpg']}&k=76")
    page.get_by_role("dialog").get_by_role("button", name="Search with this").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("plum/3.jpg")
    expect(page.get_by_role("dialog")).to_be_hidden()


def test_what_is_marked_in_the_dialog_can_be_undone_there(page, ids):
    ask(page, ids["fig/4.jpg"])
    page.locator("#results .card a.open").first.click()
    viewer = page.get_by_role("dialog")
    page.keyboard.press("x")
    pressed = viewer.get_by_role("button", name="Not relevant")
    expect(pressed).to_have_attribute("aria-pressed", "true")
    viewer.locator(".toast").get_by_role("button", name="Undo").click()
    expect(pressed).to_have_attribute("aria-pressed", "false")


def test_an_explanation_is_drawn_and_stands_in_a_table(page, ids):
    ask(page, ids["plum/2.jpg"])
    page.locator("#results .card a.open").first.focus()
    page.keyboard.press("e")
    viewer = page.get_by_role("dialog")
    expect(viewer.get_by_role("img", name=re.compile("heat map of the blocks that contribute"))).to_have_count(2)
    rows = viewer.locator("tbody tr")
    n = rows.count()
    assert 1 <= n <= 8
    assert viewer.locator(".overlay .pair").count() == 2 * n
    assert viewer.locator(".heat rect").count() > 0
    rows.first.focus()
    expect(viewer.locator(".pair.on")).to_have_count(2)
    expect(viewer.locator(".joined .joint")).to_be_visible()  # a line between the two
    page.keyboard.press("e")
    expect(viewer.locator(".overlay")).to_have_count(0)
    assert "explain" not in page.url
    page.keyboard.press("Escape")
    page.get_by_label("Ranked by").select_option("musl")
    expect(page.locator("#live")).to_contain_text("results by musl")
    page.locator("#results .card a.open").first.focus()
    page.keyboard.press("e")
    expect(viewer).to_contain_text(re.compile(r"The metric of this result compares \d+ visterms?: \d+ agree"))


def test_two_learners_side_by_side(page, ids):
    ask(page, ids["plum/2.jpg"])
    page.get_by_label("Compare with").select_option("cosine")
    expect(page.locator("#summary")).to_have_text(
        re.compile(r"Top 20: \d+ same rank, \d+ up, \d+ down, \d+ new; overlap \d+ of 20")
    )
    numbers = [int(text) for text in re.findall(r"\d+", page.locator("#summary").text_content())]
    assert sum(numbers[1:5]) == 20
    expect(page.locator(".versus tbody tr")).to_have_count(20)
    moved = page.locator(".versus .moved").all_text_contents()
    assert [sum(word in text for text in moved) for word in ("same", "up", "down", "new")] == numbers[1:5]
    page.get_by_label("Ranked by").select_option("musl")
    expect(page.locator(".versus thead")).to_contain_text("musl")
    page.locator(".versus tbody a").first.click()
    expect(page.get_by_role("dialog")).to_contain_text("Result 1")
    page.keyboard.press("Escape")
    expect(page.locator(".versus tbody a").first).to_be_focused()
    page.keyboard.press("x")
    expect(page.locator(".versus tbody td").first).to_contain_text("not relevant")
    page.keyboard.press("Backspace")
    expect(page.locator(".versus tbody td").first).not_to_contain_text("not relevant")
    expect(page.locator(".versus tbody a").first).to_be_focused()
    page.go_back()
    expect(page.locator(".versus thead")).to_contain_text("oasis")
    page.go_back()
    expect(page.locator("#results .card")).to_have_count(48)


def test_the_figures_of_the_run(page):
    page.goto("?view=figures")
    expect(page.get_by_role("img", name="Precision at k of oasis; the table below lists the values")).to_be_visible()
    expect(page.locator(".chart text", has_text="mAP")).to_have_count(3)  # oasis, cosine, chance
    assert page.locator('.chart [stroke="#0b5cad"]').count() > 1  # the learner's colour, which the style sheet knows
    expect(page.get_by_role("row", name=re.compile("^oasis"))).to_contain_text(re.compile(r"0\.\d{3}"))


def test_marks_are_kept_taken_back_and_undone(page, ids):
    ask(page, ids["fig/2.jpg"])
    cards = page.locator("#results .card")
    cards.first.locator("a.open").focus()
    page.keyboard.press("a")
    relevant = cards.first.get_by_role("button", name="Relevant", exact=True)
    expect(relevant).to_have_attribute("aria-pressed", "true")
    expect(cards.first.locator("img")).to_have_attribute("alt", re.compile("marked relevant$"))
    cards.nth(1).get_by_role("button", name="Not relevant").click()
    expect(page.locator("#marks")).to_contain_text("1 relevant, 1 not relevant")
    expect(page.locator("#marks .status")).to_have_text("Saved")
    page.reload()
    expect(relevant).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#marks .tray li")).to_have_count(2)
    page.keyboard.press("Control+z")
    expect(page.locator("#marks")).to_contain_text("1 relevant, 0 not relevant")
    expect(page.get_by_role("button", name="Update ranking")).to_be_disabled()
    relevant.click()
    expect(relevant).to_have_attribute("aria-pressed", "false")
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(relevant).to_have_attribute("aria-pressed", "true")
    page.get_by_role("button", name="Clear marks").click()
    expect(page.locator("#marks .tray li")).to_have_count(0)
    expect(page.locator(".toast")).to_contain_text("1 mark cleared")
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(page.locator("#marks .tray li")).to_have_count(1)


def test_undo_in_a_message_is_of_the_query_that_it_speaks_of(page, ids):
    ask(page, ids["fig/5.jpg"])
    cards = page.locator("#results .card")
    cards.first.get_by_role("button", name="Relevant", exact=True).click()
    undo = page.locator(".toast").get_by_role("button", name="Undo")
    expect(undo).to_be_visible()
    cards.nth(1).get_by_role("button", name="Search with this image").click()
    expect(page.get_by_role("heading", level=1)).not_to_have_text("fig/5.jpg")
    undo.click()
    expect(page.locator(".toast")).to_have_text("Last mark undone.")
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_have_text("fig/5.jpg")
    cards.nth(1).get_by_role("button", name="Not relevant").click()
    expect(page.locator("#marks .status")).to_have_text("Saved")
    expect(page.locator("#marks")).to_contain_text("0 relevant, 1 not relevant")  # the first mark is gone


def test_a_mark_made_while_the_marks_are_read_stays(page, ids):
    held = []
    page.route("**/marks?*", lambda route: held.append(route))
    with page.expect_request("**/marks?*"):
        ask(page, ids["fig/6.jpg"])
    button = page.locator("#results .card").first.get_by_role("button", name="Relevant", exact=True)
    expect(button).to_have_attribute("aria-pressed", "false")
    [route] = held
    answer = route.fetch()
    button.click()
    route.fulfill(response=answer)
    expect(page.locator("#marks .status")).to_have_text("Saved")
    expect(button).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#marks")).to_contain_text("1 relevant, 0 not relevant · 1 not used yet")


def test_a_mark_that_cannot_be_kept_is_rolled_back(page, ids):
    page.refusals = 3
    ask(page, ids["fig/3.jpg"])
    page.route("**/marks", lambda route: route.fulfill(**problem("the disk is full", 507)))
    card = page.locator("#results .card").first
    button, other = (card.get_by_role("button", name=name, exact=True) for name in ("Relevant", "Not relevant"))
    card.evaluate("(node) => { for (const name of ['relevant', 'not']) node.querySelector(`.mark.${name}`).click(); }")
    expect(page.locator("#marks .status")).to_contain_text("the disk is full")
    expect(other).to_have_attribute("aria-pressed", "false")
    expect(button).to_have_attribute("aria-pressed", "false")
    button.click()
    expect(page.locator(".toast")).to_contain_text("the disk is full")
    expect(button).to_have_attribute("aria-pressed", "false")
    page.unroute("**/marks")
    page.get_by_role("button", name="Retry").click()
    expect(button).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#marks .status")).to_have_text("Saved")


def test_an_update_moves_the_ranking_and_can_be_compared_undone_and_reset(page, made, ids, tmp_path):
    run = Run(tmp_path / "photos")
    shutil.copytree(made.folder, run.folder)
    own = _served(run)
    address = next(own)
    try:
        number = ids["fig/2.jpg"]
        page.goto(f"{address}?id={number}")
        cards = page.locator("#results .card")
        expect(cards).to_have_count(48)
        for i in (0, 1, 2):
            cards.nth(i).get_by_role("button", name="Not relevant").click()
        for i in (12, 13, 14, 15):
            cards.nth(i).get_by_role("button", name="Relevant", exact=True).click()
        expect(page.locator("#marks")).to_contain_text("4 relevant, 3 not relevant · 7 not used yet")
        expect(page.locator("#marks .status")).to_have_text("Saved")
        cards.first.locator("a.open").focus()
        page.keyboard.press("u")
        note = page.locator("#notes .note")
        expect(note).to_contain_text(re.compile("Model 0 to 1: learned from|model 0 kept"))
        assert "Model 0 to 1" in note.text_content()
        expect(note).to_contain_text(re.compile(r"4 relevant, 3 not relevant, \d+ ms\. .*top 20"))
        expect(page.locator("#query")).to_contain_text("oasis, model 1")
        expect(page.locator("#marks")).not_to_contain_text("not used yet")
        note.get_by_role("button", name="Compare").click()
        expect(page.locator(".versus thead")).to_contain_text("before (oasis)")
        page.go_back()
        page.get_by_label("Filter by label").select_option("pear")  # the ranking before was of all labels
        expect(page.locator("#results .card")).to_have_count(19)
        expect(page.locator("#with option[value=before]")).to_have_count(0)
        page.go_back()
        expect(page.locator("#with option[value=before]")).to_have_count(1)
        note.get_by_role("button", name="Undo").click()
        expect(note).to_contain_text("Update undone: results are ranked by oasis again")
        expect(page.locator("#query")).not_to_contain_text("model 1")
        expect(page.locator("#marks")).to_contain_text("7 not used yet")
        held = []
        page.route("**/feedback/update", lambda route: held.append(route))
        page.get_by_role("button", name="Update ranking").click()
        expect(note).to_contain_text("Updating the model")
        page.get_by_role("link", name="Clear").click()
        expect(page.locator("#start")).to_be_visible()
        held[0].continue_()
        page.unroute("**/feedback/update")
        expect(page.locator(".toast")).to_contain_text("learned from 4 relevant, 3 not relevant")
        page.go_back()
        expect(page.locator("#query")).to_contain_text("oasis, model 2")
        # What changed elsewhere is seen on the way back, too.
        cards.first.get_by_role("button", name="Search with this image").click()
        expect(page.get_by_role("heading", level=1)).not_to_have_text("fig/2.jpg")
        page.request.post(f"{address}feedback/undo", data={"learner": "oasis"})
        cards.first.get_by_role("button", name="Search with this image").click()
        expect(page.locator("#query")).not_to_contain_text("model 2")
        with page.expect_request(f"**/search?id={number}&*"):
            page.evaluate("history.go(-2)")
        expect(page.get_by_role("heading", level=1)).to_have_text("fig/2.jpg")
        page.get_by_role("button", name="Update ranking").click()
        expect(note).to_contain_text("learned from 4 relevant, 3 not relevant")
        page.locator("#options summary").click()
        page.get_by_role("button", name="Reset to base model").click()
        page.get_by_role("dialog").get_by_role("button", name="Reset").click()
        expect(note).to_contain_text("reset to its base model")
        expect(page.locator("#query")).not_to_contain_text("model")
    finally:
        page.goto("about:blank")
        own.close()


def test_the_sheet_of_keys_is_the_table_of_keys_and_turns_them_off(page, ids):
    ask(page, ids["plum/2.jpg"])
    page.keyboard.press("?")
    sheet = page.locator("#keys")
    table = (WEB / "keys.js").read_text().split("const JUDGE")[0]
    assert sheet.locator("kbd").all_text_contents() == re.findall(r'shown: "([^"]+)"', table)
    sheet.get_by_label("Enable single-key shortcuts").uncheck()
    sheet.get_by_role("button", name="Close").click()
    page.locator("#results .card a.open").first.focus()
    page.keyboard.press("a")
    expect(page.locator("#marks")).to_be_hidden()  # marks show at once, before they are saved
    page.keyboard.press("?")
    sheet.get_by_label("Enable single-key shortcuts").check()
    sheet.get_by_role("button", name="Close").click()
    page.locator("#results .card a.open").first.focus()
    page.keyboard.press("a")
    expect(page.locator("#marks .status")).to_have_text("Saved")


@phone
def test_nothing_is_wider_than_a_phone(page, ids):
    number, other = ids["plum/2.jpg"], ids["plum/3.jpg"]
    for address, drawn in {
        "": "#samples .card",
        f"?id={number}&with=cosine": ".versus tbody tr",
        f"?id={number}&learner=musl": "#tabs button",
        f"?id={number}&k=76&open={other}": "#viewer .stage img",
        f"?id={number}&k=76&open={other}&explain=1": "#viewer .explanation table",
        "?view=figures": ".chart",
        "judge": "#stage form",
        f"?id={number}": "#results .rank",
    }.items():
        page.goto(address)
        expect(page.locator(drawn).first).to_be_visible()
        wait_until(page, PICTURES)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, address
    for name in ("Relevant", "Search with this image"):
        box = page.locator("#results .card").first.get_by_role("button", name=name, exact=True).bounding_box()
        assert box["height"] >= 44
    columns = page.locator("#results .card").evaluate_all("nodes => new Set(nodes.map((node) => node.offsetLeft)).size")
    assert columns == 2


@pytest.mark.parametrize("page", [{"color_scheme": "dark"}], indirect=True)
def test_colours_follow_the_system_until_they_are_chosen(page):
    page.goto("")
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(ground)
    page.get_by_role("button", name=re.compile("Theme: system")).click()
    light = page.evaluate(ground)
    assert sum(map(int, re.findall(r"\d+", light)[:3])) > 600 > 150 > sum(map(int, re.findall(r"\d+", dark)[:3]))
    page.reload()
    assert page.evaluate(ground) == light


def test_every_control_has_a_name_and_results_are_an_ordered_list(page, ids):
    ask(page, ids["plum/2.jpg"], f"&open={ids['plum/3.jpg']}&k=76")
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("button, select, input:not([hidden]), a")]
            .filter((node) => !(node.textContent.trim() || node.ariaLabel || node.labels?.length
                || node.querySelector("img[alt]:not([alt=''])"))).map((node) => node.outerHTML)"""
    )
    assert unnamed == []
    assert page.locator("#results > ol.grid > li").count() == 75
    assert page.locator("#results img:not([alt]), #results img[alt='']").count() == 0


def test_the_files_hold_no_inline_code_and_set_no_markup():
    for file in WEB.glob("*.html"):
        text = file.read_text()
        assert not re.search(r"<style|\sstyle=|\son\w+=|<script[^>]*>[^<]", text), file
        assert "http:" not in text
        assert "https:" not in text
    for file in WEB.glob("*.js"):
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", file.read_text()), file


def test_a_judge_decides_undoes_and_sees_the_results(page, made):
    searcher = Searcher(made)
    tasks = draw_tasks(searcher, "oasis", n_queries=2, k=3, n_random=2)
    Judgements(made.folder / "judgements.sqlite").create(tasks, learner="oasis", version="0")
    page.goto("judge")
    page.get_by_label("Your name").fill("<i>Ada")
    page.get_by_role("button", name="Start").click()
    expect(page.locator(".count")).to_have_text("0 / 10")
    expect(page.locator(".duel img")).to_have_count(2)
    # Paths name the class: judges get pictures only.
    expect(page.locator(".duel img").nth(0)).to_have_attribute("alt", "Query image")
    expect(page.locator(".duel img").nth(1)).to_have_attribute("alt", "Image 1 of 10")
    first = page.locator(".duel img").nth(1).get_attribute("src")
    page.keyboard.down("a")
    expect(page.locator(".count")).to_have_text("1 / 10")
    page.keyboard.down("a")  # held: it counts once
    page.keyboard.up("a")
    assert page.locator(".duel img").nth(1).get_attribute("src") != first
    page.keyboard.press("Backspace")
    expect(page.locator(".count")).to_have_text("0 / 10")
    expect(page.locator(".duel img").nth(1)).to_have_attribute("src", first)
    for i, key in enumerate(["a", "x", " ", "a", "x"], start=1):
        page.keyboard.press(key)
        expect(page.locator(".count")).to_have_text(f"{i} / 10")
    page.reload()
    expect(page.locator(".count")).to_have_text("5 / 10")
    expect(page.locator("#stage")).to_contain_text("Query 2 of 2")
    for i in range(6, 10):
        page.get_by_role("button", name="Relevant", exact=False).first.click()
        expect(page.locator(".count")).to_have_text(f"{i} / 10")
        expect(page.get_by_role("button", name="Relevant", exact=False).first).to_be_focused()
    page.keyboard.press("x")
    expect(page.get_by_role("heading", name="Done. Thank you!")).to_be_visible()
    row = page.get_by_role("row", name=re.compile("Ada"))
    expect(row.get_by_role("rowheader")).to_have_text("<i>Ada")
    expect(row).to_contain_text("10 / 10")
