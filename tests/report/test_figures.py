from xml.etree import ElementTree

import pytest

from strop.report.figures import Canvas, Point, Series, Tick, columns, curve, shares, strength, whisker

CANVAS = Canvas(width=200, height=142, first=0, last=4, left=40, right=60, top=12, bottom=30)


def parsed(svg):
    return ElementTree.fromstring(svg)


def by_class(svg, name):
    return [e for e in parsed(svg).iter() if name in e.get("class", "").split()]


def test_places_on_the_canvas():
    assert [CANVAS.x(v) for v in (0, 2, 4)] == [40, 90, 140]
    assert [CANVAS.y(v) for v in (1.0, 0.5, 0.0)] == [12, 62, 112]


def test_a_curve_draws_line_band_marks_and_ticks():
    line = Series(
        name="truth", points=[Point(x=0, y=0.5, low=0.25, high=1.0), Point(x=4, y=1.0, low=0.5, high=1.0)]
    )
    mark = Series(name="truth", points=[Point(x=2, y=0.0, low=0.0, high=0.5)])
    svg = curve([line], [mark], [Tick(x=2, label="<b>")], CANVAS, 'a "label"')
    assert by_class(svg, "line")[0].get("points") == "40.0,62.0 140.0,12.0"
    assert by_class(svg, "band")[0].get("points") == "40.0,12.0 140.0,12.0 140.0,62.0 40.0,87.0"
    assert (by_class(svg, "mark")[0].get("cx"), by_class(svg, "mark")[0].get("cy")) == ("90.0", "112.0")
    assert by_class(svg, "stem")[0].get("y2") == "62.0"
    assert [e.text for e in by_class(svg, "tick")] == ["0", "0.5", "1", "<b>"]
    assert parsed(svg).get("aria-label") == 'a "label"'


def test_a_band_needs_two_intervals():
    lonely = Series(name="truth", points=[Point(x=0, y=0.5, low=0.2, high=0.8), Point(x=1, y=0.5)])
    assert by_class(curve([lonely], [], [], CANVAS, ""), "band") == []


def test_a_whisker_stays_on_its_axis():
    svg = whisker(0.5, -0.2, 1.4, rule=0.25)
    span = by_class(svg, "span")[0]
    assert (span.get("x1"), span.get("x2")) == ("0.00%", "100.00%")
    assert parsed(svg).find("circle").get("cx") == "50.00%"
    assert by_class(svg, "rule")[0].get("x1") == "25.00%"
    assert by_class(whisker(0.5, 0.4, 0.6), "rule") == []


def test_shares_add_up_to_the_whole_bar():
    svg = shares([("a", 1.0), ("nothing", 0.0), ("<c>", 3.0)], "time")
    bars = list(parsed(svg).iter("rect"))
    assert [(b.get("class"), b.get("x"), b.get("width")) for b in bars] == [
        ("part-0", "0.00%", "25.00%"),
        ("part-2", "25.00%", "75.00%"),
    ]
    assert bars[1].find("title").text == "<c>: 75%"
    assert list(parsed(shares([], "time"))) == []


def test_columns_go_up_and_down_and_mark_the_wrong_step():
    svg = columns([1.0, -2.0, 0.0], 1, "grades")
    up, down, flat = parsed(svg).iter("rect")
    assert (up.get("class"), up.get("y"), up.get("height")) == ("up", "29.0", "23.0")
    assert (down.get("class"), down.get("y"), down.get("height")) == ("down", "52.0", "46.0")
    assert flat.get("height") == "0.0"
    assert by_class(svg, "wrong")[0].get("d").startswith("M40.0 ")
    assert by_class(columns([1.0], None, ""), "wrong") == []


@pytest.mark.parametrize(
    ("grade", "grades", "share"), [(-2.0, [1.0, -4.0], 0.5), (0.0, [0.0], 0.0), (4, [4.0], 1.0)]
)
def test_strength_is_relative_to_the_largest(grade, grades, share):
    assert strength(grade, grades) == share
