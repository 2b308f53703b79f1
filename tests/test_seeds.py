"""Seeds are a pure function of the path: same everywhere, unrelated for any other path."""

import hashlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from strop.seeds import derive, generator

names = st.lists(st.one_of(st.text(max_size=5), st.integers(-5, 5)), max_size=3)


def test_derivation_is_sha256_of_the_length_prefixed_path() -> None:
    digest = hashlib.sha256(b"1:77:rollout2:12").digest()
    assert derive(7, "rollout", 12) == int.from_bytes(digest[:8], "big") // 2


@given(st.integers(0, 3), names, st.integers(0, 3), names)
def test_two_paths_share_a_seed_only_if_they_read_alike(
    root: int, path: list[str | int], other_root: int, other: list[str | int]
) -> None:
    alike = root == other_root and [str(p) for p in path] == [str(p) for p in other]
    assert (derive(root, *path) == derive(other_root, *other)) == alike


def test_a_boundary_moved_between_names_changes_the_seed() -> None:
    assert len({derive(0, "ab", "c"), derive(0, "a", "bc"), derive(0, "abc"), derive(0, "1:a")}) == 4


@given(st.integers(), names)
def test_seeds_fit_a_signed_64_bit_integer(root: int, path: list[str | int]) -> None:
    assert 0 <= derive(root, *path) < 2**63


def test_generators_of_one_path_draw_alike_and_of_two_paths_do_not() -> None:
    first, again, other = (generator(0, "a"), generator(0, "a"), generator(0, "b"))
    drawn = first.integers(2**62, size=4)
    assert np.array_equal(drawn, again.integers(2**62, size=4))
    assert not np.array_equal(drawn, other.integers(2**62, size=4))
