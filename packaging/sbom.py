"""Writes the bill of materials, CycloneDX 1.5: components of the executable, and those that the container image adds.

    python packaging/sbom.py [--version 1.2.3] [--out dist]
"""

import argparse
import datetime
import importlib.metadata
import json
import platform
import re
import ssl
import sys
import uuid
import zlib
from pathlib import Path

import image
from deb import dpkg_architecture, time_of_tree, version_of_tree

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "dist" / "nsqc-folder"
# In the archive beside nsqc, and from no distribution.
OURS = {"nsqc", "unpacked"}
STARTER = {"pyimod01_archive", "pyimod02_importers", "pyimod03_ctypes", "pyimod04_pywin32", "struct"}
NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "pkg:pypi/nsqc")


def modules() -> set[str]:
    """The top-level modules in the executable, without Python's own."""
    from PyInstaller.archive.readers import CArchiveReader

    packed = CArchiveReader(str(FOLDER / "nsqc")).open_embedded_archive("PYZ.pyz").toc
    names = {name.partition(".")[0] for name in packed}
    # Extension modules that are not below a package: NAME.cpython-311-x86_64-linux-gnu.so.
    names |= {path.name.partition(".")[0] for path in (FOLDER / "_internal").iterdir() if path.suffix == ".so"}
    names |= {path.name for path in (FOLDER / "_internal").iterdir() if path.is_dir() and "." not in path.name}
    known = {*sys.stdlib_module_names, *OURS, *STARTER}
    return {name for name in names if name not in known and not name.startswith("_sysconfigdata")}


def distributions() -> list[importlib.metadata.Distribution]:
    """The packages of these modules."""
    owners = importlib.metadata.packages_distributions()
    unknown = {name for name in modules() if name not in owners and not name.startswith("pyi_rth")}
    if unknown:
        raise SystemExit(f"no bill of materials: no package is known for {', '.join(sorted(unknown))}")
    names = {owner for name in modules() for owner in owners.get(name, ())}
    return [importlib.metadata.distribution(name) for name in sorted(names, key=str.lower)]


def of_python(package: importlib.metadata.Distribution) -> dict:
    """A component for a Python package."""
    name, version = re.sub(r"[-_.]+", "-", package.metadata["Name"]).lower(), package.version
    component = {"type": "library", "bom-ref": f"pkg:pypi/{name}@{version}", "name": name, "version": version,
                 "purl": f"pkg:pypi/{name}@{version}"}
    stated = package.metadata.get("License-Expression") or package.metadata.get("License") or ""
    if stated and len(stated) < 60 and "\n" not in stated:      # some have the whole text there
        component["licenses"] = [{"license": {"name": stated}}]
    return component


def compiled_in() -> list[dict]:
    """Components that are not Python packages: the interpreter and its libraries."""
    found = {"cpython": platform.python_version(), "openssl": ssl.OPENSSL_VERSION.split()[1],
             "zlib": getattr(zlib, "ZLIB_RUNTIME_VERSION", zlib.ZLIB_VERSION)}
    return [{"type": "library", "bom-ref": f"pkg:generic/{name}@{version}", "name": name, "version": version,
             "purl": f"pkg:generic/{name}@{version}"} for name, version in found.items()]


def of_debian(architecture: str) -> list[dict]:
    """Components for the packages whose files are in the image."""
    found = []
    for package in (*image.LIBRARIES, image.AUTHORITIES):
        owner = f"{package}:{architecture}" if package != image.AUTHORITIES else package
        version = image.dpkg("--show", "--showformat=${Version}", owner)
        purl = f"pkg:deb/debian/{package.replace('+', '%2B')}@{version.replace('+', '%2B')}?arch={architecture}"
        found.append({"type": "library", "bom-ref": purl, "name": package, "version": version, "purl": purl,
                      "properties": [{"name": "nsqc:only-in", "value": "container image"}]})
    return found


def bill(version: str) -> dict:
    """The whole document."""
    purl = f"pkg:pypi/nsqc@{version}"
    components = [*map(of_python, distributions()), *compiled_in(), *of_debian(dpkg_architecture())]
    text = json.dumps(components, sort_keys=True)
    moment = datetime.datetime.fromtimestamp(time_of_tree(), datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "serialNumber": f"urn:uuid:{uuid.uuid5(NAMESPACE, version + text)}",
        "metadata": {"timestamp": moment, "component": {
            "type": "application", "bom-ref": purl, "name": "nsqc", "version": version, "purl": purl,
            "licenses": [{"license": {"id": "MIT"}}]}},
        "components": components,
        "dependencies": [{"ref": purl, "dependsOn": [one["bom-ref"] for one in components]}],
    }


def write(version: str, out: Path) -> Path:
    """Writes it. Returns its path."""
    path = out / f"nsqc-{version}.cdx.json"
    path.write_text(json.dumps(bill(version), indent=2) + "\n")
    return path


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", default=version_of_tree())
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    arguments = parser.parse_args()
    print(write(arguments.version, arguments.out))
