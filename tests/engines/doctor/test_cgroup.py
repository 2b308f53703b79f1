"""Limits of control groups, of both versions."""

from pathlib import Path

from strop.engines.doctor.cgroup import allowance


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text + "\n")


def test_the_tightest_of_a_group_and_those_above_it(tmp_path: Path) -> None:
    root, own = tmp_path / "fs", tmp_path / "own"
    write(own, "0::/pods/mine")
    write(root / "pods/mine/memory.max", "max")
    write(root / "pods/memory.max", "4000000000")
    write(root / "memory.max", "9000000000")
    write(root / "pods/mine/cpu.max", "150000 100000")
    write(root / "pods/cpu.max", "max 100000")
    assert allowance(root, own) == (4_000_000_000, 1.5)


def test_version_one_has_a_folder_a_controller(tmp_path: Path) -> None:
    root, own = tmp_path / "fs", tmp_path / "own"
    write(own, "4:memory:/box\n3:cpu,cpuacct:/box\n0::/")
    write(root / "memory/box/memory.limit_in_bytes", "2000000000")
    write(root / "memory/memory.limit_in_bytes", "9223372036854771712")
    write(root / "cpu/box/cpu.cfs_quota_us", "50000")
    write(root / "cpu/box/cpu.cfs_period_us", "100000")
    assert allowance(root, own) == (2_000_000_000, 0.5)


def test_no_limit(tmp_path: Path) -> None:
    root, own = tmp_path / "fs", tmp_path / "own"
    write(own, "4:memory:/\n1:cpu:/")
    write(root / "memory/memory.limit_in_bytes", "9223372036854771712")
    write(root / "cpu/cpu.cfs_quota_us", "-1")
    write(root / "cpu/cpu.cfs_period_us", "100000")
    assert allowance(root, own) == (None, None)
    assert allowance(tmp_path / "nothing", tmp_path / "nothing") == (None, None)
