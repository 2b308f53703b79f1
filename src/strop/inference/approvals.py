"""Calls that wait for somebody's word: a list to read, and an answer to give."""

import asyncio
import hmac
import json
import secrets
import time
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from strop.inference.api_errors import ApiError, wrong_key

KEPT = 1000
"""Answered cases that are kept to be read; the oldest are forgotten first."""


class Approvals:
    """Cases by name, each `waiting`, `approved`, `denied`, `timed out` or `client gone`.

    `key` is asked of whoever reads or answers. It is not the agent's: an agent that holds it could approve
    its own calls. Everything happens in the server's event loop.
    """

    def __init__(self, key: str) -> None:
        self._authorization = f"Bearer {key}".encode()
        self._cases: dict[str, dict[str, Any]] = {}
        self._waiting: dict[str, asyncio.Future[str]] = {}

    def ask(self, case: Mapping[str, Any]) -> tuple[str, "asyncio.Future[str]"]:
        """Enter a case; its name, and the answer to wait for: "approved" or "denied"."""
        name = f"approval-{secrets.token_hex(8)}"
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._cases[name] = {"id": name, "asked": time.time(), **case}
        self._waiting[name] = answer
        self._forget()
        return name, answer

    def end(self, name: str, status: str) -> None:
        """Nobody waits for this answer any more."""
        self._waiting.pop(name, None)
        self._cases[name]["status"] = status

    def cases(self) -> list[dict[str, Any]]:
        """All cases that are kept, the newest last."""
        return list(self._cases.values())

    async def listed(self, request: Request) -> Response:
        """GET: every case."""
        self._admit(request)
        return JSONResponse({"object": "list", "data": self.cases()})

    async def answered(self, request: Request) -> Response:
        """POST {"approve": true or false}: answer a waiting case; the case. 409 where it waits no more."""
        self._admit(request)
        name = request.path_params["approval"]
        case, approve = self._case(name), _approve(await request.body())
        answer = self._waiting.get(name)
        if answer is None or answer.done():
            raise ApiError(f"{name} does not wait: {case['status']}", status=409, code="not_waiting")
        status = "approved" if approve else "denied"
        self.end(name, status)
        answer.set_result(status)
        return JSONResponse(case)

    def _case(self, name: str) -> dict[str, Any]:
        case = self._cases.get(name)
        if case is None:
            raise ApiError(f"no such approval: {name}", status=404, code="approval_not_found")
        return case

    def _admit(self, request: Request) -> None:
        given = request.headers.get("authorization", "").encode("utf-8", "replace")
        if not hmac.compare_digest(given, self._authorization):
            raise wrong_key()

    def _forget(self) -> None:
        ended = [name for name in self._cases if name not in self._waiting]
        for name in ended[: max(0, len(ended) - KEPT)]:
            del self._cases[name]


def _approve(body: bytes) -> bool:
    try:
        approve = json.loads(body)["approve"]
    except (ValueError, KeyError, TypeError) as error:
        raise ApiError('the body must be {"approve": true} or {"approve": false}') from error
    if not isinstance(approve, bool):
        raise ApiError("approve must be true or false", param="approve")
    return approve
