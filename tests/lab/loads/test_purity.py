import subprocess
import sys

ALLOWED = {"chairlift", "numpy"}
SCRIPT = """
import sys
before = set(sys.modules)
import chairlift.lab.loads
new = {name.partition(".")[0] for name in set(sys.modules) - before}
outside = {name for name in new if name not in sys.stdlib_module_names}
inside = {name for name in sys.modules if name.startswith("chairlift.")}
print(sorted(outside), sorted(name for name in inside if not name.startswith(("chairlift.core", "chairlift.lab"))))
"""


def test_loads_need_neither_engine_nor_http() -> None:
    """In a fresh interpreter, importing them brings in numpy, the core and themselves, and nothing else of ours."""
    result = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)

    assert result.stdout.strip() == "['chairlift', 'numpy'] []"
