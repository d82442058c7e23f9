"""The facts about a run that are published with its times: CPU, threads, system and commit."""

import os
import platform
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Each key is LLVM's name of a microarchitecture. The value is the name that vendors and engineers
# use.
MICROARCHITECTURES = {
    "znver2": "Zen 2", "znver3": "Zen 3", "znver4": "Zen 4", "znver5": "Zen 5",
    "haswell": "Haswell", "broadwell": "Broadwell", "skylake-avx512": "Skylake-SP",
    "cascadelake": "Cascade Lake", "icelake-server": "Ice Lake",
    "sapphirerapids": "Sapphire Rapids", "emeraldrapids": "Emerald Rapids",
    "graniterapids": "Granite Rapids", "neoverse-n1": "Neoverse N1", "neoverse-v1": "Neoverse V1",
    "neoverse-v2": "Neoverse V2",
}  # fmt: skip


def cpu():
    """Return the name that the vendor gives to the CPU, and LLVM's name of its microarchitecture.

    LLVM's name is needed because clouds hide the model: the name "AMD EPYC" could stand for Zen 3
    or Zen 5.
    """
    from llvmlite import binding

    try:
        text = Path("/proc/cpuinfo").read_text()
        (name, *_) = re.findall(r"model name\s*: (.*)", text)
    except (OSError, ValueError):
        name = platform.processor() or platform.machine()
    return f"{name} ({binding.get_host_cpu_name()})"


def vendor_name(known_cpu, isa):
    """Return the name under which the vendor sells a CPU, or as much of it as the system reveals.

    known_cpu is a text that cpu() returned. LLVM guesses the microarchitecture from the CPUID
    instruction. If a virtual Xeon with AMX does not reveal its model, LLVM guesses that it is a
    Rocket Lake. But a Rocket Lake has no AMX, so this function then ignores the guess.
    """
    name, _, guess = known_cpu.removesuffix(")").partition(" (")
    name = re.sub(r"\((R|TM)\)", "", name)
    if isa == "amx" and "rapids" not in guess:
        return f"{name} with AMX (Sapphire Rapids or later)"
    guess = MICROARCHITECTURES.get(guess, guess)
    return f"{name} ({guess})" if guess and guess not in name else name


def features():
    """Return LLVM's names of the instruction sets of the CPU."""
    from llvmlite import binding

    return {name for name, present in binding.get_host_cpu_features().items() if present}


def commit():
    """Return the commit of this clone, and whether files differ from it; None, None without Git."""
    try:
        words = ("rev-parse", "HEAD"), ("status", "--porcelain", "--untracked-files=no")
        head, changes = (
            subprocess.run(["git", "-C", str(ROOT), *command], capture_output=True, check=True)
            for command in words
        )
    except (OSError, subprocess.CalledProcessError):
        return None, None
    return head.stdout.decode().strip(), bool(changes.stdout.strip())


def facts():
    """Return a dictionary of all facts that do not change during a run."""
    import fastcos

    config = fastcos.get_config()
    head, is_dirty = commit()
    return {
        "commit": head, "dirty": is_dirty, "cpu": cpu(), "isa": config.isa,
        "threads": config.n_threads, "cores": os.cpu_count(), "os": platform.platform(),
        "python": platform.python_version(),
    }  # fmt: skip


def description():
    """Return the CPU, the instruction set and the number of threads as one line."""
    facts_of_run = facts()
    name = vendor_name(facts_of_run["cpu"], facts_of_run["isa"])
    return f"{name}, {facts_of_run['isa']}, {facts_of_run['threads']} threads"


def cpu_seconds():
    """Return the CPU seconds that all programs on this machine have used, or None if unknown."""
    try:
        ticks = [int(word) for word in Path("/proc/stat").read_text().split()[1:9]]
    except OSError:
        return None
    idle, waiting_for_disks = ticks[3], ticks[4]
    return (sum(ticks) - idle - waiting_for_disks) / os.sysconf("SC_CLK_TCK")
