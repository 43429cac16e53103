// The functions of HIP and of the HSA runtime that this library replaces: how a replacement finds the real one, how
// programs that look a function up find the replacement, and the calling code of the program.
#include "preload.h"
#include <execinfo.h>

#define FRAMES 48  // HIP has up to 30 of its own between a launch and the queue
#define SHOWN 3    // of the program

static void *looked_up[RUNTIME_CALLS];  // by dlsym of a library that is not in the global scope

static const char *const libraries[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so", "libhsa-runtime64.so.1"};

void *runtime_function(int call) {
  if (!looked_up[call]) looked_up[call] = next_symbol(runtime_calls[call].name);
  for (size_t i = 0; !looked_up[call] && i < sizeof libraries / sizeof *libraries; i++) {
    void *library = dlopen(libraries[i], RTLD_LAZY | RTLD_NOLOAD);  // loaded by a plug-in, so in no global scope
    if (library) looked_up[call] = symbol_of(library, runtime_calls[call].name);
  }
  return looked_up[call];
}

void *find_runtime_replacement(const char *name, void *found) {
  for (int i = 0; i < RUNTIME_CALLS; i++)
    if (!strcmp(name, runtime_calls[i].name)) {
      if (found != runtime_calls[i].replacement) looked_up[i] = found;
      return runtime_calls[i].replacement;
    }
  return found;
}

static const char *file_name(const Dl_info *about) {
  const char *slash = strrchr(about->dli_fname, '/');
  return slash ? slash + 1 : about->dli_fname;
}

// "a.out+0x1234 (main+0x56) from a.out+0x1300": the first frames outside of this library and of the two runtimes.
void find_callers(char *text, size_t size) {
  void *frames[FRAMES];
  Dl_info about, own;
  int count = backtrace(frames, FRAMES), shown = 0;
  size_t end = 0;
  *text = 0;
  dladdr((void *)find_callers, &own);
  for (int i = 0; i < count && shown < SHOWN; i++) {
    if (!dladdr(frames[i], &about) || !about.dli_fname || about.dli_fbase == own.dli_fbase) continue;
    const char *file = file_name(&about);
    if (strstr(file, "libamdhip64") || strstr(file, "libhsa-runtime64")) continue;
    if (!strncmp(file, "libc.so", 7) || (!shown && !strncmp(file, "libstdc++", 9))) break;  // the thread's start
    size_t offset = (char *)frames[i] - (char *)about.dli_fbase;
    int added = snprintf(text + end, size - end, "%s%.60s+0x%zx", shown++ ? " from " : "", file, offset);
    if (added < 0 || end + added >= size) { text[end] = 0; break; }
    end += added;
    if (!about.dli_sname) continue;
    added = snprintf(text + end, size - end, " (%.40s+0x%zx)", about.dli_sname, (char *)frames[i] - (char *)about.dli_saddr);
    if (added < 0 || end + added >= size) { text[end] = 0; break; }
    end += added;
  }
  for (char *c = text; *c; c++)
    if (*c == '"' || *c == '\\' || (unsigned char)*c < ' ') *c = '?';
}

void tell_device(const char *header) {
  struct answer answer;
  struct request request = {header, NULL, 0, 0, -1};
  int before = errno;
  if (own_process()) ask(&request, &answer);
  errno = before;
}
