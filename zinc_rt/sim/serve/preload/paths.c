// Names below /sys and /dev that are the device's: a copy in ZINC_RT_SIM_ROOT, whose files are read anew when opened.
#include "preload.h"
#include <glob.h>
#include <sys/xattr.h>

static const char *const below[] = {"/sys/class/kfd", "/sys/class/drm", "/sys/devices/virtual/kfd", "/sys/module/amdgpu",
                                    "/sys/bus/pci", "/sys/devices/pci0000:00", "/dev/dri", "/dev/kfd", "/sys/dev/char"};

int is_device(const char *path) {
  return path && (!strcmp(path, "/dev/kfd") || !strncmp(path, "/dev/dri/renderD", 16));
}

// The path to use: `path`, or the copy's, in `room` (PATH_MAX bytes).
const char *moved(const char *path, char *room) {
  const char *root = device_root();
  if (!path || !root || (strncmp(path, "/sys/", 5) && strncmp(path, "/dev/", 5))) return path;
  char plain[PATH_MAX];
  size_t put = 0;
  for (const char *at = path; *at && put < sizeof plain - 1; at++)
    if (!(at[0] == '/' && at[1] == '/')) plain[put++] = *at;
  plain[put] = 0;
  for (size_t i = 0; i < sizeof below / sizeof *below; i++) {
    size_t length = strlen(below[i]);
    if (!strncmp(plain, below[i], length) && (!plain[length] || plain[length] == '/') &&
        snprintf(room, PATH_MAX, "%s%s", root, plain) < PATH_MAX)
      return room;
  }
  return path;
}

// What a path of the copy is called outside; in place.
static char *named(char *path) {
  const char *root = device_root();
  size_t length = root ? strlen(root) : 0;
  if (path && length && !strncmp(path, root, length) && path[length] == '/') memmove(path, path + length, strlen(path + length) + 1);
  return path;
}

// A file of the device as it reads now, in a memfd; NOT_OURS: another path, a folder, or one that the device lacks;
// DEAD and errno: the device keeps it from its clients.
static int fresh(const char *path, int flags) {
  char room[PATH_MAX], header[PATH_MAX + 64], text[16384];
  struct stat about;
  if (flags & (O_ACCMODE | O_DIRECTORY | O_PATH | O_CREAT) || moved(path, room) == path || strpbrk(path, "\"\\")) return NOT_OURS;
  if (REAL(stat)(room, &about) || !S_ISREG(about.st_mode)) return NOT_OURS;
  snprintf(header, sizeof header, "{\"op\": \"read_file\", \"path\": \"%s\"}", path);
  struct request request = {header, text, 0, sizeof text, -1};
  struct answer answer;
  int before = errno;
  if (ask(&request, &answer)) {
    if (errno == EPERM || errno == EACCES) return DEAD;
    errno = before;
    return NOT_OURS;
  }
  int fd = answer.body_size <= sizeof text ? memfd_create("zinc-rt file", flags & O_CLOEXEC ? MFD_CLOEXEC : 0) : NOT_OURS;
  if (fd >= 0 && (pwrite(fd, text, answer.body_size, 0) != (ssize_t)answer.body_size)) { REAL(close)(fd); return NOT_OURS; }
  return fd;
}

static int open_any(const char *path, int flags) {  // NOT_OURS: the C library's to open
  if (is_device(path)) return open_device(path, flags);
  int fd = path ? fresh(path, flags) : NOT_OURS;
  return fd;
}

#define OPENED(path, flags, call) \
  int made = open_any(path, flags); \
  if (made != NOT_OURS || is_device(path)) return made < 0 ? -1 : made; \
  char room[PATH_MAX]; \
  return call
#define OPENS(name) \
  int name(const char *path, int flags, ...) { \
    va_list more; va_start(more, flags); mode_t mode = va_arg(more, mode_t); va_end(more); \
    OPENED(path, flags, REAL(name)(moved(path, room), flags, mode)); \
  }
OPENS(open)
OPENS(open64)
#define OPENS_AT(name) \
  int name(int folder, const char *path, int flags, ...) { \
    va_list more; va_start(more, flags); mode_t mode = va_arg(more, mode_t); va_end(more); \
    OPENED(path, flags, REAL(name)(folder, moved(path, room), flags, mode)); \
  }
OPENS_AT(openat)
OPENS_AT(openat64)
int __open_2(const char *path, int flags) { return open(path, flags); }
int __open64_2(const char *path, int flags) { return open64(path, flags); }
int __openat_2(int folder, const char *path, int flags) { return openat(folder, path, flags); }
int __openat64_2(int folder, const char *path, int flags) { return openat64(folder, path, flags); }

#define STREAMS(name) \
  FILE *name(const char *path, const char *mode) { \
    int flags = strpbrk(mode, "wa+") ? O_RDWR : O_RDONLY, made = open_any(path, flags); \
    if (made >= 0) return fdopen(made, mode); \
    if (made == DEAD || is_device(path)) return NULL; \
    char room[PATH_MAX]; \
    return REAL(name)(moved(path, room), mode); \
  }
STREAMS(fopen)
STREAMS(fopen64)

// --- folders

DIR *opendir(const char *path) { char room[PATH_MAX]; return REAL(opendir)(moved(path, room)); }
int chdir(const char *path) { char room[PATH_MAX]; return REAL(chdir)(moved(path, room)); }
#define SCANS(name, entry) \
  int name(const char *path, struct entry ***list, int (*filter)(const struct entry *), \
           int (*compare)(const struct entry **, const struct entry **)) { \
    char room[PATH_MAX]; \
    return REAL(name)(moved(path, room), list, filter, compare); \
  }
SCANS(scandir, dirent)
SCANS(scandir64, dirent64)
int glob(const char *pattern, int flags, int (*failed)(const char *, int), glob_t *found) {
  char room[PATH_MAX];
  size_t before = flags & GLOB_APPEND ? found->gl_pathc : 0;
  int done = REAL(glob)(moved(pattern, room), flags, failed, found);
  for (size_t i = before; !done && i < found->gl_pathc; i++) named(found->gl_pathv[i]);
  return done;
}

// --- questions about names

int access(const char *path, int mode) { char room[PATH_MAX]; return REAL(access)(moved(path, room), mode); }
int eaccess(const char *path, int mode) { char room[PATH_MAX]; return REAL(eaccess)(moved(path, room), mode); }
int euidaccess(const char *path, int mode) { char room[PATH_MAX]; return REAL(euidaccess)(moved(path, room), mode); }
int faccessat(int folder, const char *path, int mode, int flags) {
  char room[PATH_MAX];
  return REAL(faccessat)(folder, moved(path, room), mode, flags);
}
ssize_t readlink(const char *path, char *to, size_t size) { char room[PATH_MAX]; return REAL(readlink)(moved(path, room), to, size); }
ssize_t readlinkat(int folder, const char *path, char *to, size_t size) {
  char room[PATH_MAX];
  return REAL(readlinkat)(folder, moved(path, room), to, size);
}
ssize_t __readlink_chk(const char *path, char *to, size_t size, size_t room) {
  if (size > room) abort();
  return readlink(path, to, size);
}
char *realpath(const char *path, char *to) { char room[PATH_MAX]; return named(REAL(realpath)(moved(path, room), to)); }
char *__realpath_chk(const char *path, char *to, size_t room) {
  if (room < PATH_MAX) abort();
  return realpath(path, to);
}
char *canonicalize_file_name(const char *path) { return realpath(path, NULL); }
char *getcwd(char *to, size_t size) { return named(REAL(getcwd)(to, size)); }

#define ATTRIBUTES(name) \
  ssize_t name(const char *path, const char *which, void *to, size_t size) { \
    char room[PATH_MAX]; \
    return REAL(name)(moved(path, room), which, to, size); \
  }
ATTRIBUTES(getxattr)
ATTRIBUTES(lgetxattr)
#define LISTS_ATTRIBUTES(name) \
  ssize_t name(const char *path, char *to, size_t size) { char room[PATH_MAX]; return REAL(name)(moved(path, room), to, size); }
LISTS_ATTRIBUTES(listxattr)
LISTS_ATTRIBUTES(llistxattr)

// --- stat: the copy's nodes are plain files, and the kernel's are character devices

static void as_node(const char *path, struct stat *about) {
  if (!is_device(path)) return;
  about->st_mode = S_IFCHR | 0666;
  about->st_rdev = strcmp(path, "/dev/kfd") ? makedev(226, atoi(path + 16)) : makedev(235, 0);
}

#define STATS(name, kind) \
  int name(const char *path, struct kind *about) { \
    char room[PATH_MAX]; \
    int done = REAL(name)(moved(path, room), about); \
    if (!done) as_node(path, (struct stat *)about); \
    return done; \
  }
STATS(stat, stat)
STATS(lstat, stat)
STATS(stat64, stat64)
STATS(lstat64, stat64)

#define OLD_STATS(name, kind) /* programs linked before glibc 2.33 */ \
  int name(int version, const char *path, struct kind *about); \
  int name(int version, const char *path, struct kind *about) { \
    char room[PATH_MAX]; \
    int done = REAL(name)(version, moved(path, room), about); \
    if (!done) as_node(path, (struct stat *)about); \
    return done; \
  }
OLD_STATS(__xstat, stat)
OLD_STATS(__lxstat, stat)
OLD_STATS(__xstat64, stat64)
OLD_STATS(__lxstat64, stat64)

#define FILE_STATS(name, kind, ...) \
    int done = REAL(name)(__VA_ARGS__); \
    if (!done) device_node(fd, (struct stat *)about); \
    return done
int fstat(int fd, struct stat *about) { FILE_STATS(fstat, stat, fd, about); }
int fstat64(int fd, struct stat64 *about) { FILE_STATS(fstat64, stat64, fd, about); }
int __fxstat(int version, int fd, struct stat *about);
int __fxstat(int version, int fd, struct stat *about) { FILE_STATS(__fxstat, stat, version, fd, about); }
int __fxstat64(int version, int fd, struct stat64 *about);
int __fxstat64(int version, int fd, struct stat64 *about) { FILE_STATS(__fxstat64, stat64, version, fd, about); }

#define STATS_AT(name, kind) \
  int name(int folder, const char *path, struct kind *about, int flags) { \
    char room[PATH_MAX]; \
    int done = REAL(name)(folder, moved(path, room), about, flags); \
    if (!done && !*path) device_node(folder, (struct stat *)about); \
    if (!done) as_node(path, (struct stat *)about); \
    return done; \
  }
STATS_AT(fstatat, stat)
STATS_AT(fstatat64, stat64)

int statx(int folder, const char *path, int flags, unsigned mask, struct statx *about) {
  char room[PATH_MAX];
  int done = REAL(statx)(folder, moved(path, room), flags, mask, about);
  struct stat node = {0};
  if (!done && !*path) device_node(folder, &node);
  if (!done) as_node(path, &node);
  if (node.st_mode) about->stx_mode = node.st_mode, about->stx_rdev_major = major(node.st_rdev), about->stx_rdev_minor = minor(node.st_rdev);
  return done;
}
