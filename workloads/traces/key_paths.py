"""Values deep in JSON objects, taken out without decoding the rest."""

from collections.abc import Callable, Collection, Sequence
from operator import attrgetter
from typing import Any

import msgspec

KeyPath = tuple[str, ...]
"""Keys from the outside to the inside."""
Values = Callable[[Any], Sequence[Any]]


class KeyPaths:
    """Decodes JSON objects so far that the values at some paths can be had."""

    def __init__(self, paths: Collection[KeyPath], raw: Collection[KeyPath] = ()) -> None:
        """`paths` are decoded to Python values; those of `raw` are left as JSON text (msgspec.Raw)."""
        self._attributes: dict[KeyPath, str] = {}
        tree: dict[str, Any] = {}
        for path in [*paths, *raw]:
            node = tree
            for key in path:
                node = node.setdefault(key, {})
        self._decoder = msgspec.json.Decoder(self._struct(tree, (), frozenset(raw)))

    def decode(self, data: bytes) -> Any:
        """What a getter takes; msgspec's errors for anything but a JSON object."""
        return self._decoder.decode(data)

    def getter(self, paths: Sequence[KeyPath]) -> Values:
        """What returns the values at these paths of a decoded object, as many: None for one that is null,
        or not there."""
        names = [[self._attributes[path[:depth]] for depth in range(1, len(path) + 1)] for path in paths]
        if not names:
            return lambda row: ()
        together = attrgetter(*map(".".join, names))

        def values(row: Any) -> Sequence[Any]:
            try:
                found = together(row)
            except AttributeError:   # what should be an object is a number, a text or null
                return [_value(row, inwards) for inwards in names]
            return found if len(names) > 1 else (found,)
        return values

    def _struct(self, tree: dict[str, Any], path: KeyPath, raw: Collection[KeyPath]) -> type[msgspec.Struct]:
        fields: list[tuple[str, Any, Any]] = []
        keys = {}
        for number, (key, below) in enumerate(tree.items()):
            inner = (*path, key)
            name = self._attributes[inner] = f"key_{number}"
            keys[name] = key
            if below:   # what is no object there has none of the values that are asked for
                struct = self._struct(below, inner, raw)
                fields.append((name, struct | str | float | bool | list[msgspec.Raw] | None, struct()))
            else:
                fields.append((name, msgspec.Raw if inner in raw else Any, None))
        return msgspec.defstruct("Keys", fields, rename=keys, gc=False, frozen=True)


def _value(row: Any, names: Sequence[str]) -> Any:
    for name in names:
        row = getattr(row, name, None)
    return row
