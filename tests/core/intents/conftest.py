"""
What the tests of declared handlers have in common: a registry of their own, and causes of any kind.
"""

import logging

import pytest
import yaml

import kopf
from kopf._cogs.structs import diffs
from kopf._core.intents import causes, reasons, registries

RESOURCE = kopf.Resource(
    'kopf.dev', 'v1', 'kopfexamples', 'KopfExample', 'kopfexample', frozenset({'kex'})
)


@pytest.fixture
def registry():
    """A registry for one test, which is not the default one."""
    return registries.OperatorRegistry()


@pytest.fixture
def default_registry(registry):
    """The same registry, used by default; the former default one comes back after the test."""
    former = kopf.get_default_registry()
    kopf.set_default_registry(registry)
    yield registry
    kopf.set_default_registry(former)


def build_cause(cls, body=None, **kwargs):
    """Build a cause about an object of the sample resource."""
    defaults = {
        'resource': RESOURCE,
        'patch': kopf.Patch(),
        'memo': kopf.Memo(),
        'logger': logging.getLogger('test'),
    }
    return cls(**{**defaults, 'body': kopf.Body(body or {}), **kwargs})


@pytest.fixture
def watching():
    """Build a cause of a raw event."""

    def build(body=None, **kwargs):
        return build_cause(
            causes.WatchingCause,
            body,
            **{'event': {'type': 'ADDED', 'object': body or {}}, **kwargs},
        )

    return build


@pytest.fixture
def spawning():
    """Build a cause of daemons and timers."""

    def build(body=None, **kwargs):
        return build_cause(causes.SpawningCause, body, **kwargs)

    return build


@pytest.fixture
def indexing():
    """Build a cause of indexing."""

    def build(body=None, **kwargs):
        return build_cause(causes.IndexingCause, body, **kwargs)

    return build


@pytest.fixture
def webhook():
    """Build a cause of an admission review."""

    def build(body=None, **kwargs):
        userinfo = {'username': 'user', 'uid': 'uid', 'groups': []}
        return build_cause(
            causes.WebhookCause, body, **{'dryrun': False, 'userinfo': userinfo, **kwargs}
        )

    return build


@pytest.fixture
def changing():
    """Build a cause of a change: from the old state to the new one, which is also the body."""

    def build(reason='update', old=None, new=None, **kwargs):
        body = kwargs.pop('body', new)
        return build_cause(
            causes.ChangingCause,
            body,
            reason=reasons.Reason(reason),
            old=old,
            new=new,
            diff=diffs.diff(old, new),
            **kwargs,
        )

    return build


@pytest.fixture
def called(registry):
    """List the ids of the handlers that are called for a cause."""

    def select(cause):
        match cause:
            case causes.WatchingCause():
                selected = registry._watching.iter_handlers(cause)
            case causes.ChangingCause():
                selected = registry._changing.iter_handlers(cause)
            case causes.SpawningCause():
                selected = registry._spawning.iter_handlers(cause)
            case causes.IndexingCause():
                selected = registry._indexing.iter_handlers(cause)
            case causes.WebhookCause():
                selected = registry._webhooks.iter_handlers(cause)
        return [handler.id for handler in selected]

    return select


@pytest.fixture
def write_kubeconfig(tmp_path, monkeypatch):
    """Write a kubeconfig with one context, and let it be found."""

    def write_kubeconfig(cluster=None, user=None, context=None):
        path = tmp_path / 'config'
        path.write_text(
            yaml.safe_dump(
                {
                    'clusters': [
                        {
                            'name': 'c',
                            'cluster': {'server': 'https://localhost:6443', **(cluster or {})},
                        }
                    ],
                    'users': [{'name': 'u', 'user': user or {}}],
                    'contexts': [
                        {'name': 'x', 'context': {'cluster': 'c', 'user': 'u', **(context or {})}}
                    ],
                    'current-context': 'x',
                }
            )
        )
        monkeypatch.setenv('KUBECONFIG', str(path))
        return path

    return write_kubeconfig
