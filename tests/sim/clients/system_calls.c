// What of Linux a program can ask of the device's files: names, links, folders, polls, closed ranges, children, exec,
// functions looked up. Prints OK, or the line that failed. With an argument: what an exec'ed program sees of fd argv[1].
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#define NEED(what) do { if (!(what)) { printf("line %d: %s (errno %d)\n", __LINE__, #what, errno); exit(1); } } while (0)
#define VERSION 0x80084B01
#define NODE "/sys/class/kfd/kfd/topology/nodes/1"

static int answers(int fd) { uint32_t version[2] = {0}; return !ioctl(fd, VERSION, version) && version[0] == 1; }

static void names(void) {
  char path[PATH_MAX], text[64] = "";
  NEED(realpath("/sys/class/kfd/kfd", path) && !strcmp(path, "/sys/devices/virtual/kfd/kfd"));
  NEED(realpath("/sys/class/drm/renderD128/device", path) && strstr(path, "/sys/devices/pci") == path);
  NEED(readlink("/sys/dev/char/226:128", path, sizeof path) > 0);
  int folder = open(NODE, O_RDONLY | O_DIRECTORY), file = openat(folder, "gpu_id", O_RDONLY);
  NEED(folder >= 0 && file >= 0 && read(file, text, sizeof text - 1) > 0 && atoi(text) > 0);
  NEED(!faccessat(folder, "properties", R_OK, 0));
  DIR *list = fdopendir(folder);
  int seen = 0;
  for (struct dirent *each; (each = readdir(list));) seen |= !strcmp(each->d_name, "mem_banks");
  NEED(seen);
  closedir(list);
  NEED(!chdir(NODE) && getcwd(path, sizeof path) && !strcmp(path, "/sys/devices/virtual/kfd/kfd/topology/nodes/1"));
  NEED(!access("caches/0/properties", R_OK) && !chdir("/"));
  struct stat about;
  int drm = open("/dev/dri/renderD128", O_RDWR);
  NEED(!fstat(drm, &about) && S_ISCHR(about.st_mode) && about.st_rdev == makedev(226, 128));
  NEED(!stat("/dev/dri/renderD128", &about) && about.st_rdev == makedev(226, 128));
  NEED(open("/dev/dri/renderD999", O_RDWR) < 0);
  close(drm);
}

static void polls(int kfd) {
  int drm = open("/dev/dri/renderD128", O_RDWR), watch = epoll_create1(0);
  struct pollfd both[2] = {{kfd, POLLIN, 0}, {drm, POLLIN, 0}};
  NEED(poll(both, 2, 0) == 1 && both[0].revents == POLLIN);  // /dev/kfd has no poll: always ready
  both[0].fd = -1;
  NEED(poll(both, 2, 20) == 0);  // no events of a render node
  struct epoll_event in = {.events = EPOLLIN};
  NEED(epoll_ctl(watch, EPOLL_CTL_ADD, kfd, &in) < 0 && errno == EPERM);
  NEED(!epoll_ctl(watch, EPOLL_CTL_ADD, drm, &in) && epoll_wait(watch, &in, 1, 20) == 0);
  fd_set set;
  FD_ZERO(&set);
  FD_SET(kfd, &set);
  struct timeval none = {0};
  NEED(select(kfd + 1, &set, NULL, NULL, &none) == 1);
  char byte;
  NEED(read(kfd, &byte, 1) < 0 && errno == EINVAL);
  close(drm), close(watch);
}

static void files(void) {
  int first = open("/dev/kfd", O_RDWR), second = dup(first), over = open("/dev/null", O_RDONLY);
  close(first);
  NEED(answers(second));
  NEED(dup2(over, second) == second && !answers(second));
  NEED(dup2(open("/dev/kfd", O_RDWR), over) == over && answers(over));
  int low = fcntl(over, F_DUPFD_CLOEXEC, 100);
  NEED(low >= 100 && answers(low));
  NEED(!close_range(90, 4000, 0) && !answers(low) && answers(over));  // the library's own sockets stay
  FILE *stream = fdopen(over, "r+");
  NEED(stream && !fclose(stream) && !answers(over));
  NEED(ioctl(second, VERSION, NULL) < 0);
  int kfd = open("/dev/kfd", O_RDWR), pair[2];
  NEED(ioctl(kfd, VERSION, (void *)8) < 0 && errno == EFAULT && answers(kfd));
  NEED(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
  char space[CMSG_SPACE(sizeof(int))] = {0}, byte = 0;
  struct iovec part = {&byte, 1};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
  struct cmsghdr *c = CMSG_FIRSTHDR(&message);
  c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(c), &kfd, sizeof kfd);
  NEED(sendmsg(pair[0], &message, 0) < 0 && errno == EBADF);
  close(kfd);
}

static void symbols(void) {
  void *library = dlopen("libc.so.6", RTLD_LAZY);
  int (*find)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(library, "open");
  int kfd = find("/dev/kfd", O_RDWR), number = syscall(SYS_openat, AT_FDCWD, "/dev/kfd", O_RDWR);
  NEED(answers(kfd) && answers(number));
  NEED(!syscall(SYS_ioctl, number, VERSION, (uint32_t[2]){0}));
  close(kfd), close(number);
}

static void *opens(void *to) { *(int *)to = open("/dev/kfd", O_RDWR); return NULL; }

static void threads(void) {  // a file outlives the thread that opened it
  pthread_t thread;
  int kfd = -1;
  NEED(!pthread_create(&thread, NULL, opens, &kfd) && !pthread_join(thread, NULL));
  NEED(answers(kfd));
  close(kfd);
}

static int ended(pid_t child) { int status; return waitpid(child, &status, 0) == child ? status : -1; }

static void children(const char *self, int kfd) {
  extern char **environ;
  char number[16];
  snprintf(number, sizeof number, "%d", kfd);
  char *words[] = {(char *)self, number, NULL}, *nothing[] = {NULL};
  pid_t child = fork();
  if (!child) {
    uint32_t version[2];
    int dead = ioctl(kfd, VERSION, version) < 0 && errno == EBADF;
    _exit(dead && answers(open("/dev/kfd", O_RDWR)) ? 0 : 1);
  }
  NEED(ended(child) == 0);
  child = fork();
  if (!child) { execve(self, words, nothing); _exit(9); }  // an empty environment
  NEED(ended(child) == 0);
  child = vfork();
  if (!child) { close(kfd); execve(self, words, environ); _exit(9); }
  NEED(ended(child) == 0 && answers(kfd));  // what the child closed stays open here
  NEED(!posix_spawn(&child, self, NULL, NULL, words, nothing) && ended(child) == 0);
  NEED(answers(kfd));
}

static void mappings(void) {
  int kfd = open("/dev/kfd", O_RDWR), drm = open("/dev/dri/renderD128", O_RDWR);
  FILE *id = fopen(NODE "/gpu_id", "r");
  uint32_t gpu = 0;
  NEED(id && fscanf(id, "%u", &gpu) == 1 && !fclose(id));
  struct { uint32_t drm, gpu; } acquire = {drm, gpu};
  NEED(!ioctl(kfd, 0x40084B15, &acquire));
  char *at = mmap(NULL, 32768, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  struct { uint64_t va, size, handle, offset; uint32_t gpu, flags; } a = {(uint64_t)at, 32768, 0, 0, gpu, 0x80000002};
  NEED(!ioctl(kfd, 0xC0284B16, &a));
  NEED(mmap(at, 32768, PROT_READ, MAP_PRIVATE | MAP_FIXED, drm, a.offset) == MAP_FAILED && errno == EINVAL);
  NEED(mmap(at, 32768, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, drm, a.offset) == at);
  at[4096 * 5] = 7;
  NEED(mremap(at, 32768, 65536, MREMAP_MAYMOVE) == MAP_FAILED && errno == EFAULT);
  NEED(!munmap(at + 8192, 8192) && at[4096 * 5] == 7);  // a hole: both ends stay
  NEED(mmap(at, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at && at[4096 * 5] == 7);
  char *again = mmap(NULL, 32768, PROT_READ, MAP_SHARED, drm, a.offset);
  NEED(again != MAP_FAILED && again[4096 * 5] == 7);
  struct { uint64_t handle; uint32_t flags, fd; } out = {a.handle, O_RDWR | O_CLOEXEC, 0};
  NEED(!ioctl(kfd, 0xC0104B24, &out));
  struct { uint32_t handle, flags; int32_t fd; } in = {0, 0, out.fd};
  NEED(!ioctl(drm, 0xC00C642E, &in) && in.handle && in.fd == (int)out.fd);
  char *theirs = mmap(NULL, 32768, PROT_READ, MAP_SHARED, out.fd, 0);
  NEED(theirs != MAP_FAILED && theirs[4096 * 5] == 7 && !munmap(theirs, 32768) && lseek(out.fd, 0, SEEK_END) >= 32768);
  NEED(!close(out.fd) && !munmap(again, 32768) && !munmap(at, 32768));
}

int main(int count, char **words) {
  if (count > 1) {
    uint32_t version[2];
    int dead = ioctl(atoi(words[1]), VERSION, version) < 0;
    return dead && answers(open("/dev/kfd", O_RDWR)) ? 0 : 1;
  }
  int kfd = open("/dev/kfd", O_RDWR);
  NEED(answers(kfd));
  names(), polls(kfd), files(), symbols(), threads(), children(words[0], kfd), mappings();
  puts("OK");
  return 0;
}
