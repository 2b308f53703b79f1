"""The agent that is trained: any async function of an OpenAI client and a scenario.

Whatever it asks of `client` is recorded; nothing here knows of training. Call tools, other models or
your own code as you like. The one rule: the model to be trained is asked through `client`.
"""

from typing import Any

SYSTEM = (
    "You write support tickets. From the customer's message, write one line in the form "
    "'PRIORITY: summary', where PRIORITY is LOW, NORMAL or URGENT."
)


async def run(client: Any, scenario: Any) -> list[dict[str, str]]:
    """One attempt. Returns the conversation; the judge reads it."""
    messages = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": scenario.data["message"]},
    ]
    completion = await client.chat.completions.create(
        model="policy", messages=messages, temperature=1.0, max_tokens=48
    )
    reply = completion.choices[0].message.content or ""
    return [*messages, {"role": "assistant", "content": reply}]
