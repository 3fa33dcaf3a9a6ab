"""What people read first is true: commands exist, links lead somewhere, decisions are listed, contracts are pinned."""

import hashlib
import pathlib
import re
import tomllib

import pytest

from hack import check_content

ROOT = pathlib.Path(__file__).resolve().parent.parent

PAGES = sorted(path for path in check_content.text_files(ROOT) if path.suffix == ".md")

FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
CODE_PATH = re.compile(r"`((?:agent|admitter|muster|hack|proto|tests|docs|daemonset|requirements)/[\w./-]*[\w/])`")

DIGESTS = {
    "capture.schema.json": "94adc7f2aea1600332b9a93a25e910e2279af8065f516869985531eb6e0e768f",
    "verdict.schema.json": "47aa59d980c2e2798b465c460f4b56ed3c296e3f24b09898a4a7d314ddff0de0",
}
"""Of the published schemas. They grow by addition only; a new digest here is a deliberate change of the contract."""


def anchors(page):
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = HEADING.findall(FENCE.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_and_path_of_a_page_leads_somewhere(page):
    text = FENCE.sub("", page.read_text())
    lost = [path for path in CODE_PATH.findall(text) if not (ROOT / path).exists()]
    for target in LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        place = page.parent / name if name else page
        if not place.exists() or (anchor and anchor not in anchors(place)):
            lost.append(target)
    assert lost == []


def targets():
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_every_make_command_that_a_page_names_exists():
    named = {
        name for page in PAGES for name in re.findall(r"(?:`|^)make ([a-z][a-z-]*)", page.read_text(), re.MULTILINE)
    }
    assert named - targets() == set()


def test_the_first_screen_of_the_readme_has_the_two_commands():
    first_screen = (ROOT / "README.md").read_text().splitlines()[:24]
    assert {line.split("#")[0].strip() for line in first_screen if line.startswith("make ")} == {
        "make demo",
        "make test",
    }


def test_every_target_is_phony_and_explained():
    text = (ROOT / "Makefile").read_text()
    assert set(re.findall(r"^\.PHONY: (\S+)$", text, re.MULTILINE)) == targets()
    assert set(re.findall(r"^([a-z-]+):.*## \S", text, re.MULTILINE)) == targets()


def test_every_decision_is_listed_once_and_numbered_in_order():
    folder = ROOT / "docs" / "decisions"
    pages = sorted(path.name for path in folder.glob("[0-9]*.md"))
    assert [int(name[:4]) for name in pages] == list(range(1, len(pages) + 1))
    assert re.findall(r"^\| \[\d{4}\]\(([^)]+)\)", (folder / "README.md").read_text(), re.MULTILINE) == pages


def test_every_page_of_docs_is_listed():
    folder = ROOT / "docs"
    listed = set(LINK.findall((folder / "README.md").read_text()))
    assert {path.name for path in folder.glob("*.md")} - {"README.md"} - listed == set()


def test_every_dependency_beyond_the_first_list_is_decided():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["admitter"]]
    names = {re.split(r"[^\w-]", line)[0] for line in wanted}
    first = {"nvidia-ml-py", "grpcio", "protobuf", "prometheus-client", "psutil", "structlog", "lightkube", "numpy"}
    decided = (ROOT / "docs" / "decisions" / "0002-more-libraries.md").read_text()
    assert {name for name in names - first if f"`{name}`" not in decided} == set()


def test_every_requirement_is_pinned_and_hashed():
    for path in (ROOT / "requirements").glob("*.txt"):
        entries = re.split(r"\n(?=[a-z0-9])", path.read_text().strip())
        assert all(re.match(r"[\w.-]+==\S+", entry) and "--hash=sha256:" in entry for entry in entries), path.name


@pytest.mark.parametrize("name", DIGESTS)
def test_our_copies_of_the_contracts_are_the_published_ones(name):
    copy = ROOT / "agent" / "contracts" / name
    assert hashlib.sha256(copy.read_bytes()).hexdigest() == DIGESTS[name]


def test_no_file_holds_what_it_must_not():
    assert check_content.findings(ROOT, check_content.ALLOWED) == []
