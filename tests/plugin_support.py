"""The package in `tests/plugin`, which adds a kind of models: imported where it lies, or installed like any other."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

REPOSITORY = Path(__file__).parent.parent
PLUGIN = Path(__file__).parent / "plugin"


def forecast_module() -> ModuleType:
    """The plugin's one module."""
    path = PLUGIN / "src" / "kstream_forecast.py"
    found = sys.modules.get(path.stem)
    if found is not None:
        return found
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def install(folder: Path) -> Path:
    """Build and install the plugin with pip, without network; the folder to be put on the path."""
    source, target = folder / "source", folder / "site"
    shutil.copytree(PLUGIN, source)
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-index"]
    flags = ["--no-deps", "--no-build-isolation", "--target", str(target), str(source)]
    subprocess.run([*command, *flags], check=True, capture_output=True, text=True, timeout=120)
    return target


def register(folder: Path, package: str, kinds: dict[str, str]) -> None:
    """What an installed package leaves behind that registers these kinds: `{name: "module:object"}`."""
    about = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    points = "\n".join(f"{name} = {value}" for name, value in kinds.items())
    (about / "entry_points.txt").write_text(f"[kstream_worker.models]\n{points}\n")


def environment(site: Path) -> dict[str, str]:
    """Variables of a process that finds the installed plugin, and the package under test."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(REPOSITORY), str(site)))}
