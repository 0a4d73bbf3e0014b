"""The project's own promises about its files: lock files, generated docs, links."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
LOCK_FILES = ["requirements.txt", "requirements-dev.txt", "examples/local_model.txt"]
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *ROOT.glob("docs/**/*.md")]
)


def pins(name: str) -> dict[str, str]:
    text = (ROOT / name).read_text(encoding="utf-8")
    found = re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==(\S+)", text, re.MULTILINE)
    return {canonicalize_name(package): version for package, version in found}


def project(path: str) -> dict[str, list[str]]:
    data = tomllib.loads((ROOT / path).read_text(encoding="utf-8"))
    return {
        "runtime": data["project"]["dependencies"],
        "uvloop": data["project"].get("optional-dependencies", {}).get("uvloop", []),
        "dev": data.get("dependency-groups", {}).get("dev", []),
    }


@pytest.mark.parametrize("name", LOCK_FILES)
def test_lock_files_name_no_host_and_no_machine_path(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert "://" not in text
    assert "index-url" not in text
    assert str(ROOT) not in text


@pytest.mark.parametrize(
    ("lock", "groups"),
    [("requirements.txt", ["runtime", "uvloop"]), ("requirements-dev.txt", ["runtime", "dev"])],
)
def test_every_dependency_is_locked_at_a_version_it_allows(lock: str, groups: list[str]) -> None:
    locked = pins(lock)
    server, sdk = project("pyproject.toml"), project("client/python/pyproject.toml")
    wanted = [Requirement(line) for group in groups for line in server[group] + sdk[group]]
    for requirement in wanted:
        name = canonicalize_name(requirement.name)
        if name == "entracte":
            assert name not in locked
        else:
            assert requirement.specifier.contains(locked[name]), requirement


def test_both_lock_files_agree() -> None:
    development = pins("requirements-dev.txt")
    for package, version in pins("requirements.txt").items():
        assert development[package] == version


def test_tables_in_the_docs_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path) if path else page
        assert linked.exists(), target
        if anchor:
            titles = re.findall(r"^#+ (.+)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
            anchors = [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]
            assert anchor in anchors, target
