"""The exception tree. Every error a user can cause or meet is one line: what, where, what to do.

StropError
├─ InputError          wrong input: a file, a line, a value            exit 2
│  └─ ConfigError      wrong run file, judge file or flag              exit 2
├─ ModelError          a model or adapter that cannot be had or read   exit 2
├─ EngineError         training or serving went wrong inside           exit 2
│  └─ PublishError     a new adapter is not the one that is served     exit 2
├─ Unreachable         a server or judge that does not answer          exit 3
│  ├─ JudgeStopped     K judge failures in a row; resume continues     exit 3
│  └─ ServerLost       the inference server ended before it answered   exit 3
└─ Interrupted         Ctrl-C, with what was finished kept             exit 130
"""

from typing import ClassVar


class StropError(Exception):
    """Base of all errors that strop raises on purpose. `exit_code` is the process's."""

    exit_code: ClassVar[int] = 2


def in_one_line(error: BaseException) -> str:
    """What another library's exception says, on one line and not endless; its type where it is silent."""
    text = " ".join(str(error).split())
    return text if 0 < len(text) <= 300 else f"{text[:299]}…" if text else type(error).__name__


class InputError(StropError, ValueError):
    """A file, line or value that cannot be used as it is."""


class ConfigError(InputError):
    """A run file, judge file or flag that is wrong; names the key."""


class ModelError(StropError, RuntimeError):
    """A model or adapter that is missing, broken or of another shape."""


class EngineError(StropError, RuntimeError):
    """A failure inside an engine: non-finite loss, no trainable parameter, closed engine."""


class PublishError(EngineError):
    """The probe found that the served adapter is not the learner's. The old one keeps serving."""


class Unreachable(StropError, ConnectionError):
    """A server that does not answer, or refuses the key."""

    exit_code = 3


class JudgeStopped(Unreachable):
    """The judge failed K times in a row. The run stopped cleanly; `--resume` continues."""


class ServerLost(Unreachable):
    """The inference server was lost before it had answered; when it is back, the same may be asked anew."""


class Interrupted(StropError):
    """The user stopped the work; says what was kept and how to go on."""

    exit_code = 130
