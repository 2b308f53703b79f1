"""The gateway: an OpenAI-compatible server in front of a sampler that records what agents do.

Each session has its own base URL. An agent that is pointed at it is recorded without knowing:
messages, token ids, log-probs, policy version. The plain URL answers the same and records nothing.
"""

import asyncio
import hmac
import json
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from strop.errors import InputError, ServerLost, StropError
from strop.inference.api_errors import (
    ApiError,
    internal,
    no_such_model,
    no_such_session,
    server_lost,
    session_ended,
    too_long,
    wrong_key,
)
from strop.inference.chat import Chat
from strop.inference.completion import Completion
from strop.inference.disconnect import ClientGone, WorkCancelled, while_connected
from strop.inference.guarding import Guarding
from strop.inference.recorder import RecordedCall, Session
from strop.inference.request import ChatRequest, read_request
from strop.inference.response import Envelope, model_object, short_id
from strop.inference.sampling import Sampler
from strop.seeds import derive

_log = logging.getLogger(__name__)
_CLIENT_CLOSED = 499

Handler = Callable[[Request], Awaitable[Response]]


class Gateway:
    """Serves a sampler under OpenAI's API, and records the calls of open sessions.

    `api_key` is asked of every request (None: of none). `max_context` counts prompt and reply tokens
    together: a prompt that leaves no room is refused, and a reply ends with "length" where the context
    does. `seed` is the root of the seeds of calls that name none. `root` is the URL the app is served at,
    set by whoever serves it.
    """

    def __init__(
        self, sampler: Sampler, chat: Chat, *, api_key: str | None, max_context: int, seed: int = 0
    ) -> None:
        self.root = ""
        self._sampler = sampler
        self._chat = chat
        self._authorization = None if api_key is None else f"Bearer {api_key}".encode()
        self._max_context = max_context
        self._seed = seed
        self._sessions: dict[str, Session] = {}
        self._created = int(time.time())
        self._guarding: Guarding | None = None
        self.app = Starlette(routes=self._routes(), exception_handlers={HTTPException: _http_error})

    @property
    def base_url(self) -> str:
        """Where the current policy is served without being recorded."""
        return f"{self._served_root()}/v1"

    def open(self, keys: Sequence[str], temperature: float | None = None) -> dict[str, str]:
        """Open a cohort of sessions, in the order in which they may start; base URLs by key.

        Their calls are sampled at `temperature`, 0 for greedy, whatever they ask for; None: as they ask.
        Raises InputError for a key that is empty, open already, or there twice.
        """
        root = self._served_root()
        for place, key in enumerate(keys):
            if not key or key in self._sessions or key in keys[:place]:
                raise InputError(f"session {key!r} cannot be opened: {'it is open' if key else 'no name'}")
        self._sampler.open(keys)
        self._sessions.update((key, Session(key, temperature)) for key in keys)
        return {key: f"{root}/s/{quote(key, safe='')}/v1" for key in keys}

    def take(self, key: str) -> tuple[RecordedCall, ...]:
        """End a session; its calls in the order in which they began. Running ones are cancelled and lost.

        Raises InputError for a session that is not open.
        """
        ended = self._sessions.pop(key, None)
        if ended is None:
            raise InputError(f"session {key!r} is not open")
        calls = ended.take()
        self._sampler.shut(key)
        return calls

    def lost(self, key: str) -> str | None:
        """Why a call of this open session was lost with the server that was to answer it; None: none was.

        Raises InputError for a session that is not open.
        """
        session = self._sessions.get(key)
        if session is None:
            raise InputError(f"session {key!r} is not open")
        return session.lost

    def waits(self, key: str) -> bool:
        """Whether other sessions must end before this one is answered."""
        return self._sampler.waits(key)

    async def ready(self) -> None:
        """Return once calls can be answered. Raises EngineError where none ever will."""
        await self._sampler.ready()

    def guard(self, guarding: Guarding) -> None:
        """From now on let this guard look at every reply, and serve what waits at /v1/approvals."""
        self._guarding = guarding
        approvals = guarding.approvals
        self.app.router.routes += [
            Route("/v1/approvals", _guarded(approvals.listed), methods=["GET"]),
            Route("/v1/approvals/{approval}", _guarded(approvals.answered), methods=["POST"]),
        ]

    def _served_root(self) -> str:
        if not self.root:
            raise InputError("the gateway is not served yet: set its root to the server's URL")
        return self.root.rstrip("/")

    def _routes(self) -> list[Route]:
        routes = []
        for root in ("/v1", "/s/{session:path}/v1"):
            routes += [
                Route(f"{root}/chat/completions", _guarded(self._chat_completions), methods=["POST"]),
                Route(f"{root}/models", _guarded(self._models), methods=["GET"]),
                Route(f"{root}/models/{{model:path}}", _guarded(self._model), methods=["GET"]),
            ]
        return routes

    async def _models(self, request: Request) -> Response:
        self._admit(request)
        listed = [model_object(name, self._created) for name in self._sampler.models()]
        return _json({"object": "list", "data": listed})

    async def _model(self, request: Request) -> Response:
        self._admit(request)
        name = request.path_params["model"]
        self._check_served(name)
        return _json(model_object(name, self._created))

    async def _chat_completions(self, request: Request) -> Response:
        session = self._admit(request)
        asked = read_request(await request.body())
        self._check_served(asked.model)
        if session is not None and session.temperature is not None:
            asked = replace(asked, temperature=session.temperature)
        call = self._prepared(asked, session)
        if asked.stream:
            return _EventStream(call)
        work: asyncio.Future[Any] = asyncio.ensure_future(call.answer())
        if session is not None:
            session.watch(work)
        return _json(await while_connected(request.receive, work))

    def _admit(self, request: Request) -> Session | None:
        """The session of the URL, None for the plain one. Raises ApiError for a wrong key or session."""
        given = request.headers.get("authorization", "").encode("utf-8", "replace")
        if self._authorization is not None and not hmac.compare_digest(given, self._authorization):
            raise wrong_key()
        name = request.path_params.get("session")
        if name is None:
            return None
        session = self._sessions.get(name)
        if session is None:
            raise no_such_session(name)
        return session

    def _check_served(self, model: str) -> None:
        served = self._sampler.models()
        if model not in served:
            raise no_such_model(model, list(served))

    def _prepared(self, asked: ChatRequest, session: Session | None) -> Completion:
        prompt_ids = self._prompt_ids(asked, session)
        room = self._max_context - len(prompt_ids)
        if room < 1:
            raise too_long(len(prompt_ids), self._max_context)
        call_index = session.begin() if session else 0
        seed = asked.seed
        if seed is None:
            seed = derive(self._seed, "call", session.name, call_index) if session else secrets.randbits(63)
        scope = f"{session.name}/{call_index}" if session else secrets.token_hex(12)
        return Completion(
            sampler=self._sampler,
            chat=self._chat,
            asked=asked,
            prompt_ids=tuple(prompt_ids),
            max_tokens=min(room, asked.max_tokens or room),
            seed=seed % 2**63,
            scope=scope,
            session=session,
            call_index=call_index,
            guarding=self._guarding,
            envelope=Envelope(
                response_id=f"chatcmpl-{short_id(scope)}", model=asked.model, prompt_tokens=len(prompt_ids)
            ),
        )

    def _prompt_ids(self, asked: ChatRequest, session: Session | None) -> list[int]:
        known = session.known(asked.messages, asked.tools) if session else None
        if known is not None:
            ids = self._chat.extend(known.ids, asked.messages, known.messages, asked.tools)
            if ids is not None:
                return ids
        return self._chat.prompt(asked.messages, asked.tools)


class _EventStream(Response):
    """Server-sent events of one streamed completion; sampling stops when the client goes."""

    def __init__(self, call: Completion) -> None:
        self._call = call
        self.status_code = 200
        self.background = None
        self.init_headers({"content-type": "text/event-stream", "cache-control": "no-cache"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            await self._events(receive, send)
        except (ClientGone, OSError):
            return
        await send({"type": "http.response.body", "body": b""})

    async def _events(self, receive: Receive, send: Send) -> None:
        async def event(data: dict[str, Any]) -> None:
            body = b"data: " + _encoded(data) + b"\n\n"
            await send({"type": "http.response.body", "body": body, "more_body": True})

        work = asyncio.ensure_future(self._call.stream(event))
        if self._call.session is not None:
            self._call.session.watch(work)
        try:
            await while_connected(receive, work)
        except StropError as error:  # some of these are OSErrors too, but none says that the client is gone
            await event(_as_api_error(error).body)
        except (ClientGone, OSError):
            raise
        except asyncio.CancelledError:
            await event(internal("the server is closing").body)
            raise
        except Exception as error:  # noqa: BLE001 - the status is sent: the stream is the only place left
            await event(_as_api_error(error).body)
        else:
            await send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": True})


def _guarded(handler: Handler) -> Handler:
    """The boundary of the server: whatever a handler raises becomes an answer in OpenAI's shape."""

    async def guarded(request: Request) -> Response:
        try:
            return await handler(request)
        except ClientGone:
            return Response(status_code=_CLIENT_CLOSED)
        except Exception as error:  # noqa: BLE001 - one bad request must not take the server down
            return _error(_as_api_error(error))

    return guarded


def _as_api_error(error: Exception) -> ApiError:
    if isinstance(error, ApiError):
        return error
    if isinstance(error, WorkCancelled):
        return session_ended()
    if isinstance(error, InputError):
        return ApiError(str(error))
    if isinstance(error, ServerLost):
        return server_lost(str(error))
    if isinstance(error, StropError):
        return internal(str(error))
    _log.error("a request failed inside", exc_info=error)
    return internal(f"{type(error).__name__}: {error}")


async def _http_error(_request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    said = error.detail if isinstance(error, HTTPException) else str(error)
    return _error(ApiError(f"{said}: there is no such endpoint here", status=status, code="unknown_url"))


def _error(error: ApiError) -> Response:
    return _json(error.body, error.status)


def _json(value: object, status: int = 200) -> Response:
    return Response(_encoded(value), status_code=status, media_type="application/json")


def _encoded(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
