"""
The layers of the package: what is public, what is hidden, and who may know of whom.

The imports are read from the sources, those for type checkers included: this way, nothing depends
on what is loaded.
"""

import ast
import collections
import importlib
import inspect
import pathlib
import pkgutil
import shutil
import subprocess
import sys

import pytest

import kopf

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = ROOT / 'kopf'
PUBLIC = {'cli', 'on', 'testing'}

LAYERS = ['_kits', '_sandbox | _core', '_cogs']
CORE = ['reactor', 'engines', 'intents', 'actions']
ENGINES = [
    'probing',
    'daemons',
    'activities | admission | events | indexing | leading | peering | reconciling',
]
COGS = ['clients', 'configs', 'structs', 'codecs', 'aiokits', 'helpers']
SANDBOX = [
    'sandboxes',
    'async_sandbox',
    'hosting | fault_injection',
    'persistence | kubeconfigs | admin_client',
    'keyrings | http',
    'endpoints',
    'workloads',
    'clusters',
    'openapi | controllers',
    'registry',
    'admission | apiextensions',
    'cel',
    'auth | apply | schema | faults',
    'codec | storage',
    'meta | threads | options',
]

CLIENT_LIBRARY = 'kopf._cogs.clients'
SERVERS = (
    'kopf._cogs.aiokits.listeners',
    'kopf._core.engines.probing.server',
    'kopf._kits.webhooks',
    'kopf._sandbox.http.server',
    'kopf._sandbox.admission.webhook_client',
)
SESSIONS = 'kopf._cogs.structs.credentials'
"""Credentials are told in terms of the HTTP library, if they are of it."""


def list_modules():
    for path in sorted(PACKAGE.rglob('*.py')):
        name = '.'.join(path.relative_to(ROOT).with_suffix('').parts)
        yield name.removesuffix('.__init__'), path


def iter_imports(path):
    """The full names of all that is imported in the module, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f'Relative imports hide the layers: {path}'
            yield from (f'{node.module}.{alias.name}' for alias in node.names)


IMPORTS = [(name, imported) for name, path in list_modules() for imported in iter_imports(path)]


def find_upward(parent, layers):
    """
    Imports of higher layers from lower ones, and between siblings; the layers are from the top.
    """
    levels = {
        f'{parent}.{name}': level
        for level, layer in enumerate(layers)
        for name in layer.split(' | ')
    }
    return [
        (name, imported)
        for name, imported in IMPORTS
        for importer, lower in levels.items()
        if is_inside(name, importer)
        for target, higher in levels.items()
        if target != importer and higher <= lower and is_inside(imported, target)
    ]


def list_names(layers):
    return {name for layer in layers for name in layer.split(' | ')}


def list_stems(name):
    """The name with each of the usual endings removed, and as it is."""
    return {name.removesuffix(ending) for ending in ('s', 'e', 'es', 'er', 'ers', 'ing')}


def is_inside(name, prefix):
    return f'{name}.'.startswith(f'{prefix}.')


@pytest.mark.guarantee('ARC-001', 'ARC-002')
def test_all_modules_are_either_promised_or_hidden_by_their_names():
    names = {module.name for module in pkgutil.iter_modules(kopf.__path__)}

    assert {name for name in names if not name.startswith('_')} == PUBLIC
    assert {name for name in names if name.startswith('_')} == {*list_names(LAYERS), '__main__'}


@pytest.mark.guarantee('ARC-001')
@pytest.mark.parametrize('name', ['kopf', 'kopf.testing', 'kopf.cli'])
def test_public_modules_list_their_names(name):
    module = importlib.import_module(name)

    assert len(module.__all__) == len(set(module.__all__))
    assert all(hasattr(module, public) for public in module.__all__)


@pytest.mark.guarantee('ARC-003', 'NEW-013')
def test_commands_can_be_made_with_the_public_module():
    module = importlib.import_module('kopf.cli')

    assert {'CLIControls', 'logging_options', 'main'} <= set(module.__all__)
    assert not hasattr(module, 'LogFormatParamType')


@pytest.mark.guarantee('ARC-004')
def test_lower_layers_do_not_import_higher_ones():
    public = [f'kopf.{name}' for name in PUBLIC]
    of_public = [
        (name, imported)
        for name, imported in IMPORTS
        if any(is_inside(name, f'kopf.{hidden}') for hidden in ('_sandbox', '_core', '_cogs'))
        for module in public
        if is_inside(imported, module)
    ]

    assert find_upward('kopf', LAYERS) == []
    assert of_public == []


@pytest.mark.guarantee('ARC-005')
def test_framework_works_without_its_kits():
    blocked = 'import sys; sys.modules["kopf._kits"] = sys.modules["kopf._sandbox"] = None\n'
    program = 'import kopf._core.reactor.running, kopf.on, kopf\nkopf.operator\ndef fn(**_): ...\n'
    program += 'kopf.on.create("pods")(fn)\nprint("ok")'
    done = subprocess.run([sys.executable, '-c', blocked + program], capture_output=True, text=True)

    assert done.stdout == 'ok\n', done.stderr
    assert [
        pair
        for pair in IMPORTS
        if (is_inside(pair[1], 'kopf._kits') or is_inside(pair[1], 'kopf._sandbox'))
        and (is_inside(pair[0], 'kopf._core') or is_inside(pair[0], 'kopf._cogs'))
    ] == []


@pytest.mark.guarantee('ARC-006', 'ARC-007')
@pytest.mark.parametrize(
    'parent, layers',
    [
        ('kopf._core', CORE),
        ('kopf._core.engines', ENGINES),
        ('kopf._cogs', COGS),
        ('kopf._sandbox', SANDBOX),
    ],
)
def test_inner_layers_are_these_and_do_not_import_higher_ones(parent, layers):
    package = importlib.import_module(parent)

    assert {module.name for module in pkgutil.iter_modules(package.__path__)} == list_names(layers)
    assert find_upward(parent, layers) == []


@pytest.mark.parametrize(
    'layer', ['_kits', *(f'_core/{name}' for name in CORE), *(f'_cogs/{name}' for name in COGS)]
)
def test_modules_of_a_layer_have_different_stems(layer):
    """Names such as ``probes`` and ``probing`` would be mistaken for each other."""
    names = [path.stem for path in (PACKAGE / layer).rglob('*.py')]
    stems = [stem for name in names if name != '__init__' for stem in list_stems(name)]

    assert [stem for stem, count in collections.Counter(stems).items() if count > 1] == []


@pytest.mark.guarantee('ARC-004')
def test_sandbox_uses_only_helpers_of_the_rest():
    used = {
        imported
        for name, imported in IMPORTS
        if is_inside(name, 'kopf._sandbox') and is_inside(imported, 'kopf')
    }

    assert [
        name
        for name in used
        if not is_inside(name, 'kopf._sandbox') and not is_inside(name, 'kopf._cogs.helpers')
    ] == []


@pytest.mark.guarantee('ARC-006', 'ARC-009')
def test_only_clients_talk_to_the_api_and_so_are_replaceable():
    users = {name for name, imported in IMPORTS if is_inside(imported, 'aiohttp')}
    others = {
        name
        for name in users
        if not is_inside(name, CLIENT_LIBRARY)
        and not any(is_inside(name, server) for server in SERVERS)
    }

    assert others <= {SESSIONS}
    assert any(is_inside(name, CLIENT_LIBRARY) for name in users)


@pytest.mark.guarantee('ARC-009')
@pytest.mark.parametrize('name', ['get', 'post', 'patch', 'delete'])
def test_requests_are_asynchronous(name):
    requests = importlib.import_module(f'{CLIENT_LIBRARY}.requests')

    assert inspect.iscoroutinefunction(getattr(requests, name))


@pytest.mark.guarantee('ARC-010')
def test_client_libraries_of_others_are_optional():
    blocked = 'import sys; sys.modules.update(dict.fromkeys(["pykube", "kubernetes", "kubernetes_asyncio"]))\n'
    program = (
        'import asyncio, kopf, logging; [getattr(kopf, name) for name in kopf.__all__]\n'
        'logger = logging.getLogger()\n'
        'print([kopf.login_via_client(logger=logger), kopf.login_via_pykube(logger=logger), '
        'asyncio.run(kopf.login_via_async_client(logger=logger))])'
    )
    done = subprocess.run([sys.executable, '-c', blocked + program], capture_output=True, text=True)

    assert done.stdout == '[None, None, None]\n', done.stderr


@pytest.mark.guarantee('ARC-012')
def test_there_are_no_public_functions_for_arbitrary_requests():
    origins = {getattr(getattr(kopf, name), '__module__', None) or '' for name in kopf.__all__}
    functions = {name for name in kopf.__all__ if inspect.isroutine(getattr(kopf, name))}

    assert not [origin for origin in origins if is_inside(origin, CLIENT_LIBRARY)]
    assert not functions & {
        'get',
        'list',
        'watch',
        'create',
        'update',
        'patch',
        'delete',
        'request',
    }


@pytest.mark.slow
@pytest.mark.guarantee('ARC-008')
@pytest.mark.parametrize(
    'module, line, verdict',
    [
        pytest.param(None, '', 0, id='as-it-is'),
        pytest.param(
            'kopf/_cogs/helpers/versions.py',
            'from kopf._core.intents import causes',
            1,
            id='cogs-to-core',
        ),
        pytest.param(
            'kopf/_core/actions/outcomes.py',
            'from kopf._core.engines.peering import ranking',
            1,
            id='actions-to-engines',
        ),
        pytest.param(
            'kopf/_core/engines/events/recorder.py',
            'from kopf._core.engines.peering import ranking',
            1,
            id='events-to-peering',
        ),
        pytest.param(
            'kopf/_core/actions/outcomes.py', 'from kopf._kits import loops', 1, id='core-to-kits'
        ),
        pytest.param('kopf/_core/intents/causes.py', 'import aiohttp', 1, id='http-beside-clients'),
        pytest.param(
            'kopf/_core/actions/outcomes.py',
            'from kopf._sandbox import options',
            1,
            id='core-to-sandbox',
        ),
        pytest.param(
            'kopf/_sandbox/options.py',
            'from kopf._core.actions import outcomes',
            1,
            id='sandbox-to-core',
        ),
        pytest.param(
            'kopf/_sandbox/options.py',
            'from kopf._cogs.structs import dicts',
            1,
            id='sandbox-to-other-cogs',
        ),
        pytest.param(
            'kopf/_sandbox/storage/memory.py',
            'from kopf._sandbox.registry import writer',
            1,
            id='storage-to-registry',
        ),
    ],
)
def test_layers_are_held_by_the_linter(tmp_path, module, line, verdict):
    shutil.copytree(PACKAGE, tmp_path / 'kopf', ignore=shutil.ignore_patterns('__pycache__', '.*'))
    shutil.copy(ROOT / '.importlinter', tmp_path)
    if module is not None:
        with (tmp_path / module).open('a') as file:
            file.write(f'\n{line}\n')
    linter = 'from importlinter.cli import lint_imports_command; lint_imports_command()'
    done = subprocess.run(
        [sys.executable, '-c', linter, '--no-cache'],
        cwd=tmp_path,
        text=True,
        capture_output=True,
        env={'PYTHONPATH': str(tmp_path), 'PATH': ''},
    )

    assert done.returncode == verdict, done.stdout + done.stderr
