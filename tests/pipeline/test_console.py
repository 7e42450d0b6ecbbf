"""What long phases say, on a clock of the test."""

import logging
import sys
import warnings

import numba
import pytest

from visterm.pipeline import console
from visterm.pipeline.console import Console, numbers_apart, told_of_compiling


@pytest.fixture
def clock(monkeypatch):
    """Seconds that the console reads; a test moves them."""
    seconds = [1000.0]
    monkeypatch.setattr(console, "perf_counter", lambda: seconds[0])
    return seconds


def work(phase, clock, start, end, total, note=""):
    """Do one step per second."""
    for done in range(start + 1, end + 1):
        clock[0] += 1
        phase.advance_to(done, total, note)


def test_a_line_every_half_minute_without_bars(clock, capsys):
    with Console(progress=False).phase("training oasis on 3,409 images", unit="steps") as phase:
        work(phase, clock, 0, 29, 200)
        assert capsys.readouterr().err.splitlines() == ["training oasis on 3,409 images ..."]
        work(phase, clock, 29, 90, 200, "validation mAP 0.512")
    assert capsys.readouterr().err.splitlines() == [
        "training oasis on 3,409 images: 15 %, 2 min 50 s left, validation mAP 0.512",
        "training oasis on 3,409 images: 30 %, 2 min 20 s left, validation mAP 0.512",
        "training oasis on 3,409 images: 45 %, 1 min 50 s left, validation mAP 0.512",
        "training oasis on 3,409 images: 1 min 30 s",
    ]
    with Console(progress=False).phase("reading", unit="images") as phase:
        work(phase, clock, 0, 30, None, "2 skipped")
    assert capsys.readouterr().err.splitlines()[1] == "reading: 30 images, 2 skipped"


def test_steps_of_an_interrupted_command_took_no_time(clock, capsys):
    with Console(progress=False).phase("training") as phase:
        phase.start_at(60)
        clock[0] += 30
        phase.advance_to(60, 100)
        work(phase, clock, 60, 90, 100)
    assert capsys.readouterr().err.splitlines()[1:-1] == ["training: 60 %", "training: 90 %, 10.0 s left"]


@pytest.mark.parametrize("bars", [False, True])
def test_the_first_step_compiles_and_does_not_count_for_the_time_left(clock, capsys, monkeypatch, bars):
    monkeypatch.setattr("tqdm.std.time", lambda: clock[0])
    with Console(progress=bars).phase("extracting", 1000) as phase:
        clock[0] += 40
        phase.advance_to(1)
        work(phase, clock, 1, 101, 1000)
        shown = str(phase._bar) if bars else capsys.readouterr().err.splitlines()[-1]
    assert ("14:59" if bars else "extracting: 9 %, 15 min 9 s left") in shown


def test_a_notebook_has_bars(monkeypatch, capsys):
    assert not Console().bars
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    with warnings.catch_warnings(action="ignore"), Console().phase("training", 100) as phase:  # of tqdm: no widgets
        phase.advance_to(30)
    assert "training:" in capsys.readouterr().err
    assert not Console(quiet=True).bars


@pytest.mark.parametrize("options", [{"quiet": True}, {"quiet": True, "progress": True}])
def test_quiet(clock, capsys, options):
    with Console(**options).phase("training") as phase:
        work(phase, clock, 0, 90, 100)
    assert capsys.readouterr().err == ""


def test_phases_within_a_phase(clock, capsys):
    with (shown := Console(progress=True)).phase("outside") as outer:
        with shown.phase("inside") as inner:
            inner.advance_to(1, 2)
        outer.advance_to(1, 2)
        assert shown._bar is not None
    assert shown._bar is None


def test_a_bar_instead_of_lines(clock, capsys):
    """A line in between is not written at the end of the bar."""
    shown = Console(progress=True)
    with shown.phase("training", unit="steps") as phase:
        phase.start_at(50)
        work(phase, clock, 50, 90, 100)
        shown.say("saving the checkpoint ...")
    drawn = capsys.readouterr().err
    assert "training: 30 %" not in drawn
    assert drawn.split("\n")[-3].split("\r")[-1] == "saving the checkpoint ..."


def test_cells_that_a_spreadsheet_would_compute_or_not_decode():
    cells = ["=1+1", "@SUM", "-x/1.jpg", "+7", "-0.25", "-1e-05", "a=b", "", "caf\udce9.jpg", 3]
    assert console.csv_cells(cells) == [
        "'=1+1",
        "'@SUM",
        "'-x/1.jpg",
        "+7",
        "-0.25",
        "-1e-05",
        "a=b",
        "",
        "caf\\xe9.jpg",
        3,
    ]


def test_compiling_is_told_once(capsys):
    with told_of_compiling(Console(progress=False)):
        numba.njit(lambda x: x + 1)(1)
        numba.njit(lambda x: x + 2)(1)
    numba.njit(lambda x: x + 3)(1)
    assert (
        capsys.readouterr().err
        == "compiling kernels, up to half a minute, once after an installation or an update ...\n"
    )


@pytest.mark.parametrize(
    ("value", "other", "texts"),
    [
        (0.92, 0.91, ("0.920", "0.910")),
        (0.9212, 0.9214, ("0.9212", "0.9214")),
        (0.5, 0.5 + 1e-9, ("0.500000", "0.500000")),
        (float("nan"), 0.5, ("nan", "0.500")),
    ],
)
def test_numbers_of_which_one_is_called_better_read_apart(value, other, texts):
    assert numbers_apart(value, other) == texts


def test_an_error_that_nobody_foresaw_is_shown_with_its_place(capsys):
    Console(quiet=True)
    for name in ("x", "x", "y"):
        try:
            {}[name]
        except KeyError:
            logging.getLogger("visterm.service").exception("GET /explain")
    shown = capsys.readouterr().err
    assert [line for line in shown.splitlines() if line.startswith("warning")] == [
        "warning: GET /explain: KeyError('x')",
        "warning: GET /explain: KeyError('y')",
    ]
    assert shown.count("test_console.py") == 2
