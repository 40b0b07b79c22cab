"""The screen of `stagewatch top`, by textual: https://textual.textualize.io."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterable
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.coordinate import Coordinate
from textual.css.query import NoMatches
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static

from stagewatch.core.errors import StagewatchError
from stagewatch.core.words import printable
from stagewatch.top.rows import (
    WORST,
    Cell,
    Column,
    Layout,
    Row,
    Source,
    View,
    cells,
    layout,
    matching,
    ordered,
)

END_SECONDS = 2.0
"""How long the end waits for a look under way."""
MAX_SENTENCES = 12


class Stacks(ModalScreen[None]):
    """Stacks, on top of the ranks; any of its keys leads back."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Back", key_display="Esc"),
        Binding("q,e", "dismiss", show=False),
    ]

    def __init__(self, title: str) -> None:
        super().__init__()
        self._title = title
        self._shown = Static(Text("taking stacks, which takes some seconds ..."))

    def compose(self) -> ComposeResult:
        """A title, the text, and help on the keys."""
        yield Static(Text(self._title, "bold"), id="title")
        with VerticalScroll():
            yield self._shown
        yield Footer(show_command_palette=False)

    def show(self, text: str) -> None:
        """The stacks, or why there are none; texts of users are made printable."""
        self._shown.update(Text("\n".join(map(printable, text.splitlines()))))


class Screen(App[None]):
    """Shows the ranks of a source, again and again, until the user ends it."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen, #head, #verdict, DataTable, Footer, Stacks { background: ansi_default; }
    #head { height: 1; color: ansi_default; }
    #verdict { height: auto; max-height: 40%; margin: 0 0 1 0; }
    #filter { height: 1; border: none; padding: 0; display: none; background: ansi_default; }
    DataTable { height: 1fr; scrollbar-size: 1 1; overflow-x: hidden; }
    DataTable > .datatable--header { background: ansi_default; text-style: bold; }
    DataTable > .datatable--cursor {
        text-style: reverse; color: ansi_default; background: ansi_default;
    }
    DataTable > .datatable--header-hover { background: ansi_default; }
    VerticalScroll { height: 1fr; scrollbar-size: 1 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", "Quit", show=False, priority=True),
        Binding("slash", "filter", "Filter"),
        Binding("less_than_sign", "sort(-1)", "Sort", key_display="< >"),
        Binding("greater_than_sign", "sort(1)", "Sort", show=False),
        Binding("e", "stacks", "Stacks"),
        Binding("escape", "show_all", show=False),
    ]

    def __init__(self, source: Source, interval: float) -> None:
        """`interval` is in seconds."""
        super().__init__()
        self.theme = "ansi-dark"  # the terminal's own colours and background, dark or light
        self._source = source
        self._interval = interval
        self._ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._view = View()
        self._looked_at = ""
        self._problem = ""
        self._words = ""
        self._sort = WORST
        self._shown: list[Row] = []
        self._chosen = ""
        self._columns: Layout = ()
        self._titles: list[Cell] = []
        self._lines: list[list[Cell]] = []

    def compose(self) -> ComposeResult:
        """The verdict, the ranks, and help on the keys."""
        yield Static(id="head")
        yield Static(id="verdict")
        yield Input(placeholder="words to look for; Enter keeps them, Esc shows all", id="filter")
        yield DataTable[Text](cursor_type="row", cell_padding=0)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Start to read; end cleanly also after a signal."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if threading.current_thread() is threading.main_thread():
                asyncio.get_running_loop().add_signal_handler(number, self.exit)
        self.query_one("#verdict", Static).update(Text("looking ...", "dim"))
        self.query_one(DataTable).focus()
        self._watcher.start()

    def on_unmount(self) -> None:
        """Stop reading."""
        self._ended.set()
        self._watcher.join(END_SECONDS)

    def _watch(self) -> None:
        while not self._ended.is_set():
            view, problem = None, ""
            try:
                view = self._source.look()
            except (StagewatchError, OSError) as error:
                problem = str(error)
            self.call_later(self._looked, view, problem)
            self._ended.wait(self._interval)

    def _looked(self, view: View | None, problem: str) -> None:
        """Show the view, or the last one and why there is no newer one."""
        self._problem = problem
        if view is not None:
            self._view = view
            self._looked_at = time.strftime("%T")
        self._show()

    def on_resize(self) -> None:
        """Lay out again."""
        self.call_after_refresh(self._show)

    def _show(self) -> None:
        """Everything from the last look."""
        if not self._looked_at and not self._problem:
            return
        self._shown = ordered(matching(self._view.rows, self._words), self._sort)
        with contextlib.suppress(NoMatches):  # while the screen is being closed, part by part
            self._show_head()
            self._show_verdict()
            self._show_ranks()

    def _show_head(self) -> None:
        rows = self._view.rows
        count = f"{len(rows)} rank{'s' * (len(rows) != 1)}"
        if self._words:
            count = f"{len(self._shown)} of {count} with {printable(self._words, 40)!r}"
        order = f"by {self._sort.title.lower()}" if self._sort.title else "worst first"
        head = f" · {count} · {self._looked_at} · {order}"
        self.query_one("#head", Static).update(
            Text.assemble(
                ("stagewatch top", "bold"), f" · {printable(self._source.title, 64)}{head}"
            )
        )

    def _show_verdict(self) -> None:
        told = Text()
        if self._problem:
            told.append(f"{printable(self._problem)}\n", "bold yellow")
        sentences = self._view.sentences
        for sentence, wrong in sentences[:MAX_SENTENCES]:
            told.append(f"{printable(sentence)}\n", "bold red" if wrong else "")
        if len(sentences) > MAX_SENTENCES:
            told.append(f"and {len(sentences) - MAX_SENTENCES} more", "dim")
        told.rstrip()
        self.query_one("#verdict", Static).update(told)

    def _show_ranks(self) -> None:
        """Draw one line per rank: only the changed lines, if the ranks and their order are the
        same.

        A line is one cell, since the table draws all cells at every change.
        """
        table: DataTable[Text] = self.query_one(DataTable)
        columns = layout(self._shown, self.size.width - 1)
        titles = _titles(columns, self._sort)
        lines = [cells(row, columns) for row in self._shown]
        keys = [_text_key(row) for row in self._shown]
        if titles == self._titles and keys == [key.value for key in table.rows]:
            for place, (line, before) in enumerate(zip(lines, self._lines, strict=True)):
                if line != before:
                    table.update_cell_at(Coordinate(place, 0), _text(line))
        else:
            chosen, scrolled = self._chosen, table.scroll_y
            table.clear(columns=True)
            table.add_column(_text(titles), width=self.size.width - 1)
            for key, line in zip(keys, lines, strict=True):
                table.add_row(_text(line), key=key)
            if chosen in keys:
                table.move_cursor(row=keys.index(chosen), scroll=False)
            table.scroll_to(y=scrolled, animate=False)
        self._columns, self._titles, self._lines = columns, titles, lines

    def on_data_table_row_highlighted(self, message: DataTable.RowHighlighted) -> None:
        """Remember the rank under the cursor."""
        self._chosen = message.row_key.value or ""

    def action_sort(self, by: int) -> None:
        """Sort by the visible column left or right of this one."""
        shown = [column for column, _ in self._columns]
        at = shown.index(self._sort) if self._sort in shown else 0
        self._sort = shown[(at + by) % len(shown)] if shown else WORST
        self._show()

    def action_filter(self) -> None:
        """Ask for words."""
        words = self.query_one(Input)
        words.display = True
        words.focus()

    def action_show_all(self) -> None:
        """Forget the words."""
        self.query_one(Input).value = ""
        self.on_input_submitted()

    def on_input_changed(self, message: Input.Changed) -> None:
        """Show the ranks with these words."""
        self._words = message.value
        self._show()

    def on_input_submitted(self) -> None:
        """Keep the words and return to the ranks."""
        self.query_one(Input).display = False
        self.query_one(DataTable).focus()

    def action_stacks(self) -> None:
        """Show the stacks of the chosen rank's job."""
        if (row := self._row()) is not None:
            stacks = Stacks(printable(f"Stacks of rank {row.rank} ({row.role}), job {row.job_id}"))
            self.push_screen(stacks)
            self._ask(lambda: self._source.stacks(row), stacks.show)

    def _row(self) -> Row | None:
        return next((row for row in self._shown if _text_key(row) == self._chosen), None)

    def _ask(self, question: Callable[[], str], then: Callable[[str], None]) -> None:
        """Pass on the answer, or why there is none, when it is there; nothing waits for it."""

        def ask() -> None:
            try:
                answer = question()
            except (StagewatchError, OSError) as error:
                answer = str(error)
            self.call_later(then, answer)

        threading.Thread(target=ask, daemon=True).start()


def _titles(columns: Layout, sort: Column) -> list[Cell]:
    return [
        Cell(
            column.title.ljust(width) if column.left else column.title.rjust(width),
            "bold reverse" if column is sort and column.title else "bold",
        )
        for column, width in columns
    ]


def _text(line: Iterable[Cell]) -> Text:
    return Text(" ", no_wrap=True, end="").join(Text(cell.text, cell.style) for cell in line)


def _text_key(row: Row) -> str:
    return "\0".join(row.key)
