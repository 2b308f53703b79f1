"""One chat completion: from a checked request to sampled replies, at once or as a stream of chunks."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from strop.errors import EngineError, InputError, ServerLost
from strop.inference.chat import Chat, Reply
from strop.inference.disconnect import cancelled
from strop.inference.guarding import Guarding
from strop.inference.recorder import RecordedCall, Session
from strop.inference.request import ChatRequest
from strop.inference.response import Choice, Envelope, chunk, completion, short_id, usage_chunk
from strop.inference.sampling import OnToken, Sampled, Sampler, SamplingParams
from strop.inference.streaming import ShownText, TextStream
from strop.inference.template import CALL_OPEN
from strop.seeds import derive
from strop.trajectory.model import Turn
from strop.trajectory.tokens import check_turn

SendChunk = Callable[[dict[str, Any]], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A request whose prompt is made: everything that is needed to sample it.

    `seed` is of the first choice, further ones derive theirs from it. `scope` names the call, and
    the ids of its tool calls are made from it: the same in every run for a call of a session.
    """

    sampler: Sampler
    chat: Chat
    asked: ChatRequest
    prompt_ids: tuple[int, ...]
    max_tokens: int
    seed: int
    scope: str
    session: Session | None
    call_index: int
    envelope: Envelope
    guarding: Guarding | None = None

    async def answer(self) -> dict[str, Any]:
        """Sample all choices, record them, and return the chat.completion object."""
        tasks = [asyncio.ensure_future(self._sample(index)) for index in range(self.asked.n)]
        try:
            sampled = await asyncio.gather(*tasks)
        finally:
            await cancelled(*tasks)
        read = [self._choice(index, one) for index, one in enumerate(sampled)]
        choices = list(await asyncio.gather(*map(self._watched, read)))
        self._record(choices)
        decode = self.chat.tokenizer.decode if self.asked.logprobs else None
        return completion(self.envelope, choices, decode)

    async def stream(self, send: SendChunk) -> None:
        """Send text as it is sampled, tool calls and log-probs at the end of each choice."""
        queue: asyncio.Queue[tuple[int, int | None]] = asyncio.Queue()
        tasks = [asyncio.ensure_future(self._sample_into(queue, index)) for index in range(self.asked.n)]
        texts = [_Streamed(self, index) for index in range(self.asked.n)]
        choices: list[Choice] = []
        try:
            while len(choices) < len(tasks):
                index, token_id = await queue.get()
                if token_id is not None:
                    await texts[index].token(token_id, send)
                    continue
                choices.append(await self._watched(self._choice(index, tasks[index].result())))
                if len(choices) == len(tasks):
                    self._record(sorted(choices, key=lambda choice: choice.index))
                await texts[index].end(choices[-1], send)
        finally:
            await cancelled(*tasks)
        if self.asked.include_usage:
            await send(usage_chunk(self.envelope, [choice.sampled for choice in choices]))

    async def _sample(self, index: int, on_token: OnToken | None = None) -> Sampled:
        asked = self.asked
        params = SamplingParams(
            max_tokens=self.max_tokens,
            temperature=asked.temperature,
            top_p=asked.top_p,
            seed=derive(self.seed, "choice", index) if index else self.seed,
            stop=asked.stop,
            top_logprobs=asked.top_logprobs,
        )
        session = self.session.name if self.session else None
        try:
            return await self.sampler.sample(
                self.prompt_ids, params, model=asked.model, session=session, on_token=on_token
            )
        except ServerLost as lost:
            if self.session is not None:
                self.session.lost = str(lost)
            raise

    async def _sample_into(self, queue: asyncio.Queue[tuple[int, int | None]], index: int) -> Sampled:
        """Sampling whose tokens and end pass through the queue. The sampler may call from any thread."""
        loop = asyncio.get_running_loop()

        def on_token(token_id: int, _logprob: float) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(queue.put_nowait, (index, token_id))

        try:
            return await self._sample(index, on_token)
        finally:
            loop.call_soon(queue.put_nowait, (index, None))

    def _choice(self, index: int, sampled: Sampled) -> Choice:
        text = _cut(self.chat.tokenizer.decode(sampled.ids), self.asked.stop)
        reply = self.chat.parse(text, self.asked.tools if self.asked.calls_allowed else ())
        message = _message(reply, f"{self.scope}/{index}", self.asked.parallel_calls)
        ended_by_call = bool(reply.tool_calls) and sampled.finish_reason == "stop"
        return Choice(
            index=index,
            message=message,
            finish_reason="tool_calls" if ended_by_call else sampled.finish_reason,
            sampled=sampled,
            problem=reply.problem,
        )

    async def _watched(self, choice: Choice) -> Choice:
        if self.guarding is None:
            return choice
        return await self.guarding.watched(choice, self._turn(choice.sampled), self.scope)

    def _record(self, choices: Sequence[Choice]) -> None:
        turns = [self._turn(choice.sampled) for choice in choices]
        if self.session is None:
            return
        self.session.record(
            [
                RecordedCall(
                    index=self.call_index,
                    choice=choice.index,
                    messages=self.asked.messages,
                    tools=self.asked.tools,
                    reply=choice.message,
                    turn=turn,
                    problem=choice.problem,
                    held=choice.held,
                )
                for choice, turn in zip(choices, turns, strict=True)
            ]
        )

    def _turn(self, sampled: Sampled) -> Turn:
        if sampled.finish_reason not in ("stop", "length"):
            raise EngineError(f"the sampler gave up on this call ({sampled.finish_reason})")
        turn = Turn(
            prompt_ids=self.prompt_ids,
            sampled_ids=sampled.ids,
            logprobs=sampled.logprobs,
            finish_reason=sampled.finish_reason,
            message_index=len(self.asked.messages),
            policy_version=sampled.version,
            temperature=self.asked.temperature,
        )
        try:
            check_turn(turn)
        except InputError as error:
            raise EngineError(f"the sampler returned a broken reply: {error}") from error
        return turn


class _Streamed:
    """One choice of a stream: what has been sent of it, and what is still to be sent."""

    def __init__(self, call: Completion, index: int) -> None:
        asked = call.asked
        self._index = index
        self._envelope = call.envelope
        self._decode = call.chat.tokenizer.decode if asked.logprobs else None
        self._text = TextStream(call.chat.tokenizer.decode)
        self._shown = ShownText((*asked.stop, CALL_OPEN) if asked.calls_allowed else asked.stop)
        self._opened = False
        self._ended = False

    async def token(self, token_id: int, send: SendChunk) -> None:
        """Send what this token adds to the text, if that is certain to be content."""
        text = "" if self._ended else self._shown.feed(self._text.feed(token_id))
        if text:
            await send(self._chunk({"content": text}))

    async def end(self, choice: Choice, send: SendChunk) -> None:
        """Send the rest of the content, the tool calls, then the reason why it ended."""
        self._ended = True
        rest = self._shown.rest(choice.message["content"] or "")
        delta: dict[str, Any] = {"content": rest} if rest else {}
        if "tool_calls" in choice.message:
            calls = enumerate(choice.message["tool_calls"])
            delta["tool_calls"] = [{"index": index, **call} for index, call in calls]
        if delta:
            await send(self._chunk(delta))
        await send(self._chunk({}, choice))

    def _chunk(self, delta: dict[str, Any], end: Choice | None = None) -> dict[str, Any]:
        opening = {} if self._opened else {"role": "assistant", "content": ""}
        self._opened = True
        return chunk(self._envelope, self._index, {**opening, **delta}, end=end, decode=self._decode)


def _message(reply: Reply, scope: str, parallel: bool) -> dict[str, Any]:
    calls = reply.tool_calls if parallel else reply.tool_calls[:1]
    if not calls:
        return {"role": "assistant", "content": reply.content or ""}
    listed = [
        {
            "id": f"call_{short_id(f'{scope}/{index}')}",
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for index, call in enumerate(calls)
    ]
    return {"role": "assistant", "content": reply.content, "tool_calls": listed}


def _cut(text: str, stops: Sequence[str]) -> str:
    ends = [at for at in (text.find(stop) for stop in stops) if at >= 0]
    return text[: min(ends)] if ends else text
