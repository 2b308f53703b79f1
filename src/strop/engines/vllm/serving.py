"""vLLM as the one who serves: adapters written aside, loaded under names of their own, and looked after."""

import os
import secrets
import shutil
import tempfile
import threading
from functools import partial
from pathlib import Path
from typing import Any

from strop.engines.local.weights import save_adapter
from strop.engines.serving import Events, Ground, OpenServing
from strop.engines.vllm.availability import Availability
from strop.engines.vllm.command import BASE
from strop.engines.vllm.control import Control
from strop.engines.vllm.roster import Roster, Version
from strop.engines.vllm.sampler import VllmSampler
from strop.engines.vllm.server import AttachedServer, OwnServer, Server
from strop.engines.vllm.settings import VllmSettings
from strop.engines.vllm.supervisor import Supervisor
from strop.errors import EngineError, PublishError, ServerLost

LOADS = 3
"""How often a load is tried again on a server that was lost meanwhile."""


class VllmServing:
    """Implements `strop.engines.serving.Serving`. The server comes up in the background; who asks waits."""

    def __init__(self, settings: VllmSettings, ground: Ground, events: Events) -> None:
        self._tell = events
        self._folder = _folder(settings)
        self._server = _server(settings, ground, self._folder)
        # At a server of others, names must not meet those of another run, nor of one that was killed.
        self._suffix = "" if settings.url is None else f".{secrets.token_hex(4)}"
        self._control, self._availability, self._roster = Control(), Availability(), Roster()
        self.sampler = VllmSampler(
            self._roster,
            self._availability,
            lambda: self._server.url,
            eos_ids=ground.tokenizer.eos_ids,
            max_length=ground.max_length,
        )
        self._closed = False
        # Between a load and its place in the roster no restart may come: it would not put it back.
        self._changing = threading.Lock()
        self._roster.add(Version(name=BASE, remote=BASE, version=0, folder=None))
        self._supervisor = Supervisor(
            self._server,
            self._control,
            self._availability,
            restore=self._restore,
            chores=self._chores,
            answered=lambda: self.sampler.answered,
            tell=events,
            start_timeout_s=settings.start_timeout_s,
            max_restarts=settings.max_restarts,
        )
        self._supervisor.start()

    @property
    def base(self) -> str | None:
        return BASE

    @property
    def notes(self) -> tuple[str, ...]:
        return ()

    @property
    def closed(self) -> bool:
        return self._closed

    def serve(self, name: str, version: int, adapter: Any | None, *, slots: int | None = None) -> None:  # noqa: ARG002 - vLLM shares its slots out itself
        """Write the adapter into a folder of its own, and load it. Raises PublishError where vLLM refuses."""
        self._roster.refuse_taken(name)
        if adapter is None:
            self._roster.add(Version(name=name, remote=BASE, version=version, folder=None))
            return
        folder = self._written(name, adapter)
        one = Version(name=name, remote=f"{name}{self._suffix}", version=version, folder=folder)
        self._loaded(one)

    def wait(self) -> None:
        self._availability.wait()

    def route(self, alias: str, name: str) -> None:
        self._roster.route(alias, name)

    def retire(self, name: str) -> None:
        self._roster.retire(name)
        self._supervisor.nudge()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._availability.give_up("the engine is closed")
        self._supervisor.close()
        self.sampler.close()
        self._control.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _written(self, name: str, adapter: Any) -> Path:
        folder = self._folder / name
        aside = self._folder / f".{name}"
        save_adapter(adapter, aside)
        os.replace(aside, folder)
        return folder

    def _loaded(self, one: Version) -> None:
        for _ in range(LOADS):
            self._availability.wait()
            try:
                with self._changing:
                    self._control.load(self._server.url, one.remote, str(one.folder))
                    self._roster.add(one)
            except ServerLost:
                continue
            except EngineError as error:
                raise PublishError(str(error)) from error
            return
        raise PublishError(f"{one.name}: vLLM was lost {LOADS} times while it loaded this")

    def _restore(self) -> None:
        """Load what a server that has just come up is to serve."""
        with self._changing:
            for one in self._roster.served():
                if one.folder is not None:
                    self._control.load(self._server.url, one.remote, str(one.folder))

    def _chores(self) -> None:
        """Let go of versions whose last request has ended."""
        for one in self._roster.gone():
            if one.folder is None:
                continue
            try:
                self._control.unload(self._server.url, one.remote)
            except (EngineError, ServerLost) as error:
                self._tell("unload_failed", name=one.name, reason=str(error))
            shutil.rmtree(one.folder, ignore_errors=True)


def serving(settings: VllmSettings) -> OpenServing:
    """What opens a vLLM server for an engine. Raises InputError where it cannot be had."""
    return partial(VllmServing, settings)


def _folder(settings: VllmSettings) -> Path:
    if settings.folder is None:
        return Path(tempfile.mkdtemp(prefix="strop-vllm-"))
    settings.folder.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="served-", dir=settings.folder))


def _server(settings: VllmSettings, ground: Ground, folder: Path) -> Server:
    if settings.url is not None:
        return AttachedServer(settings.url)
    try:
        return OwnServer(settings, ground, folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
