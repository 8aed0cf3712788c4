"""
The real kubectl, pointed at a sandbox, and the objects that it is tried on.
"""

import contextlib
import dataclasses
import datetime
import email.utils
import pathlib
import re
import shlex
import subprocess
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

GROUP = 'kubectl.tests.kopf.dev'
PATIENCE = 30.0  # seconds: for machines that are busy with something else

_AGE = re.compile(r'(?<=\s)(\d+[smh]){1,2}(?=\s|$)', re.MULTILINE)

WIDGETS = yaml.safe_load(f"""
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: widgets.{GROUP}}}
spec:
  group: {GROUP}
  scope: Namespaced
  names: {{plural: widgets, singular: widget, kind: Widget, shortNames: [wd], categories: [gadgets]}}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {{}}
      scale: {{specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}
    additionalPrinterColumns:
    - {{name: Size, type: integer, jsonPath: .spec.size}}
    - {{name: Color, type: string, jsonPath: .spec.color, priority: 1}}
    - {{name: Age, type: date, jsonPath: .metadata.creationTimestamp}}
    selectableFields:
    - {{jsonPath: .spec.color}}
    schema:
      openAPIV3Schema:
        type: object
        description: A thing for tests.
        required: [spec]
        properties:
          spec:
            type: object
            description: What is wanted of the widget.
            required: [size]
            properties:
              size: {{type: integer, minimum: 1, maximum: 100, description: The size in inches.}}
              color: {{type: string, enum: [red, green, blue], default: red, description: The color of the paint.}}
              replicas: {{type: integer, default: 1}}
              parts:
                type: array
                description: What it is made of.
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items:
                  type: object
                  required: [name]
                  properties:
                    name: {{type: string, description: The name of the part.}}
                    count: {{type: integer}}
              extras: {{type: object, x-kubernetes-preserve-unknown-fields: true}}
          status:
            type: object
            properties:
              replicas: {{type: integer}}
              phase: {{type: string}}
              conditions:
                type: array
                items: {{type: object, properties: {{type: {{type: string}}, status: {{type: string}}}}}}
""")


def build(kind: str, name: str = 'one', api_version: str = 'v1', **fields: Any) -> dict[str, Any]:
    """Build an object; the labels and other metadata go with ``metadata``."""
    meta = {'name': name, **fields.pop('metadata', {})}
    return {'apiVersion': api_version, 'kind': kind, 'metadata': meta, **fields}


def build_widget(
    name: str = 'one', *, metadata: Mapping[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    return build('Widget', name, f'{GROUP}/v1', metadata=metadata or {}, spec={'size': 5, **spec})


def build_config(
    name: str = 'one', *, metadata: Mapping[str, Any] | None = None, **values: str
) -> dict[str, Any]:
    return build('ConfigMap', name, metadata=metadata or {}, data=values)


def build_pod(
    name: str = 'one', *, metadata: Mapping[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    containers = [{'name': 'main', 'image': 'busybox:1'}]
    return build('Pod', name, metadata=metadata or {}, spec={'containers': containers, **spec})


def build_deployment(
    name: str = 'one', *containers: Mapping[str, Any], **spec: Any
) -> dict[str, Any]:
    labels = {'app': name}
    pod = {'containers': list(containers) or [{'name': 'web', 'image': 'nginx:1'}]}
    template = {'metadata': {'labels': labels}, 'spec': pod}
    return build(
        'Deployment',
        name,
        'apps/v1',
        metadata={'labels': labels},
        spec={'selector': {'matchLabels': labels}, 'template': template, **spec},
    )


def build_job(name: str = 'one', **spec: Any) -> dict[str, Any]:
    template = {
        'spec': {'restartPolicy': 'Never', 'containers': [{'name': 'main', 'image': 'busybox:1'}]}
    }
    return build('Job', name, 'batch/v1', spec={'template': template, **spec})


@dataclasses.dataclass(frozen=True)
class Run:
    """What a command has come to."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[list[str]]:
        """The printed table, without the ages."""
        return split_rows(self.out)


class Watch:
    """A command in progress that prints as it goes. Killed if it is silent for too long."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def take(self, count: int) -> list[list[str]]:
        """Some next lines, split to cells. Fails the test if there are no more."""
        lines = []
        for _ in range(count):
            with self._limit_time():
                lines.append(self._process.stdout.readline())
        assert all(lines), f'the command has ended after {lines}'
        return split_rows(''.join(lines))

    def finish(self) -> Run:
        """Wait until the command ends by itself."""
        out, err = self._process.communicate(timeout=PATIENCE)
        return Run(self._process.returncode, out, err)

    @contextlib.contextmanager
    def _limit_time(self) -> Iterator[None]:
        timer = threading.Timer(PATIENCE, self._process.kill)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


@dataclasses.dataclass(frozen=True)
class Kubectl:
    """Runs the commands in one namespace."""

    path: pathlib.Path
    environment: Mapping[str, str]
    namespace: str

    def __call__(
        self, command: str, *objects: Mapping[str, Any], editor: pathlib.Path | None = None
    ) -> Run:
        """Run a command until it ends; the objects are given to it as the file ``-``."""
        environment = (
            {**self.environment, 'KUBE_EDITOR': str(editor)} if editor else self.environment
        )
        done = subprocess.run(
            self._build_line(command),
            input=yaml.safe_dump_all(objects) if objects else '',
            capture_output=True,
            text=True,
            env=environment,
            timeout=PATIENCE,
            check=False,
        )
        return Run(done.returncode, done.stdout, done.stderr)

    @contextlib.contextmanager
    def start(self, command: str) -> Iterator[Watch]:
        """Start a command; it is killed on exit if it is still running."""
        process = subprocess.Popen(
            self._build_line(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
        )
        with process:
            try:
                yield Watch(process)
            finally:
                process.kill()

    def _build_line(self, command: str) -> list[str]:
        return [str(self.path), f'--namespace={self.namespace}', *shlex.split(command)]


def split_rows(text: str) -> list[list[str]]:
    """Split the lines of a table to cells; the ages are replaced with a word."""
    return [re.split(r' {2,}', line.strip()) for line in _AGE.sub('AGE', text).splitlines()]


def squeeze(text: str) -> str:
    """A text for people without its indents and alignments."""
    return '\n'.join(' '.join(line.split()) for line in text.splitlines()) + '\n'


def format_date(timestamp: str) -> str:
    """A time as kubectl shows it to people."""
    moment = datetime.datetime.fromisoformat(timestamp)
    return email.utils.format_datetime(moment).replace('GMT', '+0000')
