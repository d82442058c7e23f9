"""Build the shared libraries of ``native``: ``python -m fastcos.kernels.build FOLDER [TIER ...]``.

A job calls some public operations of fastcos (``fastcos.cli.warmup`` lists the jobs). Each job runs
in a separate process, and as many processes run at once as there are cores. In each process, Numba
compiles code for the CPU of one tier. The process records every kernel that the job calls, and the
argument types of each call. For each recorded signature, the process compiles an *entry*, a
function (lo, hi, place). The entry reads the arguments of the kernel from 8-byte slots at the
address `place`, and calls the kernel. The entries are emitted as object files, and the object files
of a tier are linked with native.c. The processes share Numba's code in a temporary cache. The build
needs a C compiler and a CPU that can run the tier. If the CPU cannot run a tier, the build prints a
message and leaves out the tier.
"""

import argparse
import contextlib
import hashlib
import importlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

# The module whose function native_jobs() lists the jobs. The module is named by a string, because
# this package must not import the packages that are built on it.
OPERATIONS = "fastcos.cli.warmup"
COMPILER = shlex.split(os.environ.get("CC", "cc"))


def main(folder, *tiers):
    """Build one library in `folder` per tier; by default, build all tiers that this CPU can run."""
    from . import cpu, native

    Path(folder).mkdir(parents=True, exist_ok=True)
    possible = cpu.supported_tiers()
    if not set(possible).intersection(tiers or native.TIERS):
        raise SystemExit(f"tiers must be among {', '.join(possible)} on this CPU, got {tiers}")
    skipped_tiers = [tier for tier in tiers or native.TIERS if tier not in possible]
    for tier in skipped_tiers:
        print(f"{tier}: not built, this CPU cannot run it", flush=True)
    jobs = importlib.import_module(OPERATIONS).native_jobs()
    started = time.perf_counter()
    with (
        tempfile.TemporaryDirectory() as scratch,
        ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool,
    ):
        work = {}
        for job in jobs:
            for tier in possible:
                if tier in (tiers or native.TIERS):
                    work[pool.submit(_start, tier, job, scratch)] = tier, job
        for n_done, future in enumerate(as_completed(work), 1):
            future.result()  # raises the error of the job, if any
            seconds = time.perf_counter() - started
            name = ": ".join(work[future])
            print(f"{n_done} of {len(work)}, {seconds:.0f} s: {name}", flush=True)
        for tier in dict.fromkeys(tier for tier, _ in work.values()):
            _link_tier(tier, Path(scratch, tier), Path(folder, f"{tier}.so"))


def _start(tier, job, scratch):
    """Run a job in a separate process, which emits object files for a tier."""
    from . import cpu

    name, features = cpu.code_name(tier)
    environment = {
        **os.environ,
        "FASTCOS_NATIVE": "0",
        "FASTCOS_BACKEND": "pool",
        "FASTCOS_CACHE_DIR": str(Path(scratch, "cache")),
        "FASTCOS_ISA": "",
        "NUMBA_CPU_NAME": name,
        "NUMBA_CPU_FEATURES": features,
    }
    objects = str(Path(scratch, tier))
    code = f"from fastcos.kernels import build; build.emit({job!r}, {objects!r})"
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def emit(job, folder):
    """Run a job; write an object file and a table entry for each signature that the job calls."""
    import numba

    from . import compiler, native

    # The build prints progress lines, so the first compilation need not be announced.
    compiler.stopwatch.is_announced = True
    recorded = {}

    def record(kernel, arrays):
        described = json.dumps([native.describe(argument) for argument in arrays])
        recorded.setdefault((kernel, described), tuple(map(numba.typeof, arrays)))

    native.recorder = record
    importlib.import_module(OPERATIONS).native_jobs()[job]()
    native.recorder = None
    Path(folder).mkdir(parents=True, exist_ok=True)
    for (kernel, described), kinds in recorded.items():
        name = native.kernel_name(kernel)
        digest = hashlib.sha256(f"{name} {described}".encode()).hexdigest()[:16]
        path = Path(folder, f"fc_{kernel.__name__}_{digest}.o")
        with contextlib.suppress(FileExistsError):  # another job has already written this signature
            path.with_suffix(".json").open("x").write(json.dumps([name, json.loads(described)]))
            path.write_bytes(_object(kernel, kinds, path.stem))


def _link_tier(tier, objects, path):
    """Link the object files of a tier into the shared library of the tier."""
    from . import code_cache, native

    table = {}
    for entry in sorted(objects.glob("*.json")):
        name, described = json.loads(entry.read_text())
        table.setdefault(name, []).append([described, entry.stem])
    texts = {"fc_sources": code_cache.sources_digest(), "fc_table": json.dumps(table)}
    _link(objects, texts, native.TIERS[tier][1], path)
    n_signatures, size = sum(map(len, table.values())), path.stat().st_size / 2**20
    print(f"{path}: {n_signatures} signatures of {len(table)} kernels, {size:.2f} MiB", flush=True)


def _object(kernel, kinds, symbol):
    """Return an object file, as bytes, with the entry of a kernel for these argument types.

    `symbol` is the name of the entry function in the object file.
    """
    from llvmlite import binding

    from .compiler import slots_entry
    from .numba_internals import bitcode_of

    compiled, machine = slots_entry(kernel, kinds), _target_machine()
    module = binding.parse_bitcode(bitcode_of(compiled))
    module.get_function(compiled.fndesc.llvm_func_name).name = symbol
    # Numba's wrapper for calls from Python is removed, because nothing in the library calls the
    # wrapper. Moreover, the functions that the wrapper calls are not defined in the library.
    passes = binding.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    options = binding.create_pipeline_tuning_options()
    passes.run(module, binding.create_pass_builder(machine, options))
    return machine.emit_object(module)


def _target_machine():
    """Return LLVM's target machine that generates position-independent code for the tier's CPU."""
    from llvmlite import binding

    target = binding.Target.from_triple(binding.get_process_triple())
    return target.create_target_machine(
        cpu=os.environ["NUMBA_CPU_NAME"],
        features=os.environ["NUMBA_CPU_FEATURES"],
        opt=3,
        reloc="pic",  # position-independent code, for a shared library
        codemodel="default",
    )


def _link(scratch, texts, features, path):
    """Link native.c, `texts` and the object files in the folder `scratch` into a library.

    Each entry of `texts` becomes a string variable of the library, and the library exports only
    names that begin with ``fc_``. The function fc_supported of the library reports whether the CPU
    and the system support all `features`.
    """
    texts = [f"const char {name}[] = {json.dumps(text)};" for name, text in texts.items()]
    (scratch / "texts.c").write_text("\n".join(texts))
    (scratch / "exports").write_text("{ global: fc_*; local: *; };")
    condition = " && ".join(f'__builtin_cpu_supports("{feature}")' for feature in features)
    tiles = ["-DNEEDS_TILES"] if "amx-tile" in features else []
    objects = sorted(map(str, scratch.glob("*.o")))
    subprocess.run(
        [
            *COMPILER, "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-s", "-o", str(path),
            f"-DCPU_HAS_FEATURES={condition}", *tiles, str(Path(__file__).with_name("native.c")),
            str(scratch / "texts.c"), *objects, "-lm", "-Wl,-z,now,-z,relro,-z,defs",
            f"-Wl,--version-script={scratch / 'exports'}",
        ],
        check=True,
    )  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Build the libraries of native code.")
    parser.add_argument("folder")
    parser.add_argument(
        "tiers", nargs="*", default=(), metavar="tier", help="default: all of this CPU"
    )
    arguments = parser.parse_args()
    main(arguments.folder, *arguments.tiers)
