"""fastcos gives the same results if Numba lacks one of the private names that fastcos uses.

Each process renames one of these private names in all modules of Numba before it imports fastcos.
"""

import gc
import inspect
import os
import subprocess
import sys
import types

import numba
import pytest

from tests.forking import ForkingProcess
from tests.kernels.processes import ANNOUNCED, ROOT, USE, written_package

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")


def rename(old, new):
    """Rename a function, class, attribute or global variable everywhere in Numba."""
    visited = set()

    def renamed_code(code):
        return code.replace(
            co_names=tuple(new if name == old else name for name in code.co_names),
            co_consts=tuple(
                renamed_code(one) if isinstance(one, types.CodeType) else one
                for one in code.co_consts
            ),
        )

    def visit(value):
        if id(value) in visited or not str(getattr(value, "__module__", "numba")).startswith(
            ("numba", "abc")
        ):
            return
        visited.add(id(value))
        if isinstance(value, (classmethod, staticmethod)):
            visit(value.__func__)
        elif isinstance(value, property):
            for function in (value.fget, value.fset, value.fdel):
                visit(function)
        elif isinstance(value, types.FunctionType):
            value.__code__ = renamed_code(value.__code__)
            visit(getattr(value, "__wrapped__", None))
        elif isinstance(value, type):
            rename_in(value)
            for base in value.__bases__:
                visit(base)

    def rename_in(owner):
        for name, member in list(vars(owner).items()):
            visit(member)
            if isinstance(member, types.MappingProxyType) and old in member:  # options by name
                setattr(owner, name, {new if key == old else key: member[key] for key in member})
            if name == old:
                setattr(owner, new, member)
                delattr(owner, old)

    for module in [module for name, module in sys.modules.items() if name.startswith("numba")]:
        rename_in(module)
    for thing in gc.get_objects():
        if str(type(thing).__module__).startswith("numba"):
            fields = getattr(thing, "__dict__", None)
            if isinstance(fields, dict) and old in fields:
                fields[new] = fields.pop(old)


# Private names that a later release of Numba may lack, in the groups of kernels/numba_internals.py.
NAMES = {
    "cache": [
        "_cache", "_reduce", "_rebuild", "has_dynamic_globals", "magic_tuple", "dumps", "rtsys",
    ],
    "intermediate code": [
        "_finalized", "_final_module", "_optimize_final_module", "_finalize_final_module",
        "compile_extra", "compile_result", "no_compile", "insert_user_function", "add_overload",
        "get_call_template", "JITCodeLibrary",
    ],
    "compiler lock": ["global_compiler_lock"],
    "entries": ["entry_point"],
}  # fmt: skip
CASES = [
    # The default tests contain only one of these cases.
    pytest.param(group, name, marks=[] if name == "_finalized" else pytest.mark.slow)
    for group, names in NAMES.items()
    for name in names
]
LACKING = """
rename(NAME, "another_name")
from fastcos.kernels import numba_internals
assert numba_internals.HAS_CACHE is HAS_CACHE
assert numba_internals.HAS_INTERMEDIATE_CODE is HAS_INTERMEDIATE_CODE
"""
CALL_BY_ENTRY = """
twice.call("f8", 0, 1, out)
print(out[0])
"""
# what the children share
NUMBA = f"""
import gc, inspect, sys, types
import numba, numba.np.ufunc.parallel
numba.njit(lambda x: x + 1)(1.0)  # Numba imports modules where it needs them
{inspect.getsource(rename)}
"""


@pytest.fixture(scope="module")
def numba_process(tmp_path_factory):
    site = written_package(tmp_path_factory.mktemp("internals"))
    with ForkingProcess(NUMBA, site, PYTHONPATH=str(site)) as process:
        yield process


@pytest.mark.slow
@pytest.mark.parametrize(("group", "name"), CASES)
def test_a_private_name_that_numba_lacks_has_a_fall_back(numba_process, tmp_path, group, name):
    has_cache, has_intermediate_code = group != "cache", group not in ("cache", "intermediate code")
    code = (
        LACKING.replace("NAME", repr(name), 1)
        .replace("is HAS_CACHE", f"is {has_cache}")
        .replace("is HAS_INTERMEDIATE_CODE", f"is {has_intermediate_code}")
    )
    for from_cache in (False, has_cache):
        done = numba_process.run(code + USE + CALL_BY_ENTRY, FASTCOS_CACHE_DIR=str(tmp_path / "c"))
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == ["20.0", str(int(from_cache)), "42.0"]
        warned = done.stderr.replace(ANNOUNCED, "")
        assert warned.count("fastcos compiles in every process") == (not has_cache)
        assert warned.count("Warning") == (not has_cache), warned
        assert "Traceback" not in warned


SUMS = """
import hashlib
import numpy as np
from fastcos.kernels import pair_scores, records
rows = np.random.default_rng(0).standard_normal((20, 37)).astype("f4")
rows.flags.writeable = False
norms = np.empty(20)
pair_scores.row_norms(0, 20, records.rows_of(rows), norms)
np.testing.assert_allclose(norms, np.linalg.norm(rows.astype("f8"), axis=1), rtol=1e-14)
print(hashlib.sha256(norms.tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_vector_operations_take_llvm_s_own_pointers(tmp_path):
    # A later release of llvmlite will not support typed pointers. The current release writes no
    # typed pointers if LLVMLITE_ENABLE_IR_LAYER_TYPED_POINTERS is 0.
    digests = []
    for typed in ("1", "0"):
        variables = {
            "LLVMLITE_ENABLE_IR_LAYER_TYPED_POINTERS": typed,
            "FASTCOS_CACHE_DIR": str(tmp_path / typed), "FASTCOS_NATIVE": "0",
        }  # fmt: skip
        digests.append(
            subprocess.run(
                [sys.executable, "-c", SUMS], env={**os.environ, **variables}, cwd=ROOT,
                capture_output=True, text=True, check=True,
            ).stdout
        )  # fmt: skip
    assert digests[0] == digests[1]
