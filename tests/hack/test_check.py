"""`make check` runs every step, says which failed, and passes only if none did."""

import sys

from hack import check


def step(name, code):
    return check.Step(name=name, command=(sys.executable, "-c", code))


def test_all_steps_run_and_the_failed_ones_speak_at_the_end(tmp_path, capsys):
    chosen = (
        step("first", "print('quiet'); raise SystemExit(0)"),
        step("second", "print('what is wrong'); raise SystemExit(3)"),
        check.Step(name="third", command=(str(tmp_path / "absent"),)),
        step("fourth", ""),
    )
    assert check.run_all(chosen, tmp_path) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line[:4].strip() for line in lines[:4]] == ["ok", "FAIL", "FAIL", "ok"]
    assert "quiet" not in lines
    assert lines[lines.index("--- second") + 1] == "what is wrong"
    assert lines[-1] == "check: 2 failed: second, third"


def test_only_passing_steps_pass(tmp_path, capsys):
    assert check.run_all([step("only", "")], tmp_path) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "check: all passed"


def test_every_shell_script_is_checked():
    names = {path.relative_to(check.ROOT).as_posix() for path in check.shell_scripts(check.ROOT)}
    assert {".ci/run", "hack/venv.sh", "hack/requirements.sh"} <= names
