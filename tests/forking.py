"""A process that imports modules once, and forks a child for each program of a test."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

SERVER = """
import json, os, sys, tempfile, traceback
space = {"__name__": "__main__"}
for line in sys.stdin:
    code, environment = json.loads(line)
    if environment is None:
        exec(code, space)
        continue
    files = [tempfile.TemporaryFile() for _ in range(2)]
    if (child := os.fork()) == 0:
        os.environ.update(environment)
        for number, file in enumerate(files):
            os.dup2(file.fileno(), 1 + number)
        status = 0
        try:
            exec(code, space)
        except BaseException:
            os.write(2, traceback.format_exc().encode())
            status = 1
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
        os._exit(status)
    status, texts = os.waitpid(child, 0)[1], []
    for file in files:
        file.seek(0)
        texts.append(file.read().decode())
    print(json.dumps([os.waitstatus_to_exitcode(status), *texts]), flush=True)
"""


class ForkingProcess:
    """A process that has run a prelude; `run` runs a program in a fork of this process."""

    def __init__(self, prelude, cwd, **environment):
        if not hasattr(os, "fork"):
            pytest.skip("no fork")
        self._process = subprocess.Popen(
            [sys.executable, "-B", "-c", SERVER], cwd=cwd, env={**os.environ, **environment},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._send(prelude, None)

    def _send(self, code, environment):
        self._process.stdin.write(json.dumps([code, environment]) + "\n")
        self._process.stdin.flush()

    def run(self, code, **environment):
        """Run a program in a child; return its exit status, stdout and stderr."""
        self._send(code, environment)
        status, stdout, stderr = json.loads(self._process.stdout.readline())
        return SimpleNamespace(returncode=status, stdout=stdout, stderr=stderr)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.communicate()
