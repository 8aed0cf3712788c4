"""
The image: its recipe can be read, has what it needs, and its entry point does what is promised.

There is no container engine in the tests: the entry point is run as it is, with other commands in
place of real ones.
"""

import json
import os
import pathlib
import re
import subprocess

import pytest

import kopf

ROOT = pathlib.Path(__file__).parent.parent
INSTRUCTIONS = {'ARG', 'FROM', 'WORKDIR', 'COPY', 'RUN', 'ENV', 'USER', 'ENTRYPOINT'}


def read_instructions():
    """The instructions of the recipe: names and arguments, by the rules of its format."""
    text = (ROOT / 'Dockerfile').read_text()
    lines = [
        line for line in text.splitlines() if line.strip() and not line.lstrip().startswith('#')
    ]
    return [
        tuple(line.split(None, 1)) for line in '\n'.join(lines).replace('\\\n', ' ').splitlines()
    ]


def list_ignored_rules():
    return [
        line
        for line in (ROOT / '.dockerignore').read_text().splitlines()
        if line and not line.startswith('#')
    ]


@pytest.fixture
def container(tmp_path):
    """
    A container, as the entry point sees it: what is in ``/app``, and the commands that say how they
    are called.
    """
    commands, app = tmp_path / 'bin', tmp_path / 'app'
    commands.mkdir()
    app.mkdir()
    for name in ('kopf', 'pip'):
        (commands / name).write_text(f'#!/bin/sh\necho {name} "$@"\n')
        (commands / name).chmod(0o755)

    def run(*args):
        env = {**os.environ, 'PATH': f'{commands}:{os.environ["PATH"]}', 'KOPF_APP': str(app)}
        result = subprocess.run(
            [ROOT / 'docker/entrypoint.sh', *args],
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return (
            result.returncode,
            result.stdout.replace(str(app), '/app').splitlines(),
            result.stderr,
        )

    run.app = app
    return run


def test_recipe_has_only_known_instructions_and_ends_with_a_user_who_is_not_root():
    names = [name for name, _ in read_instructions()]
    user, _ = dict(read_instructions())['USER'].split(':')

    assert set(names) == INSTRUCTIONS
    assert names[0] == 'ARG' and names[1] == 'FROM'
    assert user.isdigit() and user != '0'
    assert names.index('USER') < names.index('ENTRYPOINT')


def test_recipe_is_based_on_slim_images_of_a_supported_python():
    instructions = read_instructions()
    bases = [args.split()[0] for name, args in instructions if name == 'FROM']

    assert bases == ['python:${PYTHON}-slim', 'python:${PYTHON}-slim']
    assert re.fullmatch(r'PYTHON=3\.1[1-9]', dict(instructions)['ARG'])


def test_all_that_is_copied_exists_and_is_not_ignored():
    rules = list_ignored_rules()
    for name, args in read_instructions():
        if name == 'COPY' and '--from' not in args:
            *sources, _ = [arg for arg in args.split() if not arg.startswith('--')]
            for source in sources:
                assert (ROOT / source).exists(), source
                assert f'!{source.partition("/")[0]}' in rules, source
    assert rules[0] == '*'


def test_entry_point_is_what_the_image_starts_with():
    instructions = read_instructions()
    (target,) = [
        args.split()[-1]
        for name, args in instructions
        if name == 'COPY' and 'entrypoint.sh' in args
    ]

    assert json.loads(dict(instructions)['ENTRYPOINT']) == [pathlib.PurePath(target).name]
    assert os.access(ROOT / 'docker/entrypoint.sh', os.X_OK)


@pytest.mark.guarantee('NEW-254')
def test_main_file_is_run_if_nothing_else_is_asked_for(container):
    (container.app / 'main.py').touch()

    assert container() == (0, ['kopf run -v /app/main.py'], '')


@pytest.mark.guarantee('NEW-254')
def test_usage_is_told_if_there_is_nothing_to_run(container):
    code, said, errors = container()

    assert (code, said) == (1, [])
    assert '/app/main.py' in errors


@pytest.mark.guarantee('NEW-255')
def test_arguments_are_passed_as_they_are(container):
    (container.app / 'main.py').touch()

    assert container('run', '-v', '/src/my handler.py') == (
        0,
        ['kopf run -v /src/my handler.py'],
        '',
    )


@pytest.mark.guarantee('NEW-256')
def test_requirements_of_the_application_are_installed_before(container):
    for name in ('requirements.txt', 'pyproject.toml', 'main.py'):
        (container.app / name).touch()
    code, said, _ = container()

    assert code == 0
    assert [re.sub(r' --(quiet|disable-pip-version-check|upgrade)', '', line) for line in said] == [
        'pip install --target /tmp/kopf-packages -r /app/requirements.txt',
        'pip install --target /tmp/kopf-packages /app/',
        'kopf run -v /app/main.py',
    ]


@pytest.mark.slow
@pytest.mark.parametrize('requirement', ['kopf', 'kopf>=1.37', 'kopf[dev]==1.45.2'])
def test_requirements_are_satisfied_by_the_package_of_the_image(built, tmp_path, requirement):
    (tmp_path / 'requirements.txt').write_text(requirement)
    env = dict(re.findall(r'(\w+)=(\S+)', dict(read_instructions())['ENV']))
    constraints = env['PIP_CONSTRAINT'].replace('/opt/kopf', str(built))

    said = subprocess.run(
        [
            built / 'bin/pip',
            'install',
            '--dry-run',
            '--ignore-installed',
            '--no-deps',
            '-r',
            'requirements.txt',
        ],
        env={**os.environ, 'PIP_CONSTRAINT': constraints},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout

    assert f'Would install kopf-{kopf.__version__}\n' in said


@pytest.fixture(scope='module')
def built(tmp_path_factory):
    """
    The directory ``/opt/kopf`` of the image, made by its own commands; the dependencies are left
    out.
    """
    directory = tmp_path_factory.mktemp('image') / 'kopf'
    (command,) = [args for name, args in read_instructions() if name == 'RUN' and 'wheel' in args]
    command = command.replace('/opt/kopf', str(directory)).replace("'.[", "--no-deps '.[")
    subprocess.run(['sh', '-c', command], cwd=ROOT, check=True, timeout=250)
    return directory


@pytest.mark.guarantee('FND-064')
def test_what_is_installed_at_the_start_is_seen_by_the_operator(container, tmp_path):
    (container.app / 'requirements.txt').touch()
    (container.app / 'main.py').touch()
    (tmp_path / 'bin/kopf').write_text('#!/bin/sh\necho "$PYTHONPATH"\n')

    _, said, _ = container()

    assert said[-1].split(':')[0] == '/tmp/kopf-packages'


@pytest.mark.guarantee('FND-064')
def test_code_of_the_image_belongs_to_root():
    instructions = read_instructions()
    copies = [args for name, args in instructions if name == 'COPY']
    runs = [
        args
        for name, args in instructions[: instructions.index(('USER', '65532:65532'))]
        if name == 'RUN'
    ]

    assert not [args for args in copies if '--chown' in args]
    assert not [
        args
        for args in runs
        if 'chown' in args or '--create-home' in args.replace('--no-create-home', '')
    ]
    assert dict(instructions)['USER'] == '65532:65532'
