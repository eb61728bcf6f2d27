// Becomes the process whose image it is given: maps its memory, and goes on where it paused.
//
//     image_loader IMAGE
//
// A program without libraries, below all addresses of a paused process.  It ends with status 97 if
// the image can't be loaded.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "process_image.h"

static const uint64_t STACK_BYTES = 120ul << 20;  // the kernel keeps as much free below a stack
static ImageHeader header;
extern "C" {
alignas(64) char loader_stack[1 << 16];
[[noreturn]] void load_image(const long* arguments);
}

static long call(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0,
                 long f = 0) {
  long result;
  register long fourth __asm__("r10") = d;
  register long fifth __asm__("r8") = e;
  register long sixth __asm__("r9") = f;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth), "r"(sixth)
                   : "rcx", "r11", "memory");
  return result;
}

static void check(bool is_true) {
  if (!is_true) call(SYS_exit_group, 97);
}

static void map(uint64_t address, uint64_t bytes, int protection, int kind, int file,
                uint64_t offset) {
  const int flags = MAP_PRIVATE | MAP_FIXED | kind;
  check(call(SYS_mmap, address, bytes, protection, flags, file, offset) == (long)address);
}

void load_image(const long* arguments) {
  check(arguments[0] == 2);
  const int file = call(SYS_open, arguments[2], O_RDONLY | O_CLOEXEC);
  check(file >= 0);
  check(call(SYS_pread64, file, (long)&header, sizeof header, 0) == (long)sizeof header);
  for (unsigned at = 0; at < sizeof header.magic; at++) check(header.magic[at] == IMAGE_MAGIC[at]);
  check(header.count <= IMAGE_MAX_REGIONS);
  for (uint64_t at = 0; at < header.count; at++) {
    const ImageRegion& region = header.regions[at];
    const int empty = MAP_ANONYMOUS | MAP_NORESERVE;
    if (region.is_stack) {
      const uint64_t lowest = region.address + region.bytes - STACK_BYTES;
      map(lowest, STACK_BYTES, PROT_READ | PROT_WRITE, empty, -1, 0);
    }
    const bool is_stored = region.protection & PROT_READ;
    // A parser reads and writes nearly all of its memory: one call costs less than 200,000 faults.
    const int stored = region.protection & PROT_WRITE ? MAP_POPULATE : 0;
    map(region.address, region.bytes, region.protection, is_stored ? stored : empty,
        is_stored ? file : -1, region.offset);
  }
  call(SYS_close, file);
  check(call(SYS_arch_prctl, 0x1002 /* ARCH_SET_FS */, header.thread) == 0);
  __asm__ volatile("mov %0, %%rsp\n\txor %%ebp, %%ebp\n\tcall *%1\n\thlt"
                   :
                   : "r"(header.stack), "r"(header.resume)
                   : "memory");
  __builtin_unreachable();
}

__asm__(
    ".globl _start\n"
    "_start:\n"
    "\tmov %rsp, %rdi\n"
    "\tlea loader_stack+65536(%rip), %rsp\n"
    "\tcall load_image\n"
    "\thlt\n");
