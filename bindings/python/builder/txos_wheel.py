"""Builds the wheel (PEP 517): the package, and libtxos.so beside it. Needs Python 3.11 or later.

The library is the one that `TXOS_LIB` names, or the release build of this checkout, which is made
if it is not there. Debug symbols are left out where there is a `strip` to do it.
"""

import base64
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
ROOT = PROJECT.parent.parent
NAME = "libtxos.so"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Makes the wheel; gives its name."""
    with tempfile.TemporaryDirectory() as scratch:
        library = stripped(find_library(), Path(scratch))
        tag = f"py3-none-{platform_tag(library.read_bytes())}"
        return write(Path(wheel_directory), tag, library)


def build_sdist(sdist_directory, config_settings=None):
    """There is none: the library is made from the rest of the checkout."""
    raise NotImplementedError("a source distribution would lack the library; make a wheel")


def find_library():
    """The library to put in."""
    named = os.environ.get("TXOS_LIB")
    if named:
        return Path(named)
    target = ROOT / (os.environ.get("CARGO_TARGET_DIR") or "target")
    # cargo knows best whether what is there is up to date.
    command = ["cargo", "build", "--release", "-p", "txos-runtime", "--locked", "--lib"]
    try:
        subprocess.run(command, cwd=ROOT, check=True)
    except FileNotFoundError:
        if not (target / "release" / NAME).exists():
            sys.exit(f"txos: there is no cargo to build {NAME} with; TXOS_LIB may name a built one")
    return target / "release" / NAME


def stripped(library, scratch):
    """A copy without debug symbols."""
    copy = scratch / NAME
    shutil.copy2(library, copy)
    if shutil.which("strip"):
        subprocess.run(["strip", "--strip-debug", str(copy)], check=False)
    return copy


def platform_tag(elf):
    """On which systems the library works: those whose C library has all the versions it names."""
    machine = platform.machine()
    minors = [int(minor) for minor in re.findall(rb"\0GLIBC_2\.(\d+)(?=[.\0])", elf)]
    return f"manylinux_2_{max(minors)}_{machine}" if minors else f"linux_{machine}"


def write(directory, tag, library):
    """Writes the zip file."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    name, version = project["name"], project["version"]
    info = f"{name}-{version}.dist-info"
    readme = (PROJECT / project["readme"]).read_text()
    metadata = (
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        f"Summary: {project['description']}\nLicense: {project['license']}\n"
        f"Requires-Python: {project['requires-python']}\n"
        f"Description-Content-Type: text/markdown\n\n{readme}"
    )
    wheel = f"Wheel-Version: 1.0\nGenerator: txos_wheel\nRoot-Is-Purelib: false\nTag: {tag}\n"
    sources = sorted((PROJECT / name).glob("*.py")) + [PROJECT / name / "py.typed"]
    files = [(f"{name}/{path.name}", path.read_bytes(), 0o644) for path in sources]
    files.append((f"{name}/{NAME}", library.read_bytes(), 0o755))
    for licence in ("LICENSE-APACHE", "LICENSE-MIT"):
        files.append((f"{info}/{licence}", (ROOT / licence).read_bytes(), 0o644))
    files.append((f"{info}/METADATA", metadata.encode(), 0o644))
    files.append((f"{info}/WHEEL", wheel.encode(), 0o644))
    record = "".join(f"{path},sha256={digest(data)},{len(data)}\n" for path, data, _ in files)
    files.append((f"{info}/RECORD", f"{record}{info}/RECORD,,\n".encode(), 0o644))
    made = f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(directory / made, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data, mode in files:
            # A fixed time: the same input makes the same wheel.
            entry = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return made


def digest(data):
    """As RECORD wants it."""
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
