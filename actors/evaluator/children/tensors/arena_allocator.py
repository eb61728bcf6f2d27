"""Where torch's pool in an arena gets its memory from: two functions of C, or of Python.

torch calls them with a lock of its own, from any thread.  A function of Python has to wait for the
interpreter's lock, which a thread may hold that waits for torch's: both would wait for ever.  So
the zygote compiles two functions of C, and every child has them.  Without a C compiler the arena
takes the functions of Python: segments are taken before the first timed call, so torch hardly calls
them.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

from actors.evaluator.children.tensors import cuda_vmm

COMPILERS = ("cc", "gcc", "clang", "c++", "g++")
COMPILE_S = 30.0
ALIGNMENT = 512
MAX_SEGMENTS = 4096  # freed ones that are remembered for reuse
MAX_ARENAS = 64

SOURCE = (
    r"""
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

typedef int (*DriverAllocate)(unsigned long long *, size_t);
typedef int (*DriverFree)(unsigned long long);
struct piece { uintptr_t place; size_t size; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static DriverAllocate driver_allocate;
static DriverFree driver_free;
static struct piece arenas[MAX_ARENAS];
static int arena_count;
static uintptr_t next_place;
static struct piece freed[MAX_SEGMENTS];
static int freed_count;

int stark_arena_use(uintptr_t begin, size_t size, DriverAllocate allocate, DriverFree release) {
    int is_known = 0;
    pthread_mutex_lock(&lock);
    if (arena_count < MAX_ARENAS) {
        arenas[arena_count].place = begin;
        arenas[arena_count++].size = size;
        next_place = begin;
        freed_count = 0;
        driver_allocate = allocate;
        driver_free = release;
        is_known = 1;
    }
    pthread_mutex_unlock(&lock);
    return is_known;
}

static uintptr_t taken(size_t size) {
    struct piece *arena = &arenas[arena_count - 1];
    size_t length = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    for (int i = freed_count - 1; i >= 0; i--) {
        if (freed[i].size == size) {
            uintptr_t place = freed[i].place;
            freed[i] = freed[--freed_count];
            return place;
        }
    }
    if (length > arena->size - (next_place - arena->place)) return 0;
    next_place += length;
    return next_place - length;
}

void *stark_arena_allocate(size_t size, int device, void *stream) {
    unsigned long long beyond = 0;
    pthread_mutex_lock(&lock);
    uintptr_t place = arena_count ? taken(size) : 0;
    pthread_mutex_unlock(&lock);
    if (!place && driver_allocate && !driver_allocate(&beyond, size)) place = (uintptr_t)beyond;
    return (void *)place;
}

void stark_arena_free(void *pointer, size_t size, int device, void *stream) {
    uintptr_t place = (uintptr_t)pointer;
    int arena = -1;
    if (!place) return;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < arena_count; i++)
        if (place - arenas[i].place < arenas[i].size) arena = i;
    if (arena >= 0 && arena == arena_count - 1 && freed_count < MAX_SEGMENTS) {
        freed[freed_count].place = place;
        freed[freed_count++].size = size;
    }
    pthread_mutex_unlock(&lock);
    if (arena < 0 && driver_free) driver_free(place);
}
""".replace("ALIGNMENT", str(ALIGNMENT))
    .replace("MAX_ARENAS", str(MAX_ARENAS))
    .replace("MAX_SEGMENTS", str(MAX_SEGMENTS))
)

_library: ctypes.CDLL | None = None  # of the zygote, and so of all its children


def load(folder: Path) -> bool:
    """Compile and load the functions of C; return whether this machine can."""
    global _library
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        return False
    source, built = folder / "arena_allocator.c", folder / "arena_allocator.so"
    source.write_text(SOURCE, encoding="ascii")
    command = [
        compiler,
        "-x",
        "c",
        "-O1",
        "-shared",
        "-fPIC",
        "-pthread",
        "-o",
        str(built),
        str(source),
    ]
    try:
        subprocess.run(command, check=True, timeout=COMPILE_S, capture_output=True)
        _library = ctypes.CDLL(str(built))
    except (OSError, subprocess.SubprocessError):
        return False
    finally:
        source.unlink(missing_ok=True)
        built.unlink(missing_ok=True)
    _library.stark_arena_use.argtypes = (
        ctypes.c_size_t,
        ctypes.c_size_t,
        ctypes.c_void_p,
        ctypes.c_void_p,
    )
    return True


def native_functions(begin: int, size: int) -> tuple[int, int] | None:
    """Return the addresses of functions of C that allocate in `size` bytes at `begin` from now on.

    None where there are none, or where a process has had too many arenas.
    """
    if _library is None:
        return None
    allocate, free = cuda_vmm.private_functions()
    if not _library.stark_arena_use(begin, size, allocate, free):
        return None
    return _address(_library.stark_arena_allocate), _address(_library.stark_arena_free)


def _address(function: object) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]  # of C
