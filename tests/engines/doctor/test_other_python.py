"""What is said of the Python that has vLLM, with programs in its place that answer as such ones do."""

import json
import sys
from pathlib import Path
from typing import Any

from strop.engines.doctor.other_python import VllmPython, look_at

WHOLE = {"vllm": "0.32.0", "torch": "2.13.0+cpu", "transformers": "5.19.0"}


def stand_in(folder: Path, script: str) -> Path:
    """An executable in place of a Python; it ignores what it is told to run."""
    file = folder / "python"
    file.write_text(f"#!{sys.executable}\n{script}\n")
    file.chmod(0o755)
    return file


def answering(folder: Path, have: dict[str, str], **broken: str) -> VllmPython:
    answer: dict[str, Any] = {"have": have, "broken": broken, "python": "3.12.1"}
    return look_at(stand_in(folder, f"print('loading')\nprint({json.dumps(answer)!r})"), timeout_s=120)


def test_one_that_is_whole(tmp_path: Path) -> None:
    found = answering(tmp_path, WHOLE)
    assert found.problems == ()
    assert [(one.library, one.version, one.state) for one in found.versions] == [
        ("vllm", "0.32.0", "tested"),
        ("torch", "2.13.0+cpu", "tested"),
        ("transformers", "5.19.0", "tested"),
    ]


def test_one_without_vllm(tmp_path: Path) -> None:
    (problem,) = answering(tmp_path, {"torch": "2.13.0"}).problems
    assert "has no vLLM" in problem
    assert "-m pip install vllm" in problem


def test_companions_of_another_torch(tmp_path: Path) -> None:
    have = {**WHOLE, "torchvision": "0.26.0", "torchaudio": "2.13.0+cpu"}
    (problem,) = answering(tmp_path, have, torchvision="RuntimeError: operator nms does not exist").problems
    assert "torchvision cannot be imported beside its torch 2.13.0+cpu" in problem
    assert problem.endswith("-m pip uninstall -y torchvision")


def test_a_torch_that_cannot_be_imported(tmp_path: Path) -> None:
    (problem,) = answering(tmp_path, WHOLE, torch="OSError: libcudart.so", torchvision="OSError").problems
    assert "its torch cannot be imported (OSError: libcudart.so)" in problem


def test_a_vllm_that_is_known_bad(tmp_path: Path) -> None:
    (problem,) = answering(tmp_path, {**WHOLE, "vllm": "0.9.2"}).problems
    assert "vllm 0.9.2: it answers without the token ids" in problem


def test_none_there_and_what_is_no_python(tmp_path: Path) -> None:
    assert "no such Python" in look_at(tmp_path / "absent").problems[0]
    plain = tmp_path / "plain"
    plain.write_text("not a program")
    assert "cannot be run" in look_at(plain).problems[0]
    broken = stand_in(tmp_path, "raise SystemExit('broken environment')")
    assert "is no Python that answers (broken environment)" in look_at(broken).problems[0]


def test_one_that_never_answers(tmp_path: Path) -> None:
    endless = stand_in(tmp_path, "import time\nwhile True: time.sleep(1)")
    (problem,) = look_at(endless, timeout_s=0.5).problems
    assert "no answer within 0 s" in problem or "no answer within 1 s" in problem


def test_the_question_can_be_asked_of_a_python() -> None:
    """This one has no vLLM, or a whole one: either way it answers."""
    found = look_at(Path(sys.executable), timeout_s=600)
    assert found.versions or "has no vLLM" in found.problems[0]
