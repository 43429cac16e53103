// Requests to the device's process: 4 bytes header length, 8 bytes body length, 1 byte number of fds, header, body.
#include "preload.h"
#include <sys/prctl.h>
#include <sys/un.h>

#define IDLE 256

static char token[64];
static unsigned char connections[FILES];  // our own sockets: the program never opened them and cannot close them
static int idle[IDLE], idle_count;        // left by threads that ended; one of them keeps the process alive there
static __thread int wire = -1;
static pthread_key_t at_thread_end;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;

int is_connection(int fd) { return fd >= 0 && fd < FILES && connections[fd] && own_process(); }

static void leave(void *held) {
  (void)held;
  pthread_mutex_lock(&state_lock);
  if (wire >= 0 && idle_count < IDLE) idle[idle_count++] = wire, wire = -1;
  pthread_mutex_unlock(&state_lock);
}

static void make_key(void) { pthread_key_create(&at_thread_end, leave); }

void connections_begin_anew(void) {  // in a child: the parent's connections are not its own
  for (int fd = 0; fd < FILES; fd++)
    if (connections[fd]) REAL(close)(fd);
  memset(connections, 0, sizeof connections);
  wire = -1, token[0] = 0, idle_count = 0;
}

static int whole(int fd, void *data, size_t size, int *came) {
  char *at = data;
  while (size) {
    union { char bytes[CMSG_SPACE(8 * sizeof(int))]; struct cmsghdr aligned; } control;
    struct iovec part = {at, size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return -1;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c))
      if (c->cmsg_type == SCM_RIGHTS) memcpy(came, CMSG_DATA(c), sizeof(int));
    at += got, size -= got;
  }
  return 0;
}

static int send_whole(int fd, struct msghdr *message) {
  for (;;) {
    ssize_t sent = REAL(sendmsg)(fd, message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return -1;
    message->msg_control = NULL, message->msg_controllen = 0;  // fds rode on the first byte
    while (message->msg_iovlen && (size_t)sent >= message->msg_iov->iov_len)
      sent -= message->msg_iov->iov_len, message->msg_iov++, message->msg_iovlen--;
    if (!message->msg_iovlen) return 0;
    message->msg_iov->iov_base = (char *)message->msg_iov->iov_base + sent, message->msg_iov->iov_len -= sent;
  }
}

// Returns 0 or an errno.
static int talk(int fd, const struct request *request, struct answer *answer) {
  unsigned char head[13];
  uint32_t header_size = strlen(request->header);
  uint64_t size = request->body_size;
  memcpy(head, &header_size, 4), memcpy(head + 4, &size, 8), head[12] = request->pass >= 0;
  struct iovec parts[3] = {{head, 13}, {(void *)request->header, header_size}, {request->body, request->body_size}};
  union { char bytes[CMSG_SPACE(sizeof(int))]; struct cmsghdr aligned; } control = {{0}};
  struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2 + !!request->body_size};
  if (request->pass >= 0) {
    message.msg_control = &control, message.msg_controllen = sizeof control;
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &request->pass, sizeof(int));
  }
  answer->came = -1;
  if (send_whole(fd, &message) || whole(fd, head, 13, &answer->came)) return ENODEV;
  memcpy(&header_size, head, 4), memcpy(&size, head + 4, 8);
  if (header_size >= sizeof answer->header || whole(fd, answer->header, header_size, &answer->came)) return ENODEV;
  answer->header[header_size] = 0, answer->body_size = size;
  for (uint64_t at = 0; at < size;) {
    char rest[4096];
    size_t step = at < request->room ? request->room - at : sizeof rest;
    if (step > size - at) step = size - at;
    if (whole(fd, at < request->room ? (char *)request->body + at : rest, step, &answer->came)) return ENODEV;
    at += step;
  }
  return strncmp(answer->header, "{\"errno\": ", 10) ? 0 : atoi(answer->header + 10);
}

long long number(const struct answer *answer, const char *name) {
  const char *at = strstr(answer->header, name);
  return at ? atoll(at + strlen(name)) : -1;
}

static int connection(struct answer *answer) {
  make_ready();
  if (!own_process()) renew_after_fork();
  if (!own_process()) {
    refuse("a call on the device by a child of vfork()");
    return -1;
  }
  if (wire >= 0) return wire;
  pthread_once(&key_once, make_key);
  pthread_setspecific(at_thread_end, &wire);
  pthread_mutex_lock(&state_lock);
  if (idle_count) wire = idle[--idle_count];
  pthread_mutex_unlock(&state_lock);
  if (wire >= 0) return wire;
  struct sockaddr_un name = {.sun_family = AF_UNIX};
  const char *path = device_socket();
  if (!path || strlen(path) >= sizeof name.sun_path) return -1;
  strcpy(name.sun_path, path);
  int low = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), fd = REAL(fcntl)(low, F_DUPFD_CLOEXEC, 512);
  if (fd < 0) fd = low;  // few files allowed; else out of the way of programs that count theirs
  else REAL(close)(low);
  char hello[128];
  pthread_mutex_lock(&state_lock);
  if (token[0]) snprintf(hello, sizeof hello, "{\"token\": \"%s\", \"version\": 1}", token);
  else snprintf(hello, sizeof hello, "{\"token\": null, \"version\": 1}");
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);  // the device reads what ioctls point to
  struct request first = {hello, NULL, 0, 0, -1};
  int failed = fd >= FILES || connect(fd, (void *)&name, sizeof name) || talk(fd, &first, answer);
  const char *at = failed ? NULL : strstr(answer->header, "\"token\": \"");
  if (at && !token[0]) sscanf(at + 10, "%63[0-9a-f]", token);
  if (!failed) connections[fd] = 1;
  pthread_mutex_unlock(&state_lock);
  if (failed) {
    REAL(close)(fd);
    fprintf(stderr, "zinc-rt sim: the device at %s does not answer\n", path);
    return -1;
  }
  return wire = fd;
}

int ask(const struct request *request, struct answer *answer) {
  int before = errno, fd = connection(answer);
  int failed = fd < 0 ? ENODEV : talk(fd, request, answer);
  errno = failed ? failed : before;
  return failed ? -1 : 0;
}
