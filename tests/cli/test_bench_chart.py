"""graft bench --chart: an SVG from result files. The results are made here, with numbers that no measurement gives."""
import json
import xml.etree.ElementTree as ElementTree

import pytest

import programs
from programs import GRAFT

SVG = "{http://www.w3.org/2000/svg}"


def draw(folder, *documents, only=None, out="chart.svg"):
    files = []
    for i, document in enumerate(documents):
        files.append(folder / f"{i}.json")
        files[-1].write_text(document if isinstance(document, str) else json.dumps(document))
    arguments = [GRAFT, "bench", "--chart", folder / out, *files, *(["--only", only] if only else [])]
    return programs.run(arguments, capture_output=True, text=True)


def contender(median, cold=None):
    found = {"median_ms": median, "q1_ms": median * 0.9, "q3_ms": median * 1.1}
    return found | ({"first_call_s": {"cold": cold}} if cold else {})


def row(name="llama6-forward", graft=11.25, **others):
    contenders = {"graft": contender(graft, [0.4, 0.5, 0.7]), "graft eager": contender(14.0), "eager": contender(33.5),
                  "compile": contender(22.5, [64.25])}
    return {"name": name, "work": "forward", "contenders": contenders} | others


def switched(recompiles=0):
    measured = {"graft": contender(12.0, [0.5]) | {"recompiles": recompiles}, "eager": contender(40.0)}
    return {"name": "use-switched", "work": "forward", "adapters": {"count": 3, "state": "switched"}, "contenders": measured,
            "over": {"graft": 1.04}}


def results(*rows, **others):
    return {"graft": "graft 0", "suite": "cpu", "command": "graft bench --against python --only 'a <b'", "date": "2001-02-03T04:05:06Z",
            "machine": {"processor": "Made Up 9 & Sons", "cores": 5}, "threads": 5, "rounds": 2, "rows": list(rows)} | others


def texts(path):
    return ["".join(element.itertext()) for element in ElementTree.parse(path).getroot().iter(SVG + "text")]


def bars(path):
    """(class, width) of each bar, in order."""
    found = ElementTree.parse(path).getroot().iter(SVG + "rect")
    return [(bar.get("class").split()[1], float(bar.get("width"))) for bar in found if bar.get("class").startswith("bar ")]


def test_numbers_labels_and_origin(tmp_path):
    done = draw(tmp_path, results(row(), switched()))
    assert done.returncode == 0, done.stderr
    found = texts(tmp_path / "chart.svg")
    for text in ("First call, caches empty: llama6-forward", "Steady state, a call: llama6-forward", "0.50 s", "64.2 s", "11.2 ms", "22.5 ms", "33.5 ms",
                 "Another of 3 adapters before each call: 0 recompiles, 1.04 times the time without adapters",
                 "graft bench --against python --only 'a <b' | 2001-02-03T04:05:06Z | Made Up 9 & Sons, 5 cores"):
        assert text in found, text
    assert [found.count(label) for label in ("graft", "torch.compile", "eager")] == [2, 2, 1]
    drawn = bars(tmp_path / "chart.svg")
    assert [kind for kind, _ in drawn] == ["graft", "compile", "graft", "compile", "eager"]
    (_, first), (_, first_compile), (_, steady), (_, steady_compile), (_, eager) = drawn
    assert first / first_compile == pytest.approx(0.5 / 64.25, abs=0.001)
    assert steady / eager == pytest.approx(11.25 / 33.5, abs=0.001) and steady_compile / eager == pytest.approx(22.5 / 33.5, abs=0.001)


def test_recompiles_are_the_rows(tmp_path):
    for count, text in ((1, "1 recompile,"), (7, "7 recompiles,")):
        assert draw(tmp_path, results(row(), switched(count))).returncode == 0
        assert any(text in line for line in texts(tmp_path / "chart.svg"))
    assert draw(tmp_path, results(row())).returncode == 0
    assert not any("recompile" in line for line in texts(tmp_path / "chart.svg"))


def test_several_files_and_a_choice(tmp_path):
    first, second = results(row(), row("bert-forward")), results(switched(), suite="adapters", command="graft bench --suite adapters")
    assert draw(tmp_path, first, second, only="llama6").returncode == 0
    found = texts(tmp_path / "chart.svg")
    assert "Steady state, a call: llama6-forward [1]" in found and not any("bert" in text for text in found)
    assert any(text.startswith("Another of 3") and text.endswith("[2]") for text in found)
    assert any(text.startswith("[2] graft bench --suite adapters | 2001") for text in found)
    done = draw(tmp_path, first, only="opt")
    assert done.returncode == 2 and "opt" in done.stderr and "llama6-forward, bert-forward" in done.stderr


@pytest.mark.parametrize(
    "document, words",
    [
        ("{", ["0.json"]),
        ([], ["not a result", "not an object"]),
        ({"rows": []}, ["not a result", '"command"']),
        ({key: value for key, value in results(row()).items() if key != "date"}, ["not a result", '"date"']),
        (results(row(), machine="a large one"), ["not a result", '"machine"']),
        (results({"name": "a"}), ["not a result", "the row a", "contenders"]),
        (results({"name": "a", "contenders": {"graft": {"first_call_s": {"cold": ["soon"]}}}}), ["not a result", "graft", "the row a"]),
        (results({"name": "a", "contenders": {"graft": {"median_ms": 0}}}), ["not a result", "above 0"]),
        (results(switched()), ["torch.compile", "--against python"]),
    ],
)
def test_files_that_are_not_results(tmp_path, document, words):
    done = draw(tmp_path, document)
    assert done.returncode == 1
    for word in words:
        assert word in done.stderr
    assert not (tmp_path / "chart.svg").exists()


def test_wrong_usage(tmp_path):
    (tmp_path / "r.json").write_text(json.dumps(results(row())))
    for arguments, word in ((["--chart", tmp_path / "c.svg"], "--json"), ([tmp_path / "r.json"], "--chart")):
        done = programs.run([GRAFT, "bench", *arguments], capture_output=True, text=True)
        assert done.returncode == 2 and word in done.stderr
    assert draw(tmp_path, results(row()), out="no/such/folder.svg").returncode == 1
    assert draw(tmp_path, results(row()), out="c.svg").stdout == ""
    help_text = programs.run([GRAFT, "bench", "--help"], capture_output=True, text=True).stdout
    assert "graft bench --chart bench.svg" in help_text
