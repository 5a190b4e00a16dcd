"""The page of `plan --html` in a headless Chromium: it renders, its values answer the mouse, and its numbers are the JSON's."""

import json
import re

import pytest

import browser
import program
from bad_files import GOLDEN

RESNET = json.loads((GOLDEN / "model" / "resnet50.json").read_text())[0]["config"]
COMPILED = ("--optimizer", "adam", "--loss", "sparse_categorical_crossentropy")
CASES = {
    "fits": (["seed-2", "--batch-size", 128, "--budget", "160MiB"], 0),
    "does not fit": (["seed-2", "--batch-size", 128, "--budget", "20MiB"], 3),
    "a card": (["seed-2", "--batch-size", 128, "--device", "t4-16g"], 0),
}


@pytest.fixture(scope="module")
def page():
    assert browser.PROGRAM, "these tests need Chromium: apt install chromium"
    with browser.browser() as opened:
        yield opened


def texts(page, selector):
    return page.value(f"[...document.querySelectorAll('{selector}')].map(e=>e.textContent)")


def shown_bytes(number):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(number) < 1024 or unit == "GiB":
            break
        number /= 1024
    if unit == "B":
        return f"{number} B"
    return f"{number:.{2 if abs(number) < 10 else 1 if abs(number) < 100 else 0}f} {unit}"


def point_at(page, chart, x, y):
    """Moves the mouse to a place in a chart, given as shares of its drawing area; returns what the page shows there."""
    page.value(f"document.getElementById('{chart}').scrollIntoView({{block:'center'}})")
    place = page.value(
        f"(()=>{{const c=document.getElementById('{chart}'),b=c.getBoundingClientRect(),v=c.viewBox.baseVal,f=pic.{chart};"
        f"return [b.left+(f.left+f.width*{x})*b.width/v.width,b.top+(f.top+f.height*{y})*b.height/v.height]}})()"
    )
    page.move_mouse(*place)
    return page.value("tip.style.display=='block'?tip.innerText:''")


@pytest.mark.parametrize("case", CASES)
def test_the_page_shows_the_numbers_of_the_json(page, case, tmp_path):
    flags, code = CASES[case]
    plan = program.run("plan", *flags, "--html", tmp_path / "p.html", "--json", expect=code).json()
    page.open(tmp_path / "p.html")
    whole = page.value("document.body.innerText")
    for number in (plan["peak_bytes"], plan["arena_bytes"], plan["keras"]["peak_bytes"]):
        assert shown_bytes(number) in whole
    assert page.value("plan.peak_bytes") == plan["peak_bytes"]
    for entry in plan["categories"]:
        assert entry["bytes"] == 0 or f"{entry['bytes']:,}" in whole, entry
    rows = texts(page, "#remedies-table tr")[1:]
    assert len(rows) == len(plan["remedies"])
    for row, remedy in zip(rows, plan["remedies"]):
        assert remedy["remedy"] in row and shown_bytes(remedy["peak_bytes"]) in row and remedy["flags"] in row
    assert len(texts(page, "#batches-table tr")) == len(plan["batches"]) + 1
    assert len(texts(page, "#layers-table tr")) + len(texts(page, "#more-layers-table tr")) >= len(plan["layers"]) + 1
    assert page.value("document.getElementById('next').textContent") == plan["next"]["command"]


def test_the_mouse_shows_each_value_with_layer_lifetime_and_bytes(page, tmp_path):
    program.run("plan", *CASES["fits"][0], "--html", tmp_path / "p.html")
    page.open(tmp_path / "p.html")
    peak = page.value(
        "(()=>{let best=[0,0];pic.steps.forEach((s,i)=>{const t=alive(i).reduce((a,v)=>a+v[3],0);if(t>best[0])best=[t,i]});return best})()"
    )
    shown = point_at(page, "timeline", (peak[1] + 0.5) / page.value("n"), 0.5)
    assert f"{shown_bytes(peak[0])} in use" in shown and "activations" in shown, shown
    for index in (0, 3, "pic.values.length-1"):  # a value of the first phase, another one, a weight
        first, last, offset, count = page.value(f"pic.values[{index}]")[:4]
        most = page.value("pic.most")
        shown = point_at(
            page, "arena", ((first + last + 1) / 2) / page.value("n"), 1 - (offset + count / 2) / most
        )
        assert f"{count:,} bytes" in shown and f"operations {first + 1} to {last + 1}" in shown, shown
    page.move_mouse(2, 2)
    assert page.value("tip.style.display") == "none"


def test_light_and_dark_differ_and_both_have_contrast(page, tmp_path):
    program.run("plan", "seed-1", "--html", tmp_path / "p.html")
    colours = []
    for dark in (False, True):
        page.open(tmp_path / "p.html", dark=dark)
        style = "getComputedStyle(document.body)"
        colours.append([sum(map(int, re.findall(r"\d+", page.value(f"{style}.{part}")))) for part in ("color", "backgroundColor")])
    (ink, paper), (dark_ink, dark_paper) = colours
    assert paper - ink > 400 and dark_ink - dark_paper > 400


def test_the_page_of_resnet_50_is_small_and_renders(page, tmp_path):
    path, model = tmp_path / "p.html", tmp_path / "m.json"
    model.write_text(json.dumps(RESNET))
    program.run("plan", model, *COMPILED, "--batch-size", 32, "--device", "t4-16g", "--html", path)
    assert path.stat().st_size < 300_000
    page.open(path)
    assert page.value("pic.values.length") > 500
    assert page.value("document.querySelectorAll('#timeline path').length") > 5


def test_names_of_layers_cannot_become_code(page, tmp_path):
    evil = "</script><img src=x onerror=alert(1)>"
    text = json.dumps(RESNET).replace("conv1_conv", evil.replace('"', ""))
    (tmp_path / "m.json").write_text(text)
    program.run("plan", tmp_path / "m.json", *COMPILED, "--batch-size", 2, "--html", tmp_path / "p.html", "--svg", tmp_path / "p.svg")
    assert "<img" not in (tmp_path / "p.svg").read_text()
    page.open(tmp_path / "p.html")
    assert page.value("document.querySelectorAll('img').length") == 0
