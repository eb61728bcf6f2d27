// Pauses a parser that has read its whole input, and writes its memory to a file.
//
// Preloaded into the parser (LD_PRELOAD).  STARK_IMAGE_INPUT names the file that is read in part;
// STARK_IMAGE is the file to write.  The process ends when that is written.  `image_loader` lets it
// go on in another process: it finds the rest of its input in the file INPUT.rest of the working
// folder, and both parts in INPUT, where it repeats a line below an error.  The parser must have one
// thread and read its input by stdio.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "process_image.h"

extern "C" char* __curbrk;  // glibc's note of the heap's end

namespace {

const char* image_path;
char whole_path[4096], rest_path[4096];
int input = -1, whole = -1;
off64_t first, position, end;  // of the input: where this file begins, the reader is, the file ends
bool is_paused_process;
jmp_buf state;
ImageHeader header;
char maps[1 << 19];
unsigned thread_id_offset;

[[noreturn]] void give_up(const char* why) {
  dprintf(2, "image_writer: %s\n", why);
  _exit(96);
}

void check(bool is_true, const char* why) {
  if (!is_true) give_up(why);
}

int* thread_id() { return (int*)((char*)pthread_self() + thread_id_offset); }

void find_thread_id() {
  const int id = (int)syscall(SYS_gettid);
  for (thread_id_offset = 256; thread_id_offset < 2048; thread_id_offset += sizeof(int)) {
    if (*thread_id() == id) return;
  }
  give_up("the thread's number was not found");
}

// The first code of the new process.
void resume() {
  *thread_id() = (int)syscall(SYS_gettid);
  // Its heap is not the kernel's: malloc must fail to extend it, and then maps memory.
  __curbrk = (char*)0x700000000000;
  longjmp(state, 1);
}

bool is_zero(const char* page) {
  static const char zeros[IMAGE_PAGE] = {};
  return memcmp(page, zeros, IMAGE_PAGE) == 0;
}

// Writes what is not zero; the file has holes for the rest.
void write_region(int file, const ImageRegion& region) {
  const char* const start = (const char*)region.address;
  for (uint64_t at = 0; at < region.bytes;) {
    uint64_t until = at;
    while (until < region.bytes && !is_zero(start + until)) until += IMAGE_PAGE;
    while (at < until) {
      const ssize_t done = pwrite64(file, start + at, until - at, region.offset + at);
      check(done > 0, "the image can't be written");
      at += done;
    }
    while (at < region.bytes && is_zero(start + at)) at += IMAGE_PAGE;
  }
}

void read_maps() {
  const int file = open("/proc/self/maps", O_RDONLY);
  size_t have = 0;
  for (ssize_t got = 1; got > 0 && have < sizeof maps - 1; have += got) {
    got = read(file, maps + have, sizeof maps - 1 - have);
    check(got >= 0, "the list of its memory can't be read");
  }
  check(have < sizeof maps - 1, "the list of its memory is too long");
  close(file);
}

void write_image() {
  read_maps();
  const int file = open(image_path, O_CREAT | O_EXCL | O_WRONLY, 0644);
  check(file >= 0, "the image can't be made");
  uint64_t offset = (sizeof header + IMAGE_PAGE - 1) / IMAGE_PAGE * IMAGE_PAGE;
  for (char* line = strtok(maps, "\n"); line; line = strtok(nullptr, "\n")) {
    unsigned long from, to;
    char allowed[8];
    int used = 0;
    const int fields = sscanf(line, "%lx-%lx %7s %*s %*s %*s %n", &from, &to, allowed, &used);
    check(fields == 3, "a line of the list of its memory is not understood");
    const char* name = line + used;
    if (!strncmp(name, "[v", 2)) continue;  // the kernel's own pages
    check(from >= IMAGE_LOWEST, "it uses the loader's addresses");
    check(header.count < IMAGE_MAX_REGIONS, "it has too many regions");
    ImageRegion& region = header.regions[header.count++];
    region.address = from;
    region.bytes = to - from;
    region.protection = (allowed[0] == 'r' ? PROT_READ : 0) | (allowed[1] == 'w' ? PROT_WRITE : 0) |
                        (allowed[2] == 'x' ? PROT_EXEC : 0);
    region.is_stack = !strcmp(name, "[stack]");
    if (!(region.protection & PROT_READ)) continue;
    region.offset = offset;
    offset += region.bytes;
    write_region(file, region);
  }
  check(!ftruncate64(file, offset), "the image can't be written");
  check(pwrite64(file, &header, sizeof header, 0) == sizeof header, "the image can't be written");
}

// Returns in the new process, or in none.
void pause_here() {
  close(input);
  fflush(nullptr);
  find_thread_id();
  if (!_setjmp(state)) {
    memcpy(header.magic, IMAGE_MAGIC, sizeof header.magic);
    header.resume = (uint64_t)&resume;
    header.stack = ((uint64_t)__builtin_frame_address(0) - (1 << 16)) / 64 * 64;
    syscall(SYS_arch_prctl, 0x1003 /* ARCH_GET_FS */, &header.thread);
    write_image();
    _exit(0);
  }
  input = open(rest_path, O_RDONLY | O_CLOEXEC);
  check(input >= 0, "the rest of the input can't be read");
  whole = open(whole_path, O_RDONLY | O_CLOEXEC);
  is_paused_process = true;
  first = end;
}

ssize_t read_input(void*, char* to, size_t bytes) {
  if (position == end && !is_paused_process) pause_here();
  const bool is_before = position < first;
  if (is_before && whole < 0) return 0;  // text that is gone
  if (is_before && (off64_t)bytes > first - position) bytes = first - position;
  const ssize_t got = is_before ? pread64(whole, to, bytes, position)
                                : pread64(input, to, bytes, position - first);
  if (got > 0) position += got;
  return got;
}

int seek_input(void*, off64_t* to, int whence) {
  if (whence == SEEK_END) return -1;
  position = whence == SEEK_CUR ? position + *to : *to;
  *to = position;
  return 0;
}

int close_input(void*) {
  const int status = close(input);
  input = -1;
  return status;
}

FILE* open_file(const char* name, const char* mode, const char* function) {
  static const char* const input_path = getenv("STARK_IMAGE_INPUT");
  if (input_path && !image_path && !strcmp(name, input_path)) {
    image_path = getenv("STARK_IMAGE");
    check(image_path && snprintf(rest_path, sizeof rest_path, "%s.rest", name) > 0 &&
              snprintf(whole_path, sizeof whole_path, "%s", name) > 0,
          "no name");
    input = open(name, O_RDONLY | O_CLOEXEC);
    struct stat status;
    check(input >= 0 && !fstat(input, &status), "the input can't be read");
    end = status.st_size;
    return fopencookie(nullptr, mode, {read_input, nullptr, seek_input, close_input});
  }
  const auto next = (FILE * (*)(const char*, const char*)) dlsym(RTLD_NEXT, function);
  return next(name, mode);
}

}  // namespace

extern "C" {

FILE* fopen(const char* name, const char* mode) { return open_file(name, mode, "fopen"); }
FILE* fopen64(const char* name, const char* mode) { return open_file(name, mode, "fopen64"); }

// Where a page of the image is given back, its owner counts on zeros.
int madvise(void* at, size_t bytes, int advice) noexcept {
  if (advice == MADV_DONTNEED) return memset(at, 0, bytes), 0;
  return (int)syscall(SYS_madvise, at, bytes, advice);
}

// glibc's own call code of the kernel, which is at another address in each process.
int clock_gettime(clockid_t clock, timespec* to) noexcept {
  return (int)syscall(SYS_clock_gettime, clock, to);
}
int gettimeofday(timeval* to, void* zone) noexcept {
  return (int)syscall(SYS_gettimeofday, to, zone);
}
time_t time(time_t* to) noexcept {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return to ? *to = now.tv_sec : now.tv_sec;
}
clock_t clock() noexcept {
  timespec used;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return used.tv_sec * CLOCKS_PER_SEC + used.tv_nsec / (1000000000 / CLOCKS_PER_SEC);
}
int sched_getcpu() noexcept {
  unsigned processor = 0;
  syscall(SYS_getcpu, &processor, nullptr, nullptr);
  return (int)processor;
}
}
