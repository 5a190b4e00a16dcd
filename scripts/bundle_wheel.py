#!/usr/bin/env python3
"""Makes a wheel that runs on machines without our Debian packages: puts the libraries that it loads into it, and their licences.

    .venv/wheel/bin/python scripts/bundle_wheel.py plimsoll-*-linux_x86_64.whl -o FOLDER

auditwheel copies each library that manylinux does not promise into plimsoll.libs/, under a name of its own, sets the paths to
them, and names the oldest manylinux tag that the symbols allow. This script adds the copyright file of each library's Debian
package to the wheel's licences, prints what the wheel holds, and refuses libraries that no one has allowed below.
"""

import argparse
import base64
import hashlib
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

# Libraries that may be in the wheel, and their licences. docs/internals/dependencies.md says what each is for.
LICENCES = {
    "libdnnl": "Apache-2.0",
    "libOpenCL": "BSD-2-Clause",
    "libfmt": "MIT",
    "libisal": "BSD-3-Clause",
    "libjpeg": "IJG AND BSD-3-Clause AND Zlib",
    "libpng16": "libpng-2.0",
    "libgomp": "GPL-3.0-or-later WITH GCC-exception-3.1",
}


def bundled(wheel, folder):
    """auditwheel's wheel of a wheel."""
    tools = pathlib.Path(sys.executable).parent
    ended = subprocess.run([sys.executable, "-m", "auditwheel", "repair", "-w", folder, wheel], capture_output=True, text=True,
                           env={"PATH": f"{tools}:/usr/bin:/bin"})
    if ended.returncode:
        raise SystemExit(f"error: auditwheel failed\n{ended.stderr.strip()}")
    [made] = pathlib.Path(folder).glob("*.whl")
    return made


def libraries(names):
    """(path in the wheel, library, file name before auditwheel renamed it) of each library in the wheel."""
    for name in names:
        found = re.fullmatch(r"plimsoll\.libs/((lib[\w+]+?)(?:-[0-9a-f]{8})(\.so[.\d]*))", name)
        if found:
            yield name, found[2], found[2] + found[3]


def package_of(file):
    """The Debian package of a library, and its copyright file."""
    for folder in ("/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu"):
        path = pathlib.Path(folder) / file
        if not path.exists():
            continue
        for each in (path, path.resolve(), pathlib.Path("/usr") / str(path.resolve()).lstrip("/")):
            ended = subprocess.run(["dpkg", "-S", str(each)], capture_output=True, text=True)
            if ended.returncode == 0:
                package = ended.stdout.split(":")[0]
                version = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True).stdout
                return package, version, pathlib.Path("/usr/share/doc") / package / "copyright"
    raise SystemExit(f"error: {file} belongs to no Debian package, so its licence is not known")


def with_licences(wheel, output):
    """Writes the wheel with the copyright files, and returns the lines that tell what is in it."""
    with zipfile.ZipFile(wheel) as archive:
        entries = {info.filename: (info, archive.read(info)) for info in archive.infolist()}
    [record] = [name for name in entries if name.endswith(".dist-info/RECORD")]
    folder = record.rsplit("/", 1)[0]
    found = sorted(libraries(entries))
    unknown = [name for name in entries if re.match(r"plimsoll.libs/.", name) and all(name != each for each, _, _ in found)]
    unknown += [library for _, library, _ in found if library not in LICENCES]
    if unknown:
        raise SystemExit(f"error: {', '.join(unknown)} is not among the libraries that a wheel may hold (LICENCES in scripts/bundle_wheel.py)")
    told, added = [], {}
    for name, library, file in found:
        package, version, copyright_file = package_of(file)
        added[f"{folder}/licenses/libraries/{package}.txt"] = copyright_file.read_bytes()
        told.append(f"{name}  {LICENCES[library]}  (Debian {package} {version})")
    added[f"{folder}/licenses/libraries/LIST"] = ("\n".join(told) + "\n").encode()
    lines = [line for line in entries[record][1].decode().splitlines() if line]
    for name, data in added.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.insert(-1, f"{name},sha256={digest},{len(data)}")
    entries[record] = (entries[record][0], ("\n".join(lines) + "\n").encode())
    partial = output.with_suffix(".partial")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
        for info, data in entries.values():
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data)
        for name, data in added.items():
            archive.writestr(name, data)
    partial.replace(output)
    return told


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("wheel", type=pathlib.Path)
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True, help="the folder of the made wheel")
    given = parser.parse_args()
    if not given.wheel.is_file():
        raise SystemExit(f"error: {given.wheel}: there is no such file")
    given.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=given.output) as folder:
        made = bundled(given.wheel, folder)
        output = given.output / made.name
        told = with_licences(made, output)
    print(f"{output}  {output.stat().st_size / 2**20:.1f} MiB")
    print("\n".join(f"  {line}" for line in told))


if __name__ == "__main__":
    main()
