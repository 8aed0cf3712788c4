"""
What functions take by names, as read from their code, and which of them can never be called.
"""

import functools

import pytest

from kopf._core.actions import signatures

NAMES = ('name', 'spec', 'logger')


class Callable:
    def __call__(self, name, *, spec=None):
        pass


class Holder:
    def method(self, name):
        pass

    @classmethod
    def of_class(cls, name):
        pass

    @staticmethod
    def static(name):
        pass


class StaticCallable:
    @staticmethod
    def __call__(name, body):
        pass


def wrapped(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        return fn(*args, extra=1, **kwargs)

    return wrapper


def claim(fn):
    """Claim to have another signature, as some libraries of decorators do."""
    import inspect

    fn.__signature__ = inspect.signature(lambda *, unheard_of: None)
    return fn


@pytest.mark.parametrize(
    'fn, given, named',
    [
        pytest.param(lambda: None, 0, (), id='nothing'),
        pytest.param(lambda name, spec: None, 0, ('name', 'spec'), id='positional'),
        pytest.param(lambda *, name, spec=1: None, 0, ('name', 'spec'), id='keyword-only'),
        pytest.param(lambda x, /, name: None, 1, ('name',), id='positional-only'),
        pytest.param(lambda value, name: None, 1, ('name',), id='value-first'),
        pytest.param(lambda *args, name: None, 1, ('name',), id='args'),
        pytest.param(Callable(), 0, ('name', 'spec'), id='callable-object'),
        pytest.param(StaticCallable(), 0, ('name', 'body'), id='static-call'),
        pytest.param(StaticCallable(), 1, ('body',), id='static-call-with-value'),
        pytest.param(Holder().method, 0, ('name',), id='method'),
        pytest.param(Holder.of_class, 0, ('name',), id='class-method'),
        pytest.param(Holder.__dict__['static'], 0, ('name',), id='static-method'),
        pytest.param(functools.partial(lambda x, name: None, 1), 0, ('name',), id='partial'),
        pytest.param(
            functools.partial(lambda x, name: None, x=1), 0, ('x', 'name'), id='partial-keyword'
        ),
        pytest.param(claim(lambda name: None), 0, ('name',), id='claimed-signature'),
    ],
)
def test_function_takes_what_its_code_says(fn, given, named):
    signature = signatures.read_signature(fn, given)

    assert signature.named == named
    assert not signature.is_open
    assert signature.choose(dict.fromkeys([*named, 'other'], 1)) == dict.fromkeys(named, 1)


@pytest.mark.parametrize(
    'fn',
    [
        pytest.param(lambda **_: None, id='kwargs'),
        pytest.param(wrapped(lambda name, extra: None), id='wrapper'),
        pytest.param(functools.partial(lambda x, **_: None, 1), id='partial'),
    ],
)
def test_open_function_takes_everything_as_it_is(fn):
    kwargs = {'name': 1, 'other': 2}

    assert signatures.read_signature(fn).choose(kwargs) is kwargs
    assert signatures.narrow(fn) is fn


@pytest.mark.parametrize('fn', [print, dict, functools.lru_cache(lambda name: None)])
def test_signature_of_what_is_not_written_in_python_is_not_judged(fn):
    assert signatures.read_signature(fn) is None
    assert signatures.narrow(fn) is fn


@pytest.mark.parametrize(
    'fn, given, mismatch',
    [
        pytest.param(lambda: None, 0, None, id='nothing'),
        pytest.param(lambda name, spec: None, 0, None, id='known'),
        pytest.param(lambda nme=None: None, 0, None, id='unknown-with-default'),
        pytest.param(lambda *, nme=None: None, 0, None, id='unknown-keyword-with-default'),
        pytest.param(lambda *args, **kwargs: None, 1, None, id='everything'),
        pytest.param(functools.partial(lambda x, name: None, x=1), 0, None, id='bound'),
        pytest.param(wrapped(lambda extra, **_: None), 0, None, id='wrapper'),
        pytest.param(lambda nme, **_: None, 0, "requires 'nme', which it never gets", id='unknown'),
        pytest.param(
            lambda *, b, a: None, 0, "requires 'a', 'b', which it never gets", id='several'
        ),
        pytest.param(
            lambda name, /: None,
            0,
            "requires 'name' positionally, but arguments are given by names",
            id='positional-only',
        ),
        pytest.param(lambda name=None, /: None, 0, None, id='positional-only-with-default'),
        pytest.param(
            lambda **_: None,
            1,
            'takes no positional argument, but gets the value as one',
            id='no-place-for-the-value',
        ),
        pytest.param(
            lambda name, **_: None, 1, "gets 'name' twice: positionally and by name", id='twice'
        ),
        pytest.param(lambda name: None, 1, None, id='the-value-only'),
        pytest.param(lambda name, /, **_: None, 1, None, id='the-value-positionally-only'),
    ],
)
def test_mismatch_is_found_if_every_call_fails(fn, given, mismatch):
    signature = signatures.read_signature(fn, given)

    assert signatures.find_mismatch(signature, NAMES) == mismatch
    if mismatch is None:
        fn(*[1] * given, **signature.choose(dict.fromkeys(NAMES)))
    else:
        with pytest.raises(TypeError):
            fn(*[1] * given, **signature.choose(dict.fromkeys(NAMES)))


def test_unknown_names_are_no_mismatch_until_all_names_are_known():
    signature = signatures.read_signature(lambda nme: None)

    assert signatures.find_mismatch(signature, NAMES, is_complete=False) is None


def test_similar_names_are_suggested():
    assert signatures.suggest(['nme', 'zzz'], NAMES) == " Did you mean 'name'?"
    assert signatures.suggest(['zzz'], NAMES) == ''


def test_narrowed_function_ignores_what_it_does_not_take():
    narrowed = signatures.narrow(lambda value, name: (value, name))

    assert narrowed(1, name=2, spec=3) == (1, 2)
