"""Room on the disk, permission, ports, processors, and a judge's endpoint."""

import os
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from strop.config import JudgeConfig
from strop.engines.doctor import judge, machine
from strop.engines.doctor.machine import Machine
from strop.engines.doctor.places import Place, places, port_is_free


def test_a_folder_that_is_not_made_yet_is_where_it_would_be(tmp_path: Path) -> None:
    run, cache = places(tmp_path / "runs/a", "smollm2", None, 2)
    assert run.path == str(tmp_path / "runs/a")
    assert run.free == pytest.approx(os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize, rel=0.2)
    assert cache.what == "models and replies"


def test_what_stands_in_the_way_of_a_place() -> None:
    fine = {"what": "runs", "path": "there", "free": 2 * 10**9, "needed": 10**9, "writable": True}
    assert Place(**fine).problem is None
    assert Place(**{**fine, "free": 10**8}).problem == "there: 0.1 GB are free, runs need 1.0 GB"
    assert Place(**{**fine, "writable": False}).problem == "there: cannot be written, runs go there"


def test_a_port_in_use() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert not port_is_free(taken.getsockname()[1])
    assert port_is_free(0)


def test_flags_of_a_processor(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor : 0\nflags\t\t: fpu avx512f avx512_bf16\n")
    assert machine.has_cpu_flag(["avx512_bf16", "amx_bf16"], cpuinfo) is True
    assert machine.has_cpu_flag(["avx512"], cpuinfo) is False
    assert machine.has_cpu_flag(["avx512"], tmp_path / "absent") is None


def test_memory_that_is_free(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 10 kB\nMemAvailable:    2048 kB\n")
    assert machine.available_memory(tmp_path / "meminfo") == 2048 * 1024
    assert machine.available_memory(tmp_path / "absent") is None


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="Linux")
def test_torch_is_asked_only_where_there_is_a_device(tmp_path: Path) -> None:
    assert not machine.may_have_accelerator(tmp_path)
    (tmp_path / "nvidia0").touch()
    assert machine.may_have_accelerator(tmp_path)


def test_the_device_of_a_run() -> None:
    plain = Machine(
        python="", system="", cores=1, memory=None, physical=None, free=None, bfloat16=None, mps=True
    )
    assert plain.device("auto") == "mps"
    assert plain.device("cpu") == "cpu"
    assert plain.computes_bfloat16("mps")
    assert not plain.computes_bfloat16("cpu")


@pytest.fixture
def endpoint() -> Iterator[str]:
    """A server that lists models to whoever sends the key "right"."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            right = self.headers["Authorization"] == "Bearer right" and self.path == "/v1/models"
            self.send_response(200 if right else 401)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_judge_that_answers_or_refuses(endpoint: str) -> None:
    asked = JudgeConfig(base_url=endpoint, model="m", api_key_env="KEY")
    right = judge.look_at(asked, {"KEY": "right"}, network=True)
    assert right is not None
    assert (right.key_set, right.said, right.problems) == (True, "answers (200)", ())
    wrong = judge.look_at(asked, {"KEY": "wrong"}, network=True)
    assert wrong is not None
    assert "refuses the key (401)" in wrong.problems[0]


def test_a_judge_that_is_not_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        asked = JudgeConfig(base_url=f"http://127.0.0.1:{port}/v1", model="m", api_key_env="KEY")
        found = judge.look_at(asked, {}, network=True)
    assert found is not None
    assert "KEY is not set" in found.problems[0]
    assert "does not answer" in found.problems[1]


def test_without_leave_nobody_is_asked() -> None:
    asked = JudgeConfig(base_url="http://judge.invalid/v1", model="m", api_key_env="KEY")
    found = judge.look_at(asked, {"KEY": "k"}, network=False)
    assert found is not None
    assert (found.said, found.problems) == ("not asked: --network asks it", ())
    assert judge.look_at(JudgeConfig(), {}, network=True) is None
