"""
Commands in this process, and in threads of it, with no traces left.
"""

import concurrent.futures
import dataclasses
import logging
import os
import sys
import threading

import pytest
from command_calls import CRD, invoke

import kopf.testing
from kopf import cli
from kopf._cogs.helpers import loaders
from kopf._cogs.structs import credentials, vaults
from kopf._core.intents import registries


@pytest.fixture(autouse=True)
def restored_process(monkeypatch, tmp_path):
    """
    Leave no traces of what a process usually does only once; have no hints of the environment and
    of files.
    """
    root, modules, registry = (
        logging.getLogger(),
        set(sys.modules),
        registries.get_default_registry(),
    )
    level, handlers = root.level, list(root.handlers)
    sandbox_logger = logging.getLogger('kopf.sandbox')
    sandbox_level = sandbox_logger.level
    monkeypatch.setattr(sys, 'path', list(sys.path))
    monkeypatch.setattr(sys, 'meta_path', list(sys.meta_path))
    monkeypatch.setattr(sys, 'dont_write_bytecode', True)
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith('KOPF_') or name == 'KUBECONFIG']:
        monkeypatch.delenv(name)
    registries.set_default_registry(registries.OperatorRegistry())
    yield
    sandbox_logger.setLevel(sandbox_level)
    registries.set_default_registry(registry)
    loaders._finder.directories.clear()
    for name in set(sys.modules) - modules:
        if name.startswith('__kopf_script'):
            del sys.modules[name]
    root.setLevel(level)
    root.handlers[:] = handlers


@pytest.fixture
def sandbox():
    with kopf.testing.Sandbox(tls=False, apply=[CRD]) as sandbox:
        yield sandbox


@dataclasses.dataclass
class Running:
    """A command in a thread, with the result when it ends."""

    future: concurrent.futures.Future
    stop_flag: threading.Event

    def stop(self):
        self.stop_flag.set()
        return self.future.result(timeout=20)


@pytest.fixture
def start():
    """Run the command in a thread, on the sandbox given by its credentials."""
    flags = []
    with concurrent.futures.ThreadPoolExecutor() as pool:

        def start(*args, sandbox=None, **kwargs):
            stop_flag, ready_flag = threading.Event(), threading.Event()
            flags.append(stop_flag)
            info = sandbox and credentials.ConnectionInfo(server=sandbox.url, token=sandbox.token)
            vault = vaults.Vault({'sandbox': info}) if sandbox else None
            controls = cli.CLIControls(
                stop_flag=stop_flag, ready_flag=ready_flag, vault=vault, **kwargs
            )
            future = pool.submit(invoke, *args, obj=controls)
            while not ready_flag.wait(timeout=0.02):
                assert not future.done(), future.result().output
            return Running(future, stop_flag)

        try:
            yield start
        finally:
            for flag in flags:
                flag.set()
