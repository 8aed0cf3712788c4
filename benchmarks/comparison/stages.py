"""
Stages: a sandbox where an operator is run by one implementation, then by another; and the results.

The operators are separate processes. They are only observed from outside: which handlers they call,
what they write to the cluster, and what they leave on the objects.
"""

import base64
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

DIRECTORY = pathlib.Path(__file__).parent / 'operators'
PREFIX, LAST_HANDLED = 'kopf.zalando.org/', 'kopf.zalando.org/last-handled-configuration'
TIMEOUT = 60.0
OPERATIONS = ['CREATE', 'UPDATE', 'DELETE', 'CONNECT']
VOLATILE = (
    'uid',
    'resourceVersion',
    'creationTimestamp',
    'generation',
    'managedFields',
    'deletionTimestamp',
)


@dataclasses.dataclass(frozen=True)
class Scene:
    """The results of one step of a scenario."""

    name: str
    calls: Sequence[str]  # as JSON, sorted
    writes: int
    objects: dict[str, Any]  # by name, without volatile fields
    # The annotations of unfinished handling, by the name of the object.
    leftovers: dict[str, list[str]]


class Stage:
    """One run of one scenario. The implementations take turns in the given order."""

    def __init__(
        self,
        sandbox: Any,
        operator: str,
        kopfs: Sequence[str],
        *,
        calls: pathlib.Path,
        patience: float,
    ):
        self.sandbox, self.operator, self.kopfs = sandbox, operator, iter(kopfs)
        self.calls, self.patience = calls, patience
        self.process: subprocess.Popen[bytes] | None = None
        self.calls.touch()

    def start(self) -> None:
        """Run the operator with the next implementation, and wait until it watches the objects."""
        watching = len(self._list_requests('watch'))
        env = {
            **os.environ,
            'KUBECONFIG': str(self.sandbox.kubeconfig),
            'COMPARISON_CALLS': str(self.calls),
            'COMPARISON_REVIEWS': str(self.calls.parent),
            'PYTHONPATH': str(DIRECTORY),
        }
        command = [
            next(self.kopfs),
            'run',
            '--all-namespaces',
            '--standalone',
            str(DIRECTORY / self.operator),
        ]
        self.process = subprocess.Popen(
            command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + TIMEOUT
        while len(self._list_requests('watch')) == watching:
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise RuntimeError(f'{command[0]} does not watch the objects.')
            time.sleep(0.05)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End the operator: gracefully, or with SIGKILL."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(TIMEOUT)
            self.process = None

    def create(self, name: str, spec: dict[str, Any], **metadata: Any) -> None:
        self.sandbox.create(
            {
                'apiVersion': 'kopf.dev/v1',
                'kind': 'KopfExample',
                'spec': spec,
                'metadata': {'name': name, 'namespace': 'default', **metadata},
            }
        )

    def patch(self, name: str, patch: dict[str, Any], **options: Any) -> None:
        self.sandbox.patch('kopfexamples', name, patch, **options)

    def open(self, name: str) -> None:
        """Let the gated handlers succeed."""
        self.patch(name, {'status': {'open': True}})

    def delete(self, name: str) -> None:
        self.sandbox.delete('kopfexamples', name)

    def review(
        self,
        webhook: str | None,
        operation: str,
        old: dict[str, Any] | None,
        new: dict[str, Any] | None,
        subresource: str | None = None,
    ) -> None:
        """Make the operator review a request, and record the answer as if it were a call."""
        resource = {'group': 'kopf.dev', 'version': 'v1', 'resource': 'kopfexamples'}
        request = {
            'uid': 'review',
            'operation': operation,
            'resource': resource,
            'subResource': subresource,
            'userInfo': {},
            'dryRun': False,
            'oldObject': _build_body(old),
            'object': _build_body(new),
        }
        review = {
            'apiVersion': 'admission.k8s.io/v1',
            'kind': 'AdmissionReview',
            'request': request,
        }
        asking, asked = self.calls.parent / 'asking', self.calls.parent / 'one.review'
        asking.write_text(json.dumps({'webhook': webhook, 'review': review}))
        asking.rename(asked)
        answer = asked.with_suffix('.answer')
        self._wait_until(
            answer.exists, f'There is no answer to the review of {operation} by {webhook}.'
        )
        self._note(
            f'answer of {webhook}', operation, simplify_answer(json.loads(answer.read_text()))
        )
        answer.unlink()

    def note_webhooks(self, number: int) -> None:
        """Record the rules of the managed webhooks as if they were calls, when all exist."""
        plurals = ('validatingwebhookconfigurations', 'mutatingwebhookconfigurations')
        self._wait_until(
            lambda: len(self._list_webhooks(plurals)) == number, 'The webhooks are not configured.'
        )
        for webhook in self._list_webhooks(plurals):
            rules = [
                (
                    OPERATIONS if rule['operations'] == ['*'] else rule['operations'],
                    rule['resources'],
                )
                for rule in webhook['rules']
            ]
            self._note(f'webhook {webhook["name"]}', None, [rules, webhook['objectSelector']])

    def _list_webhooks(self, plurals: Sequence[str]) -> list[Any]:
        return [
            webhook
            for plural in plurals
            for item in self.sandbox.list(plural)
            for webhook in item.get('webhooks', [])
        ]

    def _note(self, handler: str, reason: str | None, content: Any) -> None:
        call = {'handler': handler, 'name': None, 'reason': reason, 'new': content, 'diff': []}
        with self.calls.open('a') as file:
            file.write(json.dumps(call) + '\n')

    def _wait_until(self, condition: Callable[[], bool], message: str) -> None:
        deadline = time.monotonic() + TIMEOUT
        while not condition():
            if time.monotonic() > deadline:
                raise RuntimeError(message)
            time.sleep(0.02)

    def play(self, scenario: Callable[['Stage'], Iterator[str]]) -> list[Scene]:
        """Run the steps; after each one, wait until nothing happens, and record the results."""
        scenes = []
        seen_calls, seen_writes = 0, 0
        try:
            for name in scenario(self):
                self._wait_until_quiet()
                calls, writes = (
                    self.calls.read_text().splitlines(),
                    len(self._list_requests('patch')),
                )
                scenes.append(self._build_scene(name, calls[seen_calls:], writes - seen_writes))
                seen_calls, seen_writes = len(calls), writes
        finally:
            self.stop(signal.SIGKILL)
        return scenes

    def _wait_until_quiet(self) -> None:
        state, since = None, time.monotonic()
        deadline = since + TIMEOUT
        while time.monotonic() < min(deadline, since + self.patience):
            time.sleep(0.1)
            current = (
                self.calls.stat().st_size,
                [simplify(body) for body in self.sandbox.list('kopfexamples')],
            )
            if current != state:  # hopeless retries do not count as changes
                state, since = current, time.monotonic()

    def _list_requests(self, verb: str) -> list[Any]:
        return [
            asked
            for asked in self.sandbox.requests
            if asked.verb == verb and asked.plural == 'kopfexamples'
        ]

    def _build_scene(self, name: str, calls: Sequence[str], writes: int) -> Scene:
        bodies = {body['metadata']['name']: body for body in self.sandbox.list('kopfexamples')}
        return Scene(
            name,
            sorted(_sort_diff(call) for call in calls),
            writes,
            objects={name: simplify(body) for name, body in bodies.items()},
            leftovers={
                name: keys for name, body in bodies.items() if (keys := list_leftovers(body))
            },
        )


def simplify(body: dict[str, Any]) -> dict[str, Any]:
    """Leave only the fields that must be the same in all runs."""
    metadata = {key: value for key, value in body['metadata'].items() if key not in VOLATILE}
    annotations = {
        key: json.loads(value) if key == LAST_HANDLED else value
        for key, value in metadata.pop('annotations', {}).items()
        if key == LAST_HANDLED or not key.startswith(PREFIX)
    }
    is_deleted = 'deletionTimestamp' in body['metadata']
    return {**body, 'metadata': {**metadata, 'annotations': annotations, 'deleted': is_deleted}}


def simplify_answer(answer: dict[str, Any]) -> dict[str, Any]:
    """Leave only the decision: decode the patch, and hide the texts of the framework's warnings."""
    response = answer.get('response', answer)
    patch = json.loads(base64.b64decode(response['patch'])) if 'patch' in response else None
    warnings = sorted(
        text if ' ' not in text else 'a warning' for text in response.get('warnings', [])
    )
    return {**response, 'patch': patch, 'warnings': warnings}


def _build_body(spec: dict[str, Any] | None) -> dict[str, Any] | None:
    """Build an object for a review; for simplicity, its labels are taken from the spec."""
    if spec is None:
        return None
    labels = {'l': spec['l']} if 'l' in spec else {}
    return {
        'apiVersion': 'kopf.dev/v1',
        'kind': 'KopfExample',
        'spec': spec,
        'metadata': {'name': 'obj', 'namespace': 'default', 'uid': 'u', 'labels': labels},
    }


def list_leftovers(body: dict[str, Any]) -> list[str]:
    annotations = body['metadata'].get('annotations', {})
    return sorted(key for key in annotations if key.startswith(PREFIX) and key != LAST_HANDLED)


def _sort_diff(call: str) -> str:
    parsed = json.loads(call)
    parsed['diff'] = sorted(parsed['diff'], key=str)
    return json.dumps(parsed, sort_keys=True)
