"""In a real browser, a leaderboard page shows the rows and neighbours that Python computed."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

import fastcos
from fastcos import compare, compare_vectors, get_measure, simulate_interactions, top_k
from fastcos.plots.html import leaderboard_page
from tests.plots.browser import HOSTILE, check_silent, load, resize, text, wait


@pytest.fixture
def page(browser, compared, tmp_path):
    data, comparison = compared
    load(
        browser, leaderboard_page(comparison.leaderboard, labels=data.item_cluster.tolist()),
        tmp_path, ready="leaderboard",
    )  # fmt: skip
    return comparison


def shown(browser):
    return browser.execute_script("return leaderboard.shown()")


def test_rows_are_sorted_and_filtered(browser, page):
    board = page.leaderboard
    best = {row.candidate for row in board.best_per_measure()} | {board.baseline}
    expected = [row.score.value for row in board.rows if row.candidate in best]
    scores = [row["columns"]["score"] for row in shown(browser)]
    assert scores == pytest.approx(sorted(expected, reverse=True), abs=1e-6)
    browser.execute_script("document.getElementById('all').click()")
    assert len(shown(browser)) == len(board.rows)
    browser.execute_script("document.querySelector('#board-head button').click()")
    names = [row["columns"]["measure"] for row in shown(browser)]
    assert names == sorted(names)
    browser.execute_script(
        "const f = document.getElementById('filter'); f.value = 'CSLS';"
        "f.dispatchEvent(new Event('input'))"
    )
    assert {row["columns"]["measure"] for row in shown(browser)} == {"csls"}
    check_silent(browser)


def test_ties_with_the_best_are_marked(browser, page):
    browser.execute_script("document.getElementById('all').click()")
    marked = browser.execute_script(
        "return [...document.getElementById('board').rows].map("
        "(row) => row.querySelector('.interval.ties') !== null)"
    )
    board = page.leaderboard
    best = {board.recommended, *board.not_distinguishable}
    assert marked == [row.candidate in best for row in board.rows]
    assert 0 < sum(marked) < len(marked)
    text_ = browser.execute_script("return document.getElementById('board').textContent")
    assert text_.count("≈ best") == sum(marked) - 1


def test_open_row_shows_the_neighbours_of_top_k(browser, page):
    board, model = page.leaderboard, page.models["dropout"]
    for number, row in enumerate(board.rows):
        candidate = row.candidate
        if (
            candidate.measure not in ("cosine", "csls", "neg_euclidean")
            or candidate.rescaling == "eq2"
        ):
            continue
        items = model.item_embeddings(candidate.rescaling)
        nearest = top_k(items, k=10, measure=get_measure(candidate.measure))
        item = int(board.example_items[7])
        browser.execute_script(
            "leaderboard.state.open = arguments[0]; leaderboard.choose(7)", number
        )
        cells = browser.execute_script(
            "return [...document.querySelector('.lists tbody').rows].map("
            "(r) => [r.cells[1].textContent, r.cells[2].textContent, r.cells[3].textContent])"
        )
        names = [f"item {j} ({page.labels[j]})" for j in nearest.indices[item].tolist()]
        assert [name for name, _, _ in cells] == names
        np.testing.assert_allclose([float(s) for _, s, _ in cells], nearest.scores[item], atol=2e-3)
        same = page.labels[nearest.indices[item]] == page.labels[item]
        assert [mark.startswith("✓") for _, _, mark in cells] == same.tolist()
    check_silent(browser)


def test_ranks_of_the_heat_map_are_those_of_the_scores(compared):
    board = compared[1].leaderboard
    example = board.examples[board.baseline]
    items = (
        compared[1].item_embeddings(compared[1].named[0])[board.example_items].astype(np.float64)
    )
    units = items / np.linalg.norm(items, axis=1, keepdims=True)
    cosines = (units @ units.T)[~np.eye(20, dtype=bool)]
    ranks = example.ranks[~np.eye(20, dtype=bool)]
    expected = np.searchsorted(np.sort(cosines), cosines) / len(cosines) * 255
    np.testing.assert_allclose(ranks, expected, atol=2)


def test_keyboard_opens_a_row_and_moves_through_items(browser, page):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    browser.find_element(By.ID, "row-0").send_keys(Keys.ENTER)
    wait(browser, "return leaderboard.state.open === 0")
    pixels = "return document.getElementById('heat').toDataURL()"
    before = browser.execute_script(pixels)
    browser.find_element(By.ID, "heat").send_keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    assert browser.execute_script("return leaderboard.state.item") == 2
    assert browser.execute_script(pixels) != before
    assert "item=2" in browser.execute_script("return location.hash")


def test_address_keeps_the_state(browser, compared, tmp_path):
    written = leaderboard_page(compared[1].leaderboard)
    load(browser, written, tmp_path, "#sort=gain&up=1&all=1&open=3&item=5", ready="leaderboard")
    state = browser.execute_script("return leaderboard.state")
    assert [state[key] for key in ("sort", "up", "all", "open", "item")] == [
        "gain", True, True, 3, 5,
    ]  # fmt: skip
    for absent in ("absent", "toString"):
        wrong = f"#sort={absent}&open=9999&item=-1&up=x"
        load(browser, written, tmp_path, wrong, ready="leaderboard")
        assert browser.execute_script("return leaderboard.state.open") == -1
        assert browser.execute_script("return leaderboard.state.sort") == "score"
    check_silent(browser)


def test_hostile_names_are_text(browser, tmp_path):
    rows = np.random.default_rng(0).standard_normal((len(HOSTILE) + 20, 5))
    names = [*HOSTILE, *map(str, range(20))]
    labels = [HOSTILE[i % 3] for i in range(len(rows))]
    board = compare_vectors(rows, labels, measures=["dot"], n_examples=len(rows))
    page = leaderboard_page(board, names=names, labels=labels, name=HOSTILE[0])
    load(browser, page, tmp_path, "#open=0", ready="leaderboard")
    expected = sorted(f"{name} ({label})" for name, label in zip(names, labels, strict=True))
    # One of the names contains half a surrogate pair, which the driver cannot send. The names are
    # therefore compared inside the browser.
    different = browser.execute_script(
        "const shown = new Set([...document.querySelectorAll('#item option')]"
        f".map((option) => option.textContent)); return {json.dumps(expected)}"
        ".filter((name) => !shown.has(name)).length"
    )
    assert different == 0
    assert browser.execute_script("return document.images.length") == 0
    assert browser.execute_script("return document.scripts.length") == 2
    check_silent(browser)


@pytest.mark.parametrize(("width", "dark"), [(400, False), (1280, True)])
def test_page_fits_the_window(browser, compared, tmp_path, width, dark):
    resize(browser, width, dark=dark)
    load(
        browser, leaderboard_page(compared[1].leaderboard), tmp_path, "#open=1", ready="leaderboard"
    )
    measured = "return [document.documentElement.scrollWidth, innerWidth]"
    content, window = browser.execute_script(measured)
    assert content <= window == width


def test_pages_of_few_rows_and_of_users(browser, tmp_path):
    vectors = np.random.default_rng(0).standard_normal((60, 4))
    pairs = np.random.default_rng(1).integers(0, 60, (80, 2)), np.arange(80.0)
    board = compare_vectors(vectors, pairs=pairs, measures=["dot"])
    load(browser, leaderboard_page(board), tmp_path, "#open=0", ready="leaderboard")
    assert "The comparison was made without example items." in text(browser, "board")
    X = simulate_interactions(300, 60, random_state=0).X
    board = compare(X, n_components=6, measures=["user_item_dot"], n_examples=9).leaderboard
    place = [row.candidate.measure for row in board.rows].index("user_item_dot")
    load(browser, leaderboard_page(board), tmp_path, f"#open={place}", ready="leaderboard")
    assert "This measure compares users" in text(browser, "board")
    check_silent(browser)


@pytest.mark.slow
def test_page_leaves_out_rows_and_says_so():
    rows = np.random.default_rng(2).standard_normal((80, 4))
    few = compare_vectors(rows, np.arange(80) % 2, measures=["csls"], n_examples=64)
    row = next(one for one in few.rows if one.candidate != few.baseline)
    # There are 204 candidates besides the cosine, and all of them have the same examples.
    others = [replace(row.candidate, measure=f"{row.candidate.measure}:{n}") for n in range(204)]
    copies = [row._replace(candidate=one) for one in others]
    board = replace(
        few, rows=[*copies, few.row(few.baseline)], recommended=few.baseline,
        examples=few.examples | dict.fromkeys(others, few.examples[row.candidate]),
    )  # fmt: skip
    page = leaderboard_page(board)
    assert "leaves out the 5 candidates with the lowest scores" in page
    assert len(page.encode()) < 2_500_000
    block = json.loads(page.split('id="data">')[1].split("</script>")[0])
    assert block["rows"][block["baseline"]]["columns"]["measure"] == "cosine"


def test_axis_is_of_the_rows_shown_first_and_clips_the_others(compared):
    board = compared[1].leaderboard
    first = {row.candidate for row in board.best_per_measure()} | {board.baseline}
    assert "If a dot is cut off" not in leaderboard_page(replace(
        board, rows=[row for row in board.rows if row.candidate in first]
    ))  # fmt: skip
    bad = board.rows[-1]
    assert bad.candidate not in first
    bad = bad._replace(score=type(bad.score)(-50.0, -60.0, -40.0))
    page = leaderboard_page(replace(board, rows=[*board.rows[:-1], bad]))
    assert "If a dot is cut off at an end of the axis, its score lies outside the axis" in page
    drawn = re.findall(r'class="range" d="M([\d.]+) 10H([\d.]+)"/><circle cx="([\d.]+)"', page)
    places = np.array(drawn, dtype=float)
    assert places[-1].tolist() == [0, 0, 0]
    shown = places[[row.candidate in first for row in board.rows]]
    assert (shown.min(), shown.max()) == (4, 196)


def test_examples_are_popular_items_of_each_label(compared):
    data, comparison = compared
    board, popularity = comparison.leaderboard, comparison.popularity
    for label in range(5):
        chosen = board.example_items[data.item_cluster[board.example_items] == label]
        rest = np.flatnonzero(data.item_cluster == label)
        rest = rest[~np.isin(rest, chosen)]
        assert len(chosen) >= 3
        assert popularity[chosen].min() >= popularity[rest].max(initial=0)
    assert fastcos.compare(data.X, n_components=4, measures=["dot"]).leaderboard.examples == {}
