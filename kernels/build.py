"""Build the libraries of ``native``: python -m fastcos.kernels.build FOLDER [TIER ...].

One process per tier, as many at once as there are cores, makes Numba compile for the tier's CPU,
runs the public operations, and records which kernels they call with which types. Each of these gets
an entry (lo, hi, place) that reads its arguments from 8-byte slots at place. The entries are
emitted as objects and linked with native.c. Needs a C compiler, and a CPU that can run the tier:
others are left out, with a message.
"""

import argparse
import hashlib
import importlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# module with the operations to run, native_operations(): above this package
OPERATIONS = "fastcos.cli.warmup"
COMPILER = shlex.split(os.environ.get("CC", "cc"))


def main(folder, *tiers):
    """Build the tiers, by default all, into a folder."""
    from . import cpu, native

    Path(folder).mkdir(parents=True, exist_ok=True)
    possible = cpu.supported_tiers()
    if not set(possible).intersection(tiers or native.TIERS):
        raise SystemExit(f"tiers must be among {', '.join(possible)} on this CPU, got {tiers}")
    builds = []
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for tier in tiers or native.TIERS:
            if tier in possible:
                builds.append(pool.submit(_start, tier, folder))
            else:
                print(f"{tier}: not built, this CPU cannot run it", flush=True)
    for build in builds:
        build.result()  # raises what it raised


def _start(tier, folder):
    """Build a tier in a process of its own, started for it."""
    from . import cpu

    name, features = cpu.code_name(tier)
    environment = {
        **os.environ,
        "FASTCOS_NATIVE": "0",
        "FASTCOS_BACKEND": "pool",
        "FASTCOS_ISA": "",
        "NUMBA_CPU_NAME": name,
        "NUMBA_CPU_FEATURES": features,
    }
    code = f"from fastcos.kernels import build; build.build_tier({tier!r}, {str(folder)!r})"
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def build_tier(tier, folder):
    """Build one library; the process must have been started for the tier."""
    import numba

    from . import code_cache, native

    started = time.perf_counter()
    recorded = {}

    def record(kernel, arrays):
        described = json.dumps([native.describe(argument) for argument in arrays])
        recorded.setdefault((kernel, described), tuple(map(numba.typeof, arrays)))

    native.recorder = record
    importlib.import_module(OPERATIONS).native_operations()
    native.recorder = None
    table = {}
    with tempfile.TemporaryDirectory() as scratch:
        for (kernel, described), kinds in recorded.items():
            name = native.kernel_name(kernel)
            digest = hashlib.sha256(f"{name} {described}".encode()).hexdigest()[:16]
            symbol = f"fc_{kernel.__name__}_{digest}"
            Path(scratch, f"{symbol}.o").write_bytes(_object(kernel, kinds, symbol))
            table.setdefault(name, []).append([json.loads(described), symbol])
        texts = {"fc_sources": code_cache.sources_digest(), "fc_table": json.dumps(table)}
        path = Path(folder, f"{tier}.so")
        _link(Path(scratch), texts, native.TIERS[tier][1], path)
    seconds = time.perf_counter() - started
    print(
        f"{path}: {len(recorded)} signatures of {len(table)} kernels, "
        f"{path.stat().st_size / 2**20:.2f} MiB, {seconds:.0f} s",
        flush=True,
    )


def _object(kernel, kinds, symbol):
    """Object file with the kernel's code for these types, called by an entry of this name."""
    from llvmlite import binding
    from numba.core.registry import cpu_target

    from .compiler import slots_entry

    compiled = slots_entry(kernel, kinds)
    module = binding.parse_bitcode(compiled.library._final_module.as_bitcode())
    module.get_function(compiled.fndesc.llvm_func_name).name = symbol
    codegen = cpu_target.target_context.codegen()
    machine = binding.Target.from_triple(binding.get_process_triple()).create_target_machine(
        cpu=codegen._get_host_cpu_name(),
        features=codegen._tm_features,
        opt=3,
        reloc="pic",  # of a shared library; Numba's own code is not
        codemodel="default",
    )
    return machine.emit_object(module)


def _link(scratch, texts, features, path):
    """Link the objects of a folder, native.c and texts to a library that exports fc_* only."""
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
    given = parser.parse_args()
    main(given.folder, *given.tiers)
