"""
The CRD command: ``kopf crd`` prints the definitions of the declared classes, and checks them.

Every definition is applied to a sandbox before anything is printed: what is printed is accepted.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import click

from kopf._cogs.codecs import resource_types
from kopf._cogs.helpers import loaders
from kopf._kits.commands import options, runs


class Failure(click.ClickException):
    """The definitions cannot be made, or are incompatible with the existing ones."""

    exit_code = 1


@click.command
@options.option(
    '-m',
    '--module',
    'modules',
    multiple=True,
    metavar='NAME',
    help='A module with the classes, by its full name. Can be repeated.',
)
@options.option(
    '-o',
    '--output',
    'directory',
    type=click.Path(file_okay=False, path_type=pathlib.Path),
    metavar='DIR',
    help='Write each definition to a file of its own in this directory, instead of printing.',
)
@options.option(
    '--check',
    'checked',
    type=click.Path(exists=True, path_type=pathlib.Path),
    metavar='DIR',
    help='Print nothing, but compare with the definitions in this directory or file: '
    'fail if existing objects or clients would break.',
)
@options.option(
    '--cluster',
    'is_clustered',
    is_flag=True,
    help='The same, but compare with the definitions in the current cluster.',
)
@click.argument('paths', nargs=-1, shell_complete=options.complete_paths)
@options.logging_options
@click.make_pass_decorator(options.CLIControls, ensure=True)
def crd(
    controls: options.CLIControls,
    /,
    *,
    paths: Sequence[str],
    modules: Sequence[str],
    directory: pathlib.Path | None,
    checked: pathlib.Path | None,
    is_clustered: bool,
) -> None:
    """
    Print the definitions of the custom resources that are declared with kopf.crd as classes.

    \b
    kopf crd handlers.py | kubectl apply -f -
    kopf crd --module=package.resources --output=deploy/
    kopf crd handlers.py --check=deploy/
    """
    bodies = build(paths, modules)
    if not bodies:
        raise click.UsageError(
            'There are no classes with @kopf.crd in these files and modules: try kopf crd --help.'
        )

    verify(bodies)
    if checked is not None or is_clustered:
        from kopf._kits.commands import crd_installing

        names = [body['metadata']['name'] for body in bodies]
        existing = dict(_read(checked)) if checked is not None else {}
        if is_clustered:
            existing = {**existing, **crd_installing.read(names, controls)}
        _compare(existing, bodies)

    if directory is not None:
        _write(bodies, directory)
    elif checked is None and not is_clustered:
        click.echo('---\n'.join(map(format_body, bodies)), nl=False)


def build(paths: Sequence[str], modules: Sequence[str]) -> list[dict[str, Any]]:
    """Load the code, and build the definitions of the classes in it."""
    from kopf._kits.schemas import crds

    try:
        with resource_types.collecting() as names:
            loaders.preload(paths, modules)
        return [crds.build_crd(name) for name in names]
    except loaders.LoadingError as e:
        raise runs.Failure(str(e)) from e.__cause__
    except Exception as e:
        raise runs.explain(e) from e


def verify(bodies: Sequence[Mapping[str, Any]]) -> None:
    """Apply the definitions to a sandbox. Raises `Failure` if they are not accepted there."""
    from kopf._kits.commands import crd_installing
    from kopf._sandbox import options as sandbox_options
    from kopf._sandbox import sandboxes
    from kopf._sandbox.codec import manifests
    from kopf._sandbox.meta import errors

    try:
        with sandboxes.Sandbox(tls=False, apply=bodies) as sandbox:
            stored = sandbox.list('customresourcedefinitions')
    except (manifests.ManifestError, errors.ApiError, sandbox_options.MissingLibraryError) as e:
        raise Failure(str(e)) from e

    refused = [
        body['metadata']['name'] for body in stored if not crd_installing.is_established(body)
    ]
    if refused:
        raise Failure(f'The API server would not serve {", ".join(refused)}.')


def format_body(body: Mapping[str, Any]) -> str:
    """Write a definition as YAML, always in the same way."""
    import yaml

    text: str = yaml.safe_dump(body, sort_keys=True, allow_unicode=True, width=100)
    return text


def _read(path: pathlib.Path) -> list[tuple[str, Mapping[str, Any]]]:
    from kopf._sandbox.codec import manifests

    try:
        bodies = manifests.read_manifests([path])
    except manifests.ManifestError as e:
        raise Failure(str(e)) from e

    return [
        (body['metadata'].get('name', ''), body)
        for body in bodies
        if body['kind'] == 'CustomResourceDefinition'
    ]


def _compare(
    existing: Mapping[str, Mapping[str, Any]], bodies: Sequence[Mapping[str, Any]]
) -> None:
    """Print a table of what breaks. Raises `Failure` if anything does."""
    from kopf._kits.schemas import compatibility

    rows = [('RESOURCE', 'VERSION', 'FIELD', 'CHANGE')]
    for body in bodies:
        name = body['metadata']['name']
        old = existing.get(name)
        if old is None:
            click.echo(f'{name}: new.')
            continue
        found = compatibility.compare_crds(old, body)
        rows += [(name, item.version, item.path.lstrip('.'), item.problem) for item in found]
        if not found:
            click.echo(f'{name}: compatible.')

    if len(rows) > 1:
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        for row in rows:
            padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
            click.echo('  '.join([*padded, row[3]]).rstrip())
        raise Failure(f'{len(rows) - 1} of the changes are incompatible.')


def _write(bodies: Sequence[Mapping[str, Any]], directory: pathlib.Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for body in bodies:
            path = directory / f'{body["metadata"]["name"]}.yaml'
            path.write_text(format_body(body), encoding='utf-8')
            click.echo(path)
    except OSError as e:
        raise Failure(f'Cannot write: {e}') from e
