"""The scheduler is pure: standard library only, and of that nothing that acts, looks at a clock or draws at random."""

import ast
import subprocess
import sys
from pathlib import Path

import chairlift.core

FORBIDDEN = (
    "_io",
    "_pyio",
    "_socket",
    "_thread",
    "asyncio",
    "concurrent",
    "ctypes",
    "datetime",
    "io",
    "logging",
    "multiprocessing",
    "os",
    "pathlib",
    "posix",
    "queue",
    "random",
    "secrets",
    "select",
    "selectors",
    "shutil",
    "signal",
    "socket",
    "subprocess",
    "sys",
    "tempfile",
    "threading",
    "time",
    "uuid",
    "warnings",
)

DRIVE_IT = """
import builtins
import sys

FORBIDDEN = frozenset({forbidden})
root = {root!r}
real = builtins.__import__


def guarded(name, globals=None, locals=None, fromlist=(), level=0):
    importer = (globals or {{}}).get("__name__", "")
    if importer.startswith("chairlift") and not name.startswith("chairlift"):
        top = name.partition(".")[0]
        if top in FORBIDDEN or top not in sys.stdlib_module_names:
            raise ImportError(f"{{importer}} must not import {{name}}")
    return real(name, globals, locals, fromlist, level)


class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.stdlib_module_names or name.startswith("chairlift"):
            return None
        raise ImportError(f"{{name}} is not of the standard library")


sys.meta_path.insert(0, Blocker())
sys.path[:] = [entry for entry in sys.path if "site-packages" not in entry]
sys.path.insert(0, root)
builtins.__import__ = guarded

import time

from chairlift.core.config import POLICIES, KVCapacity, SchedulerConfig
from chairlift.core.plan import StepOutcome, StepPlan
from chairlift.core.request import Request
from chairlift.core.scheduler import Scheduler


def no_clock(*args):
    raise AssertionError("the scheduler asked for the time")


for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time"):
    setattr(time, name, no_clock)

finished = 0
for policy in POLICIES:
    scheduler = Scheduler(SchedulerConfig(policy=policy, max_num_batched_tokens=32), KVCapacity(4, 20, 20), journal=[])
    for i in range(6):
        scheduler.submit(Request(f"r{{i}}", range(1, 12 + i), 8, stop_ids=frozenset({{3}})), now=i)
    scheduler.end_input(9)
    now = 10
    while scheduler.has_work:
        plan = scheduler.plan(now)
        assert isinstance(plan, StepPlan), plan
        now += 5
        events = scheduler.commit(plan, StepOutcome([7] * len(plan.sampled_rows), 4), now)
        finished += len(events.finished)
    scheduler.check_integrity()
print(finished)
"""


def test_it_runs_with_everything_else_blocked_and_no_clock() -> None:
    """In a process where third parties and forbidden modules cannot be imported and clocks raise, all three policies
    serve a load.
    """
    root = str(Path(chairlift.core.__file__).parents[2])
    script = DRIVE_IT.format(forbidden=FORBIDDEN, root=root)

    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=False)

    assert done.stderr == ""
    assert done.stdout.strip() == "18"


def test_no_module_of_it_names_what_it_must_not_use() -> None:
    """No import of it, in a function or otherwise, and no call of open, print, input, id or hash of a string."""
    offences = []
    for path in Path(chairlift.core.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                names = [node.func.id] if node.func.id in {"open", "print", "input", "id", "globals", "exec"} else []
            else:
                continue
            for name in names:
                top = name.partition(".")[0]
                if not isinstance(node, ast.Call) and top == "chairlift":
                    if not name.startswith("chairlift.core"):
                        offences.append(f"{path.name}: {name}")
                elif isinstance(node, ast.Call) or top in FORBIDDEN or top not in sys.stdlib_module_names:
                    offences.append(f"{path.name}: {name}")
    assert offences == []


def test_no_module_of_it_keeps_state() -> None:
    """Nothing at module level is a list, a set, a counter or an object that a scheduler could share with another."""
    allowed = {"accounts.py: _NONE", "continuous.py: _NO_PROMPTS", "runs.py: T"}
    found = set()
    for path in Path(chairlift.core.__file__).parent.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, (ast.List, ast.Set, ast.Call)):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                call = node.value.func if isinstance(node.value, ast.Call) else None
                if isinstance(call, ast.Name) and call.id in {"frozenset", "attrgetter", "get_args", "tuple", "len"}:
                    continue
                found.add(f"{path.name}: {ast.unparse(target)}")
    assert found <= allowed
