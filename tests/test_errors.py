"""The exit codes that the command line promises, and the built-in types callers may catch."""

import pytest

from strop import errors


@pytest.mark.parametrize(
    ("kind", "exit_code", "builtin"),
    [
        (errors.StropError, 2, Exception),
        (errors.InputError, 2, ValueError),
        (errors.ConfigError, 2, ValueError),
        (errors.ModelError, 2, RuntimeError),
        (errors.EngineError, 2, RuntimeError),
        (errors.PublishError, 2, RuntimeError),
        (errors.Unreachable, 3, ConnectionError),
        (errors.JudgeStopped, 3, ConnectionError),
        (errors.ServerLost, 3, ConnectionError),
        (errors.Interrupted, 130, Exception),
    ],
)
def test_every_error_has_its_exit_code_and_keeps_its_line(
    kind: type[errors.StropError], exit_code: int, builtin: type[Exception]
) -> None:
    error = kind("file:3: no messages; add them")
    assert error.exit_code == exit_code
    assert isinstance(error, builtin)
    assert str(error) == "file:3: no messages; add them"


def test_all_errors_are_one_family_and_the_docstring_draws_each() -> None:
    family = [
        value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)
    ]
    assert len(family) == 10
    assert all(issubclass(kind, errors.StropError) for kind in family)
    assert all(kind.__name__ in (errors.__doc__ or "") for kind in family)
