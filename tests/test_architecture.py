"""The rules that a review forgets, checked by reading the source."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
KERNELS = sorted((ROOT / "kernels").glob("*.py"))
PACKAGE = [path for path in sorted((ROOT / "fastcos").rglob("*.py")) if "kernels" not in path.parts]

# from the bottom up; a file or folder of fastcos/ imports its own layer and those above it here
LAYERS = (
    "kernels",
    "config threads reused_memory storage resumable rows_on_disk "
    "validate validate_csr validate_metrics validate_audit validate_measures",
    "measure row_parts operators sparse_operator unread_product preprocessing products "
    "tall_products lanczos svd rescaling transposition sharded_operator shard_writer shards "
    "column_facts neighbors bounded_neighbors sharp_neighbors guided_neighbors dense_neighbors "
    "query_chunks equal_rows short_rows shifted_screen sparse_rows sparse_neighbors "
    "streamed_neighbors reaching_pairs neighbor_pairs "
    "neighbors_transformer index",
    "factorization saved_model recommendation metrics datasets io sampling "
    "training cosine_mf reranking intervals certificates attacks repairs alternatives",
    "card conventions survival spread recovery auditing versions comparison "
    "cluster_operator distributed "
    "speed speed_jobs speed_worker speed_libraries",
    "report house_style plots displays page speed_display gate gate_processes gate_statistics",
    "cli",
)
LEVEL_OF = {word: level for level, words in enumerate(LAYERS) for word in words.split()}
BELOW_KERNELS = {"numpy", "numba", "llvmlite", *sys.stdlib_module_names}
THREADING = {"threading", "concurrent", "multiprocessing", "threadpoolctl", "_thread"}
HARMLESS = {"threadpoolctl.threadpool_info"}
COMPILERS = {"njit", "jit", "vectorize", "guvectorize", "generated_jit", "stencil", "cfunc"}
FLAGS = {"fastmath", "parallel", "nogil", "boundscheck", "error_model", "cache", "locals"}
INFRASTRUCTURE = {"__init__.py", "jit.py", "code_cache.py", "cpu.py"}
FILE_LINES, FUNCTION_LINES = 500, 100  # the soft limits of the house are 300 and 40


def word_of(path):
    """The module or folder of fastcos/ that a file belongs to."""
    return path.relative_to(ROOT / "fastcos").parts[0].removesuffix(".py")


def name_of(path):
    return str(path.relative_to(ROOT))


def nodes(tree, *kinds):
    return [node for node in ast.walk(tree) if isinstance(node, kinds)]


def parsed(path):
    return ast.parse(path.read_text("utf8"))


def imported(path):
    """Dotted name and line of every absolute import; `from a import b` counts as a.b."""
    for node in nodes(parsed(path), ast.Import, ast.ImportFrom):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif not node.level:
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


each_kernel_file = pytest.mark.parametrize("path", KERNELS, ids=name_of)
each_package_file = pytest.mark.parametrize("path", PACKAGE, ids=name_of)
each_file = pytest.mark.parametrize("path", KERNELS + PACKAGE, ids=name_of)


@each_kernel_file
def test_kernels_import_nothing_from_above(path):
    for name, line in imported(path):
        assert name.split(".")[0] in BELOW_KERNELS, f"{path.name}:{line} imports {name}"


@each_package_file
def test_imports_point_down_the_layers(path):
    word = word_of(path)
    if word == "__init__":
        return
    assert word in LEVEL_OF, f"{word} has no layer: put it into LAYERS"
    for name, line in imported(path):
        parts = name.split(".")
        if parts[0] != "fastcos":
            continue
        assert len(parts) > 1, f"{name_of(path)}:{line} imports from the public __init__"
        used = parts[1]
        if used in LEVEL_OF:
            assert LEVEL_OF[used] <= LEVEL_OF[word], f"{name_of(path)}:{line} imports {name} above"


@each_package_file
def test_the_package_imports_itself_by_its_full_name(path):
    relative = [node.lineno for node in nodes(parsed(path), ast.ImportFrom) if node.level]
    assert not relative, f"{name_of(path)}:{relative}"


@each_package_file
def test_no_file_of_the_package_imports_the_folder_of_kernels_or_the_tests(path):
    for name, line in imported(path):
        assert name.split(".")[0] not in {"kernels", "tests", "bench"}, f"{path.name}:{line}"


@each_file
def test_only_the_jit_module_chooses_compiler_flags(path):
    if path.name == "jit.py":
        return
    tree = parsed(path)
    used = {node.attr for node in nodes(tree, ast.Attribute)}
    used |= {alias.name for node in nodes(tree, ast.ImportFrom) for alias in node.names}
    assert not used & COMPILERS
    decorators = [
        call
        for function in nodes(tree, ast.FunctionDef)
        for call in function.decorator_list
        if isinstance(call, ast.Call)
    ]
    flags = {keyword.arg for call in decorators for keyword in call.keywords}
    assert not flags & FLAGS


@each_file
def test_only_the_jit_module_names_prange(path):
    if path.name != "jit.py":
        tree = parsed(path)
        names = {node.id for node in nodes(tree, ast.Name)}
        names |= {node.attr for node in nodes(tree, ast.Attribute)}
        assert "prange" not in names


@each_kernel_file
def test_kernels_never_raise(path):
    if path.name in INFRASTRUCTURE:
        return
    compiled = [
        function
        for function in nodes(parsed(path), ast.FunctionDef)
        if any("kernel" in ast.unparse(decorator) for decorator in function.decorator_list)
    ]
    lines = [node.lineno for f in compiled for node in nodes(f, ast.Raise, ast.Assert)]
    assert not lines, f"{path.name}:{lines} raises: under prange the error would be lost"


@each_kernel_file
def test_no_kernel_calls_itself(path):
    """Numba cannot always link such code again from the disk; LLVM then ends the process."""
    for function in nodes(parsed(path), ast.FunctionDef):
        called = {
            node.func.id for node in nodes(function, ast.Call) if isinstance(node.func, ast.Name)
        }
        assert function.name not in called, f"{path.name}:{function.lineno} {function.name}"


@each_file
def test_only_the_threads_module_starts_threads(path):
    # reading what BLAS does is no thread
    names = {name.split(".")[0] for name, _ in imported(path) if name not in HARMLESS}
    assert path.name == "threads.py" or not names & THREADING


@each_package_file
def test_only_the_gate_raises_for_bad_input(path):
    word = word_of(path)
    if word.startswith("validate") or word in {"io", "storage"}:  # those two judge files
        return
    for node in nodes(parsed(path), ast.Raise):
        raised = ast.unparse(node.exc).partition("(")[0] if node.exc else ""
        assert raised not in {"ValueError", "TypeError"}, f"{name_of(path)}:{node.lineno}"


@each_file
def test_nothing_is_settled_by_assert(path):
    lines = [node.lineno for node in nodes(parsed(path), ast.Assert)]
    assert not lines, f"{name_of(path)}:{lines}: python -O drops asserts"


@each_package_file
def test_only_package_inits_re_export(path):
    if path.name != "__init__.py":
        targets = [
            target.id
            for node in parsed(path).body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        ]
        assert "__all__" not in targets


@each_file
def test_files_and_functions_stay_readable(path):
    text = path.read_text("utf8")
    assert text.count("\n") <= FILE_LINES
    for function in nodes(ast.parse(text), ast.FunctionDef):
        body = function.body[1:] if ast.get_docstring(function) else function.body
        lines = body[-1].end_lineno - body[0].lineno + 1 if body else 0
        assert lines <= FUNCTION_LINES, f"{name_of(path)}: {function.name} has {lines} lines"


def test_every_word_of_the_layers_is_on_one_layer_only():
    words = " ".join(LAYERS).split()
    assert len(words) == len(set(words))


def decorated_kernels(path):
    """Names of the functions of a file that a decorator of jit.py compiles."""
    return {
        function.name
        for function in nodes(parsed(path), ast.FunctionDef)
        for decorator in function.decorator_list
        if ast.unparse(decorator) in {"kernel", "screen_kernel"}
    }


PRIVATE_KERNELS = {
    name for path in KERNELS for name in decorated_kernels(path) if name.startswith("_")
}
PYTHON = [
    *PACKAGE,
    *sorted((ROOT / "tests").rglob("*.py")),
    *sorted((ROOT / "bench").rglob("*.py")),
]


@pytest.mark.parametrize("path", PYTHON, ids=name_of)
def test_kernels_without_an_entry_from_python_are_called_by_kernels_only(path):
    """jit.py spares a kernel called _name its entry from Python: a call from there is a crash."""
    own = {name for name in decorated_kernels(path) if name.startswith("_")}
    calls = nodes(parsed(path), ast.Call)
    called = {ast.unparse(call.func).rpartition(".")[2] for call in calls}
    imported_ones = {name.rpartition(".")[2] for name, _ in imported(path)}
    of_kernels = {
        node.attr for node in nodes(parsed(path), ast.Attribute) if node.attr in PRIVATE_KERNELS
    }
    assert not own & called
    assert not PRIVATE_KERNELS & imported_ones
    assert not of_kernels, "a private kernel, or a method of the same name: rename one"
