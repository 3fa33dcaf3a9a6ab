"""The operator's object is the rules in another form, and the runbooks can lie elsewhere."""

import yaml

from hack import alerts


def test_the_object_holds_every_group_as_it_is():
    made = yaml.safe_load(alerts.prometheus_rule())
    assert (made["kind"], made["spec"]["groups"]) == ("PrometheusRule", alerts.groups())


def test_expressions_stay_readable():
    """A block of lines, as in the source: somebody will read it at night."""
    assert "expr: |\n" in alerts.prometheus_rule()
    assert "\\n" not in alerts.prometheus_rule()


def test_another_place_takes_the_page_s_name():
    moved = yaml.safe_load(alerts.with_runbooks("https://wiki.example/muster/"))
    (rule,) = [item for group in moved["groups"] for item in group["rules"] if item["alert"] == "MusterGpuSick"]
    assert rule["annotations"]["runbook_url"] == "https://wiki.example/muster/MusterGpuSick.md"
    assert all(item["annotations"]["runbook_url"].startswith("docs/runbooks/") for item in alerts.alerts())


def test_the_check_finds_an_old_object(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(alerts, "OBJECT", tmp_path / "object.yaml")
    assert alerts.main(["--check"]) == 1
    assert alerts.main([]) == 0
    assert alerts.main(["--check"]) == 0
    alerts.OBJECT.write_text("old")
    assert alerts.main(["--check"]) == 1
    assert "run `make alerts`" in capsys.readouterr().out


def test_the_command_prints_the_plain_rules_for_another_place(capsys):
    assert alerts.main(["--runbooks", "https://wiki.example"]) == 0
    assert capsys.readouterr().out == alerts.with_runbooks("https://wiki.example")
