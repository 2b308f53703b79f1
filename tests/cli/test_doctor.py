"""What the machine can run."""

import json
from pathlib import Path

import pytest

from strop.cli.main import main
from strop.engines import machine


def test_doctor_says_what_is_missing_and_fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "LIBRARIES", ("torch", "no-such-library"))
    monkeypatch.setattr(machine, "_accelerators", lambda _: {"cuda": False, "mps": False})
    assert main(["doctor", "--json"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["no-such-library"] is None
    assert err == "strop: missing: no-such-library is not installed; pip install 'strop[local]'\n"


def test_little_memory_is_missing_memory() -> None:
    assert machine.missing({"torch": "2.13.0"}, 2.0) == ["memory: 2.0 GB; the demo needs 4 GB"]
    assert machine.missing({"torch": "2.13.0"}, 3.9) == []
    assert machine.missing({"torch": "2.13.0"}, None) == []


def test_processor_flags(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor : 0\nflags\t\t: fpu avx512f avx512_bf16\n")
    assert machine.has_cpu_flag("avx512_bf16", cpuinfo) is True
    assert machine.has_cpu_flag("avx512", cpuinfo) is False
    assert machine.has_cpu_flag("avx512", tmp_path / "absent") is None
