// open, close, duplicates and ioctl of device files. A file of ours stands for each of the device's, so that poll,
// select and epoll answer as the kernel does: /dev/kfd has no poll (always ready; epoll says EPERM), as a memfd; a
// render node without events is never readable, as a timerfd that nobody arms.
#include "preload.h"
#include <sys/ioctl.h>
#include <sys/timerfd.h>

#define KFD_MAJOR 235
#define DRM_MAJOR 226
#define STAND_IN "zinc-rt device"

static int device_of[FILES];  // the device's fd of ours, plus 1; 0: none; DEAD: another process opened it
static int minor_of[FILES];   // of a render node; 0: /dev/kfd and what ioctls handed out

int device(int fd) {
  if (fd < 0 || fd >= FILES || !device_of[fd]) return NOT_OURS;
  return device_of[fd] == DEAD || !own_process() ? DEAD : device_of[fd] - 1;
}

void files_begin_anew(void) {
  for (int fd = 0; fd < FILES; fd++)
    if (device_of[fd]) device_of[fd] = DEAD;
}

void find_inherited_files(void) {  // over exec
  char name[64], to[64];
  DIR *folder = REAL(opendir)("/proc/self/fd");
  for (struct dirent *each; folder && (each = readdir(folder));) {
    int fd = atoi(each->d_name);
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t length = REAL(readlink)(name, to, sizeof to - 1);
    if (length <= 0 || fd >= FILES) continue;
    to[length] = 0;
    if (strstr(to, STAND_IN)) device_of[fd] = DEAD;
  }
  if (folder) closedir(folder);
}

int device_node(int fd, struct stat *about) {
  if (device(fd) == NOT_OURS) return 0;
  about->st_mode = S_IFCHR | 0666;
  about->st_rdev = minor_of[fd] ? makedev(DRM_MAJOR, minor_of[fd]) : makedev(KFD_MAJOR, 0);
  return 1;
}

static int stand(int fd, int theirs, int minor) {
  if (fd >= FILES) {
    refuse("more than 4096 open files");
    REAL(close)(fd);
    errno = EMFILE;
    return -1;
  }
  pthread_mutex_lock(&state_lock);
  device_of[fd] = theirs + 1, minor_of[fd] = minor;
  pthread_mutex_unlock(&state_lock);
  return fd;
}

static int stand_in(int theirs, int minor, int flags) {
  int fd = minor ? timerfd_create(CLOCK_MONOTONIC, (flags & O_CLOEXEC ? TFD_CLOEXEC : 0) | (flags & O_NONBLOCK ? TFD_NONBLOCK : 0))
                 : memfd_create(STAND_IN, flags & O_CLOEXEC ? MFD_CLOEXEC : 0);
  return fd < 0 ? fd : stand(fd, theirs, minor);
}

int open_device(const char *path, int flags) {
  char header[256];
  struct answer answer;
  if (strlen(path) > 100) { errno = ENAMETOOLONG; return -1; }
  snprintf(header, sizeof header, "{\"op\": \"open\", \"path\": \"%s\", \"flags\": %d}", path, flags);
  struct request request = {header, NULL, 0, 0, -1};
  if (ask(&request, &answer)) return -1;
  return stand_in(number(&answer, "\"fd\": "), strcmp(path, "/dev/kfd") ? atoi(path + strlen("/dev/dri/renderD")) : 0, flags);
}

// --- close and duplicates

static void gone(int fd) {
  int theirs = device(fd);
  if (theirs == NOT_OURS) return;
  pthread_mutex_lock(&state_lock);
  if (own_process()) device_of[fd] = 0;
  for (int other = 0; other < FILES; other++)
    if (device_of[other] == theirs + 1) theirs = DEAD;  // another of ours stands for it
  pthread_mutex_unlock(&state_lock);
  if (theirs < 0) return;
  char header[64];
  struct answer answer;
  snprintf(header, sizeof header, "{\"op\": \"close\", \"fd\": %d}", theirs);
  struct request request = {header, NULL, 0, 0, -1};
  int before = errno;
  ask(&request, &answer);
  errno = before;
}

int close(int fd) {
  if (is_connection(fd)) { errno = EBADF; return -1; }
  gone(fd);
  return REAL(close)(fd);
}

int fclose(FILE *file) {
  if (file) gone(fileno(file));
  return REAL(fclose)(file);
}

int close_range(unsigned first, unsigned last, int flags) {
  if (flags || !own_process()) return REAL(close_range)(first, last, flags);  // only marked, or a child's files
  for (unsigned fd = first; fd <= last && fd < FILES; fd++)
    if (!is_connection(fd)) gone(fd), REAL(close)(fd);
  return last >= FILES ? REAL(close_range)(first > FILES ? first : FILES, last, flags) : 0;
}

void closefrom(int first) { close_range(first < 0 ? 0 : first, ~0u, 0); }

static int duplicate(int fd, int made) {
  if (made < 0 || made == fd || device(fd) < 0) return made;
  return stand(made, device(fd), minor_of[fd]);
}

int dup(int fd) { return duplicate(fd, REAL(dup)(fd)); }

#define OVER(call) \
  if (is_connection(to)) { refuse("dup2() over a file that this library uses"); errno = EBUSY; return -1; } \
  int theirs = device(to); \
  if (theirs >= 0 && fd != to && REAL(fcntl)(fd, F_GETFD) >= 0) gone(to); \
  return duplicate(fd, call)
int dup2(int fd, int to) { OVER(REAL(dup2)(fd, to)); }
int dup3(int fd, int to, int flags) { OVER(REAL(dup3)(fd, to, flags)); }

#define FCNTLS(name) \
  int name(int fd, int command, ...) { \
    va_list more; va_start(more, command); void *value = va_arg(more, void *); va_end(more); \
    int made = REAL(name)(fd, command, value); \
    return command == F_DUPFD || command == F_DUPFD_CLOEXEC ? duplicate(fd, made) : made; \
  }
FCNTLS(fcntl)
FCNTLS(fcntl64)

// --- ioctl

enum { GIVES = 1, TAKES, REFUSED, GEM_USERPTR, KFD_ALLOC };

// Calls with a file or pages of this process in them: where in the struct.
static const struct { char type; unsigned char number; int does, at; const char *name; } calls[] = {
    {'K', 0x15, TAKES, 0, "ACQUIRE_VM"},
    {'K', 0x16, KFD_ALLOC, 0, "ALLOC_MEMORY_OF_GPU"},
    {'K', 0x1C, TAKES, 28, "GET_DMABUF_INFO"},
    {'K', 0x1D, TAKES, 20, "IMPORT_DMABUF"},
    {'K', 0x1F, REFUSED, 0, "AMDKFD_IOC_SMI_EVENTS"},
    {'K', 0x24, GIVES, 12, "EXPORT_DMABUF"},
    {'d', 0x2D, GIVES, 8, "PRIME_HANDLE_TO_FD"},
    {'d', 0x2E, TAKES, 8, "PRIME_FD_TO_HANDLE"},
    {'d', 0x51, GEM_USERPTR, 0, "GEM_USERPTR"},
    {'d', 0xC1, GIVES, 8, "SYNCOBJ_HANDLE_TO_FD"},
    {'d', 0xC2, TAKES, 8, "SYNCOBJ_FD_TO_HANDLE"},
    {'d', 0xCF, REFUSED, 0, "DRM_IOCTL_SYNCOBJ_EVENTFD"},
};

static int copy(int (*move)(void *, void *, size_t), void *here, void *there, size_t size) { return size ? move(here, there, size) : 0; }
static int fetch(void *here, void *there, size_t size) {
  struct iovec to = {here, size}, from = {there, size};
  return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == (ssize_t)size ? 0 : -1;
}
static int put(void *here, void *there, size_t size) {
  struct iovec from = {here, size}, to = {there, size};
  return process_vm_writev(getpid(), &from, 1, &to, 1, 0) == (ssize_t)size ? 0 : -1;
}

static int device_ioctl(int theirs, unsigned long number_, void *argument) {
  size_t size = number_ >> 16 & 0x3FFF;
  char body[16384] __attribute__((aligned(8))), header[256];
  if (copy(fetch, body, argument, size)) { errno = EFAULT; return -1; }
  struct answer answer;
  int does = 0, at = 0, pages = -1;
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
    if ((number_ >> 8 & 0xFF) == (unsigned char)calls[i].type && (number_ & 0xFF) == calls[i].number) {
      does = calls[i].does, at = calls[i].at;
      if (does == REFUSED) { refuse(calls[i].name); errno = ENOSYS; return -1; }
    }
  int32_t *file = (int32_t *)(body + at);
  int32_t asked = *file;
  if (does == TAKES) *file = device(asked) < 0 ? -1 : device(asked);  // the device knows a file by its own number
  int foreign = does == TAKES && *file < 0 ? asked : -1;  // a dma-buf of another process: its memory says which
  uint64_t *words = (uint64_t *)body, start, length, offset;
  int end = snprintf(header, sizeof header, "{\"op\": \"ioctl\", \"fd\": %d, \"request\": %lu, \"size\": %zu, \"arrays\": [], "
                     "\"memory\": \"process\"", theirs, number_ & 0xFFFFFFFF, size);
  if (does == KFD_ALLOC && size >= 40 && ((uint32_t *)body)[9] & 4) pages = share_pages(words[3], words[1], &start, &length, &offset);
  if (does == GEM_USERPTR && size >= 24) pages = share_pages(words[0], words[1], &start, &length, &offset);
  if (pages >= 0)
    end += snprintf(header + end, sizeof header - end, ", \"pages\": [%llu, %llu, %llu]", (unsigned long long)start,
                    (unsigned long long)length, (unsigned long long)offset);
  if (foreign >= 0 && (pages = REAL(fcntl)(foreign, F_DUPFD_CLOEXEC, 0)) >= 0)
    end += snprintf(header + end, sizeof header - end, ", \"takes\": %d", at);
  if (does == GIVES) end += snprintf(header + end, sizeof header - end, ", \"gives\": %d", at);
  snprintf(header + end, sizeof header - end, "}");
  struct request request = {header, body, size, size, pages};
  int failed = ask(&request, &answer), why = errno;
  if (pages >= 0) REAL(close)(pages);
  if (does == TAKES) *file = asked;
  if (does == GIVES && !failed) *file = answer.came >= 0 ? stand(answer.came, *file, 0) : stand_in(*file, 0, O_CLOEXEC);
  if (!(failed && why == ENODEV) && copy(put, body, argument, size)) why = EFAULT, failed = -1;
  errno = why;
  return failed;
}

int ioctl(int fd, unsigned long request, ...) {
  va_list more; va_start(more, request); void *argument = va_arg(more, void *); va_end(more);
  int theirs = device(fd);
  if (theirs == NOT_OURS) return REAL(ioctl)(fd, request, argument);
  if (theirs == DEAD) { errno = EBADF; return -1; }  // kfd_ioctl: another process opened it
  return device_ioctl(theirs, request & 0xFFFFFFFF, argument);
}

// --- what these files have not

ssize_t read(int fd, void *to, size_t size) {
  if (device(fd) != NOT_OURS && !minor_of[fd]) { errno = EINVAL; return -1; }  // /dev/kfd has no read
  return REAL(read)(fd, to, size);
}

ssize_t write(int fd, const void *from, size_t size) {
  if (device(fd) != NOT_OURS) { errno = EINVAL; return -1; }
  return REAL(write)(fd, from, size);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
  for (struct cmsghdr *c = message ? CMSG_FIRSTHDR(message) : NULL; c; c = CMSG_NXTHDR((struct msghdr *)message, c))
    for (size_t i = 0; c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++)
      if (device(((int *)CMSG_DATA(c))[i]) != NOT_OURS) {
        refuse("sending a device file to another process (SCM_RIGHTS)");
        errno = EBADF;
        return -1;
      }
  return REAL(sendmsg)(fd, message, flags);
}
