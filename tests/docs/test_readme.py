"""
The first page that everyone sees is true: what it shows is what happens.
"""

import os
import re
import signal
import subprocess
import sys

import doc_blocks
import pytest

README = doc_blocks.DOCS.parent / 'README.md'


def normalize(text):
    """Leave only what is the same each time: no times, ports, temporary directories, and no details of a hasty exit."""
    text = re.sub(r'^.*Waiting for \d+ handlings.*\n', '', text, flags=re.MULTILINE)
    text = re.sub(r'^\[[\d: ,-]+\]', '[time]', text, flags=re.MULTILINE)
    text = re.sub(r'127\.0\.0\.1:\d+', '127.0.0.1:port', text)
    text = re.sub(r'kopf \d+\.\d+\.\w+', 'kopf version', text)
    return re.sub(r'KUBECONFIG=\S+', 'KUBECONFIG=path', text)


@pytest.mark.slow
def test_transcript_of_the_first_minute_is_that_of_a_real_run(tmp_path, kubectl_path):
    blocks = {
        block.language: block.code
        for block in doc_blocks.parse_blocks(README.read_text())
        if block.language in {'python', 'console'}
    }
    command, expected = blocks['console'].split('\n', 1)
    (tmp_path / 'handlers.py').write_text(blocks['python'])
    process = subprocess.Popen(
        [sys.executable, '-m', *command.removeprefix('$ ').split()],
        cwd=tmp_path,
        text=True,
        bufsize=1,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        said = read_until(process, 'is on its own')
        kubeconfig = re.search(r'KUBECONFIG=(\S+)', said)[1]
        (create,) = re.findall(r'`kubectl (create configmap \w+)`', README.read_text())
        subprocess.run(
            [kubectl_path, *create.split()],
            env={**os.environ, 'KUBECONFIG': kubeconfig},
            check=True,
        )
        said += read_until(process, 'is processed') + '^C\n'
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()

    assert process.returncode == 0
    assert normalize(said + rest) == normalize(expected)


def read_until(process, text):
    said = ''
    while text not in said:
        line = process.stdout.readline()
        assert line, said
        said += line
    return said
