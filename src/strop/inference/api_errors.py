"""What the gateway answers when it cannot: OpenAI's error object with the right status."""

from typing import Any

from strop.errors import StropError


class ApiError(StropError):
    """One refused or failed request: HTTP status, and the fields of OpenAI's error object."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.kind, self.param, self.code = status, kind, param, code

    @property
    def body(self) -> dict[str, Any]:
        """The JSON object of the response."""
        error = {"message": str(self), "type": self.kind, "param": self.param, "code": self.code}
        return {"error": error}


def wrong_key() -> ApiError:
    return ApiError("the API key is missing or wrong", status=401, code="invalid_api_key")


def no_such_model(asked: str, served: list[str]) -> ApiError:
    return ApiError(
        f"model {asked!r} is not served here; there is {', '.join(served) or 'none'}",
        status=404,
        param="model",
        code="model_not_found",
    )


def no_such_session(name: str) -> ApiError:
    return ApiError(f"session {name!r} is not open", status=404, code="session_not_found")


def session_ended() -> ApiError:
    return ApiError("the session ended while this call was running", status=409, code="session_ended")


def too_long(prompt_tokens: int, max_context: int) -> ApiError:
    return ApiError(
        f"the prompt has {prompt_tokens} tokens, which leaves no room in a context of {max_context}",
        param="messages",
        code="context_length_exceeded",
    )


def server_lost(message: str) -> ApiError:
    return ApiError(message, status=503, kind="server_error", code="server_lost")


def internal(message: str) -> ApiError:
    return ApiError(message, status=500, kind="server_error", code="internal_error")
