"""
Fresh installations, as the documents describe them: from a clone, or by the address of the
repository.
"""

import json
import os
import pathlib
import shutil
import subprocess

ROOT = pathlib.Path(__file__).parent.parent.parent
REPOSITORY = 'https://git.example.com/kopf.git'
"""In place of ``<repository>`` of the documents; git takes the clone for it."""

PARTS = ['kopf', 'pyproject.toml', 'README.md', 'LICENSE']


def make_clone(directory: pathlib.Path) -> pathlib.Path:
    """Make a repository with the package as it is now, including what is not committed."""
    directory.mkdir()
    for name in PARTS:
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, directory / name, ignore=shutil.ignore_patterns('__pycache__', '.*')
            )
        else:
            shutil.copy(ROOT / name, directory / name)
    git = ['git', '-C', directory, '-c', 'user.name=x', '-c', 'user.email=x@example.com']
    for args in (['init', '--quiet'], ['add', '.'], ['commit', '--quiet', '--message', 'x']):
        subprocess.run([*git, *args], check=True, capture_output=True, timeout=60)
    return directory


def type_commands(commands: str, directory: pathlib.Path, clone: pathlib.Path) -> None:
    """
    Type the commands in a shell with no other Python environment around, with this clone as the
    repository.
    """
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in ('VIRTUAL_ENV', 'PYTHONPATH', 'PYTHONHOME')
    }
    env['PIP_DISABLE_PIP_VERSION_CHECK'] = '1'
    env['GIT_CONFIG_COUNT'] = '1'
    env['GIT_CONFIG_KEY_0'] = f'url.{clone.as_uri()}.insteadOf'
    env['GIT_CONFIG_VALUE_0'] = REPOSITORY
    done = subprocess.run(
        ['bash', '-ec', commands.replace('<repository>', REPOSITORY)],
        cwd=directory,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout


def read_origin(environment: pathlib.Path) -> tuple[str, str]:
    """
    Return the version of the package that is installed in the environment, and the URL that it came
    from.
    """
    (info,) = environment.glob('lib/python*/site-packages/kopf-*.dist-info')
    version = info.name.removeprefix('kopf-').removesuffix('.dist-info')
    return version, json.loads((info / 'direct_url.json').read_text())['url']
