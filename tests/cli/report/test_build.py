"""The HTML report as a file."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.cli.report.fake_run import fake_run

from kinema_cli.report.build import build_report
from kinema_cli.report.data import EventRow, NodeBox, PodBox, ReportData

VOID = {"meta", "link", "br", "img", "hr", "input"}
NAMESPACES = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}


class Checker(HTMLParser):
    """Notes ids and text, and fails on a tag that is closed out of order."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Remember the tag and its id."""
        self.tags.append(tag)
        self.ids += [value for key, value in attrs if key == "id" and value]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """A self-closed SVG element."""
        self.tags.append(tag)
        self.ids += [value for key, value in attrs if key == "id" and value]

    def handle_endtag(self, tag: str) -> None:
        """Must close what was opened last."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Keep what is shown."""
        self.text.append(data)


def written(data: ReportData, directory: Path) -> str:
    """The report's HTML."""
    return build_report(data, directory / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The report of the made-up run."""
    return written(fake_run(), tmp_path_factory.mktemp("report"))


def parsed(html: str) -> Checker:
    """The report, read by a parser."""
    checker = Checker()
    checker.feed(html)
    checker.close()
    return checker


def test_html_is_well_formed_and_ids_are_unique(html: str) -> None:
    """Every tag is closed in order, and no two elements of the pictures share an id."""
    checker = parsed(html)
    assert checker.open == []
    assert len(checker.ids) == len(set(checker.ids))


def test_report_needs_no_network(html: str) -> None:
    """The file names no address but the two XML namespaces, and no script, image or sheet beside it."""
    assert set(re.findall(r"https?://[^\"'\s<)]+", html)) <= NAMESPACES
    assert not {"script", "link", "img", "iframe"} & set(parsed(html).tags)
    assert "@import" not in html
    assert set(re.findall(r"url\(([^)])", html)) <= {"#"}


def test_every_reference_in_the_pictures_is_there(html: str) -> None:
    """Clip paths and markers that a picture uses are defined in it."""
    used = set(re.findall(r"url\(#([^)]+)\)", html)) | set(re.findall(r'href="#([^"]+)"', html))
    assert used
    assert used <= set(parsed(html).ids)


def test_all_figures_are_there(html: str) -> None:
    """Two pictures of the plan, four plots and the timeline, each of them well-formed SVG with a name."""
    pictures = re.findall(r"<svg.*?</svg>", html, flags=re.DOTALL)
    assert len(pictures) == 7
    for picture in pictures:
        ElementTree.fromstring(picture)
    figures = re.findall(r"<figure.*?</figure>", html, flags=re.DOTALL)
    assert all("aria-label=" in figure for figure in figures)


def test_headline_says_nodes_cost_saving_bound_and_audit(html: str) -> None:
    """The summary holds the figures that a reader looks for first."""
    text = " ".join(" ".join(parsed(html).text).split())
    for said in ("11 → 4", "$1.39 → $0.60", "$577", "$0.60/h", "1 evict, 28 surge", "18 unready pod-seconds"):
        assert said in text


def test_audit_has_a_row_for_each_workload(html: str) -> None:
    """The audit names every workload, and its total stands below."""
    table = html[html.index("Disruption audit") : html.index("Over time")]
    assert table.count('<th scope="row">') == 16 + 1
    assert "teastore/db" in table


def test_colors_are_names_of_the_style_sheet(html: str) -> None:
    """No stand-in color is left in the pictures, and every name used has a light and a dark value."""
    assert not re.search(r"#0[12]0[23]", html)
    names = set(re.findall(r"var\((--\w+)\)", html))
    light, dark = html[html.index(":root") :].split("@media (prefers-color-scheme: dark)")[:2]
    assert names <= set(re.findall(r"(--\w+):", light))
    assert names - {"--on"} <= set(re.findall(r"(--\w+):", dark[: dark.index("* {")]))


def test_same_data_same_bytes(tmp_path: Path, html: str) -> None:
    """Building the report again gives the same file, so that it can be compared."""
    assert written(fake_run(), tmp_path) == html


def test_text_of_events_is_escaped(tmp_path: Path) -> None:
    """What an event says cannot become markup."""
    nasty = "<script>alert('x')</script> & \"more\""
    pod = PodBox(pod=nasty, app=nasty, cpu=2000, memory=1)
    box = NodeBox(nasty, nasty, "-", 0.1, "keep", 2000, 10, (pod,))
    data = replace(fake_run(), events=(EventRow(1, "observer", "x", nasty),), before=(box,), after=(box,))
    html = written(data, tmp_path)
    assert "<script" not in html
    assert parsed(html).open == []


def test_report_of_a_plan_alone_has_no_empty_sections(tmp_path: Path) -> None:
    """What was not observed is left out: no plots, no audit, no timeline."""
    data = replace(fake_run(), samples=(), node_lives=(), pod_lives=(), audit=None, window=None, events=())
    html = written(data, tmp_path)
    assert html.count("<svg") == 2
    for heading in ("Disruption audit", "Over time", "Timeline of moves", "What happened"):
        assert heading not in html


def test_what_is_left_out_of_a_picture_is_counted(tmp_path: Path) -> None:
    """More nodes than fit are not dropped silently."""
    box = NodeBox("n", "m", "z", 0.1, "keep", 1000, 1000, ())
    html = written(replace(fake_run(), before=(box,) * 75), tmp_path)
    assert "and 15 more nodes" in html
