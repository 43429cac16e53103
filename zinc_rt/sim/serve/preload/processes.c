// Who is a process at the device: this one; a forked child begins anew; a program that is exec'ed gets this library
// again. A page that the kernel wipes in a forked child (MADV_WIPEONFORK) tells a child with memory of its own from
// one that shares its parent's (vfork, posix_spawn).
#include "preload.h"
#include <spawn.h>

#define KEPT 3

static volatile int *alive;
static pid_t owner;
static char *kept[KEPT];  // LD_PRELOAD, socket and folder, for programs that choose an environment
static const char *const names[KEPT] = {"LD_PRELOAD", "ZINC_RT_SIM_SOCKET", "ZINC_RT_SIM_ROOT"};
static pthread_once_t once = PTHREAD_ONCE_INIT;
pthread_mutex_t state_lock = PTHREAD_MUTEX_INITIALIZER;

void refuse(const char *what) {
  static const char *said[64];
  for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
    if (said[i] == what) return;
    if (said[i]) continue;
    said[i] = what;
    fprintf(stderr, "zinc-rt sim: %s is not covered (docs/clients.md)\n", what);
    return;
  }
}

const char *device_socket(void) { return kept[1] ? kept[1] + strlen(names[1]) + 1 : NULL; }
const char *device_root(void) { return kept[2] ? kept[2] + strlen(names[2]) + 1 : NULL; }

int own_process(void) { return alive && *alive && owner == getpid(); }

void renew_after_fork(void) {
  if (!alive || *alive) return;  // shares its parent's memory: nothing here is its own
  pthread_mutex_init(&state_lock, NULL);
  *alive = 1, owner = getpid();
  connections_begin_anew(), files_begin_anew(), maps_begin_anew();
}

static void begin(void) {
  Dl_info about;
  for (int i = 0; i < KEPT; i++) {
    const char *value = getenv(names[i]);
    if (i == 0 && (!value || !*value) && dladdr(&once, &about)) value = about.dli_fname;
    if (value && asprintf(&kept[i], "%s=%s", names[i], value) < 0) kept[i] = NULL;
  }
  int *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED || madvise(page, 4096, MADV_WIPEONFORK)) return;
  alive = page, *alive = 1, owner = getpid();
  pthread_atfork(NULL, NULL, renew_after_fork);
  find_inherited_files();
}

void make_ready(void) { pthread_once(&once, begin); }
__attribute__((constructor)) static void start(void) { make_ready(); }

// --- exec: the new program finds the device too, whatever environment it is given

static char **with_device(char *const environment[]) {
  size_t count = 0;
  while (environment && environment[count]) count++;
  char **made = calloc(count + KEPT + 1, sizeof *made);
  if (!made) return (char **)environment;
  size_t put = 0;
  for (size_t i = 0; i < count; i++) {
    int ours = 0;
    for (int k = 0; k < KEPT && !ours; k++) {
      size_t length = strlen(names[k]);
      ours = kept[k] && !strncmp(environment[i], names[k], length) && environment[i][length] == '=';
      if (ours && !k && !strstr(environment[i] + length, kept[0] + length + 1)) {  // another library: ours goes first
        char *both = NULL;
        if (asprintf(&both, "%s %s", kept[0], environment[i] + length + 1) >= 0) made[put++] = both;
        k = KEPT;
      } else if (ours && !k) {
        made[put++] = environment[i];
      }
    }
    if (!ours) made[put++] = environment[i];
  }
  int preload = 0;
  for (size_t i = 0; i < put; i++) preload |= !strncmp(made[i], "LD_PRELOAD=", 11);
  for (int k = preload ? 1 : 0; k < KEPT; k++)
    if (kept[k]) made[put++] = kept[k];
  return made;
}

int execve(const char *path, char *const words[], char *const environment[]) {
  return REAL(execve)(path, words, with_device(environment));
}
int execvpe(const char *file, char *const words[], char *const environment[]) {
  return REAL(execvpe)(file, words, with_device(environment));
}
int fexecve(int fd, char *const words[], char *const environment[]) {
  return REAL(fexecve)(fd, words, with_device(environment));
}
int posix_spawn(pid_t *made, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *how,
                char *const words[], char *const environment[]) {
  return REAL(posix_spawn)(made, path, actions, how, words, with_device(environment));
}
int posix_spawnp(pid_t *made, const char *file, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *how,
                 char *const words[], char *const environment[]) {
  return REAL(posix_spawnp)(made, file, actions, how, words, with_device(environment));
}
