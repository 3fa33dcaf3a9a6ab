"""The state file's text: the same to Python and C, and nothing malformed passes as a healthy GPU."""

import dataclasses
import json
import pathlib
import re
import subprocess
import sys

import hypothesis
import pytest
from hypothesis import strategies as st

from hack import fakenvml
from hack.fakenvml import statechecks, stateform

ROOT = pathlib.Path(__file__).parents[3]
HEALTHY = fakenvml.with_instances(fakenvml.profile("dgx-a100"), 0, [("3g.40gb", 4)])
UNKNOWN = 999


@pytest.mark.parametrize("name", fakenvml.MACHINES)
def test_a_state_survives_its_text(name):
    state = (
        fakenvml.profile(name).with_xid(0, 79, gi=1).with_fault("nvmlDeviceGetUUID", gpu=1, error="TIMEOUT", times=3)
    )
    state = (
        state.with_process(2, fakenvml.Process(pid=4, used=None)).with_fault(slow_ms=5).with_gpu(0, name="A - 100%\n√")
    )
    assert stateform.from_text(stateform.to_text(state)) == state


def test_bounds_are_those_of_the_parser():
    source = re.sub(r"#define .*", "", (ROOT / "hack/fakenvml/parse.c").read_text())
    limits = {
        "MAX": 2**63 - 1,
        "U32": 2**32 - 1,
        "GPU": 31,
        "MAX_GPUS": 32,
        "MAX_LINKS": 36,
        "MAX_LINKS - 1": 35,
        "MAX_MIG": 16,
    }
    limits |= {"MAX_MIG - 1": 15, "MAX_GI - 1": 63, "INT64_MIN + 1": -(2**63) + 1}
    # Places in the lists and flags are not numbers of the Python side; an error is checked by its name.
    skipped = {("gpu", "index"), ("link", "gpu"), ("link", "link"), ("mig", "gpu"), ("process", "gpu")}
    skipped |= {("fault", "error"), ("field", "error"), *(("fault", flag) for flag in ("hang", "segfault", "grow"))}
    skipped |= {("gpu", flag) for flag in ("lost", "reset_required", "needs_reboot")}
    found = re.findall(r"[NO]\((\w+), (\w+), ([^,]+), ([^)]+)\)", source)
    assert len(found) > 70
    for record, key, low, high in found:
        kind = record.lower()
        if (kind, key) in skipped:
            continue
        bounds = tuple(limits[text] if text in limits else int(text) for text in (low, high))
        assert statechecks.BOUNDS[kind].get(key, (0, statechecks.LARGEST)) == bounds, (kind, key)


def test_keys_are_those_of_the_parser():
    source = (ROOT / "hack/fakenvml/parse.c").read_text()
    tables = dict(re.findall(r"static const Key (\w+)_KEYS\[\] = \{(.*?)\{0\}\}", source, re.DOTALL))
    places = {"gpu": {"index"}, "link": {"gpu", "link"}, "mig": {"gpu"}, "process": {"gpu"}}
    for kind in ("system", *statechecks.KINDS):
        keys = set(re.findall(r"[NOTL]\(\w+, (\w+)", tables[kind.upper()]))
        assert keys == set(statechecks.keys_of(kind)) | places.get(kind, set()), kind


def check(texts, folder):
    """Return the init code for each text and what stderr said, from one child for all."""
    source = """
import json, os, sys, pynvml as n
path = os.environ["MUSTER_FAKENVML_STATE"]
n._LoadNvmlLibrary()
codes = []
for text in json.load(sys.stdin):
    with open(path + ".new", "wb") as file:
        file.write(text.encode("latin-1"))
    os.rename(path + ".new", path)
    codes.append(n._nvmlGetFunctionPointer("nvmlInitWithFlags")(0))
print(json.dumps(codes))
"""
    path = folder / "driver.state"
    done = subprocess.run(
        [sys.executable, "-c", source],
        input=json.dumps(texts),
        env=fakenvml.environment(path),
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


MALFORMED = {
    "empty file": "",
    "no header": "system boot=1\n",
    "header of another version": stateform.to_text(HEALTHY).replace("fakenvml 1", "fakenvml 2", 1),
    "no system line": "fakenvml 1\n",
    "unknown kind of line": stateform.to_text(HEALTHY) + "gqu index=0\n",
    "unknown key": stateform.to_text(HEALTHY).replace("temperature=", "temprature=", 1),
    "missing key": stateform.to_text(HEALTHY).replace(" lost=0", "", 1),
    "key given twice": stateform.to_text(HEALTHY).replace(" lost=0", " lost=0 lost=1", 1),
    "not a number": stateform.to_text(HEALTHY).replace(" lost=0", " lost=yes", 1),
    "number with a tail": stateform.to_text(HEALTHY).replace(" lost=0", " lost=0x1", 1),
    "out of range": stateform.to_text(HEALTHY).replace(" lost=0", " lost=2", 1),
    "absent where it cannot be": stateform.to_text(HEALTHY).replace(" lost=0", " lost=-", 1),
    "unknown fault function": stateform.to_text(HEALTHY.with_fault("nvmlShutdown", error="TIMEOUT")).replace(
        "fn=nvmlShutdown", "fn=nvmlShutdwn"
    ),
    "fault without effect": stateform.to_text(HEALTHY.with_fault(hang=True)).replace("hang=1", "hang=0"),
    "fault of no gpu": stateform.to_text(HEALTHY.with_fault(gpu=7, hang=True)).replace("fn=* gpu=7", "fn=* gpu=8"),
    "bad percent encoding": stateform.to_text(HEALTHY).replace("name=NVIDIA%20", "name=NVIDIA%zz", 1),
    "truncated": stateform.to_text(HEALTHY)[:900],
    "zero byte": stateform.to_text(HEALTHY) + "\0",
    "events out of order": stateform.to_text(HEALTHY.with_xid(0, 1).with_xid(0, 2)).replace("seq=2", "seq=1"),
}  # fmt: skip


def test_malformed_files_fail_loudly(tmp_path):
    codes, stderr = check(list(MALFORMED.values()), tmp_path)
    assert dict(zip(MALFORMED, codes, strict=True)) == dict.fromkeys(MALFORMED, UNKNOWN)
    assert stderr.count("fakenvml: ") == len(MALFORMED), stderr


def test_the_complaint_names_line_and_key(tmp_path):
    _, stderr = check([MALFORMED["unknown key"]], tmp_path)
    assert re.search(r"driver.state: line \d+: temprature: unknown key", stderr)


@pytest.mark.parametrize("name", ["no header", "unknown kind of line", "unknown key", "not a number", "no system line"])
def test_python_names_the_line_that_it_cannot_read(name):
    with pytest.raises(fakenvml.Invalid, match=r"^(line \d+|system, gpu): "):
        stateform.from_text(MALFORMED[name])


def test_a_file_that_turns_bad_fails_every_call_until_it_is_mended(path, start):
    fakenvml.write(HEALTHY, path)
    child = start()
    unfinished = path.with_suffix(".new")
    unfinished.write_text(MALFORMED["out of range"])
    unfinished.replace(path)
    assert [child.code("n.nvmlDeviceGetCount()") for _ in range(3)] == [UNKNOWN] * 3
    fakenvml.write(HEALTHY, path)
    assert child("n.nvmlDeviceGetCount()") == 8
    assert child.end().count("fakenvml: ") == 1, "once for each bad file"


def mutated(data):
    """A healthy file with some bytes exchanged, dropped or doubled."""
    text = list(stateform.to_text(HEALTHY))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(text) - 1))
        kind = data.draw(st.sampled_from(["exchange", "drop", "double", "cut"]))
        if kind == "exchange":
            text[place] = data.draw(st.characters(max_codepoint=255))
        elif kind == "drop":
            del text[place : place + data.draw(st.integers(1, 40))]
        elif kind == "double":
            text[place:place] = text[place : place + data.draw(st.integers(1, 400))]
        else:
            del text[place + 1 :]
    return "".join(text)


@hypothesis.settings(max_examples=5)
@hypothesis.given(st.data())
def test_no_text_crashes_the_parser(tmp_path_factory, data):
    texts = [mutated(data) for _ in range(20)]
    texts += data.draw(st.lists(st.text(st.characters(max_codepoint=255), max_size=200), max_size=10))
    codes, _ = check(texts, tmp_path_factory.mktemp("fuzz"))
    assert set(codes) <= {0, UNKNOWN}


numbers = st.one_of(st.none(), st.integers(-5, 2**64), st.sampled_from([0, 1, 7, 100]))


@st.composite
def edits(draw):
    """Some numbers of one GPU."""
    names = [field.name for field in dataclasses.fields(fakenvml.Gpu) if field.type in (int, int | None)]
    return {
        name: draw(numbers) for name in draw(st.sets(st.sampled_from(sorted(set(names) - {"nvlinks"})), max_size=4))
    }


@hypothesis.settings(max_examples=10)
@hypothesis.given(st.lists(edits(), min_size=10, max_size=20))
def test_what_python_accepts_the_parser_accepts(tmp_path_factory, edited):
    states = [HEALTHY.with_gpu(0, **changes) for changes in edited]
    texts = [stateform.to_text(state) for state in states if not statechecks.problems(state)]
    codes, stderr = check(texts, tmp_path_factory.mktemp("accepted"))
    assert codes == [0] * len(texts), stderr
