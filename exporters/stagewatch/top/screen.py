"""The screen of `stagewatch top`, by textual: https://textual.textualize.io."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time
from collections.abc import Iterable
from typing import ClassVar, Protocol

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.css.query import NoMatches
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Static

from stagewatch.core.errors import StagewatchError
from stagewatch.core.words import printable
from stagewatch.judgement.facts import RankFacts
from stagewatch.top.rows import Cell, Layout, Row, View, cells, key, layout, worst_first

END_SECONDS = 2.0
"""How long the end waits for a look under way."""
MAX_SENTENCES = 12


class Source(Protocol):
    """Reads ranks; one thread reads, others may ask for stacks meanwhile."""

    title: str
    """What it looks at."""

    def look(self) -> View:
        """The ranks now.  Raises `StagewatchError` with a line to act on."""
        ...

    def stacks(self, asked: RankFacts) -> str:
        """The stacks of a rank and of its job's others, as text; may take half a minute."""
        ...


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
    DataTable { height: 1fr; scrollbar-size: 1 1; overflow-x: hidden; }
    DataTable > .datatable--header { background: ansi_default; text-style: bold; }
    DataTable > .datatable--cursor {
        text-style: reverse; color: ansi_default; background: ansi_default;
    }
    VerticalScroll { height: 1fr; scrollbar-size: 1 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", "Quit", show=False, priority=True),
        Binding("e", "stacks", "Stacks"),
    ]

    def __init__(self, source: Source, interval: float) -> None:
        """`interval` is the time between two looks, in seconds."""
        super().__init__()
        self.theme = "ansi-dark"  # the terminal's own colours and background, dark or light
        self._source = source
        self._interval = interval
        self._ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._view = View()
        self._looked_at = ""
        self._problem = ""
        self._shown: list[Row] = []
        self._chosen = ""

    def compose(self) -> ComposeResult:
        """The verdict, the ranks, and help on the keys."""
        yield Static(id="head")
        yield Static(id="verdict")
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
        self._shown = worst_first(self._view.rows)
        with contextlib.suppress(NoMatches):  # while the screen is being closed, part by part
            self._show_head()
            self._show_verdict()
            self._show_ranks()

    def _show_head(self) -> None:
        count = f"{len(self._shown)} rank{'s' * (len(self._shown) != 1)}"
        head = f" · {printable(self._source.title, 64)} · {count} · {self._looked_at}"
        self.query_one("#head", Static).update(Text.assemble(("stagewatch top", "bold"), head))

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
        """Draw one line per rank; a line is one cell, since the table draws all cells anew."""
        table: DataTable[Text] = self.query_one(DataTable)
        width = self.size.width - 1
        columns = layout(self._shown, width)
        chosen, scrolled = self._chosen, table.scroll_y
        table.clear(columns=True)
        table.add_column(_titles(columns), width=width)
        for row in self._shown:
            table.add_row(_text(cells(row, columns)), key=_text_key(row))
        if chosen in table.rows:
            table.move_cursor(row=table.get_row_index(chosen), scroll=False)
        table.scroll_to(y=scrolled, animate=False)

    def on_data_table_row_highlighted(self, message: DataTable.RowHighlighted) -> None:
        """Remember the rank under the cursor."""
        self._chosen = message.row_key.value or ""

    def action_stacks(self) -> None:
        """Show the stacks of the chosen rank's job, once they are there; nothing waits for them."""
        row = next((row for row in self._shown if _text_key(row) == self._chosen), None)
        if row is not None:
            rank = row.rank
            title = f"Stacks of rank {rank.rank} ({rank.role}), job {rank.job_id}"
            stacks = Stacks(printable(title))
            self.push_screen(stacks)
            threading.Thread(target=self._ask, args=(rank, stacks), daemon=True).start()

    def _ask(self, rank: RankFacts, stacks: Stacks) -> None:
        try:
            answer = self._source.stacks(rank)
        except (StagewatchError, OSError) as error:
            answer = str(error)
        self.call_later(stacks.show, answer)


def _titles(columns: Layout) -> Text:
    titles = [
        column.title.ljust(width) if column.left else column.title.rjust(width)
        for column, width in columns
    ]
    return Text(" ".join(titles), "bold", no_wrap=True, end="")


def _text(line: Iterable[Cell]) -> Text:
    return Text(" ", no_wrap=True, end="").join(Text(cell.text, cell.style) for cell in line)


def _text_key(row: Row) -> str:
    return "\0".join(map(str, key(row.rank)))
