import sys
from types import SimpleNamespace
from typing import Any

import pytest

import strop

JUDGED = {"judged": 2, "money": None, "unmetered": 0, "forecast": None}
SHOWN = {"group": "g", "mode": "listwise", "prompts": [], "no_call": "no call: nothing to compare"}


class Calls(list[tuple[str, dict[str, Any]]]):
    """What the verbs asked of the application, by name, in order."""


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """An application that records what it is asked; `app.calls`. Replace a function to change its answer."""
    calls = Calls()

    def answer(name: str, result: Any) -> Any:
        def function(*positional: Any, **named: Any) -> Any:
            calls.append((name, {"positional": positional, **named}))
            return result

        return function

    fake = SimpleNamespace(
        calls=calls,
        DemoOptions=SimpleNamespace,
        demo=answer("demo", {"steps": 12}),
        train=answer("train", {"steps": 3}),
        serve=answer("serve", None),
        JudgeJob=SimpleNamespace,
        judge_file=answer("judge_file", SimpleNamespace(result=JUDGED, ended=None)),
        show_prompts=answer("show_prompts", SHOWN),
        replay_file=answer("replay_file", {"verdicts": 2}),
        GradeJob=SimpleNamespace,
        grade_file=answer("grade_file", {"graded": 4}),
        report=answer("report", "runs/a/report.html"),
    )
    monkeypatch.setitem(sys.modules, "strop.app", fake)
    monkeypatch.setattr(strop, "app", fake, raising=False)
    return fake
