// The simulated device behind /dev/kfd, /dev/dri and sysfs, for a program that knows nothing of it (LD_PRELOAD).
//
//   device_socket.c  requests to the device's process (serve/wire.py), a connection a thread
//   paths.c          names below /sys and /dev: a copy of the device's files in ZINC_RT_SIM_ROOT
//   device_files.c   open, close, duplicates, ioctl: files of ours that stand for the device's
//   mappings.c       mmap and munmap of device files, USERPTR's pages
//   runtimes.c       functions of HIP and of the HSA runtime, and their callers
//   allocations.c    their allocations: bounds
//   launches.c       their queues: where a packet was written
//   processes.c      fork, vfork, exec: who is a process at the device
//   symbols.c        programs that look functions up (dlsym) or make system calls by number (syscall)
#pragma once
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define FILES 4096
#define HIDDEN __attribute__((visibility("hidden")))
#define REAL(name) ({ static __typeof__(name) *real; if (!real) real = (__typeof__(name) *)next_symbol(#name); real; })

enum { NOT_OURS = -1, DEAD = -2 };  // `device()`: no file of the device's; one that another process opened

HIDDEN extern pthread_mutex_t state_lock;

HIDDEN void *next_symbol(const char *name);
HIDDEN void *symbol_of(void *library, const char *name);
HIDDEN void refuse(const char *what);

// One request: header in JSON, body, a file descriptor or -1. The answer's header in `answer`; its body, as far as it
// fits `room`, in `body` again. -1 and errno where the device says one.
struct request { const char *header; void *body; size_t body_size, room; int pass; };
struct answer { char header[16384]; size_t body_size; int came; };
HIDDEN int ask(const struct request *request, struct answer *answer);
HIDDEN long long number(const struct answer *answer, const char *name);
HIDDEN int is_connection(int fd);
HIDDEN void connections_begin_anew(void);

HIDDEN int own_process(void);
HIDDEN void renew_after_fork(void);
HIDDEN void make_ready(void);
HIDDEN const char *device_root(void);
HIDDEN const char *device_socket(void);

HIDDEN int is_device(const char *path);
HIDDEN const char *moved(const char *path, char *room);

HIDDEN int device(int fd);
HIDDEN int open_device(const char *path, int flags);
HIDDEN int device_node(int fd, struct stat *about);
HIDDEN void files_begin_anew(void);
HIDDEN void find_inherited_files(void);

// A row of runtime_calls for each function of HIP and of the HSA runtime that is replaced.
enum {
  HIP_MALLOC, HIP_EXT_MALLOC, HIP_FREE, HIP_RANGE, POOL_ALLOCATE, POOL_FREE, HSA_ALLOCATE, HSA_FREE, HSA_INFO,
  ADD_RELAXED, ADD_SCACQUIRE, ADD_SCRELEASE, ADD_SCACQ_SCREL, CAS_RELAXED, CAS_SCACQUIRE, CAS_SCRELEASE, CAS_SCACQ_SCREL,
  STORE_RELAXED, STORE_SCRELEASE, RUNTIME_CALLS
};
struct runtime_call { const char *name; void *replacement; };
HIDDEN extern const struct runtime_call runtime_calls[RUNTIME_CALLS];
HIDDEN void *runtime_function(int call);
HIDDEN void *find_runtime_replacement(const char *name, void *found);
HIDDEN void find_callers(char *text, size_t size);
HIDDEN void tell_device(const char *header);

HIDDEN void maps_begin_anew(void);
HIDDEN int share_pages(uint64_t address, uint64_t size, uint64_t *start, uint64_t *length, uint64_t *offset);
