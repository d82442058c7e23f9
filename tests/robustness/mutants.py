"""A script: changes the source in one place at a time, and checks whether a test fails.

    python -m tests.robustness.mutants validation                    all checks of arguments
    python -m tests.robustness.mutants metrics rescalings --share 0.2  every fifth mutant of these
    NUMBA_DISABLE_JIT=1 python -m tests.robustness.mutants top_k     kernels, as plain Python
    python -m tests.robustness.mutants metrics --killed FILE         in pieces: FILE lists the done

A mutant is a copy of the source with one changed comparison, operator, number, flag, condition,
returned value or statement. The script collects the tests and runs them once, to note which tests
call which function. For each mutant, the script then forks its process and makes the change in the
fork. In the fork, it runs the tests that call the changed function, fastest first. The script
prints the share of killed mutants, which are the mutants for which a test failed. It also lists the
surviving mutants; some of them have no visible effect. The script changes no strings, because other
tests check the error messages.
"""

import argparse
import ast
import copy
import functools
import importlib
import inspect
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import IO, Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]


def modules(package: str) -> str:
    """Return the names of the modules of a package of fastcos."""
    paths = sorted((ROOT / "fastcos" / package).glob("*.py"))
    return " ".join(f"fastcos.{package}.{p.stem}" for p in paths if p.stem != "__init__")


# For each target: the modules that are mutated, and the files or folders of tests that must detect
# the mutants.
TARGETS = {
    "validation": (
        "fastcos.validation fastcos.linalg.csr fastcos.metrics.labelled",
        "validation metrics similarity/test_cosine_bounds.py linalg storage",
    ),
    "metrics": (
        modules("metrics"),
        "metrics comparison auditing/test_label_test.py auditing/test_label_recovery.py "
        "auditing/test_alignment.py",
    ),
    # io/test_same_table.py is omitted, because Polars waits forever in a forked copy of its
    # process.
    "readers": (
        modules("io"),
        "io/test_columns.py io/test_fitted_models.py io/test_ingest.py io/test_interactions.py "
        "io/test_items.py io/test_vectors.py io/test_writing.py cli/test_ground_truth.py",
    ),
    "products": ("fastcos.linalg.products", "linalg"),
    "rescalings": ("fastcos.similarity.rescalings", "similarity/test_rescalings.py test_theory.py"),
    "top_k": (
        "fastcos.kernels.exhaustive_top_k fastcos.kernels.select",
        "kernels/test_exhaustive_top_k.py kernels/test_select.py",
    ),
}
# A mutant counts as an endless loop if its tests exceed one of two limits. The limit on processor
# time is LEAST_TIME seconds, plus the usual time of the tests multiplied by TIMES. The limit on
# wall time is LONGEST_WAIT seconds.
LEAST_TIME, TIMES, LONGEST_WAIT = 1.0, 3.0, 900

SWAPPED: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt), ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,), ast.In: (ast.NotIn,), ast.NotIn: (ast.In,), ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,), ast.Mult: (ast.Div,), ast.Div: (ast.Mult,), ast.FloorDiv: (ast.Mult,),
    ast.Mod: (ast.Mult,), ast.Pow: (ast.Mult,), ast.LShift: (ast.RShift,), ast.And: (ast.Or,),
    ast.RShift: (ast.LShift,), ast.BitAnd: (ast.BitOr,), ast.BitOr: (ast.BitAnd,),
    ast.Or: (ast.And,),
}  # fmt: skip


class Mutant(NamedTuple):
    """A change at one place of a function, its description, and the tree of the changed module."""

    module: str
    function: str
    line: int
    column: int
    change: str
    tree: ast.Module


# changes of a tree


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST | None]]:
    """For each change of a node, yield a description and the new node; None stands for `pass`."""
    if isinstance(node, ast.Compare):
        for at, operator in enumerate(node.ops):
            for other in SWAPPED.get(type(operator), ()):
                new = copy.copy(node)
                new.ops = [*node.ops[:at], other(), *node.ops[at + 1 :]]  # type: ignore[list-item]
                yield f"{type(operator).__name__} to {other.__name__}", new
    elif isinstance(node, (ast.BinOp, ast.AugAssign, ast.BoolOp)):
        for other in SWAPPED.get(type(node.op), ()):
            new = copy.copy(node)
            new.op = other()  # type: ignore[assignment]
            yield f"{type(node.op).__name__} to {other.__name__}", new
    elif isinstance(node, ast.UnaryOp):
        yield f"without {type(node.op).__name__}", node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield f"{node.value} to {not node.value}", ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        yield f"{node.value} to {node.value + 1}", ast.Constant(node.value + 1)
    elif isinstance(node, (ast.If, ast.IfExp, ast.While)) and not isinstance(
        node.test, ast.Compare
    ):
        new = copy.copy(node)
        new.test = ast.UnaryOp(ast.Not(), node.test)
        yield "condition reversed", new
    elif isinstance(node, ast.Return) and not (
        node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None)
    ):
        yield "returns None", ast.Return(ast.Constant(None))
    elif isinstance(node, ast.Raise) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ):
        yield f"without its {type(node).__name__.lower()}", None
    elif isinstance(node, (ast.Continue, ast.Break)):
        yield (
            "continue and break",
            ast.Break() if isinstance(node, ast.Continue) else ast.Continue(),
        )


def mutants(name: str) -> Iterator[Mutant]:
    """Yield every mutant of the functions of a module."""
    module = importlib.import_module(name)
    tree = ast.parse(inspect.getsource(module))
    for owner, function in functions(tree, ""):
        for statement in function.body:
            for parent, field, at, node in places(statement, function):
                for change, new in changes(node):
                    replaced = ast.Pass() if new is None else new
                    put(parent, field, at, ast.copy_location(replaced, node))
                    yield Mutant(
                        name, owner, node.lineno, node.col_offset, change, copy.deepcopy(tree)
                    )
                    put(parent, field, at, node)


def functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield the functions and methods of a module; each of them includes its inner functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef):
            yield prefix + child.name, child
        elif isinstance(child, ast.ClassDef):
            yield from functions(child, f"{prefix}{child.name}.")


def places(node: Any, parent: Any) -> Iterator[tuple[Any, str, int, Any]]:
    """Yield the parent, field and index of every statement and expression except annotations."""
    for field, value in list(ast.iter_fields(parent)):
        if field in ("annotation", "returns", "decorator_list", "args") and isinstance(
            parent, (ast.FunctionDef, ast.AnnAssign)
        ):
            continue
        for at, child in enumerate(value if isinstance(value, list) else [value]):
            if child is node:
                yield parent, field, at, node
    for child in list(ast.iter_child_nodes(node)):
        if isinstance(child, (ast.expr, ast.stmt, ast.keyword, ast.comprehension)):
            if isinstance(node, ast.AnnAssign) and child is node.annotation:
                continue
            yield from places(child, node)


def put(parent: Any, field: str, at: int, node: ast.AST) -> None:
    """Replace one child of a node."""
    value = getattr(parent, field)
    if isinstance(value, list):
        value[at] = node
    else:
        setattr(parent, field, node)


# a mutant in a process


def code_of(tree: ast.Module, module: ModuleType, name: str) -> CodeType:
    """Return the compiled function of a mutant."""
    assert module.__file__ is not None
    pending = [compile(ast.fix_missing_locations(tree), module.__file__, "exec")]
    while pending:
        code = pending.pop()
        if code.co_qualname == name:
            return code
        pending += [part for part in code.co_consts if isinstance(part, CodeType)]
    raise LookupError(name)


def live(module: ModuleType, name: str) -> FunctionType:
    """Unwrap a property, class method or decorated function, and return the plain function."""
    member: Any = module
    for part in name.split("."):
        member = inspect.getattr_static(member, part)
    for _ in range(5):
        for way in ("__wrapped__", "fget", "func", "__func__", "py_func"):
            member = (
                getattr(member, way, member) if not isinstance(member, FunctionType) else member
            )
        member = getattr(member, "__wrapped__", member)
    assert isinstance(member, FunctionType), (name, member)
    return member


def apply(mutant: Mutant, function: FunctionType) -> None:
    """Replace the code of the function, and compute the values of the module again."""
    module = sys.modules[mutant.module]
    code = code_of(mutant.tree, module, mutant.function)
    function.__code__ = code.replace(co_freevars=function.__code__.co_freevars)
    values = [node for node in mutant.tree.body if isinstance(node, (ast.Assign, ast.AnnAssign))]
    exec(compile(ast.Module(values, []), mutant.module, "exec"), module.__dict__)


class Plugin:
    """Runs all tests once, and then, for every mutant, the tests that call the changed function."""

    def __init__(
        self,
        chosen: list[Mutant],
        live_of: dict[tuple[str, str], FunctionType],
        killed: IO[str] | None,
    ) -> None:
        self.wanted, self.live_of, self.killed = chosen, live_of, killed
        self.seconds: dict[str, float] = {}
        self.tests_of: dict[CodeType, set[str]] = {f.__code__: set() for f in live_of.values()}
        self.survivors: list[Mutant] = []

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            return True
        for item in session.items:
            self.note(item)
        if session.testsfailed:
            return True
        started, by_name = time.time(), {item.nodeid: item for item in session.items}
        order = {
            name: at for at, name in enumerate(dict.fromkeys(n.split("::")[0] for n in by_name))
        }
        for done, mutant in enumerate(self.wanted):
            code = self.live_of[mutant.module, mutant.function].__code__
            # A function that no test calls may still run while its module is imported. In this
            # case, all tests are run.
            reached = self.tests_of[code] or set(self.seconds)
            # The files of tests that belong to the module come first in the list of files, so their
            # tests run first.
            names = sorted(
                reached, key=lambda name: (order[name.split("::")[0]], self.seconds[name])
            )
            if not self.is_killed(mutant, session, [by_name[name] for name in names]):
                self.survivors.append(mutant)
                print("alive:", key(mutant), file=sys.__stderr__, flush=True)
            elif self.killed:
                print(place(mutant), file=self.killed, flush=True)
            if done % 50 == 0:
                result = f"{done}, {len(self.survivors)} alive, {time.time() - started:.0f} s"
                print(result, file=sys.__stderr__, flush=True)
        return True

    def note(self, item: pytest.Item) -> None:
        """Run a test, and note which functions it calls and how long it takes."""
        tests_of, name = self.tests_of, item.nodeid

        def profile(frame: Any, event: str, _: Any) -> None:
            if event == "call" and frame.f_code in tests_of:
                tests_of[frame.f_code].add(name)

        started = time.process_time()
        sys.setprofile(profile)
        try:
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        finally:
            sys.setprofile(None)
        self.seconds[name] = time.process_time() - started

    def is_killed(self, mutant: Mutant, session: pytest.Session, items: list[Any]) -> bool:
        """Return whether a test fails, ends the process or takes too long."""
        child = os.fork()
        if child == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            usual = sum(self.seconds[item.nodeid] for item in items)
            signal.setitimer(signal.ITIMER_PROF, LEAST_TIME + TIMES * usual)
            signal.alarm(LONGEST_WAIT)  # A deadlock uses no processor time.
            try:
                apply(mutant, self.live_of[mutant.module, mutant.function])
            except Exception:
                os._exit(1)  # this mutant cannot even be imported
            for item in items:
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
                if session.testsfailed:
                    os._exit(1)
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0


def run(name: str, share: float, killed_before: Path | None) -> None:
    """Mutate the modules of a target, and print the surviving mutants."""
    modules, tests = (words.split() for words in TARGETS[name])
    every = [mutant for module in modules for mutant in mutants(module)]
    step = 1 / share
    chosen = [every[int(at * step)] for at in range(int(len(every) * share))]
    live_of = {(m.module, m.function): live(sys.modules[m.module], m.function) for m in chosen}
    with (killed_before or Path(os.devnull)).open("a+") as file:
        file.seek(0)
        before = set(file.read().splitlines())
        pending = [mutant for mutant in chosen if place(mutant) not in before]
        plugin = Plugin(pending, live_of, file)
        evaluate(name, plugin, tests)
    alive = plugin.survivors
    killed = len(chosen) - len(alive)
    print(
        f"{name}: {killed} of {len(chosen)} killed ({100 * killed / len(chosen):.1f} %), of "
        f"{len(every)} mutants in all"
    )
    for mutant in alive:
        print("  alive:", key(mutant))


def evaluate(name: str, plugin: Plugin, tests: list[str]) -> None:
    """Run the tests of a target, and then its mutants."""
    paths = [f"tests/{test}" for test in tests]
    # Warnings (about forks of a process with threads, and about NumPy scalars) do not count as
    # failures.
    arguments = ["-q", "-n", "0", "-p", "no:cacheprovider", "-W", "ignore"]
    status = pytest.main([*arguments, *paths], [plugin])
    if status not in (0, 1) or not plugin.seconds:
        raise SystemExit(f"the tests of {name} do not pass: {status}")


@functools.cache
def source_lines(module: str) -> list[str]:
    return inspect.getsource(sys.modules[module]).splitlines()


def key(mutant: Mutant) -> str:
    """Return a name made of the function, the change and the line's text, without a line number."""
    text = source_lines(mutant.module)[mutant.line - 1].strip()
    return f"{mutant.module}.{mutant.function}: {mutant.change}: {text}"


def place(mutant: Mutant) -> str:
    """Return a name for a mutant in this version of the source; no other mutant has this name."""
    return f"{mutant.line}.{mutant.column} {key(mutant)}"


if __name__ == "__main__":
    os.environ.setdefault("FASTCOS_N_THREADS", "1")
    # Forking a process that has OpenMP threads would hang.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", nargs="+", choices=TARGETS)
    parser.add_argument("--share", type=float, default=1.0, help="of the mutants, evenly spread")
    parser.add_argument("--killed", type=Path, help="file of those killed before, and from now on")
    options = parser.parse_args()
    for name in options.target:
        run(name, options.share, options.killed)
