"""Laws of parser images, with a small parser: a paused process goes on in another one."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from actors.evaluator.fastbuild.nvcc.parser_image import ParserImage
from actors.evaluator.fastbuild.request.compiler_process import Deadline

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or shutil.which("g++") is None, reason="images are for x86-64"
)
# It keeps what it read on the heap, in a variable of the thread and on the stack; what it does at
# the end needs the heap, the clock, a thread of its own and the number of its thread.
PARSER = r"""
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <string>
#include <thread>
#include <vector>
#include <sys/mman.h>
thread_local int lines;
int main(int, char** arguments) {
  FILE* file = fopen(arguments[1], "r");
  std::vector<std::string> words;
  std::string word;
  const int access = PROT_READ | PROT_WRITE, kind = MAP_PRIVATE | MAP_ANONYMOUS;
  char* given_back = (char*)mmap(0, 4096, access, kind, -1, 0);
  strcpy(given_back, "old");
  for (int c; (c = getc(file)) != EOF;) {
    if (c == '\n') lines++;
    if (c > ' ') { word += (char)c; continue; }
    words.push_back(word);
    word.clear();
  }
  for (auto& each : words) if (each == "again" || each == "opened") {
    char line[64] = "";
    if (each == "opened") fclose(file), file = fopen(arguments[1], "r");
    fseek(file, strlen("word0 of the preamble\n"), SEEK_SET);
    puts(fgets(line, sizeof line, file) ? line : "gone");
    return 3;
  }
  fclose(file);
  madvise(given_back, 4096, MADV_DONTNEED);
  if (*given_back) return 4;
  for (auto& each : words) if (each == "broken") { puts("line of the error"); return 3; }
  std::vector<std::string> more(100000, std::string(100, 'x'));
  std::recursive_mutex mutex;
  std::lock_guard<std::recursive_mutex> outer(mutex), inner(mutex);
  size_t bytes = 0;
  std::thread([&] { for (auto& each : more) bytes += strdup(each.c_str())[0] == 'x'; }).join();
  if (time(nullptr) < 1000 || clock() < 0) return 5;
  FILE* out = fopen("out", "w");
  fprintf(out, "%d lines, %zu words, %zu\n", lines, words.size(), bytes);
  fprintf(out, "%s\n", words.back().c_str());
  fclose(out);
}
"""
PATH = {"PATH": os.environ["PATH"]}
PREAMBLE = "".join(f"word{at} of the preamble\n" for at in range(20_000))
REST = "the candidate's own\nlines\n"


@pytest.fixture(scope="module")
def parser(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parser")
    (folder / "parser.cpp").write_text(PARSER)
    command = ["g++", "-O1", "-pthread", "-w", "parser.cpp", "-o", "parser"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "parser"


@pytest.fixture(scope="module")
def image(parser: Path, tmp_path_factory: pytest.TempPathFactory) -> ParserImage:
    folder = tmp_path_factory.mktemp("image")
    (folder / "in").write_text(PREAMBLE)
    made = ParserImage(folder)
    assert made.make(f"{parser} in", folder / "in", PATH, Deadline(60.0))
    return made


def going_on(image: ParserImage, folder: Path, rest: str) -> tuple[int, str]:
    (folder / "in.rest").write_text(rest)
    ran = image.run(folder / "in", Deadline(60.0))
    assert ran is not None
    return ran.status, ran.output


def test_a_paused_parser_goes_on_as_if_it_had_read_all(
    parser: Path, image: ParserImage, tmp_path: Path
) -> None:
    """In processes at other addresses, several times: the system chooses them at random."""
    (tmp_path / "in").write_text(PREAMBLE + REST)
    subprocess.run([str(parser), "in"], cwd=tmp_path, check=True)
    expected = (tmp_path / "out").read_text()
    for _ in range(5):
        (tmp_path / "out").unlink()
        assert going_on(image, tmp_path, REST) == (0, "")
        assert (tmp_path / "out").read_text() == expected


def test_what_a_parser_says_of_an_error_is_passed_on(image: ParserImage, tmp_path: Path) -> None:
    """A candidate's error is found by the parser that goes on; nothing else parses it."""
    assert going_on(image, tmp_path, "something broken here\n") == (3, "line of the error\n")


@pytest.mark.parametrize("word", ["again", "opened"])
def test_a_parser_repeats_a_line_of_what_it_had_read_before(
    image: ParserImage, tmp_path: Path, word: str
) -> None:
    """nvcc's front ends do that below an error, at their end by opening the file once more."""
    assert going_on(image, tmp_path, f"{word} once\n") == (3, "word1 of the preamble\n\n")


def test_an_image_does_not_hold_what_its_makers_environment_has(
    parser: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A candidate may read the image; its maker may have keys."""
    monkeypatch.setenv("STARK_TEST_KEY", "key-of-the-maker")
    (tmp_path / "in").write_text(PREAMBLE)
    made = ParserImage(tmp_path)
    assert made.make(f"{parser} in", tmp_path / "in", PATH, Deadline(60.0))
    content = made.file.read_bytes()
    assert b"word19999" in content
    assert b"key-of-the-maker" not in content


@pytest.mark.parametrize("content", [b"", b"not an image", b"\0" * 100_000])
def test_a_file_that_is_no_image_is_not_used(
    image: ParserImage, tmp_path: Path, content: bytes
) -> None:
    """A full disk while it was made leaves such a file."""
    broken = ParserImage(tmp_path)
    shutil.copy(image.folder / "image_loader", tmp_path)
    (tmp_path / "in.rest").write_text(REST)
    broken.file.write_bytes(content)
    assert broken.run(tmp_path / "in", Deadline(60.0)) is None


def test_an_image_on_a_disk_without_programs_is_not_used(
    image: ParserImage, tmp_path: Path
) -> None:
    """A folder mounted with `noexec` refuses to run the loader."""
    shutil.copytree(image.folder, tmp_path / "image")
    (tmp_path / "image/image_loader").chmod(0o644)
    assert ParserImage(tmp_path / "image").run(tmp_path / "in", Deadline(60.0)) is None


def test_a_parser_that_reads_otherwise_has_no_image(tmp_path: Path) -> None:
    """Its input is not seen, so that it can't be paused."""
    (tmp_path / "in").write_text(PREAMBLE)
    assert not ParserImage(tmp_path).make("cat in", tmp_path / "in", PATH, Deadline(60.0))


def test_a_parser_without_its_memory_or_its_input_does_not_go_on(
    image: ParserImage, tmp_path: Path
) -> None:
    """Half of an image, after a disk's failure; a folder that was removed meanwhile."""
    assert image.run(tmp_path / "in", Deadline(60.0)) is None
    cut = ParserImage(tmp_path)
    shutil.copy(image.folder / "image_loader", tmp_path)
    shutil.copy(image.file, cut.file)
    os.truncate(cut.file, cut.file.stat().st_size // 2)
    (tmp_path / "in.rest").write_text(REST)
    assert cut.run(tmp_path / "in", Deadline(60.0)) is None
