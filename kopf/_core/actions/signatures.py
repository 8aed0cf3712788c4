"""
Signatures: which arguments a function takes by their names, and which of its parameters can never be filled.

Only what is certain is said: the code of functions is read, not what decorators claim about it. So a wrapper that takes
everything does take everything, and anything that is not written in Python is never judged.
"""

import dataclasses
import functools
import inspect
import types
from collections.abc import Callable, Collection, Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Signature:
    """The parameters of a function that are left after some positional arguments are given."""

    named: tuple[str, ...]  # those that can be given by their names
    required: frozenset[str]  # those of them that have no defaults
    unnamed: tuple[str, ...] = ()  # those without defaults that cannot be given by their names
    filled: tuple[str, ...] = ()  # those given positionally, which cannot be given again by name
    is_open: bool = False  # whether all other names are accepted, too
    is_overfilled: bool = False  # whether there are fewer parameters than positional arguments

    def choose(self, kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Choose those of the arguments that the function takes."""
        if self.is_open:
            return kwargs
        return {name: kwargs[name] for name in self.named if name in kwargs}


def read_signature(fn: Callable[..., Any], given: int = 0) -> Signature | None:
    """Read what the function takes after so many positional arguments; ``None`` if it cannot be known."""
    match fn:
        case functools.partial():
            signature = read_signature(fn.func, given + len(fn.args))
            return None if signature is None else _bind(signature, fn.keywords)
        case types.MethodType():
            return read_signature(fn.__func__, given + 1)
        case staticmethod():
            return read_signature(fn.__func__, given)
        case types.FunctionType():
            return _read_code(fn, given)
    call = type(fn).__call__
    return _read_code(call, given + 1) if isinstance(call, types.FunctionType) else None


def find_mismatch(
    signature: Signature, names: Collection[str], *, is_complete: bool = True
) -> str | None:
    """
    Find why every call by these names fails, as a part of a sentence about the function; ``None`` if it does not.

    If the names are not complete, those that are missing say nothing yet.
    """
    missing = sorted(signature.required.difference(names)) if is_complete else []
    repeated = [name for name in signature.filled if signature.is_open and name in names]
    if signature.is_overfilled:
        return 'takes no positional argument, but gets the value as one'
    if signature.unnamed:
        return f'requires {_list(signature.unnamed)} positionally, but arguments are given by names'
    if repeated:
        return f'gets {_list(repeated)} twice: positionally and by name'
    return f'requires {_list(missing)}, which it never gets' if missing else None


def suggest(unknown: Collection[str], names: Collection[str]) -> str:
    """Suggest the names that could be meant, as a sentence with a leading space, or nothing."""
    import difflib  # only for mistakes

    similar = [match for name in unknown for match in difflib.get_close_matches(name, names, 1)]
    return f' Did you mean {_list(dict.fromkeys(similar))}?' if similar else ''


def narrow(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function that ignores the named arguments that this one does not take; it can be the same function."""
    signature = read_signature(fn)
    if signature is None or signature.is_open:
        return fn

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        signature = read_signature(fn, len(args))
        return fn(*args, **(kwargs if signature is None else signature.choose(kwargs)))

    return call


def _read_code(fn: types.FunctionType, given: int) -> Signature:
    code = fn.__code__
    positional = code.co_varnames[: code.co_argcount]
    keywords = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    boundary = max(given, code.co_posonlyargcount)  # before it, nothing can be given by name
    optional = {*positional[len(positional) - len(fn.__defaults__ or ()) :]}
    optional |= (fn.__kwdefaults__ or {}).keys()
    named = positional[boundary:] + keywords
    return Signature(
        named=named,
        required=frozenset(named) - optional,
        unnamed=tuple(name for name in positional[given:boundary] if name not in optional),
        filled=positional[code.co_posonlyargcount : given],
        is_open=bool(code.co_flags & inspect.CO_VARKEYWORDS),
        is_overfilled=given > len(positional) and not code.co_flags & inspect.CO_VARARGS,
    )


def _bind(signature: Signature, keywords: Mapping[str, Any]) -> Signature:
    """Make those parameters optional: the function has values for them, which can be overridden."""
    return dataclasses.replace(signature, required=signature.required.difference(keywords))


def _list(names: Collection[str]) -> str:
    return ', '.join(map(repr, names))
