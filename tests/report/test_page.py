import re
from html.parser import HTMLParser

import pytest

from strop.report.page import render
from strop.store.run import Run

VOID = {"meta", "br", "img", "input", "link", "hr"}


class Page(HTMLParser):
    """Reads a page and fails on tags that do not nest."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.text = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text.append(data)

    def all(self, tag):
        return [attrs for name, attrs in self.elements if name == tag]

    @property
    def words(self):
        return " ".join(" ".join(self.text).split())


@pytest.fixture(scope="session")
def text(finished_run):
    path = render(finished_run)
    assert path == finished_run.path / "report.html"
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def page(text):
    return Page(text)


@pytest.fixture
def bare(tmp_path):
    return Run.create(tmp_path / "new", "")


def test_nothing_is_loaded_and_nothing_runs(text, page):
    assert not {"script", "link", "img", "iframe", "object", "base", "image", "use"} & {
        tag for tag, _ in page.elements
    }
    loads = [
        v for _, attrs in page.elements for k, v in attrs.items() if k in ("src", "href", "srcset", "data")
    ]
    assert loads == []
    assert not any(key.startswith("on") for _, attrs in page.elements for key in attrs)
    styles = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    assert len(styles) == 1
    assert "url(" not in styles[0]
    assert "@import" not in styles[0]
    assert page.all("meta")[1]["content"].startswith("default-src 'none'")


def test_agent_text_is_shown_as_it_is_and_is_no_markup(page, hostile_text):
    assert hostile_text in page.words


def test_the_headline_and_its_numbers_come_from_the_summary(page, finished_run):
    summary = finished_run.summary()
    before, after = summary["truth_before"], summary["truth_after"]
    assert f"from {100 * before['estimate']:.0f} % to {100 * after['estimate']:.0f} %" in page.words
    for estimate in (before, after, summary["judge_agreement"], summary["grader_auroc"]):
        assert f"{estimate['estimate']:.2f} {estimate['low']:.2f} to {estimate['high']:.2f}" in page.words
    assert f"n = {before['n']}, Wilson 95%" in page.words


def test_every_null_stands_beside_its_result(page, finished_run):
    summary = finished_run.summary()
    for table in (summary["judge"], summary["grader"]["predict"], summary["attribution"]):
        for name in [*table["results"], *table["nulls"]]:
            assert name in page.words
        verdict = table["verdict"]
        assert verdict[1:] in page.words


def test_the_first_wrong_step_is_marked_on_the_step_itself(page, finished_run):
    wrong = next(g for g in finished_run.read_grades("heldout-after") if g["first_wrong_step"] is not None)
    step = wrong["steps"][wrong["first_wrong_step"]]
    assert (
        f"{step['grade']:+.2f} step {step['index']} · {step['n_tokens']} tokens first wrong step"
        in page.words
    )


def test_counts_add_up_over_steps(page):
    # five steps of 8 groups: 5 trained, 2 tied, 1 unscored each.
    assert "Groups trained 25 tied 10 unscored 5 all 40" in page.words


def test_figures_have_words_or_are_hidden_and_tables_have_headers(page):
    assert all(a.get("aria-label") or a.get("aria-hidden") == "true" for a in page.all("svg"))
    assert all(a.get("scope") for a in page.all("th"))
    assert len(page.all("caption")) == len(page.all("table"))
    assert [a["lang"] for a in page.all("html")] == ["en"]
    assert len(page.all("h1")) == 1


def test_ids_are_unique(page):
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))


def test_a_run_without_anything_says_so_everywhere(bare):
    page = Page(render(bare).read_text(encoding="utf-8"))
    assert "not finished" in page.words
    assert "was not measured before and after" in page.words
    for part in ("no step was completed", "no held-out group was judged", "no attempt was graded"):
        assert part in page.words
    assert not re.search(r"\bnan\b|None", page.words)


def test_a_run_that_is_under_way_shows_its_steps(bare):
    bare.append_step(
        {"step": 0, "truth": {"mean": 0.25, "n": 4}, "judge_score": None, "seconds": {"rollout": 61.0}}
    )
    page = Page(render(bare).read_text(encoding="utf-8"))
    assert "rollout 1 min 01 s" in page.words
    assert any("over 1 training steps" in a.get("aria-label", "") for a in page.all("svg"))


def test_numbers_that_do_not_exist_are_words(bare):
    none = {"estimate": None, "low": None, "high": None, "n": 1, "method": "none: one cluster only"}
    bare.write_summary(
        {"truth_before": none, "truth_after": none, "judge_agreement": none, "tied_share": 0.25}
    )
    page = Page(render(bare).read_text(encoding="utf-8"))
    assert "none: one cluster only" in page.words
    assert "groups tied in training 0.25" in page.words
