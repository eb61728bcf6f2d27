// The file with a paused process: its header, the list of its memory, and the memory itself.
#pragma once
#include <stdint.h>

#define IMAGE_MAGIC "stark-1"
#define IMAGE_PAGE 4096ul
#define IMAGE_MAX_REGIONS 1024
#define IMAGE_LOWEST 0x400000ul  // the loader itself lies below

struct ImageRegion {
  uint64_t address, bytes, offset;
  uint32_t protection, is_stack;
};

struct ImageHeader {
  char magic[8];
  uint64_t resume, stack, thread;  // where it goes on; a free stack; the base of its thread's data
  uint64_t count;
  ImageRegion regions[IMAGE_MAX_REGIONS];
};
