"""Reading typed values out of JSON objects, with errors that say where the object stands."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from strop.errors import InputError


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a file a value stands; reads fields and raises InputError that opens with the place."""

    where: str

    def inside(self, name: str) -> "Place":
        return Place(f"{self.where}: {name}")

    def refuse(self, what: str) -> NoReturn:
        raise InputError(f"{self.where}: {what}")

    def plain(self, value: Any, name: str) -> Any:
        """A copy in dicts, lists and scalars. Refuses non-finite numbers and what is not JSON."""
        if isinstance(value, Mapping):
            if not all(isinstance(key, str) for key in value):
                self.refuse(f"{name} has a key that is not text; make every key a string")
            return {key: self.plain(item, f"{name}.{key}") for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.plain(item, f"{name}[{i}]") for i, item in enumerate(value)]
        if isinstance(value, float) and not math.isfinite(value):
            self.refuse(f"{name} is {value}; every number must be finite")
        if value is not None and not isinstance(value, str | int | float):
            self.refuse(f"{name} is a {type(value).__name__}; use JSON values only")
        return value

    def objects(self, fields: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
        value = fields.get(name)
        if value is None:
            return []
        if not isinstance(value, list | tuple) or not all(isinstance(item, Mapping) for item in value):
            self.refuse(f"{name} must be a list of objects")
        return list(value)

    def mapping(self, fields: Mapping[str, Any], name: str) -> dict[str, Any]:
        value = fields.get(name)
        if value is not None and not isinstance(value, Mapping):
            self.refuse(f"{name} must be an object")
        copied: dict[str, Any] = self.plain(value or {}, name)
        return copied

    def text(self, fields: Mapping[str, Any], name: str) -> str | None:
        value = fields.get(name)
        if value is not None and not isinstance(value, str):
            self.refuse(f"{name} must be text, not {kind(value)}")
        return value

    def identifier(self, fields: Mapping[str, Any], name: str) -> str | None:
        value = fields.get(name)
        return str(value) if type(value) is int else self.text(fields, name)

    def number(self, fields: Mapping[str, Any], name: str) -> float | None:
        value = fields.get(name)
        return None if value is None else self.finite(value, name)

    def numbers(self, fields: Mapping[str, Any], name: str) -> dict[str, float]:
        return {key: self.finite(value, f"{name}.{key}") for key, value in self.mapping(fields, name).items()}

    def finite(self, value: Any, name: str) -> float:
        if not isinstance(value, int | float):
            self.refuse(f"{name} must be a number, not {kind(value)}")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            self.refuse(f"{name} is not finite; leave it out or give a number")
        return number

    def whole(self, fields: Mapping[str, Any], name: str) -> int | None:
        value = fields.get(name)
        if value is not None and type(value) is not int:
            self.refuse(f"{name} must be a whole number, not {kind(value)}")
        return value

    def token_ids(self, fields: Mapping[str, Any], name: str) -> tuple[int, ...]:
        value = fields.get(name)
        if not isinstance(value, list | tuple) or not all(type(item) is int for item in value):
            self.refuse(f"{name} must be a list of whole numbers")
        return tuple(value)


def kind(value: Any) -> str:
    """What JSON calls the value, for error lines."""
    names = {dict: "object", list: "list", str: "text", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number")
