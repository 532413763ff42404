"""The page of a window: what it says, what it draws, and how it looks in a real browser without a network."""

import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pandas.api.types import is_numeric_dtype

from histories import bootstrap, history, judged, quarantined, scored, trained
from monitoring.alerts import Site
from monitoring.evidently_drift import report_page
from monitoring.page import WindowPage, verdict_sentence, window_page
from monitoring.pictures import (
    Bar,
    Histogram,
    bars,
    column_pictures,
    histogram,
    missing_rates,
    score_picture,
)
from monitoring.records import Record, WindowRecord
from monitoring.verdicts import ColumnDrift, DriftStatus, DriftTest, DriftVerdict
from training.types import Column, FeatureSchema

NOW = datetime(2026, 2, 1, 12, tzinfo=UTC)
SITE = Site(model="pumps", home="/a home", pages="/a home/reports", source="s3://plant/pumps")
DRIFTED, STABLE, INCONCLUSIVE = DriftStatus.DRIFTED, DriftStatus.STABLE, DriftStatus.INCONCLUSIVE
HOSTILE = "</script><img src=https://evil.example/x onerror=alert(1)>"
LONG = "a_name_that_does_not_end_" * 30
GENERATOR = np.random.default_rng(0)


def verdict(
    *columns: ColumnDrift, status: DriftStatus = DRIFTED, tests: tuple[DriftTest, ...] = ()
) -> DriftVerdict:
    return DriftVerdict(status=status, share=0.5, reason="one moved; and so on", columns=columns, tests=tests)


def moved(name: str, score: float | None = 0.5, method: str = "wasserstein") -> ColumnDrift:
    return ColumnDrift(column=name, method=method, score=score, threshold=0.1)


def schema_of(frame: pd.DataFrame) -> FeatureSchema:
    return FeatureSchema(
        features=tuple(
            Column(name=name, kind="numeric" if is_numeric_dtype(frame[name]) else "categorical")
            for name in frame.columns
        )
    )


def drawn(before: object, after: object) -> Histogram | tuple[Bar, ...] | None:
    """Draw one column that moved."""
    reference, current = (pd.DataFrame({"x": values}) for values in (before, after))
    [picture] = column_pictures(reference, current, schema_of(reference), verdict(moved("x")), seed=0)
    return picture.values  # noqa: PD011 - no frame


class TestPictures:
    def test_both_sides_share_their_bins_and_an_outlier_does_not_stretch_them(self) -> None:
        calm = GENERATOR.normal(size=300)
        for far in (1e6, -1e6, 1.7e308):
            found = drawn(calm, np.append(calm[:49] + 1, far))
            assert isinstance(found, Histogram)
            assert -4 < found.scale.low < found.scale.high < 5
            assert (sum(found.before), sum(found.after)) == pytest.approx((1, 1))
            assert found.beyond[1] >= 0.02, "the outlier is counted"
            assert found.scale.width is None
            assert float(found.scale.place(0.0)) == pytest.approx(
                -found.scale.low / (found.scale.high - found.scale.low)
            )

    def test_a_long_tail_is_drawn_logarithmically(self) -> None:
        found = histogram(GENERATOR.lognormal(0, 3, 2_000), GENERATOR.lognormal(1, 3, 2_000))
        assert found.scale.width is not None
        assert max(found.before) < 0.5
        for value in (found.scale.low, 1.0, 50.0, found.scale.high):
            assert found.scale.value(float(found.scale.place(value))) == pytest.approx(value)

    def test_columns_without_values_or_without_variation_are_drawn(self) -> None:
        numbers = np.arange(100.0)
        assert drawn(np.full(100, np.nan), np.full(100, np.nan)) is None
        gone = drawn(numbers, np.full(100, np.inf))
        assert isinstance(gone, Histogram)
        assert gone.after == ()
        for constant in (0.0, 7.0, 1e17, -1.7e308, 5e-324):
            same = drawn(np.full(100, constant), np.full(20, constant))
            assert isinstance(same, Histogram)
            assert same.before == same.after
            assert 0 < float(same.scale.place(constant)) < 1 or abs(constant) > 1e300

    def test_of_hundreds_of_categories_the_eight_that_moved_most_are_bars(self) -> None:
        before = [f"c{place % 300}" for place in range(3_000)]
        found = drawn(before, before[:1_500] + ["new"] * 500 + ["c7"] * 300)
        assert isinstance(found, tuple)
        assert [bar.label for bar in found[:2]] == ["new", "c7"]
        assert (len(found), found[-1].rest) == (9, 301 - 8)
        assert sum(bar.after for bar in found) == pytest.approx(1)
        assert found[0].before == 0
        assert found[0].after == pytest.approx(500 / 2_300)

    def test_one_side_without_any_category(self) -> None:
        [only] = bars(pd.Series(["a", "a"], dtype=object), pd.Series([], dtype=object))
        assert only == Bar(label="a", before=1.0, after=0.0)

    @given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1), st.lists(st.floats(-1, 1)))
    def test_any_finite_numbers_can_be_drawn(self, before: list[float], after: list[float]) -> None:
        found = histogram(np.array(before), np.array(after, dtype=float), shown=0.5)
        assert sum(found.before) == pytest.approx(1)
        places = found.scale.place(np.sort(before))
        assert (np.diff(places) >= 0).all()
        assert 0 <= float(found.scale.place(0.5)) <= 1

    def test_only_missing_rates_that_moved_beyond_noise_are_told(self) -> None:
        calm = np.where(np.arange(1_000) % 10 == 0, np.nan, 1.0)
        before = pd.DataFrame({"calm": calm, "gone": np.ones(1_000), "noisy": calm})
        after = pd.DataFrame({"calm": calm[:200], "gone": calm[:200], "noisy": calm[:200]})
        after.loc[[1, 2, 3, 4], "noisy"] = np.nan
        [rate] = missing_rates(before, after, schema_of(before))
        assert (rate.column, rate.before, rate.after) == ("gone", 0.0, 0.1)
        assert missing_rates(before, after.iloc[:0], schema_of(before)) == ()

    def test_the_flood_mark_has_a_place_though_no_score_reaches_it(self) -> None:
        found = score_picture(GENERATOR.random(500), GENERATOR.random(100), 5.0)
        assert found is not None
        assert found.above == (0.0, 0.0)
        assert float(found.histogram.scale.place(5.0)) == 1.0
        assert score_picture(np.array([]), np.array([np.nan]), 1.0) is None


class TestWords:
    def test_the_verdict_says_what_moved_and_how_many_alerts_there_are(self) -> None:
        columns = (moved("flow", 0.31), moved("count", 0.7), moved("calm", 0.01), moved("odd", None))
        record = replace(scored("day 7"), drift=verdict(*columns))
        assert verdict_sentence(record, 0.03) == (
            "Window day 7 drifted: 2 of 4 columns moved, most of all 'count' (distance 0.7, threshold 0.1); "
            "5.0% of its 1,000 rows are alerts (target 3.0%)."
        )

    def test_a_window_may_drift_by_a_test_alone_or_be_stable_in_spite_of_one(self) -> None:
        test = DriftTest(test="joint", status=DRIFTED, statistic=2.0, bound=1.0, reason="")
        alone = replace(scored("a"), drift=verdict(moved("x", 0.01), tests=(test,)))
        assert "drifted: the test of columns together found a change; 5.0%" in verdict_sentence(alone)
        stable = replace(scored("a"), drift=verdict(status=STABLE, tests=(test,)))
        assert verdict_sentence(stable).startswith("Window a is stable on the whole, but the test of columns")

    @pytest.mark.parametrize(
        ("record", "has_page"),
        [
            (scored("a", DRIFTED), True),
            (scored("a", INCONCLUSIVE), True),
            (quarantined("a"), True),
            (scored("a"), False),
            (bootstrap("a"), False),
        ],
    )
    def test_a_page_is_written_where_something_happened(
        self, record: WindowRecord, *, has_page: bool
    ) -> None:
        assert record.has_page is has_page

    def test_a_window_that_was_set_aside_needs_no_champion_and_no_picture(self) -> None:
        record = replace(
            quarantined("a"),
            reason=f"the feature {HOSTILE!r} is missing from the window; the window is short",
        )
        page = words(record, bootstrap("0"))
        html = page.to_html()
        assert page.verdict.startswith("Window a was set aside, neither scored nor judged: the feature ")
        assert page.verdict.endswith(", and 1 more finding.")
        assert "There is no champion yet" in page.follows
        assert page.command == "floodmark run s3://plant/pumps --home '/a home' --model pumps"
        assert "<svg" not in html
        assert "<li>The window is short</li>" in html

    def test_a_candidate_that_waits_is_what_the_reader_decides_on(self) -> None:
        page = words(scored("b", DRIFTED), trained("1", "a"), judged("1"), trained("2", "a"))
        assert page.command == "floodmark promote 2 --reason TEXT --home '/a home' --model pumps"
        assert page.version == "1"

    def test_the_last_twenty_windows_are_shown_and_a_repaired_one_once(self) -> None:
        before = [quarantined("now"), *(scored(f"w{place}") for place in range(30))]
        strip = words(scored("now", DRIFTED), *before).strip
        assert [item.window for item in strip] == [*(f"w{place}" for place in range(11, 30)), "now"]
        assert [item.current for item in strip] == [False] * 19 + [True]
        assert (strip[0].outcome, strip[0].alert_rate, strip[-1].outcome) == ("stable", 0.05, "drifted")


def words(record: WindowRecord, *before: Record) -> WindowPage:
    return window_page(record, history(*before), SITE, target_rate=0.03, now=NOW)


def full_page() -> WindowPage:
    """Draw a page with everything on it, whose names are hostile, endless or both."""
    before = pd.DataFrame(
        {
            HOSTILE: GENERATOR.normal(size=800),
            LONG: GENERATOR.lognormal(0, 3, 800),
            "words": pd.Series([HOSTILE, LONG, "", "W" * 200] * 200, dtype=object),
            "constant": np.full(800, 3.0),
            "gone": GENERATOR.normal(size=800),
        }
    )
    after = before.iloc[:400].assign(gone=np.nan, constant=np.append(np.full(399, 3.0), 1e9))
    after[HOSTILE] += 1
    after["words"] = pd.Series([HOSTILE, LONG, "new", "new"] * 100, dtype=object)
    drift = verdict(
        *(moved(name, 0.4) for name in (HOSTILE, LONG, "constant")),
        moved("words", 0.3, "jensenshannon"),
        moved("gone", 0.2),
        tests=(
            DriftTest(test="joint", status=DRIFTED, statistic=1234.5, bound=0.000123, reason=LONG),
            DriftTest(test="stream", status=INCONCLUSIVE, statistic=None, bound=float("nan"), reason=""),
        ),
    )
    schema = schema_of(before)
    record = replace(scored(f"site={HOSTILE}/{LONG}", DRIFTED), drift=drift)
    page = words(record, *(scored(f"2026-01-{day:02}") for day in range(1, 25)), quarantined(LONG))
    return replace(
        page,
        columns=column_pictures(before, after, schema, drift, seed=0),
        missing=missing_rates(before, after, schema),
        scores=score_picture(GENERATOR.lognormal(0, 1, 900), GENERATOR.lognormal(0.5, 1, 400), 6.0),
        evidently="./page-evidently.html",
        notes=(f"{HOSTILE} could not be attached",),
    )


def test_names_and_categories_are_text_and_nothing_else() -> None:
    html = full_page().to_html()
    assert html.startswith("<!DOCTYPE html>")
    assert "&lt;/script&gt;&lt;img" in html
    assert set(re.findall(r"<(img|script|iframe|link rel=\"(?!icon)|object)", html)) == set()
    assert len(html) < 120_000


class TestEvidentlyPage:
    def frame(self, rows: int, shift: float = 0.0) -> pd.DataFrame:
        words = pd.Series([HOSTILE, LONG, LONG + "x", None] * rows, dtype=object)[:rows]
        return pd.DataFrame({HOSTILE: GENERATOR.normal(shift, 1, rows), "words": words})

    def test_it_shows_our_scores_and_no_name_becomes_a_script(self) -> None:
        before, after = self.frame(400), self.frame(200, 2.0)
        page = report_page(before, after, schema_of(before), [moved("words", method="psi"), moved(HOSTILE)])
        assert page is not None
        assert "Data drift detected. Drift detection method: Wasserstein" in page
        assert "Drift in column '_/script__img src=https://evil.example/x onerror=alert(1)_'" in page
        assert "<img src=https:" not in page
        assert "onerror=alert(1)>" not in page

    def test_what_it_cannot_show_is_left_out(self) -> None:
        before, after = self.frame(400), self.frame(200)
        after[HOSTILE] = np.nan
        columns = [moved(HOSTILE), moved("words", method="jensenshannon")]
        schema = schema_of(before)
        page = report_page(before, after, schema, columns)
        assert page is not None
        assert "Drift in column 'words'" in page
        assert "Drift in column '_/script" not in page
        assert report_page(before, after.iloc[:0], schema, columns) is None
        assert report_page(before, after, schema, []) is None
        constant = before.assign(**{HOSTILE: 1e300}), after.assign(**{HOSTILE: 1e300})
        assert report_page(*constant, schema, columns) is not None


@pytest.mark.parametrize("width", [375, 1280])
def test_the_page_in_a_browser_without_a_network(
    browser: Any,  # noqa: ANN401 - Playwright may be missing
    tmp_path: Path,
    width: int,
) -> None:
    drawn = full_page()
    assert drawn.scores is not None
    (tmp_path / "page.html").write_text(drawn.to_html())
    (tmp_path / "page-evidently.html").write_text("<title>Evidently</title>")
    requests: list[str] = []
    complaints: list[str] = []
    context = browser.new_context(viewport={"width": width, "height": 800}, offline=True)
    page = context.new_page()
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto((tmp_path / "page.html").as_uri())

    assert requests == [(tmp_path / "page.html").as_uri()]
    overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(overflow) <= 0
    page.locator("summary").click()
    assert page.evaluate(overflow) <= 0
    tables = page.locator(".table").evaluate_all("all => all.map(one => one.scrollWidth - one.clientWidth)")
    assert tables == [0, 0, 0], "missing values, tests and all columns"
    assert page.locator("#command").inner_text() == drawn.command
    verdict = page.locator("#verdict")
    assert verdict.is_visible()
    assert verdict.inner_text() == drawn.verdict
    assert page.locator("figure.plot").count() == len(drawn.columns) + 1 == 6
    assert page.locator("figure.plot svg[role=img]").count() == 6
    assert page.locator("img, script").count() == 0
    assert page.locator(".strip li").count() == 20
    assert page.locator("[aria-current]").inner_text().splitlines()[1:] == ["drifted", "5.0% alerts"]

    picture = page.locator(".scores svg").bounding_box()
    mark = page.locator(".flood-mark").bounding_box()
    place = float(drawn.scores.histogram.scale.place(drawn.scores.threshold))
    assert 0.2 < place < 0.98
    assert mark["x"] + mark["width"] / 2 - picture["x"] == pytest.approx(place * picture["width"], abs=1.5)
    assert picture["y"] <= mark["y"]
    assert mark["y"] + mark["height"] <= picture["y"] + picture["height"]

    page.click("#evidently")
    assert page.title() == "Evidently"
    assert complaints == []
    context.close()
