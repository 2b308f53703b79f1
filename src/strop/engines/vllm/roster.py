"""Who is served under which name, and how many requests each has in flight. Bookkeeping alone."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from strop.errors import InputError

POLICY = "policy"


@dataclass(eq=False, slots=True, kw_only=True)
class Version:
    """One immutable model: `name` here, `remote` at the server, its adapter's `folder` (None: the bare base).

    `said` is what it answered to `prompt` when it came (log-probs by token): what it must say again after a
    restart. `in_flight` requests are with the server; a `retired` one takes no more.
    """

    name: str
    remote: str
    version: int
    folder: Path | None
    prompt: tuple[int, ...] = ()
    said: Mapping[int, float] = field(default_factory=dict)
    in_flight: int = 0
    retired: bool = False


class Roster:
    """Names, aliases and requests in flight. Thread-safe."""

    def __init__(self) -> None:
        self._served: dict[str, Version] = {}
        self._aliases: dict[str, str] = {}
        self._leaving: list[Version] = []
        self._lock = threading.Lock()

    def refuse_taken(self, name: str) -> None:
        """Raise InputError where the name cannot be given away."""
        with self._lock:
            if name in self._served or name in self._aliases:
                raise InputError(f"{name} is already served: retire it first, or choose another name")

    def add(self, version: Version) -> None:
        """Serve it from now on."""
        self.refuse_taken(version.name)
        with self._lock:
            self._served[version.name] = version

    def route(self, alias: str, name: str) -> None:
        """Let `alias` mean `name` from the next request on. Raises InputError."""
        with self._lock:
            if name not in self._served or alias in self._served:
                raise InputError(f"{alias} cannot mean {name}: {self._offer()}")
            self._aliases[alias] = name

    def retire(self, name: str) -> None:
        """Take no more requests for `name`. Raises InputError."""
        with self._lock:
            if name not in self._served:
                raise InputError(f"{name} is not served: {self._offer()}")
            aliases = [alias for alias, target in self._aliases.items() if target == name]
            if aliases:
                raise InputError(f"{name} still serves {', '.join(aliases)}: route that elsewhere first")
            version = self._served.pop(name)
            version.retired = True
            self._leaving.append(version)

    def models(self) -> list[str]:
        """What "policy" means first, then the other names, then aliases."""
        with self._lock:
            policy = self._aliases.get(POLICY)
            return sorted(self._served, key=lambda name: name != policy) + list(self._aliases)

    def served(self) -> list[Version]:
        """All versions that may be asked for, and those that still have requests in flight."""
        with self._lock:
            return [*self._served.values(), *self._leaving]

    def take(self, model: str) -> Version:
        """The version that `model` means, with one more request in flight. Raises InputError."""
        with self._lock:
            version = self._served.get(self._aliases.get(model, model))
            if version is None:
                raise InputError(f"model {model} is not served: {self._offer()}")
            version.in_flight += 1
            return version

    def give_back(self, version: Version) -> None:
        """A request of `version` has ended, however it did."""
        with self._lock:
            version.in_flight -= 1

    def gone(self) -> list[Version]:
        """Retired versions whose last request has ended; each is told once."""
        with self._lock:
            gone = [version for version in self._leaving if version.in_flight == 0]
            self._leaving = [version for version in self._leaving if version.in_flight > 0]
            return gone

    def _offer(self) -> str:
        names = [*self._served, *self._aliases]
        return f"choose from {', '.join(names)}" if names else "nothing is served yet"
