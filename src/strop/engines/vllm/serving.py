"""vLLM as the one who serves: adapters written aside, loaded under names of their own, and looked after."""

import itertools
import os
import secrets
import shutil
import tempfile
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from strop.engines.adapter_files import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from strop.engines.local.weights import save_adapter
from strop.engines.serving import Events, Ground, OpenServing, Told
from strop.engines.vllm.availability import Availability
from strop.engines.vllm.bare import write_bare
from strop.engines.vllm.checks import Fit, base_of, refuse_unfit, same
from strop.engines.vllm.command import BASE
from strop.engines.vllm.control import Control
from strop.engines.vllm.roster import Roster, Version
from strop.engines.vllm.sampler import VllmSampler
from strop.engines.vllm.server import AttachedServer, OwnServer, Server
from strop.engines.vllm.settings import VllmSettings
from strop.engines.vllm.supervisor import Supervisor
from strop.errors import EngineError, PublishError, ServerLost

ADAPTER_FILES = (ADAPTER_CONFIG, ADAPTER_WEIGHTS)
LOADS = 3
"""How often a load is tried again on a server that was lost meanwhile."""


class VllmServing:
    """Implements `strop.engines.serving.Serving`. The server comes up in the background; who asks waits.

    `fit` looks over each server that comes up; the default is for one that samples.
    """

    def __init__(
        self, settings: VllmSettings, ground: Ground, events: Events, fit: Fit = refuse_unfit
    ) -> None:
        self._ground, self._tell, self._fit = ground, events, fit
        self._folder = _folder(settings)
        self._server = _server(settings, ground, self._folder)
        # At a server of others, names must not meet those of another run, nor of one that was killed.
        self._attached = settings.url is not None
        self._suffix = f".{secrets.token_hex(4)}" if self._attached else ""
        self._given: dict[str, itertools.count[int]] = {}
        self._control, self._roster = Control(), Roster()
        self._availability = Availability(doubted=lambda: self._supervisor.nudge())
        self.sampler = VllmSampler(
            self._roster,
            self._availability,
            lambda: self._server.url,
            forgotten=lambda why: self._supervisor.report(why),
            eos_ids=ground.tokenizer.eos_ids,
            max_length=ground.max_length,
            slots=ground.slots,
        )
        self._closed = False
        # Between a load and its place in the roster no restart may come: it would not put it back.
        self._changing = threading.Lock()
        self._base = BASE
        self._bare: Version | None = None
        self._greeting = tuple(ground.tokenizer.encode("Hello", special=False))
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

    def serve(self, name: str, version: int, adapter: Any | None, told: Told) -> None:
        """Write the adapter into a folder of its own, and load it. Raises PublishError where vLLM refuses.

        A path is an adapter folder, which is copied. `told.slots` is not heeded: sessions ask by the slots of
        the ground, and all else runs as vLLM chooses.
        """
        self._roster.refuse_taken(name)
        if adapter is None:
            remote = self._bare.remote if self._bare else self._base
            self._roster.add(Version(name=name, remote=remote, version=version, folder=None))
            return
        remote = self._remote(name)
        one = Version(
            name=name,
            remote=remote,
            version=version,
            folder=self._written(remote, adapter),
            prompt=told.prompt,
        )
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
        if self._attached:
            self._unload([*self._roster.served(), *([self._bare] if self._bare else [])])
        self._supervisor.close()
        self.sampler.close()
        self._control.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _remote(self, name: str) -> str:
        """A name that the server has not heard yet. Its prefix cache goes by name and folder, and a version
        that was refused may come again, changed."""
        number = next(self._given.setdefault(name, itertools.count(1)))
        return f"{name}{self._suffix}" + (f".{number}" if number > 1 else "")

    def _written(self, name: str, adapter: Any) -> Path:
        folder = self._folder / name
        aside = self._folder / f".{name}"
        if isinstance(adapter, Path):
            _copied(adapter, aside)
        else:
            save_adapter(adapter, aside)
        os.replace(aside, folder)
        return folder

    def _loaded(self, one: Version) -> None:
        for _ in range(LOADS):
            self._availability.wait()
            try:
                with self._changing:
                    self._control.load(self._server.url, one.remote, str(one.folder))
                    one.said = self._control.top(self._server.url, one.remote, one.prompt, 1.0)
                    self._stand_apart(one)
                    self._roster.add(one)
            except ServerLost as lost:
                self._availability.doubt(str(lost))
                continue
            except EngineError as error:
                self._unload([one])
                raise PublishError(str(error)) from error
            return
        raise PublishError(f"{one.name}: vLLM was lost {LOADS} times while it loaded this")

    def _stand_apart(self, adapter: Version) -> None:
        """From the first adapter on, an adapter without effect is the base: see `bare`."""
        if self._bare is not None or adapter.folder is None:
            return
        remote, url = self._remote(f"{BASE}@0"), self._server.url
        bare = Version(
            name=BASE, remote=remote, version=0, folder=self._folder / remote, prompt=self._greeting
        )
        write_bare(adapter.folder, self._folder / remote)
        self._control.load(url, remote, str(bare.folder))
        bare.said = self._control.top(url, remote, bare.prompt, 1.0)
        self._bare = bare
        self._name_base(remote)

    def _name_base(self, remote: str) -> None:
        for one in self._roster.served():
            if one.folder is None:
                one.remote = remote

    def _restore(self) -> None:
        """Look over a server that has just come up, load what it is to serve, and prove that."""
        url = self._server.url
        self._base = base_of(self._control, url, self._ground.max_length)
        self._fit(self._control, url, self._base, self._greeting)
        with self._changing:
            held = {model["id"] for model in self._control.models(url)}
            self._name_base(self._bare.remote if self._bare else self._base)
            for one in [*([self._bare] if self._bare else []), *self._roster.served()]:
                if one.folder is None:
                    continue
                if one.remote not in held:
                    self._control.load(url, one.remote, str(one.folder))
                says = self._control.top(url, one.remote, one.prompt, 1.0)
                if not same(one.said, says, self._ground.bound):
                    raise EngineError(f"{one.name} does not answer as it did before vLLM was lost")

    def _chores(self) -> None:
        """Let go of versions whose last request has ended."""
        self._unload(self._roster.gone())

    def _unload(self, versions: Sequence[Version]) -> None:
        for one in versions:
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


def _copied(adapter: Path, folder: Path) -> None:
    folder.mkdir()
    for name in ADAPTER_FILES:
        shutil.copyfile(adapter / name, folder / name)


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
