"""The page in a real browser: two learners, figures, marks, updates, keys, looks; and the page of judges."""

import re
from pathlib import Path

import pytest

pytest.importorskip("playwright.sync_api", reason="the browser tests need playwright")

from playwright.sync_api import expect

from visterm.pipeline.search.searcher import Searcher
from visterm.plugins.judge.judgements import Judgements
from visterm.plugins.judge.tasks import draw_tasks
from visterm.service import app as service_app

WEB = Path(service_app.__file__).parent / "web"


@pytest.mark.slow
def test_two_learners_side_by_side(page, ids):
    page.ask(ids["plum/2.jpg"])
    page.options()
    page.get_by_label("Compare with").select_option("cosine")
    expect(page.locator("#summary")).to_have_text(
        re.compile(r"Top 20: \d+ same rank, \d+ up, \d+ down, \d+ new; overlap \d+ of 20")
    )
    numbers = [int(text) for text in re.findall(r"\d+", page.locator("#summary").text_content())]
    assert sum(numbers[1:5]) == 20
    expect(page.locator(".versus tbody tr")).to_have_count(20)
    moved = page.locator(".versus .moved").all_text_contents()
    assert [sum(word in text for text in moved) for word in ("same", "up", "down", "new")] == numbers[1:5]
    page.options()
    page.get_by_label("Ranked by").select_option("musl")
    expect(page.locator(".versus thead")).to_contain_text("MuSL")
    page.keyboard.press("Escape")
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
    expect(page.locator(".versus thead")).to_contain_text("OASIS")
    page.go_back()
    expect(page.tile(0)).to_be_visible()


@pytest.mark.parametrize("name", ["Not relevant", "Clear marks"])
def test_a_button_pressed_while_another_mark_is_kept_is_clicked(page, ids, name):
    page.ask(ids["fig/2.jpg"])
    page.tile(2).locator("a.open").focus()
    page.keyboard.press("a")
    expect(page.locator("#marks .status")).to_have_text("Saved")
    held = []
    page.route("**/marks", lambda route: held.append(route), times=1)
    page.tile(0).locator("a.open").focus()
    with page.expect_request("**/marks"):
        page.keyboard.press("a")
    place, counts = {
        "Not relevant": (page.tile(1), "2 relevant, 1 not relevant"),
        "Clear marks": (page.locator("#marks"), "0 relevant, 0 not relevant"),
    }[name]
    place.get_by_role("button", name=name).hover()
    page.mouse.down()
    held[0].continue_()
    expect(page.locator("#marks .status")).to_have_text("Saved")
    page.mouse.up()
    expect(page.locator("#marks")).to_contain_text(counts)


def test_marks_are_kept_taken_back_and_undone(page, ids):
    page.ask(ids["fig/2.jpg"])
    cards = page.locator("#results .tile[data-index]")
    cards.first.locator("a.open").focus()
    page.keyboard.press("a")
    relevant = cards.first.get_by_role("button", name="Relevant", exact=True)
    expect(relevant).to_have_attribute("aria-pressed", "true")
    expect(cards.first.locator("img")).to_have_attribute("alt", re.compile("marked relevant$"))
    page.tile(1).get_by_role("button", name="Not relevant").click()
    expect(page.locator("#marks")).to_contain_text("1 relevant, 1 not relevant")
    expect(page.locator("#marks .status")).to_have_text("Saved")
    page.reload()
    expect(relevant).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#marks .tray li")).to_have_count(2)
    page.keyboard.press("Control+z")
    expect(page.locator("#marks")).to_contain_text("1 relevant, 0 not relevant")
    expect(page.locator("#marks")).to_contain_text("Mark one result as not relevant, too")
    expect(page.get_by_role("button", name="Update ranking")).to_have_count(0)
    relevant.click()
    expect(relevant).to_have_attribute("aria-pressed", "false")
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(relevant).to_have_attribute("aria-pressed", "true")
    page.get_by_role("button", name="Clear marks").click()
    expect(page.locator("#marks .tray li")).to_have_count(0)
    expect(page.locator(".toast")).to_contain_text("1 mark cleared")
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(page.locator("#marks .tray li")).to_have_count(1)


@pytest.mark.slow
def test_marks_on_a_flat_folder_teach_from_the_first_on(page, flat, serving):
    with serving(flat) as client:
        page.goto(f"{client.base_url}?id=1")
        results = page.results()
        expect(page.locator("#marks")).to_be_hidden()
        page.tile(0).get_by_role("button", name="Not relevant").click()
        page.tile(9).get_by_role("button", name="Relevant", exact=True).click()
        expect(page.locator("#marks .status")).to_have_text("Saved")
        page.keyboard.press("u")
        notes = page.locator("#notes")
        expect(notes).to_contain_text("Learned from your 2 marks (1 relevant, 1 not relevant)")
        expect(notes).to_contain_text("No photo has a label, so nothing could be measured")
        learned = page.results()
        assert learned.index(results[9]) < 9
        page.reload()
        assert page.results() == learned
        page.options(advanced=True)
        expect(page.locator("#options")).to_contain_text("model 1, 2 marks used since training")
        page.keyboard.press("Escape")
        page.tile(1).get_by_role("button", name="Relevant", exact=True).click()
        page.get_by_role("button", name="Update ranking").click()
        expect(notes).to_contain_text("Learned from your 1 mark")
        notes.get_by_role("button", name="Undo").click()
        expect(notes).to_contain_text("Update undone")
        assert page.results() == learned


@pytest.mark.slow
def test_undo_in_a_message_is_of_the_query_that_it_speaks_of(page, ids):
    page.ask(ids["fig/5.jpg"])
    cards = page.locator("#results .tile[data-index]")
    cards.first.get_by_role("button", name="Relevant", exact=True).click()
    undo = page.locator(".toast").get_by_role("button", name="Undo")
    expect(undo).to_be_visible()
    page.tile(1).get_by_role("button", name="Search with this").click()
    expect(page.get_by_role("heading", level=1)).not_to_have_text("fig/5.jpg")
    undo.click()
    expect(page.locator(".toast")).to_have_text("Last mark undone.")
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_have_text("fig/5.jpg")
    page.tile(1).get_by_role("button", name="Not relevant").click()
    expect(page.locator("#marks .status")).to_have_text("Saved")
    expect(page.locator("#marks")).to_contain_text("0 relevant, 1 not relevant")  # the first mark is gone


@pytest.mark.slow
def test_a_mark_made_while_the_marks_are_read_stays(page, ids):
    held = []
    page.route("**/marks?*", lambda route: held.append(route))
    with page.expect_request("**/marks?*"):
        page.ask(ids["fig/6.jpg"])
    button = page.locator("#results .tile[data-index]").first.get_by_role("button", name="Relevant", exact=True)
    expect(button).to_have_attribute("aria-pressed", "false")
    [route] = held
    answer = route.fetch()
    button.click()
    route.fulfill(response=answer)
    expect(page.locator("#marks .status")).to_have_text("Saved")
    expect(button).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#marks")).to_contain_text("1 relevant, 0 not relevant · 1 not used yet")


@pytest.mark.slow
def test_saved_is_said_when_all_are(page, ids):
    page.ask(ids["fig/2.jpg"])
    held = []
    page.route("**/marks", lambda route: held.append(route))
    with page.expect_request("**/marks"):
        for index in (0, 1):
            page.tile(index).get_by_role("button", name="Not relevant").click()
    status = page.locator("#marks .status")
    expect(status).to_have_text("Saving …")
    with page.expect_request("**/marks"):
        held.pop().continue_()
    expect(status).to_have_text("Saving …")
    held.pop().continue_()
    expect(status).to_have_text("Saved")
    page.unroute("**/marks")
    page.get_by_role("button", name="Clear marks").click()  # other tests mark the same run
    expect(page.locator("#marks .tray li")).to_have_count(0)
    expect(status).to_have_text("Saved")


@pytest.mark.slow
def test_a_mark_that_cannot_be_kept_is_rolled_back(page, ids):
    page.refusals = 3
    page.ask(ids["fig/3.jpg"])
    page.route("**/marks", lambda route: page.refuse(route, "the disk is full", 507))
    card = page.locator("#results .tile[data-index]").first
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


@pytest.mark.slow
def test_an_update_moves_the_ranking_and_can_be_compared_undone_and_reset(page, serving, own_shown, ids):
    with serving(own_shown) as client:
        address = client.base_url
        number = ids["fig/2.jpg"]
        page.goto(f"{address}/?id={number}")
        cards = page.locator("#results .tile[data-index]")
        expect(page.tile(16)).to_be_attached()
        for index, name in [*((i, "Not relevant") for i in (0, 1, 2)), *((i, "Relevant") for i in (12, 13, 14, 15))]:
            button = page.tile(index).get_by_role("button", name=name, exact=True)
            button.click()
            expect(button).to_have_attribute("aria-pressed", "true")
        expect(page.locator("#marks")).to_contain_text("4 relevant, 3 not relevant · 7 not used yet")
        expect(page.locator("#marks .status")).to_have_text("Saved")
        cards.first.locator("a.open").focus()
        page.keyboard.press("u")
        note = page.locator("#notes .note")
        expect(note).to_contain_text(re.compile("Learned from your|model 0 kept"))
        assert "Learned from your" in note.text_content()
        expect(note).to_contain_text(re.compile(r"7 marks \(4 relevant, 3 not relevant\) in [\d.]+ m?s\. .*top 20"))
        expect(page.locator("#query")).to_contain_text("(OASIS), model 1")
        expect(page.locator("#marks")).not_to_contain_text("not used yet")
        note.get_by_role("button", name="Compare").click()
        expect(page.locator(".versus thead")).to_contain_text("before (Learned similarity (OASIS))")
        page.go_back()
        page.filter_by("pear")  # the ranking before was of all labels
        expect(page.locator("#end")).to_have_text("All 19 results shown.")
        page.options()
        before = page.get_by_label("Compare with").locator("option[value=before]")
        expect(before).to_have_count(0)
        page.go_back()
        expect(page.locator("#end")).to_have_text("All 75 results shown.")
        expect(before).to_have_count(1)
        page.keyboard.press("Escape")
        note.get_by_role("button", name="Undo").click()
        expect(note).to_contain_text("Update undone: results are ranked by Learned similarity (OASIS) again")
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
        expect(page.locator(".toast")).to_contain_text("(4 relevant, 3 not relevant)")
        page.go_back()
        expect(page.locator("#query")).to_contain_text("(OASIS), model 2")
        # What changed elsewhere is seen on the way back, too.
        cards.first.get_by_role("button", name="Search with this").click()
        expect(page.get_by_role("heading", level=1)).not_to_have_text("fig/2.jpg")
        page.request.post(f"{address}/feedback/undo", data={"learner": "oasis"})
        other = page.locator("#results .tile[data-index]").filter(has_not=page.locator(f'a[href*="open={number}"]'))
        other.first.get_by_role("button", name="Search with this").click()  # the page still has the ranking of fig/2
        expect(page.locator("#query")).not_to_contain_text("model 2")
        with page.expect_request(f"**/search?id={number}&*"):
            page.evaluate("history.go(-2)")
        expect(page.get_by_role("heading", level=1)).to_have_text("fig/2.jpg")
        page.get_by_role("button", name="Update ranking").click()
        expect(note).to_contain_text("(4 relevant, 3 not relevant)")
        page.options()
        page.get_by_role("button", name="Reset to base model").click()
        page.get_by_role("dialog").get_by_role("button", name="Reset").click()
        expect(note).to_contain_text("reset to its base model")
        expect(page.locator("#query")).not_to_contain_text("model")


@pytest.mark.slow
def test_the_sheet_of_keys_is_the_table_of_keys_and_turns_them_off(page, ids):
    page.ask(ids["plum/2.jpg"])
    page.keyboard.press("?")
    sheet = page.locator("#keys")
    table = (WEB / "core/keys.js").read_text().split("const JUDGE")[0]
    assert sheet.locator("kbd").all_text_contents() == re.findall(r'shown: "([^"]+)"', table)
    sheet.get_by_label("Enable single-key shortcuts").uncheck()
    sheet.get_by_role("button", name="Close").click()
    page.locator("#results .tile[data-index] a.open").first.focus()
    page.keyboard.press("a")
    expect(page.locator("#marks")).to_be_hidden()  # marks show at once, before they are saved
    page.keyboard.press("?")
    sheet.get_by_label("Enable single-key shortcuts").check()
    sheet.get_by_role("button", name="Close").click()
    page.locator("#results .tile[data-index] a.open").first.focus()
    page.keyboard.press("a")
    expect(page.locator("#marks .status")).to_have_text("Saved")


@pytest.mark.slow
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


def test_the_files_hold_no_inline_code_and_set_no_markup():
    for file in WEB.glob("*.html"):
        text = file.read_text()
        assert not re.search(r"<style|\sstyle=|\son\w+=|<script[^>]*>[^<]", text), file
        assert "http:" not in text
        assert "https:" not in text
    for file in WEB.rglob("*.js"):
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", file.read_text()), file


@pytest.mark.slow
def test_a_judge_decides_undoes_and_sees_the_results(page, shown):
    searcher = Searcher(shown)
    tasks = draw_tasks(searcher, "oasis", n_queries=2, k=3, n_random=2)
    Judgements(shown.folder / "judgements.sqlite").create(tasks, learner="oasis", version="0")
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
