"""
Signatures: which named arguments a function accepts, and which parameters can never be filled.

Only certain facts are used: the code of functions is inspected, not the claims of decorators. So a
wrapper that accepts everything does accept everything, and callables not written in Python are
never checked.
"""

import dataclasses
import functools
import inspect
import types
from collections.abc import Callable, Collection, Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Signature:
    """The parameters of a function that remain after some positional arguments are given."""

    named: tuple[str, ...]  # parameters that can be given by name
    required: frozenset[str]  # the subset of them with no defaults
    unnamed: tuple[str, ...] = ()  # required parameters that cannot be given by name
    filled: tuple[str, ...] = ()  # parameters given positionally, not to be given by name
    is_open: bool = False  # whether all other names are accepted too
    is_overfilled: bool = False  # whether there are fewer parameters than positional arguments

    def choose(self, kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Choose the arguments that the function accepts."""
        if self.is_open:
            return kwargs
        return {name: kwargs[name] for name in self.named if name in kwargs}


def read_signature(fn: Callable[..., Any], given: int = 0) -> Signature | None:
    """Read the signature after this number of positional arguments; ``None`` if it is unknown."""
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

    call = inspect.getattr_static(type(fn), '__call__', None)
    if isinstance(call, staticmethod):
        return read_signature(call, given)
    return _read_code(call, given + 1) if isinstance(call, types.FunctionType) else None


def find_mismatch(
    signature: Signature, names: Collection[str], *, is_complete: bool = True
) -> str | None:
    """
    Explain why every call with these names fails, as a part of a sentence; ``None`` if it does not.

    If the names are incomplete, missing names are not reported.
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
    """Suggest similar names, as a sentence with a leading space, or nothing."""
    import difflib  # only for mistakes

    similar = [match for name in unknown for match in difflib.get_close_matches(name, names, 1)]
    return f' Did you mean {_list(dict.fromkeys(similar))}?' if similar else ''


def narrow(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that ignores the named arguments that this one does not accept."""
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
    boundary = max(given, code.co_posonlyargcount)  # before it, no parameter can be given by name
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
    """Make these parameters optional: the function has values for them, which can be overridden."""
    return dataclasses.replace(signature, required=signature.required.difference(keywords))


def _list(names: Collection[str]) -> str:
    return ', '.join(map(repr, names))
